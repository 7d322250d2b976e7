"""HDF5 by h5py: data sets of numbers that lie in the file itself.

External links, virtual data sets and data in other files are not followed; filters must be among those that are part of
the library, so that no plugin is loaded. The sizes that a data set and its chunks announce are compared with what the
file stores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...support.files import explained
from .worker import Refused, Table, plane

CALLED = "HDF5"
_FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32", 5: "nbit", 6: "scaleoffset", 32000: "lzf"}
_DEEP, _MANY = 20, 20_000
_WIDE = 16
"""Largest number of columns of a data set with two dimensions that is read as a table."""


def prepare() -> None:
    import io

    import h5py

    memory = io.BytesIO()
    with h5py.File(memory, "w") as file:  # loads what the library loads late
        file.create_dataset("x", data=np.arange(4.0), compression="gzip")
        file.create_dataset("t", data=np.zeros(2, dtype=[("a", "f8"), ("b", "i4")]))
        _ = file["x"][()], file["t"]["a"], file.get("x", getlink=True)


def read(path: str, part: str | None, image: bool, room: int, size: int) -> Table:
    """The columns of a file; see `problm.data.isolated.worker.Table`."""
    import h5py

    file = h5py.File(path, "r", locking=False, rdcc_nbytes=1 << 20)
    table, planes = Table(), dict[str, Any]()
    for name, found in _walk(file, table.refused):
        reason = _refusal(found, room, size)
        if reason:
            table.refused[name] = reason
        elif found.dtype.names and found.ndim == 1:
            for key in found.dtype.names:
                if found.dtype[key].kind in "fiub" and not found.dtype[key].shape:
                    _add(table, f"{name}/{key}", len(found), partial(found.__getitem__, key))
        elif found.dtype.kind not in "fiub":
            continue
        elif found.ndim == 1:
            _add(table, name, len(found), partial(found.__getitem__, ()))
        elif found.ndim == 2:
            planes[name] = found
            if found.shape[1] <= _WIDE:
                for k in range(found.shape[1]):
                    _add(table, f"{name}[{k + 1}]", len(found), partial(found.__getitem__, (slice(None), k)))
    if part is not None or image:
        return _image(planes, table.refused, part)
    return table


def _add(table: Table, name: str, rows: int, get: Callable[[], NDArray[Any]]) -> None:
    table.columns[name] = get
    table.lengths[name] = rows


def _walk(file: Any, refused: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """Data sets by path; links that leave the file are not followed, and cycles of links end."""
    import h5py

    waiting, seen, count = [("", file["/"], 0)], set(), 0
    while waiting:
        path, group, depth = waiting.pop(0)
        address = h5py.h5o.get_info(group.id).addr
        if address in seen or depth > _DEEP:
            continue
        seen.add(address)
        for name in group:
            count += 1
            if count > _MANY:
                raise Refused(f"has more than {_MANY:,} members; open it with h5py and pass the arrays")
            where = f"{path}/{name}".lstrip("/")
            link = group.get(name, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                refused[where] = "it is a link to another file, which is not followed"
                continue
            if isinstance(link, h5py.SoftLink):
                refused[where] = f"it is a link to {link.path!r}: name that"
                continue
            if not isinstance(link, h5py.HardLink):
                refused[where] = "it is a link of an unknown kind"
                continue
            found = group[name]
            if isinstance(found, h5py.Group):
                waiting.append((where, found, depth + 1))
            elif isinstance(found, h5py.Dataset):
                yield where, found


def _refusal(found: Any, room: int, size: int) -> str:
    """Why a data set is not read; empty if it is."""
    plist = found.id.get_create_plist()
    if found.is_virtual:
        return "it is a virtual data set, whose numbers lie in other files"
    if found.external or plist.get_external_count():
        return "its numbers lie in other files"
    filters = [plist.get_filter(k)[0] for k in range(plist.get_nfilters())]
    foreign = [f for f in filters if f not in _FILTERS]
    if foreign:
        return f"it is packed by filter {foreign[0]}, which would load a plugin: open it with h5py and pass the arrays"
    if found.dtype.hasobject:
        return "it holds objects of variable length, not numbers"
    shape, item = found.shape or (), found.dtype.itemsize
    need = math.prod(shape) * item
    stored = min(found.id.get_storage_size(), size)
    if need > (explained(stored) if filters or found.chunks else max(stored, 1 << 16)):
        return f"its shape {shape} is not explained by the {stored} bytes that are stored"
    if found.chunks and math.prod(found.chunks) * item > explained(size):
        return f"its chunks {found.chunks} are larger than the file explains"
    if need > room:
        return f"it takes {need / 1e9:.3g} GB, but at most {room / 1e9:.3g} GB are read into memory"
    return ""


def _image(planes: dict[str, Any], refused: dict[str, str], part: str | None) -> Table:
    name = part.strip("/") if part is not None else next(iter(planes), None)
    if name in refused:
        raise Refused(f"{name!r} is not read: {refused[str(name)]}")
    if name not in planes:
        raise Refused(f"there is no data set {name!r} of two dimensions; there are {', '.join(planes) or 'none'}")
    found = planes[name]
    table = plane(np.empty((0, 0)))
    rows, columns = found.shape
    table.columns["x"] = lambda: np.tile(np.arange(columns, dtype=np.float64), rows)
    table.columns["y"] = lambda: np.repeat(np.arange(rows, dtype=np.float64), columns)
    table.columns["I"] = lambda: found[()]
    table.lengths = dict.fromkeys("xyI", rows * columns)
    return table
