"""Numbers, arrays and text as JSON, and back.

Numbers keep all their digits. JSON has no infinities, so they and NaN are written as the strings ``"Infinity"``,
``"-Infinity"`` and ``"NaN"``, which are read back where a number is expected.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NOT_FINITE = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def plain(value: Any) -> Any:
    """Convert numbers, text, arrays, containers and dataclasses to values that JSON can hold.

    Examples
    --------
    >>> plain({"a": np.arange(2), "b": (1.5, np.inf)})
    {'a': [0, 1], 'b': [1.5, 'Infinity']}
    """
    if value is None or isinstance(value, str | bool | np.bool_):
        return bool(value) if isinstance(value, np.bool_) else value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        found = float(value)
        return found if math.isfinite(found) else json.dumps(found)
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON; convert it to arrays or numbers first")


def number(value: Any) -> float:
    """A number that `plain` wrote."""
    if isinstance(value, str):
        if value not in _NOT_FINITE:
            raise ValueError(f"{value[:40]!r} is not a number")
        return _NOT_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"a number was expected, got {type(value).__name__}")
    return float(value)


def count(value: Any) -> int:
    """A number of things that `plain` wrote."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError("a count is not a whole number from 0 to 2^63")
    return value


def array(value: Any, ndim: int, name: str) -> NDArray[np.float64]:
    """An array of ``ndim`` dimensions that `plain` wrote; ``name`` is used in error messages."""
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list")
    found: NDArray[np.float64] = np.array(_numbers(value), dtype=np.float64)
    if found.ndim != ndim and found.size:
        raise ValueError(f"{name} must have {ndim} dimensions, got {found.ndim}")
    return found.reshape((0,) * ndim) if found.size == 0 else found


def _numbers(value: Any) -> Any:
    return [_numbers(v) for v in value] if isinstance(value, list) else number(value)


def point(value: Any) -> Any:
    """A point that `plain` wrote: an array, or containers of arrays."""
    if isinstance(value, Mapping):
        return {k: point(v) for k, v in value.items()}
    if isinstance(value, list):
        return np.array(_numbers(value), dtype=np.float64)
    return value
