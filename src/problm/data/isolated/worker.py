"""The other process: reads one file with its library and answers with columns of numbers."""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from .limits import confine

MOST = 10_000
"""Largest number of columns of a file, and of different labels."""
LONGEST_LABEL = 200


@dataclass
class Table:
    """What a reader found in a file."""

    columns: dict[str, Callable[[], NDArray[Any]]] = field(default_factory=dict)
    """Functions that read a column."""
    refused: dict[str, str] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    """Numbers of rows, where they are known before the column is read."""
    texts: dict[str, Callable[[], Iterable[str]]] = field(default_factory=dict)
    """Functions that read a column of text, as labels of groups."""


class Refused(ValueError):
    """Raised by readers, with a sentence for the user."""


def main() -> None:
    """Answer the request of the second argument on standard output."""
    request = json.loads(sys.argv[2])
    out = sys.stdout.buffer
    try:
        reader = prepared(request["kind"])
    except ImportError:
        put(out, {"missing": True})
        return
    confine(request["size"], request["room"])
    serve(reader, request, out)


def prepared(kind: str) -> Any:
    """The module that reads this kind, with everything loaded that it needs: nothing can be loaded later."""
    reader = importlib.import_module(f"problm.data.isolated.{kind}")
    reader.prepare()
    return reader


def serve(reader: Any, request: dict[str, Any], out: IO[bytes]) -> None:
    """Read, and answer; errors are part of the answer."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            told, arrays = _read(reader, request)
        except Refused as error:
            told, arrays = {"error": str(error)}, []
        except MemoryError:
            told, arrays = {"error": f"cannot be read as {reader.CALLED}: not enough memory for its size"}, []
        except Exception as error:  # libraries raise anything for damaged files
            said = (str(error).splitlines() or [""])[0][:300]
            told = {"error": f"cannot be read as {reader.CALLED}: {said or type(error).__name__}"}
            arrays = []
    put(out, told)
    for array in arrays:
        out.write(array.data)
    out.flush()


def put(out: IO[bytes], told: dict[str, Any]) -> None:
    text = json.dumps({"names": [], "refused": {}, "sizes": [], "texts": [], "labels": [], **told}).encode()
    out.write(len(text).to_bytes(8, "little") + text)
    out.flush()


def _read(reader: Any, request: dict[str, Any]) -> tuple[dict[str, Any], list[NDArray[np.float64]]]:
    table: Table = reader.read(request["path"], request["part"], request["image"], request["room"], request["size"])
    names, wanted = list(table.columns), request["names"]
    if not names and not table.refused:
        raise Refused("holds no columns of numbers")
    if not names and not wanted:
        raise Refused("{!r} is not read: {}".format(*next(iter(table.refused.items()))))
    if len(names) > MOST and not wanted:
        raise Refused(f"has {len(names):,} columns; at most {MOST:,} are read, unless they are named")
    told: dict[str, Any] = {
        "names": names[:MOST], "refused": dict(list(table.refused.items())[:100]), "sizes": [],
        "texts": list(table.texts)[:MOST],
    }  # fmt: skip
    if wanted is None:
        return told, []
    chosen = [str(n) for n in dict.fromkeys(wanted or names)]
    for name in chosen:
        if name in table.refused:
            raise Refused(f"{name!r} is not read: {table.refused[name]}")
        if name not in table.columns:
            return {**told, "error": f"there is no column {name!r}; it has {_some(names)}", "unknown": name}, []
    known = {table.lengths[n] for n in chosen if n in table.lengths}
    if len(known) > 1 and wanted:
        each = ", ".join(f"{n!r} has {table.lengths[n]}" for n in chosen if n in table.lengths)
        raise Refused(f"columns must have the same number of rows, but {each}")
    if len(known) > 1:  # all columns were asked for: those of the most frequent length
        counts = [table.lengths.get(n, -1) for n in chosen]
        usual = max(dict.fromkeys(counts), key=counts.count)
        chosen = [n for n, count in zip(chosen, counts, strict=True) if count == usual]
    if 8 * sum(table.lengths.get(n, 0) for n in chosen) > request["room"]:
        raise Refused("its columns take more memory than is allowed, or than the size of the file explains")
    arrays, taken = [], 0
    for name in chosen:
        if request.get("labels") and name in table.texts:
            told["labels"], values = _numbered(table.texts[name]())
        else:
            values = np.ascontiguousarray(table.columns[name](), dtype=np.float64).ravel()
        taken += values.nbytes
        if taken > request["room"]:
            raise Refused("its columns take more memory than is allowed, or than the size of the file explains")
        arrays.append(values)
    if len({len(a) for a in arrays}) > 1:
        raise Refused("columns must have the same number of rows")
    if not len(arrays[0]):
        raise Refused("holds no rows")
    told["sizes"] = [[name, len(a)] for name, a in zip(chosen, arrays, strict=True)]
    return told, arrays


def _numbered(texts: Iterable[str]) -> tuple[list[str], NDArray[Any]]:
    """Different labels, and the number of each row's label."""
    numbers: dict[str, int] = {}
    codes = []
    for text in texts:
        if len(text) > LONGEST_LABEL or len(numbers) > MOST:
            raise Refused(f"labels of groups: at most {MOST:,} different ones of {LONGEST_LABEL} characters are read")
        codes.append(numbers.setdefault(text, len(numbers)))
    return list(numbers), np.array(codes, dtype=np.float64)


def plane(values: NDArray[Any]) -> Table:
    """A plane of numbers as columns: x, the column of a pixel, y, its row, and I, its value."""
    if values.ndim != 2 or values.dtype.kind not in "fiub":
        raise Refused(f"an image of numbers has the shape (rows, columns), got {values.shape} of {values.dtype}")
    rows, columns = values.shape
    reads: dict[str, Callable[[], NDArray[Any]]] = {
        "x": lambda: np.tile(np.arange(columns, dtype=np.float64), rows),
        "y": lambda: np.repeat(np.arange(rows, dtype=np.float64), columns),
        "I": lambda: values.astype(np.float64),
    }
    return Table(reads, {}, dict.fromkeys(reads, rows * columns))


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(n) for n in names[:12])
    return shown + (f" and {len(names) - 12} more" if len(names) > 12 else "") or "none"
