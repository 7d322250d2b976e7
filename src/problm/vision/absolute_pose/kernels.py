r"""Compiled reprojection errors of one camera, with derivatives by its pose and its focal length.

A point X of the scene is seen at the pixel ``(fx u' + cx, fy v' + cy)``, where ``(u, v) = (x / z, y / z)`` of ``(x, y,
z) = R X + t`` and (u', v') is (u, v) after the distortion of the lens (`problm.vision.bundle.camera_models`).

**Parameters.** Far from the origin a rotation moves all points alike, as a translation does. So the point of the
manifold is ``[R, s]`` with ``R X + t = R (X - c) + a s``, where c is the middle of the points and a their size; with an
unknown focal length also its logarithm, relative to a nominal one. The tangent parameters are ``exp([w]) R``, ``s +
ds``, ``log f + df``.

**Encoded point.** What the evaluators read is laid out as an image's row in `problm.vision.bundle.projection`: R (9), t
(3), the intrinsics (``PLACES``) and the number of the distortion; then ``a s`` (3), a, and the number of focal
parameters (0 or 1).
"""

from __future__ import annotations

import numpy as np

from ...jit import types
from ...kernels.kernel import evaluator
from ...manifolds import compiled, internal, rotate
from ..bundle.camera_models import PLACES
from ..bundle.projection import NUMBER, POSE, coefficients, distorted

_f8 = types.float64

SHIFT = NUMBER + 1
"""Index of ``a s`` in the encoded point; a and the number of focal parameters follow."""
SIZE = NUMBER + 6
FRAME = PLACES + 6
"""Numbers of a frame: c (3), a, the number of focal parameters, the intrinsics and the number of the distortion."""


@compiled(_f8[::1](_f8[::1], _f8[:, ::1], _f8[:, ::1]))
def encode_pose(theta, frame, unused):  # type: ignore[no-untyped-def]
    """Encoded point of ``[R, s]`` (12,) or ``[R, s, log f]`` (13,) in a ``frame`` (1, FRAME)."""
    out = np.empty(SIZE)
    a = frame[0, 3]
    for j in range(9):
        out[j] = theta[j]
    for i in range(3):
        out[SHIFT + i] = a * theta[9 + i]
        out[9 + i] = out[SHIFT + i]
        for j in range(3):
            out[9 + i] -= theta[3 * i + j] * frame[0, j]
    out[SHIFT + 3] = a
    out[SHIFT + 4] = frame[0, 4]
    for j in range(PLACES + 1):
        out[POSE + j] = frame[0, 5 + j]
    if theta.shape[0] > 12:
        grown = np.exp(theta[12])
        out[POSE] *= grown
        out[POSE + 1] *= grown
    return out


@compiled(_f8[::1](_f8[::1], _f8[::1]))
def move_pose(theta, delta):  # type: ignore[no-untyped-def]
    """Move ``[R, s]`` or ``[R, s, log f]`` by a rotation vector, a shift, and a change of log f."""
    out = np.empty(theta.shape[0])
    R = rotate(theta[:9], delta[:3])
    for j in range(9):
        out[j] = R[j]
    for j in range(9, theta.shape[0]):
        out[j] = theta[j] + delta[j - 6]
    return out


@internal
def _write(out, i, d, c, by_u, by_v, u, v, p, q, r, a):  # type: ignore[no-untyped-def]
    """Derivatives of residual c of row i by w and s.

    ``by_u`` and ``by_v`` are those by u and v, over z; (p, q, r) is the rotated point ``R (X - c)``.
    """
    at = 2 + c * d
    by_z = -(by_u * u + by_v * v)
    out[at, i] = by_z * q - by_v * r
    out[at + 1, i] = by_u * r - by_z * p
    out[at + 2, i] = by_v * p - by_u * q
    out[at + 3, i] = a * by_u
    out[at + 4, i] = a * by_v
    out[at + 5, i] = a * by_z


@evaluator
def pinhole_evaluator(theta, rows, m, program, constants, jacobian, out):  # type: ignore[no-untyped-def]
    """Reprojection error without distortion; rows: x, y, X, Y, Z and, optionally, the root of the weight."""
    R0, R1, R2, R3, R4, R5 = theta[0], theta[1], theta[2], theta[3], theta[4], theta[5]
    R6, R7, R8, t0, t1, t2 = theta[6], theta[7], theta[8], theta[9], theta[10], theta[11]
    fx, fy, cx, cy = theta[POSE], theta[POSE + 1], theta[POSE + 2], theta[POSE + 3]
    s0, s1, s2, a = theta[SHIFT], theta[SHIFT + 1], theta[SHIFT + 2], theta[SHIFT + 3]
    focal = theta[SHIFT + 4] > 0.0
    d = 7 if focal else 6
    weighted = rows.shape[0] > 5
    for i in range(m):
        w = rows[5, i] if weighted else 1.0
        X, Y, Z = rows[2, i], rows[3, i], rows[4, i]
        z = R6 * X + R7 * Y + R8 * Z + t2
        over = 1.0 / z
        u = (R0 * X + R1 * Y + R2 * Z + t0) * over
        v = (R3 * X + R4 * Y + R5 * Z + t1) * over
        out[0, i] = w * (fx * u + cx - rows[0, i])
        out[1, i] = w * (fy * v + cy - rows[1, i])
        if jacobian != 0:
            p, q, r = u * z - s0, v * z - s1, z - s2
            _write(out, i, d, 0, w * fx * over, 0.0, u, v, p, q, r, a)
            _write(out, i, d, 1, 0.0, w * fy * over, u, v, p, q, r, a)
            if focal:
                out[8, i] = w * fx * u
                out[15, i] = w * fy * v


@evaluator
def distorted_evaluator(theta, rows, m, program, constants, jacobian, out):  # type: ignore[no-untyped-def]
    """Reprojection error with the distortion of the camera; rows as for `pinhole_evaluator`."""
    fx, fy, cx, cy = theta[POSE], theta[POSE + 1], theta[POSE + 2], theta[POSE + 3]
    s0, s1, s2, a = theta[SHIFT], theta[SHIFT + 1], theta[SHIFT + 2], theta[SHIFT + 3]
    focal = theta[SHIFT + 4] > 0.0
    d = 7 if focal else 6
    k, number = coefficients(theta.reshape(1, SIZE), 0), int(theta[NUMBER])
    for i in range(m):
        w = rows[5, i] if rows.shape[0] > 5 else 1.0
        X, Y, Z = rows[2, i], rows[3, i], rows[4, i]
        x = theta[0] * X + theta[1] * Y + theta[2] * Z + theta[9]
        y = theta[3] * X + theta[4] * Y + theta[5] * Z + theta[10]
        z = theta[6] * X + theta[7] * Y + theta[8] * Z + theta[11]
        u, v = x / z, y / z
        (ud, vd), (uu, uv, vu, vv) = distorted(number, u, v, k)
        out[0, i] = w * (fx * ud + cx - rows[0, i])
        out[1, i] = w * (fy * vd + cy - rows[1, i])
        if jacobian != 0:
            over = w / z
            _write(out, i, d, 0, fx * uu * over, fx * uv * over, u, v, x - s0, y - s1, z - s2, a)
            _write(out, i, d, 1, fy * vu * over, fy * vv * over, u, v, x - s0, y - s1, z - s2, a)
            if focal:
                out[8, i] = w * fx * ud
                out[15, i] = w * fy * vd
