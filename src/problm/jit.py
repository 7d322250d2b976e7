"""Numba's ``njit`` as the package uses it: compiled once, kept on disk, and honest about both.

Functions with explicit signatures are compiled, or loaded from the cache, when their module is imported. Where no
cache folder can be written (a read-only installation without a home folder, a full disk) they are compiled in every
process instead, and a message says how to change that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from numba import njit as _njit

log = logging.getLogger("problm")
_COMPILING_AFTER = 0.5  # seconds for one function: loading from the cache takes a few milliseconds
_told: set[str] = set()


def njit(*signature: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit(cache=True, ...)`` that falls back to compiling without a cache."""
    options.setdefault("cache", True)

    def decorate(function: Callable[..., Any]) -> Any:
        began = time.perf_counter()
        try:
            compiled = _njit(*signature, **options)(function)
        except (RuntimeError, OSError) as error:  # an OSError: the disk of the cache is full, or has gone
            if isinstance(error, RuntimeError) and "cannot cache" not in str(error):
                raise
            _tell("cache", "compiled code cannot be kept, as no cache folder is writable: compiling in every process. "
                  "Set NUMBA_CACHE_DIR to a writable folder with room.")  # fmt: skip
            compiled = _njit(*signature, **{**options, "cache": False})(function)
        # The first function loaded from the cache starts LLVM, which can take as long.
        if compiled.stats.cache_misses and time.perf_counter() - began > _COMPILING_AFTER:
            _tell("compiling", "compiling for this machine, once: some seconds, for image geometry up to a minute.")
        return compiled

    return decorate


def _tell(key: str, message: str) -> None:
    if key not in _told:
        _told.add(key)
        log.warning("problm: %s", message)
