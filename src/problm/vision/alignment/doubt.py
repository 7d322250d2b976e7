"""Whether a warp is believed, whatever the solver says."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .parts import LEAST_IN_PLACE, out_of_place
from .warps import plausible

Plane = NDArray[np.float32]

LEAST_CORRELATION, LEAST_DETAIL = 0.7, 0.5
"""Correlation of images that are aligned, and of their fine structure. Buildings correlate with other buildings by up
to 0.9, with sky above and ground below; their fine structure tells them apart: of 60 wrong pairs (other scenes,
mirrored images, negatives) one passed, a symmetric facade. Photographs with parallax that end some 10 pixels off mostly
fail."""

PARALLAX = 0.7
"""Motion that a warp leaves, in pixels, from which on it is said. Measured: 1.0 to 1.9 on eight photographs of
buildings that a homography maps in part, at most 0.3 on eleven pairs of planes."""
_PARTS, _CORRELATED = 10, 9.0
"""Parts along the shorter side, and pixels whose residuals count as one (blur and interpolation correlate them)."""


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


def reason_in_parts(first: Plane, second: Plane, inside: NDArray[np.bool_]) -> str | None:
    """Why images as `residual_motion` takes them are not believed to be aligned: most of their parts are elsewhere."""
    share, distance = out_of_place(first, second, inside)
    if share <= 1.0 - LEAST_IN_PLACE:
        return None
    return f"{share:.0%} of the parts of image 1 are about {distance:.0f} pixels from where the warp puts them"


def said_of_motion(parallax: float, first: Plane, second: Plane, inside: NDArray[np.bool_]) -> str | None:
    """What is said of the motion that `residual_motion` finds in these images; None where there is little."""
    if not parallax > PARALLAX:
        return None
    share, distance = out_of_place(first, second, inside)
    off = f"{share:.0%} of the parts of image 1 are" if share > 0.0 else "Parts of the scene are"
    far = f"about {distance:.0f} pixels off" if share > 0.0 else f"off by {parallax:.1f} pixels (root mean square)"
    return f"{off} {far}: the scene has parallax or moves, or the model is too simple."


def residual_motion(first: Plane, second: Plane, inside: NDArray[np.bool_]) -> float:
    """Motion that is left between two aligned images, in pixels: root mean square over parts of the image.

    In each part, the shift that explains the residuals best is estimated from the gradients, and its variance is
    subtracted. Motions that are larger than the structure of the images are underestimated.

    Parameters
    ----------
    first, second : (rows, columns) or (rows, columns, 3), image 1 and image 2 as image 1 sees it.
    inside : (rows, columns), where both are known.
    """
    if first.ndim == 3:
        first, second = first.mean(axis=2), second.mean(axis=2)
    unit = float(np.abs(first).max()) or 1.0  # of the values, whose squares may overflow
    first = first / unit
    known = np.where(inside, second / unit, first)
    residual = np.where(inside, known - first, 0.0)
    gy, gx = np.gradient(0.5 * (known + first))
    side = max(min(first.shape) // _PARTS, 8)
    h, w = (n // side * side for n in first.shape)

    def total(values: NDArray[Any]) -> NDArray[np.float64]:
        blocks = values[:h, :w].reshape(h // side, side, w // side, side)
        return np.asarray(blocks.sum(axis=(1, 3), dtype=np.float64)).ravel()

    xx, xy, yy = (total(np.where(inside, a * b, 0.0)) for a, b in ((gx, gx), (gx, gy), (gy, gy)))
    rx, ry, rr, count = total(gx * residual), total(gy * residual), total(residual**2), total(inside)
    det = xx * yy - xy**2
    seen = (count > 0.5 * side**2) & (det > 0.05 * (xx + yy) ** 2 / 4.0)
    if seen.sum() < 4:
        return 0.0
    xx, xy, yy, rx, ry, rr, count, det = (v[seen] for v in (xx, xy, yy, rx, ry, rr, count, det))
    dx, dy = (yy * rx - xy * ry) / det, (xx * ry - xy * rx) / det
    noise = (rr - dx * rx - dy * ry) / count * _CORRELATED * (xx + yy) / det
    return float(np.sqrt(max(float(np.median(dx**2 + dy**2 - noise)), 0.0)))
