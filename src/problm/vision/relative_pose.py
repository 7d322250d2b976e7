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


@compiled
def _vote(pose, rays, out):  # type: ignore[no-untyped-def]
    """Of the four poses with the same E as (R, t), (12,), the one with most points before both cameras."""
    best, most = pose.copy(), -1
    flags = np.empty(rays.shape[0], dtype=np.bool_)
    for turned in range(2):
        R = pose[:9].copy().reshape(3, 3)
        if turned:  # by pi about t: (2 t t' - 1) R
            for j in range(3):
                dot = 2.0 * (pose[9] * pose[j] + pose[10] * pose[3 + j] + pose[11] * pose[6 + j])
                for i in range(3):
                    R[i, j] = dot * pose[9 + i] - pose[3 * i + j]
        for sign in (1.0, -1.0):
            t = sign * pose[9:]
            votes = _before_both(R, t, rays, flags)
            if votes > most:
                most = votes
                best[:9], best[9:] = R.reshape(9), t
                out[:] = flags
    return best


def choose_pose(pose: Array, rays: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Of the four poses that share their E with (R, t), (12,), the one that puts most points before both cameras.

    Returns the pose, (12,), the same numbers if it is the one given, and whether each match is before its cameras.
    """
    out = np.zeros(len(rays), dtype=np.bool_)
    best: Array = _vote(pose, rays, out)
    return best, out


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
    R, _, t = decompose_essential(E)
    best, front = choose_pose(np.concatenate([R.ravel(), t]), np.ascontiguousarray(rays, dtype=np.float64))
    return best[:9].reshape(3, 3), best[9:], float(front.mean()) if len(front) else 0.0
