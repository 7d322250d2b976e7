"""The method: progressive-batching Levenberg-Marquardt, its policies, and the result.

Calls `problm.linalg`, `problm.sampling`, `problm.losses`, `problm.support` and, to show results, `problm.report`; only
the compiled loop calls `problm.kernels`. Start with `problm.solver.loop`, then `problm.solver.problem`.
"""

from .loop import solve
from .problem import Problem

__all__ = ["Problem", "solve"]
