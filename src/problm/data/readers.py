"""Sources that are read by libraries: Parquet by PyArrow, Dask collections. Imported only when used."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..support.addresses import is_address, without_secrets
from ..support.files import explained
from ..support.npy import sound_parquet
from .columns import Column, Columns, choose
from .remote import RemoteFiles

_LEAST_BYTES = 1 << 18
"""Size up to which row groups are read together: fewer calls, each with enough rows to be worth it."""


def _missing(package: str) -> ImportError:
    return ImportError(f"{package} is needed for this kind of data: pip install 'problm[big]'")


def parquet_dataset(data: Any) -> Any:
    """The PyArrow dataset of a path, glob or address; datasets pass through."""
    try:
        import pyarrow.dataset as ds
    except ImportError as error:
        raise _missing("PyArrow") from error
    if not isinstance(data, str):
        return data
    if is_address(data):
        return _at_address(data)
    found: str | list[str] = data
    if any(mark in data for mark in "*?["):
        found = sorted(glob.glob(data))
        if not found:
            raise FileNotFoundError(f"no file matches {data!r}")
    elif os.path.isdir(data):
        found = _files_of(data)
    elif not os.path.exists(data):
        raise FileNotFoundError(f"no such file or folder: {data!r}")
    with sound_parquet(data):
        return ds.dataset(found, format="parquet")


def _files_of(folder: str) -> list[str]:
    """The files of a folder of tables, by name; those of its folders too. Links that leave it are not followed."""
    base, found = os.path.realpath(folder), list[str]()
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name[0] not in "_."]
        paths = [os.path.join(place, name) for name in names if name[0] not in "_."]
        for path in [*paths, *(os.path.join(place, name) for name in folders)]:
            if os.path.islink(path) and os.path.commonpath([base, os.path.realpath(path)]) != base:
                raise ValueError(
                    f"{folder}: {os.path.relpath(path, folder)} is a link out of this folder, which is not followed; "
                    "give a glob such as 'folder/*.parquet' if you trust it"
                )
        found += [path for path in paths if os.path.isfile(path)]
    if not found:
        raise FileNotFoundError(f"no files in the folder {folder!r}")
    return sorted(found)


def _at_address(address: str) -> Any:
    """The dataset at an address, through fsspec, or through PyArrow's own file systems where fsspec lacks a package."""
    import pyarrow.dataset as ds
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    try:
        files = RemoteFiles(address)
    except ImportError:
        with sound_parquet(told(address)):
            return ds.dataset(address, format="parquet")
    files.require()
    with sound_parquet(files.name):
        return ds.dataset(files.path, format="parquet", filesystem=PyFileSystem(FSSpecHandler(files.system)))


def told(data: Any) -> str:
    """The name of the data in messages."""
    return without_secrets(data) if isinstance(data, str) else "data"


