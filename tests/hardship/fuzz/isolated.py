"""Readers that run in a process of their own: tried in forks of a server that has loaded their libraries already.

The server loads nothing else. A fork of the test's own process could wait for ever for a lock that a thread of JAX or
of a thread pool held at that moment.
"""

from __future__ import annotations

import atexit
import functools
import io
import json
import os
import struct
import subprocess
import sys
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
_FRAME = struct.Struct("<Q?")
"""Bytes that follow, and whether the reader was stopped."""


def run(kind: str, case: tuple[str | None, bytes], path: Path, refused: Callable[..., Any], bug: type) -> None:
    """Read a damaged file in a fork with the limits of the real process, for all its columns and as an image."""
    path.write_bytes(case[1])
    if not case[1]:
        return
    for image in (False, True):
        found = refused(lambda image=image: _served(kind, path, image), path)
        if found is None:
            continue
        if len({len(c) for c in found.columns.values()}) > 1 or any(c.ndim != 1 for c in found.columns.values()):
            raise bug(f"not columns: { {n: c.shape for n, c in found.columns.items()} }")


def _served(kind: str, path: Path, image: bool) -> Any:
    size = path.stat().st_size
    request = {"path": str(path), "kind": kind, "names": [], "part": None, "image": image, "room": _ROOM, "size": size}
    server = _server(kind)
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(request).encode() + b"\n")
    server.stdin.flush()
    length, ended = _FRAME.unpack(server.stdout.read(_FRAME.size))
    said = server.stdout.read(length)
    if ended:
        ENDED[kind] = ENDED.get(kind, 0) + 1
    return answer(io.BytesIO(said), path, kind, _ROOM)


@functools.cache
def _server(kind: str) -> subprocess.Popen[bytes]:
    """A process that has loaded the library of a kind and nothing else, so that no other thread runs when it forks."""
    root = Path(__file__).parents[3]
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.hardship.fuzz.isolated", kind],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=root,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    atexit.register(_end, server)
    return server


def _end(server: subprocess.Popen[bytes]) -> None:
    server.kill()
    server.communicate()


def serve_forks(kind: str) -> None:
    """Answer each request on standard input in a fork with the limits of the real process."""
    reader = prepared(kind)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        incoming, outgoing = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(incoming)
                confine(request["size"], _ROOM)
                with open(outgoing, "wb") as out:
                    serve(reader, request, out)
                code = 0
            finally:
                os._exit(code)
        os.close(outgoing)
        with open(incoming, "rb") as stream:
            said = stream.read()
        _, status = os.waitpid(child, 0)
        sys.stdout.buffer.write(_FRAME.pack(len(said), status != 0) + said)
        sys.stdout.buffer.flush()


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


if __name__ == "__main__":
    serve_forks(sys.argv[1])
