"""Arrays that are more than their numbers: units and masks."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def refuse_units(name: str, value: Any) -> None:
    """Raise for units and masks, which a fit would drop silently."""
    if type(value) is np.ndarray and value.dtype.kind != "O":
        return
    if isinstance(value, (list, tuple)):
        for part in value[:1]:
            refuse_units(name, part)
        return
    package = type(value).__module__.partition(".")[0]
    if package in ("astropy", "pint") and (hasattr(value, "unit") or hasattr(value, "units")):
        number = "value" if package == "astropy" else "magnitude"
        raise ValueError(f"{name} has units, which a fit would drop: convert, and pass its .{number}")
    # Without numpy.ma, which nothing else needs, there are no masked arrays.
    if "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        raise ValueError(f"{name} has masked values: leave these rows out of all arrays, or fill them")
