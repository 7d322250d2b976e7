r"""The noise test: when the batch grows, and by how much.

Let W = H^-1 Sigma with Sigma the covariance of the blocks' gradients, and c = (1 - K/N) / K. The gradient of the
batch is that of all blocks plus an error e of covariance c Sigma; at the minimiser of the batch the cost over all
blocks exceeds its minimum by ``e^T H^-1 e / 2``, with

    expectation  nu = c tr(W) / 2          variance  c^2 tr(W W) / 2.

A Gauss-Newton step on the batch predicts ``dec = (g + e)^T H^-1 (g + e) / 2`` and gains ``dec - 2 nu`` in expectation:
at ``dec <= kappa nu``, kappa = 2, the batch is exhausted and grows. It grows by a factor of 2 while steps are still
damped or erratic. Where Gauss-Newton steps converge fast (``q2`` is the ratio of successive decrements), it grows to N
in equal factors of up to 16. From a quarter of N on it goes to N at once: a batch has to be gathered, all rows need not
be. Where gathering a row costs more than evaluating it (compiled rows), one batch of ``2.5 d sqrt(N)`` is the last.

In accuracy mode the quantile Q of the excess, a scaled chi-square with the same first two moments (Satterthwaite), is
compared with the requested accuracy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import gammaincinv

from ..linalg.quadratic import QuadraticModel
from .options import Options
from .policies.acceptance import Acceptance
from .problem import FEW, JUMP, Problem

KAPPA = 2.0
SLOW = 2.0
FAST = 16.0
Q2_MAX = 0.5
_LAST = 2.5
"""Number of blocks of the last batch per parameter, divided by the square root of N: from its minimum, two Gauss-Newton
steps over all rows usually suffice (exponential, double Gaussian, damped sine; 3 * 10^5 to 10^7 rows)."""


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
    _predicted: float = 0.0
    _noise: float = math.nan
    """nu, the expected excess of the cost over all blocks at the minimiser of the batch."""
    _quantile: float = math.nan
    """Q, the quantile of that excess."""

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
            self._quantile = 0.0
            if self._noise > 0.0 and trace2 > 0.0:
                shape = 0.5 * trace**2 / trace2
                self._quantile = 0.5 * c * trace2 / trace * 2.0 * float(gammaincinv(shape, self.confidence))

    def exhausted(self, system: QuadraticModel) -> bool:
        """Whether the batch is exhausted (and, in accuracy mode, not large enough yet)."""
        if self.accuracy is not None and self._quantile <= 0.75 * self.accuracy * system.cost:
            return False  # large enough: only converge
        return system.decrement <= KAPPA * self._noise

    def accurate(self, system: QuadraticModel) -> bool:
        """Whether this batch reaches the requested accuracy."""
        return self.accuracy is not None and self._quantile + 2.0 * system.decrement <= self.accuracy * system.cost

    def stepped(self, system: QuadraticModel, ratio: float, predicted: float, first_try: bool) -> None:
        """A step was taken with this ratio of actual to predicted decrease."""
        self._last_decrement = system.decrement if first_try else None
        self._last_ratio = ratio
        self._predicted = predicted

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
        if self.accuracy is not None and math.isfinite(self._quantile):
            # Q shrinks as (1 - K/N) / K; aim for 0.7 of the allowed value.
            r = self._quantile * k / (1.0 - k / self.n) / (0.7 * self.accuracy * system.cost)
            size = min(size, max(r / (1.0 + r / self.n), SLOW * k))
        self._last_decrement = None
        if self.limit is not None and size > self.limit:
            size = self.limit if 2 * k <= self.limit else self.n
        return self.enlarged(size)

    def enlarged(self, size: float) -> int:
        """The size as an integer; n if that is near."""
        return self.n if size > self.jump * self.n or size > (self.limit or self.n) else math.ceil(size)
