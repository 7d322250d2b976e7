"""Short messages where compiled code assigns an array of the wrong shape to a slice.

For a message with both shapes, Numba compiles the formatting of numbers as text into every function with such an
assignment: half of the time for all functions of the package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from numba.core.extending import overload
from numba.np import arrayobj

_NAME = "raise_with_shape_context"  # Numba's hook for other messages


@contextmanager
def short_messages() -> Iterator[None]:
    """Context in which functions are compiled with short messages."""
    before = getattr(arrayobj, _NAME, None)
    if before is None:
        yield
        return
    setattr(arrayobj, _NAME, _raiser())
    try:
        yield
    finally:
        setattr(arrayobj, _NAME, before)


@lru_cache(maxsize=1)
def _raiser() -> Callable[..., Any]:
    """A function that raises the error, for compiled code."""

    def refuse(source: Any, place: Any) -> Any:
        raise NotImplementedError

    @overload(refuse)
    def _(source: Any, place: Any) -> Any:
        def compiled(source: Any, place: Any) -> Any:
            raise ValueError("an array of another shape was assigned to a slice")

        return compiled

    return refuse