class ParquetRows:
    """Numeric columns of a Parquet file, of a folder or glob of files, or of a PyArrow dataset.

    A chunk is a row group, or several small ones. Integer columns must not have nulls; nulls of other columns are NaN.
    PyArrow's decoders are trusted, but the numbers of rows that files announce are not.
    """

    fine = False

    def __init__(self, data: Any, columns: Sequence[str] | None = None) -> None:
        self._told, data = told(data), parquet_dataset(data)
        with sound_parquet(self._told):
            named = {field.name: field for field in data.schema if _is_numeric(field.type)}
        names = choose("columns", columns, named)
        if not names:
            raise ValueError(f"data: the table has no numeric column among {', '.join(data.schema.names)}")
        self.columns = tuple(Column(name, _dtype(named[name].type)) for name in names)
        self._names = names
        # (fragment, row group) of each group, and its end.
        self._groups: list[tuple[Any, int]] = []
        rows: list[int] = []
        with sound_parquet(self._told):
            for fragment in data.get_fragments():
                metadata = fragment.metadata
                self._check_size(fragment, metadata)
                for info in fragment.row_groups:
                    count = metadata.row_group(info.id).num_rows
                    if count:
                        self._groups.append((fragment, info.id))
                        rows.append(count)
        if not rows:
            raise ValueError("data has no rows: there is nothing to fit")
        paths = [*dict.fromkeys(str(fragment.path) for fragment, _ in self._groups)]
        self.files = paths if all(map(os.path.isfile, paths)) else None
        self._group_ends = np.cumsum(np.array(rows, dtype=np.int64))
        self.n = int(self._group_ends[-1])
        self.ends = _merged(self._group_ends, max(1, _LEAST_BYTES // sum(c.row_bytes for c in self.columns)))

    def read(self, lo: int, hi: int, out: Columns | None = None) -> Columns:
        first = int(np.searchsorted(self._group_ends, lo, side="right"))
        last = int(np.searchsorted(self._group_ends, hi, side="left"))
        parts: list[list[NDArray[Any]]] = [[] for _ in self.columns]
        at = int(self._group_ends[first - 1]) if first else 0
        for group in range(first, last + 1):
            end = int(self._group_ends[group])
            table = self._table(group)
            for j, column in enumerate(self.columns):
                values = _to_numpy(table.column(j), column)
                parts[j].append(values[max(lo - at, 0) : min(hi, end) - at])
            at = end
        return tuple(p[0] if len(p) == 1 else np.concatenate(p) for p in parts)

    def _check_size(self, fragment: Any, metadata: Any) -> None:
        """Refuse sizes that the file does not explain: a column of equal numbers takes no room in the file, but any
        amount of memory."""
        each = sum(c.row_bytes for c in self.columns)
        path = str(fragment.path)
        size = os.path.getsize(path) if os.path.isfile(path) else fragment.filesystem.get_file_info(path).size
        if metadata.num_rows * each > explained(size or 0):
            raise ValueError(
                f"{self._told}: {metadata.num_rows:,} rows are announced in {without_secrets(path)}, which its size "
                "does not explain"
            )

    def _table(self, group: int) -> Any:
        fragment, index = self._groups[group]
        with sound_parquet(self._told):
            table = fragment.subset(row_group_ids=[index]).to_table(columns=self._names, use_threads=False)
        announced = int(self._group_ends[group]) - (int(self._group_ends[group - 1]) if group else 0)
        if table.num_rows != announced:
            raise ValueError(f"{self._told}: {announced} rows of a row group were announced and {table.num_rows} found")
        return table


def _merged(ends: NDArray[np.int64], least: int) -> NDArray[np.int64]:
    """The ends of runs of neighbours with at least ``least`` rows each (but the last)."""
    kept, at = [], 0
    for end in ends:
        if end - at >= least:
            kept.append(end)
            at = end
    if not kept or kept[-1] != ends[-1]:
        kept.append(ends[-1])
    return np.array(kept, dtype=np.int64)


def _is_numeric(kind: Any) -> bool:
    import pyarrow.types as t

    return bool(t.is_integer(kind) or t.is_floating(kind) or t.is_boolean(kind))


def _dtype(kind: Any) -> np.dtype[Any]:
    dtype = np.dtype(kind.to_pandas_dtype())
    return np.dtype(np.float64) if dtype.kind == "b" or (dtype.itemsize < 4 and dtype.kind == "f") else dtype


def _to_numpy(values: Any, column: Column) -> NDArray[Any]:
    if values.null_count and column.dtype.kind != "f":
        raise ValueError(f"column {column.name!r} holds integers and nulls: fill the nulls, or store it as float")
    array: NDArray[Any] = values.to_numpy()
    return array.astype(column.dtype, copy=False)


class DaskRows:
    """Rows of a Dask array or data frame, read partition by partition without a cluster."""

    fine = False

    def __init__(self, parts: Sequence[Any], rows: Sequence[int], columns: Sequence[Column]) -> None:
        self.parts = tuple(parts)
        """One entry per partition: computes to an array with its rows, or to a data frame."""
        self.ends = np.cumsum(np.array(rows, dtype=np.int64))
        self.n = int(self.ends[-1]) if len(self.ends) else 0
        self.columns = tuple(columns)
        if self.n == 0:
            raise ValueError("data has no rows: there is nothing to fit")

    @classmethod
    def of(cls, name: str, data: Any, columns: Sequence[str] | None = None) -> DaskRows:
        """Rows of a Dask array, series or data frame."""
        if data.ndim == 1 and hasattr(data, "to_frame"):  # a series
            return cls.of(name, data.to_frame(name=name))
        if hasattr(data, "map_partitions"):
            names = choose("columns", columns, [str(c) for c in data.columns])
            frame = data[names]
            kinds = [np.dtype(frame.dtypes[column]) for column in names]
            for column, kind in zip(names, kinds, strict=True):
                if kind.kind not in "fiu":
                    raise ValueError(f"column {column!r} must hold numbers, got dtype {kind}; choose columns=[...]")
            rows = [int(count) for count in frame.map_partitions(len).compute()]
            parts = [frame.partitions[i] for i, count in enumerate(rows) if count]
            described = [Column(column, kind) for column, kind in zip(names, kinds, strict=True)]
            return cls(parts, [count for count in rows if count], described)
        array = data
        if any(np.isnan(size) for size in array.chunks[0]):
            array = array.compute_chunk_sizes()
        if array.ndim > 1:
            array = array.rechunk(dict.fromkeys(range(1, array.ndim), -1))
        parts = [array.blocks[i] for i, count in enumerate(array.chunks[0]) if count]
        return cls(parts, [c for c in array.chunks[0] if c], [Column(name, array.dtype, array.shape[1:])])

    def read(self, lo: int, hi: int, out: Columns | None = None) -> Columns:
        first = int(np.searchsorted(self.ends, lo, side="right"))
        last = int(np.searchsorted(self.ends, hi, side="left"))
        pieces: list[Columns] = []
        for i in range(first, last + 1):
            begin = int(self.ends[i - 1]) if i else 0
            columns = split_columns(self.parts[i].compute(), self.columns)
            pieces.append(tuple(c[max(lo - begin, 0) : hi - begin] for c in columns))
        if len(pieces) == 1:
            return pieces[0]
        return tuple(np.concatenate(column) for column in zip(*pieces, strict=True))


def split_columns(part: Any, columns: Sequence[Column]) -> Columns:
    """The columns of a computed partition: an array, or a data frame."""
    if isinstance(part, np.ndarray):
        return (part,)
    return tuple(part[c.name].to_numpy() for c in columns)
