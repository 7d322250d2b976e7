"""JAX functions that can do without JAX: read once, compared with the function itself, kept for the next solve."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ...losses import Loss
from ...solver.problem import Theta
from ..row_wise import ROWS, agree
from ..rows import Columns, CompiledModel, RowModel
from .calling import is_for_single_rows
from .jax_backend import double, shapes

_KEPT = 16
_kept: OrderedDict[Any, Any] = OrderedDict()
"""Compiled models of the last functions; None for those that only JAX can run."""


def recorded(
    read: Callable[..., Any],
    threads: int | None,
    fun: Callable[..., Any],
    points: Sequence[Theta],
    columns: Columns,
    dim: int,
    loss: Loss,
) -> RowModel | None:
    """A row model that runs the function in compiled kernels; None on another device, and if it cannot be read.

    ``read(fun, dim, columns, jax)`` returns the compiled model, or raises. As with ``jax.jit``, a function is read once
    for each shape of the data.
    """
    if _platform() != "cpu":
        return None
    of_data = tuple([(c.shape, c.dtype.str) for c in columns])
    key = fun, dim, of_data
    if key not in _kept:
        _kept[key] = _model(read, fun, points, columns, dim, loss)
        if len(_kept) > _KEPT:
            _kept.popitem(last=False)
    _kept.move_to_end(key)
    model = _kept[key]
    return None if model is None else CompiledModel(model, dim, loss, threads).prepared(points, columns, together=False)


def _platform() -> str:
    """Where JAX would run the function."""
    device = jax.config.jax_default_device
    return str(getattr(device, "platform", device) or jax.default_backend())


def _model(
    read: Callable[..., Any], fun: Callable[..., Any], points: Sequence[Theta], columns: Columns, dim: int, loss: Loss
) -> Any | None:
    mapped = jax.vmap(fun, in_axes=(None, *[0] * len(columns)))
    with double():
        for function in (fun, mapped):
            if function is mapped and not is_for_single_rows(shapes(fun, columns, points[-1]), columns):
                return None
            try:
                model = read(function, dim, columns, jax)
            except Exception:  # noqa: S112  JAX runs it, and raises if it is wrong
                continue
            return model if _same(model, function, points, columns, dim, loss) else None
    return None


def _same(model: Any, fun: Any, points: Sequence[Theta], columns: Columns, dim: int, loss: Loss) -> bool:
    """Whether the compiled model has the function's values in some rows, and its derivatives if it has its own."""
    rows = tuple(c[:: max(1, len(c) // ROWS)][:ROWS] for c in columns)
    compiled = CompiledModel(model, dim, loss).prepared(points, rows, together=False)
    problem = compiled.problem(rows)
    functions = [(jax.jit(fun), problem.residuals)]
    if model.own_derivatives:
        functions.append((jax.jit(jax.jacfwd(fun)), problem.jacobian))
    for theta in points:
        for original, of_model in functions:
            found = np.asarray(of_model(theta))
            expected = np.asarray(original(np.asarray(theta, dtype=np.float64), *rows))
            if not agree([found], [expected.reshape(found.shape)]):
                return False
    return True
