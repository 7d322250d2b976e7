"""Check the user's arguments before any work: clear errors that name the argument and the remedy."""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..support.array_kinds import as_numbers, refuse_units

Array = NDArray[np.float64]

CHECK_UP_TO = 100_000
"""Largest number of rows for which all data are checked for NaN at once. Above it rows are checked as they are read,
because checking 10^7 rows takes longer than fitting them. The error is the same, and names the row."""


def parameters(name: str, value: Any) -> Array:
    """Return a start (d,) of finite numbers."""
    refuse_units(name, value)
    try:
        array = np.array(value, dtype=np.float64, ndmin=1)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a list of real numbers, got {value!r}") from error
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name} is empty: give at least one parameter")
    if not all(map(math.isfinite, array.tolist())):
        bad = np.flatnonzero(~np.isfinite(array))
        raise ValueError(f"{name}[{bad[0]}] is {array[bad[0]]}: every parameter must start at a finite number")
    return array


def column(name: str, value: Any) -> NDArray[Any]:
    """Return numbers with rows along the first axis, also from lists, pandas, polars and PyArrow columns."""
    if type(value) is np.ndarray and value.dtype.char in "fd" and value.ndim:  # most of the time
        return value
    array = as_numbers(name, value)
    if array.ndim == 0:
        raise ValueError(f"{name} must be an array with one row per residual, got the single value {value!r}")
    return array


def numbers(name: str, value: Any) -> Array:
    """Return real numbers of any shape in double precision, from whatever `column` takes."""
    array = value if type(value) is np.ndarray and value.dtype.kind == "f" else as_numbers(name, value)
    if array.dtype.kind == "c":
        raise ValueError(f"{name} is complex, but real numbers are needed here")
    return array.astype(np.float64, copy=False)


def columns(data: Any) -> tuple[NDArray[Any], ...]:
    """Return the arrays of ``data`` (a tuple, a mapping or one array), all with the same number of rows."""
    if isinstance(data, Mapping):
        named = [(f"data[{key!r}]", value) for key, value in data.items()]
    elif isinstance(data, (tuple, list)) and not _is_numbers(data):
        named = [(f"data[{i}]", value) for i, value in enumerate(data)]
    else:
        named = [("data", data)]
    if not named:
        raise ValueError("data is empty: give at least one array with one row per residual")
    arrays = [column(name, value) for name, value in named]
    lengths = {name: len(array) for (name, _), array in zip(named, arrays, strict=True)}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise ValueError(f"data: all arrays must have the same number of rows, but {told}")
    if len(arrays[0]) == 0:
        raise ValueError("data has no rows: there is nothing to fit")
    return tuple(arrays)


def checked_columns(data: Any, nan_policy: str) -> tuple[NDArray[Any], ...]:
    """Return the arrays of ``data`` without NaN: rows with NaN are left out (``"omit"``) or named in an error."""
    rows = columns(data)
    if nan_policy == "omit":
        return omit_nan(rows)
    if len(rows[0]) <= CHECK_UP_TO:
        finite([(f"data[{i}]", a) for i, a in enumerate(rows)])
    return rows


def _is_numbers(values: Sequence[Any]) -> bool:
    return len(values) > 0 and all(np.isscalar(v) for v in values)


def finite(named: Iterable[tuple[str, NDArray[Any]]]) -> None:
    """Raise at the first NaN or infinity of arrays with rows along the first axis, naming array and row."""
    for name, array in named:
        if array.dtype.kind not in "fc":
            continue
        # NaN and infinity show in the sum of squares, and `vdot` does not warn on overflow. On one number cmath is five
        # times as fast as NumPy.
        if not cmath.isfinite(np.vdot(array, array) if array.ndim == 1 else array.sum()):
            good = np.isfinite(array.reshape(len(array), -1)).all(axis=1)
            if not good.all():
                row = int(np.argmin(good))
                raise ValueError(
                    f"{name} is not finite at row {row} (value {array[row]}): remove such rows, "
                    "or pass nan_policy='omit' to leave them out"
                )


