"""Delimited text: CSV and its relatives as instruments and spreadsheets write them.

A strict reader goes line by line: it handles comments among the rows and missing values, and names the wrong line and
column. It reads short files (a million numbers per second: PyArrow takes longer to load), and what the fast readers
cannot parse: PyArrow if it is installed (about 30 million numbers per second), else NumPy's parser (a few million).
Packed text (``.gz``) and UTF-16 are unpacked into memory, never more than the size of the file explains.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..support.files import TEXT_EXPANSION, explained, open_regular, refuse_holes
from .arrow import float64_column
from .dates import FORMS, microseconds, since_first
from .layout import (
    BLANKS,
    MISSING,
    Layout,
    date_columns,
    default_names,
    first_row,
    number,
    sniffed,
    split,
    text_columns,
)

Array = NDArray[Any]
MAX_COLUMNS = 10_000
SHORT = 1 << 19
"""Bytes of text that are read line by line at once, which takes 20 ms at most."""
_HEAD = 1 << 20
"""Bytes from which the layout is told, and characters of a line."""
_LONGEST_LABEL = 200
_PIECE = 1 << 22


class TextTable:
    """A text file as a table.

    Parameters
    ----------
    path : the file; ``.gz`` is unpacked.
    max_bytes : largest number of bytes in memory.
    delimiter, decimal : how numbers are separated and written; by default recognised.
    """

    def __init__(self, path: Path, max_bytes: int, delimiter: str | None = None, decimal: str | None = None) -> None:
        if decimal not in (None, ".", ","):
            raise ValueError(f"decimal must be '.' or ',', got {decimal!r}")
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n#.'):
            raise ValueError(f"delimiter must be one character such as ',' or ';' or a tab, got {delimiter!r}")
        if delimiter == "," == decimal:
            raise ValueError("delimiter and decimal are both a comma")
        self.path, self.max_bytes, self._given = path, max_bytes, (delimiter, decimal)
        self._content: bytes | None = None
        with open_regular(path) as file:
            refuse_holes(file, path)
            self.stored = file.seek(0, io.SEEK_END)
            file.seek(0)
            begin = file.read(2)
        self._packed = path.suffix.lower() == ".gz" or begin == b"\x1f\x8b"
        self._utf16 = begin in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        self.layout = self._find_layout()

    @contextmanager
    def _open(self, whole: bool = True) -> Iterator[BinaryIO]:
        """The text as bytes in UTF-8 or the encoding of the layout; ``whole=False`` for its beginning only."""
        if not (self._packed or self._utf16):
            with open_regular(self.path) as file:
                yield file
        elif whole:
            if self._content is None:
                self._content = self._unpacked(min(self.max_bytes, explained(self.stored, TEXT_EXPANSION)))
            yield io.BytesIO(self._content)
        else:
            yield io.BytesIO(self._unpacked(_HEAD + 1, cut=True))

    def _unpacked(self, most: int, cut: bool = False) -> bytes:
        parts, room = [], most * (2 if self._utf16 else 1)
        try:
            with open_regular(self.path) as file, gzip.GzipFile(fileobj=file) if self._packed else file as text:
                while room >= 0 and (piece := text.read(min(_PIECE, room + 1))):
                    parts.append(piece)
                    room -= len(piece)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{self.path} cannot be unpacked: {error}") from None
        content = b"".join(parts)
        if room < 0 and not cut:
            raise ValueError(
                f"{self.path} unpacks to more than {most / 1e9:.3g} GB, which are not read into memory: unpack it "
                "yourself, or convert it to Parquet or NPY"
            )
        if content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            content = content[: len(content) - len(content) % 2].decode("utf-16", "replace").encode()
        return content

    def _find_layout(self) -> Layout:
        """Delimiter, header and names from the beginning of the file."""
        path, (delimiter, decimal) = self.path, self._given
        with self._open(whole=False) as file:
            head = file.read(_HEAD)
            whole = not file.read(1)
        if b"\0" in head:
            raise ValueError(f"{path} is not text (it holds zero bytes)")
        end = len(head) if whole else head.rfind(b"\n") + 1
        if end == 0:
            raise ValueError(f"{path}: the first line is longer than {_HEAD} bytes; is this a table?")
        encoding = "utf-8-sig"
        try:
            text = head[:end].decode(encoding)
        except UnicodeDecodeError:  # as older programs write degrees and micrometres
            encoding = "latin-1"
            text = head[:end].decode(encoding)
        # Not splitlines, which also splits at separators that the readers of rows do not know.
        lines = re.split(r"\r\n|\r|\n", text)
        kept = [(i, line) for i, line in enumerate(lines) if line.strip() and not line.strip().startswith("#")]
        if not kept:
            raise ValueError(
                f"{path} holds no rows" if whole else f"{path}: no row in the first {_HEAD:,} bytes; is this a table?"
            )
        if delimiter is None:
            delimiter, decimal = sniffed(path, [line for _, line in kept], decimal)
        elif decimal is None:
            decimal = "." if delimiter == "," else sniffed(path, [line for _, line in kept], None)[1]
        top = split(path, kept[0][1], delimiter)
        rows = [top, *(split(path, line, delimiter, len(top)) for _, line in kept[1:])]
        widest = max(map(len, rows))
        if widest > MAX_COLUMNS:
            raise ValueError(f"{path} has {widest:,} columns; at most {MAX_COLUMNS:,} are read")
        header, first = first_row(rows, decimal)
        if first is None:
            if len(rows) == 1:
                raise ValueError(f"{path}: no row of numbers follows line {kept[0][0] + 1}")
            raise ValueError(
                f"{path}: line {kept[0][0] + 1} names {len(rows[0])} columns and line {kept[1][0] + 1} has "
                f"{len(rows[1])}"
            )
        count = len(rows[first] if header is None else rows[header])
        if header is None:
            comments = [line for line in lines[: kept[first][0]] if line.strip().startswith("#")]
            names = _commented(path, comments[-1] if comments else "", delimiter, count)
        else:
            names = tuple(rows[header])
        begin = [split(path, line, delimiter, count) for _, line in kept[first : first + 20]]
        dates, texts = date_columns(begin, decimal), text_columns(begin, decimal)
        return Layout(names, delimiter, kept[first][0], decimal, dates, texts, encoding)

    def read(self, wanted: list[str]) -> dict[str, Array]:
        """Columns by name."""
        layout = self.layout
        with self._open() as file:
            size = file.seek(0, os.SEEK_END)
        # A number takes at least two characters, including its delimiter.
        if min(size, 8 * (size // (2 * len(layout.names)) + 1) * len(wanted)) > self.max_bytes:
            raise ValueError(
                f"{self.path} has {size / 1e9:.1f} GB of text, but at most {self.max_bytes / 1e9:.1f} GB are read into "
                "memory: convert it to Parquet or NPY"
            )
        places = {name: k for k, name in enumerate(layout.names)}
        at = [places[name] for name in wanted]
        table = None
        if size > SHORT:
            table = self.by_arrow(at) if layout.delimiter is not None else None
            if table is None:
                table = self.by_numpy(at)
        if table is None:
            table = self.by_line(at)
        if len(table[0]) == 0:
            raise ValueError(f"{self.path} holds no rows")
        return dict(zip(wanted, table, strict=True))

    def by_arrow(self, at: list[int]) -> list[Array] | None:
        try:
            import pyarrow as pa
            from pyarrow import csv as pacsv
        except ImportError:
            return None
        layout = self.layout
        plain = not (self._packed or self._utf16)
        try:
            with self._open() as file:
                # Columns go by position here, as names may be repeated among the columns that are not wanted.
                columns = [str(i) for i in range(len(layout.names))]
                kinds = {str(i): pa.string() if i in layout.dates else pa.float64() for i in at}
                table = pacsv.read_csv(
                    self.path if plain else file,
                    read_options=pacsv.ReadOptions(column_names=columns, skip_rows=layout.skip),
                    parse_options=pacsv.ParseOptions(delimiter=layout.delimiter),
                    convert_options=pacsv.ConvertOptions(
                        include_columns=list(kinds),
                        column_types=kinds,
                        null_values=list(MISSING),
                        decimal_point=layout.decimal,
                    ),
                )
            return [
                _moments(table[str(i)].to_pylist()) if i in layout.dates else float64_column(table[str(i)]) for i in at
            ]
        except (pa.ArrowException, UnicodeError, ValueError):  # the second for names of files that are no text
            return None

    def by_numpy(self, at: list[int]) -> list[Array] | None:
        layout = self.layout
        if layout.decimal != "." or any(i in layout.dates for i in at):
            return None
        try:
            with (
                warnings.catch_warnings(),
                self._open() as raw,
                # NumPy ends the lines of bytes at "\n" only: it would skip others than those that were counted.
                io.TextIOWrapper(raw, encoding=layout.encoding) as file,
            ):
                warnings.simplefilter("error")
                # Not usecols, which would accept rows of different lengths.
                values = np.loadtxt(file, delimiter=layout.delimiter, skiprows=layout.skip, ndmin=2, comments=None)
        except (ValueError, UserWarning):
            return None
        if values.shape[1] != len(layout.names):
            return None
        return [np.ascontiguousarray(values[:, i]) for i in at]

    def by_line(self, at: list[int]) -> list[Array]:
        """The strict reader: slow, with exact error messages."""
        layout = self.layout
        columns: list[list[Any]] = [[] for _ in at]
        for line, fields in self._lines():
            if len(fields) != len(layout.names):
                raise ValueError(f"{self.path}: line {line} has {len(fields)} fields, expected {len(layout.names)}")
            for column, index in zip(columns, at, strict=True):
                try:
                    column.append(_value(fields[index], layout, index))
                except ValueError:
                    kind = f"a date such as {FORMS}" if index in layout.dates else "a number"
                    place = f"line {line}, column {layout.names[index]!r}"
                    raise ValueError(f"{self.path}: {place}: {fields[index][:60]!r} is not {kind}") from None
        return [
            since_first(c) if i in layout.dates else np.array(c, dtype=np.float64)
            for c, i in zip(columns, at, strict=True)
        ]

    def labels(self, name: str) -> list[str]:
        """The fields of a column as they are."""
        at, count = self.layout.names.index(name), len(self.layout.names)
        found = []
        for line, fields in self._lines():
            if len(fields) != count:
                raise ValueError(f"{self.path}: line {line} has {len(fields)} fields, expected {count}")
            if len(fields[at]) > _LONGEST_LABEL:  # every other label would take as much memory
                raise ValueError(
                    f"{self.path}: line {line}, column {name!r}: a label of {len(fields[at]):,} characters"
                )
            found.append(fields[at])
        return found

    def line_of(self, row: int) -> int | None:
        """The number of the line that holds a row, for messages; None if there is none."""
        return next((line for k, (line, _) in enumerate(self._lines()) if k == row), None)

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        layout = self.layout
        with self._open() as raw, io.TextIOWrapper(raw, encoding=layout.encoding, errors="replace") as file:
            for at, line in enumerate(iter(lambda: file.readline(_HEAD + 1), ""), 1):
                if len(line) > _HEAD:
                    raise ValueError(f"{self.path}: line {at} is longer than {_HEAD:,} characters")
                text = line.strip(BLANKS) if layout.delimiter == "\t" else line.strip()
                if at > layout.skip and text and not text.startswith("#"):
                    yield at, split(self.path, line, layout.delimiter, len(layout.names))


def _commented(path: Path, comment: str, delimiter: str | None, count: int) -> tuple[str, ...]:
    """Names from a comment, as `numpy.savetxt` writes them; else the default ones."""
    text = comment.strip().lstrip("# \t")
    for mark in (delimiter, None):
        named = split(path, text, mark)
        if len(named) == count:
            return default_names(count) if any(_plain_number(n) for n in named) else tuple(named)
    return default_names(count)


def _plain_number(text: str) -> bool:
    try:
        number(text)
    except ValueError:
        return False
    return True


def _value(field: str, layout: Layout, index: int) -> Any:
    if index not in layout.dates:
        return number(field, layout.decimal)
    return None if field in MISSING else microseconds(field)


def _moments(fields: list[str | None]) -> Array:
    return since_first([None if f is None or f.strip() in MISSING else microseconds(f.strip()) for f in fields])
