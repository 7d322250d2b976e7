"""Points grouped by where they lie: regions of an image, tiles of a region and parts of a tile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_REGIONS, _LEAST = 16, 8
"""Regions at most, and points in one at least."""
_TILES, _PARTS = 4, 4
"""Tiles of a region, which are half as wide, and parts of a tile."""


@dataclass(frozen=True)
class Regions:
    """Points in an order in which those of a part are consecutive, as are the parts of a tile and of a region."""

    order: NDArray[np.intp]
    """(n,) numbers of the points."""
    edges: NDArray[np.intp]
    """(parts + 1,) positions in ``order`` where the parts begin, and n."""
    tiles: NDArray[np.intp]
    """(tiles,) the first part of each tile."""
    regions: NDArray[np.intp]
    """(regions,) the first part of each region."""

    @classmethod
    def of(cls, points: NDArray[np.floating]) -> Regions:
        """Regions of points (n, k) with equally many points each: halved again and again across their longer side.

        Examples
        --------
        >>> found = Regions.of(np.random.default_rng(0).uniform(size=(1000, 2)))
        >>> len(found.edges) - 1, len(found.tiles), len(found.regions)
        (256, 64, 16)
        """
        n = len(points)
        regions = _halved([np.arange(n)], points, min(_REGIONS, n // _LEAST))
        tiles = _halved(regions, points, min(_TILES * len(regions), n))
        parts = _halved(tiles, points, min(_PARTS * len(tiles), n))
        first = np.arange(len(parts))
        return cls(
            np.concatenate(parts), np.cumsum([0, *map(len, parts)]),
            first[:: len(parts) // len(tiles)], first[:: len(parts) // len(regions)],
        )  # fmt: skip


def _halved(blocks: list[NDArray[np.intp]], points: NDArray[np.floating], most: int) -> list[NDArray[np.intp]]:
    """Blocks of points, halved for as long as there are at most so many."""
    while 2 * len(blocks) <= most:
        blocks = [half for block in blocks for half in _halves(points, block)]
    return blocks


def _halves(points: NDArray[np.floating], block: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The points of a block on both sides of their median along the longer side."""
    inside = points[block]
    along = inside[:, int(np.argmax(np.ptp(inside, axis=0)))]
    middle = len(block) // 2
    order = np.argpartition(along, middle)
    return block[order[:middle]], block[order[middle:]]
