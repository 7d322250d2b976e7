"""Writing files so that a final name never holds half a file."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file under a temporary name in the same folder, flush it to disk, and rename it.

    Whoever looks at ``path`` sees the old file or the new one, also after a crash or on a full disk.
    """
    target = Path(path)
    data = content.encode() if isinstance(content, str) else content
    temporary = target.with_name(f".{target.name[:50]}.{secrets.token_hex(6)}.part")
    try:
        # Opened rather than made by tempfile, so that the user's umask decides who may read it.
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.errno is not None:  # nobody knows the temporary name
            raise OSError(error.errno, error.strerror, os.fspath(target)) from error
        raise
