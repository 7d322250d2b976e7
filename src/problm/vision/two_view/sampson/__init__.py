"""Second derivatives of the Sampson error, so that one pass over all matches is enough (`problm.solver.short_end`).

Calls `problm.kernels`, `problm.manifolds` and `problm.jit`. Start with `problm.vision.two_view.sampson.second_order`.
"""
