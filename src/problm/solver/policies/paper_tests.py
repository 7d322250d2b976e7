r"""The tests of the paper, as policies (`problm.solver.policies.acceptance`).

``Paper`` (``"paper"``)
    Eq. 13 of the paper: with ``Z = max(a, Y)`` in [a, b], accept if
    ``sum Z <= -(b - a)/(1 - alpha) sqrt(K ln(1/delta) / 2)`` for the best a among the Y; else grow by Eq. 16.

``RelaxedPaper`` (``"paper-relaxed"``)
    Eq. 18, corrected: the same test with the changes *since the batch last grew* (t0). If it fails, the step is still
    taken with probability eta; otherwise it is undone and the batch grows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from . import confidence as bounds
from .acceptance import Step, Verdict, probability

Array = NDArray[np.float64]


def best_lower_bound(changes: Array, b: float) -> tuple[float, float]:
    """Search for a (section 4.2): the a among the negative changes with the largest ``-S(a) / (b - a)``.

    Returns (a, S(a)) with ``S(a) = sum max(a, Y)``; (0, 0) if no change is negative.
    """
    ordered = np.sort(changes)
    negative = int(np.searchsorted(ordered, 0.0))
    if negative == 0:
        return 0.0, 0.0
    a = ordered[:negative]
    tail = np.cumsum(ordered[::-1])[::-1][:negative]  # sum of Y from a upwards
    sums = np.arange(negative) * a + tail
    with np.errstate(over="ignore"):  # changes may be as small as the smallest float
        best = int(np.argmax(-sums / (b - a)))
    return float(a[best]), float(sums[best])


@dataclass(slots=True)
class Paper:
    """Eq. 13 with growth by Eq. 16.

    Parameters
    ----------
    delta, alpha : confidence and margin of the test. The authors' published code has ``alpha=0``.
    first : share of the blocks in the first batch (K0 = 0.1 N).
    upper : the bound b of a block's change: ``"auto"`` (the loss's bound if it has one, else Eq. 14),
        ``"sample"`` (Eq. 14: the largest change seen) or a number, a Lipschitz constant L: b = L ||step||.
    groups, group_bounds : labels (N,) of groups of blocks and, for each label, bounds (a, b) of a block's change, as
        mentioned in section 4.1 of the paper. a is then not searched, and Hoeffding's inequality is used with
        ``sum (b_i - a_i)^2``.
    """

    delta: float = 0.1
    alpha: float = 0.9
    first: float = 0.1
    upper: Literal["auto", "sample"] | float = "auto"
    groups: NDArray[np.integer[Any]] | None = None
    group_bounds: Mapping[int, tuple[float, float]] | None = None
    noise_rule: bool = False
    damping: str = "tenfold"

    def __post_init__(self) -> None:
        _check_paper(self.delta, self.alpha, self.first)
        if (self.groups is None) != (self.group_bounds is None):
            raise ValueError("groups and group_bounds go together: give both or neither")

    def first_batch(self, n: int, dim: int) -> int:
        return max(dim, math.ceil(self.first * n))

    def judge(self, step: Step) -> Verdict:
        changes = step.batch.changes()
        if self.groups is not None:
            return self._judge_groups(step, changes)
        b = upper_bound(self.upper, step, changes)
        return sum_test(changes, b, self.delta, self.alpha, step.batch.n)

    def _judge_groups(self, step: Step, changes: Array) -> Verdict:
        assert self.groups is not None
        assert self.group_bounds is not None
        labels = np.asarray(self.groups)[step.batch.rows()]
        squares, total = 0.0, 0.0
        for label, (a, b) in self.group_bounds.items():
            mine = changes[labels == label]
            total += float(np.maximum(a, mine).sum())
            squares += len(mine) * (b - a) ** 2
        # In Eq. 13 and 16 the sum of squared ranges takes the place of K (b - a)^2.
        needed = math.sqrt(squares * math.log(1.0 / self.delta) / 2.0) / (1.0 - self.alpha)
        if total <= -needed:
            return Verdict(True)
        grown = step.batch.size * (needed / total) ** 2 if total < 0.0 else math.inf
        return Verdict(False, _enlarged(grown, step.batch.size, step.batch.n))


@dataclass(slots=True)
class RelaxedPaper:
    """Algorithm 2 with Eq. 18 corrected.

    Parameters
    ----------
    eta : probability of taking a step although the test fails.
    restore : the point to return to after a rejected step: ``"t"`` (the current point, Alg. 2), ``"certified"`` (the
        last point that passed the test on this batch, else t0: the strictly sound reading) or ``"t0"`` (where the batch
        last grew: the intent of the authors' code).
    printed : use Eq. 18 as printed, with (1 - alpha)/(b - a), which has the units of 1/cost and is easier to pass the
        wider the range. For reproduction only.
    """

    delta: float = 0.1
    alpha: float = 0.9
    first: float = 0.1
    upper: Literal["auto", "sample"] | float = "auto"
    eta: float = 0.5
    restore: Literal["t", "certified", "t0"] = "t"
    printed: bool = False
    noise_rule: bool = False
    damping: str = "tenfold"
    _size: int = field(default=-1, repr=False)
    _reference: Array = field(default_factory=lambda: np.empty(0), repr=False)
    _start: Any = field(default=None, repr=False)
    _certified: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check_paper(self.delta, self.alpha, self.first)
        if not 0.0 <= self.eta < 1.0:
            raise ValueError(f"eta must lie in [0, 1), got {self.eta!r}")
        if self.restore not in ("t", "certified", "t0"):
            raise ValueError(f"restore={self.restore!r} is not known; choose one of t, certified, t0")

    def first_batch(self, n: int, dim: int) -> int:
        return max(dim, math.ceil(self.first * n))

    def judge(self, step: Step) -> Verdict:
        batch = step.batch
        if self._size != batch.size:  # t0: the first step on this batch starts here
            self._size = batch.size
            self._reference = batch.costs.copy()
            self._start = self._certified = batch.theta
        changes = batch.trial_costs() - self._reference
        b = upper_bound(self.upper, step, changes)
        verdict = sum_test(changes, b, self.delta, self.alpha, batch.n, printed=self.printed)
        if verdict.accept:
            self._certified = batch.trial_point
            return verdict
        if step.generator().random() <= self.eta:
            return Verdict(True)
        if self.restore == "t":
            return verdict
        return Verdict(False, verdict.grow_to, self._start if self.restore == "t0" else self._certified)


def sum_test(changes: Array, b: float, delta: float, alpha: float, n: int, *, printed: bool = False) -> Verdict:
    """Eq. 13 (and 18) for the best a; if it fails, the batch size of Eq. 16."""
    k = len(changes)
    a, total = best_lower_bound(changes, b)
    needed = bounds.hoeffding_threshold(b - a, k, delta) / (1.0 - alpha)
    threshold = needed
    if printed and b > a:
        threshold = (1.0 - alpha) / (b - a) * bounds.hoeffding_threshold(1.0, k, delta)
    if total < 0.0 and total <= -threshold:
        return Verdict(True)
    # Eq. 15: K+ = K^2 (b-a)^2 ln(1/delta) / (2 S^2 (1-alpha)^2) = K (needed / S)^2.
    grown = k * (needed / total) ** 2 if total < 0.0 else math.inf
    return Verdict(False, _enlarged(grown, k, n))


def upper_bound(upper: Literal["auto", "sample"] | float, step: Step, changes: Array) -> float:
    """b of section 4.2: from the loss's bound, from the sample (Eq. 14) or from a Lipschitz constant."""
    known = step.batch.problem.cost_bound
    if upper == "auto" and math.isfinite(known):
        return known
    if isinstance(upper, str):
        return float(np.abs(changes).max())
    return upper * float(np.linalg.norm(step.step))


def _enlarged(grown: float, k: int, n: int) -> int:
    """Eq. 16, but at least one block more, so that the solve makes progress."""
    return n if not grown < n else max(k + 1, math.ceil(grown))


def _check_paper(delta: float, alpha: float, first: float) -> None:
    probability("delta", delta)
    if not 0.0 <= alpha < 1.0:
        raise ValueError(f"alpha must lie in [0, 1), got {alpha!r}")
    if not 0.0 < first <= 1.0:
        raise ValueError(f"first must lie in (0, 1], got {first!r}")
