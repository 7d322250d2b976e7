"""Steps over all rows in compiled code, by the rules of the loop and with its bits.

Calls `problm.jit`, `problm.kernels` and the linear algebra. Start with `problm.solver.compiled.advance`.
"""
