"""Problems for the solver, made from NumPy functions, compiled models, JAX, PyTorch, or files.

Calls `problm.data`, `problm.solver.problem`, `problm.kernels`, `problm.linalg`, `problm.sampling` and `problm.losses`.
Start with `problm.problems.rows`.
"""
