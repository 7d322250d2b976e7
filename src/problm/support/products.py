"""Products of vectors and of flat matrices, in pieces that are too small for the threads of a BLAS.

OpenBLAS divides a product of two vectors among threads from 10,000 numbers on, one of flat matrices from about half a
million multiplications on. Waking the threads took 20 to 200 ms of a busy machine, for microseconds of work.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_NUMBERS = 8192
"""Length of a piece of a vector."""
_WORK = 400_000
"""Multiplications in a piece of a product of matrices."""
_ROWS = 40
"""Number of rows from which threads pay."""


def dot(a: Array, b: Array) -> float:
    """Sum of the products of two arrays of the same size."""
    if a.size <= _NUMBERS:
        return float(a.dot(b) if a.ndim == b.ndim == 1 else np.vdot(a, b))
    a, b = a.reshape(-1), b.reshape(-1)
    return sum([float(a[lo : lo + _NUMBERS].dot(b[lo : lo + _NUMBERS])) for lo in range(0, a.size, _NUMBERS)])


def times(a: Array, b: Array) -> Array:
    """``a @ b`` for a flat matrix a (d, n) and a vector (n,) or matrix (n, d)."""
    d, n = a.shape
    piece = n if d > _ROWS else _WORK // max(d * d, 1)
    if n <= piece:
        return a.dot(b)  # type: ignore[no-any-return]
    total = a[:, :piece].dot(b[:piece])
    for lo in range(piece, n, piece):
        total += a[:, lo : lo + piece].dot(b[lo : lo + piece])
    return np.asarray(total)


def combine(a: Array, b: Array) -> Array:
    """``a @ b`` for a small matrix a (d, k) and a flat one b (k, n)."""
    result = np.empty((len(a), b.shape[1]))
    for piece in _pieces(a, b):
        np.matmul(a, b[:, piece], out=result[:, piece])
    return result


def subtract(a: Array, b: Array, rows: Array) -> None:
    """Subtract ``a @ b`` from ``rows`` (d, n), for a small matrix a (d, k) and a flat one b (k, n)."""
    for piece in _pieces(a, b):
        rows[:, piece] -= a @ b[:, piece]


def _pieces(a: Array, b: Array) -> list[slice]:
    (d, k), n = a.shape, b.shape[1]
    length = max(n, 1) if min(d, k) > _ROWS else max(_WORK // max(d * k, 1), 1)
    return [slice(lo, lo + length) for lo in range(0, n, length)]
