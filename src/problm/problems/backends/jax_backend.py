"""Residual functions written with ``jax.numpy``: forward-mode derivatives, compiled once, in double precision.

``fun(theta, *rows)`` may be written for a batch of rows, as with NumPy, or for a single row; which one is found out by
its shapes. Double precision is switched on around the calls only: nothing of the user's JAX is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ...losses import Loss
from ...solver.problem import Theta
from ..rows import Columns
from .device import Array, DeviceRows, cost_and_weight

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise ImportError("JAX is needed for this residual function: pip install 'problm[jax]'") from error


def jax_rows(
    fun: Callable[..., Any],
    few: Columns,
    start: Theta,
    dim: int,
    loss: Loss,
    move: Callable[[Theta, Array], Theta] | None = None,
) -> DeviceRows:
    """The model of a JAX function, of which ``few`` are the first rows of data."""
    single, components = _known_kind(fun, few, start)
    passes = _passes(fun, single, len(few), dim, components, loss, move)

    def moved(theta: Theta, delta: Array) -> Theta:
        assert move is not None
        with _double():
            return np.asarray(move(jnp.asarray(theta), jnp.asarray(delta)), dtype=np.float64)

    recipe = (jax_rows, fun, few, start, dim, loss, move)
    return DeviceRows(passes, dim, components, loss, None if move is None else moved, recipe)


def _double() -> Any:
    """Double precision, in this thread and until left."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64

    return enable_x64()


@lru_cache(maxsize=16)
def _passes(
    fun: Callable[..., Any],
    single: bool,
    columns: int,
    dim: int,
    components: int,
    loss: Loss,
    move: Callable[[Theta, Array], Theta] | None,
) -> JaxPasses:
    """Kept for the next solve with the same function: compiling takes longer than most fits."""
    batch = jax.vmap(fun, in_axes=(None, *[0] * columns)) if single else fun
    return JaxPasses(batch, dim, components, loss, move)


_kinds: WeakKeyDictionary[Callable[..., Any], dict[Any, tuple[bool, int]]] = WeakKeyDictionary()


def _known_kind(fun: Callable[..., Any], few: Columns, start: Theta) -> tuple[bool, int]:
    """`_kind`, kept for the next solve with the same function and shapes: finding out takes 5 ms."""
    shapes = (np.shape(start), *((c.shape[1:], c.dtype.str) for c in few))
    try:
        known = _kinds.setdefault(fun, {})
    except TypeError:  # neither hashed nor referred to
        return _kind(fun, few, start)
    if shapes not in known:
        known[shapes] = _kind(fun, few, start)
    return known[shapes]


def _kind(fun: Callable[..., Any], few: Columns, start: Theta) -> tuple[bool, int]:
    """Whether the function is written for a single row (else for a batch), and the residuals in a block."""
    k = 7  # a number of rows that no shape of the data has by chance
    with _double():
        theta = jax.ShapeDtypeStruct(np.shape(start), np.float64)
        rows = [jax.ShapeDtypeStruct((k, *c.shape[1:]), c.dtype) for c in few]
        told = []
        for candidate in (fun, jax.vmap(fun, in_axes=(None, *[0] * len(few)))):
            try:
                shape = jax.eval_shape(candidate, theta, *rows)
            except Exception as error:
                told.append(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
                continue
            size = getattr(shape, "shape", None)
            if size is not None and len(size) in (1, 2) and size[0] == k:
                if candidate is fun and not _independent(fun, few, start):
                    told.append("rows influence each other")
                    continue
                return candidate is not fun, 1 if len(size) == 1 else int(size[1])
            told.append(f"shape {size}")
    raise ValueError(
        f"fun must return residuals of shape (k,) or (k, p) for k rows, or () or (p,) for one row; for a batch it gave "
        f"{told[0]}, mapped over single rows {told[1]}"
    )


def _independent(fun: Callable[..., Any], few: Columns, start: Theta) -> bool:
    """Whether a residual of a batch is that of its row alone: else the function was meant for a single row."""
    theta = jnp.asarray(start, dtype=np.float64)
    whole = np.asarray(fun(theta, *few))
    first = np.asarray(fun(theta, *(c[:1] for c in few)))
    return np.shape(first)[1:] == np.shape(whole)[1:] and np.allclose(whole[:1], first, rtol=1e-6, equal_nan=True)


class JaxPasses:
    """The passes over a chunk, compiled at their first call."""

    def __init__(
        self,
        batch: Callable[..., Any],
        dim: int,
        components: int,
        loss: Loss,
        move: Callable[[Theta, Array], Theta] | None,
    ) -> None:
        def block_residuals(theta: Any, rows: Any) -> Any:
            r = batch(theta, *rows)
            return r.reshape(-1, components).astype(jnp.float64)

        def costs_of(r: Any, count: Any) -> Any:
            cost, weight = cost_and_weight(loss, (r * r).sum(axis=1), jnp)
            valid = jnp.arange(len(cost)) < count
            return jnp.where(valid, cost, 0.0), jnp.where(valid, weight, 0.0)

        def linearize(theta: Any, count: Any, rows: Any, outer: bool) -> Any:
            if move is None:
                r, push = jax.linearize(lambda t: block_residuals(t, rows), theta)
            else:
                zero = jnp.zeros(dim)
                r, push = jax.linearize(lambda delta: block_residuals(move(theta, delta), rows), zero)
            jacobian = jax.vmap(push)(jnp.eye(dim))  # (d, rows, p)
            cost, weight = costs_of(r, count)
            # One product of all columns gives hessian and gradient: a third of the time of products of their own.
            # A row that fills up is a copy of a valid one, so its derivatives are finite and its weight is zero.
            columns = jnp.concatenate([jacobian, r[None]])
            weighted = columns * weight[:, None]
            products = weighted.reshape(dim + 1, -1) @ columns.reshape(dim + 1, -1).T
            hessian = products[:dim, :dim]
            total = None
            if outer:  # a third of all the work
                each = (weighted[:dim] * r).sum(axis=2)
                total = each @ each.T
            return cost.sum(), products[:dim, dim], 0.5 * (hessian + hessian.T), total, cost

        def costs(theta: Any, count: Any, rows: Any) -> Any:
            cost, _ = costs_of(block_residuals(theta, rows), count)
            return cost.sum(), cost

        self._linearize = jax.jit(linearize, static_argnums=3)
        self._costs = jax.jit(costs)
        self._residuals = jax.jit(block_residuals)

    def linearize(self, theta: Any, count: int, rows: Columns, outer: bool) -> Any:
        with _double():
            return self._linearize(theta, count, rows, outer)

    def costs(self, theta: Any, count: int, rows: Columns) -> Any:
        with _double():
            return self._costs(theta, count, rows)

    def residuals(self, theta: Any, rows: Columns) -> Any:
        with _double():
            return self._residuals(theta, rows)

    def fetch(self, value: Any) -> Any:
        return np.asarray(value)

    def compiled(self) -> int:
        """How many programs were compiled so far."""
        return sum(int(f._cache_size()) for f in (self._linearize, self._costs, self._residuals))
