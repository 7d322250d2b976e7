"""A shuffled copy of a data set that does not fit into memory: two passes, bounded memory.

Rows in random order can be read in any chunks: every chunk is a random sample, and a fit of the copy starts with the
first of them. Pass one distributes the rows at random over bucket files, so many that each fits into memory; pass two
shuffles one bucket after the other and writes them. Every order of the rows has the same probability (Rao 1961,
Sandelius 1962): given the sizes of the buckets, any distribution and any order within them is equally likely.

Parquet stays Parquet, with all its columns; arrays become one ``.npy`` file per column. The result gets its final name
when it is complete.
"""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..sampling.order import as_generator
from ..support.addresses import is_address
from ..support.files import flush_folder
from ..support.memory import as_bytes
from ..support.npy import sound_parquet
from ..support.written import Written
from .columns import Source, choose, even_ends, row_bytes
from .remote import RemoteFiles
from .sources import open_source

Index = NDArray[np.int64]
ROW_GROUP = 65_536
"""Rows per row group of the copy: small ones make cheap samples, but a seek should cost less than reading one."""
_MOST_BUCKETS = 512


def shuffle(
    data: Any,
    out: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    rng: np.random.Generator | int | None = 0,
    max_memory: int | float | str | None = None,
    overwrite: bool = False,
    force: bool = False,
) -> int:
    """Write a copy of a data set with its rows in random order; return the number of rows.

    Parameters
    ----------
    data
        A Parquet file, folder or glob, or anything that `problm.data.sources.open_source` takes.
    out
        A folder to create, for Parquet files or for one ``.npy`` file per column. Parquet data may also go to a
        ``.parquet`` file, and a single array to a ``.npy`` file.
    columns
        Columns to copy; by default all, for Parquet also those that are not numbers.
    rng
        Seed or Generator; the same seed gives the same copy.
    max_memory
        Memory limit in bytes, or as text such as ``"1GB"``; by default half of the free memory. The disk needs room for
        two copies.
    overwrite
        Whether to replace ``out`` if it is an earlier copy: a file that this function wrote (as noted in
        ``.problm.json`` beside it), or a folder that holds nothing else.
    force
        Whether to replace ``out`` whatever it holds; the data themselves, the current folder and folders above it are
        never replaced.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(folder + "/x.npy", np.arange(1000))
    ...     rows = shuffle(folder + "/x.npy", folder + "/shuffled.npy")
    ...     x = np.load(folder + "/shuffled.npy")
    >>> rows, bool(np.corrcoef(x, np.arange(1000))[0, 1] < 0.1), np.array_equal(np.sort(x), np.arange(1000))
    (1000, True, True)
    """
    target = Path(os.fspath(out))
    _check_target(target, data, overwrite, force)
    budget = as_bytes(max_memory)
    tables: Tables = _tables(data, columns)
    tables.check(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(target.parent).free
    if free < 2 * tables.size:
        raise OSError(f"out: writing the copy takes up to {2 * tables.size} bytes of disk, but {free} are free")
    # A bucket is in memory twice while it is put in order, and buckets vary in size.
    count = min(_MOST_BUCKETS, max(1, -(-4 * tables.size // budget)))
    generator = as_generator(rng)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
        buckets = [os.path.join(scratch, f"{k:03d}.bucket") for k in range(count)]
        _deal(tables, buckets, generator)
        made = os.path.join(scratch, "made" + target.suffix)
        tables.write(made, _ordered(tables, buckets, generator))
        folder = os.path.isdir(made)
        if folder:
            Written(Path(made)).adopt(os.listdir(made))
        _check_target(target, data, overwrite, force)  # somebody may have written there in the meantime
        _replace(made, target, os.path.join(scratch, "before"))
        if not folder and not (record := Written(target.parent)).foreign_record:
            record.adopt([target.name])
    return tables.rows


def _check_target(target: Path, data: Any, overwrite: bool, force: bool) -> None:
    """Raise if writing there would destroy something without the user's consent."""
    real = Path(os.path.realpath(target))
    for source in map(Path, map(os.path.realpath, _paths(data))):
        if real == source or real in source.parents or _same_file(real, source):
            raise ValueError(f"out={str(target)!r} is or contains the data being read: give another name")
        if source.is_dir() and source in real.parents:
            raise ValueError(f"out={str(target)!r} lies in the folder of the data, which it would become part of")
    if not os.path.lexists(target):
        return
    if not (overwrite or force):
        raise FileExistsError(f"out={str(target)!r} exists: remove it, or pass overwrite=True")
    here, home = Path.cwd(), Path(os.path.expanduser("~"))
    if any(real == p or real in p.parents for p in (here.resolve(), home.resolve())) or os.path.ismount(real):
        raise ValueError(f"out={str(target)!r} is a folder that is never replaced: give the name of one to make")
    if force:
        return
    if target.is_symlink() or not (target.is_file() or target.is_dir()):
        raise FileExistsError(f"out={str(target)!r} is a link or a device: remove it, or pass force=True")
    if target.is_file() and Written(target.parent).foreign([target.name]):
        raise FileExistsError(
            f"out={str(target)!r} was not written by shuffle, or was changed since: give another name, or pass "
            "force=True to replace it"
        )
    if target.is_dir() and (others := Written(target).strangers()):
        told = ", ".join(others[:5]) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
        raise FileExistsError(
            f"out={str(target)!r} holds files that shuffle did not write, or that were changed since ({told}): give "
            "another name, or pass force=True to remove all of them"
        )


def _same_file(a: Path, b: Path) -> bool:
    """Whether two names are links to one file."""
    with suppress(OSError):
        return os.path.samefile(a, b)
    return False


def _local(address: str) -> list[str]:
    """The path of an address of this machine (``file://...``); none of others."""
    try:
        path = RemoteFiles(address).local_path()
    except ImportError:  # without fsspec, PyArrow reads the address
        path = address.removeprefix("file://") if address.startswith("file://") else None
    return [] if path is None else [path]


def _paths(data: Any) -> list[str]:
    """The local files and folders that data are read from, as far as they are known."""
    if isinstance(data, (str, os.PathLike)):
        name = os.fspath(data)
        if is_address(name):
            return _local(name)
        return [name, *glob.glob(name)]
    if isinstance(data, np.memmap):
        return [] if data.filename is None else [os.fspath(data.filename)]
    if isinstance(data, Mapping):
        return _paths(list(data.values()))
    if isinstance(data, (list, tuple)):
        return [path for part in data for path in _paths(part)]
    files = getattr(data, "files", None)  # a PyArrow dataset
    if isinstance(files, list):
        return [str(f) for f in files]
    # A Zarr array in a folder, or an HDF5 data set.
    places = getattr(getattr(data, "store", None), "root", None), getattr(getattr(data, "file", None), "filename", None)
    return [os.fspath(place) for place in places if isinstance(place, (str, os.PathLike))]


def _replace(made: str, target: Path, aside: str) -> None:
    """Move the new copy to its final name; what was there is moved aside first, and back if that fails."""
    if not os.path.lexists(target):
        os.replace(made, target)
    elif target.is_dir() and not target.is_symlink():
        os.replace(target, aside)
        try:
            os.replace(made, target)
        except BaseException:
            os.replace(aside, target)
            raise
    else:
        if os.path.isdir(made):
            os.unlink(target)
        os.replace(made, target)
    flush_folder(target.parent)


class Tables(Protocol):
    """How a kind of data is read, cut, kept in buckets and written."""

    rows: int
    size: int
    """Uncompressed size in bytes."""

    def check(self, target: Path) -> None:
        """Raise if the data cannot be written there."""
        ...

    def pieces(self) -> Iterator[tuple[Any, int]]:
        """Pieces of the data in order, with their numbers of rows."""
        ...

    def take(self, piece: Any, index: Index) -> Any: ...

    def append(self, bucket: str, piece: Any) -> None: ...

    def load(self, bucket: str) -> tuple[Any, int]:
        """All rows of a bucket, and their number."""
        ...

    def write(self, path: str, parts: Iterator[Any]) -> None: ...


def _tables(data: Any, columns: Sequence[str] | None) -> Tables:
    if isinstance(data, (str, os.PathLike)):
        path = os.fspath(data)
        name = path.rstrip("/")
        if name.endswith((".parquet", ".pq")) or (os.path.isdir(path) and not name.endswith(".zarr")):
            return ParquetTables(path, columns)
    if type(data).__module__.startswith("pyarrow._dataset"):
        return ParquetTables(data, columns)
    return ArrayTables(open_source(data, columns))


def _deal(tables: Tables, buckets: Sequence[str], rng: np.random.Generator) -> None:
    """Pass one: put every row into a random bucket."""
    for piece, rows in tables.pieces():
        if len(buckets) == 1:
            tables.append(buckets[0], piece)
            continue
        chosen = rng.integers(0, len(buckets), rows)
        order = np.argsort(chosen, kind="stable")
        ends = np.cumsum(np.bincount(chosen, minlength=len(buckets)))
        for k, bucket in enumerate(buckets):
            part = order[ends[k - 1] if k else 0 : ends[k]]
            if len(part):
                tables.append(bucket, tables.take(piece, part))


def _ordered(tables: Tables, buckets: Sequence[str], rng: np.random.Generator) -> Iterator[Any]:
    """Pass two: yield the rows of each bucket in random order."""
    for bucket in buckets:
        if os.path.exists(bucket):
            rows, count = tables.load(bucket)
            os.unlink(bucket)
            yield tables.take(rows, rng.permutation(count))


class ArrayTables:
    """Columns of a source; rows in a bucket are bytes, one row after the other."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.rows = source.n
        self.size = source.n * row_bytes(source)
        # One record per row: a bucket file then needs no index.
        fields = [(f"f{j}", c.dtype, c.shape) for j, c in enumerate(source.columns)]
        self._record = np.dtype(fields)

    def check(self, target: Path) -> None:
        if target.suffix == ".npy" and len(self.source.columns) > 1:
            raise ValueError(
                f"out={str(target)!r}: {len(self.source.columns)} columns need a folder, not one .npy file"
            )
        if target.suffix not in ("", ".npy"):
            raise ValueError(f"out={str(target)!r}: arrays are written to a folder of .npy files, or to a .npy file")
        names = [_file_name(c.name) for c in self.source.columns]
        if len(set(names)) < len(names):
            raise ValueError(f"data: columns of the same name cannot be told apart in a folder: {', '.join(names)}")

    def pieces(self) -> Iterator[tuple[Any, int]]:
        each = max(1, (1 << 23) // row_bytes(self.source))
        ends = even_ends(self.rows, each) if self.source.fine else self.source.ends
        lo = 0
        for hi in ends.tolist():
            records = np.empty(hi - lo, dtype=self._record)
            for j, column in enumerate(self.source.read(lo, hi)):
                records[f"f{j}"] = column
            yield records, hi - lo
            lo = hi

    def take(self, piece: Any, index: Index) -> Any:
        return piece[index]

    def append(self, bucket: str, piece: Any) -> None:
        with open(bucket, "ab") as file:
            piece.tofile(file)

    def load(self, bucket: str) -> tuple[Any, int]:
        records = np.fromfile(bucket, dtype=self._record)
        return records, len(records)

    def write(self, path: str, parts: Iterator[Any]) -> None:
        single = path.endswith(".npy")
        if not single:
            os.mkdir(path)
        names = [path] if single else [os.path.join(path, _file_name(c.name)) for c in self.source.columns]
        with ExitStack() as stack:
            files = [stack.enter_context(open(name, "wb")) for name in names]
            for column, file in zip(self.source.columns, files, strict=True):
                described = np.lib.format.dtype_to_descr(column.dtype)
                header = {"descr": described, "fortran_order": False, "shape": (self.rows, *column.shape)}
                np.lib.format.write_array_header_1_0(file, header)
            for records in parts:
                for j, file in enumerate(files):
                    np.ascontiguousarray(records[f"f{j}"]).tofile(file)
            for file in files:
                file.flush()
                os.fsync(file.fileno())


def _file_name(column: str) -> str:
    """File name of a column: its name without characters that have a meaning in paths."""
    kept = "".join(c if c.isalnum() or c in "-_." else "_" for c in column.removesuffix(".npy"))
    return f"{kept.strip('.') or 'column'}.npy"


class ParquetTables:
    """Parquet in, Parquet out, with Arrow streams for buckets."""

    def __init__(self, data: Any, columns: Sequence[str] | None) -> None:
        from .readers import parquet_dataset, told

        self.told, self.dataset = told(data), parquet_dataset(data)
        with sound_parquet(self.told):
            known = self.dataset.schema.names
        self.names = choose("columns", columns, known)
        self.rows = 0
        self.size = 0
        with sound_parquet(self.told):
            for fragment in self.dataset.get_fragments():
                for info in fragment.row_groups:
                    group = fragment.metadata.row_group(info.id)
                    self.rows += group.num_rows
                    self.size += group.total_byte_size
        if self.rows == 0:
            raise ValueError("data has no rows: there is nothing to shuffle")

    def check(self, target: Path) -> None:
        if target.suffix not in ("", ".parquet", ".pq"):
            raise ValueError(f"out={str(target)!r}: Parquet is written to a folder, or to a .parquet file")

    def pieces(self) -> Iterator[tuple[Any, int]]:
        import pyarrow as pa

        with sound_parquet(self.told):
            for batch in self.dataset.to_batches(columns=self.names, batch_size=1 << 17, use_threads=False):
                if batch.num_rows:
                    yield pa.Table.from_batches([batch]), batch.num_rows

    def take(self, piece: Any, index: Index) -> Any:
        return piece.take(index)

    def append(self, bucket: str, piece: Any) -> None:
        import pyarrow as pa

        # One stream after the other: an open writer per bucket would hold buffers for each.
        with open(bucket, "ab") as file, pa.ipc.new_stream(file, piece.schema) as stream:
            stream.write_table(piece)

    def load(self, bucket: str) -> tuple[Any, int]:
        import pyarrow as pa

        parts, size = [], os.path.getsize(bucket)
        with pa.OSFile(bucket, "rb") as file:
            while file.tell() < size:
                parts.append(pa.ipc.open_stream(file).read_all())
        table = pa.concat_tables(parts).combine_chunks()
        return table, table.num_rows

    def write(self, path: str, parts: Iterator[Any]) -> None:
        import pyarrow.parquet as pq

        if path.endswith((".parquet", ".pq")):
            writer = None
            try:
                for table in parts:
                    writer = writer or pq.ParquetWriter(path, table.schema)
                    writer.write_table(table, row_group_size=ROW_GROUP)
            finally:
                if writer is not None:
                    writer.close()
            return
        os.mkdir(path)
        for k, table in enumerate(parts):
            pq.write_table(table, os.path.join(path, f"part-{k:05d}.parquet"), row_group_size=ROW_GROUP)
