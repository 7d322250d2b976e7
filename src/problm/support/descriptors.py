"""Descriptors of data columns for compiled code: address, stride and type.

A column of float64, float32 or integers with any stride is described by three numbers; `problm.kernels.columns` reads
it in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_CODES = {"f8": 0, "f4": 1, "i8": 2, "i4": 3, "u1": 4, "u2": 5}
_BY_TYPE = {np.dtype(c).num: _CODES[np.dtype(c).str[1:]] for c in "dflqiBH" if np.dtype(c).str[1:] in _CODES}
ROW_NUMBER = np.array([[0, 1, 6]], dtype=np.int64)
"""Descriptor of a column of row numbers, which takes no memory."""


def describe(columns: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Address, stride and type of each scalar column, shape (columns, 3); an (N, k) array counts as k columns."""
    numbers: list[int] = []
    for column in columns:
        if column.ndim > 2:
            raise ValueError(f"data: a column must have 1 or 2 dimensions, got the shape {column.shape}")
        code = _BY_TYPE[column.dtype.num]
        at: int = column.__array_interface__["data"][0]
        strides = column.strides
        if column.ndim == 1:
            numbers += (at, strides[0], code)
            continue
        for _ in range(column.shape[1]):
            numbers += (at, strides[0], code)
            at += strides[1]
    return np.array(numbers, dtype=np.int64).reshape(-1, 3)  # a nested list would take NumPy twice as long


def loadable_type(column: NDArray[Any]) -> np.dtype[Any]:
    """The type in which the kernels read the column: its own, or float64."""
    if column.ndim > 2:
        raise ValueError(f"data: a column must have 1 or 2 dimensions, got the shape {column.shape}")
    dtype: np.dtype[Any] = column.dtype
    return dtype if dtype.isnative and dtype.num in _BY_TYPE else np.dtype(np.float64)


def loadable(column: NDArray[Any]) -> NDArray[Any]:
    """The column itself if the kernels read its type in place, else a float64 copy."""
    kind = loadable_type(column)
    return column if kind is column.dtype else column.astype(kind, copy=False)
