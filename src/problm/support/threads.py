"""Number of available cores, and the pool of threads."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache


def available_threads() -> int:
    """Number of cores that this process may use, or fewer if OMP_NUM_THREADS or NUMBA_NUM_THREADS limit it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        text = os.environ.get(name, "")
        if text.isdigit() and int(text) > 0:
            cores = min(cores, int(text))
    return cores


@lru_cache(maxsize=1)
def pool(process: int) -> ThreadPoolExecutor:
    """The thread pool of a process, by process id: a forked process needs its own."""
    return ThreadPoolExecutor(max_workers=max(8, available_threads()), thread_name_prefix="problm")
