"""Row functions that cannot be recorded as expressions, compiled by Numba.

A function with an ``if`` on its arguments, a loop until convergence or similar is compiled unchanged and called row by
row inside an evaluator. Its derivatives come from the user's Jacobian, which is compiled as well. Without one they come
from the complex step ``Im f(theta + ih) / h``, which is exact to rounding, if the function compiles for complex numbers
and agrees there with differences; otherwise from central differences. The code is compiled in the process and not
cached on disk, because the code of a closure does not determine the values that it closes over. Compiling takes a
second or two.
"""

from __future__ import annotations

import cmath
import math
import types as python_types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit, types
from numba.core.errors import NumbaError
from numba.extending import overload
from numba.np.unsafe.ndarray import to_fixed_tuple
from numpy.typing import NDArray

from ..kernels.evaluator import EVALUATOR
from ..support.differences import CENTRAL
from .tracing import Rules, instrumented, names_in

Array = NDArray[np.float64]
_STEP = 1e-30
# Rules for Numba: called functions are compiled as well, and the complex step uses ``cmath`` in place of ``math``.
_REAL = Rules({}, wrap=njit)
_COMPLEX = Rules(
    {id(math): cmath}
    | {id(getattr(math, name)): getattr(cmath, name) for name in dir(cmath) if callable(getattr(math, name, None))},
    wrap=njit,
)
# Defined for complex numbers, but not the analytic continuation of the real function.
_NOT_ANALYTIC = {"abs", "fabs", "absolute", "real", "imag", "conj", "conjugate", "angle", "sign", "copysign", "hypot"}


@dataclass(frozen=True)
class RowEvaluator:
    """A compiled evaluator, the number of residuals per row, and how derivatives are computed."""

    evaluator: Any
    components: int
    derivatives: str


def _store(out: Any, value: Any) -> None:
    """A placeholder; compiled code uses the overload below."""
    raise NotImplementedError


@overload(_store)  # type: ignore[untyped-decorator,unused-ignore]
def _store_overload(out, value):  # type: ignore[no-untyped-def]
    """Write a number, a tuple, a list or an array of any shape to a flat array."""
    if isinstance(value, types.Number | types.Boolean):

        def store(out, value):  # type: ignore[no-untyped-def]
            out[0] = value

    elif isinstance(value, types.BaseTuple) and len(value) == 0:

        def store(out, value):  # type: ignore[no-untyped-def]
            pass

    elif isinstance(value, types.BaseTuple):
        share = _flat_length(value[0])

        def store(out, value):  # type: ignore[no-untyped-def]
            _store(out, value[0])
            _store(out[share:], value[1:])

    elif isinstance(value, types.Array):

        def store(out, value):  # type: ignore[no-untyped-def]
            for i, v in enumerate(value.flat):
                out[i] = v

    else:

        def store(out, value):  # type: ignore[no-untyped-def]
            for i in range(len(value)):
                out[i] = value[i]

    return store


def _flat_length(kind: Any) -> int:
    return sum(_flat_length(k) for k in kind) if isinstance(kind, types.BaseTuple) else 1


def _prepend(rest: Any, start: int, width: int) -> Any:
    if width == 1:

        def take(rows, i):  # type: ignore[no-untyped-def]
            return (rows[start, i], *rest(rows, i))

    else:

        def take(rows, i):  # type: ignore[no-untyped-def]
            return (rows[start : start + width, i], *rest(rows, i))

    return njit(take)


def _taker(widths: Sequence[int]) -> Any:
    """Compiled ``(rows, i) -> arguments``: a number for a column, an array for several."""
    take = njit(lambda rows, i: ())
    starts = np.concatenate([[0], np.cumsum(widths)])
    for start, width in zip(starts[-2::-1].tolist(), list(widths)[::-1], strict=True):
        take = _prepend(take, start, width)
    return take


def _caller(
    function: Callable[..., Any], widths: Sequence[int], n_parameters: int, curve: bool, rules: Rules = _REAL
) -> Any:
    """Compiled ``(theta, rows, i, out)`` that writes the function's values for row i, flat."""
    inner = njit(instrumented(function, rules))
    take = _taker(widths)
    if curve:

        def call(theta, rows, i, out):  # type: ignore[no-untyped-def]
            _store(out, inner(*take(rows, i), *to_fixed_tuple(theta, n_parameters)))

    else:

        def call(theta, rows, i, out):  # type: ignore[no-untyped-def]
            _store(out, inner(theta, *take(rows, i)))

    return njit(error_model="numpy", nogil=True)(call)


def _count(function: Callable[..., Any], widths: Sequence[int], n_parameters: int, curve: bool) -> int:
    """Number of residuals per row, from a call."""
    if curve:
        return 1
    function = getattr(function, "py_func", function)
    rng = np.random.default_rng(0)
    row = [rng.uniform(0.5, 1.5) if w == 1 else rng.uniform(0.5, 1.5, w) for w in widths]
    with np.errstate(all="ignore"):
        return int(np.size(np.asarray(function(rng.uniform(0.5, 1.5, n_parameters), *row))))


