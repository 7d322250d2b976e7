r"""The noise test: when the batch grows, and by how much.

Let W = H^-1 Sigma with Sigma the covariance of the blocks' gradients, and c = (1 - K/N) / K. The gradient of the
batch is that of all blocks plus an error e of covariance c Sigma; at the minimiser of the batch the cost over all
blocks exceeds its minimum by ``e^T H^-1 e / 2``, with

    expectation  nu = c tr(W) / 2          variance  c^2 tr(W W) / 2.

A Gauss-Newton step on the batch predicts ``dec = (g + e)^T H^-1 (g + e) / 2`` and gains ``dec - 2 nu`` in expectation:
at ``dec <= kappa nu``, kappa = 2, the batch is exhausted and grows. It grows by a factor of 2 while steps are still
damped or erratic. Where Gauss-Newton steps converge fast (``q2`` is the ratio of successive decrements), it grows to N
in equal factors of up to 16. From a quarter of N on it goes to N at once: a batch has to be gathered, all rows need not
be. Where gathering a row costs more than evaluating it (compiled rows), one batch of ``2.5 d sqrt(N)`` is the last, if
steps on a sample that is read in place (`problm.solver.short_end`) do not take over.
Where a step shows that residuals are linear, one step over everything is enough, and the first batch is the last.

In accuracy mode the quantile Q of the excess, a scaled chi-square with the same first two moments (Satterthwaite), is
compared with the requested accuracy. Where residuals are large (a plateau, a robust loss), H is not the curvature A of
the cost: the excess is ``e^T A^-1 e / 2``, and steps creep. So A is measured on the batch before the solve ends, by
differences of the gradient, and replaces H in W and in the decrement. With too many parameters for that, both are
divided by 1 - c, c being the contraction of the last steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..linalg.quadratic import QuadraticModel
from ..linalg.space import Space
from ..support.scipy_extensions import gammaincinv
from .batch import Batch
from .information import inverse_root
from .options import Options
from .policies.acceptance import Acceptance
from .problem import FEW, JUMP, Problem
from .sandwich import curvature_of

Array = NDArray[np.float64]
KAPPA = 2.0
SLOW = 2.0
FAST = 16.0
Q2_MAX = 0.5
_MOST_PARAMETERS = 64
"""Number of parameters up to which the curvature of the cost is measured, by two gradients for each."""
_CURVATURE_ROWS = 10_000
_EXACT = 1e-6
"""Deviation of the ratio of actual to predicted decrease from one that errors of derivatives explain."""
_LONG = 0.01
"""Decrease of the cost, relative to it, by a step that is long enough to show curvature of the residuals."""
_LAST = 2.5
"""Number of blocks of the last batch per parameter, divided by the square root of N: chosen on
three curves, where two Gauss-Newton steps over all rows then sufficed; on other samples of them two or three."""


def _root(hessian: Array, free: NDArray[np.intp] | None) -> Array:
    """B (d, k) with ``B B^T`` the inverse of the matrix (d, d), on the free parameters."""
    if free is None:
        return inverse_root(hessian)[0]
    inner = inverse_root(hessian[np.ix_(free, free)])[0]
    root = np.zeros((len(hessian), inner.shape[1]))
    root[free] = inner
    return root


def first_size(problem: Problem, policy: Acceptance, options: Options) -> int:
    """Number of blocks in the first batch."""
    size, n = options.initial_batch or policy.first_batch(problem.n, problem.dim), problem.n
    if policy.noise_rule and not options.initial_batch:
        size = max(size, problem.least_batch)
    few = problem.few if options.accuracy is None else min(problem.few, FEW)
    near = size > _jump(problem, options) * n or n <= few
    if near and not (options.initial_batch or policy.damping == "tenfold"):
        size = n  # batches would save nothing, or become the full data set at their first growth
    return min(size, n, options.max_batch or n)


def _jump(problem: Problem, options: Options) -> float:
    """Share of all rows from which a batch goes to all rows; the general one in accuracy mode, where a batch may do."""
    return JUMP if options.accuracy is not None else problem.jump


@dataclass(slots=True)
class Growth:
    """Memory of the last steps, and the sizes that follow from it."""

    n: int
    accuracy: float | None = None
    confidence: float = 0.9
    jump: float = JUMP
    limit: int | None = None
    """Largest number of blocks of a batch (memory); a larger one becomes the full data set."""
    _q2: float | None = None
    _last_decrement: float | None = None
    _last_ratio: float = 0.0
    _linear: bool = False
    """Whether a long step gained exactly what the model promised: then one step over everything is enough."""
    useless: bool = False
    """Whether a sample of the rows showed that batches tell too little of the minimum of all rows."""
    _noise: float = math.nan
    """nu, the expected excess of the cost over all blocks at the minimiser of the batch."""
    _quantile: float = math.nan
    """Q, the quantile of that excess."""
    _trace: float = math.nan
    """c tr(W)."""
    _trace2: float = math.nan
    """c^2 tr(W W)."""
    _optimism: float = 1.0
    """Factor from Q by the model to Q by the curvature of the cost, where it was measured on this batch."""
    _creep: float = 1.0
    """The same for the decrement."""

    @classmethod
    def of(cls, problem: Problem, options: Options) -> Growth:
        """Make the growth rule of a solve."""
        return cls(problem.n, options.accuracy, options.confidence, _jump(problem, options), problem.largest_batch)

    def measure(self, system: QuadraticModel) -> None:
        """Measure the noise of the batch at this point, for `exhausted` and `accurate`."""
        k = system.count
        trace, trace2 = system.noise()
        c = (1.0 - k / self.n) / k
        self._noise = 0.5 * c * trace
        if self._last_decrement:
            self._q2 = system.decrement / self._last_decrement
        if self.accuracy is not None:
            self._trace, self._trace2 = c * trace, c * c * trace2
            self._quantile = self._excess()

    def _excess(self, left: float = 0.0) -> float:
        """Q where the minimum of the batch is not reached yet, but this far below the present point."""
        trace, trace2 = self._trace * self._optimism, self._trace2 * self._optimism**2
        mean = left + 0.5 * trace
        if not (mean > 0.0 and trace2 > 0.0):
            return mean
        variance = 0.5 * trace2 + 2.0 * left * trace2 / trace
        return variance / mean * gammaincinv(mean**2 / variance, self.confidence)

    def exhausted(self, system: QuadraticModel) -> bool:
        """Whether the batch is exhausted (and, in accuracy mode, not large enough yet)."""
        if self.accuracy is not None and self._quantile <= 0.75 * self.accuracy * system.cost:
            return False  # large enough: only converge
        return system.decrement <= KAPPA * self._noise

    def accurate(self, system: QuadraticModel) -> bool:
        """Whether this batch reaches the requested accuracy, as far as the model knows."""
        if self.accuracy is None:
            return False
        return self._excess(self._creep * system.decrement) <= self.accuracy * system.cost

    def left(self, system: QuadraticModel) -> float:
        """Squared distance from the minimum of the batch, relative to the expected one of that from the minimum of all
        rows; NaN if unknown."""
        noise = 0.5 * self._trace * self._optimism
        return self._creep * system.decrement / noise if noise > 0.0 else math.nan

    def confirmed(self, system: QuadraticModel, batch: Batch, space: Space) -> bool:
        """Whether it does so with the curvature of the cost as well."""
        if space.dim > _MOST_PARAMETERS or not batch.local:
            if self._q2 is None or not self._q2 < 1.0:
                return False
            optimism = creep = 1.0 / (1.0 - math.sqrt(self._q2))
        else:
            optimism, creep = self._by_curvature(system, batch, space)
        self._optimism, self._creep = optimism, creep
        self._quantile = self._excess()
        return self.accurate(system)

    def _by_curvature(self, system: QuadraticModel, batch: Batch, space: Space) -> tuple[float, float]:
        """Factors from Q and the decrement of the model to those with the curvature of the batch's cost."""
        k, normal = system.count, system.normal
        root = _root(normal.hessian * (self.n / k), space.free(batch.theta, normal.gradient))
        size = min(batch.problem.boundary(min(k, _CURVATURE_ROWS)), k)
        step = math.sqrt(2.0 * system.cost * self.n / k)  # one standard error of the batch
        curvature = curvature_of(batch.problem, batch.theta, root, step, size)
        batch.count_jacobians(2 * root.shape[1], size)
        if curvature is None:
            return math.inf, 1.0
        gradient = root.T @ normal.gradient * (self.n / k)
        noise = root.T @ normal.covariance() @ root * self.n
        w = np.linalg.solve(curvature, noise)
        plain, bent = float(gradient @ gradient), float(gradient @ np.linalg.solve(curvature, gradient))
        # W has few large eigenvalues where the curvature is small, so that its size and its scatter both count.
        sizes = [float(m.trace()) + math.sqrt(float(np.vdot(m, m.T))) for m in (noise, w)]
        return (sizes[1] / sizes[0] if sizes[0] > 0.0 else 1.0), (bent / plain if plain > 0.0 else 1.0)

    def stepped(self, system: QuadraticModel, ratio: float, predicted: float, first_try: bool) -> None:
        """A step was taken with this ratio of actual to predicted decrease."""
        self._last_decrement = system.decrement if first_try else None
        self._last_ratio = ratio
        self._linear = first_try and abs(ratio - 1.0) < _EXACT and predicted > _LONG * system.cost

    def failed(self) -> None:
        """A step did not lower the cost of the batch."""
        self._last_ratio = 0.0

    def next_size(self, system: QuadraticModel, predicted: float) -> int:
        """The next size; n if that is near."""
        k = system.count
        fast = (
            predicted >= 0.9 * system.decrement
            and self._last_ratio > 0.5
            and self._q2 is not None
            and self._q2 < Q2_MAX
        )
        if fast and self.jump < JUMP:
            last = min(max(_LAST * len(system.normal.gradient), 10.0) * math.sqrt(self.n), self.jump * self.n)
            size = last if last >= SLOW * k else self.n
        elif fast:
            leaps = math.ceil(math.log(self.n / k) / math.log(FAST))
            size = k * (self.n / k) ** (1.0 / max(leaps, 1))
        else:
            size = SLOW * k
        if (self._linear or self.useless) and self.accuracy is None:
            size = self.n
        if self.accuracy is not None and math.isfinite(self._quantile):
            # Q shrinks as (1 - K/N) / K; aim for 0.7 of the allowed value.
            r = self._quantile * k / (1.0 - k / self.n) / (0.7 * self.accuracy * system.cost)
            size = min(size, max(r / (1.0 + r / self.n), SLOW * k))
        self._last_decrement, self._optimism, self._creep = None, 1.0, 1.0
        if self.limit is not None and size > self.limit:
            size = self.limit if 2 * k <= self.limit else self.n
        return self.enlarged(size)

    def enlarged(self, size: float) -> int:
        """The size as an integer; n if that is near."""
        return self.n if size > self.jump * self.n or size > (self.limit or self.n) else math.ceil(size)
