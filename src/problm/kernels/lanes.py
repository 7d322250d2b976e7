"""Many small problems at once: each of the 128 rows of a block is another problem, with its own point and damping.

An evaluator computes a block of 128 rows in the time of one. Here its rows are the same point of 128 curves: the
parameters are columns of the block, what all curves share (usually x) is a scalar, and sums over the points, the
factorisation and the step are loops over the problems that the compiler has vectorised. A problem that has ended makes
room for the next. The rules are those of `problm.kernels.many_fits`; a problem's result does not depend on its
neighbours.
"""

from __future__ import annotations

import math

import numpy as np

from ..jit import types
from ..jit.lane_products import add_lane_products
from ..jit.njit import njit, part
from ..jit.vectors import elementwise
from .evaluator import BLOCK, FASTMATH, call_evaluator
from .many_fits import BETTER, FIRST, MOST, PIVOT, SHORT, WORSE, better, small

_f8, _i8 = types.float64, types.int64
_compiled = {"nogil": True, "error_model": "numpy", "fastmath": FASTMATH}


_copy = elementwise(1, lambda b, v, _: v[0])


@part(**_compiled)
def _scaled(here, point, free, lower, upper, scale, matrix, right):  # type: ignore[no-untyped-def]
    """Write the scaled normal equations; a parameter that is held has the row and column of the unit matrix."""
    d = len(point)
    at = 1 + d
    for a in range(d):
        for s in range(BLOCK):
            slope, size = here[1 + a, s], here[at + a, s]
            held = (point[a, s] <= lower[a] and slope > 0.0) or (point[a, s] >= upper[a] and slope < 0.0)
            moves = free[a] != 0 and not held and size > 0.0 and size < math.inf
            scale[a, s] = 1.0 / math.sqrt(size) if moves else 0.0
            right[a, s] = -slope * scale[a, s] if moves else 0.0
        for c in range(a + 1):
            for s in range(BLOCK):
                together = scale[a, s] * scale[c, s]
                matrix[a, c, s] = here[at + c, s] * together if together > 0.0 else (1.0 if a == c else 0.0)
        at += a + 1


@part(**_compiled)
def _solve(matrix, damping, right, factor, inverse, step, solved):  # type: ignore[no-untyped-def]
    """Solve ``(matrix + damping I) step = right``; write whether each is positive definite."""
    d = len(right)
    for s in range(BLOCK):
        solved[s] = 1.0
    for i in range(d):
        for j in range(i + 1):
            for s in range(BLOCK):
                factor[i, j, s] = matrix[i, j, s] + (damping[s] if i == j else 0.0)
            for k in range(j):
                for s in range(BLOCK):
                    factor[i, j, s] -= factor[i, k, s] * factor[j, k, s]
            if j < i:
                for s in range(BLOCK):
                    factor[i, j, s] *= inverse[j, s]
        for s in range(BLOCK):
            good = factor[i, i, s] > PIVOT
            solved[s] = solved[s] if good else 0.0
            inverse[i, s] = 1.0 / math.sqrt(factor[i, i, s] if good else 1.0)
            step[i, s] = right[i, s]
        for j in range(i):
            for s in range(BLOCK):
                step[i, s] -= factor[i, j, s] * step[j, s]
        for s in range(BLOCK):
            step[i, s] *= inverse[i, s]
    for i in range(d - 1, -1, -1):
        for k in range(i + 1, d):
            for s in range(BLOCK):
                step[i, s] -= factor[k, i, s] * step[k, s]
        for s in range(BLOCK):
            step[i, s] *= inverse[i, s]


@part(**_compiled)
def _propose(point, damping, lower, upper, scale, matrix, right, step, solved, promised, length, trial):  # type: ignore[no-untyped-def]
    """Write trial points, predicted decreases of the sums of squares (-1 without a solution) and squares of steps."""
    d = len(point)
    for s in range(BLOCK):
        promised[s] = 0.0
        length[s] = 0.0
    for a in range(d):
        # r = (A + lambda) s, so 2 r s - s A s = r s + lambda s s.
        for s in range(BLOCK):
            promised[s] += step[a, s] * (right[a, s] + damping[s] * step[a, s])
            length[s] += step[a, s] * step[a, s]
            to = point[a, s] + (step[a, s] * scale[a, s] if solved[s] > 0.0 else 0.0)
            to = lower[a] if to < lower[a] else to
            trial[a, s] = upper[a] if to > upper[a] else to
    for s in range(BLOCK):
        promised[s] = (promised[s] if promised[s] > 0.0 else 0.0) if solved[s] > 0.0 else -1.0


