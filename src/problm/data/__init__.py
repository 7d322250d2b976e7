"""Sources of rows: arrays, tables, files larger than memory; and shuffled copies of files.

Calls `problm.sampling` and `problm.support`. Start with `problm.data.sources`.
"""
