"""Solves on a cluster: the same loop, with the rows on the workers.

Partitions of the data live on the workers. A round sends a point to them and returns sums of size d^2 and a few
moments per partition (`problm.distributed.worker`). One round per iteration is enough: a trial returns the changes of
batch and hold-out block *and* the normal equations at the trial point, so that an accepted step needs no further round
before the next (`problm.distributed.batch`).

Early iterations need no round at all. The first tens of thousands of rows of the random order, the *head*, are drawn
from all partitions in proportion to their sizes and sent to the client once; batches that fit twice into the head are
evaluated there.

Compiled models end by the short end (`problm.solver.short_end`): the workers evaluate runs of consecutive rows of their
partitions, and all rows once, with second derivatives.

The cluster is three functions (`problm.distributed.map_reduce`). Sums are returned per partition and added in their
order, so the result does not depend on which worker computed what, on timing, or on the number of workers.
"""

from __future__ import annotations

import hashlib
import math
import uuid
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..linalg.normal import Normal, Runs
from ..problems.rows import Columns, Modelled, RowModel
from ..sampling.order import as_generator
from ..solver.problem import Theta
from ..support.reduction import add_pairwise
from ..warnings import ProblmWarning
from . import worker as shards
from .batch import DistributedBatch
from .clients import cluster_of
from .map_reduce import Function, MapReduce
from .partitions import concatenated
from .worker import Head, Look, Request

Array = NDArray[np.float64]
_HEAD_ROWS = 65_536
_HEAD_BYTES = 1 << 24
_FEW = 64
_LONGEST_RUN = 512
"""Rows that a partition must have for runs of consecutive rows, of which the longest are as long."""
_SHORT_PASS = 1e9
"""Nanoseconds of a pass in a single thread up to which batches are on the client only: a round takes about 30 ms."""


def distributed_problem(
    model_of: Callable[[Columns], RowModel], data: Any, client: Any, rng: np.random.Generator | int | None = 0
) -> DistributedProblem:
    """The problem of ``data`` on the workers of ``client``.

    Parameters
    ----------
    model_of : makes the model from the first few rows.
    data : `problm.Partitions`, what `problm.data.sources.open_source` takes, or on Dask its arrays and data frames.
    client : a `dask.distributed.Client`, the address of a scheduler, ``"local"`` for a Dask cluster on this machine,
        a pool of `concurrent.futures`, a `problm.MapReduce`, or None for this process.
    rng : random seed or Generator for the order of the rows.
    """
    cluster = cluster_of(client)
    placed = None
    try:
        placed = cluster.scatter(cluster.partitions(data))
        return DistributedProblem(cluster, placed, model_of, rng)
    except BaseException:
        cluster.release(placed)
        raise


