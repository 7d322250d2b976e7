r"""The tests of the paper, as policies (`problm.solver.policies.acceptance`).

``Paper`` (``"paper"``)
    Eq. 13 of the paper: with ``Z = max(a, Y)`` in [a, b], accept if
    ``sum Z <= -(b - a)/(1 - alpha) sqrt(K ln(1/delta) / 2)`` for the best a among the Y; else grow by Eq. 16.

``RelaxedPaper`` (``"paper-relaxed"``)
    Eq. 18, corrected: the same test with the changes *since the batch last grew* (t0). If it fails, the step is still
    taken with probability eta; otherwise it is undone and the batch grows.

Both are scale invariant, so it makes no difference that the paper's cost of a block is ``||r||^2`` and ours half of it.
Eq. 18 as printed is not, and is applied to the paper's cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..batch import Batch
from . import confidence as bounds
from .acceptance import Step, Verdict, probability

Array = NDArray[np.float64]


@dataclass(slots=True)
class Paper:
    """Eq. 13 with growth by Eq. 16.

    Parameters
    ----------
    delta, alpha : confidence and margin of the test. The authors' published code has ``alpha=0``. For a delta from the
        probability of failure over many steps see `problm.solver.policies.confidence.delta_per_step`.
    first : share of the blocks in the first batch (K0 = 0.1 N).
    upper : the bound b of a block's change: ``"auto"`` (the loss's bound if it has one, else Eq. 14),
        ``"sample"`` (Eq. 14: the largest change seen) or a number L: b = L ||theta - theta'||^exponent.
    exponent : 1 if the costs of the blocks are Lipschitz continuous with the constant L, in (0, 1) if they are only
        Hoelder continuous (remark at the end of section 4.2).
    groups, group_bounds : labels (N,) of groups of blocks and, for each label, bounds (a, b) of a block's change, as
        mentioned in section 4.1 of the paper. a is then not searched, and Hoeffding's inequality is used with
        ``sum (b_i - a_i)^2``.
    """

    delta: float = 0.1
    alpha: float = 0.9
    first: float = 0.1
    upper: Literal["auto", "sample"] | float = "auto"
    exponent: float = 1.0
    groups: NDArray[np.integer[Any]] | None = None
    group_bounds: Mapping[int, tuple[float, float]] | None = None
    noise_rule: bool = False
    damping: str = "tenfold"

    def __post_init__(self) -> None:
        probability("delta", self.delta)
        if not 0.0 <= self.alpha < 1.0:
            raise ValueError(f"alpha must lie in [0, 1), got {self.alpha!r}")
        for name, value in (("first", self.first), ("exponent", self.exponent)):
            if not 0.0 < value <= 1.0:
                raise ValueError(f"{name} must lie in (0, 1], got {value!r}")
        if isinstance(self.upper, str):
            if self.upper not in ("auto", "sample"):
                raise ValueError(f"upper={self.upper!r} is not known; choose auto, sample or a positive number")
        elif not 0.0 < self.upper < math.inf:
            raise ValueError(f"upper must be auto, sample or a positive number, got {self.upper!r}")
        _check_groups(self.groups, self.group_bounds)

    def first_batch(self, n: int, dim: int) -> int:
        return max(dim, math.ceil(self.first * n))

    def judge(self, step: Step) -> Verdict:
        return self.test(step.batch, step.batch.changes(), self.power(step.step))

    def power(self, step: Array) -> float:
        """``||step||^exponent``, which bounds the change of a block's cost up to the factor L."""
        return math.pow(np.linalg.norm(step), self.exponent)

    def test(self, batch: Batch, changes: Array, power: float, *, printed: bool = False) -> Verdict:
        """Test the changes (K,) of the blocks' costs between two points, whose distance has this `power`."""
        if self.groups is not None:
            assert self.group_bounds is not None
            if len(self.groups) != batch.n:
                raise ValueError(f"groups must have one label per block, {batch.n}, got {len(self.groups)}")
            labels = np.asarray(self.groups)[batch.rows()]
            return group_test(changes, labels, self.group_bounds, self.delta, self.alpha, batch.n)
        b = self.bound(batch, changes, power)
        unit = 2.0 if printed and not batch.problem.robust else 1.0  # a robust loss is ||r||^2 / 2 near zero in both
        return sum_test(unit * changes, unit * b, self.delta, self.alpha, batch.n, printed=printed)

    def bound(self, batch: Batch, changes: Array, power: float) -> float:
        """b of section 4.2: from the loss's bound, from the sample (Eq. 14) or from the continuity of the costs."""
        known = batch.problem.cost_bound
        if self.upper == "auto" and math.isfinite(known):
            return known
        if isinstance(self.upper, str):
            return float(np.abs(changes).max())
        return self.upper * power