def row_evaluator(
    function: Callable[..., Any],
    jacobian: Callable[..., Any] | None,
    widths: Sequence[int],
    n_parameters: int,
    *,
    curve: bool = False,
    target: bool = True,
    weighted: bool = False,
) -> RowEvaluator:
    """Compile an evaluator that calls the function row by row.

    Parameters
    ----------
    function
        ``f(x, *params)`` for a curve, else ``row(theta, *columns)`` with p residuals.
    jacobian
        A function of the same arguments that returns derivatives with respect to the parameters, d or (p, d) numbers.
    widths
        Widths of the columns that the function takes; a curve's y (if there is a target) and sigma follow them.
    """
    name = getattr(function, "__name__", "the function")
    try:
        p = _count(function, widths, n_parameters, curve)
        value = _caller(function, widths, n_parameters, curve)
        rows, out = np.full((sum(widths), 2), 1.2345), np.zeros(p)
        theta = np.linspace(0.9, 1.1, n_parameters)
        value(theta, rows, 0, out)
        d = n_parameters
        if jacobian is not None:
            derivative = _caller(jacobian, widths, d, curve)
            derivative(theta, rows, 0, np.zeros(p * d))
            how = "analytic"
        else:
            derivative = _differences(value, p, d)
            how = "central differences"
            exact = _complex_step(_caller(function, widths, d, curve, _COMPLEX), p, d)
            if not _suspicious(function) and _agree(exact, derivative, theta, rows, p * d):
                derivative, how = exact, "complex step"
    except Exception as error:  # Numba raises errors of many types
        raise TypeError(
            f"{name} can neither be recorded as an expression nor be compiled by Numba; use simple arithmetic and "
            "functions of math or numpy on numbers, or pass it as a NumPy function. Numba says: "
            + " ".join(str(error).split())[:600]
        ) from None
    return RowEvaluator(_evaluator(value, derivative, p, d, sum(widths), curve and target, weighted), p, how)


def _evaluator(value: Any, derivative: Any, p: int, d: int, n_columns: int, curve: bool, weighted: bool) -> Any:
    def evaluator(theta, rows, m, program, constants, jacobian, out):  # type: ignore[no-untyped-def]
        r = np.zeros(p)
        g = np.zeros(p * d)
        for i in range(m):
            value(theta, rows, i, r)
            if curve:
                r[0] -= rows[n_columns, i]
            scale = 1.0 / rows[n_columns + 1, i] if weighted else 1.0
            for c in range(p):
                out[c, i] = scale * r[c]
            if jacobian:
                derivative(theta, rows, i, g)
                for k in range(p * d):
                    out[p + k, i] = scale * g[k]

    return njit(EVALUATOR.numba, nogil=True, error_model="numpy")(evaluator)


def _differences(value: Any, p: int, d: int) -> Any:
    def derivative(theta, rows, i, out):  # type: ignore[no-untyped-def]
        point = theta.copy()
        up, down = np.zeros(p), np.zeros(p)
        for a in range(d):
            h = CENTRAL * max(1.0, abs(theta[a]))
            point[a] = theta[a] + h
            value(point, rows, i, up)
            upper = point[a]
            point[a] = theta[a] - h
            value(point, rows, i, down)
            for c in range(p):
                out[c * d + a] = (up[c] - down[c]) / (upper - point[a])
            point[a] = theta[a]

    return njit(error_model="numpy", nogil=True)(derivative)


def _complex_step(value: Any, p: int, d: int) -> Any:
    def derivative(theta, rows, i, out):  # type: ignore[no-untyped-def]
        point = theta.astype(np.complex128)
        r = np.zeros(p, dtype=np.complex128)
        for a in range(d):
            point[a] = complex(theta[a], _STEP)
            value(point, rows, i, r)
            for c in range(p):
                out[c * d + a] = r[c].imag / _STEP
            point[a] = theta[a]

    return njit(error_model="numpy", nogil=True)(derivative)


def _agree(exact: Any, differences: Any, theta: Array, rows: Array, size: int) -> bool:
    a, b = np.zeros(size), np.zeros(size)
    try:
        exact(theta, rows, 0, a)
    except (NumbaError, TypeError, ValueError):
        return False
    differences(theta, rows, 0, b)
    return bool(np.allclose(a, b, rtol=1e-5, atol=1e-7 * (1.0 + np.abs(b).max(initial=0.0)), equal_nan=True))


def _suspicious(function: Callable[..., Any]) -> bool:
    function = getattr(function, "py_func", function)
    if not isinstance(function, python_types.FunctionType):
        return True
    names = names_in(function.__code__)
    called = [getattr(function.__globals__.get(n), "py_func", function.__globals__.get(n)) for n in names]
    inner = [f for f in called if isinstance(f, python_types.FunctionType) and f is not function]
    return bool(names & _NOT_ANALYTIC) or any(names_in(f.__code__) & _NOT_ANALYTIC for f in inner)
