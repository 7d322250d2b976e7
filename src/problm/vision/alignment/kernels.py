r"""Compiled passes of dense alignment: warp, bilinear lookup, photometric residual and its exact derivatives.

A row is a pixel x = (x, y) of image 1. With the warp H in normalised coordinates (see `problm.vision.alignment.warps`),
gain a and bias b, its residual is

    e = a I2(u) + b - I1(x),   u = pi(H x^),   x^ = ((x - c1) / s, 1),   pi(X, Y, Z) = (X, Y) / Z * s + c2 .

I2 is read by bilinear interpolation, and it is the *interpolant* that is differentiated: its derivative costs
two more differences of the same four pixels, needs no gradient image and is the exact gradient of the cost, so
that a vanishing ``J^T r`` is a true certificate. With ``g = a dI2/du`` and Z the third coordinate of ``H x^``,

    de / dH_ij = q'_i x^_j,    q' = (s g_1, s g_2, -g . (u - c2)) / Z ,

the derivative with respect to the entries of H, and for a step composed on the right, ``H exp(A)``, it is
``de / dA_ij = (H^T q')_i x^_j``. Every model is a choice among these nine products.

*Combined forward and backward compositional* steps (ESM: Malis 2004, and the paper) replace the gradient of the
warped image by the mean of it and the gradient of image 1, brought to the frame of image 2 by the inverse of
the warp's 2x2 Jacobian. That is a better step far from the solution but not the gradient of the cost.

**Pixels that leave image 2.** A weight w(u) falls smoothly (3t^2 - 2t^3) from 1 to 0 in a band along the border,
and the cost of a pixel blends from its own to a constant:

    r^2 = w e^2 + (1 - w) k^2 ,      r dr = w e de + (e^2 - k^2) / 2 dw ,

so outside r = k for any warp. The cost is continuously differentiable in the warp as pixels cross
the border, and every pixel always counts, so a shrinking overlap is rewarded only where the pixels that leave
fit worse than k: `problm.vision.alignment.align` chooses k such that one pixel outside costs what the average pixel
inside costs at the start. Masked pixels of image 2 enter through a weight image that is interpolated in the same way.
"""

from __future__ import annotations

import numpy as np

from ...jit.njit import njit, part
from ...kernels.columns import _load_f4, _load_i4, _load_u1, _load_u2
from ...kernels.kernel import BLOCK, FASTMATH, evaluator

# Layout of the evaluator's int64 program ...
P_IMAGE2, P_TYPE2, P_WIDTH2, P_HEIGHT2, P_CHANNELS = 0, 1, 2, 3, 4
P_WIDTH1, P_HEIGHT1, P_MODEL, P_RIGHT, P_PHOTOMETRIC = 5, 6, 7, 8, 9
P_WEIGHT2, P_ESM, P_IMAGE1, P_TYPE1 = 10, 11, 12, 13
PROGRAM_SIZE = 14
# ... and of its constants: s, c1, c2, full scale of the stored images, band, k.
C_SCALE, C_X1, C_Y1, C_X2, C_Y2, C_UNIT1, C_UNIT2, C_BAND, C_OUTSIDE = 0, 1, 2, 3, 4, 5, 6, 7, 8
CONSTANTS_SIZE = 9

_FAR = 1e6

TYPES = {"u1": 0, "u2": 1, "f4": 2}
MODEL_CODES = {"translation": 0, "euclidean": 1, "similarity": 2, "affine": 3, "homography": 4, "sl3": 4}

_inline = {"nogil": True, "error_model": "numpy", "fastmath": FASTMATH}


@njit(inline="always", **_inline)
def _pixel(at, kind):  # type: ignore[no-untyped-def]
    if kind == 0:
        return float(_load_u1(at))
    if kind == 1:
        return float(_load_u2(at))
    return float(_load_f4(at))


