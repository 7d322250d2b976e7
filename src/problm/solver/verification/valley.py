r"""The cost along the floor of a valley, which straight lines leave.

With the gradient g and the true second derivatives B of the cost, a straight line along s shows the gain
``(g^T s)^2 / (2 s^T B s)``, which is at most that of Newton's step, ``g^T B^-1 g / 2``, and much less in a curved
valley: its wall bends the line upwards. The floor has no wall. It is the curve of the minima over the planes across s,

    theta + t s + d(t),        d(t) = argmin f(theta + t s + d) over the d that are orthogonal to s,

found by Gauss-Newton steps within the plane. If the minimum lies G below, at the end of a step that predicts p, then
the cost at ``t = E / p`` is lower by ``2 E - E^2 / G``: by more than E if, and only if, G exceeds E. A point on the
floor that is lower by the tolerance refutes a minimum, whatever straight lines say. No model is believed: the cost is
evaluated.
"""

from __future__ import annotations

import math

import numpy as np

from ...linalg.dense import solve_unit
from ...linalg.normal import Normal
from ...linalg.quadratic import QuadraticModel
from ..problem import Theta
from ..run import Run
from ..termination import TOLERANCE
from .costs import Array, cost_at
from .exact import perfect

_CORRECTIONS = 3
"""Largest number of Gauss-Newton steps back to the floor."""
_FARTHER = 4.0
"""Factor between the distances of points on a floor that falls."""
_MOST_POINTS = 20


def follow_valley(run: Run) -> bool:
    """Move along the floor of a valley if the cost falls there by more than the tolerance; return whether it does."""
    point = lower_on_floor(run, run.system)
    if point is not None:
        run.move_off(point)
    return point is not None


def lower_on_floor(run: Run, model: QuadraticModel) -> Theta | None:
    """A point on the floor along the Gauss-Newton step whose cost is lower by more than the tolerance, or None.

    Takes one or two passes where the cost does not fall. The model is asked nothing else: where its own decrease is
    within the tolerance, or residuals are only rounding errors, there is nothing to refute.
    """
    step, predicted, _ = model.step(0.0)
    enough = TOLERANCE**2 * model.cost / run.termination.freedom
    if not (isinstance(model.normal.hessian, np.ndarray) and 0.0 < enough < predicted < math.inf):
        return None
    if perfect(run, model):
        return None
    floor, t = Floor(run, model, step), enough / predicted
    best, lowest = None, model.cost - enough
    for _ in range(_MOST_POINTS):
        point, cost = floor.at(t, 0.1 * enough)
        if not cost < lowest:
            break
        best, lowest, t = point, cost, _FARTHER * t
    return best


class Floor:
    """The floor of a valley along a step from the present point."""

    def __init__(self, run: Run, model: QuadraticModel, step: Array) -> None:
        self.run, self.step = run, step
        free = run.space.free(run.batch.theta, model.normal.gradient)
        self.free = np.arange(len(step)) if free is None else free
        self.offset, self.distance = np.zeros(len(step)), 1.0

    def at(self, t: float, least: float) -> tuple[Theta, float]:
        """The point on the floor at t times the step, and its mean cost; corrections that gain less than ``least`` end
        the search for it."""
        # The floor bends away from the step by the square of the distance.
        offset = (t / self.distance) ** 2 * self.offset
        point, cost = self._there(t, offset)
        for _ in range(_CORRECTIONS if len(self.free) > 1 else 0):
            correction = self._across(point)
            if correction is None:
                break
            there, lower = self._there(t, offset + correction)
            if not lower < cost:
                break
            gained, point, cost, offset = cost - lower, there, lower, offset + correction
            if gained <= least:
                break
        self.offset, self.distance = offset, t
        return point, cost

    def _there(self, t: float, offset: Array) -> tuple[Theta, float]:
        run = self.run
        point = run.space.inside(run.problem.retract(run.batch.theta, t * self.step + offset))
        cost = cost_at(run, point)
        return point, cost if math.isfinite(cost) else math.inf

    def _across(self, point: Theta) -> Array | None:
        """The Gauss-Newton step (d,) from a point within the plane across the valley; None if it has none."""
        run = self.run
        normal: Normal = run.problem.linearize(point, 0, run.problem.n, outer=False, costs=None)
        run.batch.count_jacobians(1, run.problem.n)
        hessian = normal.hessian[np.ix_(self.free, self.free)]
        scale = 1.0 / np.sqrt(np.maximum(hessian.diagonal(), 1e-300))
        along = self.step[self.free] / scale
        length = float(np.linalg.norm(along))
        if not (0.0 < length < math.inf and math.isfinite(normal.cost + float(normal.gradient.sum()))):
            return None
        plane = np.linalg.qr((along / length)[:, None], mode="complete")[0][:, 1:]
        matrix = plane.T @ (hessian * scale * scale[:, None]) @ plane
        right = plane.T @ (scale * normal.gradient[self.free])
        correction = np.zeros(len(self.step))
        correction[self.free] = -scale * (plane @ solve_unit(matrix, right)[0])
        return correction if np.isfinite(correction).all() else None
