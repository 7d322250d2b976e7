"""Files larger than memory, or spread over a cluster: rows are read as the fit needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..api.curve_fit import fit_compiled
from ..data.sources import open_source
from ..data.tables import row_source
from .fit_data import FEW, InMemory

if TYPE_CHECKING:
    from ..inference.fit import Fit
    from ..models.model import Model
    from ..solver.result import Result

_PIECES = 16


class Stored:
    """Columns of Parquet and NPY files that are read in parts."""

    def __init__(
        self, file: str, names: list[str], weighted: bool, max_memory: str | None, cluster: str | None
    ) -> None:
        self.source = row_source(file, names) or open_source(file, names)
        self.weighted, self.max_memory, self.cluster = weighted, max_memory, cluster

    def fit(self, model: Model, theta: Any, options: dict[str, Any]) -> Result:
        return fit_compiled(
            model, self.source, theta, self.weighted,
            stored=True, client=self.cluster, max_memory=self.max_memory, **options,
        )  # fmt: skip

    def guess(self, model: Model, robust: bool) -> Any:
        return self._sample().guess(model, robust)

    def goodness(self, model: Model, result: Result) -> dict[str, float]:
        """Empty: it would take one more pass over the file."""
        return {}

    def fitted(self, model: Model, result: Result, absolute: bool) -> Fit:
        """The result with a sample of the rows."""
        return self._sample().fitted(model, result, absolute)

    def _sample(self) -> InMemory:
        """Some rows from all over the file, which may be sorted."""
        n, size = self.source.n, max(1, FEW // _PIECES)
        begins = np.unique(np.linspace(0, max(n - size, 0), _PIECES).astype(int))
        parts = [self.source.read(int(b), min(int(b) + size, n)) for b in begins]
        columns = [np.concatenate(c) for c in zip(*parts, strict=True)]
        return InMemory(columns, self.weighted, np.arange(len(columns[0])))
