"""Dask as three functions: partitions stay on the workers, and late, lost or new workers do not change the answer.

Each worker has a shard, a list of partitions, and gets one call per round. That is no task, which the scheduler would
plan, record and fetch in three messages, but a function run on the worker that has the partitions, in one of its
threads: 4 ms instead of 30. If this fails in any way, the shard is asked for by a task. If a worker dies, Dask computes
its partitions again from their lineage. If it is late, an idle worker computes its shard from the lineage as well, and
the first answer counts. Workers that join get partitions from the next round on. A round that cannot end raises
ConnectionError: without workers, without scheduler, or with a closed client nobody will answer.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any

from ..data.columns import Columns
from .map_reduce import Function, MapReduce
from .partitions import concatenated, loaded, neighbours, partitions_of
from .shards import Shard, shards_of

_PATIENCE = 30.0
"""Seconds without any worker or without the scheduler after which a round is given up."""
_TICK = 0.1
_LATE = 4.0
"""Multiple of the time of the other answers after which a call is late, if a worker is idle."""
_LEAST_LATE = 0.5
_SOON = 0.5
"""Seconds that a round waits for partitions to be made."""
_RETRIES = 3
_UNKNOWN_SIZES = 1024
"""Largest number of groups into which partitions of unknown sizes are joined."""
_LOST = ("KilledWorker", "FutureCancelledError", "FuturesCancelledError", "CancelledError", "CommClosedError")


def on_dask(client: Any) -> MapReduce:
    """The three functions of a `dask.distributed.Client`, the address of a scheduler, or ``"local"``."""
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise ImportError("Dask is needed for a cluster: pip install 'problm[big]'") from error
    own: list[Any] = []
    if isinstance(client, str) or client is True:
        if client in ("local", True):
            own.append(LocalCluster(threads_per_worker=1, dashboard_address=":0"))
        client = Client(*(own or [client]))
        own.insert(0, client)
    if not isinstance(client, Client):
        raise TypeError(
            "client must be a dask.distributed.Client, the address of a scheduler, 'local', a pool of "
            f"concurrent.futures or a problm.MapReduce, got {client!r}"
        )
    cluster = DaskCluster(client, own)
    threads = min(cluster.workers().values(), default=1)
    return MapReduce(cluster.scatter, cluster.map, cluster.release, dask_partitions, threads)


class Placed:
    """Partitions on the workers: their lineage, the futures of their columns, and who has which."""

    def __init__(self, client: Any, lazy: Sequence[Any]) -> None:
        self.lazy = list(lazy)
        self.shards: list[Shard] = []
        self._assigned: set[str] = set()
        self.persist(client)

    def persist(self, client: Any) -> None:
        from distributed import futures_of

        self.futures = [futures_of(part)[0] for part in client.persist(self.lazy)]
        self.shards = []

    def assign(self, client: Any, workers: set[str]) -> list[Shard]:
        """The shards, assigned anew if workers came or went; before all partitions are made, one by one."""
        if not self.shards or self._assigned != workers or any(shard.worker is None for shard in self.shards):
            if not self.shards:
                _made_soon(self.futures)
            where = client.who_has(self.futures)
            owners = [sorted(workers.intersection(where.get(f.key, ()))) for f in self.futures]
            self.shards, self._assigned = shards_of(owners, workers), workers
        return self.shards


class DaskCluster:
    """A client, and what has to be closed with it."""

    def __init__(self, client: Any, own: Sequence[Any] = ()) -> None:
        self._client = client
        self._own = list(own)
        self._lonely: float | None = None
        """Time since which nobody has answered."""

    def scatter(self, partitions: Sequence[Any]) -> Placed:
        import dask

        make = dask.delayed(loaded, pure=False)
        return Placed(self._client, [p if hasattr(p, "dask") else make(p) for p in partitions])

    def release(self, placed: Placed) -> None:
        """Close a cluster that was started here; futures are released with the last reference to them."""
        while self._own:
            self._own.pop(0).close()

    def map(self, function: Function, message: Any, placed: Placed) -> list[tuple[int, Any]]:
        for attempt in range(_RETRIES):
            try:
                shards = placed.assign(self._client, set(self._some_workers()))
                return [answer for part in self._round(function, message, placed, shards) for answer in part]
            except Exception as error:
                self._check_client(error)
                # Dask repeats calls of a worker that died; what Dask gave up is computed from the lineage.
                if type(error).__name__ not in _LOST or attempt == _RETRIES - 1:
                    raise
                placed.persist(self._client)
        raise AssertionError  # not reached

    def workers(self) -> dict[str, int]:
        """Addresses of the workers, and their numbers of threads."""
        try:
            found: dict[str, int] = self._client.sync(self._client.scheduler.ncores, callback_timeout=_PATIENCE)
            return found
        except Exception as error:
            self._check_client(error)
            raise ConnectionError(f"the Dask scheduler does not answer ({type(error).__name__}: {error})") from error

    def _some_workers(self) -> dict[str, int]:
        """The workers, as soon as there is one."""
        while not (found := self._alive()):
            time.sleep(_TICK)
        return found

    def _alive(self) -> dict[str, int]:
        """The workers; raise ConnectionError if there has been none for a while."""
        self._check_client(None)
        found = self.workers() if self._client.status == "running" else {}
        now = time.monotonic()
        self._lonely = None if found else self._lonely or now
        if self._lonely is not None and now - self._lonely > _PATIENCE:
            missing = "no workers" if self._client.status == "running" else "no connection to the Dask scheduler"
            raise ConnectionError(
                f"the Dask cluster has had {missing} for {_PATIENCE:g} s: start some, and call again (with checkpoint= "
                "a solve goes on where it was)"
            )
        return found

    def _check_client(self, cause: Exception | None) -> None:
        if self._client.status in ("closed", "closing"):
            raise ConnectionError(
                "the Dask client was closed during the solve: open another, and call again"
            ) from cause

    def _round(self, function: Function, message: Any, placed: Placed, shards: Sequence[Shard]) -> list[Any]:
        """The answers of all shards; late ones are also computed by idle workers."""
        calls = [self._start(self._answers(function, message, placed, shard)) for shard in shards]
        again: dict[int, Future[Any]] = {}
        began, late, count = time.monotonic(), float("inf"), len(calls)
        checked = began
        try:
            while missing := [i for i, call in enumerate(calls) if not (call.done() or _finished(again.get(i)))]:
                if not wait([calls[i] for i in missing], timeout=_TICK).not_done:
                    continue
                now = time.monotonic()
                if now - checked > 10 * _TICK:
                    self._alive()
                    checked = now
                if len(missing) < count:
                    late, count = max(_LATE * (now - began), _LEAST_LATE), len(missing)
                if now - began > late and not again:
                    busy = {shards[i].worker for i in missing}
                    idle = [w for w, tasks in self._client.processing().items() if not (tasks or w in busy)]
                    if idle:
                        again = {
                            i: self._start(self._elsewhere(function, message, placed, shards[i], idle)) for i in missing
                        }
            return [call.result() if call.done() else again[i].result() for i, call in enumerate(calls)]
        finally:
            for call in (*calls, *again.values()):
                call.cancel()

    def _start(self, answers: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run a coroutine in the client's event loop."""
        return asyncio.run_coroutine_threadsafe(answers, self._client.loop.asyncio_loop)

    async def _answers(self, function: Function, message: Any, placed: Placed, shard: Shard) -> Any:
        """The answers of a shard: from the worker that has its partitions, or by a task wherever they are."""
        futures = [placed.futures[i] for i in shard.indices]
        if shard.worker is not None:
            found = await self._client.run(
                _at_home, function, message, shard.indices, [f.key for f in futures],
                workers=[shard.worker], on_error="return",
            )  # fmt: skip
            if isinstance(answers := found.get(shard.worker), list):
                return answers
        task = self._client.submit(
            _all, function, message, shard.indices, *futures,
            pure=False, workers=None if shard.worker is None else [shard.worker],
            allow_other_workers=shard.worker is not None,
        )  # fmt: skip
        return await self._client.gather(task)

    async def _elsewhere(self, function: Function, message: Any, placed: Placed, shard: Shard, idle: list[str]) -> Any:
        lineages = [_Lineage(placed.lazy[i]) for i in shard.indices]
        task = self._client.submit(
            _all, function, message, shard.indices, *lineages, pure=False, workers=idle, allow_other_workers=True
        )
        return await self._client.gather(task)


