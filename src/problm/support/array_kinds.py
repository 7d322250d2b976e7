"""Arrays that are more than their numbers: units and masks."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


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
