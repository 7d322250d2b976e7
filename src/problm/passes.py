"""Compiled passes over a chunk of rows: the same for every model.

They load columns, call the model's fill (`problm.fills`), apply the loss (`problm.block_costs`) and accumulate

    cost, g = sum w J^T r, H = sum w J^T J and, for a batch, sum (w J^T r)(w J^T r)^T

by products of rows of the block (`problm.gram`), which stays in the L1 cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from .block_costs import block_costs
from .columns import load_rows
from .fills import BLOCK, FASTMATH, call_fill, caller
from .gram import add_products
from .jit import njit

_f8, _i8 = types.float64, types.int64


@njit(
    types.void(_f8[:, ::1], _i8, _i8, _i8, _i8, _i8, _f8[::1]),
    nogil=True,
    error_model="numpy",
    fastmath=FASTMATH,
)
def add_row_products(a, first, d, m, right, at, sums):  # type: ignore[no-untyped-def]
    """Add the lower triangle of ``A B^T`` to ``sums[at:]``, A and B being d rows of ``a`` from first and right."""
    whole = m // 4
    if whole > 0:
        # Cast: NumPy's addresses are unsigned, and Numba makes a float of unsigned and signed together.
        start, row = np.int64(a.ctypes.data), 8 * BLOCK
        add_products(start + row * first, start + row * right, d, whole, np.int64(sums.ctypes.data) + 8 * at)
    for i in range(4 * whole, m):
        j = at
        for x in range(d):
            for y in range(x + 1):
                sums[j] += a[first + x, i] * a[right + y, i]
                j += 1


_CHUNK_ARGS = (_i8, _f8[::1], _i8[:, ::1], _i8, _i8, _i8[::1], _f8[::1], _i8, _i8, _i8, _i8, _f8)


LINEARIZE = types.void(*_CHUNK_ARGS, _i8, _f8[::1], _f8[::1])


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def call_linearize(
    typing: Any, at: Any, fill: Any, theta: Any, columns: Any, lo: Any, hi: Any, program: Any, constants: Any, d: Any,
    p: Any, code: Any, user: Any, scale: Any, outer: Any, costs: Any, sums: Any,
) -> Any:  # fmt: skip
    return LINEARIZE.return_type(_i8, *LINEARIZE.args), caller(LINEARIZE)


@njit(
    LINEARIZE,
    nogil=True,
    error_model="numpy",
    fastmath=FASTMATH,
)
def linearize_chunk(  # type: ignore[no-untyped-def]
    fill, theta, columns, lo, hi, program, constants, d, p, code, user, scale, outer, costs, sums
):
    """Add cost, gradient, lower triangles of H and of the outer products of rows [lo, hi) to ``sums``."""
    rows = np.empty((columns.shape[0], BLOCK))
    # Behind the fill's own rows: residual and Jacobian of one component, weighted (1 + d), the blocks' gradients (d)
    # and, for several components, a copy of the residuals (p).
    out = np.empty((p * (1 + d) + 1 + 2 * d + p, BLOCK))
    scaled, grad, kept = p * (1 + d), (p + 1) * (1 + d), (p + 1) * (1 + d) + d
    cost = np.empty(BLOCK)
    weight = np.empty(BLOCK)
    triangle = d * (d + 1) // 2
    # The products of [r, J] with itself: the gradient in its first column, behind it H.
    products = np.zeros((d + 1) * (d + 2) // 2)
    pos = lo
    while pos < hi:
        m = min(BLOCK, hi - pos)
        load_rows(columns, pos, m, rows)
        call_fill(fill, theta, rows, m, program, constants, 1, out)
        sums[0] += block_costs(out, m, p, code, user, scale, cost, weight)
        if costs.shape[0] > 0:
            for i in range(m):
                costs[pos - lo + i] = cost[i]
        if p > 1:
            for c in range(p):
                for i in range(m):
                    out[kept + c, i] = out[c, i]
        for c in range(p):
            # A component's residual goes before its derivatives, where nothing is needed any more.
            first = p + c * d - 1
            if p > 1:
                for i in range(m):
                    out[first, i] = out[kept + c, i]
            left = first
            if code != 0:
                left = scaled
                for a in range(d + 1):
                    for i in range(m):
                        out[scaled + a, i] = weight[i] * out[first + a, i]
            add_row_products(out, left, d + 1, m, first, 0, products)
            if outer:
                for a in range(d):
                    if c == 0:
                        for i in range(m):
                            out[grad + a, i] = out[left + 1 + a, i] * out[first, i]
                    else:
                        for i in range(m):
                            out[grad + a, i] += out[left + 1 + a, i] * out[first, i]
        if outer:
            add_row_products(out, grad, d, m, grad, 1 + d + triangle, sums)
        pos += m
    at = 1
    for a in range(d):
        sums[1 + a] += products[at]
        for b in range(a + 1):
            sums[1 + d + a * (a + 1) // 2 + b] += products[at + 1 + b]
        at += a + 2


@njit(
    _f8(*_CHUNK_ARGS, _f8[::1]),
    nogil=True,
    error_model="numpy",
    fastmath=FASTMATH,
)
def costs_chunk(  # type: ignore[no-untyped-def]
    fill, theta, columns, lo, hi, program, constants, d, p, code, user, scale, costs
):
    """The sum of the costs of rows [lo, hi); each of them is written to ``costs`` if that has room."""
    rows = np.empty((columns.shape[0], BLOCK))
    out = np.empty((p * (1 + d), BLOCK))
    cost = np.empty(BLOCK)
    weight = np.empty(BLOCK)
    total = 0.0
    pos = lo
    while pos < hi:
        m = min(BLOCK, hi - pos)
        load_rows(columns, pos, m, rows)
        call_fill(fill, theta, rows, m, program, constants, 0, out)
        total += block_costs(out, m, p, code, user, scale, cost, weight)
        if costs.shape[0] > 0:
            for i in range(m):
                costs[pos - lo + i] = cost[i]
        pos += m
    return total


@njit(types.void(*_CHUNK_ARGS[:9], _i8, _f8[:, ::1]), nogil=True, error_model="numpy")
def rows_chunk(fill, theta, columns, lo, hi, program, constants, d, p, jacobian, values):  # type: ignore[no-untyped-def]
    """Write what the fill computes for rows [lo, hi) to ``values``: (hi - lo, p), or with derivatives p (1 + d)."""
    rows = np.empty((columns.shape[0], BLOCK))
    out = np.empty((p * (1 + d), BLOCK))
    pos = lo
    while pos < hi:
        m = min(BLOCK, hi - pos)
        load_rows(columns, pos, m, rows)
        call_fill(fill, theta, rows, m, program, constants, jacobian, out)
        for i in range(m):
            for c in range(values.shape[1]):
                values[pos - lo + i, c] = out[c, i]
        pos += m
