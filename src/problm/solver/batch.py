"""The current batch: what is known about the first K residual blocks at the current point.

Nothing is evaluated twice. The costs of the accepted trial become the current costs; when the batch grows at a fixed
point, only the new blocks are linearised and added to the sums. Per-block *costs* are kept only while the batch is
smaller than n; at K = n there are only sums.

When the batch becomes the full data set, the blocks are read in their natural order, in place. If fewer than half of
them are new, only those are gathered and evaluated. Otherwise all are, because gathering a row at random costs about as
much as evaluating it (`problm.sampling.order`).

A problem whose full passes are limited by reading data, not by arithmetic, sets ``fused = True``: a trial on all rows
then linearises as well, so that an accepted step needs one pass instead of two.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..linalg.normal import Normal
from ..sampling.moments import Moments
from .journal import Journal
from .problem import Problem, Theta

Array = NDArray[np.float64]
_LARGEST_FACTOR = 5_000_000
"""Largest number of entries of a Jacobian whose QR is computed."""


class Batch:
    """Costs and normal equations of the blocks at positions [0, size) at ``theta``."""

    def __init__(self, problem: Problem, theta: Theta, size: int) -> None:
        self.problem = problem
        self.n = problem.n
        self.size = size
        self.theta = theta
        self.residual_rows = 0
        self.jacobian_rows = 0
        self.residual_calls = 0
        self.jacobian_calls = 0
        self._normal: Normal | None = None
        self._costs = np.empty(0 if self.full else 2 * size)
        self._known = 0  # the costs of [0, known) at theta are in _costs
        self._trial: tuple[Theta, Array | None, Array | None, float] = (theta, None, None, np.nan)
        self.change = np.nan
        """Change of the batch's mean cost by the last trial."""
        self._trial_normal: Normal | None = None
        self._held = (0, 0)  # range of known costs that the last accepted trial evaluated as its hold-out
        self.journal: Journal | None = None
        """Record of full passes, for a checkpoint."""
        self._seconds_per_row = [0.0, 0.0]  # for residuals, for the Jacobian

    @property
    def full(self) -> bool:
        return self.size == self.n

    @property
    def costs(self) -> Array:
        """Costs of the batch's blocks at theta, (size,); after `linearize`, below n."""
        return self._costs[: self.size]

    def grow(self, size: int) -> None:
        """Enlarge the batch at the same point. It may get larger than ``size``: the order can only be cut at certain
        positions."""
        if size < self.n:
            size = min(self.problem.boundary(size), self.n)
        self.size = size
        if not self.full and size > len(self._costs):
            self._reserve(2 * size)

    def linearize(self, outer: bool) -> Normal:
        """Sums over the batch at theta; only its new part is evaluated if the rest is known."""
        done = 0 if self._normal is None else self._normal.count
        if done == self.size:
            assert self._normal is not None
            return self._normal
        if self.full and done < self.n // 2:
            done = 0
        keep = None if self.full else self._costs[done : self.size]
        began = time.perf_counter()
        read = self.size - done
        if self.full and done == 0:
            read = self._read(self.theta)
            new = self._everything(self.theta)
        else:
            new = self.problem.linearize(self.theta, done, self.size, outer=outer and not self.full, costs=keep)
        self._tick(1, began, self.size - done)
        self.jacobian_calls += 1
        self.jacobian_rows += read
        self.residual_rows += max(0, min(read, self.size - self._known))
        self._normal = new if done == 0 or self._normal is None else self._normal + new
        self._known = max(self._known, 0 if self.full else self.size)
        if self.full:
            self._release()
        return self._normal

    def factor(self) -> Array | None:
        """Triangular factor of the batch's [J r] at theta, (d + 1, d + 1); None if it is too large or not supported."""
        if self.size * self.problem.components * (self.problem.dim + 1) > _LARGEST_FACTOR:
            return None
        triangle = self.problem.factor(self.theta, 0, self.size)
        if triangle is not None:
            self.jacobian_rows += self.size
            self.jacobian_calls += 1
        return triangle

    def uncertainty(self) -> tuple[Array, Array] | None:
        """Norms (d,) of the errors of the columns of the batch's Jacobian at theta, and errors (d,) of its gradient;
        None if derivatives are exact."""
        errors = self.problem.uncertainty(self.theta, 0, self.size)
        if errors is not None:
            self.jacobian_rows += 2 * self.size
            self.jacobian_calls += 2
        return errors

    def concentration(self, root: Array) -> Array | None:
        """`problm.solver.problem.Problem.concentration` of the batch's blocks at theta."""
        found = self.problem.concentration(self.theta, 0, self.size, root)
        if found is not None:
            self.jacobian_rows += self.size
            self.jacobian_calls += 1
        return found

    local = True
    """Whether the problem itself evaluates the blocks of the batch."""

    def count_jacobians(self, calls: int, rows: int) -> None:
        """Count passes that linearised so many blocks elsewhere."""
        self.jacobian_calls += calls
        self.jacobian_rows += calls * rows

    def trial(self, theta: Theta) -> float:
        """Evaluate the batch at another point, and return the change of its mean cost."""
        assert self._normal is not None
        began = time.perf_counter()
        self._trial_normal = None
        read = self.size
        if self.full:
            read = self._read(theta)
            if self.problem.fused:
                self._trial_normal = self._everything(theta)
                self.jacobian_calls += 1
                self.jacobian_rows += read
                total = self._trial_normal.cost
            else:
                total = self._total(theta)
            self.change = (total - self._normal.cost) / self.n
            self._trial = (theta, None, None, total)
        else:
            costs = self.problem.costs(theta, 0, self.size)
            self.change = float((costs - self.costs).sum()) / self.size
            self._trial = (theta, costs, None, np.nan)
        self._tick(0, began, self.size)
        self.residual_rows += read
        self.residual_calls += self._trial_normal is None
        return self.change

    @property
    def trial_point(self) -> Theta:
        """The point of the last trial."""
        return self._trial[0]

    def changes(self) -> Array:
        """Changes of the batch's costs by the last trial, (size,)."""
        costs = self._trial[1]
        assert costs is not None
        return costs - self.costs

    def trial_costs(self) -> Array:
        """Costs of the batch's blocks at the last trial, (size,)."""
        costs = self._trial[1]
        assert costs is not None
        return costs

    def held_out(self, count: int) -> Array | Moments:
        """Changes of cost by the last trial for the ``count`` blocks after the batch, which did not contribute to the
        step."""
        theta, costs, _, total = self._trial
        end = self.size + count
        if end > len(self._costs):
            self._reserve(end)
        if self._known < end:
            start = max(self._known, self.size)
            self._costs[start:end] = self.problem.costs(self.theta, start, end)
            self.count_residuals(end - start)
            self._known = end
        after = self.problem.costs(theta, self.size, end)
        self.count_residuals(count)
        self._trial = (theta, costs, after, total)
        return self.problem.moments(after - self._costs[self.size : end], self.size, end)

    def fall(self, start: Theta) -> tuple[float, float]:
        """Mean decrease of the cost of the batch's blocks from another point to theta, and its standard error."""
        if self._known < self.size:
            return math.nan, math.inf
        changes = self.problem.costs(start, 0, self.size) - self.costs
        self.count_residuals(self.size)
        moments = Moments.of(self.problem.moments(changes, 0, self.size))
        return moments.mean, moments.sd / math.sqrt(moments.units)

    def rows(self) -> NDArray[np.int64]:
        """The user's row numbers of the batch, (size,), for policies that treat rows differently."""
        return self.problem.indices(0, self.size)

    def accept(self) -> None:
        """Move to the last trial; its costs become the current ones."""
        self.theta, costs, after, total = self._trial
        self._normal, self._trial_normal = self._trial_normal, None
        self._known = 0
        if costs is not None:
            self._costs[: self.size] = costs
            self._known = self.size
            if after is not None:
                self._costs[self.size : self.size + len(after)] = after
                self._known += len(after)
        elif total == total:
            self._known = self.n
        self._held = (self.size, self._known)

    def arrive(self, theta: Theta, normal: Normal | None) -> None:
        """Go to a point that was evaluated on all rows elsewhere (`problm.solver.compiled.advance`), and linearised if
        ``normal`` is given."""
        self.theta, self._normal, self._known = theta, normal, self.n

    def take_all(self, theta: Theta, normal: Normal) -> None:
        """Go to a point where one pass elsewhere linearised all rows."""
        self.size = self.n
        self.arrive(theta, normal)
        self.count_trials(1, None)
        self._release()

    def count_trials(self, trials: int, linearised: int | None) -> None:
        """Count trials on all rows, and how many points were linearised; None: every trial was, in the same pass."""
        self.residual_rows += trials * self.n
        self.residual_calls += 0 if linearised is None else trials
        self.count_jacobians(trials if linearised is None else linearised, self.n)

    def move(self, theta: Theta) -> None:
        """Go back to a point whose costs are no longer known."""
        self.theta = theta
        self._normal = None
        self._known = 0

    def cost_at(self, theta: Theta) -> float:
        """Sum of the batch's costs at another point, below n."""
        return float(self.problem.costs(theta, 0, self.size).sum())

    @property
    def resumable(self) -> bool:
        """Whether `restore` gives the same bits: costs are not stored, and below n a linearisation changes them."""
        return self.full or self._normal is None

    def state(self) -> dict[str, Any]:
        """What `restore` needs: numbers and small arrays."""
        counters = (self.residual_rows, self.jacobian_rows, self.residual_calls, self.jacobian_calls)
        return {
            "theta": self.theta, "size": self.size, "known": self._known, "held": self._held, "counters": counters,
            "normal": self._normal,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the batch of `state`; known costs of the hold-out block are computed again."""
        self.theta, self.size = state["theta"], state["size"]
        self.residual_rows, self.jacobian_rows, self.residual_calls, self.jacobian_calls = state["counters"]
        self._normal = state["normal"]
        self._known, self._held = state["known"], state["held"]
        self._costs = np.empty(0 if self.full else max(2 * self.size, self._known))
        lo, hi = self._held
        if not self.full and hi > max(lo, self.size):
            self._costs[lo:hi] = self.problem.costs(self.theta, lo, hi)

    def _read(self, theta: Theta) -> int:
        """Number of blocks that an evaluation of all of them reads."""
        return self.n if self.problem.reads(theta) else 0

    def _everything(self, theta: Theta) -> Normal:
        """Sums over all blocks."""
        if self.journal is None:
            return self.problem.linearize(theta, 0, self.n, outer=False, costs=None)
        return self.journal.run(
            "linearize", theta, lambda: self.problem.linearize(theta, 0, self.n, outer=False, costs=None)
        )

    def _total(self, theta: Theta) -> float:
        """Sum of the costs of all blocks."""
        if self.journal is None:
            return self.problem.cost(theta)
        return self.journal.run("cost", theta, lambda: self.problem.cost(theta))

    def seconds(self, size: int) -> float:
        """Estimated seconds of one linearisation and one trial of a batch of this size, from the passes so far."""
        return size * sum(self._seconds_per_row)

    def count_residuals(self, rows: int) -> None:
        """Count residuals that were evaluated in one call."""
        self.residual_rows += rows
        self.residual_calls += 1

    def _tick(self, which: int, began: float, rows: int) -> None:
        self._seconds_per_row[which] = (time.perf_counter() - began) / max(rows, 1)

    def _reserve(self, length: int) -> None:
        grown = np.empty(length)
        grown[: self._known] = self._costs[: self._known]
        self._costs = grown

    def _release(self) -> None:
        if len(self._costs):
            self._costs = np.empty(0)
            self.problem.release()
