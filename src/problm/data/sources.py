"""Rows that need not fit into memory: one small protocol, and what can be opened as it.

A `Source` has n rows of a few columns and reads any range of them. Its rows are divided into *chunks*, the ranges that
are read together: a row group of a Parquet file, a chunk of a Zarr array, a partition of a Dask collection. Plain
binary files (``.npy``, memory maps) have no chunks of their own; they are *fine*: a part of a chunk costs no more than
its share, and 64 KiB are taken as one, where the time of a read on a solid-state disk is half seek and half transfer
(measured: 78 us for 4 KiB, 150 us for 64 KiB).

`open_source` makes a source of paths, memory maps, Zarr and HDF5 arrays, PyArrow datasets, Dask arrays and data frames,
of anything with a length and slices, and of tuples of these. Binary files are read, not mapped: memory then is what
was asked for, whatever the system does with mapped pages.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..support.files import open_regular
from ..support.memory import as_bytes
from ..support.npy import load_arrays, members, most_of, read_header, unharmed

Columns = tuple[NDArray[Any], ...]
FINE_BYTES = 1 << 16
"""Size of a chunk of a file without chunks."""
LEAST_CHUNKS = 4096
"""A file without chunks is cut into no fewer than this, so that a small one can be sampled too."""
_SUFFIXES = ".npy, .npz, .parquet, .zarr"
_IN_MEMORY = ("to_numpy", "__array__", "__array_interface__", "__dlpack__")  # what a reader of slices has not


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
        """Rows [lo, hi) in their natural order, one array a column; into ``out`` where the source can."""
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
    """Rows in a chunk of a source without chunks of its own."""
    return max(1, min(FINE_BYTES // max(bytes_per_row, 1), n // LEAST_CHUNKS))


@dataclass(frozen=True, slots=True)
class Raw:
    """Where the rows of a column lie in a file, one after the other."""

    path: str
    offset: int
    """Bytes before the first row."""
    column: Column


class FileColumns:
    """Columns in binary files, read by offset.

    Parameters
    ----------
    n : number of rows.
    raws : one entry a column.
    """

    fine = True

    def __init__(self, n: int, raws: Sequence[Raw]) -> None:
        self.n = n
        self.raws = tuple(raws)
        self.columns = tuple(r.column for r in self.raws)
        self.files: list[str] = [r.path for r in self.raws]
        for raw in self.raws:
            need, have = raw.offset + n * raw.column.row_bytes, os.path.getsize(raw.path)
            if have < need:
                raise ValueError(f"{raw.path} is cut short: {need} bytes expected, it has {have}")
        self.ends = even_ends(n, fine_rows(n, row_bytes(self)))
        self._files: dict[str, int] = {}

    def read(self, lo: int, hi: int, out: Columns | None = None) -> Columns:
        if out is None:
            out = tuple(np.empty((hi - lo, *c.shape), dtype=c.dtype) for c in self.columns)
        for raw, array in zip(self.raws, out, strict=True):
            view = array[: hi - lo].reshape(-1).view(np.uint8).data
            self._fill(raw.path, raw.offset + lo * raw.column.row_bytes, view)
        return tuple(a[: hi - lo] for a in out)

    def _fill(self, path: str, at: int, view: memoryview) -> None:
        done = 0
        while done < len(view):  # a call reads at most 2 GiB on Linux
            if hasattr(os, "preadv"):
                got = os.preadv(self._file(path), [view[done:]], at + done)
            else:
                with open(path, "rb", buffering=0) as file:
                    file.seek(at + done)
                    got = file.readinto(view[done:]) or 0
            if got == 0:
                raise OSError(f"{path} ended at byte {at + done} while it was read: has it changed?")
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
    """Columns of any objects with a length and slices: Zarr or HDF5 arrays, or classes of the user's."""

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
        # Where the arrays are chunked alike or in multiples, a multiple of the largest chunk is read at once.
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
        # The largest chunks: reading a part of another source's chunk twice is the lesser evil.
        coarse = [s for s in self.sources if not s.fine] or self.sources
        self.ends = min((s.ends for s in coarse), key=len)

    def read(self, lo: int, hi: int, out: Columns | None = None) -> Columns:
        return tuple(column for s in self.sources for column in s.read(lo, hi))


