"""Which problem to make of data that lies in files or on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..data.sources import Source, open_source, row_bytes
from ..problems.out_of_core import ChunkedProblem
from ..problems.rows import Columns, Rows
from ..sampling.chunk_order import ChunkOrder
from ..solver.problem import Problem
from ..solver.result import Result
from ..support.memory import as_bytes
from . import arguments as inputs

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
        from ..distributed.problem import distributed_problem

        return distributed_problem(model_of, data, client, rng)
    source = open_source(data)
    size = source.n * row_bytes(source)
    if size <= min(_SMALL, as_bytes(max_memory) // 2):
        columns = source.read(0, source.n)
        return model_of(tuple(c[:_FEW] for c in columns)).problem(columns, rng)
    few = source.read(0, min(_FEW, source.n))
    return ChunkedProblem(model_of(few), source, rng=rng, max_memory=max_memory)


def fit_stored(
    f: Any, parts: list[Any], p0: Any, weighted: bool, jac: Any, dim: int, options: dict[str, Any]
) -> Result:
    """`problm.curve_fit` over columns x..., y[, sigma] of which some are in files."""
    from .curve_fit import CurveRows, _start
    from .least_squares import least_squares

    if jac is not None and not callable(jac) and hasattr(f, "curve_kernel"):
        raise ValueError("jac: a compiled model has exact derivatives; leave jac out")
    if p0 is None:
        rows = list(sample(open_source(parts), 10_000, options.get("rng", 0)))
        p0 = _start(f, dim, options.get("bounds"), rows)
    start = inputs.parameters("p0", p0)
    data = tuple(parts)
    if hasattr(f, "curve_kernel"):
        return least_squares(CurveRows(f, weighted), start, data=data, **options)
    last = -2 if weighted else -1

    def abscissae(columns: Columns) -> Any:
        x = columns[:last]
        if len(x) > 1:
            return np.stack(x)  # SciPy's (k, N)
        return x[0].T if x[0].ndim == 2 else x[0]

    def residuals(theta: Any, *columns: Any) -> Any:
        r = f(abscissae(columns), *theta) - columns[last]
        return r / columns[-1] if weighted else r

    def derivative(theta: Any, *columns: Any) -> Any:
        j = np.asarray(jac(abscissae(columns), *theta))
        return j / columns[-1][:, None] if weighted else j

    return least_squares(
        residuals, start, data=data, jac=derivative if callable(jac) else (jac or "2-point"), **options
    )


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
