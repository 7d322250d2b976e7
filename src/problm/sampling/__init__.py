"""Random orders of rows that are never written down, and statistics of the rows that were drawn.

Calls only `problm.jit` and `problm.support`. Start with `problm.sampling.order`.
"""
