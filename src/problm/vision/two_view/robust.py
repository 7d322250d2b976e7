r"""Robust estimation of a two-view model: search, noise, refinement, consensus.

1. `search.find` finds a candidate (or the user gives a start).
2. ``threshold="auto"``: the search scores at two widths; `search.settle` estimates the noise of each of the best.
3. The smooth truncated loss, whose scale is the threshold, is minimised from the candidate: after a search, which ends
   near the minimum, by a short descent on the matches of the search, at twice the threshold and at the threshold; from
   a user's start, or with ``levels``, by `problm.solver.graduated` on *all* matches: five levels, as in the paper, or
   as many as it takes for the widest loss to see a tenth of the matches from there.
4. The last solves are on the matches within reach of a loss of another width (`consensus.best_width`). At 2.5 sigma
   the smooth truncated loss has only 77 % of the efficiency of least squares for Gaussian noise, a cut there has 90 %,
   and at 5 sigma the loss has 99 %. The loss fades out at the cut, so one match changes little. Noise, inliers and
   model are updated in turn until the inliers no longer change, so the result depends on the matches, not on the path.
   Of a pose the depths count as well, and EM finds where everything agrees (`mixture.membership`), before one solve;
   also of an F from 70 inliers to 5000 matches.
5. If the first of these solves moves by more than a standard error, and for every F, whose inliers nothing else
   confirms, the best of the surrounding minima is sought (`search.explore`, `Membership.likeliest`).
6. The consensus is compared with chance (`consensus.log_chance`).

Of very many matches a random sample leads near the solution. Noise, width, inliers and model then follow once from
everything, and again only if the inliers at the end would move the model.

Nothing here is specific to E, F or H: `models.Model` describes them.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...losses import Loss, as_loss
from ...problems.compiled import CompiledProblem
from ...solver.graduated import graduated
from ...solver.loop import solve
from ...solver.result import Result
from .consensus import (
    ENOUGH,
    WIDTHS,
    best_width,
    estimate_threshold,
    inlier_quantile,
    levels_from,
    significance,
    squared_movement,
)
from .depths import Depths
from .matches import extent
from .mixture.membership import Membership
from .models import Frame, Model, two_view_problem
from .result import error_norms, residual_norms
from .search import ENOUGH_FOR_LINES, FINE, Pool, explore, find, settle
from .settings import Settings

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Points = NDArray[Any]

_SQUARES = Loss.named("linear")

COARSE = 0.003
"""Threshold of the search with ``threshold="auto"``, relative to the extent of the matches."""
SMALL = 50_000
"""Number of matches up to which the refinement uses all of them from its first step: the loop then takes more time than
the rows, so fewer iterations are better than fewer rows."""
LONELY = 5000
"""Number of matches up to which EM, which takes several times as long, finds F."""
_ON_THE_WAY = 1e-4  # ftol of solves that others follow
SAMPLE = 10_000
"""Number of matches that very many are represented by: the search, the levels and all turns but the last ones."""
_MANY = 4
"""Samples in what counts as very many matches."""
_STILL = 0.1
"""Squared standard errors that a turn moves the model of very many matches by, at which turns end: from there on they
exchange matches at the limits of likely depths for ever."""
_ROUGH = 1.0  # the same for a sample, whose model is only a start
_TURNS, _FEW_TURNS = 12, 4  # of noise, inliers and model, at the end and before it; four or five are usual
_STEPS = 10  # most steps of a turn
_WIDE = 1.4  # scale of the loss, in thresholds, until it is chosen


@dataclass(frozen=True)
class Fit:
    """A model fitted to matches."""

    theta: Array
    threshold: float
    """Largest error of an inlier, in the units of the matches; nan if all matches were used."""
    loss: Loss
    """Result of the last solve."""
    result: Result
    errors: Array | None
    """(N,) norm of each match's residual; None: those of the result, not computed yet."""
    inliers: Flags
    chance: float
    """`consensus.log_chance` of the consensus: below 0 is significant. -inf if it was not computed."""
    accepted: float
    """Share of re-paired matches that the model accepts."""
    starts: int
    """Number of samples or random starts examined."""
    seconds: float


def result_variance(result: Result, model: Model) -> float:
    """Variance of a component of the errors, for squared residuals; nan without degrees of freedom."""
    rows = result.n * model.freedom - model.dim
    return 2.0 * result.cost / rows if rows > 0 else math.nan