def omit_nan(arrays: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    """Return the rows in which no array has a NaN."""
    good = np.ones(len(arrays[0]), dtype=bool)
    for array in arrays:
        if array.dtype.kind in "fc":
            good &= ~np.isnan(array.reshape(len(array), -1)).any(axis=1)
    if good.all():
        return tuple(arrays)
    if not good.any():
        raise ValueError("data: every row has a NaN, so nan_policy='omit' leaves no rows to fit")
    return tuple(a[good] for a in arrays)


def as_limits(bounds: Any, d: int) -> tuple[Array, Array] | None:
    """Lower and upper bounds (d,) from SciPy's forms; None if there are none, or all of them are infinite."""
    if bounds is None:
        return None
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        bounds = (bounds.lb, bounds.ub)
    try:
        lower, upper = bounds
    except (TypeError, ValueError) as error:
        raise ValueError(f"bounds must be a pair (lower, upper), got {bounds!r}") from error
    if isinstance(lower, float) and isinstance(upper, float) and lower == -math.inf and upper == math.inf:
        return None
    found = []
    for bound in (lower, upper):
        refuse_units("bounds", bound)
        try:
            values = np.asarray(bound, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"bounds: lower and upper must be numbers, got {bound!r}") from error
        if values.shape not in ((), (d,)):
            raise ValueError(f"bounds: lower and upper must be numbers or have {d} entries, one per parameter")
        if np.isnan(values).any():
            raise ValueError("bounds must not be NaN or None; use -inf and inf for none")
        found.append(np.broadcast_to(values, (d,)).copy())
    free = np.isneginf(found[0]).all() and np.isposinf(found[1]).all()
    return None if free else (found[0], found[1])


def limits(bounds: Any, x0: Array, name: str = "x0") -> tuple[Array, Array] | None:
    """Return lower and upper bounds (d,) from SciPy's forms, None if all are infinite; the start must lie inside."""
    pair = as_limits(bounds, len(x0))
    if pair is None:
        return None
    lower, upper = pair
    crossed = np.flatnonzero(lower > upper)
    if len(crossed):
        i = crossed[0]
        raise ValueError(f"bounds: lower {lower[i]} is above upper {upper[i]} for parameter {i}")
    outside = np.flatnonzero((x0 < lower) | (x0 > upper))
    if len(outside):
        i = outside[0]
        raise ValueError(
            f"Initial guess is outside of provided bounds: {name}[{i}] = {x0[i]} is outside its bounds "
            f"[{lower[i]}, {upper[i]}]; move the start inside"
        )
    return lower, upper


def fixed_mask(fixed: Any, d: int) -> NDArray[np.bool_] | None:
    """Return a boolean mask (d,) from a mask or a list of indices; None if nothing is fixed."""
    if fixed is None:
        return None
    array = np.asarray(fixed)
    if array.size == 0:
        return None
    if array.dtype.kind == "b":
        if array.shape != (d,):
            raise ValueError(f"fixed: the mask has shape {array.shape}, expected ({d},)")
        mask = array.copy()
    else:
        if array.dtype.kind not in "iu" or array.min() < -d or array.max() >= d:
            raise ValueError(f"fixed must be a mask or indices of parameters from 0 to {d - 1}, got {fixed!r}")
        mask = np.zeros(d, dtype=bool)
        mask[array] = True
    if mask.all():
        raise ValueError("fixed: all parameters are fixed, so there is nothing to solve for")
    return mask if mask.any() else None


def scales(x_scale: Any, d: int) -> Array | None:
    """Return typical sizes (d,) of the parameters; None if they come from the Jacobian."""
    if x_scale is None or (isinstance(x_scale, str) and x_scale == "jac"):
        return None
    try:
        array = np.broadcast_to(np.asarray(x_scale, dtype=np.float64), (d,)).copy()
    except (TypeError, ValueError) as error:
        raise ValueError(f"x_scale must be 'jac', a number or {d} numbers, got {x_scale!r}") from error
    if not (np.isfinite(array).all() and (array > 0).all()):
        raise ValueError(f"x_scale must be positive and finite, got {x_scale!r}")
    return array
