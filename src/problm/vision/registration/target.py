r"""The cloud that another one is registered to: nearest neighbours and planes.

**Cells.** For point to plane the target is divided into cubic cells. The mean of a cell's points stands for them, and a
plane through the points of the cell and its neighbours gives the normal. The nearest single point would do as long as
the noise is small compared with the distances between points. In dense clouds it is not: the nearest of many points
follows the noise of the source point, and planes through ten neighbours within the noise are arbitrary. With
cells all points count and there are fewer to search. On a curved surface the mean lies below the surface, but so does,
on average, the source's share of the cell.

**Their size** is found from the data: the least at which a plane shows. Among the nearest k = 36, 100, 300, ... points
around some of the points, the variance across the plane must be at most a fiftieth of that along it, or nearly the
least that there is (wider neighbourhoods are curved). A cell is then a third as wide as that neighbourhood, and holds
k / 9 points.

Searches use SciPy's k-d tree. Source points are first put into the order of a space-filling curve: a search near the
last one finds the tree in the cache, which makes it three times as fast with 10^6 points.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...support.scipy_extensions import extension
from .kernels import add_up, cell_codes, fit_planes

Array = NDArray[np.float64]
Index = NDArray[np.int64]
_KINDS = (36, 100, 300, 1000, 3000)
_FLAT = 0.02
_NEARLY = 1.2
_SAMPLE = 200
_AROUND = 6
"""Points in a cell and its neighbours that make a plane, at least."""


def spatial_order(points: Array) -> Index:
    """Permutation (n,) that puts points near each other in space mostly next to each other."""
    corner, codes = points.min(axis=0), np.empty(len(points), dtype=np.int64)
    extent = float(np.ptp(points, axis=0).max())
    cell_codes(points, corner, 1048575.0 / extent if extent > 0.0 else 0.0, codes)
    return np.argsort(codes, kind="stable").astype(np.int64)


class Target:
    """Target points that are searched, with their normals.

    Parameters
    ----------
    points : (m, 3) float64, contiguous.
    normals : (m, 3) unit vectors, or None to estimate them.
    plane : whether planes are needed; otherwise the points are used as they are.
    cell : width of a cell; None: found from the data.
    threads : number of threads for searches.
    """

    def __init__(
        self, points: Array, normals: Array | None = None, plane: bool = True, cell: float | None = None,
        threads: int = 1,
    ) -> None:  # fmt: skip
        self.threads = threads
        self.cell = 0.0
        """Width of a cell; 0: the points themselves are used."""
        self.raw = self.points = points
        self.normals = np.zeros((0, 3)) if normals is None else normals
        if plane and normals is None:
            self.cell = _cell_width(points) if cell is None else cell
            self.points, self.normals = _planes(points, self.cell)
        self.tree = _tree(self.points)
        some = self.points[:: max(1, len(self.points) // _SAMPLE)]
        distances: Any = self.tree.query(some, k=2)[0]
        self.spacing = float(np.median(distances[:, 1])) if len(self.points) > 1 else 0.0
        """Median distance between neighbours among the searched points."""

    def search(self, points: Array, reach: float) -> tuple[Index, Array]:
        """The nearest target point of each point (-1: none within reach), and the distance of the second nearest."""
        distances, found = self.tree.query(points, k=2, distance_upper_bound=reach, workers=self.threads)
        nearest = np.where(found[:, 0] == len(self.points), -1, found[:, 0]).astype(np.int64)
        return nearest, np.minimum(distances[:, 1], reach)


def _tree(points: Array) -> Any:
    """SciPy's k-d tree, without the rest of `scipy.spatial`."""
    return extension("spatial", "_ckdtree").cKDTree(points, balanced_tree=False)


def _cell_width(points: Array) -> float:
    """Width of cells in which planes show (module docstring)."""
    n = len(points)
    some = points[:: max(1, n // _SAMPLE)]
    tree = _tree(points)
    widths, flatness = [], []
    for k in (k for k in _KINDS if k < n / 8 or k == _KINDS[0]):
        distances, found = tree.query(some, k=min(k, n))
        near = points[found] - points[found].mean(axis=1, keepdims=True)
        values = np.linalg.eigvalsh(np.einsum("ski,skj->sij", near, near))
        # A disc of k points has as many as nine cells of this width.
        widths.append(0.59 * float(np.median(distances[:, -1])))
        flatness.append(float(np.median(values[:, 0] / np.maximum(values[:, 1], 1e-300))))
        if flatness[-1] <= _FLAT or flatness[-1] > 1.5 * min(flatness):
            break
    enough = max(_FLAT, _NEARLY * min(flatness))
    return next(width for width, flat in zip(widths, flatness, strict=True) if flat <= enough)


def _planes(points: Array, width: float) -> tuple[Array, Array]:
    """Means and normals (m, 3) of the cells of this width."""
    extent = np.ptp(points, axis=0)
    # Numbers of cells must fit an integer, whatever lies far away.
    width = max(width, float(extent.max()) * 2.0**-20, math.ulp(1.0))
    cells = ((points - points.min(axis=0)) / width).astype(np.int64)
    size = cells.max(axis=0) + 3  # neighbours of the border are other cells
    deep, across = int(size[2]), int(size[1] * size[2])
    keys = cells[:, 0] * across + cells[:, 1] * deep + cells[:, 2]
    order = np.argsort(keys, kind="stable")
    present, edges = np.unique(keys[order], return_index=True)
    edges = np.append(edges, len(points)).astype(np.int64)
    m = len(present)
    means, moments = np.empty((m, 3)), np.empty((m, 6))
    add_up(points, order, edges, means, moments)
    places, normals, around = np.empty((m, 3)), np.empty((m, 3)), np.empty(m, dtype=np.int64)
    fit_planes(present, across, deep, width, np.diff(edges), means, moments, places, normals, around)
    kept = around >= min(_AROUND, len(points))
    return np.ascontiguousarray(places[kept]), np.ascontiguousarray(normals[kept])
