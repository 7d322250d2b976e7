"""Whether a warp is believed, whatever the solver says."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .warps import plausible

LEAST_CORRELATION, LEAST_DETAIL = 0.7, 0.5
"""Correlation of images that are aligned, and of their fine structure. Buildings correlate with other buildings by up
to 0.9, with sky above and ground below; their fine structure tells them apart: of 60 wrong pairs (other scenes,
mirrored images, negatives) one passed, a symmetric facade. Photographs with parallax that end some 10 pixels off mostly
fail."""


def reason_to_doubt(
    matrix: NDArray[np.float64], shape: tuple[int, int], gain: float, ncc: float, detail: float
) -> str | None:
    """Why a warp is not believed; None: it is.

    Parameters
    ----------
    matrix : (3, 3) the warp, in pixels.
    shape : rows and columns of image 1.
    gain : estimated gain of image 2.
    ncc, detail : correlation of the images in the overlap, and of their fine structure.
    """
    if not plausible(matrix, shape):
        return "the warp mirrors image 1, or maps a part of it behind the camera or to another scale altogether"
    if not gain > 0.0:
        return f"image 2 fits as a negative (gain {gain:.2f})"
    if not ncc >= LEAST_CORRELATION:
        return f"the images correlate by {ncc:.2f} only"
    if not detail >= LEAST_DETAIL:
        return f"the fine structure of the images correlates by {detail:.2f} only"
    return None
