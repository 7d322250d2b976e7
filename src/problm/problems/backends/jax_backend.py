"""Residual functions written with ``jax.numpy``: exact derivatives, compiled once, in double precision.

``fun(theta, *rows)`` may be written for a batch of rows, as with NumPy, or for a single row; its shapes tell which.
Double precision is switched on only around the calls: the user's JAX settings do not change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ...losses import Loss
from ...solver.problem import Theta
from ..row_wise import Evaluate
from ..rows import Columns
from .calling import Shape, error_text, way_of_calling
from .device import Array, Prepared, by_row, cost_and_weight

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise ImportError("JAX is needed for this residual function: pip install 'problm[jax]'") from error


def prepare(
    fun: Callable[..., Any],
    points: Sequence[Theta],
    columns: Columns,
    dim: int,
    loss: Loss,
    move: Callable[[Any, Any], Any] | None = None,
) -> Prepared:
    """Prepare a function for JAX by trying it at ``points`` (the start last) on rows of ``columns``."""

    compiled = _compiled(fun)

    def evaluate(theta: Theta, rows: Columns) -> Sequence[NDArray[Any]]:
        with double():
            return [np.asarray(compiled(np.asarray(theta, dtype=np.float64), *rows))]

    way, components = way_of_calling(shapes(fun, columns, points[-1]), evaluate, points, columns)
    passes = _passes(fun, way, len(columns), dim, components, loss, move)

    def for_all_rows() -> JaxPasses:
        return _passes(fun, "whole" if way == "batch" else way, len(columns), dim, components, loss, move)

    def moved(theta: Theta, delta: Array) -> Theta:
        assert move is not None
        with double():
            return np.asarray(move(jnp.asarray(theta), jnp.asarray(delta)), dtype=np.float64)

    together = _mapped(passes) if way == "single" else evaluate
    return Prepared(passes, for_all_rows, components, way == "whole", together, None if move is None else moved)


def _mapped(passes: JaxPasses) -> Evaluate:
    def evaluate(theta: Theta, rows: Columns) -> list[NDArray[Any]]:
        return [passes.fetch(passes.residuals(np.asarray(theta, dtype=np.float64), rows))]

    return evaluate


def double() -> Any:
    """Context with double precision in this thread."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64

    return enable_x64()


