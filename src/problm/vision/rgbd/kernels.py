r"""Compiled residuals of RGB-D odometry: warp by a pose and a depth map, lookup, and exact derivatives.

A row is a pixel of image 1 with its point X in space, from depth map and camera matrix, and its value I1. The point of
the parameters is ``(R, t)`` row by row, (12,), or ``(R, t, a, b)`` with gain a and bias b of image 2, (14,). With
``p = R X + t`` and ``u = pi(K p)`` the residuals, in standard deviations of their noise, are

    light   e = (a I2(u) + b - I1) / sigma_I
    depth   e = (D2(u) - p_3) / sigma_D       (with a depth map of image 2)

and with g the gradient of the interpolant at u, divided by sigma (and times a), they change with p by

    q = (fx g_1, s g_1 + fy g_2, -g . (u - c)) / p_3,      for depth minus (0, 0, 1 / sigma_D) .

The steps are ``R <- exp([w]) R`` and ``t <- t + v``, so ``de = w . (R X x q) + v . q``. Interpolation, and the smooth
change to a constant cost where a pixel leaves image 2 or falls on masked pixels or missing depth, are those of
`problm.vision.alignment.kernels`.
"""

from __future__ import annotations

import numpy as np

from ...jit import types
from ...jit.njit import njit, part
from ...kernels.kernel import BLOCK, FASTMATH, evaluator
from ..alignment import kernels as ak

# Constants after those of alignment, of which band, c2 (the principal point) and the program's plane are used:
# K's other entries, 1 / sigma of each component, and its k, the residual outside.
C_FX, C_SKEW, C_FY = ak.CONSTANTS_SIZE, ak.CONSTANTS_SIZE + 1, ak.CONSTANTS_SIZE + 2
C_PRECISION, C_APART = ak.CONSTANTS_SIZE + 3, ak.CONSTANTS_SIZE + 5
CONSTANTS_SIZE = ak.CONSTANTS_SIZE + 7
FLOAT = ak.TYPES["f4"]

_f8, _f4, _i8 = types.float64, types.float32, types.int64
_inline = {"nogil": True, "error_model": "numpy", "fastmath": FASTMATH}
_FAR = 1e6
_NEAR = 1e-6


@part(**_inline)
def _project(theta, rows, m, constants, work):  # type: ignore[no-untyped-def]
    """1/p_3 to work[2], u, v to work[3:5], R X to work[7:10], p_3 to work[10]."""
    fx, skew, fy, cx, cy = constants[C_FX], constants[C_SKEW], constants[C_FY], constants[ak.C_X2], constants[ak.C_Y2]
    for i in range(m):
        x, y, z = rows[0, i], rows[1, i], rows[2, i]
        a0 = theta[0] * x + theta[1] * y + theta[2] * z
        a1 = theta[3] * x + theta[4] * y + theta[5] * z
        a2 = theta[6] * x + theta[7] * y + theta[8] * z
        p0, p1, p2 = a0 + theta[9], a1 + theta[10], a2 + theta[11]
        # Points behind the camera are moved far outside of the image.
        front = p2 > _NEAR
        reciprocal = 1.0 / p2
        reciprocal = reciprocal if front else 0.0
        u = min(max((fx * p0 + skew * p1) * reciprocal + cx, -_FAR), _FAR)
        v = min(max(fy * p1 * reciprocal + cy, -_FAR), _FAR)
        work[2, i] = reciprocal
        work[3, i] = u if front else -_FAR
        work[4, i] = v
        work[7, i], work[8, i], work[9, i] = a0, a1, a2
        work[10, i] = p2


