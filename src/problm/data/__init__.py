"""Where rows come from: arrays, tables, files larger than memory; and how files are shuffled.

Calls `problm.sampling` and `problm.support`. Start with `problm.data.sources`.
"""
