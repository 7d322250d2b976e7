"""The data of ``problm fit``: their interface, and columns in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..api.curve_fit import fit_compiled

if TYPE_CHECKING:
    from ..inference.fit import Fit
    from ..models.model import Model
    from ..solver.result import Result

Array = NDArray[Any]
FEW = 50_000
"""Number of rows for a first guess, and for the plot of a file that is too large for memory."""
SHOWN = 1_000_000
"""Number of rows in a plot of data in memory."""


class Rows(Protocol):
    """Columns x..., y[, sigma] of a fit."""

    def fit(self, model: Model, theta: Any, options: dict[str, Any]) -> Result: ...
    def guess(self, model: Model, robust: bool) -> Any: ...
    def goodness(self, model: Model, result: Result) -> dict[str, float]: ...
    def fitted(self, model: Model, result: Result, absolute: bool) -> Fit: ...


@dataclass
class InMemory:
    """Arrays x..., y[, sigma]."""

    columns: list[Array]
    weighted: bool
    kept: Array
    """Numbers of their rows in the file."""

    def fit(self, model: Model, theta: Any, options: dict[str, Any]) -> Result:
        return fit_compiled(model, tuple(self.columns), theta, self.weighted, **options)

    def guess(self, model: Model, robust: bool) -> Any:
        few, k = self._some(FEW), len(model.variables)
        return np.array(model.guess(few[0] if k == 1 else tuple(few[:k]), few[k], robust), dtype=np.float64)

    def goodness(self, model: Model, result: Result) -> dict[str, float]:
        """Root mean square of the plain residuals, and the share of the variance that the fit explains."""
        y = self.columns[len(model.variables)]
        residual = np.asarray(result.fun).ravel()
        if self.weighted:
            residual = residual * self.columns[-1]
        left, spread = float(residual @ residual), float(np.var(y)) * len(y)
        return {
            "rms_residual": float(np.sqrt(left / len(y))),
            "r_squared": 1.0 - left / spread if spread > 0 else float("nan"),
        }

    def fitted(self, model: Model, result: Result, absolute: bool) -> Fit:
        """The result with (some of) the rows, for warnings and plots."""
        from ..inference.fit import Fit
        from ..models.ties import Ties

        few, k = self._some(SHOWN), len(model.variables)
        x = few[0] if k == 1 else np.stack(few[:k])
        return Fit(
            model, Ties.read(model.parameters, {}), result, x, few[k], few[-1] if self.weighted else None, absolute
        )

    def _some(self, most: int) -> list[Array]:
        step = -(-len(self.columns[0]) // most)
        return [np.ascontiguousarray(c[::step], dtype=np.float64) for c in self.columns]
