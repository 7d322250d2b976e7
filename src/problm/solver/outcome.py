"""The result of a finished solve, or the error that explains why it could not continue."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..linalg.space import Space
from . import rules
from .problem import Problem, Theta
from .result import Result, Status
from .run import Run
from .termination import DIGITS, TOLERANCE
from .verification import FAR, endless, errors_hide_a_direction, perfect, sizes_at, still_falls

Array = NDArray[np.float64]
_GONE = 1e-10
"""Largest remaining share of its initial influence on the residuals at which a parameter counts as having lost it."""
_NULL, _SEEN = 1e-12, 1e-8
"""Eigenvalues of H, scaled to a unit diagonal, up to which it does not see a direction; and its value along one,
relative to the largest, above which it does."""
_SHARE, _UNFELT = 0.1, 1e-8
"""Step from the start, relative to the parameters, and relative change of the cost along it that errors of differences
explain: they turn it by about 1e-8."""
_FELT = 1e-13
"""Influence of a parameter on the residuals at the start, squared and relative to the largest, that is no rounding."""
_BEYOND = 0.5
"""Mean cost, relative to the bound of a bounded loss, above which the minimum is too flat for standard errors: with
Tukey's loss at 1.0, 1.5, 2 and 3 times the noise the cost is 0.64, 0.51, 0.40 and 0.24 of the bound, and z of rms is
1.3, 1.0, 1.05 and 1.03 for 3000 rows, 2.1, 1.2, 1.1 and 1.06 for 300."""
_NEAR = 0.01
"""Step, relative to a parameter, along which the cost rises at a minimum."""
_REACH = 1e8
"""Length of a Gauss-Newton step, relative to the parameters, that evaluations of the cost near the point say nothing
about."""
_LOOKS, _MOST_UNSEEN = (-10.0, 1.0, 10.0, 100.0), 10
"""Steps, relative to a parameter, on which residuals may depend on it after all; and how many of them are tried."""
_HIDDEN = " Errors of derivatives by differences hide a combination of parameters: give jac."
_PART = 0.1
"""Smallest share of a parameter in a direction that counts."""


def result_of(run: Run, status: Status) -> Result:
    """Return the result of a solve that ended with this status."""
    if not run.begun:
        return _at_start(run, status)
    batch, system, n = run.batch, run.system, run.problem.n
    x, total = batch.theta, n * (run.history.cost[-1] / n if run.history.cost else system.cost)
    if system.normal.count == batch.size and batch._normal is system.normal:
        total = system.cost * n
    if not batch.full and not status > 0:
        # On a batch the best point so far may be the start itself.
        start = batch.cost_at(run.start) / batch.size * n
        if not total <= start:
            x, total = run.start, start
    scale = n / system.count
    projected = system.projected_gradient()
    status = _honest(run, status)
    hidden = status > 0 and batch.full and errors_hide_a_direction(run)
    status = Status.STALLED if hidden else status
    distance = math.nan if hidden else _distance(run)
    message = status.message + (_HIDDEN if hidden else "")
    if system.singular:
        message += " The Jacobian is rank-deficient: some combination of parameters is not determined."
    if status > 0 and total > _BEYOND * n * run.problem.cost_bound:
        message += " Most rows lie beyond the scale of the loss: standard errors may be too small; widen f_scale."
    root = system.covariance_root()
    return Result(
        x=x,
        cost=total,
        status=status,
        message=message,
        n=n,
        batch_size=batch.size,
        grad=_scaled(system.normal.gradient, scale),
        optimality=max(map(abs, projected.tolist()), default=0.0) * scale,
        cosine=math.sqrt(max(system.decrement, 0.0) / system.cost) if system.cost > 0 else 0.0,
        hessian=_scaled(system.normal.hessian, scale),
        singular=system.singular,
        covariance_root=None if root is None else _scaled(root, math.sqrt(system.count / n)),
        history=run.history,
        nfev=batch.residual_calls + batch.jacobian_calls,
        njev=batch.jacobian_calls,
        residual_passes=batch.residual_rows / n,
        jacobian_passes=batch.jacobian_rows / n,
        seconds=run.seconds(),
        active_mask=_active(run.space, x),
        fixed=run.space.fixed,
        distance=distance,
        certificate="none" if hidden else _certificate(run, status, distance),
        residuals_per_block=run.problem.components,
        left=run.growth.left(system) if status is Status.ACCURACY and run.problem.robust else math.nan,
        problem=run.problem,
    )


def _at_start(run: Run, status: Status) -> Result:
    """The result if derivatives are not finite at the start."""
    problem, batch, d = run.problem, run.batch, run.problem.dim
    return Result(
        x=run.start,
        cost=problem.cost(run.start),
        status=status,
        message=f"Not converged: {run.refused}.",
        n=problem.n,
        batch_size=batch.size,
        grad=np.full(d, math.nan),
        optimality=math.nan,
        cosine=math.nan,
        hessian=np.full((d, d), math.nan),
        singular=True,
        covariance_root=np.full((d, d), math.nan),
        history=run.history,
        nfev=batch.residual_calls + batch.jacobian_calls,
        njev=batch.jacobian_calls,
        residual_passes=batch.residual_rows / problem.n,
        jacobian_passes=batch.jacobian_rows / problem.n,
        seconds=run.seconds(),
        active_mask=_active(run.space, run.start),
        fixed=run.space.fixed,
        residuals_per_block=problem.components,
        problem=problem,
    )


def _honest(run: Run, status: Status) -> Status:
    """Correct the status if the gradient vanishes only because the model no longer depends on its parameters.

    Directions that no residual depends on here, but did at the start, were lost on the way: to infinity, on a bound, or
    with a term that vanished (a peak without width). Directions that nothing ever depended on are another matter: the
    minimum is one, and not the only one.
    """
    x, start, normal = run.batch.theta, run.start, run.system.normal
    in_doubt = run.verified or status is Status.STALLED or (status > 0 and run.system.rank_in_doubt)
    if run.batch.full and in_doubt and endless(run, run.system):
        return Status.RUNS_AWAY
    if status > 0 and run.batch.full and still_falls(run):
        status = Status.NOT_DETERMINED  # unless it falls on the way to infinity
    if status > 0 and run.system.cost > 0.0 and not any(normal.hessian.diagonal().tolist()):
        # No parameter matters: every term underflows, or has left the data; or it is the minimum of x^2 + 5.
        sizes = np.maximum(sizes_at(run, start), 1e-6)
        minimum = all(_between_higher_costs(run, j, float(size)) for j, size in enumerate(sizes))
        return status if minimum else Status.NOT_DETERMINED
    if status > 0 and run.verified and _out_of_reach(run):
        return Status.NOT_DETERMINED
    if not run.batch.full or not run.system.singular or perfect(run, run.system):
        return status
    if not (isinstance(x, np.ndarray) and x.shape == np.shape(start) == (run.problem.dim,)):
        return status  # a point of a manifold has no sizes
    before = run.problem.linearize(start, 0, run.problem.n, outer=False, costs=None).hessian
    sizes = sizes_at(run, x)  # not those of the start alone, at which a parameter of 1e-8 may not be felt
    far = np.abs(x) > FAR * np.maximum(np.abs(start), 1.0)
    with np.errstate(all="ignore"):
        gone = _gone(before.diagonal() * sizes**2, normal.hessian.diagonal() * sizes**2)
    for j in np.flatnonzero(gone):
        gone[j] = not _between_higher_costs(run, int(j), float(sizes[j]))
    directions = _lost_directions(before, normal.hessian, sizes)
    # Where the cost rises to both sides, it is a minimum, and the Jacobian does not show it. On a way to infinity it
    # rises as well, if the way is curved (a circle that has become a line).
    lost = [
        share
        for share, step in directions
        if ((far & (share > _PART)).any() or not _below_both_sides(run, _NEAR * step * sizes))
        and _felt_at_start(run, step * sizes)
    ]
    if (far & np.logical_or.reduce([gone, *(share > _PART for share in lost)])).any():
        return Status.RUNS_AWAY
    on_a_face = run.space.bounded and _active(run.space, x).any() and len(lost) > 0
    blind = status > 0 and (on_a_face or gone.any() or _elsewhere_seen(run, sizes))
    return Status.NOT_DETERMINED if blind else status


def _out_of_reach(run: Run) -> bool:
    """Whether the model promises a decrease that matters so far away that nothing changes in between: here rounding
    hides what parameters do to the residuals (a term that has nearly underflowed), and any point looks like a minimum
    to evaluations. Not where the cost rises to both sides on the way, as at a minimum with a singular Jacobian."""
    if run.termination.close(run.system) or perfect(run, run.system):
        return False
    sizes = np.maximum(sizes_at(run, run.batch.theta), 1e-6)
    step = run.system.step(0.0)[0]
    length = float(np.abs(step / sizes).max(initial=0.0))
    return length > _REACH and not _below_both_sides(run, _NEAR / length * step)


def _gone(before: Array, now: Array) -> NDArray[np.bool_]:
    """(d,) mask of parameters that lost their influence, by the diagonal of H; not those that never had any."""
    return (before > _FELT * float(before.max(initial=0.0))) & (now <= _GONE * before)


def _elsewhere_seen(run: Run, sizes: Array) -> bool:
    """Whether the cost depends on a parameter elsewhere that no residual depends on here: the solve began on a plateau
    (a peak between two points, a kink beyond the data). Parameters that nothing ever depends on do no harm."""
    unseen = run.system.normal.hessian.diagonal() == 0.0
    if run.space.fixed is not None:
        unseen &= ~run.space.fixed
    least = 1e-9 * run.system.cost * run.problem.n
    for j in np.flatnonzero(unseen)[:_MOST_UNSEEN]:
        step = np.zeros(run.problem.dim)
        for length in _LOOKS:
            step[j] = length * max(float(sizes[j]), 1e-6)
            there = run.problem.cost(run.space.inside(run.problem.retract(run.batch.theta, step)))
            if abs(there - run.system.cost * run.problem.n) > least:
                return not _between_higher_costs(run, int(j), float(sizes[j]))
    return False


def _between_higher_costs(run: Run, j: int, size: float) -> bool:
    """Whether the cost rises to both sides of a parameter: a minimum at which its derivatives vanish, as of x^2 + 5."""
    step = np.zeros(run.problem.dim)
    step[j] = _NEAR * size
    return _below_both_sides(run, step)


def _below_both_sides(run: Run, step: Array) -> bool:
    """Whether the cost rises along a step and against it."""
    least = run.system.cost * run.problem.n * (1.0 + 1e-9)
    sides = (run.space.inside(run.problem.retract(run.batch.theta, s)) for s in (step, -step))
    return all(run.problem.cost(point) > least for point in sides)


def _lost_directions(before: Array, now: Array, sizes: Array) -> Iterator[tuple[Array, Array]]:
    """Directions that H (d, d) no longer sees: the parameters' shares in them, and steps along them, in units of the
    parameters' sizes. None if H is sparse, or sees as many directions as before: where parameters are redundant (a
    product, the constant of a rational function), those that it does not see turn with the parameters."""
    if not isinstance(now, np.ndarray):
        return
    with np.errstate(all="ignore"):
        before, now = before * sizes * sizes[:, None], now * sizes * sizes[:, None]
    if not (np.isfinite(before).all() and np.isfinite(now).all()):
        return
    scale, unseen = _unseen(now)
    if unseen.shape[1] <= _unseen(before)[1].shape[1]:
        return
    largest = float(before.diagonal().max(initial=0.0))
    for v in unseen.T:
        s = v * scale / float(np.abs(v * scale).max())
        if s @ before @ s > _SEEN * largest:
            yield np.abs(v), s


def _felt_at_start(run: Run, step: Array) -> bool:
    """Whether the cost at the start changes by a share of this step. Derivatives by differences do not tell: where
    columns are equal but for a factor of 1e9, the difference of the smaller one is rounding."""
    if not run.problem.by_differences:
        return True
    moved = run.space.inside(run.problem.retract(run.start, _SHARE * step))
    before, after = run.problem.cost(run.start), run.problem.cost(moved)
    return not abs(after - before) <= _UNFELT * before


def _unseen(hessian: Array) -> tuple[Array, Array]:
    """Scale (d,) that gives H a unit diagonal, and the directions (d, k) that it does not see, in these units."""
    scale = 1.0 / np.sqrt(np.maximum(hessian.diagonal(), 1e-300))
    values, vectors = np.linalg.eigh(hessian * scale * scale[:, None])
    return scale, vectors[:, values <= _NULL * values[-1]]


def _distance(run: Run) -> float:
    """Distance to the minimum over all residuals, in standard errors; NaN if unknown."""
    if not run.batch.full:
        return math.nan
    if run.bound is not None:
        return run.bound
    if run.distance is not None and run.distance[0] is run.batch.theta:
        return run.distance[1]
    return run.termination.distance(run.system)


def _certificate(run: Run, status: Status, distance: float) -> str:
    if not run.batch.full or status in (Status.RUNS_AWAY, Status.NOT_DETERMINED):
        return "none"
    if run.bound is not None:
        return "bound"
    near = distance <= TOLERANCE or rules.gradient_vanishes(run.system.decrement, run.system.cost, DIGITS, 0.0)
    if near or status is Status.GRADIENT:
        return "gradient"
    return "measured" if run.verified else "none"


def _scaled(sums: Array, factor: float) -> Array:
    return sums if factor == 1.0 else sums * factor


def _active(space: Space, x: Theta) -> NDArray[np.int64]:
    mask = np.zeros(space.dim, dtype=np.int64)
    if space.lower is not None:
        mask[x <= space.lower] = -1
    if space.upper is not None:
        mask[x >= space.upper] = 1
    return mask


def not_finite(problem: Problem, theta: Theta) -> ValueError:
    """Return an error that names the first row, in the user's order, whose cost is not finite, or says that finite
    residuals are too large to be squared."""
    residuals = problem.residuals(theta)
    if residuals is not None and np.isfinite(residuals).all() and np.abs(residuals).max(initial=0.0) > 1e150:
        return ValueError(
            f"the residuals for theta = {theta!r} are so large (up to {np.abs(residuals).max():.1e}) that their "
            "squares overflow double precision: move the start, or give the data in other units"
        )
    row = problem.first_bad_row(theta)
    if row is None:
        return ValueError(
            f"sums of squares of residuals or derivatives overflow double precision for theta = {theta!r}: move the "
            "start, or give the data or the parameters in other units"
        )
    return ValueError(
        f"residuals or Jacobian are not finite at row {row} of the data for theta = {theta!r}: check fun, jac and the "
        "data, move the start or add bounds"
    )


def refuse_underflow(problem: Problem, theta: Theta) -> None:
    """Raise if the cost is zero only because the squared residuals underflow: any point would then look like a perfect
    fit."""
    residuals = problem.residuals(theta)
    largest = 0.0 if residuals is None else float(np.abs(residuals).max(initial=0.0))
    if 0.0 < largest < 1e-150:
        raise ValueError(
            f"the residuals are so small (at most {largest:.1e}) that their squares are zero in double precision: "
            "give the data in other units"
        )
