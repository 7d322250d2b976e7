"""Rows on many workers: the same loop, with sums collected by Dask or by three functions of your own.

Calls `problm.problems`, `problm.data`, `problm.solver`, `problm.linalg` and `problm.sampling`. Start with
`problm.distributed.problem` and `problm.distributed.map_reduce`.
"""
