"""Small dense solves with symmetric positive (semi-)definite matrices of any rank."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .lapack import dposv

Array = NDArray[np.float64]
_EPS = float(np.finfo(float).eps)
_PIVOT = 1e-7
"""Pivot of a matrix with unit diagonal below which it cannot be distinguished from rounding errors."""


def solve_unit(matrix: Array, right: Array) -> tuple[Array, bool, float]:
    """Solve with a symmetric positive semi-definite matrix of (nearly) unit diagonal, for one or several right sides.

    Returns the solution (of minimum norm if the matrix is singular), whether it is singular, and the smallest pivot
    of its Cholesky factor, about one over the condition of the Jacobian. NaN for a matrix that is not finite.
    """
    if not len(matrix):
        return np.zeros_like(right), False, 1.0
    factor, x, info = dposv(matrix, right)
    pivots = factor.diagonal().tolist() if info == 0 else [0.0]
    pivot = min(pivots) if sum(pivots) < math.inf else 0.0  # a NaN among them fails the comparison
    if pivot > _PIVOT:
        return x, False, pivot
    if not np.isfinite(matrix).all() or not np.isfinite(right).all():
        return np.full_like(right, np.nan), True, 0.0
    values, vectors = np.linalg.eigh(matrix)
    keep = values > values[-1] * len(values) * _EPS
    basis = vectors[:, keep]
    inner = basis.T @ right
    inner = inner / (values[keep] if inner.ndim == 1 else values[keep][:, None])
    return basis @ inner, not bool(keep.all()), pivot


def inverse_spd(matrix: Array) -> tuple[Array, bool]:
    """Inverse of a symmetric positive definite matrix, or the pseudo-inverse with ``True`` when singular.

    The matrix is scaled to a unit diagonal first, so that the rank does not depend on the units of the parameters.
    """
    diagonal = matrix.diagonal()
    entries = diagonal.tolist()
    largest = max(entries, default=0.0)
    if not largest > 0.0:
        return np.zeros_like(matrix), True
    factor, inverse, info = dposv(matrix, identity(len(matrix)))
    if info == 0 and all(p > _PIVOT * math.sqrt(h) for p, h in zip(factor.diagonal().tolist(), entries, strict=True)):
        return 0.5 * (inverse + inverse.T), False  # Cholesky pivots scale with the units of the parameters
    if not min(entries) > 0.0:
        diagonal = np.where(diagonal > 0.0, diagonal, largest)
    scale = 1.0 / np.sqrt(diagonal)
    both = scale * scale[:, None]
    inverse, singular, _ = solve_unit(matrix * both, identity(len(matrix)))
    inverse *= both
    return 0.5 * (inverse + inverse.T), singular


@lru_cache(maxsize=64)
def identity(d: int) -> Array:
    """The identity matrix; do not write to it."""
    return np.eye(d)
