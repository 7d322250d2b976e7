"""Normal equations and the quadratic model that they define: factorisations, steps, covariances, bounds.

Calls only `problm.jit` and `problm.support`. Start with `problm.linalg.normal`, the sums that every problem returns.
"""
