"""Compilation by Numba, and what compiled code is made of: vectors, elementary functions, Gram matrices.

Calls only `problm.support`. Start with `problm.jit.njit`, the decorator that the package compiles with.
"""