class _Lineage:
    """A lazy partition that is opaque to Dask, as a graph it would wait for the late one; it computes alone."""

    def __init__(self, part: Any) -> None:
        self.part = part

    def __call__(self) -> Columns:
        columns: Columns = self.part.compute(scheduler="synchronous")
        return columns


def _made_soon(futures: Sequence[Any]) -> None:
    """Wait for partitions, unless making them takes longer than one task for each."""
    from distributed import wait as made

    with suppress(TimeoutError):
        made(futures, timeout=_SOON)


def _all(function: Function, message: Any, indices: Sequence[int], *partitions: Any) -> list[tuple[int, Any]]:
    return [function(message, i, partition) for i, partition in zip(indices, partitions, strict=True)]


async def _at_home(
    function: Function, message: Any, indices: Sequence[int], keys: Sequence[Any], dask_worker: Any
) -> list[tuple[int, Any]] | None:
    """What a worker answers for partitions that it has, in a thread beside its event loop; None if it cannot, so that
    the call is repeated as a task, which has the means to repair or to tell."""
    try:
        partitions = [dask_worker.data[key] for key in keys]
        loop, threads = asyncio.get_running_loop(), dask_worker.executors["default"]
        return await loop.run_in_executor(threads, _all, function, message, indices, *partitions)
    except Exception:
        return None


