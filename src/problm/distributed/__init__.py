"""Rows on many workers: the same loop, with sums that Dask brings together.

Calls `problm.problems`, `problm.data`, `problm.solver`, `problm.linalg` and `problm.sampling`. Start with
`problm.distributed.problem`.
"""
