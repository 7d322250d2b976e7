"""Levenberg-Marquardt for many small problems that differ only in their rows, in one compiled call.

The rows of all problems are stored one after the other in the same columns; a problem is a range of rows, with its own
point and damping. A step solves ``(D^-1 H D^-1 + lambda I) s = -D^-1 g``, where D holds the square roots of the
diagonal of H, over the parameters that are not held by a bound.

`fit_curves` takes one problem after the other, for few problems of many rows; `problm.kernels.lanes` takes 128 at once.
"""

from __future__ import annotations

import math

import numpy as np

from ..jit import types
from ..jit.njit import njit, part
from .passes import call_linearize

_f8, _i8 = types.float64, types.int64
_compiled = {"nogil": True, "error_model": "numpy"}
LEAST = 1e-14
"""Predicted decrease of the sum of squares, in units of the noise variance, at which a fit has converged: the distance
to the minimum before the last step is then below 1e-7 standard errors."""
SLOW, FAST = 1e-2, 1e-4
"""Ratios of the predicted decreases of successive steps between which a faster fit ends earlier: what matters is the
distance after the last step, which each has shortened by 10 or 100."""
SHORT = 1e-6
"""Longest last step that is taken without evaluating it, squared and in units of the noise variance: each parameter
moves by less than a thousandth of its standard error if the others were known."""
ROUNDING = 1e-13
"""Relative increase of the cost by rounding with which a step is taken that can only decrease it by as little."""
FIRST, MOST = 1e-3, 1e12
"""First damping, and the one at which a fit is given up."""
BETTER, WORSE = 0.2, 8.0
"""Factors of the damping after a step that was accepted and one that was not."""
PIVOT = 1e-15
"""Smallest pivot of a scaled and damped matrix that is positive definite."""
CONDITIONED = 1e-12
"""Smallest pivot of a scaled matrix whose inverse gives standard errors."""


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
        if not pivot > PIVOT:
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


@part(**_compiled)
def _propose(here, point, damping, free, lower, upper, work, matrix, moves, trial):  # type: ignore[no-untyped-def]
    """Write the trial point; return the predicted decrease of the sum of squares, or -1 without a solution, and the
    square of the step in units of ``D^-1``.

    here : (1 + d + d (d + 1) / 2,) cost, gradient and lower triangle of H at the point.
    work : (3, d) workspace.
    """
    d = len(point)
    right, step, scale = work[0], work[1], work[2]
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
    if not _solve(matrix, damping, moves, right, step):
        return -1.0, 0.0
    promised, length = 0.0, 0.0
    for a in range(d):
        if moves[a]:
            length += step[a] * step[a]
            promised += 2.0 * right[a] * step[a] - matrix[a, a] * step[a] * step[a]
            for c in range(a):
                if moves[c]:
                    promised -= 2.0 * matrix[a, c] * step[a] * step[c]
        trial[a] = min(max(point[a] + step[a] / scale[a], lower[a]), upper[a])
    return max(promised, 0.0), length


@part(**_compiled)
def small(promised, before, damping, cost, rows, floor):  # type: ignore[no-untyped-def]
    """Whether a fit may end with a step, which must be hardly damped: a short one predicts a small decrease anywhere.

    before : the decrease that the previous step had predicted, 0 if it was not taken.
    """
    rate = min(max(promised, FAST * before) / before, SLOW) if before > 0.0 else SLOW
    return damping <= 1.0 and promised * (rate / SLOW) <= LEAST * 2.0 * cost / rows + floor


@part(**_compiled)
def better(cost, before, promised):  # type: ignore[no-untyped-def]
    """Whether a step is taken; the sums of squares cannot tell whether a very short one is an improvement."""
    return cost <= before * (1.0 + (ROUNDING if promised <= 100.0 * ROUNDING * before else 0.0))


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
    sums : (B, 1 + d + d (d + 1) / 2) cost, gradient and lower triangle of H at the solutions, or before a short last
        step.
    steps : (B,) number of steps tried, negative if the fit did not converge.
    """
    d = theta.shape[1]
    none, other, trial = np.empty(0), np.empty(sums.shape[1]), np.empty(d)
    work, matrix, moves = np.empty((3, d)), np.empty((d, d)), np.empty(d, dtype=np.bool_)
    for b in range(len(ends) - 1):
        here, point = sums[b], theta[b]
        here[:] = 0.0
        call_linearize(
            linearize, evaluator, point, columns, ends[b], ends[b + 1], program, constants, d, 1, 0, tools, 1.0, 0,
            none, here,
        )  # fmt: skip
        rows = max(ends[b + 1] - ends[b], 1)
        damping, tried, converged, before = FIRST, 0, False, 0.0
        while tried < most and damping < MOST and math.isfinite(here[0]) and not converged:
            tried += 1
            promised, length = _propose(here, point, damping, free, lower, upper, work, matrix, moves, trial)
            if promised < 0.0:
                damping, before = damping * WORSE, 0.0
                continue
            converged = small(promised, before, damping, here[0], rows, floors[b])
            if converged and length <= SHORT * 2.0 * here[0] / rows:
                point[:] = trial
                break
            other[:] = 0.0
            call_linearize(
                linearize, evaluator, trial, columns, ends[b], ends[b + 1], program, constants, d, 1, 0, tools, 1.0, 0,
                none, other,
            )  # fmt: skip
            if better(other[0], here[0], promised):
                point[:] = trial
                here[:] = other
                damping, before = damping * BETTER, promised
            else:
                damping, before = damping * WORSE, 0.0
        steps[b] = tried if converged else -tried


@njit(types.void(_f8[:, ::1], _i8[::1], _f8[::1], _f8[:, ::1]), **_compiled)
def standard_errors(sums, free, variances, errors):  # type: ignore[no-untyped-def]
    """Write (B, d) standard errors, NaN for fixed parameters and where H is singular; variances of the noise (B,)."""
    count, d = errors.shape
    factor, scale, column = np.zeros((d, d)), np.empty(d), np.empty(d)
    for b in range(count):
        good, at = True, 1 + d
        for a in range(d):
            scale[a] = math.sqrt(sums[b, at + a]) if free[a] != 0 else 1.0
            for c in range(a + 1):
                alike = 1.0 if a == c else 0.0
                entry = sums[b, at + c] / (scale[a] * scale[c]) if free[a] * free[c] != 0 else alike
                for k in range(c):
                    entry -= factor[a, k] * factor[c, k]
                if c < a:
                    factor[a, c] = entry / factor[c, c]
                else:
                    good = good and entry > CONDITIONED
                    factor[a, a] = math.sqrt(entry)
            at += a + 1
        for a in range(d):
            errors[b, a] = math.nan
            if good and free[a] != 0:  # column a of the inverse factor
                total = 0.0
                for i in range(a, d):
                    value = 1.0 if i == a else 0.0
                    for k in range(a, i):
                        value -= factor[i, k] * column[k]
                    column[i] = value / factor[i, i]
                    total += column[i] * column[i]
                errors[b, a] = math.sqrt(total * variances[b]) / scale[a]
