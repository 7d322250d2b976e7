"""Recording a Python function as expressions, by calling it with them.

`Expression` overloads operators and, through NumPy's protocols, NumPy's functions. The functions of ``math`` want
numbers, so the function is run with other globals: in a copy of its namespace (and of those of the functions
that it calls) ``math``, the names imported from it and the built-in ``min``, ``max`` and ``round`` are replaced by
versions that also take expressions. Nothing is executed that the function itself does not execute.

What depends on a traced value as a number (``if``, ``while``, ``float(x)``) cannot be recorded: `TraceError`. The
caller then compiles the function instead (`problm.models.numba_function`).
"""

from __future__ import annotations

import builtins
import contextlib
import math
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import expression as ex
from .expression import Expression, TraceError, as_expression, constant, make

_LN2, _LN10 = math.log(2.0), math.log(10.0)
_ROOT2 = math.sqrt(2.0)


def _node(op: str) -> Callable[..., Expression]:
    return lambda *args: make(op, *(as_expression(a) for a in args))


def voigt(x: Any, sigma: Any, gamma: Any) -> Expression:
    """Voigt profile of unit area: SciPy's ``voigt_profile``; widths count by their absolute value."""
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

FUNCTIONS: dict[str, Callable[..., Expression]] = {
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
"""Functions of formulas, by name; also what NumPy's and ``math``'s functions of these names become."""

_UFUNCS: dict[str, Callable[..., Any]] = {
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


def call_ufunc(ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    """What ``__array_ufunc__`` returns: an expression, or an object array of them where an input is an array."""
    apply = _UFUNCS.get(ufunc.__name__)
    if apply is None or method != "__call__" or options:
        raise TraceError(f"numpy's {ufunc.__name__} cannot be recorded")
    if not any(isinstance(v, np.ndarray) and v.ndim for v in inputs):
        return apply(*inputs)
    boxes = []
    for value in inputs:
        box = np.empty(np.shape(value) if isinstance(value, np.ndarray) else (), dtype=object)
        box[...] = value
        boxes.append(box)
    return np.frompyfunc(apply, len(inputs), 1)(*boxes)


def call_array_function(function: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """What ``__array_function__`` returns: NumPy's functions that are not ufuncs."""
    name = getattr(function, "__name__", "?")
    if name in ("where", "clip") and len(args) == 3 and not options:
        return FUNCTIONS[name](*args)
    if name in ("real", "copy", "asarray") and len(args) == 1:
        return args[0]
    raise TraceError(f"numpy.{name} cannot be recorded")


def _recording(original: Callable[..., Any], symbolic: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        traced = any(isinstance(v, Expression) for a in args for v in (a if isinstance(a, list | tuple) else (a,)))
        return symbolic(*args) if traced else original(*args)

    return call


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Rules:
    """What a function sees in place of some objects in its namespace, found by identity."""

    objects: dict[int, Any]
    builtins: dict[str, Any] = field(default_factory=dict)
    wrap: Callable[[Any], Any] = _same
    """Applied to the functions that it calls."""


class _Math:
    """The module ``math`` as the traced function sees it."""

    def __getattr__(self, name: str) -> Any:
        return _MATH[name] if name in _MATH else getattr(math, name)


_MATH = {name: _recording(getattr(math, name), f) for name, f in FUNCTIONS.items() if hasattr(math, name)}
_MATH["fabs"] = _recording(math.fabs, FUNCTIONS["abs"])
_MATH["fmod"] = _recording(math.fmod, lambda x, y: x - make("sign", x / y) * make("floor", abs(x / y)) * y)
RECORDING = Rules(
    {id(math): _Math()} | {id(getattr(math, name)): replacement for name, replacement in _MATH.items()},
    {"min": _recording(min, FUNCTIONS["min"]), "max": _recording(max, FUNCTIONS["max"])},
)


def names_in(code: types.CodeType) -> set[str]:
    """Global names and attributes in a function's code, and in the functions inside it."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*(names_in(c) for c in inner))


def instrumented(
    function: Callable[..., Any], rules: Rules = RECORDING, _seen: dict[int, Any] | None = None
) -> Callable[..., Any]:
    """The same function in a namespace with other objects, also for the functions that it calls."""
    seen = {} if _seen is None else _seen

    def convert(value: Any) -> Any:
        if id(value) in rules.objects:
            return rules.objects[id(value)]
        plain = getattr(value, "py_func", value)  # a function compiled by Numba
        if isinstance(plain, types.FunctionType) and _own(plain):
            return rules.wrap(instrumented(plain, rules, seen))
        return value

    function = getattr(function, "py_func", function)
    if isinstance(function, types.MethodType):
        return types.MethodType(instrumented(function.__func__, rules, seen), function.__self__)
    if not isinstance(function, types.FunctionType):
        return function
    if id(function) in seen:
        return seen[id(function)]  # type: ignore[no-any-return]
    scope = dict(function.__globals__)
    cells = tuple(types.CellType() for _ in function.__closure__ or ())
    copy = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__, cells or None)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__module__ = function.__module__
    seen[id(function)] = copy
    for name in names_in(function.__code__):
        if name in scope:
            scope[name] = convert(scope[name])
        elif name in rules.builtins and hasattr(builtins, name):
            scope[name] = rules.builtins[name]
    for cell, original in zip(cells, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # an empty cell
            cell.cell_contents = convert(original.cell_contents)
    return copy


def _own(function: types.FunctionType) -> bool:
    """Whether to look inside: libraries with an ``__array_function__`` of their own are left alone."""
    return (function.__module__ or "").split(".")[0] not in ("numpy", "scipy", "numba")


def trace(function: Callable[..., Any], *args: Any) -> Any:
    """Call the function with expressions in its arguments; `TraceError` says why it cannot be recorded."""
    try:
        return instrumented(function)(*args)
    except TraceError:
        raise
    except Exception as error:
        raise TraceError(f"{type(error).__name__}: {error}") from error


def outputs(value: Any) -> list[Expression]:
    """What a traced function returned as a flat list of expressions."""
    if isinstance(value, np.ndarray | list | tuple):
        return [e for part in value for e in outputs(part)]
    return [as_expression(value)]
