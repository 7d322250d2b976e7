"""Models of rows: ready-made curves, formulas, traced functions; their derivatives and first guesses.

Calls `problm.kernels`, `problm.losses`, `problm.jit` and `problm.support`, never the solver. Start with
`problm.models.formula`.
"""
