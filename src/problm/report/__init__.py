"""What people look at: text, plots, HTML pages, progress; and results as files.

Calls `problm.solver` and `problm.support`. Start with `problm.report.text`.
"""
