r"""From an essential matrix to the pose: decomposition, cheirality, covariance.

``E = [t] R`` has four decompositions, (R_a, +-t) and (R_b, +-t), R_b being R_a rotated by pi about t. Only one puts the
points in front of both cameras. A match of rays u1 = (x1, 1), u2 = (x2, 1) with ``d2 u2 = d1 R u1 + t`` has

    d1 = (u2 x t).(R u1 x u2) / |R u1 x u2|^2,   d2 = (R u1 x t).(R u1 x u2) / |R u1 x u2|^2 ,

so two signs decide. The points vote.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...jit import types
from ...manifolds import as_rotation, compiled, internal

_f8 = types.float64

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


@compiled(_f8[::1](_f8[:, ::1]))
def pose_of_essential(E):  # type: ignore[no-untyped-def]
    """A pose (R, t), (12,), of an essential matrix (3, 3) that is one to rounding: Horn (1990), without an SVD.

    The cofactors of ``E = [t] R`` are ``t (R't)'``, of rank one, and ``R = (cofactors - [t] E) / |t|^2``.
    """
    C, Y = np.empty((3, 3)), np.empty((3, 3))
    norm = 0.0
    for i in range(3):
        for j in range(3):
            a, b, c, d = (i + 1) % 3, (i + 2) % 3, (j + 1) % 3, (j + 2) % 3
            C[i, j] = E[a, c] * E[b, d] - E[a, d] * E[b, c]
            norm += 0.5 * E[i, j] * E[i, j]
    best, at = -1.0, 0
    for j in range(3):
        length = C[0, j] * C[0, j] + C[1, j] * C[1, j] + C[2, j] * C[2, j]
        if length > best:
            best, at = length, j
    out = np.empty(12)
    for i in range(3):
        out[9 + i] = C[i, at] / np.sqrt(best)
    t0, t1, t2 = out[9], out[10], out[11]
    root = np.sqrt(norm)
    for j in range(3):
        Y[0, j] = C[0, j] / norm - (t1 * E[2, j] - t2 * E[1, j]) / root
        Y[1, j] = C[1, j] / norm - (t2 * E[0, j] - t0 * E[2, j]) / root
        Y[2, j] = C[2, j] / norm - (t0 * E[1, j] - t1 * E[0, j]) / root
    R = as_rotation(Y)[0]
    for j in range(9):
        out[j] = R[j // 3, j % 3]
    return out


@internal
def _depths(R, t, a, b, c, d):  # type: ignore[no-untyped-def]
    """Numbers with the signs of the depths of a match in camera 1 and 2."""
    x = R[0, 0] * a + R[0, 1] * b + R[0, 2]
    y = R[1, 0] * a + R[1, 1] * b + R[1, 2]
    z = R[2, 0] * a + R[2, 1] * b + R[2, 2]
    nx, ny, nz = y - z * d, z * c - x, x * d - y * c  # R u1 x u2
    first = (d * t[2] - t[1]) * nx + (t[0] - c * t[2]) * ny + (c * t[1] - d * t[0]) * nz
    second = (y * t[2] - z * t[1]) * nx + (z * t[0] - x * t[2]) * ny + (x * t[1] - y * t[0]) * nz
    return first, second


@compiled(_f8[:, ::1](_f8[::1]))
def turned_rotation(pose):  # type: ignore[no-untyped-def]
    """The other rotation of a pose's E, (3, 3): rotated by pi about t, (2 t t' - 1) R."""
    R = np.empty((3, 3))
    for j in range(3):
        dot = 2.0 * (pose[9] * pose[j] + pose[10] * pose[3 + j] + pose[11] * pose[6 + j])
        for i in range(3):
            R[i, j] = dot * pose[9 + i] - pose[3 * i + j]
    return R


@compiled(_f8[::1](_f8[::1], _f8[:, ::1], types.boolean[::1]))
def _vote(pose, rays, flags):  # type: ignore[no-untyped-def]
    """The pose with most points in front of both cameras, among the four with the same E as (R, t), (12,).

    Only matches whose flag is set vote, and keep it if they are in front. With -t both depths change their signs.
    """
    n = rays.shape[0]
    sides = np.zeros((2, n), dtype=np.int8)
    votes = np.zeros(4, dtype=np.int64)
    t = pose[9:]
    for turned in range(2):
        R = turned_rotation(pose) if turned else pose[:9].reshape(3, 3)
        for i in range(n):
            if flags[i]:
                first, second = _depths(R, t, rays[i, 0], rays[i, 1], rays[i, 2], rays[i, 3])
                if first > 0.0 and second > 0.0:
                    sides[turned, i] = 1
                    votes[2 * turned] += 1
                elif first < 0.0 and second < 0.0:
                    sides[turned, i] = -1
                    votes[2 * turned + 1] += 1
    k = int(np.argmax(votes))
    side = 1 if k % 2 == 0 else -1
    for i in range(n):
        flags[i] = sides[k // 2, i] == side
    best = pose.copy()
    if k >= 2:
        R = turned_rotation(pose)
        for j in range(9):
            best[j] = R[j // 3, j % 3]
    if side < 0:
        for j in range(3):
            best[9 + j] = -t[j]
    return best


def choose_pose(pose: Array, rays: Array, voters: NDArray[np.bool_] | None = None) -> tuple[Array, NDArray[np.bool_]]:
    """The pose with most points in front of both cameras, among the four with the same E as (R, t), (12,).

    Parameters
    ----------
    rays : (n, 4) matches in calibrated coordinates.
    voters : (n,) matches that count; by default all.

    Returns
    -------
    The pose (12,), with the same numbers if it is the given one, and which of the voters are in front of its cameras.
    """
    flags = np.ones(len(rays), dtype=np.bool_) if voters is None else voters.copy()
    best: Array = _vote(pose, rays, flags)
    return best, flags
