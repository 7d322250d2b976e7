"""Levenberg-Marquardt for many small problems that differ only in their rows, in one compiled call.

The rows of all problems are stored one after the other in the same columns; a problem is a range of rows, with its own
point and damping. A step solves ``(D^-1 H D^-1 + lambda I) s = -D^-1 g``, where D holds the square roots of the
diagonal of H, over the parameters that are not held by a bound.
"""

from __future__ import annotations

import math

import numpy as np

from ..jit import types
from ..jit.njit import njit, part
from .passes import call_linearize

_f8, _i8 = types.float64, types.int64
_compiled = {"nogil": True, "error_model": "numpy"}
LEAST = 1e-10
"""Predicted decrease of the sum of squares, in units of the noise variance, at which a fit has converged: the distance
to the minimum is then below 1e-5 standard errors."""


@part(**_compiled)
def _solve(matrix, damping, moves, right, step):  # type: ignore[no-untyped-def]
    """Solve ``(matrix + damping I) step = right`` for the moving parameters; return whether it is positive definite."""
    d = len(step)
    factor = np.empty((d, d))
    for i in range(d):
        step[i] = 0.0
        if not moves[i]:
            continue
        value = right[i]
        for j in range(i):
            if moves[j]:
                entry = matrix[i, j]
                for k in range(j):
                    if moves[k]:
                        entry -= factor[i, k] * factor[j, k]
                factor[i, j] = entry / factor[j, j]
                value -= factor[i, j] * step[j]
        pivot = matrix[i, i] + damping
        for k in range(i):
            if moves[k]:
                pivot -= factor[i, k] * factor[i, k]
        if not pivot > 1e-15:
            return False
        factor[i, i] = math.sqrt(pivot)
        step[i] = value / factor[i, i]
    for i in range(d - 1, -1, -1):
        if moves[i]:
            for k in range(i + 1, d):
                if moves[k]:
                    step[i] -= factor[k, i] * step[k]
            step[i] /= factor[i, i]
    return True


FIT_CURVES = types.void(
    _i8, _i8, _i8[:, ::1], _i8[::1], _i8[::1], _f8[::1], _i8, _f8[::1], _i8[::1], _f8[::1], _f8[::1], _i8,
    _f8[:, ::1], _f8[:, ::1], _i8[::1],
)  # fmt: skip


@njit(FIT_CURVES, **_compiled)
def fit_curves(  # type: ignore[no-untyped-def]
    linearize, evaluator, columns, ends, program, constants, tools, floors, free, lower, upper, most, theta, sums, steps
):
    """Fit each range of rows.

    linearize, tools : addresses of `problm.kernels.passes.linearize_chunk` and of the functions that it calls.
    evaluator, columns, program, constants : arguments of the kernel.
    ends : (B + 1,) first rows of the problems, and the end of the last one.
    floors : (B,) decreases below the precision of the data.
    free : (d,) 0 for fixed parameters.
    lower, upper : (d,) bounds.
    most : largest number of steps to try.
    theta : (B, d) starts, overwritten by the solutions.
    sums : (B, 1 + d + d (d + 1) / 2) cost, gradient and lower triangle of H at the solutions.
    steps : (B,) number of steps tried, negative if the fit did not converge.
    """
    d = theta.shape[1]
    width = sums.shape[1]
    none = np.empty(0)
    point, trial, other, right, step = np.empty(d), np.empty(d), np.empty(width), np.empty(d), np.empty(d)
    scale, matrix, moves = np.empty(d), np.empty((d, d)), np.empty(d, dtype=np.bool_)
    for b in range(len(ends) - 1):
        here = sums[b]
        for a in range(d):
            point[a] = theta[b, a]
        for k in range(width):
            here[k] = 0.0
        call_linearize(
            linearize, evaluator, point, columns, ends[b], ends[b + 1], program, constants, d, 1, 0, tools, 1.0, 0,
            none, here,
        )  # fmt: skip
        rows = max(ends[b + 1] - ends[b], 1)
        damping, tried, converged = 1e-3, 0, False
        while tried < most and damping < 1e12 and math.isfinite(here[0]):
            at = 1 + d
            for a in range(d):
                slope = here[1 + a]
                held = (point[a] <= lower[a] and slope > 0.0) or (point[a] >= upper[a] and slope < 0.0)
                size = here[at + a]
                moves[a] = free[a] != 0 and not held and size > 0.0 and math.isfinite(size)
                scale[a] = math.sqrt(size) if moves[a] else 1.0
                right[a] = -slope / scale[a]
                for c in range(a + 1):
                    matrix[a, c] = here[at + c] / (scale[a] * scale[c])
                at += a + 1
            tried += 1
            if not _solve(matrix, damping, moves, right, step):
                damping *= 8.0
                continue
            promised = 0.0
            for a in range(d):
                if moves[a]:
                    promised += 2.0 * right[a] * step[a] - matrix[a, a] * step[a] * step[a]
                    for c in range(a):
                        if moves[c]:
                            promised -= 2.0 * matrix[a, c] * step[a] * step[c]
                trial[a] = min(max(point[a] + step[a] / scale[a], lower[a]), upper[a])
            for k in range(width):
                other[k] = 0.0
            call_linearize(
                linearize, evaluator, trial, columns, ends[b], ends[b + 1], program, constants, d, 1, 0, tools, 1.0, 0,
                none, other,
            )  # fmt: skip
            # A short step predicts a small decrease anywhere: only steps that are hardly damped may end the fit.
            small = damping <= 1.0 and promised <= LEAST * 2.0 * here[0] / rows + floors[b]
            if other[0] <= here[0]:
                for a in range(d):
                    point[a] = trial[a]
                for k in range(width):
                    here[k] = other[k]
                damping *= 0.2
            else:
                damping *= 8.0
            if small:
                converged = True
                break
        for a in range(d):
            theta[b, a] = point[a]
        steps[b] = tried if converged else -tried
