"""Readers that run in a process of their own: tried in forks of this one, which has loaded their libraries already."""

from __future__ import annotations

import functools
import io
import os
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from problm.data.isolated.limits import confine
from problm.data.isolated.process import answer
from problm.data.isolated.worker import prepared, serve

from . import seeds

ENDED: dict[str, int] = {}
"""How often the library crashed or was stopped, by its kind: no bug, since only its own process ends."""
_ROOM = 1 << 27
prepared = functools.cache(prepared)


def run(kind: str, case: tuple[str | None, bytes], path: Path, refused: Callable[..., Any], bug: type) -> None:
    """Read a damaged file in a fork with the limits of the real process, for all its columns and as an image."""
    path.write_bytes(case[1])
    if not case[1]:
        return
    for image in (False, True):
        found = refused(lambda image=image: _forked(kind, path, image), path)
        if found is None:
            continue
        if len({len(c) for c in found.columns.values()}) > 1 or any(c.ndim != 1 for c in found.columns.values()):
            raise bug(f"not columns: { {n: c.shape for n, c in found.columns.items()} }")


def _forked(kind: str, path: Path, image: bool) -> Any:
    reader, size = prepared(kind), path.stat().st_size
    request = {"path": str(path), "kind": kind, "names": [], "part": None, "image": image, "room": _ROOM, "size": size}
    incoming, outgoing = os.pipe()
    with warnings.catch_warnings():
        # JAX, if another test has loaded it, warns of its threads at every fork; the child calls nothing of JAX.
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
        warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)  # Python 3.12, of any threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(incoming)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            confine(size, _ROOM)
            with open(outgoing, "wb") as out:
                serve(reader, request, out)
            code = 0
        finally:
            os._exit(code)
    os.close(outgoing)
    try:
        with open(incoming, "rb") as stream:
            return answer(stream, path, kind, _ROOM)
    finally:
        _, status = os.waitpid(child, 0)
        if status:
            ENDED[kind] = ENDED.get(kind, 0) + 1


def workbooks(damaged: Callable[[list[bytes]], Any]) -> st.SearchStrategy[Any]:
    """Workbooks with one damaged member, or damaged as archives."""
    whole = seeds.excel()

    def packed(name: str, content: bytes) -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, text in {**whole, name: content}.items():
                archive.writestr(member, text)
        return buffer.getvalue()

    member = st.sampled_from(sorted(whole)).flatmap(
        lambda name: damaged([whole[name]]).map(lambda content: packed(name, content))
    )
    sheet = damaged([whole["xl/worksheets/sheet1.xml"]]).map(lambda text: packed("xl/worksheets/sheet1.xml", text))
    return st.one_of(member, sheet, damaged([packed("docProps/app.xml", b"<x/>")])).map(lambda content: (None, content))
