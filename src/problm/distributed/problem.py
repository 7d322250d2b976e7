"""Solves on a Dask cluster: the same loop, with the rows on the workers.

Partitions of the data live on the workers; each worker has a shard, a fixed list of partitions. A round sends a point
to the workers and returns sums of size d^2 and a few moments (`problm.distributed.worker`). One round per iteration is
enough: a trial returns the changes of batch and hold-out block *and* the normal equations at the trial point, so that
an accepted step needs no further round before the next (`problm.distributed.batch`).

Early iterations need no round at all. The first tens of thousands of rows of the random order, the *head*, are drawn
from all partitions in proportion to their sizes and sent to the client once; batches that fit twice into the head are
evaluated there. If a partition is late with its share, another worker recomputes it from its lineage, with the same
rows.

A worker that dies is replaced by Dask: its partitions are computed again from their lineage, its calls run again with
the same bits, and the solve continues. Sums are returned per partition and added in their order, so the result does not
depend on which worker computed what, on timing, or on the number of workers.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..linalg.normal import Normal
from ..problems.rows import Columns, Modelled, RowModel
from ..sampling.order import as_generator
from ..solver.problem import Problem, Theta
from ..support.reduction import add_pairwise
from . import worker as shards
from .batch import DistributedBatch
from .cluster import Cluster
from .worker import Request

Array = NDArray[np.float64]
_HEAD_ROWS = 65_536
_HEAD_BYTES = 1 << 24
_RETRIES = 3
_LATE = 3.0
"""Multiple of the usual time after which a partition without an answer is late, if a worker is idle."""


def distributed_problem(
    model_of: Callable[[Columns], RowModel], data: Any, client: Any, rng: np.random.Generator | int | None = 0
) -> DistributedProblem:
    """The problem of ``data`` on the workers of ``client``.

    Parameters
    ----------
    model_of : makes the model from the first few rows.
    data : a Dask array, a tuple of them, a Dask data frame, or what `problm.data.sources.open_source` takes.
    client : a `dask.distributed.Client`, the address of a scheduler, or ``"local"`` for a cluster on this machine.
    rng : random seed or Generator for the order of the rows.
    """
    cluster = Cluster.of(client)
    try:
        lazy, counts = cluster.partitions(data)
        return DistributedProblem(cluster, model_of, lazy, counts, rng)
    except BaseException:
        cluster.close()
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
        cluster: Cluster,
        model_of: Callable[[Columns], RowModel],
        lazy: Sequence[Any],
        counts: Sequence[int] | None,
        rng: np.random.Generator | int | None = 0,
    ) -> None:
        self._cluster, client = cluster, cluster.client
        self._run = uuid.uuid4().hex
        self._seed = int(as_generator(rng).integers(2**63))
        parts = client.persist(list(lazy))
        futures = [_future(part) for part in parts]
        if counts is None:
            counts = client.gather(client.map(shards.length, futures, pure=False))
        kept = [i for i, count in enumerate(counts) if count]
        if not kept:
            raise ValueError("data has no rows: there is nothing to fit")
        self._lazy = [lazy[i] for i in kept]
        self._parts = [futures[i] for i in kept]
        self._counts = [int(counts[i]) for i in kept]
        self.n = sum(self._counts)
        # Ask all partitions: a call on a single one may wait behind a late partition of the same worker.
        first = _first_done(client.map(shards.few, [64] * len(kept), self._parts, pure=False)).result()
        super().__init__(_fit_threads(model_of(first), client))
        self._remote_model = client.submit(_identity, self.model, pure=False)
        each = sum(c.dtype.itemsize * math.prod(c.shape[1:]) for c in first)
        head_rows = max(1, min(_HEAD_ROWS, _HEAD_BYTES // max(each, 1), self.n // 4))
        self.order = DistributedOrder(self._counts, [head_rows])
        self._head = self._local_head(head_rows)
        self.order.local = self._head.random_order()
        self.head_size = self._head.n
        self.largest_batch = max(self.head_size // 2, self.n // 8)
        self._shards: list[tuple[str, list[int]]] = []
        self.rounds = 0
        """Number of rounds of calls to all shards so far."""

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

    def residuals(self, theta: Theta) -> Array:
        """Residuals of all rows, partition by partition, (n, p)."""
        return np.concatenate(self._cluster.client.gather(self._each(shards.residuals, theta)))

    def first_bad_row(self, theta: Theta) -> int | None:
        """The first row with a residual or derivative that is not finite, counted over the partitions."""
        rows = self._cluster.client.gather(self._each(shards.first_bad_row, theta))
        before = np.cumsum([0, *self._counts])
        return next((int(before[i]) + row for i, row in enumerate(rows) if row is not None), None)

    def refine_derivatives(self) -> bool:
        """Ask the model for more accurate derivatives, here and on the workers."""
        if not self.model.refine_derivatives():
            return False
        self._run = uuid.uuid4().hex  # the workers' results for the old model are of no use
        self._remote_model = self._cluster.client.submit(_identity, self.model, pure=False)
        self._head.refine_derivatives()
        return True

    def boundary(self, position: int) -> int:
        return self._head.boundary(position)

    def random_order(self) -> DistributedOrder:
        return self.order

    def close(self) -> None:
        """Release what the workers keep, and close a cluster that was started here."""
        client = self._cluster.client
        if client.status == "running":
            client.run(shards.forget, self._run, on_error="ignore")
        self._cluster.close()

    def request(self, theta: Theta, **fields: Any) -> Request:
        return Request(self._run, self._seed, tuple(self.order.levels), self.n, theta, **fields)

    def ask(self, function: Callable[..., Any], request: Request) -> list[Any]:
        """One round: the answers of all partitions, in their order."""
        client = self._cluster.client
        self.rounds += 1
        self._shards = self._shards or self._assign()
        for attempt in range(_RETRIES):
            calls = [
                client.submit(
                    function, request, self._remote_model, indices, *(self._parts[i] for i in indices),
                    pure=False, workers=[worker], allow_other_workers=True,
                )
                for worker, indices in self._shards
            ]  # fmt: skip
            try:
                answers = zip(self._shards, client.gather(calls), strict=True)
                found = {i: part for (_, indices), parts in answers for i, part in zip(indices, parts, strict=True)}
                return [found[i] for i in range(len(self._parts))]
            except Exception as error:
                # Dask repeats a call whose worker died; a call that Dask gave up is submitted again.
                lost = type(error).__name__ in ("KilledWorker", "FutureCancelledError", "CancelledError")
                if not lost or attempt == _RETRIES - 1:
                    raise
        raise AssertionError  # not reached

    def _each(self, function: Callable[..., Any], theta: Theta) -> list[Any]:
        client = self._cluster.client
        return [client.submit(function, theta, self._remote_model, part, pure=False) for part in self._parts]

    def _assign(self) -> list[tuple[str, list[int]]]:
        """Shards: the partitions on each worker, in the order of the partitions."""
        from distributed import wait

        wait(self._parts)
        where = self._cluster.client.who_has(self._parts)
        found: dict[str, list[int]] = {}
        for i, part in enumerate(self._parts):
            owners = sorted(where.get(part.key, ()))
            found.setdefault(owners[i % len(owners)] if owners else "", []).append(i)
        some = next((worker for worker in found if worker), "")
        return [(worker or some, indices) for worker, indices in sorted(found.items(), key=lambda item: item[1])]

    def _local_head(self, rows: int) -> Problem:
        """The head of the random order as a problem on the client; late partitions are requested a second time."""
        client = self._cluster.client
        wanted = [shards.rows_of(rows, count, self.n) for count in self._counts]
        calls = [
            client.submit(shards.head, self._seed, i, wanted[i], part, pure=False) for i, part in enumerate(self._parts)
        ]
        again: dict[int, Any] = {}
        began, late, count = time.perf_counter(), math.inf, len(calls)
        # The second call fails if a partition's lineage leads to data that only the cluster has; then keep waiting.
        while missing := [i for i, call in enumerate(calls) if not (call.done() or _finished(again.get(i)))]:
            elapsed = time.perf_counter() - began
            if len(missing) < count:
                late, count = max((1.0 + _LATE) * elapsed, 0.5), len(missing)
            if elapsed > late and not again:
                idle = [worker for worker, tasks in client.processing().items() if not tasks]
                again = {i: self._head_again(i, wanted[i], idle) for i in missing if idle}
            time.sleep(0.005)
        columns = client.gather([call if call.done() else again[i] for i, call in enumerate(calls)])
        joined = tuple(np.concatenate(parts) for parts in zip(*columns, strict=True))
        return self.model.problem(joined, np.random.default_rng([self._seed, len(calls)]))

    def _head_again(self, index: int, rows: int, idle: list[str]) -> Any:
        """The same rows from the partition's lineage, computed by an idle worker alone."""
        return self._cluster.client.submit(
            _head_here, self._seed, index, rows, _Lineage(self._lazy[index]),
            pure=False, workers=idle, allow_other_workers=True,
        )  # fmt: skip


class _Lineage:
    """A lazy partition that is opaque to Dask: as a graph it would wait for the late one."""

    def __init__(self, part: Any) -> None:
        self.part = part


def _head_here(seed: int, index: int, rows: int, lineage: _Lineage) -> Columns:
    return shards.head(seed, index, rows, lineage.part.compute(scheduler="synchronous"))


def _future(part: Any) -> Any:
    from distributed import futures_of

    return futures_of(part)[0]


def _first_done(calls: Sequence[Any]) -> Any:
    from distributed import wait

    done = wait(calls, return_when="FIRST_COMPLETED").done
    return next(call for call in calls if call in done)


def _finished(call: Any) -> bool:
    return call is not None and call.status == "finished"


def _identity(model: RowModel) -> RowModel:
    return model


def _fit_threads(model: RowModel, client: Any) -> RowModel:
    """Let a compiled model use the threads of a worker, not all cores of its machine."""
    if getattr(model, "threads", 0) is None:
        workers = client.scheduler_info()["workers"].values()
        model.threads = min((int(w["nthreads"]) for w in workers), default=1)  # type: ignore[attr-defined]
    return model