def open_source(data: Any, columns: Sequence[str] | None = None) -> Source:
    """A source of rows from what a user has.

    Parameters
    ----------
    data
        A path (``.npy``, ``.npz``, ``.parquet`` file, folder or glob, ``.zarr``), a NumPy array or memory map, a Zarr
        or HDF5 array, a PyArrow dataset, a Dask array or data frame, anything with a length and slices, or a tuple or
        mapping of these: their columns side by side.
    columns
        Which columns of a table, an ``.npz`` file or a Zarr group to take, in this order; by default all.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(folder + "/xy.npy", np.arange(20.0).reshape(10, 2))
    ...     source = open_source(folder + "/xy.npy")
    ...     source.n, source.columns[0].shape, source.read(3, 5)[0]
    (10, (2,), array([[6., 7.], [8., 9.]]))
    """
    if columns is not None and not isinstance(data, (str, os.PathLike)) and not hasattr(data, "columns"):
        raise ValueError(f"columns={list(columns)!r} can be chosen of files and tables, not of {type(data).__name__}")
    if isinstance(data, (str, os.PathLike)):
        return _open_path(os.fspath(data), columns)
    if isinstance(data, Source):
        return data
    if isinstance(data, Mapping):
        return _joined([(str(name), value) for name, value in data.items()])
    if isinstance(data, (tuple, list)):
        return _joined([(f"data[{i}]", value) for i, value in enumerate(data)])
    return _one("data", data, columns)


def is_stored(data: Any, max_memory: int | float | str | None = None) -> bool:
    """Whether ``data`` is, or holds, rows outside of memory that are to be read.

    Memory maps that fit into ``max_memory`` together are used in place, as arrays are.
    """
    parts = list(data.values()) if isinstance(data, Mapping) else data if isinstance(data, (tuple, list)) else [data]
    if all(isinstance(part, np.ndarray) for part in parts):
        if not any(isinstance(part, np.memmap) for part in parts):
            return False
        return sum(int(part.nbytes) for part in parts) > as_bytes(max_memory)
    return any(_is_stored(part) for part in parts)


def _is_stored(data: Any) -> bool:
    if isinstance(data, (str, os.PathLike, np.memmap, Source)):
        return True
    if type(data).__module__.partition(".")[0] in ("dask", "dask_expr", "zarr", "h5py") or _is_dataset(data):
        return True
    if isinstance(data, (list, tuple)) or any(hasattr(data, name) for name in _IN_MEMORY):
        return False
    return hasattr(data, "__len__") and hasattr(data, "__getitem__")


def _one(name: str, data: Any, columns: Sequence[str] | None = None) -> Source:
    if isinstance(data, (str, os.PathLike)):
        return _open_path(os.fspath(data), columns)
    if isinstance(data, Source):
        return data
    if isinstance(data, np.memmap) and data.ndim and data.flags.c_contiguous and data.filename is not None:
        return FileColumns(len(data), [_raw_of_map(name, data)])
    if type(data).__module__.partition(".")[0] in ("dask", "dask_expr"):
        from .readers import DaskRows

        return DaskRows.of(name, data, columns)
    if _is_dataset(data):
        from .readers import ParquetRows

        return ParquetRows(data, columns)
    if not (hasattr(data, "__getitem__") and (hasattr(data, "__len__") or hasattr(data, "shape"))):
        raise TypeError(f"{name} must have a length and slices, or be a path to {_SUFFIXES}; got {type(data).__name__}")
    return Sliced([data], [name])


def _joined(named: Sequence[tuple[str, Any]]) -> Source:
    if not named:
        raise ValueError("data is empty: give at least one array with a row for each residual")
    parts = [_one(name, value) for name, value in named]
    if len(parts) == 1:
        return parts[0]
    files = [p for p in parts if isinstance(p, FileColumns)]
    if len(files) == len(parts) and len({p.n for p in parts}) == 1:
        return FileColumns(parts[0].n, [raw for p in files for raw in p.raws])
    return Joined(parts)