def _finished(call: Future[Any] | None) -> bool:
    # The second call fails if a lineage leads to data that only the cluster has; then keep waiting for the first.
    return call is not None and call.done() and not call.cancelled() and call.exception() is None


def dask_partitions(data: Any) -> Sequence[Any]:
    """Lazy partitions of Dask arrays and data frames; anything else is cut as for any cluster."""
    import dask

    items = list(data.values()) if isinstance(data, dict) else data
    items = list(items) if isinstance(items, (tuple, list)) else [items]
    if all(hasattr(item, "to_delayed") and hasattr(item, "chunks") for item in items):
        return _array_partitions(items)
    if len(items) == 1 and hasattr(items[0], "to_delayed"):
        names = [str(c) for c in items[0].columns]
        parts = items[0].to_delayed()
        return [dask.delayed(_frame_columns)(names, *parts[a:b]) for a, b in _even(len(parts))]
    return partitions_of(data)


def _array_partitions(arrays: Sequence[Any]) -> list[Any]:
    import dask

    chunks = arrays[0].chunks[0]
    known = not any(math.isnan(size) for size in chunks)
    if known:
        lengths = [a.shape[0] for a in arrays]
        if len(set(lengths)) > 1:
            raise ValueError(f"data: all arrays must have the same number of rows, got {lengths}")
        arrays = [a.rechunk({0: chunks, **dict.fromkeys(range(1, a.ndim), -1)}) for a in arrays]
    blocks = [a.to_delayed().ravel() for a in arrays]
    if len({len(b) for b in blocks}) > 1:
        raise ValueError("data: Dask arrays of unknown chunk sizes must have the same number of chunks")
    each = sum(a.dtype.itemsize * math.prod(a.shape[1:]) for a in arrays)
    groups = neighbours([int(size) * each for size in chunks]) if known else _even(len(chunks))
    make = dask.delayed(_block_columns)
    return [make(b - a, *(block for column in blocks for block in column[a:b])) for a, b in groups]


def _even(count: int) -> list[tuple[int, int]]:
    """Ranges of partitions of unknown sizes."""
    size = -(-count // _UNKNOWN_SIZES)
    return [(lo, min(lo + size, count)) for lo in range(0, count, size)]


def _block_columns(count: int, *blocks: Any) -> Columns:
    """Columns of ``count`` neighbouring blocks of each array, the blocks of the first array first."""
    arrays = [blocks[i : i + count] for i in range(0, len(blocks), count)]
    return concatenated([loaded(part) for part in zip(*arrays, strict=True)])


def _frame_columns(names: Sequence[str], *frames: Any) -> Columns:
    return concatenated([tuple(frame[name].to_numpy() for name in names) for frame in frames])
