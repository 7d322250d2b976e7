r"""The short end: one pass over all rows, and a bound on what is left, measured on a sample.

A batch ends at its minimum, many standard errors from that of all rows. From there the loop would take two or three
passes over everything, the last one only to see that nothing is left. A sample S of K rows answers that question at a
fraction of the cost:

1. *Near.* Gauss-Newton steps on S lead to its minimum theta_0. S consists of random runs of consecutive rows, which are
   evaluated in place: gathering single rows takes longer than evaluating them.
2. *One pass.* All rows are linearised at theta_0: gradient g, matrix A. The step s = -A^-1 g leads to theta_1, about
   sqrt(d N / K) standard errors away. A holds the second derivatives of the cost where they are known (formulas,
   Sampson errors), and is the Gauss-Newton matrix elsewhere.
3. *What is left.* With the sums g_u and A_u over each run u, the gradient at theta_1 is ``g + A s + sum q`` with

       q_u = g_u(theta_1) - g_u(theta_0) - A_u(theta_0) s,

   which is of second order in s. The sum of q over all rows is estimated from the runs (a control variate, as in SVRG:
   Johnson and Zhang 2013), and so is its standard error E, from the scatter of the runs, whatever rows of a run have in
   common. One more Newton step c, with A moved to theta_1 by the sample, removes the estimate.

The distance that remains, in standard errors of the parameters, is at most a quantile of that error plus what the last
step leaves. If that is below the tolerance, the solve ends with this bound as its certificate; otherwise it goes on
with all rows from where it is, and a later step that is short is tried as the last one in the same way. The size of
S follows from the nonlinearity that its own last step showed.

A sample tells nothing of rows that it lacks. Two checks cost next to nothing. The cost and the matrix H are known over
all rows: if the sample's differ, H in some direction, a few rows carry them, and there is no bound. And if few runs
make up the scatter, their number bounds what is known of it: the quantile is that of an F distribution.

With A = H, the Gauss-Newton matrix, E is mostly the noise of ``sum r_i grad J_i s``: as large, for noisy rows, as what
is to be measured unless K is a large part of N. Exact second derivatives remove that term.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..linalg.lapack import dposv
from ..linalg.normal import Normal, Runs
from ..linalg.quadratic import QuadraticModel
from .information import inverse_root
from .problem import Theta
from .result import Status
from .run import Run, Stop
from .termination import TOLERANCE
from .verification import hidden_by_errors

Array = NDArray[np.float64]
CONFIDENCE = 0.99
"""Probability that the error of the estimate is below its bound."""
_FIRST = 1.0 / 64.0
"""Share of the rows in the first sample."""
_MOST = {1: 0.125, 2: 0.25}
"""Share of the rows in the largest sample, without and with second derivatives: more would cost as much as it saves."""
_TWO_PASSES = 1.0 / 16.0
"""The same if that would not be enough: a second pass over all rows may be needed, and then suffices."""
_LEAST_RUNS = 64
_RUN, _LONGEST = 128, 512
"""Rows of a run in small and in large samples."""
_AIM = {1: 0.6, 2: 0.3}
"""Share of the tolerance that the error of the estimate should take, without and with second derivatives."""
_GROWTHS = 2
"""Largest number of times that the sample is enlarged before the pass over all rows, and after it."""
_STEPS = 5
"""Largest number of steps on the sample."""
_NEAR = 0.3
"""Distance from the minimum of the sample, in its own standard errors, at which steps on it end."""
_RATIO = 0.5
"""Least ratio of actual to predicted decrease of the sample's cost by a step."""
_MOST_RATE = 0.3
"""Largest relative change of A by the step over all rows."""
_UNLIKE = 1.5
"""Largest ratio between cost or, in any direction, matrix H of all rows and of the sample, or its inverse. For ordinary
rows it is within a few per cent of one."""
_NEIGHBOURS = 1.5
"""Factor of the variance of a mean square of neighbours' differences, against independent ones."""
_INEXACT = 0.1
"""Relative error of the change of A, as the sample tells it."""


def _possible(run: Run, system: QuadraticModel) -> bool:
    """Whether a sample may certify the last step."""
    problem, options = run.problem, run.options
    free = run.space.fixed is None and options.accuracy is None and options.max_batch is None
    many = _first(problem.n) <= 0.5 * _MOST[1] * problem.n
    return problem.in_place and many and free and run.policy.noise_rule and _may_end(run, system)


def _may_end(run: Run, system: QuadraticModel) -> bool:
    """Whether a solve may end without another pass over all rows."""
    return run.termination.bounded > 0.0 and not (run.space.bounded or system.singular)


def _first(n: int) -> float:
    """Number of rows of the first sample."""
    return max(_FIRST * n, _LEAST_RUNS * _RUN)


