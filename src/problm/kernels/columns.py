"""Columns of data as compiled code reads them: in place, by address, stride and type.

A column of float64, float32 or integers, of any stride, is described by three numbers; `load_rows` turns a block of
rows into float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from ..jit.njit import njit

_f8, _i8 = types.float64, types.int64


def _loader(kind: Any) -> Any:
    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def load(typing: Any, at: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], context.get_value_type(kind).as_pointer())
            return builder.load(pointer, align=1)

        return kind(_i8), codegen

    return load


def _reader(kind: Any) -> Any:
    """As `_loader`, for item i of a contiguous array: such a loop is vectorised."""

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def read(typing: Any, at: Any, i: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], context.get_value_type(kind).as_pointer())
            return builder.load(builder.gep(pointer, [args[1]]), align=1)

        return kind(_i8, _i8), codegen

    return read


_read_f8, _read_f4 = _reader(_f8), _reader(types.float32)
_load_f8, _load_f4 = _loader(_f8), _loader(types.float32)
_load_i8, _load_i4 = _loader(_i8), _loader(types.int32)
_load_u1, _load_u2 = _loader(types.uint8), _loader(types.uint16)
_CODES = {"f8": 0, "f4": 1, "i8": 2, "i4": 3, "u1": 4, "u2": 5}
_BY_TYPE = {np.dtype(c).num: _CODES[np.dtype(c).str[1:]] for c in "dflqiBH" if np.dtype(c).str[1:] in _CODES}
ROW_NUMBER = np.array([[0, 1, 6]], dtype=np.int64)
"""Descriptor of a column that holds its own row number: costs no memory."""


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
    return np.array(numbers, dtype=np.int64).reshape(-1, 3)  # of a flat list: nested ones take NumPy twice as long


def loadable_type(column: NDArray[Any]) -> np.dtype[Any]:
    """The type in which the kernels read the column: its own, or float64."""
    if column.ndim > 2:
        raise ValueError(f"data: a column must have 1 or 2 dimensions, got the shape {column.shape}")
    dtype: np.dtype[Any] = column.dtype
    return dtype if dtype.isnative and dtype.str[1:] in _CODES else np.dtype(np.float64)


def loadable(column: NDArray[Any]) -> NDArray[Any]:
    """The column itself if the kernels read its type in place, else a float64 copy."""
    return column.astype(loadable_type(column), copy=False)


@njit(types.void(_i8[:, ::1], _i8, _i8, _f8[:, ::1]), nogil=True)
def load_rows(columns, lo, m, out):  # type: ignore[no-untyped-def]
    for c in range(columns.shape[0]):
        step, code = columns[c, 1], columns[c, 2]
        at = columns[c, 0] + lo * step
        if code == 0 and step == 8:
            for i in range(m):
                out[c, i] = _read_f8(at, i)
        elif code == 0:
            for i in range(m):
                out[c, i] = _load_f8(at + step * i)
        elif code == 1 and step == 4:
            for i in range(m):
                out[c, i] = _read_f4(at, i)
        elif code == 1:
            for i in range(m):
                out[c, i] = _load_f4(at + step * i)
        elif code == 2:
            for i in range(m):
                out[c, i] = _load_i8(at + step * i)
        elif code == 3:
            for i in range(m):
                out[c, i] = _load_i4(at + step * i)
        elif code == 4:
            for i in range(m):
                out[c, i] = _load_u1(at + step * i)
        elif code == 5:
            for i in range(m):
                out[c, i] = _load_u2(at + step * i)
        else:
            for i in range(m):
                out[c, i] = lo + i
