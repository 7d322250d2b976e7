"""Sums over chunks of blocks that do not depend on the number of threads.

Chunks are cut at fixed places. Their sums are added pairwise in the order of the chunks, like carries of a
binary counter: the same bits for any number of threads, an error that grows with the logarithm of the number of
chunks, and never more sums in memory than that logarithm and the threads at work.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import numpy as np
from numpy.typing import NDArray

from .threads import pool

Array = NDArray[np.float64]
Sums = tuple[Array, ...]


def sum_chunks(function: Callable[[int, int], Sums], n: int, size: int, threads: int = 1) -> Sums:
    """The sum of ``function(lo, hi)`` over [0, n) cut into chunks of ``size``; n >= 1.

    ``function`` returns a tuple of arrays that the sum may overwrite, and must release the GIL for threads to help.

    Examples
    --------
    >>> x = np.arange(10.0)
    >>> sum_chunks(lambda lo, hi: (x[lo:hi].sum(keepdims=True),), 10, 3)
    (array([45.]),)
    """
    if n <= size:
        return function(0, n)
    counter: list[tuple[int, Sums]] = []  # (level, sums), levels descending
    for sums in _in_order(function, n, size, threads):
        level = 0
        while counter and counter[-1][0] == level:
            sums = _add(counter.pop()[1], sums)
            level += 1
        counter.append((level, sums))
    total = counter.pop()[1]
    while counter:
        total = _add(counter.pop()[1], total)
    return total


def _in_order(function: Callable[[int, int], Sums], n: int, size: int, threads: int) -> Iterator[Sums]:
    cuts = range(0, n, size)
    if threads <= 1:
        for lo in cuts:
            yield function(lo, min(lo + size, n))
        return
    workers = pool(os.getpid())
    waiting: deque[Future[Sums]] = deque()
    for lo in cuts:
        if len(waiting) >= threads:
            yield waiting.popleft().result()
        waiting.append(workers.submit(function, lo, min(lo + size, n)))
    while waiting:
        yield waiting.popleft().result()


def _add(left: Sums, right: Sums) -> Sums:
    for a, b in zip(left, right, strict=True):
        a += b
    return left