@part(**_inline)
def _warp(theta, rows, m, program, constants, work):  # type: ignore[no-untyped-def]
    """x^, y^ to work[0:2], 1/Z to work[2], u, v to work[3:5]."""
    width, scale = float(program[P_WIDTH1]), constants[C_SCALE]
    inverse_width, inverse_scale = 1.0 / width, 1.0 / scale
    x1, y1, x2, y2 = constants[C_X1], constants[C_Y1], constants[C_X2], constants[C_Y2]
    h0, h1, h2 = theta[0] * scale, theta[1] * scale, theta[2] * scale
    h3, h4, h5 = theta[3] * scale, theta[4] * scale, theta[5] * scale
    h6, h7, h8 = theta[6], theta[7], theta[8]
    for i in range(m):
        row = np.floor((rows[0, i] + 0.5) * inverse_width)
        x = (rows[0, i] - row * width - x1) * inverse_scale
        y = (row - y1) * inverse_scale
        z = h6 * x + h7 * y + h8
        # There is no image at or behind the horizon: move the pixel far outside.
        front = z > 1e-9
        reciprocal = 1.0 / z
        reciprocal = reciprocal if front else 0.0
        u = min(max((h0 * x + h1 * y + h2) * reciprocal + x2, -_FAR), _FAR)
        v = min(max((h3 * x + h4 * y + h5) * reciprocal + y2, -_FAR), _FAR)
        u = u if front else -_FAR
        work[0, i] = x
        work[1, i] = y
        work[2, i] = reciprocal
        work[3, i] = u
        work[4, i] = v


@part(**_inline)
def _all_inside(m, program, constants, work):  # type: ignore[no-untyped-def]
    """Whether no pixel lies in the band at the border or beyond; in its own loop, so that both loops vectorise."""
    low = constants[C_BAND]
    high_u, high_v = program[P_WIDTH2] - 1.0 - low, program[P_HEIGHT2] - 1.0 - low
    outside = 0.0
    for i in range(m):
        u, v = work[3, i], work[4, i]
        outside += 0.0 if (u >= low) & (u <= high_u) & (v >= low) & (v <= high_v) else 1.0
    return outside == 0.0


@part(**_inline)
def _cells(m, w, h, work, cells):  # type: ignore[no-untyped-def]
    """Number of the upper left pixel of each cell; the position within the cell goes to work[5:7]."""
    last_u, last_v, width = w - 2.0, h - 2.0, float(w)
    for i in range(m):
        u, v = work[3, i], work[4, i]
        # Written so that NaN also ends inside: it must never become an address.
        u0 = min(np.floor(u), last_u) if u > 0.0 else 0.0
        v0 = min(np.floor(v), last_v) if v > 0.0 else 0.0
        work[5, i] = u - u0
        work[6, i] = v - v0
        cells[i] = np.int32(v0 * width + u0)


@part(**_inline)
def _taps(base, kind, channels, w, m, cells, raw):  # type: ignore[no-untyped-def]
    """The four pixels of each cell, as they are stored (floats by their bits), to raw[0:4].

    Converting them to float64 here, one by one, would take twice as long as in the vectorised loops that follow.
    """
    if kind == 0:
        across, down = channels, channels * w
        for i in range(m):
            at = base + channels * np.int64(cells[i])
            raw[0, i] = _load_u1(at)
            raw[1, i] = _load_u1(at + across)
            raw[2, i] = _load_u1(at + down)
            raw[3, i] = _load_u1(at + down + across)
    elif kind == 1:
        across, down = 2 * channels, 2 * channels * w
        for i in range(m):
            at = base + across * np.int64(cells[i])
            raw[0, i] = _load_u2(at)
            raw[1, i] = _load_u2(at + across)
            raw[2, i] = _load_u2(at + down)
            raw[3, i] = _load_u2(at + down + across)
    else:
        across, down = 4 * channels, 4 * channels * w
        for i in range(m):
            at = base + across * np.int64(cells[i])
            raw[0, i] = _load_i4(at)
            raw[1, i] = _load_i4(at + across)
            raw[2, i] = _load_i4(at + down)
            raw[3, i] = _load_i4(at + down + across)


@part(**_inline)
def _interpolate(raw, m, work):  # type: ignore[no-untyped-def]
    """Value of the interpolant to work[14]."""
    for i in range(m):
        t00, t01, t10, t11 = float(raw[0, i]), float(raw[1, i]), float(raw[2, i]), float(raw[3, i])
        top, low = t00 + work[5, i] * (t01 - t00), t10 + work[5, i] * (t11 - t10)
        work[14, i] = top + work[6, i] * (low - top)


@part(**_inline)
def _differentiate(raw, m, factor, work):  # type: ignore[no-untyped-def]
    """Value of the interpolant to work[14], ``factor`` times its derivatives to work[15:17]."""
    for i in range(m):
        t00, t01, t10, t11 = float(raw[0, i]), float(raw[1, i]), float(raw[2, i]), float(raw[3, i])
        across, across_low = t01 - t00, t11 - t10
        top, low = t00 + work[5, i] * across, t10 + work[5, i] * across_low
        work[14, i] = top + work[6, i] * (low - top)
        work[15, i] = factor * (across + work[6, i] * (across_low - across))
        work[16, i] = factor * (low - top)


