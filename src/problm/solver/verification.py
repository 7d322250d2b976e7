r"""Slope and curvature measured by the cost itself, for points where the quadratic model may be wrong.

`problm.solver.termination` judges by the distance to the minimum of the model. At a minimum where the Jacobian is
singular, the model predicts a decrease that never comes. With wrong derivatives no step lowers the cost, even far from
any minimum. Close to a perfect fit, rounding decides. In these cases the cost is evaluated at two points along a step
s. With the changes f+ and f- of the mean cost at ``theta + t s`` and ``theta - t s``,

    slope = (f+ - f-) / (2 t),        curvature = (f+ + f-) / t^2,        gain = slope^2 / (2 curvature).

The point is verified as a minimum if, for steps from Gauss-Newton to nearly steepest descent, the gain computed with
the steeper of this slope and that of the gradient is below the tolerance in standard errors, or if rounding of the cost
hides the whole predicted decrease.

A vanishing gradient does not distinguish a minimum from a saddle point, which a symmetric start (two equal terms) leads
to. The Jacobian is rank-deficient there, and the cost falls along directions that it does not see; `way_down` looks for
one.
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
"""Relative change of the cost, from the slope alone, over the distance at which it is evaluated."""
_MOST_CUTS = 20
_MOST_NOISE = 1e-6
"""Largest relative rounding error of the cost at which a minimum can still be judged."""
_DIGITS = 1e-10
_PERFECT = 1e-28
_DAMPINGS = (0.0, 1e-6, 1e-3, 1.0)
_EPS = float(np.finfo(np.float64).eps)


def verified(run: Run, model: QuadraticModel) -> bool:
    """Whether evaluations of the cost show that the point is a minimum; takes about ten passes over the residuals."""
    if settled(run, model) or perfect(run, model):
        return True
    noise = rounding(run, model.cost)
    if noise > _MOST_NOISE * model.cost:
        return False  # the last digits of such large parameters matter
    return 2.0 * model.decrement <= 10.0 * noise or all(_ends(run, model, damping, noise) for damping in _DAMPINGS)


def perfect(run: Run, model: QuadraticModel) -> bool:
    """Whether residuals are only rounding errors: 1e-14 of what parameters as large as the start contribute to them."""
    signal = float((model.normal.hessian.diagonal() * _sizes(run, run.start) ** 2).sum()) / model.count
    return model.cost <= _PERFECT * signal


def settled(run: Run, model: QuadraticModel) -> bool:
    """Whether the Gauss-Newton step changes no parameter in its first ten digits. This ends fits of exact data, which
    have no standard errors to measure by."""
    return bool((np.abs(model.step(0.0)[0]) <= _DIGITS * _sizes(run, run.batch.theta)).all())


def _sizes(run: Run, theta: Theta) -> Array:
    """(d,) sizes of the parameters at a point or at the start, whichever is larger; 1 on manifolds."""
    start, d = run.start, run.problem.dim
    if not (isinstance(theta, np.ndarray) and theta.shape == (d,)):
        return np.ones(d)
    return np.maximum(np.maximum(np.abs(theta), np.abs(start)), 1e-6 * float(np.abs(start).max(initial=0.0)))


def _ends(run: Run, model: QuadraticModel, damping: float, noise: float) -> bool:
    """Whether nothing can be gained along the step with this damping."""
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
    """A fraction t of the step over which the cost changes little, and the change of the mean cost there."""
    ahead = _change(run, model, t * step)
    for _ in range(_MOST_CUTS):
        if abs(ahead) <= 10.0 * _REACH * model.cost:
            break
        # Shorten t to where a parabola through this change would be small.
        t *= max(math.sqrt(_REACH * model.cost / abs(ahead)), 1e-3) if math.isfinite(ahead) else 1e-3
        ahead = _change(run, model, t * step)
    return t, ahead


def _change(run: Run, model: QuadraticModel, step: Array) -> float:
    """Change of the mean cost over all rows by a step."""
    return _cost(run, run.space.inside(run.problem.retract(run.batch.theta, step))) - model.cost


def _cost(run: Run, theta: Theta) -> float:
    run.batch.count_residuals(run.problem.n)
    return run.problem.cost(theta) / run.problem.n


def rounding(run: Run, cost: float) -> float:
    """Change of the mean cost at the present point by rounding of the parameters (if they are plain numbers)."""
    theta = run.batch.theta
    least = 4.0 * _EPS * cost
    if not (isinstance(theta, np.ndarray) and theta.shape == (run.problem.dim,)):
        return least
    signs = np.where(np.arange(len(theta)) % 2, 1.0, -1.0)
    moved = (run.space.inside(theta * (1.0 + 4.0 * _EPS * s)) for s in (signs, -signs, np.ones(len(theta))))
    return max([least, *(abs(_cost(run, point) - cost) for point in moved)])


def way_down(run: Run, model: QuadraticModel) -> Theta | None:
    """Find a point of lower cost along a direction that the Jacobian does not see; None if there is none."""
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
