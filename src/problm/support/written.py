"""A record of the files that ProBLM wrote to a folder; only those are replaced without asking.

A folder that a command writes to holds a small record, `RECORD`, with the size and time of every file written there. A
file that is not in the record, or was changed since, is not ours and is left alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from .files import open_regular, write_atomically

RECORD = ".problm.json"
_FORMAT = "problm.files"
_MAX_BYTES = 1 << 20


class Written:
    """The record of a folder.

    Parameters
    ----------
    folder : folder of the files; it need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        known = _load(folder / RECORD)
        self.foreign_record = known is None and os.path.lexists(folder / RECORD)
        """Whether a file of somebody else's has the name of the record."""
        self._files = known or {}

    def refresh(self) -> None:
        """Take over what other processes have recorded since."""
        self._files.update(_load(self.folder / RECORD) or {})

    def foreign(self, names: Iterable[str]) -> list[str]:
        """Names of existing files that we did not write, or that were changed since."""
        return [name for name in names if os.path.lexists(self.folder / name) and not self._ours(name)]

    def strangers(self) -> list[str]:
        """Names of everything in the folder that is not ours."""
        return sorted(self.foreign(entry.name for entry in os.scandir(self.folder) if entry.name != RECORD))

    @contextlib.contextmanager
    def writing(self, names: Iterable[str]) -> Iterator[None]:
        """Context in which files are written; those that have changed at its end are recorded, also after an error.

        A process that is killed in between leaves files that are not recorded, and so are not replaced: nobody could
        tell them from a file that the user saved there afterwards.
        """
        names = list(names)
        before = {name: self._now(name) for name in names}
        try:
            yield
        finally:
            for name in names:
                found = self._now(name)
                if found is None:
                    self._files.pop(name, None)
                elif found != before[name]:
                    self._files[name] = found
            self._save()

    def adopt(self, names: Iterable[str]) -> None:
        """Record the present size and time of files that were just written."""
        self._files.update({name: found for name in names if (found := self._now(name)) is not None})
        self._save()

    def _ours(self, name: str) -> bool:
        parents = Path(name).parents[:-1]
        if name not in self._files or any((self.folder / p).is_symlink() for p in parents):
            return False
        try:
            found = os.lstat(self.folder / name)
        except OSError:
            return False
        return stat.S_ISREG(found.st_mode) and self._files[name] == _stamp(found)

    def _now(self, name: str) -> list[int] | None:
        with contextlib.suppress(OSError):
            return _stamp(os.lstat(self.folder / name))
        return None

    def _save(self) -> None:
        content = {"format": _FORMAT, "version": 1, "files": self._files}
        write_atomically(self.folder / RECORD, json.dumps(content, indent=1) + "\n")


def _stamp(found: os.stat_result) -> list[int]:
    return [found.st_size, found.st_mtime_ns]


def _load(path: Path) -> dict[str, list[int]] | None:
    """Contents of a record; None if there is none, or it is a link, damaged, or not ours."""
    if path.is_symlink():
        return None
    try:
        with open_regular(path) as file:
            data = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    files = data.get("files") if isinstance(data, dict) and data.get("format") == _FORMAT else None
    if not isinstance(files, dict):
        return None
    return {name: stamp for name, stamp in files.items() if _is_stamp(stamp)}


def _is_stamp(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(v) is int for v in value)
