"""Functions of the tape beyond arithmetic, in families that are compiled on first use.

Each takes an instruction's code, the addresses of its result and of x, y and z (128 numbers each), and its scalars.
Loops over `problm.jit.elementary` are vectorised; what it does not cover is left to the C library.
"""

from __future__ import annotations

import math

import numpy as np

from ..jit import elementary as vm
from ..jit.faddeeva import w as _w
from ..jit.intrinsics import select
from ..jit.njit import njit, part
from . import tape
from .evaluator import BLOCK, FASTMATH
from .tape import SCALAR, VECTOR, get, put

_compiled = {"nogil": True, "error_model": "numpy", "fastmath": FASTMATH}
_family = njit(VECTOR, **_compiled)


@part(**_compiled)
def _of_numbers(op, x, y, z):  # type: ignore[no-untyped-def]
    """Compute a function of numbers by the C library."""
    if op == tape.EXP:
        return np.exp(x)
    if op == tape.EXPM1:
        return np.expm1(x)
    if op == tape.LOG:
        return np.log(x)
    if op == tape.LOG1P:
        return np.log1p(x)
    if op == tape.LOG_OR_ZERO:
        return 0.0 if x == 0.0 else np.log(x)
    if op == tape.SQRT:
        return np.sqrt(x)
    if op == tape.ABS:
        return abs(x)
    if op == tape.SIGN:
        return np.sign(x)
    if op == tape.FLOOR:
        return np.floor(x)
    if op == tape.TANH:
        return np.tanh(x)
    if op == tape.ARCTAN:
        return np.arctan(x)
    if op == tape.ERF:
        return math.erf(x)
    if op == tape.ERFC:
        return math.erfc(x)
    if op == tape.SIN:
        return np.sin(x)
    if op == tape.COS:
        return np.cos(x)
    if op == tape.TAN:
        return np.tan(x)
    if op == tape.SINH:
        return np.sinh(x)
    if op == tape.COSH:
        return np.cosh(x)
    if op == tape.ARCSIN:
        return np.arcsin(x)
    if op == tape.ARCCOS:
        return np.arccos(x)
    if op == tape.ARCSINH:
        return np.arcsinh(x)
    if op == tape.ARCCOSH:
        return np.arccosh(x)
    if op == tape.ARCTANH:
        return np.arctanh(x)
    if op == tape.MINIMUM:
        return np.minimum(x, y)
    if op == tape.MAXIMUM:
        return np.maximum(x, y)
    if op == tape.LT:
        return 1.0 if x < y else 0.0
    if op == tape.LE:
        return 1.0 if x <= y else 0.0
    if op == tape.EQ:
        return 1.0 if x == y else 0.0
    if op == tape.POW:
        return x**y
    if op == tape.ARCTAN2:
        return np.arctan2(x, y)
    if op == tape.HYPOT:
        return np.hypot(x, y)
    if op == tape.S_WHERE:
        return y if x != 0.0 else z
    return math.nan


@njit(SCALAR, **_compiled)
def scalar(op, x, y, z):  # type: ignore[no-untyped-def]
    """Compute a function of numbers."""
    return _of_numbers(op, x, y, z)


@njit(SCALAR, **_compiled)
def scalar_w(op, x, y, z):  # type: ignore[no-untyped-def]
    """Real or imaginary part of the Faddeeva function of x + iy."""
    real, imaginary = _w(x, y)
    return real if op == tape.W_REAL else imaginary


@_family
def library(op, to, a, b, c, s, t, u):  # type: ignore[no-untyped-def]
    """Functions left to the C library."""
    for i in range(BLOCK):
        put(to, i, _of_numbers(op, s * get(a, i) + u, get(b, i), 0.0))


@_family
def exponentials(op, to, a, b, c, s, t, u):  # type: ignore[no-untyped-def]
    """Functions built from the exponential."""
    if op == tape.EXPM1:
        for i in range(BLOCK):
            put(to, i, vm.expm1(s * get(a, i) + u))
    else:
        for i in range(BLOCK):
            put(to, i, vm.tanh(s * get(a, i) + u))


@_family
def logarithms(op, to, a, b, c, s, t, u):  # type: ignore[no-untyped-def]
    if op == tape.LOG:
        for i in range(BLOCK):
            put(to, i, vm.log(s * get(a, i) + u))
    elif op == tape.LOG_OR_ZERO:
        for i in range(BLOCK):
            x = s * get(a, i) + u
            put(to, i, vm.log(select(x == 0.0, 1.0, x)))
    else:
        for i in range(BLOCK):
            put(to, i, vm.log1p(s * get(a, i) + u))


@part(**_compiled)
def _mend(op, to, a, s, u):  # type: ignore[no-untyped-def]
    """Recompute sines and cosines beyond the range of `problm.jit.elementary` by the C library."""
    beyond = 0
    for i in range(BLOCK):
        beyond += 0 if abs(s * get(a, i) + u) <= vm.TRIG_LIMIT else 1
    if beyond > 0:
        for i in range(BLOCK):
            x = s * get(a, i) + u
            if not abs(x) <= vm.TRIG_LIMIT:
                put(to, i, np.sin(x) if op == tape.SIN else np.cos(x))


