"""Excel workbooks by openpyxl: the numbers and dates of one sheet.

A workbook is an archive of XML. Members must not announce more than they store explains, documents must not define
entities, formulas are not evaluated (the values that were saved count), and macros are never read.
"""

from __future__ import annotations

import datetime
import io
import zipfile
from functools import partial
from typing import Any

import numpy as np

from ...support.files import explained
from ..dates import microseconds, of_cell, since_first
from ..layout import MISSING, date_columns, default_names, first_row, number, text_columns
from .worker import MOST, Refused, Table

CALLED = "an Excel file"
_ROWS = 1 << 20
"""Rows of a sheet, as in Excel."""
_PACKED = 1 << 28
"""Bytes of the XML of a workbook."""
_HEAD = 200
"""Rows in which names and the first numbers are looked for."""


def prepare() -> None:
    import openpyxl

    book = openpyxl.Workbook()
    book.active.append(["x", 1.5, datetime.datetime(2024, 1, 31, 12), "text"])
    memory = io.BytesIO()
    book.save(memory)
    memory.seek(0)
    for row in openpyxl.load_workbook(memory, read_only=True, data_only=True).worksheets[0].iter_rows(values_only=True):
        assert len(row) == 4


def read(path: str, part: str | None, image: bool, room: int, size: int) -> Table:
    """The columns of a sheet: the one that is named, by name or number, else the first that holds numbers."""
    import openpyxl

    with open(path, "rb") as file:
        content = file.read()
    unpacked = _checked(content, room)
    book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True, keep_links=False)
    sheets = {sheet.title: sheet for sheet in book.worksheets}
    if part is not None:
        chosen = sheets.get(part) or (list(sheets.values())[int(part) - 1 :][:1] or [None])[0] if _counts(part) else (
            sheets.get(part)
        )  # fmt: skip
        if chosen is None:
            raise Refused(f"there is no sheet {part!r}; there are {', '.join(map(repr, sheets))}")
        return _table(_rows(chosen, unpacked))
    for sheet in sheets.values():
        rows = _rows(sheet, unpacked)
        if any(isinstance(v, int | float) for row in rows for v in row):
            return _table(rows)
    raise Refused("no sheet holds numbers")


def _counts(part: str) -> bool:
    return part.isdecimal() and int(part) > 0


def _checked(content: bytes, room: int) -> int:
    """The bytes of XML in a workbook; raises for archives that are larger than they explain, and for entities."""
    total = 0
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        infos = archive.infolist()
        if sum(info.compress_size for info in infos) > len(content):
            raise Refused("its members overlap")
        for info in infos:
            if not info.filename.endswith((".xml", ".rels")):
                continue
            total += info.file_size
            if info.file_size > explained(info.compress_size) or total > min(_PACKED, max(room, 1 << 26)):
                raise Refused(f"{info.filename!r} unpacks to more than is allowed, or than its size explains")
            with archive.open(info) as member:
                begin = member.read(4096)
            # Names of entities stand before the first element; other encodings than UTF-8 are not written by anyone.
            strange = any(mark in begin for mark in (b"<!DOCTYPE", b"<!ENTITY", b"\0"))
            if strange or begin.lstrip()[:1] not in (b"<", b"\xef"):
                raise Refused(f"{info.filename!r} is not the XML of a workbook")
    return total


def _rows(sheet: Any, unpacked: int) -> list[tuple[Any, ...]]:
    """The cells; sheets whose empty cells would fill the memory are refused."""
    kept, cells = [], 0
    sheet.reset_dimensions()  # what a sheet says of its size may be wrong, and a width would fill up every row
    for count, row in enumerate(sheet.iter_rows(values_only=True)):
        cells += 1 + len(row)
        if count >= _ROWS or len(row) > MOST or cells > 1_000_000 + unpacked:
            raise Refused(f"sheet {sheet.title!r} has more cells than its size explains")
        used = next((k for k in range(len(row), 0, -1) if row[k - 1] is not None), 0)
        kept.append(row[:used])
    while kept and not kept[-1]:
        kept.pop()
    return kept


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return of_cell(value)
    return str(float(value)) if isinstance(value, int | float) else str(value).strip()


def _table(rows: list[tuple[Any, ...]]) -> Table:
    kept = [row for row in rows if any(v is not None for v in row)]
    if not kept:
        raise Refused("holds no rows")
    width = max(len(row) for row in kept)
    head = [[_text(v) for v in row] + [""] * (width - len(row)) for row in kept[:_HEAD]]
    header, first = first_row(head)
    if first is None:
        raise Refused("no row of numbers follows the first row")
    plain = default_names(width)
    names = [text or plain[k] for k, text in enumerate(head[header])] if header is not None else list(plain)
    dates, texts = date_columns(head[first:]), text_columns(head[first:])
    table = Table()
    for k, name in enumerate(names):
        while name in table.columns:
            name += "'"
        values = [row[k] if k < len(row) else None for row in kept[first:]]
        table.columns[name] = partial(_column, values, k in dates, name)
        if k in texts:
            table.texts[name] = partial(map, _text, values)
        table.lengths[name] = len(values)
    return table


def _column(values: list[Any], dates: bool, name: str) -> Any:
    out: list[Any] = []
    for row, value in enumerate(values):
        text = _text(value)
        try:
            if dates:
                out.append(None if text in MISSING else microseconds(text))
            else:
                out.append(float(value) if isinstance(value, int | float) else number(text))
        except (ValueError, OverflowError):
            raise Refused(
                f"column {name!r}, row {row + 1} of the numbers: {text[:60]!r} is not a {'date' if dates else 'number'}"
            ) from None
    return since_first(out) if dates else np.array(out, dtype=np.float64)
