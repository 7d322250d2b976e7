"""Zarr arrays from folders that may come from anywhere.

A Zarr folder names the codecs of its chunks, and some known codecs run code (pickle) or take any amount of memory.
Nothing in a folder is trusted: metadata are checked here before Zarr reads them, only numbers with the codecs of
`FILTERS` and `COMPRESSORS` are decoded, chunks that unpack to more than their announced size are refused, and so are
arrays of a size that their chunks do not explain, and links that leave the folder. Users who trust the data can open
the array with Zarr and pass it.
"""

from __future__ import annotations

import bz2
import json
import lzma
import math
import os
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

try:
    import zarr
    from zarr.storage import FsspecStore, LocalStore
except ImportError as error:
    raise ImportError("Zarr is needed for this kind of data: pip install 'problm[big]'") from error

from ..support.addresses import in_brief, is_address, without_secrets
from ..support.files import UNPACKED_FREELY, explained, open_regular
from ..support.memory import as_bytes
from .columns import Sliced, Source, choose
from .remote import RemoteFiles

FILTERS = frozenset(
    {"bytes", "transpose", "delta", "shuffle", "bitround", "quantize", "fixedscaleoffset", "astype", "crc32", "crc32c"}
    | {"adler32", "fletcher32"}
)
"""Codecs that neither compress nor run code."""
COMPRESSORS = frozenset(["blosc", "zstd", "lz4", "gzip", "zlib", "bz2", "lzma"])
_STREAMS = {
    "gzip": lambda: zlib.decompressobj(31), "zlib": zlib.decompressobj,
    "bz2": bz2.BZ2Decompressor, "lzma": lzma.LZMADecompressor,
}  # fmt: skip
"""Decoders of the codecs whose chunks do not begin with their unpacked size."""
_NUMBERS = frozenset(f"{kind}{8 * size}" for kind in ("int", "uint", "float") for size in (1, 2, 4, 8)) | {"bool"}
_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
_MAX_METADATA = 1 << 24
_MOST_CHUNKS = 1 << 24
_MOST_AXES = 32
_MOST_CODECS = 16
"""Largest number of codecs of an array: each one runs over every chunk."""
_EACH_CHUNK = 1 << 10
"""Bytes of memory that Zarr takes for a chunk, however small it is."""
_FREELY = 1 << 28
"""Bytes that any chunk may take in memory, as those of equal numbers are packed to nearly nothing."""
_FED = 1 << 16
_SLACK = 1 << 16
"""Number of bytes that a chunk may unpack to beyond its numbers, for checksums and ends of blocks."""


def open_zarr(path: str, columns: Sequence[str] | None) -> Source:
    """Open a Zarr array, or all arrays of a group."""
    if is_address(path):
        return _from_address(path, columns)
    if not os.path.isdir(path):
        raise FileNotFoundError(2, "there is no such Zarr folder", path)
    name = os.path.basename(os.path.normpath(path))
    if (single := _described(path, path, name)) is not None:
        _refuse_emptiness(path, single)
        return Sliced([_opened(path, path, single)], [name])
    known: dict[str, _Described] = {}
    for entry in sorted(os.scandir(path), key=lambda e: e.name):
        if entry.is_dir() and (found := _described(path, entry.path, entry.name)) is not None:
            known[entry.name] = found
    names = choose("columns", columns, known)
    if not names:
        raise ValueError(f"{path} is a Zarr group without arrays")
    for name in names:
        _refuse_emptiness(os.path.join(path, name), known[name])
    return Sliced([_opened(path, os.path.join(path, name), known[name]) for name in names], names)


@dataclass(frozen=True)
class _Described:
    """An array whose metadata were checked."""

    name: str
    version: int
    bytes: int
    chunks: int
    chunk_bytes: int
    compressor: str | None


def _described(path: str, folder: str, name: str) -> _Described | None:
    """Metadata of the array in a folder, None if there is none; raise ValueError if they cannot be trusted."""
    for file, version in (("zarr.json", 3), (".zarray", 2)):
        if os.path.lexists(os.path.join(folder, file)):
            _refuse_escape(path, os.path.join(folder, file), name)
            with _sound_zarr(path), open_regular(os.path.join(folder, file)) as opened:
                text = opened.read(_MAX_METADATA + 1)
                if len(text) > _MAX_METADATA:
                    raise ValueError(f"{name}: more than {_MAX_METADATA} bytes of metadata")
                meta = json.loads(text)
                if not isinstance(meta, dict):
                    raise ValueError(f"{name}: metadata must be a JSON object")
                if version == 3 and meta.get("node_type") != "array":
                    return None
                return _checked(name, version, meta)
    return None


