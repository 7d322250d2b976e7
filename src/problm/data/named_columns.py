"""Tables as data: all columns, or for a formula those that it names.

A data frame, a mapping, a Parquet file or an ``.npz`` file has named columns, and so does a formula. Taken by position,
the columns of a table that begins with the response would silently be fitted the wrong way round.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..support.addresses import is_address
from ..support.suggest import suggest

_FRAMES = ("pandas", "polars", "pyarrow")
_TABLES = (".npz", ".parquet", ".pq", ".zarr")


def chosen_columns(model: Any, data: Any) -> Any:
    """``data`` with the columns that a formula names, in its order; frames in memory as mappings of columns.

    Names are used if the table has any of them; a table that has only some of them is an error. Tuples of arrays,
    tables without these names, and functions, which have no names, go by position.

    Examples
    --------
    >>> import problm
    >>> list(chosen_columns(problm.formula("y ~ a*exp(-b*x)"), {"y": [1.0], "note": [0.0], "x": [2.0]}))
    ['x', 'y']
    """
    if data is None or isinstance(data, (tuple, list, np.ndarray)):
        return data
    frame = type(data).__module__.partition(".")[0] in _FRAMES
    refuse_lazy(data)
    if frame and hasattr(data, "columns"):
        names = list(getattr(data, "column_names", None) or data.columns)
        data = {str(name): data[name] for name in names}
    if getattr(model, "body", None) is None:
        return data
    known = _names(data)
    wanted = None if known is None else _wanted(model, known)
    if wanted is None or wanted == known:
        return data
    if isinstance(data, Mapping):
        return {name: data[name] for name in wanted}
    if hasattr(data, "map_partitions"):
        return data[wanted]
    if isinstance(data, (str, os.PathLike)):
        from .sources import open_source

        return open_source(data, wanted)
    from .readers import ParquetRows

    return ParquetRows(data, wanted)


def refuse_lazy(data: Any) -> None:
    """Raise for a plan of polars, which has no rows yet."""
    if type(data).__module__.partition(".")[0] == "polars" and type(data).__name__ == "LazyFrame":
        raise TypeError("data is a polars LazyFrame: pass data.collect(), or the path of the files that it scans")


def _names(data: Any) -> list[str] | None:
    """Names of a table's columns; None if it is not a table."""
    if isinstance(data, Mapping):
        return list(data)
    if hasattr(data, "map_partitions") and hasattr(data, "columns"):
        return [str(name) for name in data.columns]
    if isinstance(data, (str, os.PathLike)):
        path = os.fspath(data).rstrip("/")
        if path.endswith(_TABLES) or (is_address(path) and not path.endswith(".npy")) or os.path.isdir(path):
            from .sources import open_source

            return [column.name for column in open_source(data).columns]
        return None
    names = getattr(getattr(data, "schema", None), "names", None)  # a PyArrow dataset
    return None if names is None else list(names)


def _wanted(model: Any, known: Sequence[str]) -> list[str] | None:
    """The variables and the response, if the names are known; None to go by position."""
    variables = list(model.variables)
    if model.response is None:
        others = [name for name in known if name not in variables]
        return [*variables, *others] if len(others) == 1 and set(variables) <= set(known) else None
    wanted = [*variables, str(model.response)]
    missing = [name for name in wanted if name not in known]
    if len(missing) == len(wanted):
        return None
    if missing:
        raise ValueError(
            f"data: there is no column {missing[0]!r}{suggest(missing[0], known)}; there are {', '.join(known)}"
        )
    return wanted
