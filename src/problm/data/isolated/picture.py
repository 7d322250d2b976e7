"""TIFF, PNG and other pictures by Pillow, as planes of numbers; the mean of the channels of a coloured one."""

from __future__ import annotations

import io

import numpy as np

from ...support.files import explained
from .worker import Refused, Table, plane

CALLED = "a picture"
FORMATS = ("TIFF", "PNG", "JPEG", "BMP", "PPM")
_MOST = 1 << 28


def prepare() -> None:
    from PIL import Image

    Image.init()
    Image.MAX_IMAGE_PIXELS = None  # checked below, with the size of the file
    for form in ("TIFF", "PNG", "JPEG"):
        memory = io.BytesIO()
        Image.fromarray(np.zeros((4, 4), dtype=np.uint8)).save(memory, form)
        memory.seek(0)
        np.asarray(Image.open(memory, formats=FORMATS))


def read(path: str, part: str | None, image: bool, room: int, size: int) -> Table:
    """The pixels of a picture, or of one of its pages."""
    from PIL import Image

    picture = Image.open(path, formats=FORMATS)
    if part is not None:
        if not (part.isdecimal() and 0 < int(part) <= getattr(picture, "n_frames", 1)):
            raise Refused(f"there is no page {part!r}; there are {getattr(picture, 'n_frames', 1)}")
        picture.seek(int(part) - 1)
    columns, rows = picture.size
    if columns * rows > _MOST or 4 * columns * rows > explained(size) or 24 * columns * rows > room:
        raise Refused(f"{columns} x {rows} pixels are more than is allowed, or than its size explains")
    if picture.mode in ("P", "PA", "LA", "RGBA", "CMYK", "YCbCr", "RGBX", "RGBa"):
        picture = picture.convert("RGB" if picture.mode != "LA" else "L")
    values = np.asarray(picture)
    if values.ndim == 3:
        values = values.mean(axis=2)
    return plane(values)
