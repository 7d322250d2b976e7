"""Values from files of reconstructions, which are not trusted.

Counts are checked against the size of the file before anything is allocated, every number must be finite, every
reference must be valid, and an error names the file, the line and what was expected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
T = TypeVar("T")


def whole_numbers(values: Array) -> NDArray[np.int64] | None:
    """Floats as integers, or None if one is not whole (or too large to decide)."""
    if not (np.abs(values) < 2.0**53).all() or (values != np.floor(values)).any():
        return None
    return values.astype(np.int64)


def named(path: object, where: str, make: Callable[[], T]) -> T:
    """Return ``make()``; its error is extended by where the bad value came from."""
    try:
        return make()
    except ValueError as error:
        raise ValueError(f"{path}, {where}: {error}") from None
