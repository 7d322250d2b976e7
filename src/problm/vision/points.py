"""Point clouds in files: PLY (text and binary), NPY, and text with three numbers per line.

Files may come from anywhere: sizes that a header announces are compared with the file before memory is allocated, and
damage raises a ValueError that names the file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..support.files import open_regular, text_lines, write_atomically, written_numbers
from ..support.npy import load_arrays

Array = NDArray[np.float64]
_TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2",
    "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "float": "f4", "float32": "f4",
    "double": "f8", "float64": "f8",
}  # fmt: skip
_FORMATS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_HEADER, _LINE = 1000, 10_000
"""Lines of a header, and bytes of a line, at most."""


def read_points(path: str | os.PathLike[str]) -> Array:
    """Read points (n, 3) from a PLY file (``.ply``), an array (``.npy``), or text (any other name).

    Of text lines, the first three numbers count, separated by blanks, commas or semicolons; a first line without
    numbers and lines that begin with # are skipped. Faces and further properties of a PLY file are skipped.
    """
    suffix = Path(path).suffix.lower()
    points = _read_ply(path) if suffix == ".ply" else _read_array(path) if suffix == ".npy" else _read_text(path)
    if not len(points):
        raise ValueError(f"{os.fspath(path)} has no points")
    return points


def write_ply(
    path: str | os.PathLike[str], points: ArrayLike, colors: ArrayLike | None = None, normals: ArrayLike | None = None
) -> None:
    """Write points (n, 3) as a binary PLY file, atomically.

    Parameters
    ----------
    colors : (n, 3) numbers from 0 to 255.
    normals : (n, 3)
    """
    x = np.asarray(points, dtype=np.float64)
    if x.ndim != 2 or x.shape[1] != 3:
        raise ValueError(f"points must have the shape (n, 3), got {x.shape}")
    columns: list[tuple[str, str, Any]] = [(name, "<f8", x[:, j]) for j, name in enumerate("xyz")]
    for given, names, kind in ((normals, ("nx", "ny", "nz"), "<f8"), (colors, ("red", "green", "blue"), "u1")):
        if given is not None:
            values = np.asarray(given)
            if values.shape != x.shape:
                raise ValueError(f"{'normals' if kind == '<f8' else 'colors'} must have the shape {x.shape}")
            columns += [(name, kind, values[:, j]) for j, name in enumerate(names)]
    table = np.empty(len(x), dtype=[(name, kind) for name, kind, _ in columns])
    for name, _, values in columns:
        table[name] = values
    words = {"<f8": "double", "u1": "uchar"}
    header = ["ply", "format binary_little_endian 1.0", f"element vertex {len(x)}"]
    header += [f"property {words[kind]} {name}" for name, kind, _ in columns]
    write_atomically(path, "\n".join([*header, "end_header", ""]).encode() + table.tobytes())


def _read_array(path: str | os.PathLike[str]) -> Array:
    array = load_arrays(path).get("array", np.empty(0))
    if array.ndim != 2 or array.shape[1] < 3 or array.dtype.kind not in "fiu":
        raise ValueError(f"{os.fspath(path)} must hold points (n, 3), got {array.dtype} of shape {array.shape}")
    return np.ascontiguousarray(array[:, :3], dtype=np.float64)


def _read_text(path: str | os.PathLike[str]) -> Array:
    rows: list[list[float]] = []
    for number, line in text_lines(path, _LINE):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        words = line.replace(",", " ").replace(";", " ").split()
        try:
            rows.append(written_numbers(words[:3]))
        except ValueError:
            if rows or number > 1:
                raise ValueError(f"{os.fspath(path)}, line {number}: not a list of numbers: {line[:60]!r}") from None
            continue
        if len(rows[-1]) < 3:
            raise ValueError(f"{os.fspath(path)}, line {number}: a point needs three numbers, got {len(rows[-1])}")
    return np.array(rows, dtype=np.float64).reshape(-1, 3)


def _read_ply(path: str | os.PathLike[str]) -> Array:
    name = os.fspath(path)
    with open_regular(path) as file:
        kind, count, properties = _header(file, name)
        places = {word: k for k, (word, _) in enumerate(properties)}
        if not {"x", "y", "z"} <= set(places):
            raise ValueError(f"{name}: vertices have no x, y, z")
        if kind == "ascii":
            return _ascii_vertices(file, name, count, [places[c] for c in "xyz"])
        dtype = np.dtype([(word, _FORMATS[kind] + code) for word, code in properties])
        left = os.fstat(file.fileno()).st_size - file.tell()
        if count * dtype.itemsize > left:
            raise ValueError(f"{name}: {count} vertices announced, but the file ends after {left // dtype.itemsize}")
        table = np.frombuffer(file.read(count * dtype.itemsize), dtype=dtype)
    return np.column_stack([table[c].astype(np.float64) for c in "xyz"])


def _header(file: BinaryIO, name: str) -> tuple[str, int, list[tuple[str, str]]]:
    """Format, number of vertices, and names and types of their properties."""
    if file.readline(_LINE).strip() != b"ply":
        raise ValueError(f"{name} is not a PLY file")
    kind, count, element, properties = "", -1, "", []
    for _ in range(_HEADER):
        words = file.readline(_LINE).decode("latin-1").split()
        match words:
            case ["end_header"]:
                break
            case ["format", kind, *_]:
                pass
            case ["element", element, number] if number.isdecimal() and len(number) < 19:
                if element == "vertex":
                    count = int(number)
                elif count < 0 and int(number):
                    raise ValueError(f"{name}: vertices must be the first element, got {element!r}")
            case ["property", word, _] if element == "vertex":
                if word not in _TYPES:
                    raise ValueError(f"{name}: property type {word!r} is not known")
                properties.append((words[2], _TYPES[word]))
            case ["property", "list", *_] if element == "vertex":
                raise ValueError(f"{name}: vertices with lists are not supported")
            case []:
                break
    if kind not in _FORMATS or count < 0 or len({word for word, _ in properties}) < len(properties):
        raise ValueError(f"{name}: the header is damaged")
    return kind, count, properties


def _ascii_vertices(file: BinaryIO, name: str, count: int, places: list[int]) -> Array:
    rows = []
    for k in range(count):
        words = file.readline(_LINE).decode("latin-1").split()
        try:
            rows.append(written_numbers([words[place] for place in places]))
        except (ValueError, IndexError):
            raise ValueError(f"{name}: vertex {k} of {count} is missing or damaged") from None
    return np.array(rows, dtype=np.float64).reshape(-1, 3)
