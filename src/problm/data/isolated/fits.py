"""FITS by astropy: the first image, or the numeric columns of a table.

The shape that a header announces is compared with the size of the file before any number is read.
"""

from __future__ import annotations

import io
import math
from functools import partial
from typing import Any

import numpy as np

from ...support.files import explained
from .worker import Refused, Table, plane

CALLED = "FITS"
_MOST_PARTS = 1000


def prepare() -> None:
    from astropy.io import fits

    memory = io.BytesIO()
    columns = [fits.Column("t", "D", array=np.arange(3.0)), fits.Column("n", "J", array=np.arange(3))]
    fits.HDUList(
        [fits.PrimaryHDU(np.ones((2, 2))), fits.BinTableHDU.from_columns(columns), fits.CompImageHDU(np.ones((8, 8)))]
    ).writeto(memory)
    memory.seek(0)
    with fits.open(memory, memmap=False) as opened:
        _ = [hdu.data[0] for hdu in opened], opened[1].data["n"], opened[1].columns["t"].format


def read(path: str, part: str | None, image: bool, room: int, size: int) -> Table:
    """The columns of an extension: the one that is named, by name or number, else the first that holds numbers."""
    from astropy.io import fits

    if size > room:
        raise Refused(f"it takes {size / 1e9:.3g} GB, but at most {room / 1e9:.3g} GB are read into memory")
    with open(path, "rb") as file:  # astropy would open it more than once
        opened = fits.open(io.BytesIO(file.read()), memmap=False, lazy_load_hdus=True)
    found = []
    for k in range(_MOST_PARTS):
        try:
            hdu = opened[k]
        except IndexError:
            break
        if part is not None and part.upper() not in (str(k), str(hdu.name).upper()):
            continue
        found.append(hdu)
        if _holds(hdu, image):
            return _table(hdu, room, size)
    if not found:
        raise Refused(f"there is no extension {part!r}")
    raise Refused("holds no image of two dimensions and no table of numbers")


def _holds(hdu: Any, image: bool) -> bool:
    from astropy.io import fits

    if isinstance(hdu, fits.BinTableHDU | fits.TableHDU) and not isinstance(hdu, fits.CompImageHDU):
        return not image and bool(hdu.columns)
    return bool(hdu.is_image) and sum(n > 1 for n in hdu.shape) == 2


def _table(hdu: Any, room: int, size: int) -> Table:
    from astropy.io import fits

    header = hdu.header
    need = math.prod(max(0, int(header.get(f"NAXIS{k + 1}", 0))) for k in range(int(header.get("NAXIS", 0)))) * (
        abs(int(header.get("BITPIX", 8))) // 8 or 1
    )
    packed = isinstance(hdu, fits.CompImageHDU)
    if need > (explained(size) if packed else max(size, explained(size) if hdu._file.compression else 0)):
        raise Refused(f"{need} bytes are announced, which its {size} bytes do not explain")
    if need > room:
        raise Refused(f"it takes {need / 1e9:.3g} GB, but at most {room / 1e9:.3g} GB are read into memory")
    if hdu.is_image:
        return plane(np.squeeze(np.asarray(hdu.data)))
    data, table = hdu.data, Table()
    for name in data.dtype.names or ():
        kind = data.dtype[name]
        if kind.kind in "fiub" and not kind.shape:
            table.columns[name] = partial(data.__getitem__, name)
            table.lengths[name] = len(data)
    return table