@dataclass(slots=True)
class RelaxedPaper(Paper):
    """Algorithm 2 with Eq. 18 corrected: everything is relative to t0, where the batch last grew.

    With ``upper=L``, b is L times the distance from t0 (on a manifold whose distances are not known, times the length
    of the way from t0). Group bounds are bounds of the change since t0.

    Parameters
    ----------
    eta : probability of taking a step although the test fails.
    restore : the point to return to after a rejected step: ``"t"`` (the current point, Alg. 2), ``"certified"`` (the
        last point that passed the test on this batch, else t0: the strictly sound reading) or ``"t0"`` (where the batch
        last grew: the intent of the authors' code).
    printed : use Eq. 18 as printed, ``sum Z <= -(1 - alpha)/(b - a) sqrt(K ln(1/delta) / 2)`` for the best a of this
        test, with the paper's ``f = ||r||^2``. It has the units of 1/cost and is easier to pass the wider the range.
        For reproduction only.
    """

    eta: float = 0.5
    restore: Literal["t", "certified", "t0"] = "t"
    printed: bool = False
    _size: int = field(default=-1, repr=False)
    _reference: Array = field(default_factory=lambda: np.empty(0), repr=False)
    _start: Any = field(default=None, repr=False)
    _certified: Any = field(default=None, repr=False)
    _way: float = field(default=0.0, repr=False)
    """Sum of the powers of the steps taken since t0."""

    def __post_init__(self) -> None:
        Paper.__post_init__(self)  # a dataclass with slots is a new class, of which super() does not know
        if not 0.0 <= self.eta < 1.0:
            raise ValueError(f"eta must lie in [0, 1), got {self.eta!r}")
        if self.restore not in ("t", "certified", "t0"):
            raise ValueError(f"restore={self.restore!r} is not known; choose one of t, certified, t0")
        if self.printed and self.groups is not None:
            raise ValueError("printed: the paper prints no Eq. 18 for groups; leave one of them out")

    def judge(self, step: Step) -> Verdict:
        batch = step.batch
        if self._size != batch.size:  # t0: the first step on this batch starts here
            self._size = batch.size
            self._reference = batch.costs.copy()
            self._start = self._certified = batch.theta
            self._way = 0.0
        way = self._way + self.power(step.step)
        distance = batch.problem.distance(self._start, batch.trial_point)
        power = way if distance is None else distance**self.exponent
        verdict = self.test(batch, batch.trial_costs() - self._reference, power, printed=self.printed)
        lucky = step.generator().random() <= self.eta  # drawn at every step, as in Algorithm 2
        if verdict.accept:
            self._certified = batch.trial_point
        if verdict.accept or lucky:
            self._way = way
            return Verdict(True)
        if self.restore == "t":
            return verdict
        return Verdict(False, verdict.grow_to, self._start if self.restore == "t0" else self._certified)


def best_lower_bound(changes: Array, b: float, *, printed: bool = False) -> tuple[float, float]:
    """Search for a (section 4.2): the a among the negative changes with the largest ``-S(a) / (b - a)``, or with the
    largest ``-S(a) (b - a)`` for Eq. 18 as printed.

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
        best = int(np.argmax(-sums * (b - a) if printed else -sums / (b - a)))
    return float(a[best]), float(sums[best])


def sum_test(changes: Array, b: float, delta: float, alpha: float, n: int, *, printed: bool = False) -> Verdict:
    """Eq. 13 (and 18) for the best a; if it fails, the batch size of Eq. 16 with this a."""
    k = len(changes)
    a, total = best_lower_bound(changes, b, printed=printed)
    needed = bounds.hoeffding_threshold(b - a, k, delta) / (1.0 - alpha)
    threshold = needed
    if printed and b > a:
        threshold = (1.0 - alpha) / (b - a) * bounds.hoeffding_threshold(1.0, k, delta)
    return _verdict(total, needed, threshold, k, n)


def group_test(
    changes: Array,
    labels: NDArray[np.integer[Any]],
    group_bounds: Mapping[int, tuple[float, float]],
    delta: float,
    alpha: float,
    n: int,
) -> Verdict:
    """Eq. 13 (and 18) with bounds (a, b) of each group: the sum of squared ranges takes the place of K (b - a)^2."""
    squares, total = 0.0, 0.0
    for label, (a, b) in group_bounds.items():
        mine = changes[labels == label]
        total += float(np.maximum(a, mine).sum())
        squares += len(mine) * (b - a) ** 2
    needed = math.sqrt(squares * math.log(1.0 / delta) / 2.0) / (1.0 - alpha)
    return _verdict(total, needed, needed, len(changes), n)


def _verdict(total: float, needed: float, threshold: float, k: int, n: int) -> Verdict:
    """Accept if the sum S is below minus the threshold; else grow by Eq. 15 and 16, by at least one block."""
    if total < 0.0 and total <= -threshold:
        return Verdict(True)
    # Eq. 15: K+ = K^2 (b-a)^2 ln(1/delta) / (2 S^2 (1-alpha)^2) = K (needed / S)^2.
    grown = k * (needed / total) ** 2 if total < 0.0 else math.inf
    return Verdict(False, n if not grown < n else max(k + 1, math.ceil(grown)))


def _check_groups(
    groups: NDArray[np.integer[Any]] | None, group_bounds: Mapping[int, tuple[float, float]] | None
) -> None:
    if groups is None and group_bounds is None:
        return
    if groups is None or group_bounds is None:
        raise ValueError("groups and group_bounds go together: give both or neither")
    missing = set(np.unique(groups).tolist()) - set(group_bounds)
    if missing:
        raise ValueError(f"group_bounds has no bounds for the groups {', '.join(map(str, sorted(missing)))}")
    for label, (a, b) in group_bounds.items():
        if not a < b:
            raise ValueError(f"group_bounds: a must be below b, got {(a, b)!r} for the group {label!r}")
