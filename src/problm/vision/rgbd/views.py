r"""Two views as the problem reads them, and their pyramid.

Image 1 becomes rows: the pixels with a depth, each with its point in space and its value. Image 2, and its depth map if
there is one, stay planes, with soft weights where pixels are masked or depth is missing. A coarser level halves the
images (`problm.vision.images.pyramid`) and averages depth over two by two pixels, where these lie on one surface:
where their depths differ by more than a few percent, the average would lie in the air, and there is no depth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..alignment.problem import soft_mask
from ..images.image import Image
from ..images.pyramid import halve
from ..two_view.matches import inverse_intrinsics

Array = NDArray[np.float64]
Plane = NDArray[np.float32]
_ONE_SURFACE = 0.05
"""Relative difference of depths that are averaged, at most."""


@dataclass(frozen=True)
class Views:
    """Both views at one resolution. Depth is in units of `problm.vision.rgbd.align_rgbd`; 0 where it is unknown."""

    image1: Image
    depth1: Plane
    image2: Image
    depth2: Plane | None
    K: Array

    @cached_property
    def rows(self) -> NDArray[np.intp]:
        """(n,) numbers of the pixels of image 1 that are used."""
        known = self.depth1 > 0.0
        return np.flatnonzero(known if self.image1.valid is None else known & self.image1.valid)

    @cached_property
    def pixels(self) -> Plane:
        """(n, 2) their columns and rows."""
        y, x = np.divmod(self.rows, self.depth1.shape[1])
        return np.column_stack([x, y]).astype(np.float32)

    @cached_property
    def points(self) -> Plane:
        """(n, 3) their points in the frame of camera 1."""
        rays = np.column_stack([self.pixels, np.ones(len(self.rows))]) @ inverse_intrinsics(self.K).T
        return np.ascontiguousarray(rays * self.depth1.ravel()[self.rows][:, None], dtype=np.float32)

    @cached_property
    def values(self) -> Plane:
        """(n,) their values."""
        return np.ascontiguousarray(self.image1.values().ravel()[self.rows])

    @cached_property
    def planes(self) -> list[tuple[Plane, Plane | None]]:
        """Image 2, and depth map 2 if there is one, with weights that are 0 at unknown pixels; None: all are known."""
        valid = self.image2.valid
        found = [(np.ascontiguousarray(self.image2.values()), None if valid is None else soft_mask(valid))]
        if self.depth2 is not None:
            known = self.depth2 > 0.0
            found.append((self.depth2, None if known.all() else soft_mask(known)))
        return found

    def coarser(self) -> Views:
        """The next level of the pyramid: pixel x is centred at 2x + 1/2 of this one."""
        K = self.K.copy()
        K[0, :2] *= 0.5
        K[1, 1] *= 0.5
        K[:2, 2] = 0.5 * (K[:2, 2] - 0.5)
        depth2 = None if self.depth2 is None else halve_depth(self.depth2)
        return Views(halve(self.image1), halve_depth(self.depth1), halve(self.image2), depth2, K)


def halve_depth(depth: Plane) -> Plane:
    """Depth of two by two pixels each, 0 where it is unknown or they do not lie on one surface.

    Examples
    --------
    >>> halve_depth(np.array([[1.0, 1.02, 1.0, 2.0], [0.0, 1.01, 1.0, 1.0]], dtype=np.float32)).round(3)
    array([[1.01, 0.  ]], dtype=float32)
    """
    h, w = depth.shape[0] // 2, depth.shape[1] // 2
    blocks = depth[: 2 * h, : 2 * w].reshape(h, 2, w, 2)
    known = blocks > 0.0
    count = known.sum(axis=(1, 3))
    mean = blocks.sum(axis=(1, 3)) / np.maximum(count, 1)
    most = blocks.max(axis=(1, 3))
    least = np.where(known, blocks, np.float32(np.inf)).min(axis=(1, 3))
    with np.errstate(invalid="ignore"):
        good = (count >= 2) & (most - least <= _ONE_SURFACE * mean)
    return np.ascontiguousarray(np.where(good, mean, 0.0), dtype=np.float32)


def pyramid(views: Views, depth: int, least: int) -> list[Views]:
    """Views from fine to coarse: at most ``depth`` levels, each with at least so many rows."""
    levels = [views]
    while len(levels) < depth:
        coarse = levels[-1].coarser()
        if len(coarse.rows) < least:
            break
        levels.append(coarse)
    return levels
