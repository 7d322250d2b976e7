"""Changes of the mean cost over all rows, and the parabola through two of them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...linalg.quadratic import QuadraticModel
from ..problem import Theta
from ..run import Run

Array = NDArray[np.float64]
REACH = 1e-6
"""Relative change of the cost, from the slope alone, over the distance at which it is evaluated."""
_MOST_CUTS = 20
_EPS = float(np.finfo(np.float64).eps)


def change_by(run: Run, model: QuadraticModel, step: Array) -> float:
    """Change of the mean cost over all rows by a step."""
    return cost_at(run, run.space.inside(run.problem.retract(run.batch.theta, step))) - model.cost


def cost_at(run: Run, theta: Theta) -> float:
    run.batch.count_residuals(run.problem.n)
    return run.problem.cost(theta) / run.problem.n


def parabola(ahead: float, behind: float, t: float) -> tuple[float, float]:
    """Slope and curvature along a step by the changes of the cost at t and -t."""
    return (ahead - behind) / (2.0 * t), (ahead + behind) / t / t


def gain_of(slope: float, curvature: float) -> float:
    """Decrease of the cost to the minimum of a parabola; infinite if it has none."""
    return 0.5 * slope * (slope / curvature) if curvature > 0.0 else math.inf


def short_way(run: Run, model: QuadraticModel, step: Array, t: float) -> tuple[float, float]:
    """A fraction t of the step over which the cost changes little, and the change of the mean cost there."""
    ahead = change_by(run, model, t * step)
    for _ in range(_MOST_CUTS):
        if abs(ahead) <= 10.0 * REACH * model.cost:
            break
        # Shorten t to where a parabola through this change would be small.
        t *= max(math.sqrt(REACH * model.cost / abs(ahead)), 1e-3) if math.isfinite(ahead) else 1e-3
        ahead = change_by(run, model, t * step)
    return t, ahead


def rounding(run: Run, cost: float) -> float:
    """Change of the mean cost at the present point by rounding of the parameters (if they are plain numbers)."""
    theta = run.batch.theta
    least = 4.0 * _EPS * cost
    if not (isinstance(theta, np.ndarray) and theta.shape == (run.problem.dim,)):
        return least
    signs = np.where(np.arange(len(theta)) % 2, 1.0, -1.0)
    moved = (run.space.inside(theta * (1.0 + 4.0 * _EPS * s)) for s in (signs, -signs, np.ones(len(theta))))
    return max([least, *(abs(cost_at(run, point) - cost) for point in moved)])
