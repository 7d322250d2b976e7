"""Symmetric matrices as packed lower triangles, row by row."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


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


def multiplier(v: Array) -> Array:
    """The matrix (d, d (d + 1) / 2) whose product with a packed triangle is that of the symmetric matrix with v."""
    d = len(v)
    made = np.zeros((d, d * (d + 1) // 2))
    made[np.arange(d)[:, None], places(d)] = v
    return made
