r"""Slope and curvature measured by the cost itself, for points where the quadratic model may be wrong.

`problm.solver.termination` judges by the distance to the minimum of the model. At a minimum where the Jacobian is
singular, the model predicts a decrease that never comes. With wrong derivatives no step lowers the cost, even far from
any minimum. Close to a perfect fit, rounding decides. In these cases the cost is evaluated at two points along a step
s. With the changes f+ and f- of the mean cost at ``theta + t s`` and ``theta - t s``,

    slope = (f+ - f-) / (2 t),        curvature = (f+ + f-) / t^2,        gain = slope^2 / (2 curvature).

The point is verified as a minimum if, for steps from Gauss-Newton to nearly steepest descent and for every parameter by
itself, the gain computed with the steeper of this slope and that of the gradient is below the tolerance in standard
errors, or if rounding of the cost hides the whole predicted decrease. It is not a minimum if slope and curvature at the
shortest distance that rounding allows are those of the model: the model is then right, and only its region is small (a
curved valley). It is one if the cost rises to both sides at that distance: a kink.

Two more doubts are settled at the end of a solve. If derivatives are by differences and their errors are as large as
the singular value of some direction, distance and steps along it are noise: the point is not known to be a minimum
(`errors_hide_a_direction`). If the cost falls all the way along the Gauss-Newton step, to ten times the size of the
parameters, there is no minimum near, however little is left to gain (`endless`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from ...linalg.quadratic import QuadraticModel
from ..run import Run
from ..termination import TOLERANCE
from .costs import REACH, Array, change_by, cost_at, gain_of, parabola, rounding, short_way
from .escapes import way_down_in_doubt
from .exact import perfect, settled, sizes_at
from .valley import lower_on_floor

_MOST_NOISE = 1e-6
"""Largest relative rounding error of the cost at which a minimum can still be judged."""
_MOST_STEEP = 1e4
"""The same where steps change no digit of a parameter: an exact fit may be worse by as much, but where the last bit of
a parameter changes the cost by more, digits say nothing (`exp(k x) - exp(l x)` at k = l and k x = 70)."""
_DAMPINGS = (0.0, 1e-6, 1e-3, 1.0)
_ON_AND_ON = (0.01, 0.1, 1.0, 10.0)
"""Lengths along which the cost of a model without a minimum falls, relative to the parameters."""
_RELATIVE = 1e-5
"""Relative error of derivatives by differences that is still possible where their steps are as long as they should be:
1e-8 times the size of a parameter over the distance on which the model bends."""
_FIRM = 1e-2
"""Smallest pivot of H, scaled to a unit diagonal, at which errors of differences never matter."""
_GROWN, _SHRUNK = 100.0, 1e-5
_STEEPEST = 2.0
"""Largest power of a parameter that runs to infinity at which others are tried."""
FAR = 10.0
"""Growth since the start, as a factor, at which a parameter may count as running to infinity."""


def verified(run: Run, model: QuadraticModel) -> bool:
    """Whether evaluations of the cost show that the point is a minimum; takes about ten passes over the residuals."""
    if perfect(run, model):
        return True
    noise = rounding(run, model.cost)
    if noise <= _MOST_STEEP * model.cost and settled(run, model):
        return True
    if noise > _MOST_NOISE * model.cost:
        return False  # the last digits of such large parameters matter
    if 2.0 * model.decrement <= 10.0 * noise:
        return True
    return all(_ends(run, model, noise, *proposal) for proposal in _directions(model))


def _directions(model: QuadraticModel) -> Iterator[tuple[Array, float]]:
    """Steps from Gauss-Newton to nearly steepest descent, then along every parameter by itself, with their predicted
    decreases: near the edge of the domain of the model, all of the first ones may run into the same wall."""
    for damping in _DAMPINGS:
        yield model.step(damping)[:2]
    if not isinstance(model.normal.hessian, np.ndarray):
        return  # as many parameters would take as many passes
    gradient, curvature = model.projected_gradient() / model.count, model.normal.hessian.diagonal() / model.count
    for j in np.flatnonzero((gradient != 0.0) & (curvature > 0.0)):
        step = np.zeros(len(gradient))
        step[j] = -gradient[j] / curvature[j]
        yield step, 0.5 * float(gradient[j] ** 2 / curvature[j])


def _ends(run: Run, model: QuadraticModel, noise: float, step: Array, predicted: float) -> bool:
    """Whether nothing can be gained along a step with this predicted decrease."""

    def little(gain: float) -> bool:
        return run.termination.freedom * gain <= TOLERANCE**2 * model.cost

    slope = float(model.normal.gradient @ step) / model.count
    if predicted <= 10.0 * noise or not slope < 0.0:
        return True
    t, ahead = short_way(run, model, step, min(1.0, REACH * model.cost / -slope))
    if not t > 0.0:
        return False
    if run.space.bounded:
        return little(gain_of(slope, 2.0 * (ahead - t * slope) / t / t))
    measured, curvature = parabola(ahead, change_by(run, model, -t * step), t)
    gain = gain_of(max(-slope, abs(measured)), curvature)
    if little(predicted):
        return little(gain)
    # As close as rounding allows: there the model is valid, or there is a kink.
    near = min(t, math.sqrt(100.0 * noise / predicted))
    ahead, behind = change_by(run, model, near * step), change_by(run, model, -near * step)
    measured, curvature = parabola(ahead, behind, near)
    if abs(measured - slope) <= -0.1 * slope and predicted <= curvature <= 4.0 * predicted:
        return False
    return little(gain) or (min(ahead, behind) > 10.0 * noise and little(gain_of(measured, curvature)))


def hidden_by_errors(run: Run) -> float:
    """Distance in standard errors that errors of derivatives by differences hide at this point; 0 if they are exact.

    A relative error e of the gradient along a direction with the singular value s moves the point where it vanishes by
    e / s. It is measured where a relative error of `_RELATIVE` could matter, or where a parameter has left its start
    so far behind that the lengths of steps no longer fit: those that have shrunk are moved by steps for larger ones.
    """
    model = run.system
    if run.problem.by_differences and run.hidden[0] is not model:
        freedom, cost, hidden = run.termination.freedom, model.cost, 0.0
        least = min(_FIRM, _RELATIVE / TOLERANCE * math.sqrt(freedom))
        matters = model.least_curvature < least * least or _grown(run)
        if matters and cost > 0.0 and isinstance(model.normal.hessian, np.ndarray):
            errors = run.batch.uncertainty()
            if errors is not None:
                hidden = math.sqrt(freedom * max(model.decrement_by(errors[1]), 0.0) / cost)
        run.hidden = model, hidden
    return run.hidden[1]


def _measured(run: Run) -> bool:
    """Whether evaluations of the cost show a minimum, also along the directions whose slope errors hide: at a minimum
    with a singular Jacobian, errors are large by the Gauss-Newton matrix, and small by the true curvature."""
    model = run.system
    if rounding(run, model.cost) > 0.01 * _MOST_NOISE * model.cost:
        return False
    if not (run.verified or verified(run, model)) or way_down_in_doubt(run, model) is not None:
        return False
    return lower_on_floor(run, model) is None


def _grown(run: Run) -> bool:
    """Whether a parameter is more than `_GROWN` times as large as at the start, or has shrunk to `_SHRUNK` of it."""
    start, theta = run.start, run.batch.theta
    if not (isinstance(theta, np.ndarray) and theta.shape == (run.problem.dim,)):
        return False
    sizes = zip(theta.tolist(), start.tolist(), strict=True)
    return any(abs(now) > _GROWN * max(abs(then), 0.01) or 0.0 < abs(now) < _SHRUNK * abs(then) for now, then in sizes)


def errors_hide_a_direction(run: Run) -> bool:
    """Whether the model at the end of a solve rests on a direction that errors of its derivatives may have made up."""
    hidden = hidden_by_errors(run) > TOLERANCE
    if not (hidden or run.keep_all_directions) or perfect(run, run.system):
        return False  # otherwise such directions do not count, or do not matter
    if hidden and not _measured(run):
        return True
    if not run.keep_all_directions:
        return False
    model = QuadraticModel(
        run.system.normal, run.batch.theta, run.space, run.damping.scaling, run.batch.factor, run.batch.uncertainty
    )
    return model.rank_in_doubt


def endless(run: Run, model: QuadraticModel) -> bool:
    """Whether the cost falls until parameters are many times as large as they are."""
    if _falls_on(run, model):
        return True
    if run.termination.distance(model) > TOLERANCE:
        return _lower_far_out(run, model, 0.0)
    # The distance says nothing about a direction that errors of the derivatives hide.
    return model.rank_in_doubt and _lower_far_out(run, model, TOLERANCE**2 * model.cost / run.termination.freedom)


def _lower_far_out(run: Run, model: QuadraticModel, enough: float) -> bool:
    """Whether the cost is lower, by more than ``enough``, with the parameter that grew most since the start at ten
    times its value and the others fitted to that, and lower again at a hundred times: the way to infinity may be curved
    (as that of a and c in a x / (b + x) + c, if b vanishes)."""
    theta, fixed = run.batch.theta, np.zeros(run.problem.dim, dtype=bool)
    if not (isinstance(theta, np.ndarray) and theta.shape == fixed.shape) or len(theta) < 2 or run.space.bounded:
        return False
    growth = np.abs(theta) / np.maximum(sizes_at(run, run.start), 1e-300)
    j = int(np.argmax(growth))
    if not growth[j] > FAR:
        return False
    fixed[j] = True
    factors, least = _along_power_law(model, theta, j), 10.0 * rounding(run, model.cost)
    # Each way is followed by itself: with a robust loss one may end in a lower valley, from where nothing falls.
    ways = (lambda t: factors * t, lambda t: np.where(fixed, FAR * t, t))
    return any(_falls_along(run, way, fixed, model.cost, (max(least, enough), least)) for way in ways)


def _falls_along(
    run: Run, way: Callable[[Array], Array], fixed: NDArray[np.bool_], cost: float, least: tuple[float, ...]
) -> bool:
    """Whether the cost falls by this much at each stage of a way to infinity, where what is not fixed is fitted."""
    theta = run.batch.theta
    for enough in least:
        theta = run.from_elsewhere(way(theta), fixed)
        there = cost_at(run, theta)
        if not there < cost - enough:
            return False
        cost = there
    return True


def _along_power_law(model: QuadraticModel, theta: Array, j: int) -> Array:
    """Factors (d,) of the parameters if theta[j] grows tenfold along the direction that the residuals see least and the
    others follow as powers of it (as a = 1 / b in arctan(a (x - b)))."""
    step = model.step(0.0)[0] if model.weak is None else model.weak[2][-1]
    with np.errstate(all="ignore"):
        powers = step / theta * (theta[j] / step[j])
    powers = np.clip(np.nan_to_num(powers, nan=0.0), -_STEEPEST, _STEEPEST)
    powers[j] = 1.0
    return np.asarray(FAR**powers)


def _falls_on(run: Run, model: QuadraticModel) -> bool:
    """Whether the cost falls along the Gauss-Newton step until parameters are many times as large as they are."""
    step, predicted, _ = model.step(0.0)
    length = float(np.abs(step / sizes_at(run, run.batch.theta)).max(initial=0.0))
    if not (predicted > 0.0 and 0.0 < length < math.inf) or perfect(run, model):
        return False
    least = -10.0 * rounding(run, model.cost)
    return all(change_by(run, model, share / length * step) < least for share in _ON_AND_ON)
