"""Make a problem of data in files or on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data.columns import Source, row_bytes
from ..data.partitions import Partitions
from ..data.sources import open_source
from ..problems.out_of_core import ChunkedProblem
from ..problems.rows import Columns, RowModel
from ..sampling.chunk_order import ChunkOrder
from ..solver.problem import Problem, Theta
from ..support.memory import as_bytes
from .settings import NOT_ROW_WISE, NotRowWise, Settings

_FEW = 64
"""Rows that are read first, to learn shapes and whether the function is row-wise."""
_SMALL = 1 << 26
"""Largest size, in bytes, of a file that is read into memory: it takes the time of a few iterations, and rows can then
be drawn one by one."""


def stored_problem(
    model: RowModel, points: Sequence[Theta], data: Any, settings: Settings
) -> tuple[RowModel, Problem, Columns]:
    """Return the model with shapes from its first rows, the problem over rows not in memory, and sample rows."""
    if settings.client is not None or isinstance(data, Partitions):
        from ..distributed.problem import distributed_problem

        tried: list[Columns] = []

        def model_of(few: Columns) -> RowModel:
            tried.append(few)
            return _apart(model, points, few)

        problem = distributed_problem(model_of, data, settings.client, settings.rng)
        return problem.model, problem, tried[0]
    source = open_source(data)
    size, most = source.n * row_bytes(source), as_bytes(settings.max_memory) // 2
    if size <= min(_SMALL, most):
        columns = source.read(0, source.n)
        model = model.prepared(points, columns, together=False)
        return model, model.problem(columns, settings.rng), columns
    few = source.read(0, min(_FEW, source.n))
    try:
        chunked = ChunkedProblem(_apart(model, points, few), source, rng=settings.rng, max_memory=settings.max_memory)
    except NotRowWise:
        if size > most:
            raise
        columns = source.read(0, source.n)
        model = model.prepared(points, columns, together=True)
        return model, model.problem(columns, settings.rng), columns
    return chunked.model, chunked, few


def _apart(model: RowModel, points: Sequence[Theta], few: Columns) -> RowModel:
    prepared = model.prepared(points, few, together=False)
    if prepared.whole:
        raise NotRowWise(NOT_ROW_WISE)
    return prepared


def sample(source: Source, rows: int, rng: np.random.Generator | int | None = 0) -> Columns:
    """About ``rows`` rows from all over a source, for a first look."""
    if rows >= source.n:
        return source.read(0, source.n)
    order = ChunkOrder(source.ends, source.fine, 64 if source.fine else 8, rng)
    (segment,) = order.between(0, rows)
    parts: list[Columns] = []
    for i in np.argsort(segment.begin):
        begin, size = int(segment.begin[i]), int(segment.size[i])
        chunk = source.read(begin, begin + size)
        parts.append(tuple(c[segment.rows_of(int(i))] for c in chunk))
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))
