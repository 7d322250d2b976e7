"""Rows on many workers: the same loop, with sums collected by Dask.

Calls `problm.problems`, `problm.data`, `problm.solver`, `problm.linalg` and `problm.sampling`. Start with
`problm.distributed.problem`.
"""
