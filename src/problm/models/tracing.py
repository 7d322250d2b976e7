"""Recording a Python function as expressions by calling it with symbols.

`Expression` overloads operators and, through NumPy's protocols, NumPy's functions. The functions of ``math`` require
numbers, so the function is run with other globals: in a copy of its namespace (and of those of the functions that it
calls) ``math``, the names imported from it and the built-in ``min``, ``max`` and ``round`` are replaced by versions
that also take expressions. Nothing is executed that the function itself does not execute.

Code that needs a traced value as a number (``if``, ``while``, ``float(x)``) cannot be recorded and raises `TraceError`.
The caller then compiles the function instead (`problm.models.numba_function`).
"""

from __future__ import annotations

import builtins
import contextlib
import math
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .expression import Expression, TraceError, as_expression, make
from .functions import FUNCTIONS


def _recording(original: Callable[..., Any], symbolic: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        traced = any(isinstance(v, Expression) for a in args for v in (a if isinstance(a, list | tuple) else (a,)))
        return symbolic(*args) if traced else original(*args)

    return call


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Rules:
    """Replacements for objects in a function's namespace, by identity."""

    objects: dict[int, Any]
    builtins: dict[str, Any] = field(default_factory=dict)
    wrap: Callable[[Any], Any] = _same
    """Applied to the functions that the function calls."""


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
        plain = getattr(value, "py_func", value)  # the Python function of one compiled by Numba
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
    """Whether to follow a function; libraries with their own ``__array_function__`` are left alone."""
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
    """The return value of a traced function as a flat list of expressions."""
    if isinstance(value, np.ndarray | list | tuple):
        return [e for part in value for e in outputs(part)]
    return [as_expression(value)]
