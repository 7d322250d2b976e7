"""Compile everything now, so that nothing is compiled later."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from . import library
from .folder import folder
from .library import name_of
from .njit import FUNCTIONS


class Warmed(NamedTuple):
    """What there is when everything is compiled."""

    functions: int
    compiled: int
    """Of them, how many were not before."""
    seconds: float
    size: int
    """Bytes on disk."""
    where: Path
    why_no_library: str
    """Why the code is in Numba's cache, which every process has to load Numba for; or empty."""


def missing() -> list[str]:
    """Names of the functions that have no code ahead of time, or that of other sources."""
    from .build import load_all

    load_all()
    return sorted({name_of(f.py_func) for f in FUNCTIONS if f.signatures and library.code(f.py_func) is None})


def warm_up(jobs: int | None = None, progress: Callable[[int, int], None] | None = None) -> Warmed:
    """Compile every function of the package for this machine, in several processes, or find that it is done.

    ``progress(done, total)`` is told about each function.
    """
    from .build import build, compile_into_cache

    began = time.perf_counter()
    lacking = missing()
    total = len({name_of(f.py_func) for f in FUNCTIONS if f.signatures})
    reason = ""
    if lacking:
        try:
            build(jobs=jobs, progress=progress)
        except (RuntimeError, OSError) as error:
            reason = str(error)
            compile_into_cache(lacking, jobs, progress)
        library.forget()
    found = [] if reason else library.candidates()[:1]
    where = found[0] if found else folder()
    size = where.stat().st_size if found else sum(p.stat().st_size for p in where.glob("*.nbc"))
    return Warmed(total, len(lacking), time.perf_counter() - began, size, where, reason)
