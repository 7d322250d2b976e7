"""Arrays from ``.npy`` and ``.npz`` files that may come from anywhere.

NumPy's reader assumes that files are trusted, except for pickles: damaged archives raise half a dozen kinds of
exceptions, and a compressed file of a few kilobytes can unpack to any size. Here nothing is trusted: any damage raises
a ValueError that names the file, Python objects are never unpickled, names of members are never used as paths, and the
size announced in a header is compared with the stored size (`problm.support.files.explained`) and the free memory
before memory is allocated.
"""

from __future__ import annotations

import io
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .addresses import in_brief, without_secrets
from .files import explained, open_regular
from .memory import as_bytes

Array = NDArray[Any]
# Exceptions of Python's archive reader for damaged archives and unknown compression methods.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, struct.error, OSError,
    UnicodeDecodeError,
)  # fmt: skip
_PIECE = 1 << 24
LONGEST_HEADER = 10_000
"""Bytes of the header of an array, as in NumPy."""


@contextmanager
def unharmed(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors of a damaged archive into a ValueError that names it; the file must be open already."""
    try:
        yield
    except _DAMAGE as error:
        told = in_brief(error) or "it ends too early"
        raise ValueError(f"{os.fspath(path)} cannot be read as an archive: {told}") from None


@contextmanager
def sound_parquet(name: str | os.PathLike[str]) -> Iterator[None]:
    """Turn PyArrow's errors about a damaged file into a ValueError that names it."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise ValueError(f"{without_secrets(os.fspath(name))} cannot be read as Parquet: {in_brief(error)}") from None


def read_header(path: str | os.PathLike[str], file: Any, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, Fortran order and type of the array that begins here."""
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        length = file.read(2 if version == (1, 0) else 4)
        if int.from_bytes(length, "little") > LONGEST_HEADER:  # NumPy would take memory for whatever is announced
            raise ValueError(f"its header is longer than {LONGEST_HEADER} bytes")
        shape, fortran, dtype = read(io.BytesIO(length + file.read(int.from_bytes(length, "little"))))
    except _DAMAGE:
        raise
    except Exception as error:  # a hostile header makes NumPy's parser raise almost anything
        raise ValueError(f"{os.fspath(path)}: {name} cannot be read as an array: {in_brief(error)}") from None
    if any(type(length) is not int or length < 0 for length in shape) or _beyond(shape, dtype):
        raise ValueError(f"{os.fspath(path)}: {name} cannot be read as an array: its shape is {in_brief(shape)}")
    return shape, fortran, dtype


def _beyond(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Whether an array is larger than any address space, or has elements without bytes, of which any number is free."""
    return dtype.itemsize == 0 or math.prod(max(length, 1) for length in shape) * dtype.itemsize >= 2**62


def load_arrays(
    path: str | os.PathLike[str], names: Sequence[str] | None = None, *, max_bytes: int | None = None
) -> dict[str, Array]:
    """The arrays of a ``.npz`` file by name, or of a ``.npy`` file under the name ``"array"``.

    Parameters
    ----------
    path
        The file. Its contents decide, not its name.
    names
        Arrays to read from an archive; by default all. Missing names are left out.
    max_bytes
        Largest number of bytes of all arrays together; by default half of the free memory.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez_compressed(folder + "/a.npz", x=np.arange(3), y=np.ones(2))
    ...     load_arrays(folder + "/a.npz", ["x"])
    {'x': array([0, 1, 2])}
    """
    room = as_bytes(None) if max_bytes is None else max_bytes
    with open_regular(path) as raw:
        begin = raw.read(6)
        size = raw.seek(0, os.SEEK_END)
        raw.seek(0)
        if begin == b"\x93NUMPY":
            with unharmed(path):
                return {"array": _read(path, raw, "array", min(room, size), room)}
        found: dict[str, Array] = {}
        with unharmed(path), zipfile.ZipFile(raw) as archive:
            for name, info in members(path, archive, size).items():
                if names is None or name in names:
                    with archive.open(info) as file:
                        found[name] = _read(path, file, name, most_of(info), room, _most_numbers(info))
                    room -= found[name].nbytes
        return found


def members(path: str | os.PathLike[str], archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """Members of an archive of ``size`` bytes by name; raise ValueError if members overlap."""
    infos = archive.infolist()
    if sum(info.compress_size for info in infos) > size:
        raise ValueError(f"{os.fspath(path)} cannot be read as an archive: its members overlap")
    for info in infos:
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{os.fspath(path)}: {info.filename} is packed in a way that NumPy does not use")
    found = {info.filename.removesuffix(".npy"): info for info in infos}
    if len(found) < len(infos):
        raise ValueError(f"{os.fspath(path)} cannot be read as an archive: two members have the same name")
    return found


def most_of(info: zipfile.ZipInfo) -> int:
    """Largest number of bytes that a member can hold."""
    if info.compress_type == zipfile.ZIP_STORED:
        return min(info.file_size, info.compress_size)
    return min(info.file_size, explained(info.compress_size))


def _most_numbers(info: zipfile.ZipInfo) -> int | None:
    """Largest number of numbers of a packed member: whoever reads small integers makes eight bytes of each."""
    return None if info.compress_type == zipfile.ZIP_STORED else explained(info.compress_size) // 8


def _read(
    path: str | os.PathLike[str], file: Any, name: str, most: int, room: int, numbers: int | None = None
) -> Array:
    shape, fortran, dtype = read_header(path, file, name)
    if dtype.hasobject:
        raise ValueError(
            f"{os.fspath(path)}: {name} holds Python objects, which are never unpickled (allow_pickle=False)"
        )
    need = math.prod(shape) * dtype.itemsize
    if need > room:
        raise ValueError(
            f"{os.fspath(path)}: {name} takes {need / 1e9:.3g} GB unpacked, but at most {room / 1e9:.3g} GB are read "
            "into memory (half of the free memory)"
        )
    if need > most or (numbers is not None and dtype.kind in "iub" and need // dtype.itemsize > numbers):
        raise ValueError(f"{os.fspath(path)} is cut short: {name} needs {need} bytes, the file explains at most {most}")
    content = np.empty(need, dtype=np.uint8)
    view, done = content.data, 0
    while done < need:
        got = file.readinto(view[done : done + _PIECE])
        if not got:
            raise ValueError(f"{os.fspath(path)} is cut short: {name} has {done} of {need} bytes")
        done += got
    return content.view(dtype).reshape(shape, order="F" if fortran else "C") if need else np.empty(shape, dtype)
