"""Functions as they are now: what is compiled once for a function must not outlive a change of what it refers to.

JAX compiles a function once, with the values of globals, closures and attributes that it found. Used again after ``k =
3``, it would silently fit with the old k. `as_it_is_now` gives another function object in that case, to which nothing
that is kept for the old one belongs.
"""

from __future__ import annotations

import functools
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...support.caller import names_in
from ...support.digest import digest

_KEPT = 16
_MOST = 200
"""Largest number of objects that are looked at: a function of a large library is not followed through it."""
_NUMBERS = (bool, int, float, complex, str, bytes, np.generic, type(None))
_kept: OrderedDict[Any, tuple[Any, Callable[..., Any]]] = OrderedDict()
"""The last functions, with what they referred to and what was made of them."""


class _Same:
    """Equal to the same object only. It keeps the object, whose address is therefore not used again."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    __hash__ = None  # type: ignore[assignment]


class Now:
    """A function, as an object of its own."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self._fun = fun

    def __call__(self, *args: Any) -> Any:
        return self._fun(*args)


def as_it_is_now(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls ``fun``: the same object as the last time unless what ``fun`` refers to has changed."""
    key: Any = getattr(fun, "__func__", None), getattr(fun, "__self__", fun)  # methods of equal objects are the same
    try:
        hash(key)
    except TypeError:
        key = key[0], id(key[1])
    state = _state(fun, set())
    if key not in _kept or _kept[key][0] != state:
        _kept[key] = state, Now(fun)
        if len(_kept) > _KEPT:
            _kept.popitem(last=False)
    _kept.move_to_end(key)
    return _kept[key][1]


def _state(value: Any, seen: set[int]) -> Any:
    """Numbers, arrays and code by value, in containers, closures, globals and attributes; other objects by identity."""
    if isinstance(value, _NUMBERS):
        return type(value), repr(value)
    if id(value) in seen or len(seen) >= _MOST:
        return _Same(value)
    seen.add(id(value))
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return digest([np.atleast_1d(value)])
    if isinstance(value, types.FunctionType):
        return [_Same(value.__code__), *[_state(part, seen) for part in _referred(value)]]
    parts = _parts(value)
    return _Same(value) if parts is None else [type(value), *[_state(part, seen) for part in parts]]


def _referred(function: types.FunctionType) -> Iterator[Any]:
    """Defaults, closure, and globals that the code names, with the numbers that it takes from modules."""
    yield from (function.__defaults__, function.__kwdefaults__)
    for cell in function.__closure__ or ():
        if cell != types.CellType():  # an empty cell
            yield cell.cell_contents
    names = set(names_in(function.__code__))
    for name in sorted(names & function.__globals__.keys()):
        found = function.__globals__[name]
        yield found
        if isinstance(found, types.ModuleType):
            yield from (v for n in sorted(names & vars(found).keys()) if isinstance(v := vars(found)[n], _NUMBERS))


def _parts(value: Any) -> list[Any] | None:
    """What an object consists of; None if it is what it is."""
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, dict):
        return [part for item in value.items() for part in item]
    if isinstance(value, type | types.ModuleType) or type(value).__module__.partition(".")[0] in ("jax", "jaxlib"):
        return None  # arrays of JAX do not change
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    parts = [*getattr(value, "__dict__", {}).values(), *[getattr(value, n) for n in slots if hasattr(value, n)]]
    call = getattr(type(value), "__call__", None)  # noqa: B004
    return [*parts, call] if isinstance(call, types.FunctionType) else parts or None
