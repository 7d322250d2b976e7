"""Selection of one of several functions by number, in compiled code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .njit import part

_part = part(forceinline=True, nogil=True, error_model="numpy")


def by_number(functions: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """``functions[number](*args)`` as a function of number and args; the first function if the number is out of range.

    It is a chain of comparisons into which the functions are inlined; a table of addresses would prevent that. Each
    function is a `problm.jit.njit.part`, and all return the same types.
    """
    first, *others = functions

    @_part
    def chosen(number, *args):  # type: ignore[no-untyped-def]
        return first(*args)

    for k, function in enumerate(others, 1):
        chosen = _choice(k, function, chosen)
    return chosen


def _choice(k: int, function: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    @_part
    def chosen(number, *args):  # type: ignore[no-untyped-def]
        if number == k:
            return function(*args)
        return otherwise(number, *args)

    return chosen
