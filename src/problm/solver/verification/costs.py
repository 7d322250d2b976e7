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
