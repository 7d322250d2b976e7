"""Columns of an NPY file: read by offset, not mapped, so that a file that is cut short is an error and not the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..support.files import open_regular
from ..support.npy import read_header
from .columns import Column, Columns, FileColumns, Raw, choose
from .layout import default_names

MAX_COLUMNS = 10_000
_PIECE = 1 << 22
"""Bytes that are read at once."""


class NpyRows:
    """A table (N, columns), a column (N,) or records (N,), as a source of rows (`problm.data.columns.Source`)."""

    fine = True

    def __init__(self, path: Path, names: Sequence[str] | None = None) -> None:
        shape, fortran, dtype, offset = _header(path)
        n = shape[0]
        self._fields = dtype.names is not None
        if self._fields:
            kinds = {name: dtype[name] for name in dtype.names or ()}
        else:
            count = shape[1] if len(shape) == 2 else 1
            kinds = dict.fromkeys(default_names(count), dtype)
        self.names = tuple(kinds)
        for name in choose("columns", names, kinds):
            kind = kinds[name]
            if kind.kind not in "fiub" or kind.shape:
                raise ValueError(f"{path}: column {name!r} holds {kind} of shape {kind.shape}, not numbers")
        chosen = choose("columns", names, kinds)
        self._at = [self.names.index(name) for name in chosen]
        self.columns = tuple(Column(name, _as_read(kinds[name])) for name in chosen)
        self._by_column = fortran and len(shape) == 2
        if self._by_column:
            raws = [Raw(str(path), offset + j * n * dtype.itemsize, Column(self.names[j], dtype)) for j in self._at]
        else:
            raws = [Raw(str(path), offset, Column("rows", dtype, () if self._fields else shape[1:]))]
        try:
            self._file = FileColumns(n, raws)
        except ValueError as error:
            raise ValueError(f"{path} cannot be read as an array: {error}") from None
        self.n, self.ends, self.files = n, self._file.ends, self._file.files

    @property
    def bytes(self) -> int:
        """Bytes of all chosen columns in memory."""
        return self.n * sum(c.row_bytes for c in self.columns)

    def read(self, lo: int, hi: int, out: Columns | None = None) -> Columns:
        blocks = self._file.read(lo, hi)
        if self._by_column:
            found = list(blocks)
        elif self._fields:
            found = [blocks[0][c.name] for c in self.columns]
        else:
            found = [blocks[0] if blocks[0].ndim == 1 else blocks[0][:, j] for j in self._at]
        return tuple(np.ascontiguousarray(a, dtype=c.dtype) for a, c in zip(found, self.columns, strict=True))

    def load(self) -> dict[str, NDArray[Any]]:
        """All rows, read in pieces."""
        whole = {c.name: np.empty(self.n, dtype=c.dtype) for c in self.columns}
        step = max(1, _PIECE // max(1, sum(r.column.row_bytes for r in self._file.raws)))
        for lo in range(0, self.n, step):
            hi = min(lo + step, self.n)
            for array, part in zip(whole.values(), self.read(lo, hi), strict=True):
                array[lo:hi] = part
        return whole


def _as_read(kind: np.dtype[Any]) -> np.dtype[Any]:
    native = kind.newbyteorder("=")
    return np.dtype(np.float64) if kind.kind == "b" or native.itemsize > 8 else native


def _header(path: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, order and type of the array, and where its numbers begin."""
    with open_regular(path) as file:
        begin = file.read(6)
        if begin != b"\x93NUMPY":
            if begin[:4] == b"PK\x03\x04":
                raise ValueError(f"{path} is an archive of arrays; save the array that you need with numpy.save")
            raise ValueError(f"{path} cannot be read as an array: it does not begin like one")
        file.seek(0)
        shape, fortran, dtype = read_header(path, file, "it")
        offset = file.tell()
    if dtype.hasobject:
        raise ValueError(f"{path} cannot be read as an array: it holds Python objects, which are never unpickled")
    if dtype.names is not None and len(shape) != 1:
        raise ValueError(f"{path}: an array of records must have one dimension, got shape {shape}")
    if len(shape) not in (1, 2) or (len(shape) == 2 and not 0 < shape[1] <= MAX_COLUMNS):
        raise ValueError(f"{path}: expected a table (N, columns), got shape {shape}")
    if shape[0] == 0:
        raise ValueError(f"{path} holds no rows")
    return shape, fortran, dtype, offset


def read_plane(path: Path, max_bytes: int) -> dict[str, NDArray[Any]]:
    """An array (rows, columns) as an image: columns x, y, I of its pixels."""
    shape, _, dtype, _ = _header(path)
    if len(shape) != 2 or dtype.kind not in "fiub":
        raise ValueError(f"{path}: an image has the shape (rows, columns) of numbers, got {shape} of {dtype}")
    rows, count = shape
    if 24 * rows * count > max_bytes:
        raise ValueError(f"{path}: {rows} x {count} pixels take more than {max_bytes / 1e9:.1f} GB")
    whole = NpyRows(path).load()
    return {
        "x": np.tile(np.arange(count, dtype=np.float64), rows),
        "y": np.repeat(np.arange(rows, dtype=np.float64), count),
        "I": np.stack(list(whole.values()), axis=1).astype(np.float64).ravel(),
    }