def _open_path(path: str, columns: Sequence[str] | None) -> Source:
    suffix = Path(path.rstrip("/")).suffix.lower()
    if suffix == ".npy":
        with open_regular(path) as file:
            return FileColumns(*_header(path, file, os.path.basename(path)))
    if suffix == ".npz":
        return _open_npz(path, columns)
    if suffix == ".zarr":
        from .zarr_arrays import open_zarr

        return open_zarr(path, columns)
    if suffix in (".parquet", ".pq") or "://" in path or os.path.isdir(path):
        from .readers import ParquetRows

        return ParquetRows(path, columns)
    raise ValueError(f"data={path!r}: cannot tell what it is; known are {_SUFFIXES} and folders of Parquet files")


def _open_npz(path: str, columns: Sequence[str] | None) -> Source:
    """Arrays of an uncompressed ``.npz`` are read in place; of a compressed one, loaded."""
    with open_regular(path) as opened, unharmed(path), zipfile.ZipFile(opened) as archive:
        known = members(path, archive, os.path.getsize(path))
        names, raws, lengths_seen = choose("columns", columns, list(known)), list[Raw](), set[int]()
        if any(known[name].compress_type != zipfile.ZIP_STORED for name in names):
            arrays = load_arrays(path, names)
            return Sliced([arrays[name] for name in names], names)
        for name in names:
            with archive.open(known[name]) as file:
                n, (raw,) = _header(path, file, name)
            lengths_seen.add(n)
            # The local header repeats name and extra field, with lengths of its own, before the data.
            opened.seek(known[name].header_offset + 26)
            lengths = np.frombuffer(opened.read(4), dtype="<u2")
            begin = known[name].header_offset + 30 + int(lengths.sum())
            if raw.offset + n * raw.column.row_bytes > most_of(known[name]):
                raise ValueError(f"{path} is cut short: {name} announces more than its member of the archive holds")
            raws.append(Raw(path, begin + raw.offset, raw.column))
    if len(lengths_seen) != 1:
        raise ValueError(f"{path}: all arrays must have the same number of rows, got {sorted(lengths_seen)}")
    return FileColumns(lengths_seen.pop(), raws)


def choose(argument: str, wanted: Sequence[str] | None, known: Iterable[str]) -> list[str]:
    """The wanted names, checked against those that there are; all if none are given."""
    from ..support.suggest import suggest

    known = list(known)
    if wanted is None:
        return known
    for name in wanted:
        if name not in known:
            raise ValueError(f"{argument}: there is no {name!r}{suggest(name, known)}; there are {', '.join(known)}")
    return list(wanted)


def _header(path: str, file: Any, name: str) -> tuple[int, list[Raw]]:
    """Number of rows, and where they are, from the header of a ``.npy`` file."""
    shape, fortran, dtype = read_header(path, file, name)
    if not shape or shape[0] == 0:
        raise ValueError(f"{path}: an array with a row for each residual is needed, got the shape {shape}")
    if dtype.hasobject or dtype.kind not in "fiu":
        raise ValueError(f"{path}: {name} must hold numbers, got dtype {dtype}")
    if fortran and len(shape) > 1:
        raise ValueError(
            f"{path}: {name} is stored column by column; save it with np.save(path, np.ascontiguousarray(a))"
        )
    return shape[0], [Raw(path, file.tell(), Column(name, dtype, tuple(shape[1:])))]


def _raw_of_map(name: str, array: np.memmap[Any, Any]) -> Raw:
    """Where a memory map, or a slice of one, lies in its file."""
    whole = np.frombuffer(array._mmap, dtype=np.uint8)  # type: ignore[attr-defined]
    inside = array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    import mmap

    begin = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    return Raw(os.fspath(array.filename or ""), begin + inside, Column(name, array.dtype, array.shape[1:]))


def _length(array: Any) -> int:
    return int(array.shape[0]) if hasattr(array, "shape") else len(array)  # Zarr arrays have no len


def _numbers(name: str, values: Any) -> NDArray[Any]:
    array = np.asarray(values)
    if array.dtype.kind == "b":
        array = array.astype(np.float64)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must hold numbers, got dtype {array.dtype}")
    return array


def _is_dataset(data: Any) -> bool:
    return type(data).__module__.startswith("pyarrow._dataset") or type(data).__module__ == "pyarrow.dataset"
