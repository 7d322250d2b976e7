"""Reads a file in another process: HDF5, Excel, FITS and pictures.

Libraries of these formats follow links to other files, load plugins, and crash, hang or take any amount of memory on
damaged files. The process that calls them can open no file but the one it reads, write none, start nothing, and has
limits of memory and time (`problm.data.isolated.limits`; on Windows only the checks of the readers themselves hold). It
answers with columns of numbers, whose sizes are checked here.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from ...support.files import explained, open_regular, stamp
from ...support.suggest import suggest
from .limits import seconds_for

_START = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from problm.data.isolated.worker import main; main()"
_HEADER = 1 << 24
"""Largest number of bytes of the description of a file."""
_PACKAGES = {"hdf5": "h5py", "excel": "openpyxl", "fits": "astropy", "picture": "PIL"}
_CALLED = {"hdf5": "HDF5", "excel": "an Excel file", "fits": "FITS", "picture": "a picture"}


@dataclass(frozen=True)
class Found:
    """What a file holds, and the columns that were asked for."""

    names: tuple[str, ...]
    refused: dict[str, str]
    """Parts of the file that are not read, and why."""
    columns: dict[str, NDArray[np.float64]]
    texts: frozenset[str] = frozenset()
    """Names of the columns that hold text."""
    labels: tuple[str, ...] = ()
    """Different labels of a column of text, which is given as their numbers."""


def contents(path: Path, kind: str, part: str | None = None, image: bool = False) -> Found:
    """Names of the columns of a file."""
    return _contents(os.fspath(path), kind, part, image, *stamp(path))


@functools.lru_cache(maxsize=8)
def _contents(path: str, kind: str, part: str | None, image: bool, *stamped: int) -> Found:
    return ask(Path(path), kind, None, part, image, explained(stamped[0]))


def ask(
    path: Path,
    kind: str,
    names: Sequence[str] | None,
    part: str | None,
    image: bool,
    max_bytes: int,
    labels: bool = False,
) -> Found:
    """Columns of a file.

    Parameters
    ----------
    path : the file.
    kind : ``hdf5``, ``excel``, ``fits`` or ``picture``.
    names : columns to read; None for a list of their names only, an empty list for all of them.
    part : sheet, extension, page or data set to read.
    image : whether to read a plane of numbers as columns x, y, I.
    max_bytes : largest number of bytes of the columns.
    labels : whether the column may hold text, as labels of groups.
    """
    with open_regular(path) as file:
        size = file.seek(0, os.SEEK_END)
    if size == 0:
        raise ValueError(f"{path} is empty")
    room = min(max_bytes, explained(size))
    request = {
        "path": os.path.abspath(path), "kind": kind, "names": names, "part": part, "image": image, "room": room,
        "size": size, "labels": labels,
    }  # fmt: skip
    command = [sys.executable, "-P", "-c", _START, json.dumps([p for p in sys.path if p]), json.dumps(request)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "HDF5_PLUGIN_PRELOAD": "::", "HDF5_PLUGIN_PATH": ""}
    # Its messages are not shown: a library that is confused by a file may say anything.
    with subprocess.Popen(  # noqa: S603 (our own interpreter and code)
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
        cwd=os.sep,
    ) as process:  # fmt: skip
        try:
            return _timed(process, path, kind, size, room)
        finally:
            process.kill()


def _timed(process: subprocess.Popen[bytes], path: Path, kind: str, size: int, room: int) -> Found:
    """The answer of the process, which is ended when it takes too long."""
    assert process.stdout is not None
    late = threading.Timer(3.0 * seconds_for(size) + 60.0, process.kill)
    late.daemon = True
    late.start()
    try:
        return answer(process.stdout, path, kind, room)
    finally:
        late.cancel()


def answer(stream: IO[bytes], path: Path, kind: str, room: int) -> Found:
    """What the process says, which is checked: a library that a file has confused may say anything."""
    length = int.from_bytes(stream.read(8), "little")
    text = stream.read(length) if 0 < length <= _HEADER else b""
    try:
        told = json.loads(text)
        error, missing = told.get("error"), told.get("missing")
        names, refused = tuple(map(str, told["names"])), {str(k): str(v) for k, v in told["refused"].items()}
        sizes = [(str(name), int(n)) for name, n in told["sizes"]]
        texts, labels = frozenset(map(str, told["texts"])), tuple(map(str, told["labels"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(
            f"{path} cannot be read as {_CALLED[kind]}: its reader ended, or took more memory or time than "
            "the size of the file explains"
        ) from None
    if missing:
        raise ImportError(f"{_PACKAGES[kind]} is needed for {path}: pip install 'problm[files]'")
    if error is not None:
        wrong = told.get("unknown")
        hint = suggest(str(wrong), list(names)) if wrong is not None else ""
        raise ValueError(f"{path}{': ' if not str(error).startswith(' ') else ''}{error}{hint}")
    if any(n < 0 for _, n in sizes) or 8 * sum(n for _, n in sizes) > room:
        raise ValueError(f"{path}: its columns take more memory than the size of the file explains")
    columns = {}
    for name, n in sizes:
        values = np.empty(n, dtype=np.float64)
        view, done = values.view(np.uint8).data, 0
        while done < len(view):
            piece = stream.read(min(1 << 22, len(view) - done))
            if not piece:
                raise ValueError(f"{path} cannot be read as {_CALLED[kind]}: its reader ended in the middle")
            view[done : done + len(piece)] = piece
            done += len(piece)
        columns[name] = values
    return Found(names, refused, columns, texts, labels)