@njit(inline="always", **_inline)
def _ramp(t, band, last):  # type: ignore[no-untyped-def]
    """Weight of the coordinate t in [0, last] and its derivative, without branches so that it vectorises."""
    share = min(max(min(t, last - t) / band, 0.0), 1.0)
    slope = 6.0 * share * (1.0 - share) / band
    return share * share * (3.0 - 2.0 * share), (slope if t < last - t else -slope)


@part(**_inline)
def _border(m, program, constants, cells, work):  # type: ignore[no-untyped-def]
    """Weight of each pixel and its derivatives with respect to u and v, to work[11:14]."""
    w, band = program[P_WIDTH2], constants[C_BAND]
    last_u, last_v = program[P_WIDTH2] - 1.0, program[P_HEIGHT2] - 1.0
    for i in range(m):
        a, da = _ramp(work[3, i], band, last_u)
        b, db = _ramp(work[4, i], band, last_v)
        work[11, i] = a * b
        work[12, i] = da * b
        work[13, i] = a * db
    plane = program[P_WEIGHT2]
    if plane != 0:
        for i in range(m):
            at = plane + 4 * np.int64(cells[i])
            c00, c01 = float(_load_f4(at)), float(_load_f4(at + 4))
            c10, c11 = float(_load_f4(at + 4 * w)), float(_load_f4(at + 4 * w + 4))
            p, q = work[5, i], work[6, i]
            top, low = c00 + p * (c01 - c00), c10 + p * (c11 - c10)
            c, cu = top + q * (low - top), (1.0 - q) * (c01 - c00) + q * (c11 - c10)
            a = work[11, i]
            work[11, i] = a * c
            work[12, i] = work[12, i] * c + a * cu
            work[13, i] = work[13, i] * c + a * (low - top)


@part(**_inline)
def _average_gradients(theta, rows, m, program, constants, channel, work):  # type: ignore[no-untyped-def]
    """ESM: replace the gradient in work[15:17] by its mean with that of image 1, seen from image 2."""
    base, kind = program[P_IMAGE1], program[P_TYPE1]
    w, h, channels = program[P_WIDTH1], program[P_HEIGHT1], program[P_CHANNELS]
    size = 1 if kind == 0 else (2 if kind == 1 else 4)
    across, down = size * channels, size * channels * w
    for i in range(m):
        index = np.int64(rows[0, i])
        y = index // w
        x = index - y * w
        at = base + size * (index * channels + channel)
        left, right = (0 if x == 0 else across), (0 if x == w - 1 else across)
        up, low = (0 if y == 0 else down), (0 if y == h - 1 else down)
        gx = (_pixel(at + right, kind) - _pixel(at - left, kind)) * constants[C_UNIT1] / max(right + left, 1) * across
        gy = (_pixel(at + low, kind) - _pixel(at - up, kind)) * constants[C_UNIT1] / max(low + up, 1) * down
        # The 2x2 Jacobian of the warp, pixels by pixels (the scale s cancels).
        z = work[2, i]
        a, b = (work[3, i] - constants[C_X2]) / constants[C_SCALE], (work[4, i] - constants[C_Y2]) / constants[C_SCALE]
        j00, j01 = (theta[0] - a * theta[6]) * z, (theta[1] - a * theta[7]) * z
        j10, j11 = (theta[3] - b * theta[6]) * z, (theta[4] - b * theta[7]) * z
        det = j00 * j11 - j01 * j10
        if abs(det) > 1e-6:
            work[15, i] = 0.5 * (work[15, i] + (j11 * gx - j10 * gy) / det)
            work[16, i] = 0.5 * (work[16, i] + (j00 * gy - j01 * gx) / det)


