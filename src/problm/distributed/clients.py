"""What users pass as ``client``, as three functions: nothing, pools of `concurrent.futures`, Dask."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from ..data.columns import Columns
from ..data.partitions import Partition
from ..data.sources import open_source
from .map_reduce import Function, MapReduce
from .partitions import Rows


def cluster_of(client: Any) -> MapReduce:
    """The three functions of ``client``; None is this process."""
    if isinstance(client, MapReduce):
        return client
    if client is None:
        return MapReduce(list, partial(_mapped, map))
    if isinstance(client, Executor):
        return MapReduce(list if isinstance(client, ThreadPoolExecutor) else _Files, partial(_mapped, client.map))
    from .dask_cluster import on_dask

    return on_dask(client)


def _mapped(mapping: Callable[..., Any], function: Function, message: Any, placed: Sequence[Any]) -> list[Any]:
    return list(mapping(partial(function, message), range(len(placed)), placed))


class _Files(list[Partition]):
    """Partitions for processes: rows in memory are written to files once, instead of being sent in every round."""

    def __init__(self, partitions: Sequence[Partition]) -> None:
        super().__init__(partitions)
        if any(not callable(part) for part in partitions):
            self._folder = tempfile.mkdtemp(prefix="problm-")
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            self[:] = [part if callable(part) else self._saved(i, part) for i, part in enumerate(partitions)]

    def _saved(self, i: int, columns: Columns) -> Partition:
        paths = [os.path.join(self._folder, f"{i}-{j}.npy") for j in range(len(columns))]
        for path, column in zip(paths, columns, strict=True):
            np.save(path, np.ascontiguousarray(column), allow_pickle=False)
        return Rows(open_source(tuple(paths)), 0, len(columns[0]))
