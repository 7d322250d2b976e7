"""Starts for images that are far apart: phase correlation, or features.

Both are used only on request. They return a start in pixels and a line of text for the report.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..images.features import nearest, sift
from ..images.image import Image
from ..images.pyramid import halve

Array = NDArray[np.float64]
_PHASE_SIDE = 512
_PEAKS = 5
_FEATURE_SIDE = 1600
_LEAST_MATCHES = 8


def phase_translation(image1: Image, image2: Image) -> tuple[Array, str]:
    """The translation whose phase correlation peaks highest, (3, 3), among the best few by true correlation.

    Windowed copies of at most 512 pixels per side are used; the solver refines the peak anyway. The
    transform is periodic, so a peak stands for four translations: each is tried on the overlap that it implies.
    """
    levels = max(0, math.ceil(math.log2(max(*image1.shape, *image2.shape) / _PHASE_SIDE)))
    a, b = _reduced(image1, levels), _reduced(image2, levels)
    h, w = max(a.shape[0], b.shape[0]), max(a.shape[1], b.shape[1])
    spectrum = np.fft.rfft2(_windowed(a), s=(h, w)).conj() * np.fft.rfft2(_windowed(b), s=(h, w))
    # Dividing by the root of the magnitude gives weak, noisy frequencies less weight than strong ones.
    surface = np.fft.irfft2(spectrum / np.sqrt(np.abs(spectrum) + 1e-12 * np.abs(spectrum).max()), s=(h, w))
    best, found = -1.0, (0, 0)
    for peak in np.argsort(surface, axis=None)[-_PEAKS:]:
        dy, dx = divmod(int(peak), w)
        for y in (dy, dy - h):
            for x in (dx, dx - w):
                score = _overlap_correlation(a, b, x, y)
                if score > best:
                    best, found = score, (x, y)
    matrix = np.eye(3)
    matrix[:2, 2] = np.array(found, dtype=np.float64) * 2.0**levels
    text = f"phase correlation: ({matrix[0, 2]:.0f}, {matrix[1, 2]:.0f}) pixels, correlation {best:.2f}"
    return matrix, text


def _reduced(image: Image, levels: int) -> Array:
    for _ in range(levels):
        image = halve(image)
    values = image.values().astype(np.float64)
    if values.ndim == 3:
        values = values.mean(axis=2)
    if image.valid is not None:
        values = np.where(image.valid, values, values[image.valid].mean() if image.valid.any() else 0.0)
    return values


def _windowed(values: Array) -> Array:
    h, w = values.shape
    return (values - values.mean()) * np.hanning(h)[:, None] * np.hanning(w)


def _overlap_correlation(a: Array, b: Array, x: int, y: int) -> float:
    """Correlation of a(p) and b(p + (x, y)), weighted down for small overlaps; -1 below a tenth of a."""
    top, left = max(0, -y), max(0, -x)
    bottom, right = min(a.shape[0], b.shape[0] - y), min(a.shape[1], b.shape[1] - x)
    if bottom <= top or right <= left or (bottom - top) * (right - left) < 0.1 * a.size:
        return -1.0
    p, q = a[top:bottom, left:right], b[top + y : bottom + y, left + x : right + x]
    p, q = p - p.mean(), q - q.mean()
    scale = math.sqrt(float((p * p).sum()) * float((q * q).sum()))
    return float((p * q).sum()) / scale if scale > 0.0 else -1.0


def feature_homography(image1: Image, image2: Image) -> tuple[Array | None, str]:
    """A homography from SIFT features and a robust fit (OpenCV); None if too few features agree."""
    try:
        cv2: Any = import_module("cv2")
    except ImportError as error:
        raise ImportError(
            'initial="features" needs OpenCV: pip install \'problm[vision]\', or pass initial="phase" or a 3x3 matrix'
        ) from error
    points, descriptors = [], []
    for image in (image1, image2):
        levels = max(0, math.ceil(math.log2(max(image.shape) / _FEATURE_SIDE)))
        reduced = image
        for _ in range(levels):
            reduced = halve(reduced)
        at, described = sift(reduced, 4000, outside=0.1)
        # Pixel x of a level is centred at 2x + 1/2 of the finer one.
        points.append((at + 0.5) * 2.0**levels - 0.5)
        descriptors.append(described)
    if min(len(d) for d in descriptors) < 2:
        return None, "features: almost none were found"
    matches = nearest(descriptors[0], descriptors[1], 0.8)
    if len(matches) < _LEAST_MATCHES:
        return None, f"features: only {len(matches)} matches"
    x1, x2 = points[0][matches[:, 0].astype(int)], points[1][matches[:, 1].astype(int)]
    threshold = 1.5e-3 * max(*image1.shape, *image2.shape) + 1.0
    matrix, inliers = cv2.findHomography(x1, x2, cv2.USAC_MAGSAC, threshold, maxIters=5000, confidence=0.999)
    agreeing = 0 if inliers is None else int(inliers.sum())
    if matrix is None or agreeing < _LEAST_MATCHES or not np.isfinite(matrix).all():
        return None, f"features: only {agreeing} of {len(matches)} matches agree"
    return np.asarray(matrix, dtype=np.float64), f"features: {agreeing} of {len(matches)} matches agree"
