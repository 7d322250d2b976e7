r"""Putative matches of two images: SIFT features and their mutual nearest neighbours (extra ``vision``).

Matches are one-to-one and, unless a ratio is given, not filtered: robust estimation copes with wrong ones, and matches
that Lowe's ratio test would drop are often correct.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .image import Image, read_image

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Matches:
    """Putative matches, best first."""

    x1: Array
    """(N, 2) pixels of image 1; the centre of the first pixel is (0, 0)."""
    x2: Array
    ratio: Array
    """(N,) distance of the nearest descriptor over that of the second nearest: small is distinctive."""


def match_images(image1: Any, image2: Any, *, features: int = 8000, ratio: float = 1.0) -> Matches:
    """SIFT matches of two images.

    Parameters
    ----------
    image1, image2 : arrays (rows, columns[, 3]), PIL images, or paths of files.
    features : largest number of features per image; the strongest are kept.
    ratio : largest ratio of a match (Lowe's test); 1 keeps all.

    Returns
    -------
    Matches, one-to-one, sorted by ratio.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.ndimage import gaussian_filter, shift
    >>> picture = gaussian_filter(np.random.default_rng(0).normal(size=(200, 240)), 2.0)
    >>> picture = (255 * (picture - picture.min()) / np.ptp(picture)).astype(np.uint8)
    >>> found = match_images(picture, shift(picture, (3, 5)), ratio=0.8)
    >>> np.median(found.x2 - found.x1, axis=0).round(1).tolist()
    [5.0, 3.0]
    """
    if not 0.0 < ratio <= 1.0:
        raise ValueError(f"ratio must lie between 0 and 1, got {ratio!r}")
    if int(features) != features or features < 1:
        raise ValueError(f"features must be a whole number from 1, got {features!r}")
    pictures = read_image(image1, "image1"), read_image(image2, "image2")
    (places1, described1), (places2, described2) = (sift(picture, int(features)) for picture in pictures)
    found = nearest(described1, described2, ratio)
    # A corner with two orientations gives two features at one position: each position counts once.
    x1, x2 = places1[found[:, 0].astype(int)], places2[found[:, 1].astype(int)]
    first = np.unique(np.concatenate([x1, x2], axis=1), axis=0, return_index=True)[1]
    keep = np.sort(first)
    return Matches(x1[keep], x2[keep], found[keep, 2])


def sift(image: Image, features: int, outside: float = 0.0) -> tuple[Array, NDArray[np.float32]]:
    """Positions (n, 2) and descriptors (n, 128) of the strongest SIFT features in the valid part of an image.

    ``outside`` is the percentage of values at each end that may be clipped: the others are stretched to the 8 bits that
    OpenCV's SIFT takes.
    """
    values = image.values()
    if values.ndim == 3:
        values = values.mean(axis=2)
    low, high = (float(v) for v in np.percentile(values, (outside, 100.0 - outside)))
    grey = np.clip((values - low) * (255.0 / (high - low)), 0.0, 255.0) if high > low else np.zeros_like(values)
    mask = None if image.valid is None else image.valid.astype(np.uint8)
    points, described = (
        _opencv().SIFT_create(nfeatures=features).detectAndCompute(np.round(grey).astype(np.uint8), mask)
    )
    places = np.array([p.pt for p in points], dtype=np.float64).reshape(-1, 2)
    return places, np.empty((0, 128), np.float32) if described is None else described


def nearest(one: NDArray[np.float32], other: NDArray[np.float32], ratio: float) -> Array:
    """Mutual nearest neighbours of descriptors: rows (k, 3) of both indices and the ratio, smallest ratio first."""
    if min(len(one), len(other)) < 2:
        return np.empty((0, 3))
    cv2 = _opencv()
    forth = cv2.BFMatcher(cv2.NORM_L2).knnMatch(one, other, k=2)
    back = {m.queryIdx: m.trainIdx for m in cv2.BFMatcher(cv2.NORM_L2).match(other, one)}
    rows = [
        (m.queryIdx, m.trainIdx, m.distance / max(second.distance, 1e-12))
        for m, second in forth
        if back.get(m.trainIdx) == m.queryIdx
    ]
    return np.array(sorted((r for r in rows if r[2] <= ratio), key=lambda r: r[2]), dtype=np.float64).reshape(-1, 3)


def _opencv() -> Any:
    try:
        return import_module("cv2")
    except ImportError as error:
        raise ImportError("features of images need OpenCV: pip install 'problm[vision]'") from error
