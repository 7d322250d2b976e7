"""Sums over rows of cost, gradient, Gauss-Newton matrix, and residual times second derivatives.

Only for one residual per row without a loss. A pass accumulates, besides the usual sums, those that the second
derivatives follow from; how they do is the model's affair (`SecondOrder.triangles`).
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
from ..support.products import combine
from ..support.reduction import add_pairwise
from .chunks import CHUNK, split
from .evaluator import EVALUATOR
from .passes import curve_runs, tools

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
        """Packed lower triangles (m, d (d + 1) / 2) of the sums of residual times second derivatives, from the rows of
        ``sums``."""
        raise NotImplementedError

    def carried(self, theta: Array, step: Array) -> Array | None:
        """`problm.solver.problem.Problem.carried`; None in flat space."""
        return None

    def everything(
        self, theta: Array, columns: NDArray[np.int64], n: int, threads: int | None = 1
    ) -> tuple[Normal, Array]:
        """Sums over the first n rows, and the sum (d, d) of residual times second derivatives."""
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
