"""An image as another one sees it: bilinear resampling under a 3x3 matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...jit import types
from ...jit.njit import njit

_f8, _f4 = types.float64, types.float32


@njit(
    types.void(_f4[:, :, ::1], _f8[:, ::1], _f4[:, :, ::1], types.boolean[:, ::1]),
    nogil=True,
    error_model="numpy",
)
def _resample(source, matrix, target, inside):  # type: ignore[no-untyped-def]
    h, w, channels = source.shape
    for y in range(target.shape[0]):
        for x in range(target.shape[1]):
            z = matrix[2, 0] * x + matrix[2, 1] * y + matrix[2, 2]
            u = (matrix[0, 0] * x + matrix[0, 1] * y + matrix[0, 2]) / z
            v = (matrix[1, 0] * x + matrix[1, 1] * y + matrix[1, 2]) / z
            if not (z > 0.0 and u >= 0.0 and v >= 0.0 and u <= w - 1.0 and v <= h - 1.0):
                continue
            inside[y, x] = True
            i, j = min(int(v), h - 2), min(int(u), w - 2)
            q, p = v - i, u - j
            for c in range(channels):
                top = source[i, j, c] + p * (source[i, j + 1, c] - source[i, j, c])
                low = source[i + 1, j, c] + p * (source[i + 1, j + 1, c] - source[i + 1, j, c])
                target[y, x, c] = top + q * (low - top)


def resample(
    image: NDArray[Any], matrix: NDArray[np.float64], shape: tuple[int, int], fill: float | None = None
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """``image`` at ``matrix @ (x, y, 1)`` for every pixel (x, y) of a picture of the given shape.

    Parameters
    ----------
    image : (rows, columns) or (rows, columns, channels), at least 2 x 2 pixels.
    matrix : (3, 3), maps pixels of the result to pixels of ``image``; the centre of the result is in front.
    shape : (rows, columns) of the result.
    fill : value outside ``image``; None: NaN for floats, 0 for integers.

    Returns
    -------
    resampled : of the type of ``image``; integers are rounded and clipped.
    inside : (rows, columns), true inside ``image``.

    Examples
    --------
    >>> shift = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> picture, inside = resample(np.array([[0.0, 2.0, 4.0], [0.0, 2.0, 4.0]]), shift, (2, 3))
    >>> picture[0], inside[0]
    (array([ 1.,  3., nan]), array([ True,  True, False]))
    """
    kind = image.dtype
    source = np.ascontiguousarray(image, dtype=np.float32).reshape(image.shape[0], image.shape[1], -1)
    if fill is None:
        fill = np.nan if kind.kind == "f" else 0.0
    target = np.full((*shape, source.shape[2]), fill, dtype=np.float32)
    inside = np.zeros(shape, dtype=np.bool_)
    centre = matrix[2] @ np.array([(shape[1] - 1) / 2.0, (shape[0] - 1) / 2.0, 1.0])
    front = np.ascontiguousarray(matrix if centre > 0.0 else -matrix, dtype=np.float64)
    _resample(source, front, target, inside)
    result: NDArray[Any] = target
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        result = np.clip(np.rint(target), limits.min, limits.max)
    elif kind.kind == "b":
        result = target >= 0.5
    return result.astype(kind).reshape((*shape, *image.shape[2:])), inside
