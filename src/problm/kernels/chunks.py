"""Chunks of rows, parts of the work for threads, and packed symmetric matrices: what all passes share."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..support.threads import available_threads, pool

Array = NDArray[np.float64]
CHUNK = 32768
"""Number of rows whose sums are accumulated one after the other."""


@lru_cache(maxsize=64)
def places(d: int, at: int = 0) -> NDArray[np.intp]:
    """Index of each entry of a symmetric (d, d) matrix in its packed lower triangle, which starts at ``at``."""
    x, y = np.indices((d, d))
    row, column = np.maximum(x, y), np.minimum(x, y)
    found: NDArray[np.intp] = at + row * (row + 1) // 2 + column
    return found


def square(lower: Array, d: int) -> Array:
    """A symmetric (d, d) matrix from its packed lower triangle."""
    return lower.take(places(d))


def split(run: Callable[[int, int], None], count: int, rows: int, threads: int | None) -> None:
    """Call ``run(lo, hi)`` for parts of ``count`` pieces of so many rows, one part per thread."""
    most = count * rows // CHUNK
    threads = min(threads or available_threads(), most) if most > 1 else 1
    cuts = [count * t // max(threads, 1) for t in range(max(threads, 1) + 1)]
    jobs = [pool(os.getpid()).submit(run, a, b) for a, b in pairwise(cuts[1:])]
    run(cuts[0], cuts[1])
    for job in jobs:
        job.result()
