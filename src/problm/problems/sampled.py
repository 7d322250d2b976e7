"""Common parts of problems: rows in columns in memory, and costs that one pass sums and records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sampling.columns import SampledColumns
from ..sampling.order import RandomOrder
from ..solver.problem import Problem, Theta
from ..support.digest import digest


class SampledProblem(Problem):
    """The hooks of `problm.solver.problem.Problem` that follow from columns in memory.

    A subclass evaluates ``self.data.rows(lo, hi)``: the rows at the positions [lo, hi), gathered once for a batch, or
    the columns themselves for [0, n).

    Parameters
    ----------
    columns : arrays of equal length n.
    dim : number of parameters.
    rng : random seed or Generator for the order of the rows.
    types : types of the gathered columns; by default those of the columns.
    """

    def __init__(
        self,
        columns: Sequence[NDArray[Any]],
        dim: int,
        rng: np.random.Generator | int | None = 0,
        types: Sequence[np.dtype[Any]] | None = None,
    ) -> None:
        self.data = SampledColumns(columns, rng, types)
        self.n, self.dim = self.data.n, dim

    def boundary(self, position: int) -> int:
        return self.data.order.boundary(position)

    def random_order(self) -> RandomOrder:
        return self.data.order

    def indices(self, lo: int, hi: int) -> NDArray[np.int64]:
        return self.data.order.indices(lo, hi)

    def fingerprint(self) -> dict[str, Any]:
        return {"rows": digest(self.data.columns)}

    def release(self) -> None:
        self.data.release()


class SummedProblem(Problem):
    """Costs from one method, which returns their sum and writes those of single blocks if requested."""

    def _evaluate(self, theta: Theta, lo: int, hi: int, costs: NDArray[np.float64] | None) -> float:
        """The sum of the costs of the blocks at [lo, hi), each written to ``costs`` (hi - lo,), if given."""
        raise NotImplementedError

    def costs(self, theta: Theta, lo: int, hi: int) -> NDArray[np.float64]:
        costs = np.empty(hi - lo)
        self._evaluate(theta, lo, hi, costs)
        return costs

    def cost(self, theta: Theta) -> float:
        return self._evaluate(theta, 0, self.n, None)
