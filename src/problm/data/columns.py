"""Sources of rows: the protocol, columns of binary files, columns of objects with slices, and joined sources.

A `Source` has n rows of a few columns and reads any range of them. Its rows are divided into *chunks*, the ranges that
are read together: a row group of a Parquet file, a chunk of a Zarr array, a partition of a Dask collection. Plain
binary files (``.npy``, memory maps) have no chunks; they are *fine*: a part of a chunk costs no more than its share.
For them a chunk is 64 KiB, at which a read from a solid-state disk is half seek and half transfer (measured: 78 us for
4 KiB, 150 us for 64 KiB). Binary files are read, not mapped, so that memory use is predictable and does not depend on
how the system handles mapped pages.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..support.suggest import suggest

Columns = tuple[NDArray[Any], ...]
FINE_BYTES = 1 << 16
"""Size in bytes of a chunk of a file without chunks."""
LEAST_CHUNKS = 4096
"""Smallest number of chunks of a file without chunks, so that a small one can be sampled as well."""


@dataclass(frozen=True, slots=True)
class Column:
    """Name, type and shape of one row of a column."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)


@runtime_checkable
class Source(Protocol):
    """Rows that are read in ranges. `read` may be called from several threads."""

    @property
    def n(self) -> int:
        """Number of rows."""
        ...

    @property
    def columns(self) -> tuple[Column, ...]: ...

    @property
    def ends(self) -> NDArray[np.int64]:
        """(M,) ends of the chunks, ascending; the last is n."""
        ...

    @property
    def fine(self) -> bool:
        """Whether a part of a chunk costs no more to read than its share of the chunk."""
        ...

    def read(self, lo: int, hi: int, out: Columns | None = None) -> Columns:
        """Rows [lo, hi) in their natural order, one array per column; into ``out`` if the source supports it."""
        ...


def row_bytes(source: Source) -> int:
    """Bytes of one row of all columns."""
    return sum(c.row_bytes for c in source.columns)


def even_ends(n: int, rows: int) -> NDArray[np.int64]:
    """Ends of chunks of ``rows`` rows; the last may be shorter."""
    ends = np.arange(rows, n + rows, rows, dtype=np.int64)
    ends[-1] = n
    return ends


