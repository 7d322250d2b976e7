r"""Ways off a point where the gradient vanishes and that is no minimum.

A vanishing gradient does not distinguish a minimum from a saddle point, which a symmetric start (two equal terms) leads
to. The Jacobian is rank-deficient there, and the cost falls along directions that it does not see; `way_down` looks for
one. Errors of derivatives by differences hide slopes, too; `way_down_in_doubt` measures them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ...linalg.quadratic import QuadraticModel
from ..problem import Theta
from ..run import Run
from ..termination import TOLERANCE
from .costs import REACH, Array, change_by, cost_at, gain_of, parabola
from .exact import perfect

_ESCAPES = (1e-2, 0.9)
"""Lengths of steps off a saddle point or a plateau, relative to the parameters: a short one, and one that moves a
parameter nearly to zero (a step so steep that no data point shows its slope)."""
_MOST_OF_IT = 0.5
"""Share of the largest gain with which the nearest point is preferred."""
_MOST_ESCAPES = 3
"""Largest number of saddle points to leave in one solve."""
_DECADES = (1e2, 1e4, 1e6, 1e8)
"""More lengths if no residual depends on any parameter: the size of parameters that start at zero is not known."""


def leave_saddle(run: Run) -> bool:
    """Descend along a direction that a rank-deficient or inexact Jacobian does not see; return whether there is one."""
    if run.escapes >= _MOST_ESCAPES:
        return False
    point = way_down(run, run.system) if run.system.singular else None
    if point is None:
        point = way_down_in_doubt(run, run.system)
    run.escapes += run.system.singular or point is not None
    if point is not None:
        run.move_off(point)
    return point is not None


def way_down(run: Run, model: QuadraticModel) -> Theta | None:
    """Find a point of lower cost along a direction that the Jacobian does not see; None if there is none: of those that
    gain most, the nearest. Farther out may be another plateau (a peak as wide as a continent). Below residuals that are
    only rounding errors there is nothing."""
    if perfect(run, model):
        return None
    found = []
    for length, step in _unseen(run, model):
        point = run.space.inside(run.problem.retract(run.batch.theta, step))
        cost = cost_at(run, point)
        if math.isfinite(cost) and cost < model.cost * (1.0 - 1e-9):
            found.append((length, cost, point))
    enough = model.cost - _MOST_OF_IT * (model.cost - min((cost for _, cost, _ in found), default=0.0))
    return min((f for f in found if f[1] <= enough), key=lambda f: f[:2], default=(0, 0, None))[2]


def way_down_in_doubt(run: Run, model: QuadraticModel) -> Theta | None:
    """A point with a lower cost along a direction whose slope the errors of the derivatives hide, or None.

    Errors of a Jacobian by differences are small, but divided by a small singular value they may hide many times the
    tolerance: slope and curvature along it are measured by the cost.
    """
    freedom = run.termination.freedom
    error, values, steps = model.weak or (0.0, [], [])
    for value, step in zip(values, steps, strict=True):
        if not (value > error and freedom * (error / value) ** 2 > TOLERANCE**2 and model.cost > 0.0):
            continue  # what errors hide, as a cosine between residuals and tangent space, does not matter
        t = math.sqrt(2.0 * REACH * model.cost) / float(value)
        ahead, behind = change_by(run, model, t * step), change_by(run, model, -t * step)
        slope, curvature = parabola(ahead, behind, t)
        if math.inf > freedom * gain_of(slope, curvature) > TOLERANCE**2 * model.cost:
            point = run.space.inside(run.problem.retract(run.batch.theta, -slope / curvature * step))
            if cost_at(run, point) < model.cost:
                return point
    return None


def still_falls(run: Run) -> bool:
    """Whether the cost falls along a direction that the Jacobian does not see after all saddle points were left."""
    return run.system.singular and run.escapes >= _MOST_ESCAPES and way_down(run, run.system) is not None


def _unseen(run: Run, model: QuadraticModel) -> Iterator[tuple[float, Array]]:
    """Steps to both sides along the null space of H, and their lengths relative to the sizes of the parameters."""
    theta, hessian = run.batch.theta, model.normal.hessian
    if not isinstance(hessian, np.ndarray):
        return  # of many parameters, whose null space is not known
    d = len(hessian)
    flat = isinstance(theta, np.ndarray) and theta.shape == (d,)
    sizes = np.maximum(np.abs(theta), 1e-3) if flat else np.ones(d)
    scaled = hessian * sizes * sizes[:, None]
    root = np.sqrt(np.maximum(scaled.diagonal(), 1e-300))
    values, vectors = np.linalg.eigh(scaled / root / root[:, None])
    # Not where every residual exceeds a bounded loss: there residuals do depend on parameters, only weights vanish.
    blind = root.max() <= 1e-150 and model.cost < (1.0 - 1e-9) * run.termination.ceiling
    for vector in vectors[:, values <= 1e-12 * values[-1]].T:
        step = sizes * vector / np.maximum(root, 1e-150)
        step /= max(float(np.abs(step / sizes).max()), 1e-300)
        if run.space.fixed is not None:
            step[run.space.fixed] = 0.0
        for length in (*_ESCAPES, *_DECADES) if blind else _ESCAPES:
            yield length, length * step
            yield length, -length * step
