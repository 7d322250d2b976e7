"""Random orders of rows, drawn only as needed, and statistics of the drawn rows.

Calls only `problm.jit` and `problm.support`. Start with `problm.sampling.order`.
"""
