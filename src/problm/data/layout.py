"""Where the numbers of a table begin and what its columns are called, from its first lines.

Instruments write their own headers before the table, a line of units below the names, numbers with decimal commas, and
any delimiter. A file may thus have: comments (``#``), lines of other text, one line of names, one of units, rows.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .dates import is_date

BLANKS = " \r\n\v\f"
"""Characters stripped from the lines of a tab-delimited table."""
MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null")
DELIMITERS = (";", "\t", ",")
_SAMPLE = 20
"""Number of lines from which the delimiter is told, and of rows in which dates and decimal commas are looked for."""
_ALIKE = 4
"""Number of rows that must look like the first one if there is other text before the table."""
_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?", re.ASCII)
_POINT = re.compile(r"[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_UNIT = re.compile(r"\(.*\)|\[.*\]|-|%|1|[µμnmkMGpc]?(m|s|g|A|K|V|W|Hz|J|N|Pa|C|F|T|eV|bar|L|l|mol|M|rad|min|h|d)"
                   r"([-^/]?-?\d?.{0,6})|°.?|deg\w*|counts?|a\.?\s?u\.?|arb\.?.*|cm-?\^?-?\d?|sec|ms")  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """How to read the rows of a text file."""

    names: tuple[str, ...]
    delimiter: str | None
    """Delimiter; None for any run of blanks."""
    skip: int
    """Number of lines before the first row."""
    decimal: str = "."
    dates: frozenset[int] = frozenset()
    """Positions of columns that hold dates."""
    texts: frozenset[int] = frozenset()
    """Positions of columns that hold text."""
    encoding: str = "utf-8-sig"


def number(text: str, decimal: str = ".") -> float:
    """Parse a float as written in files; Python's float would also accept 1_000 and digits of other scripts."""
    if text in MISSING:
        return float("nan")
    if decimal == ",":
        if "." in text:
            raise ValueError(text)
        text = text.replace(",", ".")
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return float(text)


def is_number(text: str, decimal: str = ".") -> bool:
    try:
        number(text, decimal)
    except ValueError:
        return False
    return True


def split(path: Path, line: str, delimiter: str | None, count: int | None = None) -> list[str]:
    """The fields of a line of a table with ``count`` columns, if that is known."""
    if delimiter == "\t":
        # Tabs at the end stand for missing fields, except for one at the end of every line, which some programs write.
        fields = _quoted(path, line.strip(BLANKS), delimiter)
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


def default_names(count: int) -> tuple[str, ...]:
    return {1: ("y",), 2: ("x", "y")}.get(count, tuple(f"c{i + 1}" for i in range(count)))


def sniffed(path: Path, lines: Sequence[str], decimal: str | None) -> tuple[str | None, str]:
    """Delimiter and decimal sign of the last of these lines, which are neither empty nor comments."""
    tail = lines[-_SAMPLE:]
    candidates: list[str] = [d for d in DELIMITERS if not (d == decimal == ",")]
    common: list[str] = [d for d in candidates if all(d in line for line in tail)]
    if not common:
        common = [d for d in sorted(candidates, key=",;\t".index) if any(d in line for line in tail)][:1]
    tried = [(d, sign) for d in (*common, None) for sign in (".", ",") if d != sign and decimal in (None, sign)]

    def score(choice: tuple[str | None, str]) -> tuple[bool, int]:
        fields = [f for line in tail[-5:] for f in split(path, line, choice[0])]
        found = sum(bool(f) and (is_number(f, choice[1]) or is_date(f)) for f in fields)
        # Blanks may also stand within fields, as in dates: they separate only if that makes everything a number.
        return found == len(fields), found if choice[0] is not None else 0

    delimiter, _ = max(tried, key=score) if common else (None, ".")
    fields = [f for line in tail for f in split(path, line, delimiter)]
    commas, points = any(map(_COMMA.fullmatch, fields)), any(map(_POINT.fullmatch, fields))
    return delimiter, decimal or ("," if delimiter != "," and commas and not points else ".")


def first_row(rows: Sequence[list[str]], decimal: str = ".") -> tuple[int | None, int | None]:
    """Positions of the row of names (None if there is none) and of the first row of numbers (None if there is none)."""

    def kinds(fields: list[str]) -> list[str]:
        return ["?" if f in MISSING else "1" if is_number(f, decimal) or is_date(f) else "a" for f in fields]

    def alike(a: list[str], b: list[str]) -> bool:
        return len(a) == len(b) and all(p == q or "?" in (p, q) for p, q in zip(a, b, strict=True))

    def belongs(row: list[str], shape: list[str]) -> bool:
        return len(row) == len(shape) and (row[0] == shape[0] == "1" or ("1" in row and alike(row, shape)))

    def names_above(i: int, shape: list[str]) -> int | None:
        named = [j for j in (i - 1, i - 2) if j >= 0 and len(rows[j]) == len(shape) and "1" not in kinds(rows[j])]
        if named[:1] != [i - 1]:
            return None
        units = len(named) == 2 and all(not f or _UNIT.fullmatch(f) for f in rows[i - 1])
        return i - 2 if units else i - 1

    if all(is_number(f, decimal) or is_date(f) for f in rows[0]):
        return None, 0
    if len(rows) == 1:
        return 0, None
    below = kinds(rows[1])
    if len(below) == len(rows[0]) and ("1" in below or "a" not in below):
        above, rest = kinds(rows[0]), [kinds(other) for other in rows[2 : 2 + _ALIKE]]
        if all(alike(below, other) for other in rest) and ("1" not in above or not rest or not alike(above, below)):
            return 0, 1
    for i in range(len(rows)):
        shape = kinds(rows[i])
        if "1" not in shape or not all(alike(shape, kinds(other)) for other in rows[i + 1 : i + 1 + _ALIKE]):
            continue
        header = names_above(i, shape)
        if header is not None or len(rows) > i + 1:
            # Rows of numbers above are no text before the table: one of them is damaged, or the names come twice.
            first = next((k for k in range(i) if belongs(kinds(rows[k]), shape)), i)
            if header is None or rows[header] in rows[:header]:
                return names_above(first, shape), first
            return header, i
    return 0, (1 if len(rows[1]) == len(rows[0]) else None)


def date_columns(rows: Sequence[list[str]], decimal: str = ".") -> frozenset[int]:
    """Positions of the columns that hold dates, judged by the first rows."""
    return _columns(rows, lambda field: not is_number(field, decimal) and is_date(field))


def text_columns(rows: Sequence[list[str]], decimal: str = ".") -> frozenset[int]:
    """Positions of the columns that hold text, judged by the first rows."""
    return _columns(rows, lambda field: not is_number(field, decimal) and not is_date(field))


def _columns(rows: Sequence[list[str]], has: Callable[[str], bool]) -> frozenset[int]:
    """Positions of the columns all of whose fields are of a kind in the first rows."""
    found = set()
    for k in range(len(rows[0])):
        fields = [r[k] for r in rows[:_SAMPLE] if len(r) > k and r[k] not in MISSING]
        if fields and all(map(has, fields)):
            found.add(k)
    return frozenset(found)