def within(result: Result, threshold: float | None) -> tuple[Array | None, Flags]:
    """Errors of all matches, if they had to be computed, and which of them are below the threshold (None: all)."""
    if threshold is None:
        return None, np.ones(result.n, dtype=bool)
    errors = error_norms(result)
    return errors, errors < threshold


def solve_options(options: dict[str, Any], n: int) -> dict[str, Any]:
    """The user's options; by default steps below 1e-8 end a solve, and few matches get plain LM (see `SMALL`)."""
    options = {"ftol": 1e-8, "xtol": 1e-8, **options}
    if n <= SMALL and "acceptance" not in options and "initial_batch" not in options:
        return {**options, "acceptance": "full"}
    return options


def refine(
    model: Model,
    frame: Frame,
    columns: list[Points],
    theta: Array,
    loss: Loss,
    levels: int,
    threads: int | None,
    rng: np.random.Generator | int | None,
    options: dict[str, Any],
) -> Result:
    """Solve from a start, through wider losses first if ``levels`` is more than one."""
    options = solve_options(options, len(columns[0]))
    if levels == 1 or loss.is_linear:
        return solve(two_view_problem(model, columns, frame, loss, threads=threads, rng=rng), theta, **options)
    return graduated(
        lambda wide: two_view_problem(model, columns, frame, wide, threads=threads, rng=rng),
        theta, loss, levels, **options,
    )  # fmt: skip