@part(**_compiled)
def _evaluate(evaluator, shared, kept, rows, program, constants, out, products, sums):  # type: ignore[no-untyped-def]
    """Write cost, gradient and lower triangle of H at the points that ``rows`` holds after the curves' own columns."""
    k, d = kept.shape[1], out.shape[0] - 1
    # Cast: NumPy's addresses are unsigned, and Numba converts a mix of unsigned and signed to float.
    row = 8 * BLOCK
    to_rows, of_curves = np.int64(rows.ctypes.data), np.int64(kept.ctypes.data)
    found, totals = np.int64(out.ctypes.data), np.int64(products.ctypes.data)
    products[:] = 0.0
    for point in range(kept.shape[0]):
        for c in range(k):
            _copy(to_rows + row * c, of_curves + row * (point * k + c), 0, 0, 0.0, 0.0, 0.0)
        call_evaluator(evaluator, shared[point], rows, BLOCK, program, constants, 1, out)
        add_lane_products(found, d + 1, totals)
    at, to = 0, 1 + d
    for a in range(d + 1):
        for c in range(a + 1):
            place = to if c > 0 else a
            for s in range(BLOCK):
                sums[place, s] = products[at, s]
            at += 1
            to += c > 0
    for s in range(BLOCK):
        sums[0, s] *= 0.5


@part(**_compiled)
def _finish(b, s, point, here, tried, theta, sums, steps):  # type: ignore[no-untyped-def]
    """Write the result of problem b from lane s."""
    for a in range(theta.shape[1]):
        theta[b, a] = point[a, s]
    for i in range(sums.shape[1]):
        sums[b, i] = here[i, s]
    steps[b] = tried


FIT_LANES = types.void(
    _i8, _f8[:, ::1], _f8[:, :, ::1], _i8[::1], _f8[::1], _f8[::1], _i8[::1], _f8[::1], _f8[::1], _i8,
    _f8[:, ::1], _f8[:, ::1], _i8[::1],
)  # fmt: skip


@njit(FIT_LANES, **_compiled)
def fit_lanes(  # type: ignore[no-untyped-def]
    evaluator, shared, own, program, constants, floors, free, lower, upper, most, theta, sums, steps
):
    """Fit B curves of n points each.

    evaluator, program, constants : a kernel whose theta are the shared values of a point, and whose columns are the
        curves' own and then the parameters.
    shared : (n, k) values that all curves have in common.
    own : (B, columns, n) those of each curve.
    The others are those of `problm.kernels.many_fits.fit_curves`.
    """
    count, k, n = own.shape
    d = theta.shape[1]
    size = sums.shape[1]
    kept, rows, out = np.ones((n, k, BLOCK)), np.ones((k + d, BLOCK)), np.empty((1 + d, BLOCK))
    here, other, products = np.ones((size, BLOCK)), np.empty((size, BLOCK)), np.empty((size, BLOCK))
    point, trial = np.zeros((d, BLOCK)), np.zeros((d, BLOCK))
    scale, right, step, inverse = np.empty((d, BLOCK)), np.empty((d, BLOCK)), np.empty((d, BLOCK)), np.empty((d, BLOCK))
    matrix, factor = np.empty((d, d, BLOCK)), np.empty((d, d, BLOCK))
    damping, promised, solved, length = np.ones(BLOCK), np.zeros(BLOCK), np.zeros(BLOCK), np.zeros(BLOCK)
    problem, tried, before = np.full(BLOCK, -1), np.zeros(BLOCK, dtype=np.int64), np.zeros(BLOCK)
    ended = np.zeros(BLOCK, dtype=np.bool_)
    waiting, left = 0, count
    while left > 0:
        _scaled(here, point, free, lower, upper, scale, matrix, right)
        _solve(matrix, damping, right, factor, inverse, step, solved)
        _propose(point, damping, lower, upper, scale, matrix, right, step, solved, promised, length, trial)
        for s in range(BLOCK):
            b = problem[s]
            ended[s] = (
                b >= 0 and promised[s] >= 0.0 and small(promised[s], before[s], damping[s], here[0, s], n, floors[b])
            )
            if ended[s] and length[s] <= SHORT * 2.0 * here[0, s] / n:
                left -= 1
                _finish(b, s, trial, here, tried[s] + 1, theta, sums, steps)
                ended[s], problem[s] = False, -1
            if problem[s] < 0 and waiting < count:
                problem[s], tried[s], damping[s] = waiting, -1, FIRST  # -1: its start is evaluated first
                for a in range(d):
                    trial[a, s] = theta[waiting, a]
                for c in range(k):
                    for i in range(n):
                        kept[i, c, s] = own[waiting, c, i]
                waiting += 1
        if left == 0:
            break
        for a in range(d):
            for s in range(BLOCK):
                rows[k + a, s] = trial[a, s]
        _evaluate(evaluator, shared, kept, rows, program, constants, out, products, other)
        for s in range(BLOCK):
            b = problem[s]
            if b < 0:
                continue
            start = tried[s] < 0
            tried[s] += 1
            accepted = start or (promised[s] >= 0.0 and better(other[0, s], here[0, s], promised[s]))
            if accepted:
                for a in range(d):
                    point[a, s] = trial[a, s]
                for i in range(size):
                    here[i, s] = other[i, s]
            before[s] = promised[s] if accepted and not start else 0.0
            if not start:
                damping[s] *= BETTER if accepted else WORSE
            lost = tried[s] >= most or not (damping[s] < MOST and math.isfinite(here[0, s]))
            if ended[s] or lost:
                left -= 1
                _finish(b, s, point, here, tried[s] if ended[s] else -tried[s], theta, sums, steps)
                problem[s] = -1
