r"""Acceptance policies: when a step computed on a batch is taken, and when the batch must grow.

A step lowered the cost of the batch S (K of N blocks): is the cost of *all* blocks lower too? From
``Y_i = f_i(theta+) - f_i(theta)`` a policy decides whether to accept and whether to grow. At K = N there is no test:
the step is that of LM (erratum 10: the paper tests there too, and stalls).

``FullBatch`` (``"full"``)
    K = N from the start: plain Levenberg-Marquardt.

``Holdout`` (``"holdout"``, the default)
    The mean change over S is known exactly. Only the complement has to be sampled, by a set B of blocks that follow S
    in the random order. They did not contribute to the step, so the test is unbiased (erratum 18)::

        m  = K/N mean_S Y + (1 - K/N) mean_B Y
        ub = m + (1 - K/N) radius_B

    ub < 0: accept. m < 0: accept and grow. Else reject and grow. The radius is the CLT's, Hoeffding-Serfling's or
    the empirical Bernstein bound's (`problm.solver.policies.confidence`).

    The speed comes from the growth rule, the noise test. Let ``dec = g^T H^-1 g / 2`` be the decrease that a
    Gauss-Newton step predicts on S, and ``nu = tr(H^-1 Sigma) / (2 K) (1 - K/N)`` the part of it that is sampling
    noise. The expected gain of the step is ``dec - 2 nu``: at ``dec <= kappa nu``, kappa = 2, S is exhausted.

The tests of the paper are in `problm.solver.policies.paper_tests`. The errata page of the documentation lists every
deviation from the printed paper, with reasons.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...sampling.moments import Moments
from ..batch import Batch
from . import confidence as bounds

Array = NDArray[np.float64]
_MISSING = object()


@dataclass(slots=True)
class Step:
    """Information for a policy about a step that lowered the cost of the batch."""

    batch: Batch
    step: Array
    """(d,) the step in tangent coordinates."""
    generator: Callable[[], np.random.Generator]
    """Returns the random generator of the solve, created only on request: that takes longer than a small step."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """accept: take the step. grow_to: the next batch size, None for the policy's own rule, 0 for no change.
    restore: the point to return to if not accepted (by default the current point)."""

    accept: bool
    grow_to: int | None = 0
    restore: Any = _MISSING

    @property
    def restores(self) -> bool:
        return self.restore is not _MISSING


class Acceptance(Protocol):
    """A policy. ``noise_rule``: the solver grows the batch by the noise test, and geometrically when the batch has
    converged; without it, a converged batch goes to all blocks. ``damping``: the default damping rule."""

    noise_rule: bool
    damping: str

    def first_batch(self, n: int, dim: int) -> int: ...

    def judge(self, step: Step) -> Verdict: ...


@dataclass(slots=True)
class FullBatch:
    """All blocks from the start: plain Levenberg-Marquardt."""

    noise_rule: bool = False
    damping: str = "trust-region"

    def first_batch(self, n: int, dim: int) -> int:
        return n

    def judge(self, step: Step) -> Verdict:
        return Verdict(True)


@dataclass(slots=True)
class Holdout:
    """The default: sample the complement by a hold-out block.

    Parameters
    ----------
    delta : probability of taking a step that raises the cost.
    bound : ``"normal"``, ``"hoeffding-serfling"`` or ``"empirical-bernstein"``.
    """

    delta: float = 0.1
    bound: str = "normal"
    noise_rule: bool = True
    damping: str = "trust-region"

    def __post_init__(self) -> None:
        probability("delta", self.delta)
        if self.bound not in _RADII:
            raise ValueError(f"bound={self.bound!r} is not known; choose one of {', '.join(_RADII)}")

    def first_batch(self, n: int, dim: int) -> int:
        return max(200, 40 * dim)

    def judge(self, step: Step) -> Verdict:
        batch = step.batch
        k, n = batch.size, batch.n
        count = min(max(k, 30), n - k)
        ranged = self.bound != "normal"
        outside = Moments.of(batch.held_out(count), ranged)
        rest = 1.0 - k / n
        mean = (1.0 - rest) * batch.change + rest * outside.mean
        if not mean < 0.0:
            return Verdict(False, None)
        width = self._width(batch.problem.cost_bound, Moments.of(batch.changes(), True), outside) if ranged else 0.0
        units, population = outside.units, n - k
        if outside.clustered:  # rows read together count as one draw
            population = max(units, population * units // outside.count)
        radius = _RADII[self.bound](outside.sd, width, units, population, self.delta)
        if outside.clustered and not ranged:
            radius *= bounds.student(units, self.delta)
        return Verdict(True, 0 if mean + rest * radius < 0.0 else None)

    @staticmethod
    def _width(cost_bound: float, inside: Moments, outside: Moments) -> float:
        # A bounded loss changes a block's cost by at most its bound. Otherwise the observed range is used as a guess.
        if math.isfinite(cost_bound):
            return 2.0 * cost_bound
        return max(inside.high, outside.high) - min(inside.low, outside.low)


_RADII: dict[str, bounds.Radius] = {
    "normal": bounds.normal,
    "hoeffding-serfling": bounds.hoeffding_serfling,
    "empirical-bernstein": bounds.empirical_bernstein,
}


def probability(name: str, value: float) -> None:
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must lie between 0 and 1, got {value!r}")
