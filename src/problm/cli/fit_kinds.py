"""Kinds of ``problm fit`` besides a formula with errors of the response alone: peaks, errors in x, limits, counts."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..api.find_peaks import find_peaks_model
from ..inference.fit import Fit
from .exits import Bad
from .fit_columns import Input, load, place, split_model
from .fit_data import InMemory, Rows

if TYPE_CHECKING:
    from ..models.model import Model
    from ..solver.result import Result

Array = NDArray[Any]
_MOST = 12
_BEYOND = re.compile(r"\s*([<>])=?\s*(\S+)\s*")


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


def fit_kind(
    given: Input,
    text: str,
    variables: str | None,
    kind: tuple[str, str],
    starts: Any,
    absolute: bool,
    options: dict[str, Any],
) -> tuple[Fit, Rows]:
    """A formula fitted to data with errors in x, to values of which some are limits, or to counts.

    Parameters
    ----------
    kind : ``--x-sigma``, ``--censored`` or ``--counts``, and its value.
    starts : ``(model) -> (known starts, (lower, upper), indices of fixed parameters)``.
    """
    option, value = kind
    counts = option == "--counts"
    if counts and (given.sigma is not None or options.get("loss", "linear") != "linear"):
        raise Bad("--counts has errors and a loss of its own: leave out --sigma and --loss")
    if not counts and given.sigma is None:
        raise Bad(f"{option} needs --sigma, against which it is weighed: a column, or a number")
    used = [given.column(part, option) for part in value.split(",") if _is_name(part) and part != "poisson"]
    model, columns = split_model(text, replace(given, others=tuple(used)), variables)
    known, bounds, held = starts(model)
    names = model.parameters
    options |= {
        "p0": {names[i]: number for i, number in known.items()}, "bounds": bounds,
        "fixed": {names[i]: known[i] for i in held} or None,
    }  # fmt: skip
    rows = load(given, [*columns, *used])
    if not isinstance(rows, InMemory):
        raise Bad(f"{option} needs data that fit in memory")
    k = len(model.variables)
    y, extra = rows.columns[k], dict(zip(used, rows.columns[k + 1 :], strict=False))
    sigma = rows.columns[-1]
    x = rows.columns[0] if k == 1 else np.stack(rows.columns[:k])
    if counts:
        from ..api.fit_counts import fit_counts

        fractions = np.flatnonzero(~((y >= 0) & (y == np.floor(y))))
        if fractions.size:
            where = place(given, int(rows.kept[fractions[0]]))
            raise Bad(
                f"--counts: column {columns[k]!r} has {y[fractions[0]]:g} in {where}; "
                "counts must be whole numbers, at least 0"
            )
        trials = None if value == "poisson" else extra[used[0]] if used else float(value)
        options = {name: given for name, given in options.items() if name not in ("loss", "f_scale")}
        found = fit_counts(model, x, y, trials=trials, **options)
        y, sigma = np.asarray(found.y), np.asarray(found.sigma)
    elif option == "--x-sigma":
        from ..api.fit import fit

        spread = _spread(value, given, model, extra, len(y))
        found = fit(model, x, y, sigma=sigma, x_sigma=spread, absolute_sigma=absolute, **options)
    else:
        from ..api.likelihoods.censored import fit_censored

        y, sides = _limits(value, given, y, extra)
        found = fit_censored(model, x, y, sides, sigma, **options)
    numbers = {"r_squared": found.r2} if option == "--x-sigma" else {}
    return replace(found, labels=tuple(columns)), _Judged([*rows.columns[:k], y, sigma], True, rows.kept, numbers)


@dataclass
class _Judged(InMemory):
    """Rows whose residuals are not those of the response alone."""

    numbers: dict[str, float]

    def goodness(self, model: Model, result: Result) -> dict[str, float]:
        """No root mean square, which would be that of distances; with limits nothing at all."""
        return self.numbers


def _is_name(text: str) -> bool:
    """Whether text is the name of a column: neither a number nor a limit such as <0.2."""
    try:
        float(text)
    except ValueError:
        return bool(text.strip()) and not _BEYOND.fullmatch(text)
    return False


def _spread(text: str, given: Input, model: Model, columns: dict[str, Array], n: int) -> Array:
    """(n,) or (k, n) standard deviations of the variables, from names of columns and numbers."""
    parts = [columns[given.column(p, "--x-sigma")] if _is_name(p) else np.full(n, float(p)) for p in text.split(",")]
    if len(parts) != len(model.variables):
        raise Bad(f"--x-sigma: give one for each of {', '.join(model.variables)}, such as 0.1 or a column")
    if not all((part >= 0.0).all() for part in parts):
        raise Bad("--x-sigma: standard deviations must not be negative")
    return parts[0] if len(parts) == 1 else np.stack(parts)


def _limits(text: str, given: Input, y: Array, columns: dict[str, Array]) -> tuple[Array, Array]:
    """The response, with the limit in place of what lies beyond it, and -1, 0 or 1 for each value."""
    if columns:
        (sides,) = columns.values()
        if not np.isin(sides, (-1, 0, 1)).all():
            raise Bad(f"--censored: column {text!r} must hold -1 (at most), 0 (measured) or 1 (at least)")
        return y, sides
    y, sides = np.array(y, dtype=np.float64), np.zeros(len(y))
    for part in text.split(","):
        found = _BEYOND.fullmatch(part)
        try:
            limit = float(found.group(2)) if found else float("nan")
        except ValueError:
            limit = float("nan")
        if found is None or not np.isfinite(limit):
            raise Bad(f"--censored: {part!r} is neither a column nor a limit such as '<0.2' or '>4.5'")
        beyond = y <= limit if found.group(1) == "<" else y >= limit
        y[beyond], sides[beyond] = limit, -1.0 if found.group(1) == "<" else 1.0
    return y, sides
