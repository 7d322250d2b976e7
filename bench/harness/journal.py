"""Records that survive a kill: one JSON object per line; the first line holds the settings of the run."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Any

_SYNC_SECONDS = 1.0


class Journal:
    """A file of records, each written at once; opening it resumes where a killed run stopped.

    Parameters
    ----------
    path : the file.
    header : what must be equal for records to be reused. A journal with another header is renamed to ``*.old``.
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path = path
        self.header = json.loads(json.dumps(header))
        self.records: dict[str, dict[str, Any]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = self._take_up() if path.exists() else 0
        if path.exists() and whole == 0:
            path.replace(path.with_suffix(path.suffix + ".old"))
        self._file: IO[bytes] = open(path, "r+b" if whole else "xb")  # noqa: SIM115
        self._file.truncate(whole)  # drop a line that the kill left incomplete
        self._file.seek(whole)
        self._synced = time.monotonic()
        if not whole:
            self._write(self.header)

    def _take_up(self) -> int:
        """Read the existing records; return the length of complete lines, 0 if they belong to another run."""
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        lines = data[:whole].splitlines()
        try:
            parsed = [json.loads(line) for line in lines]
        except json.JSONDecodeError:
            return 0
        if not parsed or parsed[0] != self.header:
            return 0
        self.records = {record["key"]: record for record in parsed[1:]}
        return whole

    def append(self, record: dict[str, Any]) -> None:
        self.records[record["key"]] = record
        self._write(record)

    def _write(self, value: dict[str, Any]) -> None:
        self._file.write(json.dumps(value, separators=(",", ":")).encode() + b"\n")
        self._file.flush()  # a killed process loses nothing; a killed machine at most a second
        if time.monotonic() - self._synced > _SYNC_SECONDS:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