def finish(run: Run, system: QuadraticModel, linearize: Callable[[], QuadraticModel]) -> bool:
    """Go from an exhausted batch with this model to all rows; return False if the short end does not apply, or if steps
    on the sample fail. The solve is stopped if the bound says that nothing remains to be done."""
    damped = system.step(run.damping.value)[1] < 0.9 * system.decrement
    if damped or not _possible(run, system):
        return False
    sample = Sample(run)
    found = sample.descend(run.batch.theta)
    if found is None:
        return False
    theta, there = found
    known = _all_rows(run, theta, float(there.cost.sum()) / there.count)
    system = linearize()
    if run.batch.theta is not theta or system.singular or run.termination.converged(system) is not None:
        return True  # the loop decides
    _try_as_last(run, system, sample, there, known, anyway=True)
    return True


def take_last_step(run: Run, system: QuadraticModel) -> bool:
    """Take the Gauss-Newton step from a point that was linearised on all rows without another pass, if a bound, by a
    sample or by the contraction of the last steps, says how near the minimum it leads; return whether it was taken."""
    termination = run.termination
    if not (termination.one_short_step(system) and _may_end(run, system)):
        return False
    if _possible(run, system):
        sample = run.sample or Sample(run)
        _try_as_last(run, system, sample, sample.runs(run.batch.theta, second=False), None, anyway=False)
        return False  # steps that are judged by all rows follow
    if not termination.one_step_left(system) or hidden_by_errors(run) > TOLERANCE:
        return False
    run.bound = termination.left_after(system)
    run.batch.move(run.problem.retract(run.batch.theta, system.step(0.0)[0]))
    run.record("accept", system.cost - system.decrement)
    return True


def _try_as_last(
    run: Run, system: QuadraticModel, sample: Sample, there: Runs, known: Array | None, *, anyway: bool
) -> None:
    """Take the step from a point that was linearised on all rows, and one more by the sample, with the sums ``there``
    over its runs, and stop the solve, if the bound says that nothing remains; without that only if ``anyway``."""
    run.sample, exact, theta, normal = sample, known is not None, run.batch.theta, system.normal
    second = normal.hessian if known is None else normal.hessian + known
    step = _solved(second, normal.gradient)
    if step is None or not sample.resembles(there, normal):
        return
    left = _Remainder.of(sample, system, second, there, sample.after(theta, step, exact), step)
    for growths in range(_GROWTHS + 1):
        if left is None or left.change >= 0.0:
            return
        rows = left.rows(sample, exact)
        if growths < _GROWTHS and left.bound(exact) > TOLERANCE and rows <= _MOST[1 + exact] * sample.n:
            new = sample.extend(rows)
            there = there if not len(new) else sample.joined(there, sample.evaluated(theta, new, exact))
            step = step + left.step
            left = _Remainder.of(sample, system, second, there, sample.after(theta, step, exact), step)
            continue
        if left.bound(exact) <= TOLERANCE:
            run.bound = left.bound(exact)
            system.normal = replace(normal, hessian=left.hessian)
        elif not anyway:
            return
        run.previous, run.termination.last_decrement = theta, system.decrement
        run.batch.move(run.problem.retract(theta, step + left.step))
        run.record("accept", system.cost + left.change / run.problem.n)
        if run.bound is not None:
            raise Stop(Status.GRADIENT)
        return


def _all_rows(run: Run, theta: Theta, cost: float) -> Array | None:
    """Go to a point with all rows; return the sum of residual times second derivatives, if it is known. The point is
    then linearised, too."""
    batch = run.batch
    run.fall = batch.fall(run.start)
    run.previous = batch.theta
    batch.move(theta)
    batch.grow(batch.n)
    run.termination.begin_anew()
    run.record("accept, grow", cost)
    run.check_time()
    found = run.problem.second_order(theta)
    if found is None or not math.isfinite(float(found[0].gradient.sum())):
        return None
    batch.take_all(theta, found[0])
    return found[1]


