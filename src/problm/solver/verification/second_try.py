"""A second try with short first steps, where a solve of few rows went astray.

The first steps may be as long as a hundred times the start (`problm.solver.rules.FACTOR`, as in MINPACK). From a poor
start they lead to infinity, on plateaus and on degenerate faces of the bounds, although there is a minimum near. Such
an end says so, and passes over few rows are cheap: the solve begins again at the start, with first steps of at most a
tenth of its length. Its end counts if it is a minimum, and lower by more than the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from ..damping import TrustRegion
from ..outcome import result_of
from ..result import Result, Status
from ..run import Run
from ..termination import TOLERANCE

_ASTRAY = (Status.RUNS_AWAY, Status.NOT_DETERMINED, Status.STALLED)
_FACTOR = 0.1
"""First radius, relative to the start. Of 18 fits of Lorentzians with bounds that had gone astray, it led 10 to a lower
minimum (0.3: 7, 1: 3, 10: 1); of 30 problems of large residuals 3 (3, 2, 1)."""
_MOST = 500
"""Largest number of its iterations: ways to infinity take thousands."""
R = TypeVar("R", bound=Run)


def has_chances(run: Run, result: Result) -> bool:
    """Whether a solve with this result may be repeated: it went astray, rows are few, and nobody watches."""
    problem, options, start = run.problem, run.options, run.start
    return (
        result.status in _ASTRAY
        and run.begun
        and not run.refused
        and problem.n <= problem.digits_up_to
        and isinstance(start, np.ndarray)
        and start.shape == (problem.dim,)
        and problem.move is None
        and isinstance(run.damping, TrustRegion)
        and (options.damping, options.callback, options.checkpoint) == (None, None, None)
        and options.nan_policy != "raise"
    )


def better(run: R, result: Result, until_done: Callable[[R, None], Status]) -> Result:
    """The result of the second try if that ends at a lower minimum; else the first one, with all evaluations counted.

    ``until_done(run, None)`` iterates until the end of a run.
    """
    most = min(run.options.max_iter, len(run.history) + _MOST)
    again = run.again(damping=TrustRegion(factor=_FACTOR), max_iter=most)
    status = until_done(again, None)
    second = result_of(again, status)
    if second.success and run.termination.freedom * (result.cost - second.cost) > TOLERANCE**2 * second.cost:
        return replace(second, nfev=result.nfev + second.nfev, njev=result.njev + second.njev)
    if status is Status.INTERRUPTED:
        result = replace(result, status=status, message=status.message)
    return replace(
        result,
        nfev=result.nfev + second.nfev,
        njev=result.njev + second.njev,
        residual_passes=second.residual_passes,
        jacobian_passes=second.jacobian_passes,
        seconds=second.seconds,
    )