def find_start(model: Model, frame: Frame, x1: Points, x2: Points, settings: Settings) -> Array | None:
    """A start for squared residuals: the best candidate at the coarse threshold."""
    some = slice(None, None, max(1, len(x1) // 5000))
    x = np.concatenate([x1[some], x2[some]], axis=1, dtype=np.float64)
    cut = settings.threshold or COARSE * extent(x)
    found = find(Pool(model, frame, x, settings.rng), cut, settings.search, settings.rng)
    return None if found is None else found.theta


def fit_robust(
    model: Model,
    frame: Frame,
    x1: Points,
    x2: Points,
    settings: Settings,
    initial: Array | None = None,
    depths: Depths | None = None,
    x: Array | None = None,
) -> Fit | None:
    """Fit a model to matches with outliers; None if no candidate was found.

    Parameters
    ----------
    initial : point of the model's manifold that replaces the search.
    depths : of the points of a pose; inliers must be at likely ones.
    x : (N, 4) the matches once more, as float64, if they are there.
    """
    began = time.perf_counter()
    x = np.concatenate([x1, x2], axis=1, dtype=np.float64) if x is None else x
    task = _Task(model, frame, x1, x2, x, settings, depths, began)
    task = replace(task, still=_STILL) if task.many else task
    some = task.some()
    if some is not None:
        near = replace(task, x1=x1[some], x2=x2[some], x=x[some], still=_ROUGH).near(initial)
        if near is not None and (fit := task.finished(near)).chance < 0.0:
            return fit
    found = task.near(initial)
    return None if found is None else task.finished(found)


@dataclass(frozen=True)
class _Near:
    """A model near the solution."""

    theta: Array
    cut: float
    """Threshold."""
    loss: Loss
    result: Result | None
    """The last solve, if there was one."""
    starts: int


@dataclass(frozen=True)
class _Task:
    """Matches, and how to fit a model to them."""

    model: Model
    frame: Frame
    x1: Points
    x2: Points
    x: Array
    """(N, 4) matches."""
    settings: Settings
    depths: Depths | None
    began: float
    still: float = 0.0
    """Squared standard errors that a turn moves the model by, at which turns end; 0: when the inliers stay the same."""

    @cached_property
    def local(self) -> Array:
        """(N, 4) matches in the model's coordinates."""
        return self.frame.transform(self.x)

    @cached_property
    def squares(self) -> CompiledProblem:
        return two_view_problem(self.model, [self.x1, self.x2], self.frame, _SQUARES)

    @cached_property
    def coarse(self) -> float:
        """Threshold of a search without one."""
        return COARSE * extent(self.x[:: max(1, len(self.x) // SAMPLE)])

    def some(self) -> NDArray[np.intp] | None:
        """Matches to begin with: a random sample of very many, None for all of them."""
        if not self.many or "acceptance" in self.settings.options:
            return None
        return np.sort(self.settings.rng.choice(len(self.x), SAMPLE, replace=False, shuffle=False))

    @property
    def lonely(self) -> bool:
        """Whether only the distance from a line identifies inliers."""
        return self.depths is None and self.model.freedom == 1

    @property
    def many(self) -> bool:
        """Whether a sample of the matches tells nearly all; not of F, which wrong matches pull along flat valleys."""
        return len(self.x) >= _MANY * SAMPLE and not self.lonely

    def inliers(self, errors: Array, theta: Array, cut: float) -> Flags:
        """(N,) which matches agree with a model."""
        return _inliers(errors, theta, self.local, cut, self.depths)

    def solve(self, columns: list[Points], start: Array, loss: Loss, levels: int, last: bool = True) -> Result:
        """Solve on these matches in the time that is left."""
        settings, most = self.settings, self.settings.search.max_time
        options = dict(settings.options) if last else {"ftol": _ON_THE_WAY, **settings.options}
        if most < math.inf:
            options["max_time"] = max(most - (time.perf_counter() - self.began), 1e-4)
        return refine(self.model, self.frame, columns, start, loss, levels, settings.threads, settings.rng, options)

    def near(self, initial: Array | None) -> _Near | None:
        """Search, or solve from a start, then take noise, inliers and model in turn; None if nothing was found."""
        model, settings, rng = self.model, self.settings, self.settings.rng
        coarse = cut = settings.threshold or self.coarse
        pool = Pool(model, self.frame, self.x, rng, 1.0 if settings.threshold else FINE)
        theta, starts = initial, 0
        if theta is None:
            found = find(pool, cut, settings.search, rng, any_scale=settings.threshold is None)
            if found is None:
                return None
            theta, starts = found.theta, found.starts
            if settings.threshold is None:
                theta, cut = settle(pool, found, coarse)
        result: Result | None = None
        if initial is None and settings.levels is None:
            theta = pool.walk_to(theta, cut, pool.n, 10)
        else:
            both = [self.x1, self.x2]
            levels = settings.levels or levels_from(pool.errors(theta), cut)
            result = self.solve(both, theta, as_loss(settings.loss, cut), levels, last=False)
            if settings.threshold is None and initial is not None:
                # From a user's start the noise can only be estimated after the solve.
                cut = estimate_threshold(error_norms(result), cut, model.freedom)
                result = self.solve(both, result.x, as_loss(settings.loss, cut), 2, last=False)
            theta = result.x
        near = _Near(theta, cut, as_loss(settings.loss, cut), result, starts)
        agreed = self._agreed(near) if self.depths is not None or self._by_distance(near) else None
        return self._in_turn(near, pool) if agreed is None else agreed

    def _by_distance(self, near: _Near) -> bool:
        """Whether EM finds an F: neither so few inliers that it would fit some of them at any noise, nor too many."""
        if not self.lonely or len(self.x) > LONELY:
            return False
        inliers = residual_norms(self.squares, near.theta) < near.cut
        return int(inliers.sum()) >= ENOUGH_FOR_LINES

    def _in_turn(self, near: _Near, pool: Pool) -> _Near:
        """Noise, inliers and model in turn, until the inliers, or the model, no longer change."""
        model, settings, theta, cut = self.model, self.settings, near.theta, near.cut
        errors = residual_norms(self.squares, theta)
        if self.inliers(errors, theta, cut).sum() <= model.dim:
            return near
        before, chosen, wide, solved = None, False, _WIDE, (cut, near.loss)
        for turn in range(_FEW_TURNS if self.still else _TURNS):
            last, errors = errors, residual_norms(self.squares, theta) if turn else errors
            moved = math.inf if before is None else squared_movement(last[before], errors[before], cut, model)
            if turn == 1 and (self.lonely or moved > 1.0):
                theta, moved = explore(pool, theta, cut, settings.rng), math.inf
                errors = residual_norms(self.squares, theta)
            if moved < self.still:
                break
            if settings.threshold is None:
                cut = estimate_threshold(errors, self.coarse, model.freedom)
            inliers = self.inliers(errors, theta, wide * cut)
            same = before is not None and np.array_equal(inliers, before)
            if not chosen and not self.still and (same or turn == _TURNS // 2):
                # Chosen where the turns end, so that it depends on the matches and not on the path.
                chosen, wide = True, self.width(errors, theta, cut)
                inliers, same = self.inliers(errors, theta, wide * cut), same and wide == _WIDE
            if same or inliers.sum() <= model.dim:
                break
            theta, before = pool.walk_on(theta, self.x[inliers], wide * cut, _STEPS), inliers
            solved = cut, as_loss(settings.loss, wide * cut)
        return near if before is None else self.solved(before, theta, *solved, near.starts)

    def _agreed(self, near: _Near) -> _Near | None:
        """The solve on the inliers of the pose on which noise, memberships and depths agree; None: they do not."""
        membership = Membership(self.model, self.frame, self.x, self.local, self.depths)
        agreed = membership.likeliest(near.theta, near.cut, self.settings.threshold is not None)
        if agreed is None:
            return None
        theta, cut = agreed.theta, self.settings.threshold or inlier_quantile(self.model.freedom) * agreed.sigma
        errors = residual_norms(self.squares, theta)
        wide = self.width(errors, theta, cut)
        inliers = self.inliers(errors, theta, wide * cut) & membership.kept
        if inliers.sum() <= self.model.dim:
            return None
        return self.solved(inliers, theta, cut, as_loss(self.settings.loss, wide * cut), near.starts)

    def finished(self, near: _Near) -> Fit:
        """The fit from a model near the solution."""
        near = self._on_everything(near) if self.many else near
        result = near.result
        if result is None:  # hardly any match agrees: there is nothing to refine, and the comparison with chance fails
            result = self.solve([self.x1, self.x2], near.theta, near.loss, 1)
        errors = residual_norms(self.squares, result.x)
        inliers = self.inliers(errors, result.x, near.cut)
        chance, accepted = significance(self.model, self.frame, result.x, self.x, inliers, near.cut, self.settings.rng)
        seconds = time.perf_counter() - self.began
        return Fit(result.x, near.cut, near.loss, result, errors, inliers, chance, accepted, near.starts, seconds)

    def _on_everything(self, near: _Near) -> _Near:
        """The end for very many matches: noise and width once, then the model, again if its inliers would move it."""
        errors, cut = residual_norms(self.squares, near.theta), near.cut
        if self.settings.threshold is None:
            cut = estimate_threshold(errors, self.coarse, self.model.freedom)
        loss = as_loss(self.settings.loss, self.width(errors, near.theta, cut) * cut)
        inliers = self.inliers(errors, near.theta, loss.scale)
        near = replace(near, result=None, cut=cut, loss=loss)
        for _ in range(2):
            if inliers.sum() <= self.model.dim:
                break
            before, near = inliers, self.solved(inliers, near.theta, cut, loss, near.starts)
            inliers = self.inliers(residual_norms(self.squares, near.theta), near.theta, loss.scale)
            if self._pull(near, before, inliers) < _STILL:
                break
            inliers &= before  # the others, at the limits of likely depths, would come and go for ever
        return near

    def solved(self, inliers: Flags, theta: Array, cut: float, loss: Loss, starts: int) -> _Near:
        """Solve on the inliers."""
        result = self.solve([self.x[inliers]], theta, loss, 1)
        return _Near(result.x, cut, loss, result, starts)

    def _pull(self, near: _Near, before: Flags, after: Flags) -> float:
        """How far a solve with other inliers would move, in standard errors, squared: the mean over the parameters."""
        rows = np.flatnonzero(before != after)
        if not len(rows) or near.result is None:
            return 0.0
        problem = two_view_problem(self.model, [self.x[rows]], self.frame, _SQUARES)
        r, J = problem.residuals(near.theta), problem.jacobian(near.theta)
        weight = near.loss.cost_and_weight(np.einsum("np,np->n", r, r))[1] * np.where(after[rows], 1.0, -1.0)
        gradient = np.einsum("npd,np,n->d", J, r, weight)
        step = np.linalg.lstsq(near.result.hessian, gradient, rcond=None)[0]
        sigma = near.cut / inlier_quantile(self.model.freedom)
        return float(gradient @ step) / (self.model.dim * sigma**2)

    def width(self, errors: Array, theta: Array, cut: float) -> float:
        """Scale of the last loss, in thresholds, chosen on some of the matches."""
        some = slice(None, None, max(1, len(errors) // (2 * ENOUGH)))
        errors, x, local = errors[some], self.x[some], np.ascontiguousarray(self.local[some])
        near = np.flatnonzero(_inliers(errors, theta, local, WIDTHS[-1] * cut, self.depths))
        return best_width(x[near], errors[near], theta, cut, self.settings.loss, self.model, self.frame)


def _inliers(errors: Array, theta: Array, local: Array, cut: float, depths: Depths | None) -> Flags:
    inliers = errors < cut
    return inliers if depths is None else depths.likely(theta, local, inliers, cut)
