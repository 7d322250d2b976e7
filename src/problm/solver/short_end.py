r"""The short end: one pass over all rows, and a bound on what is left, measured on a sample.

A batch ends at its minimum, many standard errors from that of all rows. From there the loop would take two or three
passes over everything, the last one only to see that nothing is left. A sample S of K rows answers that question at a
fraction of the cost:

1. *Near.* Gauss-Newton steps on S lead to its minimum theta_0. S consists of random runs of consecutive rows, which are
   evaluated in place: gathering single rows takes longer than evaluating them.
2. *One pass.* All rows are linearised at theta_0: gradient g, matrix A. The step s = -A^-1 g leads to theta_1, about
   sqrt(d N / K) standard errors away. A holds the second derivatives of the cost where they are known (formulas, with
   any loss, and Sampson errors), and is the Gauss-Newton matrix elsewhere.
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

from ..linalg.normal import Runs
from ..linalg.quadratic import QuadraticModel
from .problem import Theta
from .result import Status
from .run import Run, Stop
from .sample import GROWTHS, MOST, Sample, first_rows, solved
from .termination import TOLERANCE
from .verification import hidden_by_errors

Array = NDArray[np.float64]
_MOST_RATE = 0.3
"""Largest relative change of A by the step over all rows."""
_FEW = 0.5
"""Number of rows, relative to those up to which batches save nothing, from which a sample takes less time than a pass.
Up to those the contraction of the last steps is asked first, as without batches."""
_INEXACT = 0.1
"""Relative error of the change of A, as the sample tells it."""


def _possible(run: Run, system: QuadraticModel) -> bool:
    """Whether a sample may certify the last step, and takes less time than a pass."""
    problem, options = run.problem, run.options
    free = run.space.fixed is None and options.accuracy is None and options.max_batch is None
    many = problem.n > _FEW * problem.few and first_rows(problem.n) <= 0.5 * MOST[1] * problem.n
    pays = many and run.policy.noise_rule and not run.growth.useless
    return problem.in_place and pays and free and _may_end(run, system)


def _may_end(run: Run, system: QuadraticModel) -> bool:
    """Whether a solve may end without another pass over all rows."""
    return run.termination.bounded > 0.0 and not (run.space.bounded or system.singular)


def finish(run: Run, system: QuadraticModel, linearize: Callable[[], QuadraticModel]) -> bool:
    """Go from an exhausted batch with this model to all rows; return False if the short end does not apply, or if steps
    on the sample fail. The solve is stopped if the bound says that nothing remains to be done."""
    damped = system.step(run.damping.value)[1] < 0.9 * system.decrement
    if damped or not _possible(run, system):
        return False
    sample = Sample(run)
    found = sample.descend(run.batch.theta)
    if found is None:
        run.growth.useless = sample.hopeless
        return False
    theta, there = found
    run.fall = run.batch.fall(run.start)
    if not run.fell():
        run.fall = sample.fall(run.start, there)
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
    step, predicted, _, rest = run.extrapolated(system) or (*system.step(0.0), system.decrement)
    told = termination.one_step_left(system, rest) and hidden_by_errors(run) <= TOLERANCE
    if _possible(run, system) and not (told and run.problem.n <= run.problem.few):
        sample = run.sample or Sample(run)
        _try_as_last(run, system, sample, sample.runs(run.batch.theta, second=False), None, anyway=False)
        return False  # steps that are judged by all rows follow
    if not told:
        return False
    run.bound = termination.left_after(system, rest)
    run.batch.move(run.problem.retract(run.batch.theta, step))
    run.record("accept", system.cost - predicted)
    return True


def _try_as_last(
    run: Run, system: QuadraticModel, sample: Sample, there: Runs, known: Array | None, *, anyway: bool
) -> None:
    """Take the step from a point that was linearised on all rows, and one more by the sample, with the sums ``there``
    over its runs, and stop the solve, if the bound says that nothing remains; without that only if ``anyway``."""
    run.sample, exact, theta, normal = sample, known is not None, run.batch.theta, system.normal
    second = normal.hessian if known is None else normal.hessian + known
    step = solved(second, normal.gradient)
    if step is None or not sample.resembles(there, normal):
        return
    left = _Remainder.of(sample, system, second, there, sample.after(theta, step, exact), step)
    for growths in range(GROWTHS + 1):
        if left is None or left.change >= 0.0:
            return
        rows = left.rows(sample, exact)
        if growths < GROWTHS and left.bound(exact) > TOLERANCE and rows <= MOST[1 + exact] * sample.n:
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
    """Go to a point with all rows; return the rest of the second derivatives, if it is known. The point is then
    linearised, too."""
    batch = run.batch
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
        normal, scale, slopes = system.normal, sample.scale, before.slopes(step)
        missed = after.gradient - before.gradient - slopes
        gradient = normal.gradient + second @ step + missed.sum(axis=0) * scale
        moved = (after.second_derivatives() - before.second_derivatives()) * scale
        last = solved(second + moved, gradient)
        variance = 2.0 * normal.cost / sample.run.termination.freedom
        turned = solved(normal.hessian, moved)
        if last is None or turned is None or not variance > 0.0:
            return None
        costs = after.cost - before.cost - before.gradient @ step - 0.5 * (slopes @ step)
        change = float(normal.gradient @ step + 0.5 * (step @ second @ step) + costs.sum() * scale)

        def length(v: Array) -> float:
            return math.sqrt(float(v @ normal.hessian @ v) / variance)

        return cls(
            last,
            change + 0.5 * float(gradient @ last),
            normal.hessian + (after.hessian() - before.hessian()) * scale,
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
