"""Start of affine bundle adjustment: the user's cameras and depths, checked, or a factorisation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...jit import types
from ...jit.njit import njit
from ...manifolds import as_rotation, nearest_rotation

Array = NDArray[np.float64]


def factorise(observations: Array, depths: Array) -> tuple[Array, Array]:
    """Start of the cameras from (C, P, 2) observations alone: rotations (C, 3, 3), translations (C, 3).

    ``m_j d_j = A X_j + T``: with the mean subtracted, the three leading singular vectors span A up to a 3 x 3 matrix,
    which the orthonormality of each camera's two rows fixes (Tomasi and Kanade 1992). The first camera is the identity.
    """
    C = len(observations)
    # In x_j = X_j / d_j: m_j = A x_j + T w_j. The component along w_j is subtracted from every row.
    w = 1.0 / depths
    m = observations.transpose(0, 2, 1).reshape(2 * C, -1)
    T = m @ w / (w @ w)
    basis = np.linalg.svd((m - T[:, None] * w) @ (m - T[:, None] * w).T)[0][:, :3]
    pairs, target = [], []
    for i in range(C):
        a, b = basis[2 * i], basis[2 * i + 1]
        pairs += [_products(a, a), _products(b, b), _products(a, b)]
        target += [1.0, 1.0, 0.0]
    q = np.linalg.lstsq(np.array(pairs), np.array(target), rcond=None)[0]
    metric = np.array([[q[0], q[1], q[2]], [q[1], q[3], q[4]], [q[2], q[4], q[5]]])
    values, vectors = np.linalg.eigh(metric)
    A = basis @ vectors * np.sqrt(np.maximum(values, 1e-6 * abs(values).max()))
    R = np.empty((C, 3, 3))
    for i in range(C):
        rows = A[2 * i : 2 * i + 2] / max(float(np.linalg.norm(A[2 * i : 2 * i + 2])) / np.sqrt(2.0), 1e-12)
        R[i] = nearest_rotation(np.stack([*rows, np.cross(rows[0], rows[1])]))
    t = np.zeros((C, 3))
    t[:, :2] = T.reshape(C, 2)
    return np.array(R @ R[0].T), t


def _products(a: Array, b: Array) -> Array:
    """Coefficients of the six different entries of a symmetric Q in a'Qb."""
    return np.array(
        [a[0] * b[0], a[0] * b[1] + a[1] * b[0], a[0] * b[2] + a[2] * b[0],
         a[1] * b[1], a[1] * b[2] + a[2] * b[1], a[2] * b[2]]
    )  # fmt: skip


def given_cameras(cameras: tuple[ArrayLike, ArrayLike], C: int) -> tuple[Array, Array]:
    """Rotations (C, 3, 3) and translations (C, 3) of the user's, checked."""
    try:
        R, t = (np.array(part, dtype=np.float64) for part in cameras)
    except (TypeError, ValueError):
        raise ValueError(f"cameras must be a pair of rotations ({C}, 3, 3) and translations ({C}, 3)") from None
    if R.shape != (C, 3, 3) or t.shape != (C, 3):
        raise ValueError(f"cameras must be ({C}, 3, 3) rotations and ({C}, 3) translations, got {R.shape}, {t.shape}")
    # Compiled: for so few numbers a call of LAPACK through NumPy takes longer than a step of the solver.
    if not _departure(R, t) <= 1e-4:
        if not (np.isfinite(R).all() and np.isfinite(t).all()):
            raise ValueError("cameras must be finite")
        raise ValueError("cameras: rotations must be rotation matrices, R R' = I and det R = 1")
    return R, t


@njit(types.float64(types.float64[:, :, ::1], types.float64[:, ::1]), nogil=True, error_model="numpy")
def _departure(R, t):  # type: ignore[no-untyped-def]
    """Largest deviation of the matrices from rotations; infinite or NaN if anything is not finite."""
    worst = 0.0
    for c in range(len(R)):
        worst = max(worst, as_rotation(R[c])[1]) + 0.0 * t[c, 0] + 0.0 * t[c, 1] + 0.0 * t[c, 2]
        if not math.isfinite(worst):
            return worst
    return worst


def fixed_depths(depths: ArrayLike | None, points: ArrayLike | None, R: Array | None, t: Array, P: int) -> Array:
    """Depths (P,): given (not looked at yet, see `check_positive`), or the mean over the views of the points', or 1."""
    if depths is not None:
        found = np.asarray(depths, dtype=np.float64)
        if found.shape != (P,):
            raise ValueError(f"depths must have the shape ({P},), got {found.shape}")
        return found
    if points is None or R is None:
        return np.ones(P)
    X = np.asarray(points, dtype=np.float64)
    if X.shape != (P, 3):
        raise ValueError(f"points must have the shape ({P}, 3), got {X.shape}")
    found = X @ R[:, 2].mean(axis=0) + t[:, 2].mean()
    check_positive(found, "points: their mean depths in the cameras")
    return found


def check_positive(depths: NDArray[Any], name: str = "depths") -> None:
    least = float(depths.min())
    if not (least > 0.0 and depths.max() < np.inf):  # a NaN is the least and fails the comparison
        raise ValueError(f"{name} must be positive and finite, got a smallest one of {least}")