@evaluator
def rgbd_evaluator(theta, rows, m, program, constants, jacobian, out):  # type: ignore[no-untyped-def]
    """Residuals and derivatives of a block (module docstring); rows: X, value of image 1. The program describes image
    2, and after it depth map 2, if that is used."""
    work = np.empty((18, BLOCK))
    cells = np.empty(BLOCK, dtype=np.int32)
    raw = np.empty((4, BLOCK), dtype=np.int32)
    lit = theta.shape[0] > 12
    gain = theta[12] if lit else 1.0
    bias = theta[13] if lit else 0.0
    d = 8 if lit else 6
    components = program.shape[0] // ak.PROGRAM_SIZE
    fx, skew, fy, cx, cy = constants[C_FX], constants[C_SKEW], constants[C_FY], constants[ak.C_X2], constants[ak.C_Y2]
    _project(theta, rows, m, constants, work)
    ak._cells(m, program[ak.P_WIDTH2], program[ak.P_HEIGHT2], work, cells)
    for c in range(components):
        plane = program[c * ak.PROGRAM_SIZE : (c + 1) * ak.PROGRAM_SIZE]
        ak._border(m, plane, constants, cells, work)
        ak._taps(plane[ak.P_IMAGE2], FLOAT, 1, plane[ak.P_WIDTH2], m, cells, raw)
        precision, k = constants[C_PRECISION + c], constants[C_APART + c]
        light = precision if c == 0 else 0.0
        depth = precision if c == 1 else 0.0
        ak._differentiate(raw.view(np.float32), m, gain * light + depth, work)
        first = components + c * d
        for i in range(m):
            value, weight = work[14, i], work[11, i]
            e = light * (gain * value + bias - rows[3, i]) + depth * (value - work[10, i])
            own, slope = 1.0, 0.0
            if weight < 1.0:
                r = np.sqrt(weight * e * e + (1.0 - weight) * k * k)
                own = weight * e / r if r > 0.0 else 0.0
                slope = 0.5 * (e * e - k * k) / r if r > 0.0 else 0.0
                e = r
            out[c, i] = e
            if jacobian != 0:
                z = work[2, i]
                gu = own * work[15, i] + slope * work[12, i]
                gv = own * work[16, i] + slope * work[13, i]
                q0, q1 = fx * gu * z, (skew * gu + fy * gv) * z
                q2 = -(gu * (work[3, i] - cx) + gv * (work[4, i] - cy)) * z - own * depth
                a0, a1, a2 = work[7, i], work[8, i], work[9, i]
                out[first, i] = a1 * q2 - a2 * q1
                out[first + 1, i] = a2 * q0 - a0 * q2
                out[first + 2, i] = a0 * q1 - a1 * q0
                out[first + 3, i], out[first + 4, i], out[first + 5, i] = q0, q1, q2
                if lit:
                    out[first + 6, i] = own * light * value
                    out[first + 7, i] = own * light


@njit(
    types.void(_f8[::1], _f4[:, ::1], _i8[::1], _f8[::1], _f4[:, ::1], _f4[:, ::1], _f8[:, ::1]),
    nogil=True,
    error_model="numpy",
    fastmath=FASTMATH,  # as the evaluator: shared code would be compiled again for callers with other options
)
def look_up(theta, points, program, constants, values, weights, places):  # type: ignore[no-untyped-def]
    """What image 2 (and depth map 2) shows at the points (k, 3) of image 1.

    Writes values I2, D2 and their weights, (components, k), and where the points are seen: (3, k), u, v and depth.
    """
    rows = np.empty((3, BLOCK))
    work = np.empty((18, BLOCK))
    cells = np.empty(BLOCK, dtype=np.int32)
    raw = np.empty((4, BLOCK), dtype=np.int32)
    for first in range(0, len(points), BLOCK):
        m = min(BLOCK, len(points) - first)
        for i in range(m):
            for j in range(3):
                rows[j, i] = points[first + i, j]
        _project(theta, rows, m, constants, work)
        ak._cells(m, program[ak.P_WIDTH2], program[ak.P_HEIGHT2], work, cells)
        for i in range(m):
            places[0, first + i], places[1, first + i], places[2, first + i] = work[3, i], work[4, i], work[10, i]
        for c in range(values.shape[0]):
            plane = program[c * ak.PROGRAM_SIZE : (c + 1) * ak.PROGRAM_SIZE]
            ak._border(m, plane, constants, cells, work)
            ak._taps(plane[ak.P_IMAGE2], FLOAT, 1, plane[ak.P_WIDTH2], m, cells, raw)
            ak._interpolate(raw.view(np.float32), m, work)
            for i in range(m):
                values[c, first + i] = work[14, i]
                weights[c, first + i] = work[11, i]
