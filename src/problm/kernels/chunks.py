"""Chunks of rows, and parts of the work for threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise

from ..support.threads import available_threads, pool

CHUNK = 32768
"""Number of rows whose sums are accumulated one after the other."""


def split(run: Callable[[int, int], None], count: int, rows: int, threads: int | None) -> None:
    """Call ``run(lo, hi)`` for parts of ``count`` pieces of so many rows, one part per thread."""
    most = count * rows // CHUNK
    threads = min(threads or available_threads(), most) if most > 1 else 1
    cuts = [count * t // max(threads, 1) for t in range(max(threads, 1) + 1)]
    jobs = [pool(os.getpid()).submit(run, a, b) for a, b in pairwise(cuts[1:])]
    run(cuts[0], cuts[1])
    for job in jobs:
        job.result()
