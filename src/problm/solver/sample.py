"""Random runs of consecutive rows, evaluated in place: the sample of the short end (`problm.solver.short_end`)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..linalg.corrected import corrected
from ..linalg.lapack import dposv
from ..linalg.normal import Normal, Runs
from ..support.products import combine, times
from ..support.quantiles import f_quantile
from .information import inverse_root
from .problem import Theta
from .run import Run
from .termination import TOLERANCE

Array = NDArray[np.float64]
CONFIDENCE = 0.99
"""Probability that the error of the estimate is below its bound."""
_FIRST = 1.0 / 64.0
"""Share of the rows in the first sample."""
MOST = {1: 0.125, 2: 0.25}
"""Share of the rows in the largest sample, without and with second derivatives: more would cost as much as it saves."""
_TWO_PASSES = 1.0 / 16.0
"""The same if that would not be enough: a second pass over all rows may be needed, and then suffices."""
_LEAST_RUNS = 64
_RUN, _LONGEST = 128, 512
"""Rows of a run in small and in large samples."""
_AIM = {1: 0.6, 2: 0.3}
"""Share of the tolerance that the error of the estimate should take, without and with second derivatives."""
GROWTHS = 2
"""Largest number of times that the sample is enlarged before the pass over all rows, and after it."""
_STEPS = {False: 5, True: 8}
"""Largest number of steps on the sample, without and with a robust loss."""
_FLOOR = 0.1
"""Least curvature of the cost for a step on the sample, relative to that of Gauss-Newton, whose steps are at most ten
times shorter."""
_NEAR = 0.3
"""Distance from the minimum of the sample, in its own standard errors, at which steps on it end."""
_EXHAUSTED = 2.0
"""Squared distance from the minimum of the sample per parameter, in its own standard errors, up to which a point is as
near to that of all rows (`problm.solver.growth`, kappa)."""
_RATIO = 0.5
"""Least ratio of actual to predicted decrease of the sample's cost by a step."""
_UNLIKE = 1.5
"""Largest ratio between cost or, in any direction, matrix H of all rows and of the sample, or its inverse. For ordinary
rows it is within a few per cent of one."""
_NEIGHBOURS = 1.5
"""Factor of the variance of a mean square of neighbours' differences, against independent ones."""


def first_rows(n: int) -> float:
    """Number of rows of the first sample."""
    return max(_FIRST * n, _LEAST_RUNS * _RUN)


