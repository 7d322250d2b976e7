"""Functions that formulas and traced functions may call, as expressions.

The tables are defined in `problm.models.expression`, whose nodes look up NumPy's functions in them; this module fills
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from . import expression as ex
from .expression import FUNCTIONS, UFUNCS, Expression, as_expression, constant, make

__all__ = ["FUNCTIONS", "UFUNCS", "voigt"]

_LN2, _LN10 = math.log(2.0), math.log(10.0)
_ROOT2 = math.sqrt(2.0)


def _node(op: str) -> Callable[..., Expression]:
    return lambda *args: make(op, *(as_expression(a) for a in args))


def voigt(x: Any, sigma: Any, gamma: Any) -> Expression:
    """Voigt profile of unit area: SciPy's ``voigt_profile``; the signs of the widths are ignored."""
    scale = _ROOT2 * abs(as_expression(sigma))
    profile = make("w_real", as_expression(x) / scale, abs(as_expression(gamma)) / scale)
    return profile / (math.sqrt(math.pi) * scale)


def _cbrt(x: Any) -> Expression:
    return make("sign", as_expression(x)) * abs(as_expression(x)) ** constant(1.0 / 3.0)


def _fold(op: str) -> Callable[..., Expression]:
    """``min`` and ``max`` of two or more values, or of one sequence."""

    def apply(*args: Any) -> Expression:
        values = list(args[0]) if len(args) == 1 else list(args)
        result = as_expression(values[0])
        for value in values[1:]:
            result = make(op, result, as_expression(value))
        return result

    return apply


_SAME = ("exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "arcsin", "arccos",
         "arctan", "arcsinh", "arccosh", "arctanh", "arctan2", "hypot", "abs", "sign", "floor", "erf", "erfc",
         "minimum", "maximum")  # fmt: skip

FUNCTIONS |= {
    **{name: _node(name) for name in _SAME},
    "ln": _node("log"),
    "asin": _node("arcsin"), "acos": _node("arccos"), "atan": _node("arctan"), "atan2": _node("arctan2"),
    "asinh": _node("arcsinh"), "acosh": _node("arccosh"), "atanh": _node("arctanh"),
    "min": _fold("minimum"), "max": _fold("maximum"),
    "pow": _node("pow"),
    "square": lambda x: as_expression(x) * x,
    "cbrt": _cbrt,
    "exp2": lambda x: 2.0 ** as_expression(x),
    "log2": lambda x: make("log", as_expression(x)) / _LN2,
    "log10": lambda x: make("log", as_expression(x)) / _LN10,
    "ceil": lambda x: -make("floor", -as_expression(x)),
    "mod": ex.mod,
    "radians": lambda x: as_expression(x) * (math.pi / 180.0),
    "degrees": lambda x: as_expression(x) * (180.0 / math.pi),
    "expit": lambda x: 1.0 / (1.0 + make("exp", -as_expression(x))),
    "clip": lambda x, lo, hi: make("minimum", make("maximum", as_expression(x), as_expression(lo)), as_expression(hi)),
    "where": ex.where,
    "voigt": voigt,
}  # fmt: skip

UFUNCS |= {
    **{name: FUNCTIONS[name] for name in (*_SAME, "square", "cbrt", "exp2", "log2", "log10", "ceil", "expit")},
    "add": _node("add"), "subtract": _node("sub"), "multiply": _node("mul"),
    "divide": _node("div"), "true_divide": _node("div"), "power": _node("pow"), "float_power": _node("pow"),
    "negative": _node("neg"), "positive": as_expression, "absolute": _node("abs"), "fabs": _node("abs"),
    "reciprocal": lambda x: 1.0 / as_expression(x),
    "fmin": _node("minimum"), "fmax": _node("maximum"), "remainder": ex.mod,
    "radians": FUNCTIONS["radians"], "deg2rad": FUNCTIONS["radians"],
    "degrees": FUNCTIONS["degrees"], "rad2deg": FUNCTIONS["degrees"],
    "less": _node("lt"), "less_equal": _node("le"), "equal": _node("eq"),
    "greater": lambda x, y: make("lt", as_expression(y), as_expression(x)),
    "greater_equal": lambda x, y: make("le", as_expression(y), as_expression(x)),
    "not_equal": lambda x, y: 1.0 - make("eq", as_expression(x), as_expression(y)),
    "logical_and": lambda x, y: as_expression(x) * y, "bitwise_and": lambda x, y: as_expression(x) * y,
    "logical_or": _node("maximum"), "bitwise_or": _node("maximum"),
    "logical_not": lambda x: 1.0 - as_expression(x), "invert": lambda x: 1.0 - as_expression(x),
    "heaviside": lambda x, h: ex.where(as_expression(x) == 0.0, h, ex.where(as_expression(x) < 0.0, 0.0, 1.0)),
    "voigt_profile": voigt,
}  # fmt: skip
