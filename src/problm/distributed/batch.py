"""The batch of a solve on a cluster: sums and moments here, costs of single rows on the workers."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from ..linalg.normal import Normal
from ..sampling.moments import Moments
from ..solver.batch import Batch
from ..solver.problem import Theta
from ..support.reduction import add_pairwise
from . import worker as shards


class DistributedBatch(Batch):
    """A batch that is on the client while it fits twice into the head, and on the workers after that.

    Costs of single rows stay on the workers; a round returns sums and moments.
    """

    problem: Any
    local = False

    def __init__(self, problem: Any, theta: Theta, size: int) -> None:
        super().__init__(problem, theta, size)
        self._answer: tuple[Moments, Moments | None] | None = None
        self._done = -1  # index of the level whose sums are known
        if self.remote:
            self._costs = np.empty(0)
            self.size = self._level_size(size)

    @property
    def remote(self) -> bool:
        """Whether the batch is evaluated by the workers (passes over all rows are done by `DistributedProblem`)."""
        return not self.full and 2 * self.size > self.problem.head_size

    @property
    def level(self) -> int:
        return int(self.problem.order.index(self.size))

    def grow(self, size: int) -> None:
        before = self.remote
        if 2 * size <= self.problem.head_size:
            super().grow(size)
            return
        self.size = size if size == self.n else min(self._level_size(size), self.n)
        if not before:  # the sums of the head do not belong to a level
            self._normal, self._known, self._done = None, 0, -1
        self._costs = np.empty(0)

    def linearize(self, outer: bool) -> Normal:
        if not self.remote:
            return super().linearize(outer)
        if self._normal is not None and self._normal.count == self.size:
            return self._normal
        done = self._done if self._normal is not None else -1
        known = 0 if self._normal is None else self._normal.count
        began = time.perf_counter()
        request = self.problem.request(self.theta, level=self.level, known=done, outer=outer)
        new = add_pairwise(self.problem.ask(shards.linearize, request))
        self._tick(1, began, self.size - known)
        self.jacobian_calls += 1
        self.jacobian_rows += self.size - known
        self.count_residuals(self.size - known)
        self._normal = new if self._normal is None else self._normal + new
        self._done = self.level
        return self._normal

    def trial(self, theta: Theta) -> float:
        if not self.remote:
            return super().trial(theta)
        began = time.perf_counter()
        held = self.problem.order.index(min(2 * self.size, self.n - 1))
        request = self.problem.request(self.theta, trial=theta, level=self.level, held=held)
        answers = self.problem.ask(shards.trial, request)
        inside, outside = (shards.merge([getattr(a, name) for a in answers]) for name in ("inside", "outside"))
        assert inside is not None
        self._answer = (inside, outside)
        self._trial = (theta, None, None, math.nan)
        self._trial_normal = add_pairwise([a.normal for a in answers])
        self._tick(0, began, self.size)
        self.count_residuals(inside.count + (outside.count if outside is not None else 0))
        self.jacobian_calls += 1
        self.jacobian_rows += self.size
        self.change = inside.mean
        return self.change

    def changes(self) -> Any:
        return self._answer[0] if self.remote and self._answer is not None else super().changes()

    def held_out(self, count: int) -> Any:
        if not self.remote:
            return super().held_out(count)
        assert self._answer is not None
        return self._answer[1]

    def accept(self) -> None:
        if not self.remote:
            super().accept()
            return
        self.theta = self._trial[0]
        self._normal, self._trial_normal = self._trial_normal, None
        self._done = self.level

    def fall(self, start: Theta) -> tuple[float, float]:
        return (math.nan, math.inf) if self.remote else super().fall(start)

    def cost_at(self, theta: Theta) -> float:
        if not self.remote:
            return super().cost_at(theta)
        return math.fsum(self.problem.ask(shards.cost, self.problem.request(theta, level=self.level)))

    @property
    def resumable(self) -> bool:
        return super().resumable or (self.remote and self._normal is not None)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "done": self._done}

    def restore(self, state: dict[str, Any]) -> None:
        self.size = state["size"]
        self._done = state["done"]
        if not self.remote:
            super().restore(state)
            return
        super().restore({**state, "known": 0, "held": (0, 0)})
        self._costs = np.empty(0)

    def _level_size(self, size: int) -> int:
        order = self.problem.order
        return int(order.size(order.levels[order.index(size)]))
