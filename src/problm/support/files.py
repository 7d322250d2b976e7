"""Files: atomic writes, and opening untrusted files."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

Content = str | bytes | Iterable[str]
EXPANSION = 1000
"""Largest plausible number of bytes in memory per byte of a packed file; deflate, as in PNG and NPZ, reaches 1032."""
TEXT_EXPANSION = 100
"""The same of numbers as text: real ones are packed to a tenth at best."""
UNPACKED_FREELY = 1 << 26
"""Bytes that any packed file may take in memory, however small it is."""


def write_atomically(path: str | os.PathLike[str], content: Content) -> None:
    """Write a file under a temporary name in the same folder, flush it to disk, and rename it.

    Readers of ``path`` see either the old file or the new one, also after a crash or on a full disk. The temporary name
    is unpredictable and must not exist, so nobody can place a link there; a link under the final name is replaced, not
    followed. Devices, pipes and folders are refused. The new file inherits the permissions of the one that it replaces.

    Parameters
    ----------
    path : the final name.
    content : text, bytes, or pieces of text that need not be in memory at once.
    """
    write_with(path, lambda file: _put(file, content))


def write_with(path: str | os.PathLike[str], write: Callable[[BinaryIO], None]) -> None:
    """Like `write_atomically`, with a function that writes to the open file."""
    target = Path(path)
    mode = _mode_of(target)
    temporary = target.with_name(f".{target.name[:50]}.{secrets.token_hex(8)}.part")
    made = False
    try:
        # Not created by tempfile, so that the user's umask decides who may read it.
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o666)
        made = True
        with os.fdopen(handle, "wb") as file:
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), mode)
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        if made:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        if isinstance(error, OSError) and error.errno is not None:  # the user does not know the temporary name
            raise OSError(error.errno, error.strerror, os.fspath(target)) from error
        raise
    flush_folder(target.parent)


def flush_folder(folder: Path) -> None:
    """Flush a renaming to disk, where the system supports it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading; a pipe, a device or a folder raises a ValueError without blocking.

    So does a file that is nearly all holes: they take no room on the disk, but any amount of memory.
    """
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 (the caller closes it)
    try:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{os.fspath(path)} is not a regular file")
        if found.st_size > UNPACKED_FREELY and found.st_size > explained(_stored(file.fileno(), found.st_size)):
            raise ValueError(f"{os.fspath(path)} has {found.st_size:,} bytes, nearly all of them holes")
    except BaseException:
        file.close()
        raise
    return file


def _stored(handle: int, size: int) -> int:
    """Bytes of a file that lie outside of its holes; counting ends once they explain ``size``."""
    if not hasattr(os, "SEEK_HOLE"):
        return size
    stored = at = 0
    try:
        while at < size and explained(stored) < size:
            begin = os.lseek(handle, at, os.SEEK_DATA)
            at = os.lseek(handle, begin, os.SEEK_HOLE)
            stored += at - begin
    except OSError as error:
        if error.errno != errno.ENXIO:  # which means that nothing but a hole follows
            stored = size
    os.lseek(handle, 0, os.SEEK_SET)
    return stored


def refuse_holes(file: BinaryIO | TextIO, path: str | os.PathLike[str]) -> None:
    """Refuse a sparse text file: its holes read as zero bytes, possibly gigabytes that are not stored."""
    if not hasattr(os, "SEEK_HOLE"):
        return
    handle = file.fileno()
    with contextlib.suppress(OSError):  # a system without sparse files
        at = os.lseek(handle, 0, os.SEEK_CUR)
        size = os.fstat(handle).st_size
        hole = os.lseek(handle, 0, os.SEEK_HOLE) if size else 0
        os.lseek(handle, at, os.SEEK_SET)
        if hole < size:
            raise ValueError(f"{os.fspath(path)} is not text (it has a hole at byte {hole})")


def stamp(path: str | os.PathLike[str]) -> list[int]:
    """Size and times of a file; the last one changes with any modification and cannot be set."""
    found = os.stat(path)
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def explained(stored: int, expansion: int = EXPANSION, freely: int = UNPACKED_FREELY) -> int:
    """Bytes of memory that a packed file of ``stored`` bytes may request."""
    return freely + expansion * stored


def text_lines(path: str | os.PathLike[str], longest: int) -> Iterator[tuple[int, str]]:
    """Lines of a UTF-8 text file with their numbers, without line ends; none longer than ``longest`` characters."""
    with open_regular(path) as file:
        refuse_holes(file, path)
        lines, number = io.TextIOWrapper(file, encoding="utf-8-sig"), 0
        try:
            while line := lines.readline(longest + 2):
                number += 1
                text = line.removesuffix("\n")
                if len(text) > longest:
                    raise ValueError(f"{os.fspath(path)}, line {number}: longer than {longest:,} characters")
                yield number, text
        except UnicodeDecodeError as error:
            raise ValueError(f"{os.fspath(path)} is not text in UTF-8 ({error.reason})") from None


def written_numbers(words: Iterable[str]) -> list[float]:
    """Numbers as files spell them; Python's float would also accept 1_000 and digits of other scripts."""
    words = list(words)
    together = "".join(words)
    if "_" in together or not together.isascii():
        raise ValueError(f"not numbers: {' '.join(words)[:60]!r}")
    return [float(word) for word in words]


def _put(file: BinaryIO, content: Content) -> None:
    if isinstance(content, bytes):
        file.write(content)
    elif isinstance(content, str):
        file.write(_encoded(content))
    else:
        for part in content:
            file.write(_encoded(part))


def _encoded(text: str) -> bytes:
    """Text in UTF-8; what no text can hold, from names of files that are none, is spelt out."""
    return text.encode("utf-8", "backslashreplace")


def _mode_of(target: Path) -> int | None:
    """Permissions of the existing regular file; None if there is none, or a link."""
    try:
        found = os.lstat(target).st_mode
    except OSError:
        return None
    if stat.S_ISLNK(found):
        return None
    if stat.S_ISDIR(found):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(target))
    if not stat.S_ISREG(found):
        raise OSError(errno.EINVAL, "this is a device or pipe, which is not replaced by a file", os.fspath(target))
    return stat.S_IMODE(found) & 0o777


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
