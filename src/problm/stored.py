"""Which problem to make of data that lies in files or on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .chunked import ChunkedProblem
from .memory import as_bytes
from .problem import Problem
from .rows import Columns, Rows
from .sources import open_source, row_bytes

_FEW = 8
_SMALL = 1 << 26
"""Bytes up to which a file is simply read: in the time of a few iterations, and rows can be drawn one by one."""


def stored_problem(
    model_of: Callable[[Columns], Rows],
    data: Any,
    client: Any = None,
    max_memory: int | float | str | None = None,
    rng: np.random.Generator | int | None = 0,
) -> Problem:
    """The problem over rows that are not in memory.

    ``model_of`` makes the model from the first few rows, which tell it the shapes.
    """
    if client is not None:
        from .distributed import distributed_problem

        return distributed_problem(model_of, data, client, rng)
    source = open_source(data)
    size = source.n * row_bytes(source)
    if size <= min(_SMALL, as_bytes(max_memory) // 2):
        columns = source.read(0, source.n)
        return model_of(tuple(c[:_FEW] for c in columns)).problem(columns, rng)
    few = source.read(0, min(_FEW, source.n))
    return ChunkedProblem(model_of(few), source, rng=rng, max_memory=max_memory)
