"""The columns of ``problm fit``: which ones a model names, and how they are loaded (into memory if they fit)."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..api import arguments as inputs
from ..data import tables
from .exits import Bad
from .fit_data import InMemory, Rows

if TYPE_CHECKING:
    from ..models.model import Model


def split_model(text: str, file: str, variables: str | None) -> tuple[Model, list[str]]:
    """The compiled formula, and the columns that it needs: variables, then response."""
    from ..models.formula import formula

    if "~" not in text:
        raise Bad('--model: name the response on the left, for example "y ~ a*exp(-b*x) + c"')
    present = names_of(file)
    right = text.partition("~")[2]
    # A name before a parenthesis is a function, even if a column has the same name.
    words = dict.fromkeys(re.findall(r"[^\W\d]\w*(?!\w*\s*\()", right))
    if variables is not None:
        chosen = [v.strip() for v in variables.split(",") if v.strip()]
    else:
        chosen = [w for w in words if w in present and w not in ("pi", "e")]
    if not chosen:
        formula(text, variables=tuple(words)[:1])  # reports a formula that cannot be read first
        raise Bad(f"--model: none of {', '.join(words)} is a column of {file}; it has {', '.join(present[:20])}")
    try:
        model = formula(text, variables=chosen)
    except ValueError as error:
        if "no parameters" in str(error) and variables is None:
            raise Bad(
                f"--model: all its names are columns of {file}, so there is nothing to fit; name the data with "
                "--variables"
            ) from None
        raise
    if model.response not in present:
        raise Bad(f"--model: the response {model.response!r} is not a column of {file}: {', '.join(present[:20])}")
    return model, [*chosen, str(model.response)]


def _in_place(file: str) -> bool:
    """Whether the library itself reads the file, in parts."""
    if os.path.isfile(file):  # even with special characters: data[1].csv is not a pattern
        return False
    return "://" in file or any(mark in file for mark in "*?[") or os.path.isdir(file)


def names_of(file: str) -> list[str]:
    """Names of the columns."""
    if _in_place(file):
        from ..data.sources import open_source

        return [c.name for c in open_source(file).columns]
    return list(tables.column_names(file))


def load(
    file: str, columns: list[str], sigma: str | None, nan: str, max_memory: str | None, cluster: str | None
) -> Rows:
    """The columns of a file (variables, response), loaded according to its size."""
    if nan not in ("raise", "omit"):
        raise Bad(f"--nan must be raise or omit, got {nan!r}")
    from ..support.memory import as_bytes

    names = [*columns, *([sigma] if sigma else [])]
    limit = as_bytes(max_memory)
    if cluster is not None or _in_place(file) or _too_large(file, len(names), limit):
        if nan == "omit":
            raise Bad("--nan omit needs the data in memory: remove rows with NaN from the files first")
        from .fit_stored import Stored

        return Stored(file, names, sigma is not None, max_memory, cluster)
    found = tables.read_columns(file, names, max_bytes=limit)
    arrays = [found[name] for name in names]
    if nan == "omit":
        arrays = list(inputs.omit_nan(arrays))
    else:
        inputs.finite([(f"column {n!r}", c) for n, c in zip(names, arrays, strict=True)])
    if sigma is not None and not (arrays[-1] > 0).all():
        row = int(np.argmin(arrays[-1]))
        raise Bad(f"--sigma: standard deviations must be positive, but row {row} has {arrays[-1][row]}")
    return InMemory(arrays, sigma is not None)


def _too_large(file: str, columns: int, limit: int) -> bool:
    if Path(file).suffix.lower() not in (".parquet", ".pq"):
        return False
    from ..data.sources import open_source

    return 8 * columns * open_source(file).n > limit
