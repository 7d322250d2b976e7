"""Compile everything ahead of time."""

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
    """Summary of a warm-up."""

    functions: int
    compiled: int
    """Number of functions that were compiled now."""
    seconds: float
    size: int
    """Size on disk in bytes."""
    where: Path
    why_no_library: str
    """Why no library could be built; the code is then in Numba's cache, and every process must load Numba. Or empty."""


def missing() -> list[str]:
    """Names of functions without code compiled ahead of time from their present sources."""
    from .build import load_all

    load_all()
    return sorted({name_of(f.py_func) for f in FUNCTIONS if f.signatures and library.code(f.py_func) is None})


def warm_up(jobs: int | None = None, progress: Callable[[int, int], None] | None = None) -> Warmed:
    """Compile every function of the package for this machine that is not compiled yet, in several processes.

    ``progress(done, total)`` is called after each function.
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