def _refuse_escape(path: str, file: str, name: str) -> None:
    """Refuse a file that links lead out of the folder ``path``: the data of a stranger name no other file."""
    base = os.path.realpath(path)
    if os.path.commonpath([base, os.path.realpath(file)]) != base:
        raise ValueError(
            f"{path}: {name} is a link out of this folder, which is not followed; open the array with zarr and pass it "
            "if you trust it"
        )


def _sizes(folder: str) -> Iterator[int]:
    """Sizes of the files of a folder, or of an address."""
    if is_address(folder):
        files = RemoteFiles(folder)
        with files.sound():
            yield from (int(found.get("size") or 0) for found in files.system.find(files.path, detail=True).values())
    for place, _, names in os.walk(folder):
        yield from (os.lstat(os.path.join(place, name)).st_size for name in names)


def _refuse_emptiness(folder: str, described: _Described) -> None:
    """Refuse an array whose chunks are far too small for it, or missing: it would take hours to read nothing."""
    needed, stored = max(described.bytes, _EACH_CHUNK * described.chunks), 0
    if needed <= UNPACKED_FREELY:
        return
    for size in _sizes(folder):
        stored += size
        if explained(stored) >= needed:
            return
    raise ValueError(
        f"{without_secrets(folder)} announces {described.bytes / 1e9:.3g} GB in {described.chunks:,} chunks, but holds "
        f"{stored} bytes, which do not explain them; open the array with zarr and pass it if most of its chunks are "
        "meant to be missing"
    )


