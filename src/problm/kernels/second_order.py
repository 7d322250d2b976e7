"""Sums over rows of cost, gradient, Gauss-Newton matrix, and the rest of the second derivatives of the cost.

Only for one residual per row. A pass accumulates, besides the usual sums, those that the second derivatives follow
from; how they do is the model's affair (`SecondOrder.triangles`).

With a robust loss, a row costs ``s^2/2 rho(z)``, ``z = r^2/s^2``, and the second derivatives of that are

    rho' (J^T J + r d2r) + 2 z rho'' J^T J .

The Gauss-Newton matrix, which has the weights rho' alone, is far from them where the loss bends: with Tukey's, twice as
wide as the noise, its steps leave 85 % of the way each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jit.addresses import address_of
from ..linalg.cholesky_compiled import CompiledCholesky
from ..linalg.normal import Normal, Runs
from ..linalg.packed import places, square
from ..losses import Loss
from ..support.products import combine
from ..support.reduction import add_pairwise
from .chunks import CHUNK, split
from .evaluator import EVALUATOR
from .losses import BENDS
from .passes import curve_runs, robust_curve_runs, tools

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SecondOrder:
    """The kernel of a model with second derivatives; a model defines `accumulate` and `triangles`."""

    dim: int
    more: int
    """Number of sums after cost, gradient and the lower triangle of the Gauss-Newton matrix."""

    def accumulate(
        self, theta: Array, columns: NDArray[np.int64], starts: NDArray[np.int64], length: int, n: int, sums: Array
    ) -> None:
        """Add the sums over m runs of rows, which end at row n at the latest, to the rows of ``sums``."""
        raise NotImplementedError

    def triangles(self, theta: Array, sums: Array) -> Array:
        """The rest of the second derivatives from the rows of ``sums``: packed triangles (m, d (d + 1) / 2)."""
        raise NotImplementedError

    def with_loss(self, loss: Loss) -> SecondOrder | None:
        """The kernel for costs with a robust loss; None if it is not known."""
        return None

    def carried(self, theta: Array, step: Array) -> Array | None:
        """`problm.solver.problem.Problem.carried`; None in flat space."""
        return None

    def everything(
        self, theta: Array, columns: NDArray[np.int64], n: int, threads: int | None = 1
    ) -> tuple[Normal, Array]:
        """Sums over the first n rows, and the rest (d, d) of the second derivatives of the cost."""
        starts = np.arange(0, n, CHUNK)
        sums = add_pairwise(list(self._sums(theta, columns, starts, CHUNK, n, threads)))
        d = self.dim
        normal = Normal(n, sums.item(0), sums[1 : 1 + d], sums.take(places(d, 1 + d)), compiled=CompiledCholesky)
        return normal, square(self.triangles(theta, sums[None])[0], d)

    def runs(
        self, theta: Array, columns: NDArray[np.int64], starts: NDArray[np.int64], length: int, threads: int | None = 1
    ) -> Runs:
        """Sums over m runs of consecutive rows, with the second derivatives."""
        d = self.dim
        sums = self._sums(theta, columns, starts, length, int(starts[-1]) + length, threads)
        matrices = sums[:, 1 + d : sums.shape[1] - self.more]
        return Runs(length, sums[:, 0], sums[:, 1 : 1 + d], matrices, self.triangles(theta, sums))

    def _sums(
        self, theta: Array, columns: NDArray[np.int64], starts: NDArray[np.int64], length: int, n: int,
        threads: int | None,
    ) -> Array:  # fmt: skip
        d = self.dim
        sums = np.zeros((len(starts), 1 + d + d * (d + 1) // 2 + self.more))

        def run(lo: int, hi: int) -> None:
            self.accumulate(theta, columns, starts[lo:hi], length, n, sums[lo:hi])

        split(run, len(starts), length, threads)
        return sums


@dataclass(frozen=True)
class FormulaSecondOrder(SecondOrder):
    """Second derivatives of a formula, as multiples of its first derivatives and of ``more`` other rows."""

    program: NDArray[np.int64]
    """Program of the tape for the residual, its derivatives and the other rows."""
    constants: Array
    pairs: NDArray[np.intp]
    """(k, 2) parameters of each second derivative that is not zero, the larger index first."""
    terms: NDArray[np.intp]
    """(q, 2) the second derivative that each term belongs to, and the evaluated derivative, among the d first and the
    ``more`` others, that it is a multiple of."""
    ratios: Callable[[Array], Array]
    """The factors (q,) of the terms at a point."""
    evaluator: Any

    def accumulate(
        self, theta: Array, columns: NDArray[np.int64], starts: NDArray[np.int64], length: int, n: int, sums: Array
    ) -> None:
        at = address_of(self.evaluator, EVALUATOR)
        curve_runs(
            at, theta, columns, starts, length, n, self.program, self.constants, self.dim, self.more, tools(False), sums
        )

    def triangles(self, theta: Array, sums: Array) -> Array:
        d = self.dim
        products = np.concatenate([sums[:, 1 : 1 + d], sums[:, sums.shape[1] - self.more :]], axis=1)
        weights = np.zeros((d * (d + 1) // 2, products.shape[1]))
        a, b = self.pairs.T
        weights[(a * (a + 1) // 2 + b)[self.terms[:, 0]], self.terms[:, 1]] = self.ratios(theta)
        return combine(weights, products.T).T

    def with_loss(self, loss: Loss) -> RobustSecondOrder:
        return RobustSecondOrder(self.dim, self.more + self.dim * (self.dim + 1) // 2, self, loss)


@dataclass(frozen=True)
class RobustSecondOrder(SecondOrder):
    """Second derivatives of the cost of a formula with a robust loss."""

    formula: FormulaSecondOrder
    loss: Loss

    def accumulate(
        self, theta: Array, columns: NDArray[np.int64], starts: NDArray[np.int64], length: int, n: int, sums: Array
    ) -> None:
        from .robust import robust_bends

        own, loss = self.formula, self.loss
        robust_curve_runs(
            address_of(own.evaluator, EVALUATOR), address_of(robust_bends, BENDS), theta, columns, starts, length, n,
            own.program, own.constants, self.dim, own.more, loss.code, tools(True), float(loss.scale), sums,
        )  # fmt: skip

    def triangles(self, theta: Array, sums: Array) -> Array:
        others = sums.shape[1] - self.dim * (self.dim + 1) // 2
        made: Array = self.formula.triangles(theta, sums[:, :others]) + sums[:, others:]
        return made
