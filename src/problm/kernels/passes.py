"""Compiled passes over a chunk of rows, the same for every model.

They load columns, call the model's evaluator (`problm.kernels.evaluator`), apply the loss (`problm.kernels.losses`) and
accumulate

    cost, g = sum w J^T r, H = sum w J^T J and, for a batch, sum (w J^T r)(w J^T r)^T

by products of rows of the block (`problm.jit.gram`), which fits in the L1 cache.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jit import types
from ..jit.addresses import address_of, caller
from ..jit.gram import PRODUCTS, add_products, call_products
from ..jit.llvm import ir
from ..jit.njit import intrinsic, njit, part
from ..jit.vectors import elementwise, multiply, multiply_add
from .columns import load_rows
from .evaluator import BLOCK, FASTMATH, call_evaluator
from .losses import ROBUST, call_bends, call_robust, plain_costs

_f8, _i8 = types.float64, types.int64
_compiled = {"nogil": True, "error_model": "numpy", "fastmath": FASTMATH}

LOAD = types.void(_i8[:, ::1], _i8, _i8, _f8[:, ::1])


@intrinsic
def call_load(typing: Any, at: Any, columns: Any, lo: Any, m: Any, out: Any) -> Any:
    return LOAD.return_type(_i8, *LOAD.args), caller(LOAD)


@lru_cache(maxsize=2)
def _table(robust: bool) -> tuple[NDArray[np.int64], int]:
    losses = 0
    if robust:
        from .robust import robust_costs

        losses = address_of(robust_costs, ROBUST)
    table = np.array([address_of(load_rows, LOAD), address_of(add_products, PRODUCTS), losses])
    return table, table.ctypes.data


def tools(robust: bool) -> int:
    """Address of the table of functions that the passes call: reading rows, products of rows, costs of a robust loss.

    If these functions were linked into the passes, they would be compiled again with each of them. The robust losses,
    which take a second, would be compiled for solves that do not use any.
    """
    return _table(robust)[1]


@intrinsic
def tool(typing: Any, at: Any, k: Any) -> Any:
    """Item k of the table at the address of `tools`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        base = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.load(builder.gep(base, [args[1]]), align=8)

    return _i8(_i8, _i8), codegen


@part(**_compiled)
def _rest(a, first, d, start, m, right, at, sums):  # type: ignore[no-untyped-def]
    """`add_row_products` for the columns [start, m), one by one."""
    for i in range(start, m):
        j = at
        for x in range(d):
            for y in range(x + 1):
                sums[j] += a[first + x, i] * a[right + y, i]
                j += 1


@part(**_compiled)
def add_row_products(a, first, d, m, right, at, sums):  # type: ignore[no-untyped-def]
    """Add the lower triangle of ``A B^T`` to ``sums[at:]``; A and B are d rows of ``a`` at ``first`` and ``right``."""
    whole = m // 4
    if whole > 0:
        # Cast: NumPy's addresses are unsigned, and Numba converts a mix of unsigned and signed to float.
        start, row = np.int64(a.ctypes.data), 8 * BLOCK
        add_products(start + row * first, start + row * right, d, whole, np.int64(sums.ctypes.data) + 8 * at)
    _rest(a, first, d, 4 * whole, m, right, at, sums)


@part(**_compiled)
def add_row_products_by(add, start, first, d, m, right, a, sums, at):  # type: ignore[no-untyped-def]
    """`add_row_products` by the function at the address ``add``, for rows at the address ``start``."""
    whole = m // 4
    if whole > 0:
        row = 8 * BLOCK
        call_products(add, start + row * first, start + row * right, d, whole, np.int64(sums.ctypes.data) + 8 * at)
    if 4 * whole < m:
        _rest(a, first, d, 4 * whole, m, right, at, sums)


# Operations on whole blocks, whatever the number of rows: nothing reads beyond the valid rows.
_copy = elementwise(1, lambda b, v, _: v[0])
_multiply = elementwise(2, lambda b, v, _: multiply(b, v[0], v[1]))
_multiply_add = elementwise(3, lambda b, v, _: multiply_add(b, v[0], v[1], v[2]))

_CHUNK_ARGS = (_i8, _f8[::1], _i8[:, ::1], _i8, _i8, _i8[::1], _f8[::1], _i8, _i8, _i8, _i8, _f8)


