"""Compilation by Numba, ahead of time or on demand; vector loops, elementary functions and Gram matrices.

Calls only `problm.support`. Start with `problm.jit.njit`, the decorator that the package compiles with.
"""
