"""Local normalisation: what light does to an image slowly, over its width, is removed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .image import Image

_WINDOW = 8
"""Windows along the shorter side of an image."""
_LEAST_CONTRAST = 0.2
"""Contrast of a window, relative to that of the image, below which it is not raised in full: flat parts hold noise."""


def local_contrast(image: Image) -> Image:
    """The image about its local mean, in units of its local contrast; masked pixels do not contribute.

    A gain and a bias that vary slowly over the image (vignetting, a lamp on one side, haze) cancel.
    """
    from scipy.ndimage import uniform_filter

    size = max(min(image.shape) // _WINDOW, 7) | 1
    values = image.values()
    planes = values[:, :, None] if values.ndim == 2 else values
    known = np.ones(image.shape, dtype=np.float32) if image.valid is None else image.valid.astype(np.float32)
    share = np.maximum(uniform_filter(known, size, mode="nearest"), np.float32(1e-3))

    def mean(plane: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(uniform_filter(plane * known, size, mode="nearest") / share)

    result = np.empty_like(planes)
    for c in range(planes.shape[2]):
        centred = np.where(known > 0.0, planes[:, :, c], np.float32(0.0))
        centred = centred - mean(centred)
        square = mean(centred**2)
        least = _LEAST_CONTRAST**2 * float(square[known > 0.0].mean())
        result[:, :, c] = centred / np.sqrt(square + np.float32(max(least, 1e-12)))
    return Image(np.ascontiguousarray(result.reshape(values.shape)), 1.0, image.valid)
