"""The normal equations of a batch: sums that can be merged, and means for the solver.

``linearize`` of a problem returns a `Normal`: sums over residual blocks of the cost, of the gradient
``w J^T r``, of the Gauss-Newton matrix ``w J^T J`` and, for a batch, of the outer products of the blocks'
gradients, from which the noise of the mean gradient follows. Sums merge by addition: over chunks, threads,
workers and growing batches alike. The loop divides by the count, so that damping and tolerances mean the same
at every batch size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..support.products import combine
from .packed import multiplier, square

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Clusters:
    """Sums over the sampling units of blocks that were drawn together; they merge by addition."""

    units: int
    squares: float
    """Sum of the squared sizes."""
    cross: Array
    """(d,) sum of the units' gradients times their sizes."""

    def __add__(self, other: Clusters) -> Clusters:
        return Clusters(self.units + other.units, self.squares + other.squares, self.cross + other.cross)


@dataclass(frozen=True, slots=True)
class Runs:
    """Sums over each of m runs of ``length`` consecutive blocks."""

    length: int
    cost: Array
    """(m,)"""
    gradient: Array
    """(m, d)"""
    triangles: Array
    """(m, d (d + 1) / 2) the Gauss-Newton matrices, as packed lower triangles."""
    curvature: Array | None = None
    """The same of the rest of the second derivatives of the cost (`problm.solver.problem.Problem.second_order`); None
    if it is not known."""
    by: Array | None = None
    """(d, d) derivatives of the coordinates of the matrices with respect to those of the gradient; None: the same."""

    @property
    def count(self) -> int:
        """Number of blocks."""
        return self.length * len(self.cost)

    def joined(self, other: Runs, order: NDArray[np.intp]) -> Runs:
        """The runs of both, in this order."""
        both = Runs.concatenated([self, other])
        curvature = None if both.curvature is None else both.curvature[order]
        cost, gradient, triangles = (v[order] for v in (both.cost, both.gradient, both.triangles))
        return Runs(self.length, cost, gradient, triangles, curvature, self.by)

    @staticmethod
    def concatenated(parts: Sequence[Runs]) -> Runs:
        """The runs of all parts, one after the other."""
        cost, gradient, triangles = (
            np.concatenate([getattr(p, name) for p in parts]) for name in ("cost", "gradient", "triangles")
        )
        known = [p.curvature for p in parts if p.curvature is not None]
        curvature = np.concatenate(known) if len(known) == len(parts) else None
        return Runs(parts[0].length, cost, gradient, triangles, curvature, parts[0].by)

    def carried(self, by: Array | None) -> Runs:
        """The same in other coordinates v, with ``by @ v`` the present ones (None: the same); near a minimum, where the
        bend of the coordinates does not change second derivatives."""
        return self if by is None else replace(self, gradient=self.gradient @ by, by=by)

    def hessian(self) -> Array:
        """(d, d) the Gauss-Newton matrix of all runs."""
        return self._all(self.triangles)

    def second_derivatives(self) -> Array:
        """(d, d) second derivatives of the cost of all runs, as far as they are known."""
        return self.hessian() if self.curvature is None else self.hessian() + self._all(self.curvature)

    def slopes(self, step: Array) -> Array:
        """(m, d) products of the second derivatives of each run with a step."""
        factor = multiplier(step if self.by is None else self.by @ step)
        if self.by is not None:
            factor = self.by.T @ factor
        triangles = self.triangles if self.curvature is None else self.triangles + self.curvature
        return combine(factor, triangles.T).T

    def _all(self, triangles: Array) -> Array:
        total = square(triangles.sum(axis=0), self.gradient.shape[1])
        return total if self.by is None else self.by.T @ total @ self.by


@dataclass(slots=True)
class Normal:
    """Sums over ``count`` residual blocks, in a tangent space of dimension d."""

    count: int
    cost: float
    gradient: Array
    """(d,) sum of ``w J^T r``: the gradient of the cost."""
    hessian: Array
    """(d, d) sum of ``w J^T J``, symmetric."""
    outer: Array | None = None
    """(d, d) sum of ``G G^T`` over the sampling units, with G the sum of ``w J^T r`` over the blocks of a unit; None
    if not requested. Every block is a unit unless there are ``clusters``."""
    clusters: Clusters | None = None
    compiled: Any = None
    """`problm.linalg.cholesky_compiled.CompiledCholesky` for compiled rows; None for NumPy."""

    def __add__(self, other: Normal) -> Normal:
        outer = None if self.outer is None or other.outer is None else self.outer + other.outer
        clusters = None
        if self.clusters is not None or other.clusters is not None:
            clusters = self._clusters() + other._clusters()
        return Normal(
            self.count + other.count,
            self.cost + other.cost,
            self.gradient + other.gradient,
            self.hessian + other.hessian,
            outer,
            clusters,
            self.compiled,
        )

    def covariance(self) -> Array:
        """(d, d) covariance of the blocks' gradients; divided by ``count`` it is that of their mean.

        For clusters it is the linearisation of `problm.sampling.moments`, ``sum (G - s g)(G - s g)^T / count``, with
        the size s of a unit and the mean gradient g.
        """
        assert self.outer is not None
        g = self.gradient / self.count
        if self.clusters is None:
            return self.outer / self.count - g[:, None] * g
        c = self.clusters
        cross = c.cross[:, None] * g
        total = self.outer - cross - cross.T + c.squares * g[:, None] * g
        return total * (c.units / (max(c.units - 1, 1) * self.count))

    def as_dict(self) -> dict[str, Any]:
        """The sums by name, for a checkpoint."""
        clusters = None if self.clusters is None else (self.clusters.units, self.clusters.squares, self.clusters.cross)
        return {
            "count": self.count, "cost": self.cost, "gradient": self.gradient, "hessian": self.hessian,
            "outer": self.outer, "clusters": clusters, "compiled": self.compiled is not None,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, sums: dict[str, Any], compiled: Any) -> Normal:
        """The inverse of `as_dict`; ``compiled`` is the factorisation for sums of compiled kernels."""
        clusters = None if sums["clusters"] is None else Clusters(*sums["clusters"])
        return cls(**{**sums, "clusters": clusters, "compiled": compiled if sums["compiled"] else None})

    def _clusters(self) -> Clusters:
        return self.clusters or Clusters(self.count, float(self.count), self.gradient)

    @classmethod
    def zero(cls, dim: int, outer: bool = False) -> Normal:
        square = np.zeros((dim, dim))
        return cls(0, 0.0, np.zeros(dim), square, square.copy() if outer else None)