class Sample:
    """Random runs of consecutive rows, spread evenly over all rows: one from each of as many strata."""

    def __init__(self, run: Run) -> None:
        self.run, self.n = run, run.problem.n
        first = _first(self.n)
        self.length = _RUN * min(max(int(first / (_RUN * _RUN)), 1), _LONGEST // _RUN)
        self.starts: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._order: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        self.extend(first)

    def extend(self, rows: float) -> NDArray[np.int64]:
        """Enlarge the sample to so many rows; return the starts of the new runs."""
        more = max(math.ceil(rows / self.length) - len(self.starts), 0)
        places = (np.arange(more) + self.run.generator().random(more)) / max(more, 1)
        new = (places * (self.n // self.length)).astype(np.int64) * self.length
        both = np.concatenate([self.starts, new])
        self._order = both.argsort(kind="stable")
        self.starts = both[self._order]
        return new

    def joined(self, one: Runs, other: Runs) -> Runs:
        """Sums over the old and the new runs, in the order of the rows."""
        return one.joined(other, self._order)

    @property
    def scale(self) -> float:
        """Number of all rows per row of the sample."""
        return self.n / (len(self.starts) * self.length)

    def runs(self, theta: Theta, second: bool = True) -> Runs:
        """Sums over the runs at a point."""
        return self.evaluated(theta, self.starts, second)

    def after(self, theta: Theta, step: Array, second: bool) -> Runs:
        """Sums over the runs where a step leads to, in the coordinates of its start."""
        problem = self.run.problem
        return self.runs(problem.retract(theta, step), second).carried(problem.carried(theta, step))

    def evaluated(self, theta: Theta, starts: NDArray[np.int64], second: bool) -> Runs:
        batch, rows = self.run.batch, len(starts) * self.length
        batch.count_jacobians(1, rows)
        batch.residual_rows += rows
        return self.run.problem.runs(theta, starts, self.length, second=second)

    def descend(self, theta: Theta) -> tuple[Theta, Runs] | None:
        """The minimum of the sample, which grows if nonlinear, and the sums there; None if steps do not lead to it."""
        at, growths, rows = self.runs(theta, second=False), 0, 0.0
        for _ in range(_STEPS):
            gradient, hessian = at.gradient.sum(axis=0), at.hessian.sum(axis=0)
            if (step := _solved(hessian, gradient)) is None:
                return None
            predicted = -0.5 * float(gradient @ step)
            trial = self.run.problem.retract(theta, step)
            there = self.runs(trial)
            gained = float(at.cost.sum() - there.cost.sum())
            if not gained > _RATIO * predicted - 1e-12 * float(at.cost.sum()):
                return None
            rows = max(rows, self._needed(theta, trial, at, there, step, hessian))
            theta, at = trial, there
            if self._distance(there) > _NEAR:
                continue
            if growths == _GROWTHS or rows <= 1.5 * there.count:
                return theta, there
            new, growths = self.extend(rows), growths + 1
            at = self.joined(there, self.evaluated(theta, new, second=False))
        return None

    def resembles(self, at: Runs, normal: Normal) -> bool:
        """Whether the rows fit as well and inform every direction as all rows do, whose sums are given."""
        root, regular = inverse_root(normal.hessian)
        cost = float(at.cost.sum()) * self.scale
        if not (regular and _UNLIKE * cost >= normal.cost and cost <= _UNLIKE * normal.cost):
            return False
        shares = np.linalg.eigvalsh(root.T @ (at.hessian.sum(axis=0) * self.scale) @ root)
        return bool(_UNLIKE * shares[0] >= 1.0 and shares[-1] <= _UNLIKE)

    def _distance(self, at: Runs) -> float:
        """Distance from the minimum of the sample, in its own standard errors."""
        gradient = at.gradient.sum(axis=0)
        step = _solved(at.hessian.sum(axis=0), gradient)
        if step is None:
            return math.inf
        return math.sqrt(max(-float(gradient @ step), 0.0) / self._variance(at))

    def _variance(self, at: Runs) -> float:
        return 2.0 * float(at.cost.sum()) / (at.count * self.run.problem.components)

    def _needed(self, theta: Theta, trial: Theta, at: Runs, there: Runs, step: Array, hessian: Array) -> float:
        """Number of rows for which the error of the estimate will be small, from the last step; 0 if that was too short
        to tell. The largest of several counts: the error depends on the direction of the step.

        The error grows as the length of the step over all rows, or as its square if second derivatives are known, and
        falls as the root of the number of rows; the length falls as that root, too.
        """
        back, problem = -step, self.run.problem
        if (turned := problem.carried(theta, step)) is not None:  # to the coordinates of the trial
            back = turned @ back
            at = at.carried(problem.carried(trial, back))
        missed = there.gradient - at.gradient + there.second_derivatives() @ back
        error = self.error(missed, hessian * self.scale, self._variance(there))
        length = math.sqrt(float(step @ hessian @ step) * self.scale / self._variance(there))
        expected = math.sqrt(len(step) * self.scale)
        order = 1 if there.curvature is None else 2
        if not (math.isfinite(error) and length > 0.25 * expected):
            return 0.0
        error *= (expected / length) ** order
        rows = there.count * (error / (_AIM[order] * TOLERANCE)) ** (2.0 / (1 + order))
        return rows if rows <= _MOST[order] * self.n else max(_TWO_PASSES * self.n, _first(self.n))

    def error(self, missed: Array, hessian: Array, variance: float) -> float:
        """Bound of the error of the sum over all rows that runs with the sums ``missed`` (m, d) estimate, in standard
        errors of the parameters: the quantile of a scaled chi-square (Satterthwaite), divided by one with the degrees
        of freedom of the scatter, which are few if it comes from few runs.

        The variance of a run is that of neighbours' differences: in sorted data it is much smaller than between all
        runs, and so is the error of evenly spread ones.
        """
        m = len(missed)
        differences = missed[1:] - missed[:-1]
        # Not by a BLAS or LAPACK of many threads: starting them takes up to 100 times the work that they share.
        squares: Array = np.einsum("mi,mj->ij", differences, differences)
        inverse = _solved(hessian, np.eye(len(hessian)))
        if inverse is None:
            return math.inf
        found = inverse @ squares * (0.5 * m / (m - 1.0) * self.scale**2)
        mean, square = -float(found.trace()) / variance, float(np.vdot(found, found.T)) / variance**2
        if not (mean > 0.0 and square > 0.0):
            return 0.0
        sizes = -np.einsum("mi,mi->m", np.einsum("mi,ij->mj", differences, inverse), differences)
        uneven = float((sizes @ sizes) * (m - 1) / max(sizes.sum() ** 2, 1e-300)) - 1.0  # squared relative scatter
        freedom = 2.0 * (m - 1) / max(_NEIGHBOURS * uneven, 2.0 / (m - 1))
        from scipy.special import fdtri  # imported where it is needed: it takes longer than most fits

        return math.sqrt(mean * float(fdtri(mean**2 / square, freedom, CONFIDENCE)))


@dataclass(slots=True)
class _Remainder:
    """What the step over all rows left."""

    step: Array
    """(d,) the last step."""
    change: float
    """Change of the total cost by both steps."""
    hessian: Array
    """(d, d) the Gauss-Newton matrix at the end."""
    distance: float
    """Length of the last step in standard errors."""
    error: float
    """Bound of the error of its end."""
    length: float
    """Length of the step over all rows."""
    rate: float
    """Largest relative change of A by it."""

    @classmethod
    def of(
        cls, sample: Sample, system: QuadraticModel, second: Array, before: Runs, after: Runs, step: Array
    ) -> _Remainder | None:
        """Measure it from the sums over the runs before and after the step; None if they are not finite."""
        normal, scale, curved = system.normal, sample.scale, before.second_derivatives()
        missed = after.gradient - before.gradient - curved @ step
        gradient = normal.gradient + second @ step + missed.sum(axis=0) * scale
        moved = (after.second_derivatives() - curved).sum(axis=0) * scale
        last = _solved(second + moved, gradient)
        variance = 2.0 * normal.cost / sample.run.termination.freedom
        turned = _solved(normal.hessian, moved)
        if last is None or turned is None or not variance > 0.0:
            return None
        costs = after.cost - before.cost - before.gradient @ step - 0.5 * ((curved @ step) @ step)
        change = float(normal.gradient @ step + 0.5 * (step @ second @ step) + costs.sum() * scale)

        def length(v: Array) -> float:
            return math.sqrt(float(v @ normal.hessian @ v) / variance)

        return cls(
            last,
            change + 0.5 * float(gradient @ last),
            normal.hessian + (after.hessian - before.hessian).sum(axis=0) * scale,
            length(last),
            sample.error(missed, normal.hessian, variance),
            length(step),
            float(np.abs(np.linalg.eigvals(turned)).max()),
        )

    def rows(self, sample: Sample, exact: bool) -> float:
        """Number of rows with which one more evaluation should bound what remains by the tolerance."""
        needed = (self.error / (0.8 * TOLERANCE)) ** 2 * len(sample.starts) * sample.length
        share = self._share(exact)
        return needed if share * share * self.distance <= 0.1 * TOLERANCE else math.inf

    def _share(self, exact: bool) -> float:
        """Share of the last step that remains."""
        if not (self.rate <= _MOST_RATE and self.length > 0.0):
            return math.inf
        if exact:  # the last step is Newton's, with a sampled change of A
            return self.rate * (_INEXACT + self.distance / self.length)
        return self.rate + (self.distance + self.error) / self.length  # A misses what made up the last step

    def bound(self, exact: bool) -> float:
        """Distance that remains after the last step; ``exact``: second derivatives are known."""
        return self.error + self._share(exact) * self.distance


def _solved(matrix: Array, right: Array) -> Array | None:
    """``-matrix^-1 right`` for a positive definite matrix; None if it is not, or not finite."""
    _, x, failed = dposv(matrix, right)
    return -x if failed == 0 and np.isfinite(x).all() else None
