r"""Smaller and smoother images: pyramid and blur.

A pyramid level halves the image with the separable filter (1, 3, 3, 1) / 8, whose centre lies between pixels: pixel x
of the coarse image is centred at 2x + 1/2 of the fine one. Masked pixels do not contribute; a coarse pixel is valid if
at least half of its weight is.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...jit import types
from ...jit.njit import njit
from .image import Image, Plane, of_pixels

_f4, _i8 = types.float32, types.int64


@of_pixels(lambda t: types.void(types.Array(t, 2, "C", readonly=True), _i8, _f4[:, ::1]))
def _halve_into(fine, c, coarse):  # type: ignore[no-untyped-def]
    """Filter (1, 3, 3, 1) / 8 in both directions, every second pixel of c channels; the border is repeated."""
    h, length = fine.shape
    outer, inner = np.float32(0.125), np.float32(0.375)
    line = np.empty(length + 2 * c, dtype=np.float32)
    for y in range(coarse.shape[0]):
        a, b, d = fine[max(2 * y - 1, 0)], fine[2 * y], fine[min(2 * y + 2, h - 1)]
        e = fine[2 * y + 1]
        for i in range(length):
            line[c + i] = outer * (np.float32(a[i]) + np.float32(d[i])) + inner * (np.float32(b[i]) + np.float32(e[i]))
        for k in range(c):
            line[k] = line[c + k]
            line[c + length + k] = line[length + k]
        if c == 1:
            for x in range(coarse.shape[1]):
                coarse[y, x] = outer * (line[2 * x] + line[2 * x + 3]) + inner * (line[2 * x + 1] + line[2 * x + 2])
        else:
            for x in range(coarse.shape[1] // c):
                for k in range(c):
                    at = 2 * x * c + k
                    coarse[y, x * c + k] = outer * (line[at] + line[at + 3 * c]) + inner * (
                        line[at + c] + line[at + 2 * c]
                    )


@of_pixels(lambda t: types.void(types.Array(t, 2, "C", readonly=True), _i8, _f4, _f4[:, ::1]))
def _smooth_into(source, c, side, target):  # type: ignore[no-untyped-def]
    """Filter (side, 1 - 2 side, side) in both directions on c channels; the border is repeated."""
    h, length = source.shape
    centre = np.float32(1.0) - np.float32(2.0) * side
    line = np.empty(length + 2 * c, dtype=np.float32)
    for y in range(h):
        a, b, d = source[max(y - 1, 0)], source[y], source[min(y + 1, h - 1)]
        for i in range(length):
            line[c + i] = centre * np.float32(b[i]) + side * (np.float32(a[i]) + np.float32(d[i]))
        for k in range(c):
            line[k] = line[c + k]
            line[c + length + k] = line[length + k]
        out = target[y]
        for i in range(length):
            out[i] = centre * line[c + i] + side * (line[i] + line[2 * c + i])


@njit(
    types.void(_f4[:, ::1], _i8, _f4[::1], _f4[:, ::1]),
    nogil=True,
    fastmath=True,
)
def _convolve(source, c, kernel, target):  # type: ignore[no-untyped-def]
    """Separable symmetric filter on c channels; the border is repeated. ``kernel``: the centre and one side."""
    h, length = source.shape
    radius = len(kernel) - 1
    pad = radius * c
    line = np.empty(length + 2 * pad, dtype=np.float32)
    for y in range(h):
        centre = source[y]
        for i in range(length):
            line[pad + i] = kernel[0] * centre[i]
        for j in range(1, radius + 1):
            up, low, weight = source[max(y - j, 0)], source[min(y + j, h - 1)], kernel[j]
            for i in range(length):
                line[pad + i] += weight * (up[i] + low[i])
        for i in range(pad):
            line[i] = line[pad + i % c]
            line[pad + length + i] = line[pad + length - c + i % c]
        out = target[y]
        for i in range(length):
            out[i] = kernel[0] * line[pad + i]
        for j in range(1, radius + 1):
            step, weight = j * c, kernel[j]
            for i in range(length):
                out[i] += weight * (line[pad + i - step] + line[pad + i + step])


def halve(image: Image) -> Image:
    """The next coarser level of the pyramid; sides of n pixels become n // 2."""
    if image.valid is None:
        return Image(_halved(image.pixels), image.unit)
    known = image.valid.astype(np.float32)
    weight = _halved(known)
    spread = known if image.pixels.ndim == 2 else known[:, :, None]
    total = _halved(np.ascontiguousarray(image.pixels.astype(np.float32) * spread))
    safe = np.maximum(weight, np.float32(1e-6))
    pixels = total / (safe if total.ndim == 2 else safe[:, :, None])
    return Image(pixels, image.unit, weight >= 0.5)


def _halved(plane: Plane) -> NDArray[np.float32]:
    h, w = plane.shape[0] // 2, plane.shape[1] // 2
    channels = 1 if plane.ndim == 2 else plane.shape[2]
    coarse = np.empty((h, w * channels), dtype=np.float32)
    _halve_into(plane.reshape(plane.shape[0], -1), channels, coarse)
    return coarse.reshape((h, w, *plane.shape[2:]))


def blur(image: Image, sigma: float) -> Image:
    """Gaussian blur of standard deviation ``sigma`` pixels; masked pixels do not contribute.

    Up to 0.7 pixels by three taps of the same variance, beyond by samples of the Gaussian up to three sigma.
    """
    if sigma <= 0.0:
        return image
    if image.valid is None:
        return Image(_blurred(image.pixels, sigma), image.unit)
    known = image.valid.astype(np.float32)
    weight = np.maximum(_blurred(known, sigma), np.float32(1e-6))
    spread = known if image.pixels.ndim == 2 else known[:, :, None]
    total = _blurred(image.pixels.astype(np.float32) * spread, sigma)
    return Image(total / (weight if total.ndim == 2 else weight[:, :, None]), image.unit, image.valid)


def _blurred(plane: Plane, sigma: float) -> NDArray[np.float32]:
    channels = 1 if plane.ndim == 2 else plane.shape[2]
    rows = np.ascontiguousarray(plane).reshape(plane.shape[0], -1)
    target = np.empty(rows.shape, dtype=np.float32)
    if sigma * sigma <= 0.5:
        _smooth_into(rows, channels, np.float32(0.5 * sigma * sigma), target)
        return target.reshape(plane.shape)
    radius = max(1, math.ceil(3.0 * sigma))
    side = np.exp(-0.5 * (np.arange(radius + 1) / sigma) ** 2)
    kernel = (side / (2.0 * side.sum() - side[0])).astype(np.float32)
    _convolve(rows.astype(np.float32, copy=False), channels, kernel, target)
    return target.reshape(plane.shape)


def deepest(shape1: tuple[int, int], shape2: tuple[int, int], least: int) -> int:
    """Levels until a side would fall below ``least`` pixels."""
    side = min(*shape1, *shape2)
    return max(1, 1 + int(math.log2(side / least))) if side >= least else 1
