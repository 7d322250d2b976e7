"""Numba's ``njit`` as the package uses it: compiled once, kept on disk, and honest about both.

Functions with explicit signatures are compiled, or loaded from the cache, when their module is imported; with
``lazy=True`` when they are first used. Where no cache folder can be written (a read-only installation without a home
folder, a full disk) they are compiled in every process instead, and a message says how to change that.

Half of the time to compile a short function goes into its entries for Python and for C. No function here is called
from C, and most only by other compiled functions: those are a `part` of their callers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import cached_property
from types import FunctionType
from typing import Any

from numba import njit as _njit
from numba.extending import register_jitable

from .cache import Cache
from .sources import OPTIONS, text

log = logging.getLogger("problm")
_COMPILING_AFTER = 0.5  # seconds in all: loading a function from the cache takes a few milliseconds
_told: set[str] = set()
_compiling = 0.0


def njit(*signature: Any, lazy: Any = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit``, with a cache that notices every change (`problm.jit.cache`).

    With a signature and ``lazy`` the function is compiled when it is first called or its address is asked for; it
    cannot be called by compiled code.
    """
    options = {"no_cfunc_wrapper": True, **options}

    def decorate(function: Any) -> Any:
        setattr(function, OPTIONS, text((signature, options)))
        return Lazy(function, signature, options) if lazy else _compiled(function, signature, options)

    return decorate


def _compiled(function: FunctionType, signature: tuple[Any, ...], options: dict[str, Any]) -> Any:
    global _compiling
    began = time.perf_counter()
    dispatcher = _njit(**options)(function)
    dispatcher._cache = Cache(function, _tell)
    for types in signature:
        dispatcher.compile(types)
    if signature:
        dispatcher.disable_compile()
    # The first function loaded from the cache starts LLVM, which can take as long.
    if dispatcher.stats.cache_misses:
        _compiling += time.perf_counter() - began
        if _compiling > _COMPILING_AFTER:
            _tell("compiling", "compiling for this machine, once: some seconds, for image geometry up to a minute.")
    return dispatcher


class Lazy:
    """A function that is compiled, or loaded from the cache, when it is first used."""

    def __init__(self, function: FunctionType, signature: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.py_func = function
        self.__doc__ = function.__doc__
        self._how = signature, options

    @cached_property
    def compiled(self) -> Any:
        """The compiled function."""
        return _compiled(self.py_func, *self._how)

    def __call__(self, *args: Any) -> Any:
        return self.compiled(*args)

    def get_compile_result(self, signature: Any) -> Any:
        """Numba's, for `problm.jit.addresses.address_of`."""
        return self.compiled.get_compile_result(signature)


def part(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function for compiled callers only: compiled and kept with each of them, without an entry for Python.

    It is compiled once for all callers with the same options, and takes from them those that are not given.
    """
    options = {"no_cfunc_wrapper": True, **options}

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(function, OPTIONS, text(options))
        register_jitable(**options)(function)
        return function

    return decorate


def _tell(key: str, message: str) -> None:
    if key not in _told:
        _told.add(key)
        log.warning("problm: %s", message)
