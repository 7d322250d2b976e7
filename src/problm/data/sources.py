"""Opening data that need not fit into memory.

`open_source` makes a source (`problm.data.columns.Source`) from paths, memory maps, Zarr and HDF5 arrays, PyArrow
datasets, Dask arrays and data frames, anything with a length and slices, and tuples of these.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..support.addresses import is_address, without_secrets
from ..support.files import open_regular
from ..support.memory import as_bytes
from ..support.npy import LONGEST_HEADER, load_arrays, members, most_of, read_header, unharmed
from .columns import Column, FileColumns, Joined, Raw, Sliced, Source, choose
from .partitions import Partitions
from .remote import RemoteColumns, RemoteFiles

_SUFFIXES = ".npy, .npz, .parquet, .zarr"
_IN_MEMORY = ("to_numpy", "__array__", "__array_interface__", "__dlpack__")  # attributes that a reader of slices lacks


def open_source(data: Any, columns: Sequence[str] | None = None) -> Source:
    """Open the user's data as a source of rows.

    Parameters
    ----------
    data
        A path (``.npy``, ``.npz``, ``.parquet`` file, folder or glob, ``.zarr``), an address that fsspec or PyArrow
        know (``.npy``, ``.parquet`` file or folder, ``.zarr``; ``s3://...``), a NumPy array or memory map, a Zarr
        or HDF5 array, a PyArrow dataset, a Dask array or data frame, anything with a length and slices, or a tuple or
        mapping of these: their columns side by side.
    columns
        Columns of a table, an ``.npz`` file or a Zarr group to use, in this order; by default all.

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
        raise ValueError(
            f"columns={list(columns)!r} can be chosen from files and tables, not from {type(data).__name__}"
        )
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
    """Whether ``data`` is or contains rows outside of memory that must be read.

    Memory maps that fit into ``max_memory`` together are used in place, like arrays.
    """
    parts = list(data.values()) if isinstance(data, Mapping) else data if isinstance(data, (tuple, list)) else [data]
    kinds = {type(part) for part in parts}
    if kinds == {np.ndarray}:
        return False
    if all(issubclass(kind, np.ndarray) for kind in kinds):
        if not any(issubclass(kind, np.memmap) for kind in kinds):
            return False
        return sum(int(part.nbytes) for part in parts) > as_bytes(max_memory)
    return any(_is_stored(part) for part in parts)


def _is_stored(data: Any) -> bool:
    if isinstance(data, (str, os.PathLike, np.memmap, Source, Partitions)):
        return True
    if type(data).__module__.partition(".")[0] in ("dask", "dask_expr", "zarr", "h5py") or _is_dataset(data):
        return True
    if isinstance(data, (list, tuple, dict, bytes)) or any(hasattr(data, name) for name in _IN_MEMORY):
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
        raise ValueError("data is empty: give at least one array with one row per residual")
    parts = [_one(name, value) for name, value in named]
    if len(parts) == 1:
        return parts[0]
    files = [p for p in parts if type(p) is FileColumns]
    if len(files) == len(parts) and len({p.n for p in parts}) == 1:
        return FileColumns(parts[0].n, [raw for p in files for raw in p.raws])
    return Joined(parts)


def _open_path(path: str, columns: Sequence[str] | None) -> Source:
    name = without_secrets(path) if is_address(path) else path
    suffix = Path(name.rstrip("/")).suffix.lower()
    if suffix == ".npy" and is_address(path):
        files = RemoteFiles(path)
        n, (raw,) = _header(name, files.beginning(2 * LONGEST_HEADER), os.path.basename(name))
        return RemoteColumns(files, n, raw)
    if suffix == ".npy":
        with open_regular(path) as file:
            return FileColumns(*_header(path, file, os.path.basename(path)))
    if suffix == ".npz" and is_address(path):
        raise ValueError(f"data={name!r}: archives at an address are not read; store the arrays as .npy or .parquet")
    if suffix == ".npz":
        return _open_npz(path, columns)
    if suffix == ".zarr":
        from .zarr_arrays import open_zarr

        return open_zarr(path, columns)
    if suffix in (".parquet", ".pq") or is_address(path) or os.path.isdir(path):
        from .readers import ParquetRows

        return ParquetRows(path, columns)
    raise ValueError(f"data={name!r}: unknown format; known are {_SUFFIXES} and folders of Parquet files")


def _open_npz(path: str, columns: Sequence[str] | None) -> Source:
    """Open an ``.npz`` file; arrays of an uncompressed one are read in place, those of a compressed one are loaded."""
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
            # The local header before the data repeats name and extra field, with its own lengths.
            opened.seek(known[name].header_offset + 26)
            lengths = np.frombuffer(opened.read(4), dtype="<u2")
            begin = known[name].header_offset + 30 + int(lengths.sum())
            if raw.offset + n * raw.column.row_bytes > most_of(known[name]):
                raise ValueError(f"{path} is cut short: {name} announces more than its member of the archive holds")
            raws.append(Raw(path, begin + raw.offset, raw.column))
    if len(lengths_seen) != 1:
        raise ValueError(f"{path}: all arrays must have the same number of rows, got {sorted(lengths_seen)}")
    return FileColumns(lengths_seen.pop(), raws)


def _header(path: str, file: Any, name: str) -> tuple[int, list[Raw]]:
    """Number and location of the rows, from the header of a ``.npy`` file."""
    shape, fortran, dtype = read_header(path, file, name)
    if not shape or 0 in shape:
        raise ValueError(f"{path}: an array with one row per residual is needed, got the shape {shape}")
    if dtype.hasobject or dtype.kind not in "fiu":
        raise ValueError(f"{path}: {name} must hold numbers, got dtype {dtype}")
    if fortran and len(shape) > 1:
        raise ValueError(
            f"{path}: {name} is stored column by column; save it with np.save(path, np.ascontiguousarray(a))"
        )
    return shape[0], [Raw(path, file.tell(), Column(name, dtype, tuple(shape[1:])))]


def _raw_of_map(name: str, array: np.memmap[Any, Any]) -> Raw:
    """Location of a memory map, or a slice of one, in its file."""
    whole = np.frombuffer(array._mmap, dtype=np.uint8)  # type: ignore[attr-defined]
    inside = array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    import mmap

    begin = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    return Raw(os.fspath(array.filename or ""), begin + inside, Column(name, array.dtype, array.shape[1:]))


def _is_dataset(data: Any) -> bool:
    return type(data).__module__.startswith("pyarrow._dataset") or type(data).__module__ == "pyarrow.dataset"
