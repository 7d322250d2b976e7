"""A Dask cluster, and data as its partitions: tuples of columns, lazy until they are on a worker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..data.columns import row_bytes
from ..data.sources import open_source
from ..problems.rows import Columns

_PART_BYTES = 1 << 26


class Cluster:
    """A client, and whether it has to be closed."""

    def __init__(self, client: Any, own: Sequence[Any] = ()) -> None:
        self.client = client
        self._own = tuple(own)

    @classmethod
    def of(cls, client: Any) -> Cluster:
        try:
            from distributed import Client, LocalCluster
        except ImportError as error:
            raise ImportError("Dask is needed for a cluster: pip install 'problm[big]'") from error
        if isinstance(client, Client):
            return cls(client)
        if client in ("local", True):
            local = LocalCluster(threads_per_worker=1, dashboard_address=":0")
            made = Client(local)
            return cls(made, (made, local))
        if isinstance(client, str):
            made = Client(client)
            return cls(made, (made,))
        raise TypeError(
            f"client must be a dask.distributed.Client, the address of a scheduler or 'local', got {client!r}"
        )

    def close(self) -> None:
        for thing in self._own:
            thing.close()
        self._own = ()

    def partitions(self, data: Any) -> tuple[list[Any], list[int] | None]:
        """Lazy partitions, each a tuple of columns, and their lengths if known."""
        import dask

        items = list(data.values()) if hasattr(data, "values") and isinstance(data, dict) else data
        items = list(items) if isinstance(items, (tuple, list)) else [items]
        if all(hasattr(item, "to_delayed") and hasattr(item, "chunks") for item in items):
            return _array_partitions(items)
        if len(items) == 1 and hasattr(items[0], "to_delayed"):
            names = [str(c) for c in items[0].columns]
            return [dask.delayed(_frame_columns)(part, names) for part in items[0].to_delayed()], None
        source = open_source(data)
        workers = max(len(self.client.scheduler_info()["workers"]), 1)
        rows = max(1, min(_PART_BYTES // row_bytes(source), -(-source.n // (4 * workers))))
        cuts = [*range(0, source.n, rows), source.n]
        bounds = list(pairwise(cuts))
        arrays = [a for a in items if isinstance(a, np.ndarray) and not isinstance(a, np.memmap)]
        if arrays:  # in the client's memory: a partition carries only its rows, not the whole arrays
            return [dask.delayed(tuple)(list(source.read(lo, hi))) for lo, hi in bounds], [hi - lo for lo, hi in bounds]
        read = dask.delayed(_read)
        return [read(source, lo, hi) for lo, hi in bounds], [hi - lo for lo, hi in bounds]


def _array_partitions(arrays: Sequence[Any]) -> tuple[list[Any], list[int] | None]:
    import dask

    first = arrays[0]
    if any(math.isnan(size) for size in first.chunks[0]):
        counts = None
    else:
        counts = [int(size) for size in first.chunks[0]]
        lengths = [a.shape[0] for a in arrays]
        if len(set(lengths)) > 1:
            raise ValueError(f"data: all arrays must have the same number of rows, got {lengths}")
        arrays = [a.rechunk({0: first.chunks[0], **dict.fromkeys(range(1, a.ndim), -1)}) for a in arrays]
    blocks = [a.to_delayed().ravel() for a in arrays]
    if len({len(b) for b in blocks}) > 1:
        raise ValueError("data: Dask arrays of unknown chunk sizes must have the same number of chunks")
    return [dask.delayed(_as_columns)(*parts) for parts in zip(*blocks, strict=True)], counts


def _as_columns(*blocks: Any) -> Columns:
    return tuple(np.asarray(b) for b in blocks)


def _frame_columns(frame: Any, names: Sequence[str]) -> Columns:
    return tuple(frame[name].to_numpy() for name in names)


def _read(source: Any, lo: int, hi: int) -> Columns:
    columns: Columns = source.read(lo, hi)
    return columns