def _checked(name: str, version: int, meta: Mapping[str, Any]) -> _Described:
    dtype, shape = meta["data_type" if version == 3 else "dtype"], meta["shape"]
    if version == 3:
        sound = isinstance(dtype, str) and dtype in _NUMBERS
        chunks = meta["chunk_grid"]["configuration"]["chunk_shape"]
        codecs = [c if isinstance(c, str) else c["name"] for c in meta["codecs"]]
        settings = [c.get("configuration") or {} for c in meta["codecs"] if not isinstance(c, str)]
        if meta.get("storage_transformers"):
            raise ValueError(f"{name}: storage transformers are not supported")
    else:
        sound = isinstance(dtype, str) and len(dtype) == 3 and np.dtype(dtype).kind in "fiub"
        chunks, packed = meta["chunks"], meta.get("compressor")
        settings = (meta.get("filters") or []) + ([] if packed is None else [packed])
        codecs = [c["id"] for c in settings]
    if not sound:
        raise ValueError(f"{name} must hold numbers, got {str(dtype)[:60]!r}")
    for sizes in (shape, chunks):
        if not (isinstance(sizes, list) and all(type(s) is int and 0 <= s < 2**62 for s in sizes)):
            raise ValueError(f"{name}: shape and chunks must be whole numbers")
    if not shape:
        raise ValueError(f"{name} is a single number, not one per row")
    if len(shape) > _MOST_AXES or len(chunks) != len(shape) or min(chunks) < 1:
        raise ValueError(f"{name} has {len(shape)} axes, and chunks of {len(chunks)}; there are at most {_MOST_AXES}")
    _refuse_other_types(name, settings)
    each, room = np.dtype(dtype).itemsize, as_bytes(None)
    size = max(math.prod(chunks), math.prod(shape[1:])) * each
    if size > room:
        raise ValueError(
            f"a chunk or row of {name} takes {size / 1e9:.3g} GB unpacked, but at most {room / 1e9:.3g} GB are read "
            "into memory (half of the free memory)"
        )
    count = math.prod(-(-s // c) for s, c in zip(shape, chunks, strict=True))
    if shape[0] // chunks[0] > _MOST_CHUNKS:
        raise ValueError(f"{name} has more than {_MOST_CHUNKS} chunks")
    unpacked = 2 * 8 * math.prod(chunks)
    return _Described(name, version, math.prod(shape) * each, count, unpacked, _compressor(name, codecs))


def _refuse_other_types(name: str, settings: Sequence[Mapping[str, Any]]) -> None:
    """Refuse filters that make anything but numbers: a text of any length for each byte, or references."""
    for key in ("dtype", "astype", "encode_dtype", "decode_dtype"):
        for value in (s[key] for s in settings if key in s):
            if not (isinstance(value, str) and len(value) <= 8 and np.dtype(value).kind in "fiub"):
                raise ValueError(f"{name}: filters must make numbers, got {str(value)[:60]!r}")


def _compressor(name: str, codecs: Sequence[Any]) -> str | None:
    """The compressing codec, if there is one; raise ValueError for codecs that are not on the list."""
    if len(codecs) > _MOST_CODECS:
        raise ValueError(f"{name} is stored with {len(codecs)} codecs; at most {_MOST_CODECS} are read")
    packing = []
    for codec in codecs:
        kind = str(codec).removeprefix("numcodecs.")
        if kind in COMPRESSORS:
            packing.append(kind)
        elif kind not in FILTERS:
            raise ValueError(
                f"{name} is stored with the codec {str(codec)[:60]!r}, which is not read from a file, because it may "
                "run code or take any amount of memory; if you trust the data, open the array with zarr and pass it"
            )
    if len(packing) > 1:
        raise ValueError(f"{name} is packed more than once")
    return packing[0] if packing else None


class _Checked(LocalStore):  # type: ignore[misc]
    """A store that refuses chunks that are not files, or that unpack to more than the array explains."""

    described: _Described
    path: str

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        is_chunk = key.rpartition("/")[2] not in _METADATA
        most = self.described.chunk_bytes + _SLACK if is_chunk else _MAX_METADATA
        try:
            found = os.stat(self.root / key)
        except OSError:
            return None
        name = f"the chunk {key} of {self.described.name}"
        if not stat.S_ISREG(found.st_mode) or found.st_size > most:
            raise ValueError(f"{name} is not a file of at most {most} bytes")
        _refuse_escape(self.path, os.fspath(self.root / key), name)
        content = await super().get(key, prototype, byte_range)
        if is_chunk and content is not None:
            _check_content(self.described, content, most, name)
        return content


def _opened(path: str, folder: str, described: _Described) -> _ZarrColumn:
    store = _Checked(folder, read_only=True)
    store.described, store.path = described, path
    with _sound_zarr(path):
        array = zarr.open_array(store, mode="r", zarr_format=described.version)
        return _ZarrColumn(path, described.name, array)


class _CheckedRemote(FsspecStore):  # type: ignore[misc]
    """A store at an address with the same limits; sizes are those that the store reports."""

    described: _Described | None = None

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        is_chunk = key.rpartition("/")[2] not in _METADATA
        if is_chunk and self.described is None:
            raise ValueError("a chunk was read before its metadata were checked")
        most = self.described.chunk_bytes + _SLACK if is_chunk and self.described is not None else _MAX_METADATA
        try:
            size = (await self.fs._info(f"{self.path.rstrip('/')}/{key}"))["size"]
        except self.allowed_exceptions:
            return None
        name = f"the chunk {key} of {self.path}"
        if not isinstance(size, int) or size > most:
            raise ValueError(f"{name} is not a file of at most {most} bytes")
        content = await super().get(key, prototype, byte_range)
        if is_chunk and content is not None and self.described is not None:
            _check_content(self.described, content, most, name)
        return content


def _from_address(path: str, columns: Sequence[str] | None) -> Source:
    """Open an array, or all arrays of a group, at an address."""
    name = path.rstrip("/").rpartition("/")[2]
    with _sound_zarr(path):
        opened = zarr.open(_CheckedRemote.from_url(path, read_only=True), mode="r")
        if hasattr(opened, "shape"):
            return Sliced([_remote_array(path, name, path)], [name])
        names = choose("columns", columns, sorted(key for key, _ in opened.arrays()))
        return Sliced([_remote_array(path, key, f"{path.rstrip('/')}/{key}") for key in names], names)


def _remote_array(path: str, name: str, address: str) -> _ZarrColumn:
    store = _CheckedRemote.from_url(address, read_only=True)
    array = zarr.open_array(store, mode="r")
    column = _ZarrColumn(path, name, array)
    store.described = column.described
    _refuse_emptiness(address, column.described)
    return column


def _check_content(described: _Described, content: Any, most: int, name: str) -> None:
    if described.compressor is not None:
        packed = content.to_bytes()
        # What is unpacked is copied once more, into the array.
        check_unpacked(described.compressor, packed, min(most, explained(len(packed), freely=_FREELY) // 2), name)


def check_unpacked(codec: str, content: bytes, most: int, name: str) -> None:
    """Raise a ValueError if packed bytes unpack to more than ``most``, without unpacking more than that."""
    if codec == "blosc":
        size = int.from_bytes(content[4:8], "little") if len(content) >= 16 else 0
    elif codec == "lz4":
        size = int.from_bytes(content[:4], "little")
    elif codec == "zstd":
        size = _zstd_size(content, name)
    else:
        size = _streamed_size(codec, content, most, name)
    if size > most:
        raise ValueError(f"{name} unpacks to more than {most} bytes, which its array and its size do not explain")


def _zstd_size(content: bytes, name: str) -> int:
    """The size that a frame announces (RFC 8878, section 3.1.1); refuse what is not one frame, as decoders go on."""
    if len(content) < 6 or content[:4] != b"\x28\xb5\x2f\xfd":
        raise ValueError(f"{name} is damaged")
    flags = content[4]
    single, width = bool(flags & 0x20), (0, 2, 4, 8)[flags >> 6]
    if width == 0 and single:
        width = 1
    if width == 0:
        raise ValueError(f"{name} does not say how large it is; open the array with zarr and pass it if you trust it")
    at = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
    size = int.from_bytes(content[at : at + width], "little") + (256 if width == 2 else 0)
    at, last = at + width, False
    while not last and at < len(content):
        block = int.from_bytes(content[at : at + 3], "little")
        last, repeats = bool(block & 1), (block >> 1) & 3 == 1
        at += 3 + (1 if repeats else block >> 3)
    if not last or at + (4 if flags & 4 else 0) != len(content):
        raise ValueError(f"{name} is damaged")
    return size


def _streamed_size(codec: str, content: bytes, most: int, name: str) -> int:
    """The size that a stream unpacks to, or a size above ``most``; refuse what decoders may read otherwise."""
    size = at = 0
    while at < len(content):  # in pieces: zlib copies what it has not yet read
        decoder: Any = _STREAMS[codec]()
        try:
            while not decoder.eof and at < len(content):
                left = content[at : at + _FED]
                at += len(left)
                while left or not getattr(decoder, "needs_input", True):
                    size += len(decoder.decompress(left, 1 << 20))
                    if size > most:
                        return size
                    if decoder.eof:
                        break
                    left = getattr(decoder, "unconsumed_tail", b"")
        except (zlib.error, OSError, lzma.LZMAError, EOFError):
            raise ValueError(f"{name} is damaged") from None
        at -= len(decoder.unused_data)
    return size  # what is cut short is reported by the decoder that follows


@contextmanager
def _sound_zarr(path: str) -> Iterator[None]:
    """Turn the errors of Zarr for damaged metadata, which can be almost anything, into a ValueError that names the
    file."""
    try:
        yield
    except (MemoryError, FileNotFoundError):
        raise
    except Exception as error:
        if isinstance(error, (ValueError, OSError)) and path in str(error) and not is_address(path):
            raise
        told = in_brief(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {in_brief(error)}"
        raise ValueError(f"{without_secrets(path)} cannot be read as Zarr: {told}") from None


class _ZarrColumn:
    """A Zarr array whose errors name it."""

    def __init__(self, path: str, name: str, array: Any) -> None:
        self.path, self.array = path, array
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.chunks: tuple[int, ...] = tuple(array.chunks)
        # Check what Zarr has read: another process may have written in the meantime.
        described = array.metadata.to_dict()
        self.described = _checked(name, described["zarr_format"], json.loads(json.dumps(described, default=str)))

    def __getitem__(self, rows: slice) -> Any:
        with _sound_zarr(self.path):
            return self.array[rows]