class Sample:
    """Random runs of consecutive rows, spread evenly over all rows: one from each of as many strata."""

    def __init__(self, run: Run) -> None:
        self.run, self.n = run, run.problem.n
        first = first_rows(self.n)
        self.length = _RUN * min(max(int(first / (_RUN * _RUN)), 1), _LONGEST // _RUN)
        self.starts: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._order: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        self.hopeless = False
        """Whether residuals bend so much within the noise of the sample that all rows would not be enough."""
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
        """The minimum of the sample, which grows if nonlinear, and the sums there; None if steps do not lead to it.

        A start that is as near to the minimum of all rows as that of the sample is returned instead.
        """
        robust = self.run.problem.robust
        start, at, growths, rows = theta, self.runs(theta, robust), 0, 0.0
        for _ in range(_STEPS[robust]):
            gradient, hessian = at.gradient.sum(axis=0), at.hessian()
            if (step := solved(self._curvature(at, hessian), gradient)) is None:
                return None
            predicted = -0.5 * float(gradient @ step)
            trial = self.run.problem.retract(theta, step)
            there = self.runs(trial)
            gained = float(at.cost.sum() - there.cost.sum())
            if not gained > _RATIO * predicted - 1e-12 * float(at.cost.sum()):
                return None
            rows = max(rows, self._needed(theta, trial, at, there, step, hessian))
            if self.hopeless:
                return None
            near = theta is start and self._distance(at) ** 2 <= _EXHAUSTED * len(step)
            if not near:
                theta, at = trial, there
                if self._distance(there) > _NEAR:
                    continue
            if growths == GROWTHS or rows <= 1.5 * there.count:
                return (theta, self.runs(theta)) if near else (theta, there)
            new, growths = self.extend(rows), growths + 1
            at = self.joined(at, self.evaluated(theta, new, robust))
        return None

    def fall(self, start: Theta, at: Runs) -> tuple[float, float]:
        """Mean decrease of the cost of the rows from the start to the point of these sums, and its standard error."""
        changes = (self.runs(start, second=False).cost - at.cost) / self.length
        return float(changes.mean()), float(changes.std()) / math.sqrt(len(changes))

    def resembles(self, at: Runs, normal: Normal) -> bool:
        """Whether the rows fit as well and inform every direction as all rows do, whose sums are given."""
        root, regular = inverse_root(normal.hessian)
        cost = float(at.cost.sum()) * self.scale
        if not (regular and _UNLIKE * cost >= normal.cost and cost <= _UNLIKE * normal.cost):
            return False
        shares = np.linalg.eigvalsh(root.T @ (at.hessian() * self.scale) @ root)
        return bool(_UNLIKE * shares[0] >= 1.0 and shares[-1] <= _UNLIKE)

    def _distance(self, at: Runs) -> float:
        """Distance from the minimum of the sample, in its own standard errors."""
        gradient, hessian = at.gradient.sum(axis=0), at.hessian()
        step = solved(self._curvature(at, hessian), gradient)
        if step is None:
            return math.inf
        return math.sqrt(max(float(step @ hessian @ step), 0.0) / self._variance(at))

    def _curvature(self, at: Runs, hessian: Array) -> Array:
        """The matrix that steps are made with: Gauss-Newton steps leave most of the way where a loss bends."""
        if at.curvature is None or not self.run.problem.robust:
            return hessian
        return corrected(hessian, at.second_derivatives() - hessian, _FLOOR, math.inf)

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
        missed = there.gradient - at.gradient + there.slopes(back)
        error = self.error(missed, hessian * self.scale, self._variance(there))
        length = math.sqrt(float(step @ hessian @ step) * self.scale / self._variance(there))
        expected = math.sqrt(len(step) * self.scale)
        order = 1 if there.curvature is None else 2
        if not (math.isfinite(error) and length > 0.25 * expected):
            return 0.0
        error *= (expected / length) ** order
        rows = there.count * (error / (_AIM[order] * TOLERANCE)) ** (2.0 / (1 + order))
        self.hopeless = order == 2 and rows > self.n
        return rows if rows <= MOST[order] * self.n else max(_TWO_PASSES * self.n, first_rows(self.n))

    def error(self, missed: Array, hessian: Array, variance: float) -> float:
        """Bound of the error of the sum over all rows that runs with the sums ``missed`` (m, d) estimate, in standard
        errors of the parameters: the quantile of a scaled chi-square (Satterthwaite), divided by one with the degrees
        of freedom of the scatter, which are few if it comes from few runs.

        The variance of a run is that of neighbours' differences: in sorted data it is much smaller than between all
        runs, and so is the error of evenly spread ones.
        """
        m = len(missed)
        differences = missed[1:] - missed[:-1]
        squares = times(differences.T, differences)
        inverse = solved(hessian, np.eye(len(hessian)))
        if inverse is None:
            return math.inf
        found = inverse @ squares * (0.5 * m / (m - 1.0) * self.scale**2)
        mean, square = -float(found.trace()) / variance, float(np.vdot(found, found.T)) / variance**2
        if not (mean > 0.0 and square > 0.0):
            return 0.0
        sizes = -(combine(inverse, differences.T) * differences.T).sum(axis=0)
        uneven = float((sizes @ sizes) * (m - 1) / max(sizes.sum() ** 2, 1e-300)) - 1.0  # squared relative scatter
        freedom = 2.0 * (m - 1) / max(_NEIGHBOURS * uneven, 2.0 / (m - 1))
        return math.sqrt(mean * f_quantile(mean**2 / square, freedom, CONFIDENCE))


def solved(matrix: Array, right: Array) -> Array | None:
    """``-matrix^-1 right`` for a positive definite matrix; None if it is not, or not finite."""
    _, x, failed = dposv(matrix, right)
    return -x if failed == 0 and np.isfinite(x).all() else None