class DistributedOrder:
    """Cuts of the random order: levels of all partitions, and cuts of the head on the client."""

    def __init__(self, counts: Sequence[int], levels: list[int]) -> None:
        self._counts = [int(count) for count in counts]
        self.n = sum(self._counts)
        self.levels = levels
        self.local: Any = None
        """The order of the head's rows."""

    def size(self, level: int) -> int:
        """Number of rows of a level."""
        return sum(shards.rows_of(level, count, self.n) for count in self._counts)

    def index(self, size: int) -> int:
        """Index of the smallest level with at least ``size`` rows; a new one is made if there is none."""
        for i, level in enumerate(self.levels):
            if self.size(level) >= size:
                return i
        self.levels.append(size)
        return len(self.levels) - 1

    @property
    def drawn(self) -> int:
        return int(self.local.drawn)

    def state(self) -> dict[str, Any]:
        return {"levels": list(self.levels), "local": self.local.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.levels[:] = state["levels"]
        self.local.restore(state["local"])


class DistributedProblem(Modelled[RowModel]):
    """Residual blocks whose rows are partitions on the workers of a cluster."""

    fused = True

    def __init__(
        self,
        cluster: MapReduce,
        placed: Any,
        model_of: Callable[[Columns], RowModel],
        rng: np.random.Generator | int | None = 0,
    ) -> None:
        self._cluster, self._placed = cluster, placed
        self._run = uuid.uuid4().hex
        self._seed = int(as_generator(rng).integers(2**63))
        self._sound = True
        self.rounds = 0
        """Number of rounds of calls so far."""
        seen: list[Look] = self.ask(shards.look, _FEW)
        first = _checked(seen)
        self._counts = [look.rows for look in seen]
        self.n = sum(self._counts)
        super().__init__(_with_threads(model_of(first), cluster.threads))
        each = sum(c.dtype.itemsize * math.prod(c.shape[1:]) for c in first)
        head_rows = max(1, min(_HEAD_ROWS, _HEAD_BYTES // max(each, 1), self.n // 4))
        self.order = DistributedOrder(self._counts, [head_rows])
        columns = concatenated(self.ask(shards.head, Head(self._seed, head_rows, self.n)))
        self._head = self.model.problem(columns, np.random.default_rng([self._seed, len(seen)]))
        self.order.local = self._head.random_order()
        self.head_size = self._head.n
        self.in_place = self._head.in_place and min(filter(None, self._counts)) >= _LONGEST_RUN
        # A larger batch is gathered from all over, which takes as long as a pass, and every step on it needs a round.
        self.jump, self.least_batch = self._head.jump, self._head.least_batch
        kernel = getattr(self._head, "kernel", None)
        short = kernel is not None and kernel.work * self.n < _SHORT_PASS
        self.largest_batch = self.head_size // 2 if short else max(self.head_size // 2, self.n // 8)

    def make_batch(self, theta: Theta, size: int) -> DistributedBatch:
        return DistributedBatch(self, theta, size)

    def linearize(self, theta: Theta, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal:
        """Linearise the head or all rows; `DistributedBatch` does what lies between."""
        if lo == 0 and hi == self.n:
            parts: list[Normal] = self.ask(shards.linearize, self.request(theta, level=-1))
            return add_pairwise(parts)
        return self._head.linearize(theta, lo, hi, outer=outer, costs=costs)

    def costs(self, theta: Theta, lo: int, hi: int) -> Array:
        return self._head.costs(theta, lo, hi)

    def cost(self, theta: Theta) -> float:
        return math.fsum(self.ask(shards.cost, self.request(theta, level=-1)))

    def runs(self, theta: Theta, starts: NDArray[np.int64], length: int, *, second: bool) -> Runs:
        ends = np.cumsum(self._counts)
        cuts = np.searchsorted(starts, ends)
        # A run that would cross the end of a partition is the last one in it.
        local = tuple(
            np.minimum(part - (end - count), count - length)
            for part, end, count in zip(np.split(starts, cuts[:-1]), ends, self._counts, strict=True)
        )
        request = self.request(theta, starts=local, length=length, second=second)
        return Runs.concatenated([part for part in self.ask(shards.runs, request) if part is not None])

    @property
    def creep(self) -> float:  # type: ignore[override]
        return self._head.creep

    def second_order(self, theta: Theta) -> tuple[Normal, Array] | None:
        if self._head.second_order(theta) is None:
            return None
        normals, curvatures = zip(*self.ask(shards.second_order, self.request(theta, level=-1)), strict=True)
        return add_pairwise(list(normals)), add_pairwise(list(curvatures))

    def residuals(self, theta: Theta) -> Array:
        """Residuals of all rows, partition by partition, (n, p)."""
        return np.concatenate(self.ask(shards.residuals, self.request(theta)))

    def first_bad_row(self, theta: Theta) -> int | None:
        """The first row with a residual or derivative that is not finite, counted over the partitions."""
        rows = self.ask(shards.first_bad_row, self.request(theta))
        before = np.cumsum([0, *self._counts])
        return next((int(before[i]) + row for i, row in enumerate(rows) if row is not None), None)

    def refine_derivatives(self) -> bool:
        """Ask the model for more accurate derivatives, here and on the workers."""
        if not self.model.refine_derivatives():
            return False
        self._run = uuid.uuid4().hex  # the workers' results for the old model are of no use
        self._head.refine_derivatives()
        return True

    def fingerprint(self) -> dict[str, Any]:
        rows = hashlib.sha256(" ".join(self.ask(shards.digest_rows, None)).encode()).hexdigest()
        return {**self._head.fingerprint(), "rows": rows}

    def boundary(self, position: int) -> int:
        return self._head.boundary(position)

    def random_order(self) -> DistributedOrder:
        return self.order

    def close(self) -> None:
        """Release what the workers keep, and close a cluster that was started here."""
        if self._sound:
            with suppress(Exception):
                self._cluster.map(shards.forget, self._run, self._placed)
        self._cluster.release(self._placed)

    def request(self, theta: Theta, **fields: Any) -> Request:
        return Request(self._run, self.model, self._seed, tuple(self.order.levels), self.n, theta, **fields)

    def ask(self, function: Function, message: Any) -> list[Any]:
        """One round: the answers of all partitions, in their order."""
        self.rounds += 1
        try:
            return _in_order(self._cluster.map(function, message, self._placed))
        except BaseException as error:
            self._sound = False
            error.add_note(f"This happened in round {self.rounds} of a solve on a cluster.")
            raise


def _in_order(answers: Sequence[tuple[int, Any]]) -> list[Any]:
    """Answers in the order of their partitions; of repeated ones the first."""
    found: dict[int, Any] = {}
    for index, answer in answers:
        found.setdefault(index, answer)
    if not found or set(found) != set(range(len(found))):
        raise RuntimeError(
            f"client: map must return an answer for every partition, but returned {len(answers)}, of the partitions "
            f"{sorted(found)[:10]}"
        )
    return [found[i] for i in range(len(found))]


def _checked(seen: Sequence[Look]) -> Columns:
    """The first rows of the data, after a look at all partitions; raise if they do not belong together."""
    own = shards.versions()
    for look in seen:
        other = {name: found for name, found in look.versions.items() if found != own[name]}
        if not other:
            continue
        told = ", ".join(f"{name} {found} instead of {own[name]}" for name, found in other.items())
        if set(other) - {"numpy"}:
            raise RuntimeError(f"client: a worker has {told}; install the same versions on client and workers")
        warnings.warn(f"a worker has {told}: last digits may differ from run to run", ProblmWarning, stacklevel=2)
        break
    full = [look.first for look in seen if look.rows]
    if not full:
        raise ValueError("data has no rows: there is nothing to fit")
    shapes = [[(c.dtype.kind, c.shape[1:]) for c in first] for first in full]
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ValueError(
                f"data: the columns of partition {i} are {_told(shape)}, those of the first are {_told(shapes[0])}; "
                "give a column the same type in all partitions, for example by .astype(float)"
            )
    return full[0]


def _told(shape: Sequence[tuple[str, tuple[int, ...]]]) -> str:
    kinds = {"f": "real", "i": "whole", "u": "whole, unsigned", "c": "complex"}
    return ", ".join(kinds.get(kind, kind) + (f" {rows}" if rows else "") for kind, rows in shape)


def _with_threads(model: RowModel, threads: int) -> RowModel:
    """Let a compiled model use the threads of a worker, not all cores of its machine."""
    if getattr(model, "threads", 0) is None:
        model.threads = threads  # type: ignore[attr-defined]
    return model
