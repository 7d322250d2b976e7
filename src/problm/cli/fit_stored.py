"""Files larger than memory, or spread over a cluster: rows are read as the fit needs them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from ..curves import CurveRows
from ..scipy_api import least_squares
from ..sources import open_source
from .fit_data import FEW, InMemory

if TYPE_CHECKING:
    from ..fitmodel import Model
    from ..result import Result

_PIECES = 16


class Stored:
    """Columns of Parquet files, as `problm.sources` opens them."""

    def __init__(
        self, file: str, names: list[str], weighted: bool, max_memory: str | None, cluster: str | None
    ) -> None:
        self.source = open_source(file, names)
        self.file, self.names, self.weighted = file, names, weighted
        self.max_memory, self.cluster = max_memory, cluster

    def fit(self, model: Model, theta: Any, options: dict[str, Any]) -> Result:
        with ExitStack() as stack:
            client, data = None, self.source
            if self.cluster is not None:
                client, data = stack.enter_context(connect(self.cluster)), frame(self.file, self.names)
            result = least_squares(
                CurveRows(model, self.weighted), theta, data=data, client=client, max_memory=self.max_memory, **options
            )
        result.names = model.parameters
        return result

    def guess(self, model: Model) -> Any:
        return self._sample().guess(model)

    def goodness(self, model: Model, result: Result) -> dict[str, float]:
        """Nothing: it would take one more pass over the file."""
        return {}

    def picture(self, model: Model, result: Result) -> Any:
        """Of a sample of the rows."""
        return self._sample().picture(model, result)

    def _sample(self) -> InMemory:
        """Some rows from all over the file, which may be sorted."""
        n, size = self.source.n, max(1, FEW // _PIECES)
        begins = np.unique(np.linspace(0, max(n - size, 0), _PIECES).astype(int))
        parts = [self.source.read(int(b), min(int(b) + size, n)) for b in begins]
        return InMemory([np.concatenate(c) for c in zip(*parts, strict=True)], self.weighted)


def connect(address: str) -> Any:
    """A Dask client: of a scheduler at an address, or of workers on this machine."""
    try:
        from dask.distributed import Client
    except ImportError as error:
        raise ImportError("--cluster needs Dask: pip install 'problm[big]'") from error
    return Client(processes=True) if address == "local" else Client(address, timeout="10s")


def frame(file: str, names: list[str]) -> Any:
    """The columns as a Dask data frame, whose partitions the workers read themselves."""
    import dask.dataframe as dd

    return dd.read_parquet(file, columns=names)[names]