@_family
def trigonometry(op, to, a, b, c, s, t, u):  # type: ignore[no-untyped-def]
    """Sine, cosine, or both at once with the cosine written to c."""
    if op == tape.SIN:
        for i in range(BLOCK):
            put(to, i, vm.sin(s * get(a, i) + u))
    elif op == tape.COS:
        for i in range(BLOCK):
            put(to, i, vm.cos(s * get(a, i) + u))
    else:
        for i in range(BLOCK):
            sine, cosine = vm.sincos(s * get(a, i) + u)
            put(to, i, sine)
            put(c, i, cosine)
        _mend(tape.COS, c, a, s, u)
    _mend(tape.COS if op == tape.COS else tape.SIN, to, a, s, u)


@_family
def arctangent(op, to, a, b, c, s, t, u):  # type: ignore[no-untyped-def]
    for i in range(BLOCK):
        put(to, i, vm.arctan(s * get(a, i) + u))


@_family
def error_functions(op, to, a, b, c, s, t, u):  # type: ignore[no-untyped-def]
    if op == tape.ERF:
        for i in range(BLOCK):
            put(to, i, vm.erf(s * get(a, i) + u))
    else:
        for i in range(BLOCK):
            put(to, i, vm.erfc(s * get(a, i) + u))


@_family
def faddeeva(op, to, a, b, c, s, t, u):  # type: ignore[no-untyped-def]
    """Faddeeva function: real part, and imaginary part written to c."""
    for i in range(BLOCK):
        real, imaginary = _w(get(a, i), get(b, i))
        put(to, i, real)
        put(c, i, imaginary)


@_family
def powers(op, to, a, b, c, s, t, u):  # type: ignore[no-untyped-def]
    """``(s x + u)**t`` or ``x**y``; the C library computes what `problm.jit.elementary.power` does not cover."""
    beyond = 0
    if op == tape.POWER:
        for i in range(BLOCK):
            x = s * get(a, i) + u
            y = vm.power(x, t)
            put(to, i, y)
            beyond += 0 if (x >= 2.3e-308) & (x <= 1.7e308) & (y > 1e-299) & (y < 1e299) else 1
    else:
        for i in range(BLOCK):
            x = get(a, i)
            y = vm.power(x, get(b, i))
            put(to, i, y)
            beyond += 0 if (x >= 2.3e-308) & (x <= 1.7e308) & (y > 1e-299) & (y < 1e299) else 1
    if beyond > 0:
        for i in range(BLOCK):
            x = s * get(a, i) + u
            y = get(to, i)
            if not ((x >= 2.3e-308) & (x <= 1.7e308) & (y > 1e-299) & (y < 1e299)):
                put(to, i, x ** (t if op == tape.POWER else get(b, i)))


@_family
def steps(op, to, a, b, c, s, t, u):  # type: ignore[no-untyped-def]
    """Comparisons and rounding."""
    if op == tape.MINIMUM:
        for i in range(BLOCK):
            x, y = get(a, i), get(b, i)
            put(to, i, x if (x < y) | (x != x) else y)
    elif op == tape.MAXIMUM:
        for i in range(BLOCK):
            x, y = get(a, i), get(b, i)
            put(to, i, x if (x > y) | (x != x) else y)
    elif op == tape.LT:
        for i in range(BLOCK):
            put(to, i, 1.0 if get(a, i) < get(b, i) else 0.0)
    elif op == tape.LE:
        for i in range(BLOCK):
            put(to, i, 1.0 if get(a, i) <= get(b, i) else 0.0)
    elif op == tape.EQ:
        for i in range(BLOCK):
            put(to, i, 1.0 if get(a, i) == get(b, i) else 0.0)
    elif op == tape.SIGN:
        for i in range(BLOCK):
            x = s * get(a, i) + u
            put(to, i, select(x > 0.0, 1.0, select(x < 0.0, -1.0, x)))
    else:
        for i in range(BLOCK):
            put(to, i, np.floor(s * get(a, i) + u))


FAMILIES = {
    tape.EXPM1: exponentials, tape.TANH: exponentials,
    tape.LOG: logarithms, tape.LOG_OR_ZERO: logarithms, tape.LOG1P: logarithms,
    tape.SIN: trigonometry, tape.COS: trigonometry, tape.SINCOS: trigonometry, tape.ARCTAN: arctangent,
    tape.ERF: error_functions, tape.ERFC: error_functions, tape.W: faddeeva,
    tape.POWER: powers, tape.POW: powers,
    tape.MINIMUM: steps, tape.MAXIMUM: steps, tape.LT: steps, tape.LE: steps, tape.EQ: steps,
    tape.SIGN: steps, tape.FLOOR: steps,
}  # fmt: skip
"""Functions of vector instructions; the others are left to `library`."""
SCALARS = {tape.W_REAL: scalar_w, tape.W_IMAG: scalar_w}
"""Functions of scalar instructions; the others are left to `scalar`."""
