"""Columns of numbers from files: CSV and other delimited text, Parquet, NPY.

Text is read by PyArrow if it is installed (about 30 million numbers per second), else by NumPy's parser (a few
million). What they cannot parse is read again, line by line, by a strict reader that either handles it (comments among
the rows, missing values) or names the wrong line and column.

Files are data, never programs, and none is trusted: no pickle, no decompression of text, no pipes or devices, no text
with holes. Nothing is allocated before its size is compared with a limit and, for Parquet, where a column of equal
numbers takes no room, with the size of the file.
"""

from __future__ import annotations

import csv
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..support.files import explained, open_regular, refuse_holes
from ..support.npy import read_header, sound_parquet
from .arrow import float64_column

Array = NDArray[Any]

MAX_BYTES = 8 << 30
"""Largest number of bytes that the columns of one file may take in memory."""
MAX_COLUMNS = 10_000
COPIED = 1 << 28
"""Size in bytes up to which an NPY file is read and not mapped: truncating a mapped file kills the process."""
_HEAD = 1 << 20
_BLANKS = " \r\n\v\f"
"""Characters stripped from the lines of a tab-delimited table."""
_MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null")
_KINDS = {".csv": "text", ".tsv": "text", ".txt": "text", ".dat": "text", ".npy": "npy",
          ".parquet": "parquet", ".pq": "parquet"}  # fmt: skip


def column_names(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Names of the columns of a file, without reading its rows.

    The columns of a file without names are called ``y``; ``x, y``; or ``c1, c2, ...``, depending on their number.
    """
    path = Path(path)
    kind = _kind(path)
    if kind == "text":
        return _layout(path).names
    if kind == "npy":
        return tuple(_npy_columns(path))
    file = _parquet(path)
    with sound_parquet(path):
        return tuple(file.schema_arrow.names)


def read_columns(
    path: str | os.PathLike[str], names: Sequence[str] | None = None, *, max_bytes: int = MAX_BYTES
) -> dict[str, Array]:
    """Columns of a file by name.

    Parameters
    ----------
    path
        ``.csv``, ``.tsv``, ``.txt`` or ``.dat`` (delimiter and header are recognised), ``.parquet`` or ``.npy``.
    names
        Columns to read; by default all.
    max_bytes
        Refuse to read more than this into memory.

    Returns
    -------
    dict of (N,) arrays. Missing values are NaN. NPY files larger than `COPIED` are mapped, not read.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name, "data.csv")
    >>> _ = file.write_text("time,volts\\n0,1.5\\n1,2.5\\n")
    >>> read_columns(file, ["volts"])
    {'volts': array([1.5, 2.5])}
    >>> folder.cleanup()
    """
    path = Path(path)
    kind = _kind(path)
    present = column_names(path)
    wanted = list(dict.fromkeys(present if names is None else names))
    for name in wanted:
        if name not in present:
            raise ValueError(f"{path}: there is no column {name!r}; it has {_some(present)}")
        if present.count(name) > 1:
            raise ValueError(f"{path}: the column name {name!r} appears {present.count(name)} times; rename one")
    if kind == "npy":
        columns = _npy_columns(path)
        small = path.stat().st_size <= COPIED
        return {name: np.array(columns[name]) if small else columns[name] for name in wanted}
    if kind == "parquet":
        return _read_parquet(path, wanted, max_bytes)
    return _read_text(path, wanted, max_bytes)


def _kind(path: Path) -> str:
    if not path.exists():
        raise FileNotFoundError(2, "there is no such file", str(path))
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give a file")
    if not path.is_file():
        raise ValueError(f"{path} is not a regular file")
    kind = _KINDS.get(path.suffix.lower())
    if kind is None:
        raise ValueError(f"{path}: the ending {path.suffix!r} is not known; use one of {', '.join(_KINDS)}")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty")
    return kind


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(n) for n in names[:12])
    return shown + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _default_names(count: int) -> tuple[str, ...]:
    return {1: ("y",), 2: ("x", "y")}.get(count, tuple(f"c{i + 1}" for i in range(count)))


# --- text ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Layout:
    names: tuple[str, ...]
    delimiter: str | None
    """Delimiter; None for any run of blanks."""
    skip: int
    """Number of lines before the first row of numbers."""


def _layout(path: Path) -> _Layout:
    """Delimiter, header and names from the beginning of a file."""
    with open_regular(path) as file:
        refuse_holes(file, path)
        head = file.read(_HEAD)
        whole = not file.read(1)
    if b"\0" in head:
        raise ValueError(f"{path} is not text (it holds zero bytes)")
    end = len(head) if whole else head.rfind(b"\n") + 1
    if end == 0:
        raise ValueError(f"{path}: the first line is longer than {_HEAD} bytes; is this a table?")
    try:
        # Not splitlines, which also splits at separators that the readers of rows do not know.
        lines = re.split(r"\r\n|\r|\n", head[:end].decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text (byte {error.start})") from None
    comment, header, header_at, delimiter = "", None, -1, None
    for at, line in enumerate(lines):
        text = line.strip()
        if not text:
            continue
        if text.startswith("#"):
            comment = text.lstrip("# \t")
            continue
        # A row whose other fields are missing has the delimiter of the header, although it does not show.
        delimiter = next((d for d in (",", ";", "\t") if d in text), delimiter)
        fields = _split(path, line, delimiter, None if header is None else len(header))
        if len(fields) > MAX_COLUMNS:
            raise ValueError(f"{path} has {len(fields):,} columns; at most {MAX_COLUMNS:,} are read")
        if header is None and not all(_is_number(f) for f in fields):
            header, header_at = fields, at
            continue
        if header is not None:
            if len(header) != len(fields):
                raise ValueError(
                    f"{path}: line {header_at + 1} names {len(header)} columns and line {at + 1} has {len(fields)}"
                )
            return _Layout(tuple(header), delimiter, at)
        named = _split(path, comment, delimiter)
        if len(named) != len(fields):
            named = _split(path, comment, None)
        sound = len(named) == len(fields) and not any(_is_number(n) for n in named)
        return _Layout(tuple(named) if sound else _default_names(len(fields)), delimiter, at)
    if header is not None:
        raise ValueError(f"{path}: no row of numbers follows line {header_at + 1}")
    raise ValueError(f"{path} holds no rows")


def _split(path: Path, line: str, delimiter: str | None, count: int | None = None) -> list[str]:
    if delimiter == "\t":
        # Tabs at the end stand for missing fields, except for one at the end of every line, which some programs write.
        fields = _quoted(path, line.strip(_BLANKS), delimiter)
        spare = fields[-1] == "" and (len(fields) == count + 1 if count else len(fields) > 1)
        return fields[:-1] if spare else fields
    return _quoted(path, line.strip(), delimiter)


def _quoted(path: Path, line: str, delimiter: str | None) -> list[str]:
    if delimiter is None:
        return line.split()
    if '"' not in line:
        return [f.strip() for f in line.split(delimiter)]
    try:
        return [f.strip() for f in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))]
    except csv.Error as error:
        raise ValueError(f"{path}: {error}") from None


def _number(text: str) -> float:
    """Parse a float as written in files; Python's float would also accept 1_000 and digits of other scripts."""
    if text in _MISSING:
        return float("nan")
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return float(text)


