"""Compiled passes over rows: residuals, derivatives and losses of a block of rows, summed in place.

Calls `problm.linalg`, `problm.losses`, `problm.jit` and `problm.support`. Start with `problm.kernels.kernel`.
"""
