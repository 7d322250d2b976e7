r"""Covariance of a fit whose neighbouring rows may share their errors: a sandwich over regions of the image.

The estimate has the covariance ``A^-1 B A^-1`` (`problm.solver.sandwich`). If rows are independent, B is the sum of
outer products of their gradients. Errors of image points and pixels are not: features that overlap move together, and a
lens or a scene that the model does not describe shifts whole regions one way. So B is the sum over *tiles* of the
image, with the gradients of a tile added up first (Liang and Zeger 1986). It is right for any change of the noise over
the image and any correlation that ends within a tile. Four measures make few tiles suffice.

* *Leverage*: residuals are smaller than errors, by what the fit took up. With ``H = L L^T`` the sum of ``w J^T J`` and
  h the share of a tile in it, ``L^-1 H_c L^-T``, its gradient is multiplied by ``(1 - h)^-1/2`` in these coordinates,
  which is exact for independent errors (CR2 of Bell and McCaffrey 2002).
* *Shrinkage*: many parts of tiles give the shape of B, few tiles mostly its size. Each sum is drawn towards a multiple
  of the one before it, parts towards H, tiles towards parts, by as much as its scatter tells (Ledoit and Wolf 2004).
* *Borders*: correlation across the borders of tiles is missed, in proportion to the length of these borders. Regions
  that are twice as wide have half of it: where they show a larger sum, by more than half of its scatter, as much again
  is added for the other half.
* *Correction*: an uncertain covariance makes squared z values too large on average, by the factor ``1 + v``, v the
  relative variance of its size, and by that of its shape, ``(d + 1) / m`` for m outer products, as far as these decide.

What remains unseen is an error that a change of the parameters imitates (a wrong focal length, say), and one that is
the same over half of the image: the residuals do not show it.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..sampling.regions import Regions
from .information import inverse_root
from .problem import Theta
from .sandwich import Linearized, curvature_of

Array = NDArray[np.float64]
_MOST_LEVERAGE = 0.95
_ENOUGH = 8
"""Regions that can tell whether errors are correlated across borders."""


class Grouped(Linearized, Protocol):
    """A problem that can sum over groups of rows."""

    def grouped(self, theta: Theta, order: NDArray[np.intp], edges: NDArray[np.intp]) -> tuple[Array, Array]:
        """Sums of ``w J^T r`` (m, d) and of ``w J^T J`` (m, d, d) over m groups of rows."""


def regional_covariance(problem: Grouped, theta: Theta, points: NDArray[np.floating], scale: float) -> Array | None:
    """(d, d) covariance of the parameters at a minimum; None where the cost is not convex there.

    Parameters
    ----------
    points : (n, 2) where the rows lie.
    scale : steps over which the curvature is measured, in units of ``(w J^T J)^-1/2``: one standard error if it is the
        size of a residual.
    """
    regions = Regions.of(points)
    gradients, hessians = problem.grouped(theta, regions.order, regions.edges)
    root, regular = inverse_root(hessians.sum(axis=0))
    if not (regular and scale > 0.0):
        return None
    curvature = curvature_of(problem, theta, root, scale, problem.n)
    if curvature is None:  # a model that bends within a standard error
        curvature = curvature_of(problem, theta, root, 0.1 * scale, problem.n)
    if curvature is None:
        return None
    noise = scores_covariance(gradients @ root, root.T @ hessians @ root, regions)
    half = root @ np.linalg.inv(curvature)
    return half @ noise @ half.T


def scores_covariance(scores: Array, shares: Array, found: Regions) -> Array:
    """(d, d) covariance of the sum of scores, as the module's docstring says.

    Parameters
    ----------
    scores : (m, d) sums of the gradient over parts, in coordinates in which H is one.
    shares : (m, d, d) shares of the parts in H.
    """
    parts = _Scatter(_levelled(scores, shares))
    root = np.linalg.cholesky(parts.sum)

    def over(firsts: NDArray[np.intp]) -> _Scatter:
        levelled = _levelled(np.add.reduceat(scores, firsts), np.add.reduceat(shares, firsts))
        return _Scatter(np.asarray(np.linalg.solve(root, levelled.T).T, dtype=np.float64))

    tiles, regions = over(found.tiles), over(found.regions)
    more = regions.size / tiles.size - 1.0
    scatter = math.sqrt(max(regions.size_variance - tiles.size_variance, 0.0))
    borders = 2.0 * max(more - 0.5 * scatter, 0.0) if len(found.regions) >= _ENOUGH else 0.0
    factor = 1.0 + tiles.size_variance + tiles.shape_variance + parts.shape_variance
    covariance: Array = factor * (1.0 + borders) * root @ tiles.sum @ root.T
    return covariance


def _levelled(scores: Array, shares: Array) -> Array:
    """Scores (m, d) as they would be if the fit had taken up nothing of the errors."""
    values, vectors = np.linalg.eigh(shares)
    growth = 1.0 / np.sqrt(1.0 - np.clip(values, 0.0, _MOST_LEVERAGE))
    along = np.einsum("mij,mi->mj", vectors, scores) * growth
    levelled: Array = np.einsum("mij,mj->mi", vectors, along)
    return levelled


class _Scatter:
    """Sum of the outer products of scores (m, d), drawn towards a multiple of the unit matrix."""

    def __init__(self, scores: Array) -> None:
        m, d = scores.shape
        squares = (scores**2).sum(axis=1)
        mean = scores.T @ scores / m
        size = max(float(squares.mean()) / d, 1e-300)
        unit = size * np.eye(d)
        apart = float(((mean - unit) ** 2).sum())
        noise = float((squares**2).mean() - (mean**2).sum()) / m
        drawn = min(noise / apart, 1.0) if apart > 0.0 else 1.0
        self.size = m * size
        """Mean of the diagonal of the sum."""
        self.sum = m * ((1.0 - drawn) * mean + drawn * unit)
        self.size_variance = float(squares.var()) / (m * (d * size) ** 2)
        """Relative variance of the mean of the squares."""
        self.shape_variance = (1.0 - drawn) * (d + 1) / m
