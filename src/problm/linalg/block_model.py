r"""The quadratic model of normal equations that are a block matrix, as those of many cameras.

If the matrix vanishes along known directions N (`problm.linalg.blocks.BlockMatrix`), as many parameters are held that
determine the position along them (pivots of a QR of N'), by adding one to their entries on the unit diagonal. Because
``H N = 0`` and ``g'N = 0``, the step then has its minimum where the held parameters do not move, and what it has along
N is removed. A damped step has no component along N by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .block_cholesky import Factor
from .block_inverse import RIDGE, held
from .blocks import BlockMatrix
from .cholesky import LEAST_SHARE, MOST_SHARE
from .quadratic import NEAR, Extrapolation, Proposal
from .sparse import SparseModel

Array = NDArray[np.float64]
_NEGLIGIBLE = 1e-13
"""Damping of a matrix with unit diagonal that counts as none: below, rounding decides along the null space."""


class _Blocks:
    """Solves with ``M + damping D``, M a block matrix with unit diagonal."""

    def __init__(self, matrix: BlockMatrix, metric: Array | None) -> None:
        self._matrix = matrix
        self._metric = np.ones(matrix.shape[0]) if metric is None else metric
        self.local: Array | None = None
        self._factors: dict[float, Factor] = {}
        self._singular = False
        self._null, self._held = held(matrix.null)

    def __call__(self, damping: float, right: Array) -> Array:
        return self._factor(damping).solve(right)

    def damped(self, damping: float, gradient: Array) -> Array:
        return self(damping, gradient)

    def gauss_newton(self, gradient: Array) -> Array:
        x = self(0.0, gradient)
        return x - self._null @ (self._null.T @ x)

    def singular(self) -> bool:
        self._factor(0.0)
        return self._singular

    def hold(self, local: Array | None) -> None:
        self._factors.clear()
        self.local = local

    def _factor(self, damping: float) -> Factor:
        if damping not in self._factors:
            self._factors.clear()  # only the latest: they are large
            added = damping * self._metric
            if damping == 0.0:
                added[self._held] += 1.0
            elif self.local is not None:
                added += self.local
            factor = Factor(self._matrix, added)
            ridge = RIDGE
            while not factor.regular:
                self._singular |= damping == 0.0
                factor = Factor(self._matrix, added + ridge)
                ridge *= 100.0
            self._factors[damping] = factor
        return self._factors[damping]


class BlockModel(SparseModel):
    """Mean normal equations whose H is a `BlockMatrix`; all parameters are free."""

    __slots__ = ()

    def _scaled(self) -> None:
        hessian: BlockMatrix = self.normal.hessian  # type: ignore[assignment]
        self._scale_by(hessian.diagonal())
        self._matrix = hessian.scaled(self._scale, 1.0 / self.count)
        self._solver = _Blocks(self._matrix, self._diagonal)

    def hold(self, local: Array) -> None:
        """Damp each parameter by ``local`` (d,), relative to the diagonal of H, besides the common damping."""
        self._solver.hold(local if local.any() else None)
        self._known = None

    def step(self, damping: float) -> Proposal:
        """The damped step."""
        if self._solver.local is not None:
            return super().step(max(damping, _NEGLIGIBLE))
        return super().step(damping if damping > _NEGLIGIBLE else 0.0)

    def extrapolated(self, taken: Array, promised: Array) -> Extrapolation | None:
        """A step extrapolated from the last one, as in `problm.linalg.cholesky.Cholesky.extrapolated`."""
        if not self.decrement < NEAR * self.cost:
            return None
        p = self._scale * -self._gauss_newton
        change = p - promised
        resisted = self.normal.hessian @ change
        curvature = float(change @ resisted)
        turn = float(p @ resisted)
        share = turn / curvature if curvature > 0.0 else 0.0
        if not LEAST_SHARE < abs(share) < MOST_SHARE:
            return None
        step = p - share * (taken + change)
        predicted = -0.5 * float(self.normal.gradient @ step) / self.count
        if not predicted > 0.5 * self.decrement:
            return None
        scaled = step / self._scale
        return step, predicted, float(scaled @ scaled), max(self.decrement - 0.5 * share * turn / self.count, 0.0)

    def _described(self, x: Array, damping: float) -> Proposal:
        step, predicted, length = super()._described(x, damping)
        local = self._solver.local
        if local is not None and damping > 0.0:
            predicted += 0.5 * float(x @ (local * x))
        return step, predicted, length


def model_of(hessian: Any) -> type[SparseModel]:
    """The model for normal equations with this matrix, which is not dense."""
    return BlockModel if isinstance(hessian, BlockMatrix) else SparseModel