LINEARIZE = types.void(*_CHUNK_ARGS, _i8, _f8[::1], _f8[::1])


@intrinsic
def call_linearize(
    typing: Any, at: Any, evaluator: Any, theta: Any, columns: Any, lo: Any, hi: Any, program: Any, constants: Any,
    d: Any, p: Any, code: Any, tools: Any, scale: Any, outer: Any, costs: Any, sums: Any,
) -> Any:  # fmt: skip
    return LINEARIZE.return_type(_i8, *LINEARIZE.args), caller(LINEARIZE)


@njit(LINEARIZE, **_compiled)
def linearize_chunk(  # type: ignore[no-untyped-def]
    evaluator, theta, columns, lo, hi, program, constants, d, p, code, tools, scale, outer, costs, sums
):
    """Add cost, gradient, lower triangles of H and of the outer products of rows [lo, hi) to ``sums``."""
    rows = np.empty((columns.shape[0], BLOCK))
    # The evaluator's rows are followed by the weighted residual and Jacobian of one component (1 + d), the gradients of
    # the blocks (d) and, for several components, a copy of the residuals (p).
    out = np.empty((p * (1 + d) + 1 + 2 * d + p, BLOCK))
    scaled, grad, kept = p * (1 + d), (p + 1) * (1 + d), (p + 1) * (1 + d) + d
    cost = np.empty(BLOCK)
    weight = np.empty(BLOCK)
    triangle = d * (d + 1) // 2
    # The products of [r, J] with itself hold the gradient in their first column, followed by H.
    products = np.empty((d + 1) * (d + 2) // 2)
    for i in range(len(products)):
        products[i] = 0.0
    load, add, robust = tool(tools, 0), tool(tools, 1), tool(tools, 2)
    # Cast: NumPy's addresses are unsigned, and Numba converts a mix of unsigned and signed to float.
    start, weights, row = np.int64(out.ctypes.data), np.int64(weight.ctypes.data), 8 * BLOCK
    pos = lo
    while pos < hi:
        m = min(BLOCK, hi - pos)
        call_load(load, columns, pos, m, rows)
        call_evaluator(evaluator, theta, rows, m, program, constants, 1, out)
        if code == 0:
            sums[0] += plain_costs(out, m, p, cost)
        else:
            sums[0] += call_robust(robust, out, m, p, code, scale, cost, weight)
        if costs.shape[0] > 0:
            for i in range(m):
                costs[pos - lo + i] = cost[i]
        if p > 1:
            for c in range(p):
                _copy(start + row * (kept + c), start + row * c, 0, 0, 0.0, 0.0, 0.0)
        for c in range(p):
            # A component's residual goes before its derivatives, where the old values are no longer needed.
            first = p + c * d - 1
            if p > 1:
                _copy(start + row * first, start + row * (kept + c), 0, 0, 0.0, 0.0, 0.0)
            left = first
            if code != 0:
                left = scaled
                for a in range(d + 1):
                    _multiply(start + row * (scaled + a), weights, start + row * (first + a), 0, 0.0, 0.0, 0.0)
            add_row_products_by(add, start, left, d + 1, m, first, out, products, 0)
            if outer:
                residual = start + row * first
                for a in range(d):
                    to, by = start + row * (grad + a), start + row * (left + 1 + a)
                    if c == 0:
                        _multiply(to, by, residual, 0, 0.0, 0.0, 0.0)
                    else:
                        _multiply_add(to, by, residual, to, 0.0, 0.0, 0.0)
        if outer:
            add_row_products_by(add, start, grad, d, m, grad, out, sums, 1 + d + triangle)
        pos += m
    at = 1
    for a in range(d):
        sums[1 + a] += products[at]
        for b in range(a + 1):
            sums[1 + d + a * (a + 1) // 2 + b] += products[at + 1 + b]
        at += a + 2


@njit(types.void(_i8, _i8, _f8[::1], _i8[:, ::1], _i8[::1], _i8, *_CHUNK_ARGS[5:], _f8[:, ::1]), **_compiled)
def linearize_runs(  # type: ignore[no-untyped-def]
    linearize, evaluator, theta, columns, starts, length, program, constants, d, p, code, tools, scale, sums
):
    """`linearize_chunk` (at the address ``linearize``) of runs of ``length`` rows, each with a row of ``sums``."""
    none = np.empty(0)
    for u in range(len(starts)):
        lo = starts[u]
        call_linearize(
            linearize, evaluator, theta, columns, lo, lo + length, program, constants, d, p, code, tools, scale, 0,
            none, sums[u],
        )  # fmt: skip


@njit(
    types.void(_i8, _f8[::1], _i8[:, ::1], _i8[::1], _i8, _i8, _i8[::1], _f8[::1], _i8, _i8, _i8, _f8[:, ::1]),
    **_compiled,
)
def curve_runs(  # type: ignore[no-untyped-def]
    evaluator, theta, columns, starts, length, n, program, constants, d, more, tools, sums
):
    """Add cost, gradient, lower triangle of H, and sums of residual times second derivatives to the rows of ``sums``.

    For one residual per row without a loss; the evaluator writes ``more`` second derivatives after the first. A run
    ends at row n at the latest.
    """
    rows = np.empty((columns.shape[0], BLOCK))
    out = np.empty((1 + d + more, BLOCK))
    cost = np.empty(BLOCK)
    products = np.empty((d + 1) * (d + 2) // 2)
    load, add = tool(tools, 0), tool(tools, 1)
    start, triangle = np.int64(out.ctypes.data), d * (d + 1) // 2
    for u in range(len(starts)):
        for i in range(len(products)):
            products[i] = 0.0
        pos, hi = starts[u], min(starts[u] + length, n)
        while pos < hi:
            m = min(BLOCK, hi - pos)
            call_load(load, columns, pos, m, rows)
            call_evaluator(evaluator, theta, rows, m, program, constants, 1, out)
            sums[u, 0] += plain_costs(out, m, 1, cost)
            add_row_products_by(add, start, 0, d + 1, m, 0, out, products, 0)
            for k in range(more):
                total = 0.0
                for i in range(m):
                    total += out[0, i] * out[1 + d + k, i]
                sums[u, 1 + d + triangle + k] += total
            pos += m
        at = 1
        for a in range(d):
            sums[u, 1 + a] += products[at]
            for b in range(a + 1):
                sums[u, 1 + d + a * (a + 1) // 2 + b] += products[at + 1 + b]
            at += a + 2


@njit(
    types.void(
        _i8, _i8, _f8[::1], _i8[:, ::1], _i8[::1], _i8, _i8, _i8[::1], _f8[::1], _i8, _i8, _i8, _i8, _f8, _f8[:, ::1]
    ),
    **_compiled,
)  # fmt: skip
def robust_curve_runs(  # type: ignore[no-untyped-def]
    evaluator, bends, theta, columns, starts, length, n, program, constants, d, more, code, tools, scale, sums
):
    """`curve_runs` with a robust loss: the lower triangle of ``sum 2 z rho''(z) J^T J`` follows the other sums."""
    rows = np.empty((columns.shape[0], BLOCK))
    out = np.empty((2 + 2 * d + more, BLOCK))
    cost, weight, bend = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    triangle, scaled = d * (d + 1) // 2, 1 + d + more
    products, bent = np.empty((d + 1) * (d + 2) // 2), np.empty(triangle)
    load, add, robust = tool(tools, 0), tool(tools, 1), tool(tools, 2)
    start, row = np.int64(out.ctypes.data), 8 * BLOCK
    weights, factors = np.int64(weight.ctypes.data), np.int64(bend.ctypes.data)
    for u in range(len(starts)):
        products[:] = 0.0
        bent[:] = 0.0
        pos, hi = starts[u], min(starts[u] + length, n)
        while pos < hi:
            m = min(BLOCK, hi - pos)
            call_load(load, columns, pos, m, rows)
            call_evaluator(evaluator, theta, rows, m, program, constants, 1, out)
            sums[u, 0] += call_robust(robust, out, m, 1, code, scale, cost, weight)
            call_bends(bends, out, m, code, scale, bend)
            for a in range(d + 1):
                _multiply(start + row * (scaled + a), weights, start + row * a, 0, 0.0, 0.0, 0.0)
            add_row_products_by(add, start, scaled, d + 1, m, 0, out, products, 0)
            for k in range(more):
                total = 0.0
                for i in range(m):
                    total += out[scaled, i] * out[1 + d + k, i]
                sums[u, 1 + d + triangle + k] += total
            for a in range(1, d + 1):
                _multiply(start + row * (scaled + a), factors, start + row * a, 0, 0.0, 0.0, 0.0)
            add_row_products_by(add, start, scaled + 1, d, m, 1, out, bent, 0)
            pos += m
        at = 1
        for a in range(d):
            sums[u, 1 + a] += products[at]
            for b in range(a + 1):
                sums[u, 1 + d + a * (a + 1) // 2 + b] += products[at + 1 + b]
            at += a + 2
        for k in range(triangle):
            sums[u, 1 + d + triangle + more + k] += bent[k]


@njit(_f8(*_CHUNK_ARGS, _f8[::1]), **_compiled)
def costs_chunk(  # type: ignore[no-untyped-def]
    evaluator, theta, columns, lo, hi, program, constants, d, p, code, tools, scale, costs
):
    """Sum of the costs of rows [lo, hi); single costs are written to ``costs`` unless it is empty."""
    rows = np.empty((columns.shape[0], BLOCK))
    out = np.empty((p * (1 + d), BLOCK))
    cost = np.empty(BLOCK)
    weight = np.empty(BLOCK)
    load, robust = tool(tools, 0), tool(tools, 2)
    total = 0.0
    pos = lo
    while pos < hi:
        m = min(BLOCK, hi - pos)
        call_load(load, columns, pos, m, rows)
        call_evaluator(evaluator, theta, rows, m, program, constants, 0, out)
        if code == 0:
            total += plain_costs(out, m, p, cost)
        else:
            total += call_robust(robust, out, m, p, code, scale, cost, weight)
        if costs.shape[0] > 0:
            for i in range(m):
                costs[pos - lo + i] = cost[i]
        pos += m
    return total


@njit(types.void(*_CHUNK_ARGS, _f8[:, ::1], _f8[:, ::1]), **_compiled)
def concentration_chunk(  # type: ignore[no-untyped-def]
    evaluator, theta, columns, lo, hi, program, constants, d, p, code, tools, scale, root, sums
):
    """Add ``sum h_i U_i^T U_i`` of rows [lo, hi) to ``sums`` (rank, rank), with U_i = sqrt(w_i) J_i root."""
    rank = root.shape[1]
    rows = np.empty((columns.shape[0], BLOCK))
    out = np.empty((p * (1 + d), BLOCK))
    cost, weight, found, white = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty((p * rank, BLOCK))
    load, robust = tool(tools, 0), tool(tools, 2)
    pos = lo
    while pos < hi:
        m = min(BLOCK, hi - pos)
        call_load(load, columns, pos, m, rows)
        call_evaluator(evaluator, theta, rows, m, program, constants, 1, out)
        for i in range(m):
            found[i] = 0.0
            weight[i] = 1.0
        for c in range(p):
            for k in range(rank):
                at = c * rank + k
                for i in range(m):
                    white[at, i] = 0.0
                for a in range(d):
                    for i in range(m):
                        white[at, i] += out[p + c * d + a, i] * root[a, k]
                for i in range(m):
                    found[i] += white[at, i] * white[at, i]
        if code != 0:
            call_robust(robust, out, m, p, code, scale, cost, weight)
        for i in range(m):
            found[i] *= weight[i] * weight[i]
        for c in range(p):
            for k in range(rank):
                for j in range(k + 1):
                    total = 0.0
                    for i in range(m):
                        total += found[i] * white[c * rank + k, i] * white[c * rank + j, i]
                    sums[k, j] += total
        pos += m


@njit(types.void(*_CHUNK_ARGS[:9], _i8, _i8, _f8[:, ::1]), nogil=True, error_model="numpy")
def rows_chunk(evaluator, theta, columns, lo, hi, program, constants, d, p, tools, jacobian, values):  # type: ignore[no-untyped-def]
    """Write the evaluator's results for rows [lo, hi) to ``values``: (hi - lo, p), or p (1 + d) with derivatives."""
    rows = np.empty((columns.shape[0], BLOCK))
    out = np.empty((p * (1 + d), BLOCK))
    load = tool(tools, 0)
    pos = lo
    while pos < hi:
        m = min(BLOCK, hi - pos)
        call_load(load, columns, pos, m, rows)
        call_evaluator(evaluator, theta, rows, m, program, constants, jacobian, out)
        for i in range(m):
            for c in range(values.shape[1]):
                values[pos - lo + i, c] = out[c, i]
        pos += m
