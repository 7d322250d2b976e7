r"""From an essential matrix to the pose: decomposition, cheirality, covariance.

``E = [t] R`` has four decompositions, (R_a, +-t) and (R_b, +-t), R_b being R_a turned by pi about t. Only one
puts the points in front of both cameras. A match of rays u1 = (x1, 1), u2 = (x2, 1) with ``d2 u2 = d1 R u1 +
t`` has

    d1 = (u2 x t).(R u1 x u2) / |R u1 x u2|^2,   d2 = (R u1 x t).(R u1 x u2) / |R u1 x u2|^2 ,

so two signs decide; the points vote.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..manifolds import compiled

Array = NDArray[np.float64]


def decompose_essential(E: ArrayLike) -> tuple[Array, Array, Array]:
    """The two rotations and the unit translation of an essential matrix.

    Returns
    -------
    (R_a, R_b, t): E ~ [t] R_a ~ [t] R_b, up to sign; poses are (R_a, t), (R_a, -t), (R_b, t), (R_b, -t).

    Examples
    --------
    >>> from problm.manifolds import skew
    >>> Ra, Rb, t = decompose_essential(skew([1.0, 0.0, 0.0]) @ np.eye(3))
    >>> np.allclose(Ra, np.eye(3)) or np.allclose(Rb, np.eye(3)), np.allclose(np.abs(t), [1, 0, 0])
    (True, True)
    """
    U, _, Vt = np.linalg.svd(np.asarray(E, dtype=np.float64))
    W = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    # det(U W V') = det U det V, which is 1 or -1: the sign of E is free.
    sign = np.linalg.det(U) * np.linalg.det(Vt)
    return sign * (U @ W @ Vt), sign * (U @ W.T @ Vt), U[:, 2].copy()


@compiled
def _before_both(R, t, rays, out):  # type: ignore[no-untyped-def]
    """Whether each match (x1, y1, x2, y2) lies before both cameras of the pose; returns how many."""
    count = 0
    for i in range(rays.shape[0]):
        a, b, c, d = rays[i, 0], rays[i, 1], rays[i, 2], rays[i, 3]
        x = R[0, 0] * a + R[0, 1] * b + R[0, 2]
        y = R[1, 0] * a + R[1, 1] * b + R[1, 2]
        z = R[2, 0] * a + R[2, 1] * b + R[2, 2]
        nx, ny, nz = y - z * d, z * c - x, x * d - y * c  # R u1 x u2
        first = (d * t[2] - t[1]) * nx + (t[0] - c * t[2]) * ny + (c * t[1] - d * t[0]) * nz
        second = (y * t[2] - z * t[1]) * nx + (z * t[0] - x * t[2]) * ny + (x * t[1] - y * t[0]) * nz
        out[i] = first > 0.0 and second > 0.0
        count += out[i]
    return count


def in_front(R: ArrayLike, t: ArrayLike, rays: Array) -> NDArray[np.bool_]:
    """(n,) whether each match, calibrated coordinates x1 y1 x2 y2, lies before both cameras of the pose."""
    out = np.empty(len(rays), dtype=np.bool_)
    _before_both(np.ascontiguousarray(R), np.ascontiguousarray(t), np.ascontiguousarray(rays), out)
    return out


def resolve_cheirality(E: ArrayLike, rays: Array) -> tuple[Array, Array, float]:
    """The pose of E that puts most points in front of both cameras.

    Parameters
    ----------
    E : (3, 3) essential matrix.
    rays : (n, 4) matches x1 y1 x2 y2 in calibrated coordinates.

    Returns
    -------
    (R, t, share): rotation, unit translation, and the share of the points that lie before both cameras.
    """
    Ra, Rb, direction = decompose_essential(E)
    out = np.empty(len(rays), dtype=np.bool_)
    rays = np.ascontiguousarray(rays, dtype=np.float64)
    best: tuple[int, Array, Array] = (-1, Ra, direction)
    for R in (Ra, Rb):
        for t in (direction, -direction):
            votes = int(_before_both(np.ascontiguousarray(R), np.ascontiguousarray(t), rays, out))
            if votes > best[0]:
                best = (votes, R, t)
    return best[1], best[2], best[0] / max(len(rays), 1)
