"""Pairwise sums: the rounding error grows with the logarithm of the number of parts, and threads do not change bits.

Parts are added pairwise in their order, like carries of a binary counter, so that only that logarithm of them are in
memory at once. Chunks are cut at fixed positions, so the number of threads does not change the bits.
"""

from __future__ import annotations

import operator
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .threads import pool

Array = NDArray[np.float64]
Sums = tuple[Array, ...]
T = TypeVar("T")


def add_pairwise(
    parts: Iterable[T], add: Callable[[T, T], T] = operator.add, counter: list[tuple[int, T]] | None = None
) -> T:
    """Sum of at least one part, in the order of a binary counter.

    ``counter`` holds the partial sums of an addition that is continued, as (level, sum) with descending levels; it is
    updated while parts are added.

    Examples
    --------
    >>> add_pairwise("abcdefg", lambda left, right: f"({left}{right})")
    '(((ab)(cd))((ef)g))'
    """
    counter = [] if counter is None else counter
    for part in parts:
        level, total = 0, part
        while counter and counter[-1][0] == level:
            total = add(counter.pop()[1], total)
            level += 1
        counter.append((level, total))
    result = counter.pop()[1]
    while counter:
        result = add(counter.pop()[1], result)
    return result


def sum_chunks(function: Callable[[int, int], Sums], n: int, size: int, threads: int = 1) -> Sums:
    """The sum of ``function(lo, hi)`` over [0, n) cut into chunks of ``size``; n >= 1.

    ``function`` returns a tuple of arrays that the sum may overwrite; threads only help if it releases the GIL.

    Examples
    --------
    >>> x = np.arange(10.0)
    >>> sum_chunks(lambda lo, hi: (x[lo:hi].sum(keepdims=True),), 10, 3)
    (array([45.]),)
    """
    if n <= size:
        return function(0, n)
    return add_pairwise(_in_order(function, n, size, threads), _add)


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
