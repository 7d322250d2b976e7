"""Output for people: text, plots, HTML pages, progress; numbers as JSON.

Calls only `problm.support`: results show themselves by calling this room. Start with `problm.report.text`.
"""
