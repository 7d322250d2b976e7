r"""Slope and curvature by the cost itself, where the quadratic model may be wrong.

The distance to the minimum that `problm.solver.termination` judges by is the model's. At a minimum where the Jacobian
is singular the model promises a decrease that never comes; where derivatives are wrong, no step goes down far from any
minimum; and close to a perfect fit rounding decides. So the cost is evaluated at both ends of a short way along a step
s: with the changes f+ and f- of the mean cost at ``theta + t s`` and ``theta - t s``,

    slope = (f+ - f-) / (2 t),        curvature = (f+ + f-) / t^2,        gain = slope^2 / (2 curvature),

and the point is verified as a minimum if, for steps from Gauss-Newton's to nearly steepest descent, the gain by the
steeper of this slope and the gradient's is below the tolerance in standard errors, or if rounding of the cost hides all
that the model promises.

A vanishing gradient does not tell a minimum from a saddle point, which a symmetric start (two equal terms) leads to.
The Jacobian is rank-deficient there, and the cost falls along the directions that it does not see: `way_down` looks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..linalg.quadratic import QuadraticModel
from .problem import Theta
from .run import Run
from .termination import TOLERANCE

Array = NDArray[np.float64]
_REACH = 1e-6
"""Change of the cost by slope alone, relative to it, along the way on which it is evaluated."""
_MOST_CUTS = 20
_MOST_NOISE = 1e-6
"""Rounding of the cost, relative to it, by which a minimum may still be judged."""
_DIGITS = 1e-10
_PERFECT = 1e-28
_DAMPINGS = (0.0, 1e-6, 1e-3, 1.0)
_EPS = float(np.finfo(np.float64).eps)


def verified(run: Run, model: QuadraticModel) -> bool:
    """Whether the cost itself says that the point is a minimum; takes some ten passes over the residuals."""
    if settled(run, model) or perfect(run, model):
        return True
    noise = rounding(run, model.cost)
    if noise > _MOST_NOISE * model.cost:
        return False  # parameters so large that their last digits decide
    return 2.0 * model.decrement <= 10.0 * noise or all(_ends(run, model, damping, noise) for damping in _DAMPINGS)


def perfect(run: Run, model: QuadraticModel) -> bool:
    """Whether residuals are nothing but rounding: 1e-14 of what parameters as large as the start contribute to them."""
    signal = float((model.normal.hessian.diagonal() * _sizes(run, run.start) ** 2).sum()) / model.count
    return model.cost <= _PERFECT * signal


def settled(run: Run, model: QuadraticModel) -> bool:
    """Whether the Gauss-Newton step changes no parameter in its first ten digits: the end of a fit of exact data, where
    there are no standard errors to measure by."""
    return bool((np.abs(model.step(0.0)[0]) <= _DIGITS * _sizes(run, run.batch.theta)).all())


def _sizes(run: Run, theta: Theta) -> Array:
    """(d,) sizes of the parameters at a point, the start's included; of rotations and directions one."""
    start, d = run.start, run.problem.dim
    if not (isinstance(theta, np.ndarray) and theta.shape == (d,)):
        return np.ones(d)
    return np.maximum(np.maximum(np.abs(theta), np.abs(start)), 1e-6 * float(np.abs(start).max(initial=0.0)))


def _ends(run: Run, model: QuadraticModel, damping: float, noise: float) -> bool:
    """Whether there is nothing to be gained along the step of this damping."""
    step, predicted, _ = model.step(damping)
    slope = float(model.normal.gradient @ step) / model.count
    if predicted <= 10.0 * noise or not slope < 0.0:
        return True
    t, ahead = _short_way(run, model, step, min(1.0, _REACH * model.cost / -slope))
    steepest = -slope
    if run.space.bounded:
        curvature = 2.0 * (ahead - t * slope) / t**2
    else:
        behind = _change(run, model, -t * step)
        steepest, curvature = max(-slope, abs(ahead - behind) / (2.0 * t)), (ahead + behind) / t**2
    if not curvature > 0.0:
        return False
    return run.termination.freedom * 0.5 * steepest**2 / curvature <= TOLERANCE**2 * model.cost


def _short_way(run: Run, model: QuadraticModel, step: Array, t: float) -> tuple[float, float]:
    """A share t of the step by which the cost changes little, and the change of its mean there."""
    ahead = _change(run, model, t * step)
    for _ in range(_MOST_CUTS):
        if abs(ahead) <= 10.0 * _REACH * model.cost:
            break
        # Down to where the parabola through this change is low, if it is one.
        t *= max(math.sqrt(_REACH * model.cost / abs(ahead)), 1e-3) if math.isfinite(ahead) else 1e-3
        ahead = _change(run, model, t * step)
    return t, ahead


def _change(run: Run, model: QuadraticModel, step: Array) -> float:
    """Change of the mean cost over everything by a step."""
    return _cost(run, run.space.inside(run.problem.retract(run.batch.theta, step))) - model.cost


def _cost(run: Run, theta: Theta) -> float:
    run.batch.count_residuals(run.problem.n)
    return run.problem.cost(theta) / run.problem.n


def rounding(run: Run, cost: float) -> float:
    """By how much rounding changes the mean cost at the present point: of the parameters, if they are numbers."""
    theta = run.batch.theta
    least = 4.0 * _EPS * cost
    if not (isinstance(theta, np.ndarray) and theta.shape == (run.problem.dim,)):
        return least
    signs = np.where(np.arange(len(theta)) % 2, 1.0, -1.0)
    moved = (run.space.inside(theta * (1.0 + 4.0 * _EPS * s)) for s in (signs, -signs, np.ones(len(theta))))
    return max([least, *(abs(_cost(run, point) - cost) for point in moved)])


def way_down(run: Run, model: QuadraticModel) -> Theta | None:
    """A point with a lower cost along a direction that the Jacobian does not see, or None."""
    best: tuple[float, Theta] = (model.cost * (1.0 - 1e-9), None)
    for step in _unseen(run, model):
        point = run.space.inside(run.problem.retract(run.batch.theta, step))
        cost = _cost(run, point)
        if math.isfinite(cost) and cost < best[0]:
            best = cost, point
    return best[1]


def _unseen(run: Run, model: QuadraticModel) -> Iterator[Array]:
    """Short steps to both sides along the null space of H, relative to the sizes of the parameters."""
    theta, hessian = run.batch.theta, model.normal.hessian
    d = len(hessian)
    flat = isinstance(theta, np.ndarray) and theta.shape == (d,)
    sizes = np.maximum(np.abs(theta), 1e-3) if flat else np.ones(d)
    scaled = hessian * sizes * sizes[:, None]
    root = np.sqrt(np.maximum(scaled.diagonal(), 1e-300))
    values, vectors = np.linalg.eigh(scaled / root / root[:, None])
    for vector in vectors[:, values <= 1e-12 * values[-1]].T:
        step = sizes * vector / np.maximum(root, 1e-150)
        step *= 1e-2 / max(float(np.abs(step / sizes).max()), 1e-300)
        if run.space.fixed is not None:
            step[run.space.fixed] = 0.0
        yield step
        yield -step
