"""Columns of numbers from files: CSV and other delimited text, Parquet, NPY, Excel, HDF5, FITS, TIFF and other images.

Files are data, never programs, and none is trusted: no pickle, no pipes or devices, no text with holes, no links to
other files, no plugins. Nothing is allocated before its size is compared with a limit and, for packed files, with the
size of the file. HDF5, Excel, FITS and pictures are read by their libraries in a process of its own
(`problm.data.isolated`), which can reach no other file.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..support.files import explained
from ..support.npy import sound_parquet
from ..support.suggest import suggest
from .columns import Source
from .isolated import process
from .isolated.worker import LONGEST_LABEL, MOST
from .npy_rows import NpyRows, read_plane
from .text import TextTable

Array = NDArray[Any]

MAX_BYTES = 8 << 30
"""Largest number of bytes that the columns of one file may take in memory."""
IMAGE = ("x", "y", "I")
"""Columns of an image: column and row of a pixel, counted from 0, and its value."""
_KINDS = {
    ".csv": "text", ".tsv": "text", ".txt": "text", ".dat": "text", ".asc": "text", ".gz": "text", ".npy": "npy",
    ".parquet": "parquet", ".pq": "parquet", ".xlsx": "excel", ".xlsm": "excel", ".h5": "hdf5", ".hdf5": "hdf5",
    ".hdf": "hdf5", ".nxs": "hdf5", ".fits": "fits", ".fit": "fits", ".fts": "fits", ".tif": "picture",
    ".tiff": "picture", ".png": "picture",
}  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """How to read a file; what is not given is recognised."""

    delimiter: str | None = None
    decimal: str | None = None
    part: str | None = None
    image: bool = False


def column_names(path: str | os.PathLike[str], how: Reading = Reading()) -> tuple[str, ...]:  # noqa: B008 (frozen)
    """Names of the columns of a file, without reading its rows.

    The columns of a file without names are called ``y``; ``x, y``; or ``c1, c2, ...``, depending on their number. Those
    of an image are ``x, y, I``.
    """
    path = Path(path)
    kind = _kind(path)
    if kind == "text":
        return TextTable(path, MAX_BYTES, how.delimiter, how.decimal).layout.names
    if kind == "npy":
        return IMAGE if how.image else NpyRows(path).names
    if kind == "parquet":
        file = _parquet(path)
        with sound_parquet(path):
            return tuple(file.schema_arrow.names)
    return process.contents(path, kind, how.part, how.image).names


def text_columns(path: str | os.PathLike[str], how: Reading = Reading()) -> frozenset[str]:  # noqa: B008 (frozen)
    """Names of the columns that hold text, judged by the first rows; of text files, Excel and Parquet."""
    path = Path(path)
    kind = _kind(path)
    if kind == "text":
        layout = TextTable(path, MAX_BYTES, how.delimiter, how.decimal).layout
        return frozenset(layout.names[k] for k in layout.texts if k < len(layout.names))
    if kind == "parquet":
        return frozenset(field.name for field in _parquet(path).schema_arrow if _holds_text(field.type))
    return process.contents(path, kind, how.part, how.image).texts if kind == "excel" else frozenset()


def read_columns(
    path: str | os.PathLike[str],
    names: Sequence[str] | None = None,
    *,
    delimiter: str | None = None,
    decimal: str | None = None,
    part: str | None = None,
    image: bool = False,
    max_bytes: int = MAX_BYTES,
) -> dict[str, Array]:
    """Columns of a file by name.

    Parameters
    ----------
    path
        Delimited text (``.csv``, ``.tsv``, ``.txt``, ``.dat``, also packed as ``.gz``), ``.parquet``, ``.npy``,
        ``.xlsx``, ``.h5``, ``.fits``, or an image: ``.tif``, ``.png``.
    names
        Columns to read; by default all.
    delimiter, decimal
        How the numbers of text are separated, and ``"."`` or ``","``; by default recognised.
    part
        Sheet of an Excel file, extension of a FITS file, page of a TIFF file or data set of an HDF5 file that is an
        image, by name or number; by default the first with numbers.
    image
        Read a plane of numbers (NPY, HDF5) as an image: columns x, y, I with one row per pixel.
    max_bytes
        Refuse to read more than this into memory.

    Returns
    -------
    dict of (N,) arrays. Missing values are NaN. Dates are seconds since the first one of their column.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name, "data.csv")
    >>> _ = file.write_text("time;volts\\n0;1,5\\n1;2,5\\n")
    >>> read_columns(file, ["volts"])
    {'volts': array([1.5, 2.5])}
    >>> folder.cleanup()
    """
    path = Path(path)
    kind = _kind(path)
    if kind not in ("text", "npy", "parquet"):
        wanted = [] if names is None else list(names)
        return process.ask(path, kind, wanted, part, image, max_bytes).columns
    text = TextTable(path, max_bytes, delimiter, decimal) if kind == "text" else None
    present = column_names(path, Reading(image=image)) if text is None else text.layout.names
    wanted = list(dict.fromkeys(present if names is None else names))
    counts = Counter(present)
    for name in wanted:
        if name not in counts:
            raise ValueError(f"{path}: there is no column {name!r}{suggest(name, present)}; it has {_some(present)}")
        if counts[name] > 1:
            raise ValueError(f"{path}: the column name {name!r} appears {counts[name]} times; rename one")
    if text is not None:
        return text.read(wanted)
    if kind == "parquet":
        return _read_parquet(path, wanted, max_bytes)
    if image:
        found = read_plane(path, max_bytes)
        return {name: found[name] for name in wanted}
    rows = NpyRows(path, wanted)
    _fits(path, rows.n, len(wanted), rows.bytes, max_bytes)
    return rows.load()


def read_labels(path: str | os.PathLike[str], name: str, how: Reading = Reading()) -> Array:  # noqa: B008 (frozen)
    """A column as labels of groups, (N,): text in text files, text or numbers in Excel and Parquet, else numbers."""
    path = Path(path)
    kind = _kind(path)
    if kind == "text":
        return np.array(TextTable(path, MAX_BYTES, how.delimiter, how.decimal).labels(name))
    if kind == "excel":
        found = process.ask(path, kind, [name], how.part, False, MAX_BYTES, labels=True)
        numbers = found.columns[name]
        if not found.labels:
            return numbers
        if not np.isin(numbers, np.arange(len(found.labels))).all():
            raise ValueError(f"{path}: column {name!r} cannot be read as labels")
        return np.array(found.labels)[numbers.astype(np.int64)]
    if kind == "parquet" and name in text_columns(path):
        return _parquet_labels(path, name)
    return read_columns(path, [name], part=how.part, image=how.image)[name]


def row_source(path: str | os.PathLike[str], names: Sequence[str]) -> Source | None:
    """Rows of an NPY file, read as they are needed; None for other formats."""
    return NpyRows(Path(path), names) if Path(path).suffix.lower() == ".npy" else None


def line_of(path: str | os.PathLike[str], row: int, how: Reading = Reading()) -> int | None:  # noqa: B008 (frozen)
    """The line of a text file that holds this row of its table; None for other files."""
    path = Path(path)
    if _kind(path) != "text":
        return None
    return TextTable(path, MAX_BYTES, how.delimiter, how.decimal).line_of(row)


def _kind(path: Path) -> str:
    if not path.exists():
        raise FileNotFoundError(2, "there is no such file", str(path))
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give a file")
    if not path.is_file():
        raise ValueError(f"{path} is not a regular file")
    kind = _KINDS.get(path.suffix.lower())
    if path.suffix.lower() == ".gz" and Path(path.stem).suffix.lower() in (".fits", ".fit"):
        kind = "fits"
    if kind is None:
        raise ValueError(f"{path}: the ending {path.suffix!r} is not known; use one of {', '.join(_KINDS)}")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty")
    return kind


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(n) for n in names[:12])
    return shown + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _fits(path: Path, rows: int, columns: int, needed: int, max_bytes: int) -> None:
    if needed > max_bytes:
        raise ValueError(
            f"{path}: {columns} columns of {rows:,} rows take {needed / 1e9:.1f} GB, but at most "
            f"{max_bytes / 1e9:.1f} GB are read into memory"
        )


def _parquet(path: Path, labels: Sequence[str] = ()) -> Any:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError("Parquet files need PyArrow: pip install 'problm[big]'") from error
    with sound_parquet(path):
        return pq.ParquetFile(path, read_dictionary=list(labels))


def _holds_text(kind: Any) -> bool:
    """Whether a type of PyArrow is text, each value by itself or as a number in a list of categories."""
    import pyarrow.types as t

    kind = kind.value_type if t.is_dictionary(kind) else kind
    return bool(t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind))


def _parquet_labels(path: Path, name: str) -> Array:
    """A column of text, of which only the different labels are unpacked."""
    file = _parquet(path, [name])
    about, found, each = file.metadata, [np.zeros(0, dtype=np.int64)], dict[str, int]()
    k = [about.schema.column(i).path for i in range(about.num_columns)].index(name)
    packed = [about.row_group(i).column(k).total_uncompressed_size for i in range(about.num_row_groups)]
    if max(sum(packed), about.num_rows) > explained(path.stat().st_size):
        raise ValueError(f"{path}: its bytes do not explain the {about.num_rows:,} labels that are announced")
    with sound_parquet(path):
        for batch in file.iter_batches(columns=[name]):
            column = batch.column(0)
            if column.null_count:
                raise ValueError(f"{path}: column {name!r}: some labels are missing")
            texts = column.dictionary.to_pylist()
            if max(map(len, texts), default=0) > LONGEST_LABEL or len({*each, *texts}) > MOST:
                raise ValueError(
                    f"{path}: column {name!r}: at most {MOST:,} different labels of {LONGEST_LABEL} characters are read"
                )
            numbers = [each.setdefault(text, len(each)) for text in texts]
            found.append(np.array(numbers, dtype=np.int64)[np.asarray(column.indices)])
    return np.array(list(each))[np.concatenate(found)]


def _read_parquet(path: Path, wanted: list[str], max_bytes: int) -> dict[str, Array]:
    import pyarrow.types as t

    file = _parquet(path)
    rows = file.metadata.num_rows
    if rows == 0:
        raise ValueError(f"{path} holds no rows")
    needed = 8 * rows * len(wanted)
    if needed > explained(path.stat().st_size):
        raise ValueError(f"{path}: {rows:,} rows are announced, which its {path.stat().st_size:,} bytes do not explain")
    _fits(path, rows, len(wanted), needed, max_bytes)
    kinds = {field.name: field.type for field in file.schema_arrow}
    for name in wanted:
        kind = kinds[name]
        if not (t.is_floating(kind) or t.is_integer(kind) or t.is_boolean(kind)):
            raise ValueError(f"{path}: column {name!r} holds {kind}, not numbers")
    with sound_parquet(path):
        table = file.read(columns=wanted)
        if table.num_rows != rows:
            raise ValueError(f"{path}: {rows} rows were announced and {table.num_rows} found")
        return {name: _from_arrow(table[name]) for name in wanted}


def _from_arrow(column: Any) -> Array:
    values: Array = column.to_numpy()
    return values if values.dtype.kind in "fiu" else values.astype(np.float64)