def _is_number(text: str) -> bool:
    try:
        _number(text)
    except ValueError:
        return False
    return True


def _read_text(path: Path, wanted: list[str], max_bytes: int) -> dict[str, Array]:
    layout = _layout(path)
    size = path.stat().st_size
    # A number takes at least two characters, including its delimiter.
    if min(size, 8 * (size // (2 * len(layout.names)) + 1) * len(wanted)) > max_bytes:
        raise ValueError(
            f"{path} has {size / 1e9:.1f} GB of text, but at most {max_bytes / 1e9:.1f} GB are read into memory: "
            "convert it to Parquet or NPY"
        )
    at = [layout.names.index(name) for name in wanted]
    table = _by_arrow(path, layout, wanted) if layout.delimiter is not None else None
    if table is None:
        table = _by_numpy(path, layout, at)
    if table is None:
        table = _by_line(path, layout, at)
    if len(table[0]) == 0:
        raise ValueError(f"{path} holds no rows")
    return dict(zip(wanted, table, strict=True))


def _by_arrow(path: Path, layout: _Layout, wanted: list[str]) -> list[Array] | None:
    try:
        import pyarrow as pa
        from pyarrow import csv as pacsv
    except ImportError:
        return None
    try:
        table = pacsv.read_csv(
            path,
            read_options=pacsv.ReadOptions(column_names=list(layout.names), skip_rows=layout.skip),
            parse_options=pacsv.ParseOptions(delimiter=layout.delimiter),
            convert_options=pacsv.ConvertOptions(
                include_columns=wanted,
                column_types={name: pa.float64() for name in wanted},
                null_values=list(_MISSING),
            ),
        )
    except (pa.ArrowException, UnicodeEncodeError):  # the latter for names of files that are no text
        return None
    return [float64_column(table[name]) for name in wanted]


def _by_numpy(path: Path, layout: _Layout, at: list[int]) -> list[Array] | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # Not usecols, which would accept rows of different lengths.
            values = np.loadtxt(
                path, delimiter=layout.delimiter, skiprows=layout.skip, ndmin=2, encoding="utf-8-sig", comments=None
            )
    except (ValueError, UserWarning):
        return None
    if values.shape[1] != len(layout.names):
        return None
    return [np.ascontiguousarray(values[:, i]) for i in at]


def _by_line(path: Path, layout: _Layout, at: list[int]) -> list[Array]:
    """The strict reader: slow, with exact error messages."""
    columns: list[list[float]] = [[] for _ in at]
    for line, fields in _lines(path, layout):
        if len(fields) != len(layout.names):
            raise ValueError(f"{path}: line {line} has {len(fields)} fields, expected {len(layout.names)}")
        for column, index in zip(columns, at, strict=True):
            try:
                column.append(_number(fields[index]))
            except ValueError:
                raise ValueError(
                    f"{path}: line {line}, column {layout.names[index]!r}: {fields[index][:60]!r} is not a number"
                ) from None
    return [np.array(c, dtype=np.float64) for c in columns]


def _lines(path: Path, layout: _Layout) -> Iterator[tuple[int, list[str]]]:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        for number, line in enumerate(file, 1):
            text = line.strip(_BLANKS) if layout.delimiter == "\t" else line.strip()
            if number > layout.skip and text and not text.startswith("#"):
                yield number, _split(path, line, layout.delimiter, len(layout.names))


# --- NPY and Parquet -------------------------------------------------------------------------------------------


def _npy_columns(path: Path) -> dict[str, Array]:
    with open_regular(path) as file:
        if file.read(6) == b"\x93NUMPY":  # otherwise an archive, or nothing that NumPy reads
            file.seek(0)
            read_header(path, file, "it")
    try:
        with np.errstate(over="raise"):  # a shape whose product overflows
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # a hostile header makes NumPy's parser raise almost anything
        raise ValueError(f"{path} cannot be read as an array: {error}") from None
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path} is an archive of arrays; save the array that you need with numpy.save")
    if array.dtype.names is not None:
        if array.ndim != 1:
            raise ValueError(f"{path}: an array of records must have one dimension, got shape {array.shape}")
        columns: dict[str, Array] = {name: array[name] for name in array.dtype.names}
    elif array.ndim == 1:
        columns = {"y": array}
    elif array.ndim == 2 and array.shape[1] <= MAX_COLUMNS:
        columns = {name: array[:, i] for i, name in enumerate(_default_names(array.shape[1]))}
    else:
        raise ValueError(f"{path}: expected a table (N, columns), got shape {array.shape}")
    if len(array) == 0:
        raise ValueError(f"{path} holds no rows")
    return {name: _numeric(path, name, column) for name, column in columns.items()}


def _numeric(path: Path, name: str, column: Array) -> Array:
    if column.dtype.kind not in "fiub" or column.ndim != 1:
        raise ValueError(f"{path}: column {name!r} holds {column.dtype} of shape {column.shape}, not numbers")
    return column


def _parquet(path: Path) -> Any:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError("Parquet files need PyArrow: pip install 'problm[big]'") from error
    with sound_parquet(path):
        return pq.ParquetFile(path)


def _read_parquet(path: Path, wanted: list[str], max_bytes: int) -> dict[str, Array]:
    import pyarrow.types as t

    file = _parquet(path)
    rows = file.metadata.num_rows
    if rows == 0:
        raise ValueError(f"{path} holds no rows")
    needed = 8 * rows * len(wanted)
    if needed > explained(path.stat().st_size):
        raise ValueError(f"{path}: {rows:,} rows are announced, which its {path.stat().st_size:,} bytes do not explain")
    if needed > max_bytes:
        raise ValueError(
            f"{path}: {len(wanted)} columns of {rows:,} rows take {needed / 1e9:.1f} GB, but at most "
            f"{max_bytes / 1e9:.1f} GB are read into memory"
        )
    for name in wanted:
        kind = file.schema_arrow.field(name).type
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