@part(**_inline)
def _products(theta, m, program, first, work, out):  # type: ignore[no-untyped-def]
    """Derivatives with respect to the model's parameters, from the gradient q' in work[15:18], to out[first:]."""
    if program[P_RIGHT] != 0:
        for i in range(m):
            a, b, c = work[15, i], work[16, i], work[17, i]
            work[15, i] = theta[0] * a + theta[3] * b + theta[6] * c
            work[16, i] = theta[1] * a + theta[4] * b + theta[7] * c
            work[17, i] = theta[2] * a + theta[5] * b + theta[8] * c
    model = program[P_MODEL]
    if model >= 3:
        for i in range(m):
            x, y = work[0, i], work[1, i]
            out[first, i] = work[15, i] * x
            out[first + 1, i] = work[15, i] * y
            out[first + 2, i] = work[15, i]
            out[first + 3, i] = work[16, i] * x
            out[first + 4, i] = work[16, i] * y
            out[first + 5, i] = work[16, i]
        if model == 4:
            for i in range(m):
                out[first + 6, i] = work[17, i] * work[0, i]
                out[first + 7, i] = work[17, i] * work[1, i]
        return
    for i in range(m):
        out[first, i] = work[15, i]
        out[first + 1, i] = work[16, i]
    if model >= 1:
        for i in range(m):
            out[first + 2, i] = work[16, i] * work[0, i] - work[15, i] * work[1, i]
    if model >= 2:
        for i in range(m):
            out[first + 3, i] = work[15, i] * work[0, i] + work[16, i] * work[1, i]


@evaluator
def warp_evaluator(theta, rows, m, program, constants, jacobian, out):  # type: ignore[no-untyped-def]
    """Residuals and derivatives of a block of pixels; theta is H (9, by rows), gain, bias.

    The first column is the number of the pixel in image 1, the following ones are its values.
    """
    work = np.empty((18, BLOCK))
    cells = np.empty(BLOCK, dtype=np.int32)
    raw = np.empty((4, BLOCK), dtype=np.int32)
    channels, photometric, kind = program[P_CHANNELS], program[P_PHOTOMETRIC], program[P_TYPE2]
    d = (2, 3, 4, 6, 8)[program[P_MODEL]] + 2 * photometric
    _warp(theta, rows, m, program, constants, work)
    inside = program[P_WEIGHT2] == 0 and _all_inside(m, program, constants, work)
    _cells(m, program[P_WIDTH2], program[P_HEIGHT2], work, cells)
    if not inside:
        _border(m, program, constants, cells, work)
    bias, unit1, factor, scale = theta[10], constants[C_UNIT1], theta[9] * constants[C_UNIT2], constants[C_SCALE]
    size = 1 if kind == 0 else (2 if kind == 1 else 4)
    k2 = constants[C_OUTSIDE] * constants[C_OUTSIDE] / channels
    for c in range(channels):
        first = channels + c * d
        _taps(program[P_IMAGE2] + size * c, kind, channels, program[P_WIDTH2], m, cells, raw)
        if jacobian == 0:
            if kind == 2:
                _interpolate(raw.view(np.float32), m, work)
            else:
                _interpolate(raw, m, work)
        elif kind == 2:
            _differentiate(raw.view(np.float32), m, factor, work)
        else:
            _differentiate(raw, m, factor, work)
        for i in range(m):
            out[c, i] = factor * work[14, i] + bias - unit1 * rows[1 + c, i]
        if jacobian != 0:
            if program[P_ESM] != 0:
                _average_gradients(theta, rows, m, program, constants, c, work)
            if photometric != 0:
                for i in range(m):
                    out[first + d - 2, i] = constants[C_UNIT2] * work[14, i]
                    out[first + d - 1, i] = 1.0
        if not inside:
            for i in range(m):
                weight, e = work[11, i], out[c, i]
                if weight < 1.0:
                    r = np.sqrt(weight * e * e + (1.0 - weight) * k2)
                    part = weight * e / r if r > 0.0 else 0.0
                    slope = 0.5 * (e * e - k2) / r if r > 0.0 else 0.0
                    out[c, i] = r
                    if jacobian != 0:
                        work[15, i] = part * work[15, i] + slope * work[12, i]
                        work[16, i] = part * work[16, i] + slope * work[13, i]
                        if photometric != 0:
                            out[first + d - 2, i] *= part
                            out[first + d - 1, i] *= part
        if jacobian != 0:
            x2, y2 = constants[C_X2], constants[C_Y2]
            for i in range(m):
                gu, gv = work[15, i] * work[2, i], work[16, i] * work[2, i]
                work[17, i] = -(gu * (work[3, i] - x2) + gv * (work[4, i] - y2))
                work[15, i] = scale * gu
                work[16, i] = scale * gv
            _products(theta, m, program, first, work, out)
