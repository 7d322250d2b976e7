"""Files at an address (``s3://bucket/x.npy``, ``memory://t.parquet``), through fsspec.

An address may hold a user, a password or a signed query. These go to the store and nowhere else: messages name the
address without them. Sizes are those that the store reports, and the same limits hold as for local files.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..support.addresses import in_brief, without_secrets
from .columns import Columns, FileColumns


class RemoteFiles:
    """The file system of an address, and paths on it.

    Parameters
    ----------
    address : an address with a scheme that fsspec knows.
    """

    def __init__(self, address: str) -> None:
        self.name = without_secrets(address)
        try:
            import fsspec
        except ImportError as error:
            raise ImportError("fsspec is needed for data at an address: pip install 'problm[big]'") from error
        with self.sound():
            self.system, self.path = fsspec.core.url_to_fs(address)

    def size(self) -> int:
        """Size in bytes; raise FileNotFoundError if there is no such file."""
        with self.sound():
            found = self.system.info(self.path)
        if found.get("type") != "file" or not isinstance(found.get("size"), int):
            raise ValueError(f"{self.name}: the store does not tell the size of this file")
        return int(found["size"])

    def local_path(self) -> str | None:
        """The path, if the address names a file of this machine (``file://...``, also behind a cache); else None."""
        system = self.system
        while (behind := getattr(system, "fs", None)) is not None:
            system = behind
        known = system.protocol if isinstance(system.protocol, (tuple, list)) else (system.protocol,)
        return self.path if "file" in known else None

    def require(self) -> None:
        """Raise FileNotFoundError if there is neither a file nor a folder."""
        with self.sound():
            self.system.info(self.path)

    def read(self, at: int, count: int) -> bytes:
        """``count`` bytes from position ``at`` on; fewer at the end of the file."""
        with self.sound():
            content: bytes = self.system.cat_file(self.path, start=at, end=at + count)
        return content

    @contextmanager
    def sound(self) -> Iterator[None]:
        """Turn errors of the store, which can be almost anything, into ones that name the address without secrets."""
        try:
            yield
        except (MemoryError, ImportError) as error:
            raise type(error)(f"{self.name}: {in_brief(error)}") from None
        except FileNotFoundError:
            raise FileNotFoundError(f"no such file: {self.name!r}") from None
        except Exception as error:
            raise OSError(f"{self.name} cannot be read: {type(error).__name__}: {in_brief(error)}") from None

    def beginning(self, count: int) -> io.BytesIO:
        """The first bytes as a file; a pipe or folder raises a ValueError, as a read would wait for it."""
        self.size()
        return io.BytesIO(self.read(0, count))


class RemoteColumns(FileColumns):
    """The column of an ``.npy`` file at an address, read by offset."""

    def __init__(self, files: RemoteFiles, n: int, raw: Any) -> None:
        self._remote = files
        super().__init__(n, [raw])
        self.files = None  # no times to compare

    def size_of(self, path: str) -> int:
        return self._remote.size()

    def read(self, lo: int, hi: int, out: Columns | None = None) -> Columns:
        (raw,) = self.raws
        each = raw.column.row_bytes
        content = self._remote.read(raw.offset + lo * each, (hi - lo) * each)
        if len(content) != (hi - lo) * each:
            raise OSError(f"{self._remote.name} ended while being read: has it changed?")
        return (np.frombuffer(content, raw.column.dtype).reshape(hi - lo, *raw.column.shape),)
