"""Arrays that are more than their numbers, or are none: units, masks, times, text."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TIMES = ": convert them to numbers in the unit of the fit, for example (t - t[0]) / np.timedelta64(1, 's')"


def refuse_units(name: str, value: Any) -> None:
    """Raise for units and masks, which a fit would drop silently."""
    if type(value) is np.ndarray and value.dtype.kind != "O":
        return
    if isinstance(value, (list, tuple)) or (type(value) is np.ndarray and value.ndim):
        for part in {type(part): part for part in value}.values():
            refuse_units(name, part)
        return
    package = type(value).__module__.partition(".")[0]
    if package == "xarray":
        refuse_units(name, getattr(value, "data", None))
    if package == "astropy" and str(getattr(value, "unit", None) or ""):  # columns of tables have the unit None
        raise ValueError(f"{name} has units, which a fit would drop: convert, and pass its .value")
    if (package == "pint" and hasattr(value, "units")) or str(getattr(value, "dtype", "")).startswith("pint["):
        remedy = ".magnitude" if package == "pint" else ".pint.magnitude"
        raise ValueError(f"{name} has units, which a fit would drop: convert, and pass its {remedy}")
    # Without numpy.ma, which nothing else needs, there are no masked arrays but those of astropy.
    hidden = np.ma.getmaskarray(value) if "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray) else None
    if package == "astropy" and hidden is None:
        hidden = getattr(value, "mask", None)
    if hidden is not None and np.any(hidden):
        raise ValueError(f"{name} has masked values: leave these rows out of all arrays, or fill them")


def as_numbers(name: str, value: Any) -> NDArray[Any]:
    """Numbers of a dtype that everything else takes, also from lists, pandas, polars and PyArrow columns.

    Raises for units, masks, times, and what is not numbers.
    """
    refuse_units(name, value)
    if hasattr(value, "to_numpy") and not isinstance(value, np.ndarray):
        value = (
            value.to_numpy(zero_copy_only=False) if type(value).__module__.startswith("pyarrow") else value.to_numpy()
        )
    array = np.asarray(value)
    if array.dtype.kind in "OUS":  # text of numbers, as the csv module reads them, is converted as by SciPy
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name} holds values that are not numbers (dtype {array.dtype}){_remedy(array)}"
            ) from error
    if array.dtype.kind == "b" or array.dtype.char == "g":
        array = array.astype(np.float64)
    if array.dtype.kind in "mM":
        raise ValueError(f"{name} holds times (dtype {array.dtype}){_TIMES}")
    if array.dtype.kind not in "fiuc":
        raise ValueError(f"{name} must hold numbers, got dtype {array.dtype}")
    return array


def _remedy(array: NDArray[Any]) -> str:
    """What to do with objects that are not numbers."""
    first = array.ravel()[0] if array.size else None
    if hasattr(first, "nominal_value"):
        return ": pass their nominal values, and their standard deviations as sigma (of x: x_sigma of problm.fit)"
    if hasattr(first, "isoformat") or hasattr(first, "mjd"):
        return _TIMES.replace("(t - t[0])", "(np.array(t, 'M8[us]') - np.datetime64(t[0]))")
    return f", such as {first!r:.40}"