@lru_cache(maxsize=16)
def _compiled(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled for any rows; kept for the next solve."""
    compiled: Callable[..., Any] = jax.jit(fun)
    return compiled


@lru_cache(maxsize=16)
def _passes(
    fun: Callable[..., Any],
    way: str,
    columns: int,
    dim: int,
    components: int,
    loss: Loss,
    move: Callable[[Theta, Array], Theta] | None,
) -> JaxPasses:
    """The passes, kept for the next solve with the same function: compiling takes longer than most fits."""
    batch = jax.vmap(fun, in_axes=(None, *[0] * columns)) if way == "single" else fun
    whole = way == "whole"
    return JaxPasses(batch, dim, components, loss, move, not whole and by_row(dim, components), whole)


def _block(n: int, width: int) -> int:
    """Number of rows of a block: a power of two that divides n, or n itself if there is no such divisor."""
    size = math.gcd(n, max(_LEAST_BLOCK, _BLOCK // (1 << (width // 64).bit_length())))
    return size if size >= _LEAST_BLOCK else n


_BLOCK = 2048
"""Rows per block: of 512 to 8192 the fastest for 4 parameters, or at most 4 % slower, with 10^4 and 10^5 rows."""
_LEAST_BLOCK = 256
_known: WeakKeyDictionary[Callable[..., Any], dict[Any, Shape]] = WeakKeyDictionary()


def shapes(fun: Callable[..., Any], columns: Columns, start: Theta) -> Callable[[bool, int], Shape]:
    """Shapes of the function's results for k rows, mapped over them or not; kept for the next solve (5 ms)."""
    of_data = (np.shape(start), *((c.shape[1:], c.dtype.str) for c in columns))
    try:
        known = _known.setdefault(fun, {})
    except TypeError:  # cannot be hashed or weakly referenced
        known = {}

    def shape(mapped: bool, k: int) -> Shape:
        key = (mapped, k, of_data)
        if key not in known:
            known[key] = _shape(jax.vmap(fun, in_axes=(None, *[0] * len(columns))) if mapped else fun, k, *of_data)
        return known[key]

    return shape


def _shape(fun: Callable[..., Any], k: int, start: tuple[int, ...], *columns: tuple[tuple[int, ...], str]) -> Shape:
    with double():
        theta = jax.ShapeDtypeStruct(start, np.float64)
        rows = [jax.ShapeDtypeStruct((k, *shape), np.dtype(kind)) for shape, kind in columns]
        try:
            found = jax.eval_shape(fun, theta, *rows)
        except Exception as error:
            return error_text(error)
    size = getattr(found, "shape", None)
    return f"{type(found).__name__}" if size is None else tuple(size)


class JaxPasses:
    """The passes over a chunk, each a program that is compiled at its first call.

    The sums are taken block by block within the program: derivatives of all rows are never in memory at once, and those
    of a block stay in the cache. With ``by_row``, residuals of a row are differentiated in reverse mode, all rows side
    by side. A function that JAX cannot differentiate so, such as one with a loop of unknown length, gets forward mode.
    ``whole``: the function is only called for all rows at once.
    """

    in_blocks = True

    def __init__(
        self,
        batch: Callable[..., Any],
        dim: int,
        components: int,
        loss: Loss,
        move: Callable[[Theta, Array], Theta] | None,
        by_row: bool,
        whole: bool,
    ) -> None:
        def block_residuals(theta: Any, rows: Any) -> Any:
            r = batch(theta, *rows)
            return r.reshape(-1, components).astype(jnp.float64)

        def costs_of(r: Any, count: Any) -> Any:
            cost, weight = cost_and_weight(loss, (r * r).sum(axis=1), jnp)
            valid = jnp.arange(len(cost)) < count
            return jnp.where(valid, cost, 0.0), jnp.where(valid, weight, 0.0)

        def tangent(theta: Any, rows: Any) -> tuple[Callable[[Any], Any], Any]:
            """Residuals as a function of a vector, and the vector of this point."""
            if move is None:
                return lambda t: block_residuals(t, rows), theta
            return lambda delta: block_residuals(move(theta, delta), rows), jnp.zeros(dim)

        def forward(theta: Any, rows: Any) -> Any:
            r, push = jax.linearize(*tangent(theta, rows))
            return r, jax.vmap(push)(jnp.eye(dim))

        def reverse(theta: Any, rows: Any) -> Any:
            def of_row(row: Any) -> Any:
                r, pull = jax.vjp(*tangent(theta, [c[None] for c in row]))
                return r[0], jax.vmap(pull)(jnp.eye(components)[:, None])[0]

            r, jacobian = jax.vmap(of_row)(rows)
            return r, jnp.moveaxis(jacobian, -1, 0)

        def derivatives(theta: Any, rows: Any) -> Any:
            """Residuals (rows, p) and Jacobian (d, rows, p)."""
            if by_row:
                try:
                    return reverse(theta, rows)
                except Exception:  # raised while JAX traces, before anything is computed
                    return forward(theta, rows)
            return forward(theta, rows)

        def sums_of(theta: Any, count: Any, rows: Any, outer: bool) -> Any:
            # Without the barrier XLA would evaluate the residuals again for every column of the product (2.3 ms instead
            # of 0.9 for a damped sine of 10,000 rows).
            r, jacobian = jax.lax.optimization_barrier(derivatives(theta, rows))
            cost, weight = costs_of(r, count)
            # One product of all columns gives hessian and gradient, in a third of the time of separate products.
            # Padding rows are copies of a valid one, so their derivatives are finite; their weight is zero.
            columns = jnp.concatenate([jacobian, r[None]])
            weighted = columns * weight[:, None]
            products = weighted.reshape(dim + 1, -1) @ columns.reshape(dim + 1, -1).T
            sums = [cost.sum()[None], products.reshape(-1)]
            if outer:
                each = (weighted[:dim] * r).sum(axis=2)
                sums.append((each @ each.T).reshape(-1))
            return jnp.concatenate(sums), cost

        def linearize(theta: Any, count: Any, rows: Any, outer: bool) -> Any:
            n = len(rows[0])
            size = n if whole else _block(n, (dim + 1) * components)
            if size == n:
                return sums_of(theta, count, rows, outer)

            def with_block(k: Any, found: Any) -> Any:
                at = k * size
                of_block = [jax.lax.dynamic_slice_in_dim(c, at, size) for c in rows]
                sums, cost = sums_of(theta, count - at, of_block, outer)
                return found[0] + sums, jax.lax.dynamic_update_slice(found[1], cost, (at,))

            start = jnp.zeros(1 + (dim + 1) ** 2 + (dim * dim if outer else 0)), jnp.zeros(n)
            return jax.lax.fori_loop(0, (count + size - 1) // size, with_block, start)

        def costs(theta: Any, count: Any, rows: Any) -> Any:
            cost, _ = costs_of(block_residuals(theta, rows), count)
            return cost.sum(), cost

        self._linearize = jax.jit(linearize, static_argnums=3)
        self._costs = jax.jit(costs)
        self._residuals = jax.jit(block_residuals)

    def linearize(self, theta: Any, count: int, rows: Columns, outer: bool) -> Any:
        with double():
            return self._linearize(theta, count, rows, outer)

    def put(self, rows: Columns) -> Columns:
        with double():
            return tuple(jax.device_put(c) for c in rows)

    def room(self, n: int) -> int:
        step = 1 << max(n.bit_length() - 4, 3)
        return -(-n // step) * step

    def costs(self, theta: Any, count: int, rows: Columns) -> Any:
        with double():
            return self._costs(theta, count, rows)

    def residuals(self, theta: Any, rows: Columns) -> Any:
        with double():
            return self._residuals(theta, rows)

    def fetch(self, value: Any) -> Any:
        return np.asarray(value)

    def compiled(self) -> int:
        """Number of programs compiled so far that contain the function."""
        return sum(int(f._cache_size()) for f in (self._linearize, self._costs, self._residuals))
