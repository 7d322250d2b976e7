"""``problm fit --peaks``: peaks on a background in a spectrum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..api.find_peaks import find_peaks_model
from ..inference.fit import Fit
from .exits import Bad
from .fit_columns import Input, load
from .fit_data import InMemory, Rows

_MOST = 12


def fit_peaks(
    given: Input, peaks: str, variables: str | None, absolute: bool, options: dict[str, Any]
) -> tuple[Fit, Rows]:
    """The peaks of two columns: those of ``--variables x,y``, or the first two of the file."""
    if peaks != "auto" and not peaks.isdigit():
        raise Bad(f"--peaks must be auto or a number, got {peaks!r}")
    first = [name for name in given.names if name != given.sigma][:2]
    columns = [given.column(name, "--variables") for name in variables.split(",")] if variables else first
    if len(columns) != 2:
        raise Bad(f"--peaks needs two columns, x and y: give them as --variables x,y; got {', '.join(columns)}")
    rows = load(given, columns)
    if not isinstance(rows, InMemory):
        raise Bad("--peaks needs data that fit in memory")
    sigma = rows.columns[2] if rows.weighted else None
    most = _MOST if peaks == "auto" else int(peaks)
    found = find_peaks_model(
        rows.columns[0], rows.columns[1], max_peaks=most, sigma=sigma, absolute_sigma=absolute, **options
    )
    return replace(found, model=replace(found.model, variables=(columns[0],), response=columns[1])), rows
