"""The scaled normal equations of few parameters, in compiled calls.

`problm.linalg.cholesky` does the same with a dozen NumPy calls, which take several times as long. Problems with
compiled rows use this module (`Normal.compiled`). Others use it if its code was compiled ahead of time (`at_hand`), so
that Numba is not loaded for it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..jit import types
from ..jit.njit import njit, part
from .cholesky import LEAST_SHARE, MOST_SHARE, REFINE
from .normal import Normal
from .secular import MOST, SLACK, next_damping

Array = NDArray[np.float64]
_f8, _i8 = types.float64, types.int64
_NONE = np.empty(0)
MOST_PARAMETERS = 32
"""Number of parameters up to which these loops are as fast as LAPACK."""
LEAST = 1e-300
"""Diagonal entry up to which a parameter has no influence."""


_next_damping = part(nogil=True, error_model="numpy")(next_damping)


@njit(_f8(_f8[:, ::1], _f8[:, ::1]), nogil=True, error_model="numpy")
def cholesky(matrix, factor):  # type: ignore[no-untyped-def]
    """Write the lower triangular factor of a matrix, given by its lower half; return the smallest pivot, or 0."""
    pivot = np.inf
    for a in range(len(matrix)):
        for b in range(a + 1):
            s = matrix[a, b]
            for k in range(b):
                s -= factor[a, k] * factor[b, k]
            if a > b:
                factor[a, b] = s / factor[b, b]
            else:
                if not s > 0.0:  # also true for NaN
                    return 0.0
                factor[a, a] = np.sqrt(s)
                pivot = min(pivot, factor[a, a])
    return pivot


@njit(types.void(_f8[:, ::1], _f8[::1], _f8[::1]), nogil=True, error_model="numpy")
def solve(factor, right, x):  # type: ignore[no-untyped-def]
    """Write the solution with the factored matrix to ``x``; ``right`` may be the same array."""
    d = len(factor)
    for a in range(d):
        s = right[a]
        for k in range(a):
            s -= factor[a, k] * x[k]
        x[a] = s / factor[a, a]
    for a in range(d - 1, -1, -1):
        s = x[a]
        for k in range(a + 1, d):
            s -= factor[k, a] * x[k]
        x[a] = s / factor[a, a]


@njit(
    types.UniTuple(_f8, 7)(_i8, _f8[::1], _f8[:, ::1], _f8[::1], _f8[::1], _f8[:, ::1], _f8[:, ::1]),
    nogil=True,
    error_model="numpy",
)
def reduce(count, gradient, hessian, theta, damped, vectors, matrix):  # type: ignore[no-untyped-def]
    """Scale H to a unit diagonal and solve for the Gauss-Newton step.

    Writes scale, gradient, solution x, metric D of the damping and step ``-scale x`` to the rows of ``vectors``
    (5, d) and the scaled H to ``matrix``. ``damped`` (d,) is the diagonal of the damping; if empty it is that of H, so
    that D is the identity.

    Returns the decrement, the smallest pivot of the Cholesky factor (0 on failure), the squared lengths of x, of x in
    the metric D, of the point and of the point in the metric D, and the largest entry of the gradient.
    """
    d = len(gradient)
    scale, g, x, metric, step = vectors[0], vectors[1], vectors[2], vectors[3], vectors[4]
    for a in range(d):
        scale[a] = np.sqrt(count / max(hessian[a, a], LEAST))
        g[a] = scale[a] / count * gradient[a]
        metric[a] = 1.0 if len(damped) == 0 else scale[a] ** 2 * max(damped[a], LEAST / count)
    for a in range(d):
        for b in range(d):
            matrix[a, b] = hessian[a, b] * scale[b] * (scale[a] / count)
    factor = np.empty((d, d))
    pivot = cholesky(matrix, factor)
    if pivot == 0.0:
        return 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    solve(factor, g, x)
    decrement, length, resisted, point, far, most = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for a in range(d):
        decrement += 0.5 * g[a] * x[a]
        length += x[a] * x[a]
        resisted += metric[a] * x[a] * x[a]
        p = theta[a] / scale[a]
        point += p * p
        far += metric[a] * p * p
        most = max(most, abs(g[a]))
        step[a] = -scale[a] * x[a]
    return decrement, pivot, length, resisted, point, far, most


@njit(_f8(_f8[:, ::1], _f8[:, ::1], _f8, _f8[:, ::1], _f8[::1]), nogil=True, error_model="numpy")
def damped_solution(vectors, matrix, damping, factor, x):  # type: ignore[no-untyped-def]
    """Write the solution with ``matrix + damping D`` to ``x`` and its factor to ``factor``; return 0 on failure."""
    metric = vectors[3]
    for a in range(len(x)):
        for b in range(a + 1):
            factor[a, b] = matrix[a, b]
        factor[a, a] += damping * metric[a]
    pivot = cholesky(factor, factor)
    if pivot > 0.0:
        solve(factor, vectors[1], x)
    return pivot


@njit(types.UniTuple(_f8, 2)(_f8[:, ::1], _f8, _f8[::1], _f8[::1]), nogil=True, error_model="numpy")
def described(vectors, damping, x, step):  # type: ignore[no-untyped-def]
    """Write the step of a damped solution to ``step``; return its predicted decrease and squared length."""
    scale, g, metric = vectors[0], vectors[1], vectors[3]
    predicted, length = 0.0, 0.0
    for a in range(len(x)):
        predicted += 0.5 * x[a] * (g[a] + damping * metric[a] * x[a])
        length += x[a] * x[a]
        step[a] = -scale[a] * x[a]
    return predicted, length


@njit(types.UniTuple(_f8, 3)(_f8[:, ::1], _f8[:, ::1], _f8, _f8[::1]), nogil=True, error_model="numpy")
def damp(vectors, matrix, damping, step):  # type: ignore[no-untyped-def]
    """Write the damped step to ``step`` (d,), from the results of `reduce`.

    Returns the predicted decrease and the squared length of the solution, and whether there is one.
    """
    d = len(matrix)
    factor, x = np.empty((d, d)), np.empty(d)
    if damped_solution(vectors, matrix, damping, factor, x) == 0.0:
        return 0.0, 0.0, 0.0
    predicted, length = described(vectors, damping, x, step)
    return predicted, length, 1.0


@njit(types.UniTuple(_f8, 4)(_f8[:, ::1], _f8[:, ::1], _f8, _f8[::1]), nogil=True, error_model="numpy")
def within(vectors, matrix, radius, step):  # type: ignore[no-untyped-def]
    """Write the step with the smallest damping that keeps it within ``radius``, to a tenth of it, to ``step`` (d,).

    For Gauss-Newton steps longer than the radius (`problm.linalg.secular`). Returns the damping, the length in its
    metric, the predicted decrease and the squared length of the solution; NaN on failure.
    """
    d = len(matrix)
    metric = vectors[3]
    factor, x, y = np.empty((d, d)), np.empty(d), np.empty(d)
    damping, length = 0.0, np.nan
    for tries in range(MOST):
        if damped_solution(vectors, matrix, damping, factor, x) == 0.0:
            return np.nan, np.nan, np.nan, np.nan
        squared = 0.0
        for a in range(d):
            y[a] = metric[a] * x[a]
            squared += y[a] * x[a]
        length = np.sqrt(squared)
        if not length > SLACK * radius or tries == MOST - 1:
            break
        solve(factor, y, y)
        slope = 0.0
        for a in range(d):
            slope += metric[a] * x[a] * y[a]
        damping = _next_damping(damping, squared, slope, length, radius)
    predicted, squared = described(vectors, damping, x, step)
    return damping, length, predicted, squared


@njit(
    types.UniTuple(_f8, 3)(_i8, _f8[::1], _f8[:, ::1], _f8[::1], _f8, _f8[::1], _f8[::1], _f8[::1]),
    nogil=True,
    error_model="numpy",
)
def extrapolated(count, gradient, hessian, plain, decrement, taken, promised, step):  # type: ignore[no-untyped-def]
    """Write the extrapolated step to ``step`` (`problm.linalg.cholesky.Cholesky.extrapolated`).

    ``plain`` is the Gauss-Newton step. Returns the predicted decrease, the squared length and the decrement of the rest
    of the plain step; or zeros.
    """
    d = len(plain)
    curvature, turn = 0.0, 0.0
    for a in range(d):
        resisted = 0.0
        for b in range(d):
            resisted += hessian[a, b] * (plain[b] - promised[b])
        curvature += (plain[a] - promised[a]) * resisted
        turn += plain[a] * resisted
    share = turn / curvature if curvature > 0.0 else 0.0
    if not LEAST_SHARE < abs(share) < MOST_SHARE:
        return 0.0, 0.0, 0.0
    for a in range(d):
        step[a] = plain[a] - share * (taken[a] + plain[a] - promised[a])
    slope, length = 0.0, 0.0
    for a in range(d):
        slope += gradient[a] * step[a]
        length += step[a] * step[a] * hessian[a, a]
    predicted = -0.5 * slope / count
    if not predicted > 0.5 * decrement:
        return 0.0, 0.0, 0.0
    return predicted, length / count, max(decrement - 0.5 * share * turn / count, 0.0)


@njit(types.UniTuple(_f8, 2)(_i8, _f8[::1], _f8[:, ::1], _f8[:, ::1], _f8[:, ::1]), nogil=True, error_model="numpy")
def noise(count, gradient, outer, vectors, matrix):  # type: ignore[no-untyped-def]
    """Traces of W and W W with W = H^-1 Sigma, as in `QuadraticModel.noise`."""
    d = len(gradient)
    scale, factor = vectors[0], np.empty((d, d))
    if cholesky(matrix, factor) == 0.0:
        return np.nan, np.nan
    right, w = np.empty(d), np.empty((d, d))  # rows of w are columns of W
    for b in range(d):
        for a in range(d):
            sigma = outer[a, b] / count - gradient[a] / count * (gradient[b] / count)
            right[a] = sigma * scale[a] * scale[b]
        solve(factor, right, w[b])
    trace, squared = 0.0, 0.0
    for a in range(d):
        trace += w[a, a]
        for b in range(d):
            squared += w[a, b] * w[b, a]
    return trace, squared


class CompiledCholesky:
    """`problm.linalg.cholesky.Cholesky`, compiled."""

    __slots__ = ("_matrix", "_normal", "_vectors", "decrement", "pivot", "squares", "step")

    decrement: float
    pivot: float
    step: Array
    squares: tuple[float, ...]
    _normal: Normal
    _vectors: Array
    _matrix: Array

    @classmethod
    def of(cls, normal: Normal, theta: Array, damped: Array | None) -> CompiledCholesky | None:
        d = len(normal.gradient)
        vectors, matrix = np.empty((5, d)), np.empty((d, d))
        decrement, pivot, *squares = reduce.compiled(
            normal.count, normal.gradient, normal.hessian, theta, _NONE if damped is None else damped, vectors, matrix
        )
        if not (pivot >= REFINE and math.isfinite(decrement)):
            return None
        self = cls()
        self.decrement, self.pivot, self.squares, self.step = decrement, pivot, squares, vectors[4]
        self._normal, self._vectors, self._matrix = normal, vectors, matrix
        return self

    def damped(self, damping: float) -> tuple[Array, float, float] | None:
        step = np.empty(len(self._matrix))
        predicted, length, found = damp(self._vectors, self._matrix, damping, step)
        return (step, predicted, length) if found else None

    def within(self, radius: float) -> tuple[float, float, tuple[Array, float, float]] | None:
        step = np.empty(len(self._matrix))
        damping, length, predicted, squared = within(self._vectors, self._matrix, radius, step)
        return (damping, length, (step, predicted, squared)) if math.isfinite(damping) else None

    def extrapolated(self, taken: Array, promised: Array) -> tuple[Array, float, float, float] | None:
        normal, step = self._normal, np.empty(len(self._matrix))
        predicted, length, rest = extrapolated(
            normal.count, normal.gradient, normal.hessian, self.step, self.decrement, taken, promised, step
        )
        return (step, predicted, length, rest) if predicted else None

    def noise(self) -> tuple[float, float]:
        normal = self._normal
        traces: tuple[float, float] = noise(normal.count, normal.gradient, normal.outer, self._vectors, self._matrix)
        return traces


def at_hand(d: int) -> type[CompiledCholesky] | None:
    """`CompiledCholesky` if it needs no compiler and is fast for d parameters."""
    return CompiledCholesky if d <= MOST_PARAMETERS and reduce.ahead_of_time else None