def fine_rows(n: int, bytes_per_row: int) -> int:
    """Number of rows per chunk of a source without chunks."""
    return max(1, min(FINE_BYTES // max(bytes_per_row, 1), n // LEAST_CHUNKS))


@dataclass(frozen=True, slots=True)
class Raw:
    """Location of the rows of a column in a file, one after the other."""

    path: str
    offset: int
    """Number of bytes before the first row."""
    column: Column


class FileColumns:
    """Columns in binary files, read by offset.

    Parameters
    ----------
    n : number of rows.
    raws : one entry per column.
    """

    fine = True

    def __init__(self, n: int, raws: Sequence[Raw]) -> None:
        self.n = n
        self.raws = tuple(raws)
        self.columns = tuple(r.column for r in self.raws)
        self.files: list[str] | None = [r.path for r in self.raws]
        for raw in self.raws:
            need, have = raw.offset + n * raw.column.row_bytes, self.size_of(raw.path)
            if have < need:
                raise ValueError(f"{raw.path} is cut short: {need} bytes expected, it has {have}")
        self.ends = even_ends(n, fine_rows(n, row_bytes(self)))
        self._files: dict[str, int] = {}

    def size_of(self, path: str) -> int:
        """Size of a file in bytes."""
        return os.path.getsize(path)

    def read(self, lo: int, hi: int, out: Columns | None = None) -> Columns:
        if out is None:
            out = tuple(np.empty((hi - lo, *c.shape), dtype=c.dtype) for c in self.columns)
        for raw, array in zip(self.raws, out, strict=True):
            view = array[: hi - lo].reshape(-1).view(np.uint8).data
            self._fill(raw.path, raw.offset + lo * raw.column.row_bytes, view)
        return tuple(a[: hi - lo] for a in out)

    def _fill(self, path: str, at: int, view: memoryview) -> None:
        done = 0
        while done < len(view):  # one call reads at most 2 GiB on Linux
            if hasattr(os, "preadv"):
                got = os.preadv(self._file(path), [view[done:]], at + done)
            else:
                with open(path, "rb", buffering=0) as file:
                    file.seek(at + done)
                    got = file.readinto(view[done:]) or 0
            if got == 0:
                raise OSError(f"{path} ended at byte {at + done} while being read: has it changed?")
            done += got

    def _file(self, path: str) -> int:
        if path not in self._files:
            self._files[path] = os.open(path, os.O_RDONLY)
        return self._files[path]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": {}}

    def __del__(self) -> None:
        for file in self.__dict__.get("_files", {}).values():
            with suppress(OSError):
                os.close(file)


class Sliced:
    """Columns of any objects with a length and slices: Zarr or HDF5 arrays, or user-defined classes."""

    def __init__(self, arrays: Sequence[Any], names: Sequence[str] = ()) -> None:
        self.arrays = tuple(arrays)
        lengths = [_length(a) for a in self.arrays]
        if len(set(lengths)) != 1:
            raise ValueError(f"data: all arrays must have the same number of rows, got {lengths}")
        self.n = lengths[0]
        if self.n == 0:
            raise ValueError("data has no rows: there is nothing to fit")
        names = names or [f"data[{i}]" for i in range(len(self.arrays))]
        columns = []
        for name, array in zip(names, self.arrays, strict=True):
            first = _numbers(name, array[0:1])
            columns.append(Column(name, first.dtype, first.shape[1:]))
        self.columns = tuple(columns)
        # If chunks of the arrays are equal or multiples of each other, a multiple of the largest is read at once.
        chunks = [int(a.chunks[0]) for a in self.arrays if getattr(a, "chunks", None)]
        self.fine = not chunks
        rows = fine_rows(self.n, row_bytes(self))
        if chunks:
            largest = max(chunks)
            rows = largest * max(1, rows // largest)
        self.ends = even_ends(self.n, rows)

    def read(self, lo: int, hi: int, out: Columns | None = None) -> Columns:
        return tuple(_numbers(c.name, a[lo:hi]) for c, a in zip(self.columns, self.arrays, strict=True))


class Joined:
    """The columns of several sources, side by side."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = tuple(sources)
        lengths = [s.n for s in self.sources]
        if len(set(lengths)) != 1:
            told = ", ".join(f"data[{i}] has {n}" for i, n in enumerate(lengths))
            raise ValueError(f"data: all arrays must have the same number of rows, but {told}")
        self.n = lengths[0]
        self.columns = tuple(c for s in self.sources for c in s.columns)
        self.fine = all(s.fine for s in self.sources)
        files: list[Any] = [getattr(s, "files", None) for s in self.sources]
        self.files = None if None in files else [name for part in files for name in part]
        # Use the largest chunks: reading a part of another source's chunk twice is the lesser evil.
        coarse = [s for s in self.sources if not s.fine] or self.sources
        self.ends = min((s.ends for s in coarse), key=len)

    def read(self, lo: int, hi: int, out: Columns | None = None) -> Columns:
        return tuple(column for s in self.sources for column in s.read(lo, hi))


def choose(argument: str, wanted: Sequence[str] | None, known: Iterable[str]) -> list[str]:
    """The requested names, checked against the known ones; by default all."""

    known = list(known)
    if wanted is None:
        return known
    for name in wanted:
        if name not in known:
            raise ValueError(f"{argument}: there is no {name!r}{suggest(name, known)}; there are {', '.join(known)}")
    return list(wanted)


def _length(array: Any) -> int:
    return int(array.shape[0]) if hasattr(array, "shape") else len(array)  # Zarr arrays have no len


def _numbers(name: str, values: Any) -> NDArray[Any]:
    array = np.asarray(values)
    if array.dtype.kind == "b":
        array = array.astype(np.float64)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must hold numbers, got dtype {array.dtype}")
    return array
