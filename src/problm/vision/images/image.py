r"""Images: reading, checking, grey.

An `Image` is a plane of numbers as the compiled kernels read it: uint8, uint16 or float32, rows first, one or three
channels interleaved, with the value of one stored unit (1/255, 1/65535 or 1, so that integer images span 0 to 1 and
floats are used unchanged) and, if some pixels are to be ignored, a mask. Grey uint8 images are used in place.
Blurring and pyramids are in `problm.vision.images.pyramid`.

Image files are not trusted: only formats that are pictures are opened (`FORMATS`), and their announced size is compared
with a limit and with the size of the file before a pixel is decoded. The rest relies on Pillow's decoders.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...jit import types
from ...jit.njit import njit
from ...support.files import explained, open_regular

MIN_SIDE = 16
"""Smallest width and height of an image, in pixels."""
MAX_PIXELS = 2**28
"""Largest number of pixels of an image (268 megapixels): a float32 copy takes a gigabyte."""
_LARGEST_FILE = 16 * MAX_PIXELS  # bytes: four 32-bit numbers per pixel
_PIXEL = 24
"""Bytes of memory per pixel while a coloured file is decoded and made grey, measured; fewer for most formats."""
_FREELY = 1 << 28
"""Bytes of memory that any picture may take: 11 megapixels, however few bytes describe them."""
_MOST_SCANS = 500
"""Scans of a JPEG, each a pass over all pixels that takes ten bytes to ask for; progressive ones have about ten."""

FORMATS = ("PNG", "JPEG", "MPO", "TIFF", "BMP", "GIF", "PPM", "WEBP", "JPEG2000", "TGA", "AVIF")
"""Formats that are read. Pillow knows more, some of which run other programs (EPS) or are hardly tested."""

Mask = NDArray[np.bool_]
Plane = NDArray[Any]
Source = Any
"""What users pass: an array, a PIL image, or the path of a file."""

_INPUTS = (types.uint8, types.uint16, types.float32)
"""Types of pixels that compiled code reads."""
_f4 = types.float32


def of_pixels(signature: Callable[[Any], Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A function whose first argument is an image, compiled for each type of pixels at its first use."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        each = {np.dtype(str(t)): njit(signature(t), nogil=True, fastmath=True)(function) for t in _INPUTS}

        def call(pixels: Plane, *arguments: Any) -> None:
            each[pixels.dtype](pixels, *arguments)

        return call

    return decorate


@dataclass(frozen=True)
class Image:
    """A plane that the kernels read."""

    pixels: Plane
    """(rows, columns) or (rows, columns, 3); uint8, uint16 or float32, contiguous."""
    unit: float
    """Value of one stored unit."""
    valid: Mask | None = None
    """(rows, columns), False where a pixel is ignored; None if none is."""

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.pixels.shape[0]), int(self.pixels.shape[1])

    @property
    def channels(self) -> int:
        return 1 if self.pixels.ndim == 2 else int(self.pixels.shape[2])

    def values(self) -> NDArray[np.float32]:
        """The pixels as float32 in units of one."""
        return self.pixels.astype(np.float32) * np.float32(self.unit)

    def varies(self, most: int) -> bool:
        """Whether the valid pixels differ by more than rounding, judged on at least ``most`` of them."""
        step = max(1, math.isqrt(self.shape[0] * self.shape[1] // most))
        sample = self.pixels[::step, ::step]
        if self.valid is not None:
            sample = sample[self.valid[::step, ::step]]
            if sample.size == 0:
                sample = self.pixels[self.valid]
        if sample.size == 0:
            return False
        values = sample.astype(np.float64)
        return bool(values.std() > 1e-6 * np.abs(values).max())


def read_image(source: Source, name: str, mask: ArrayLike | None = None, *, color: bool = False) -> Image:
    """Make an `Image` from the user's argument.

    Parameters
    ----------
    source : array (rows, columns) or (rows, columns, 1 to 4), PIL image, or path of a file. A masked array's mask,
        pixels that are not finite and transparent pixels are ignored.
    name : name in messages: ``image1`` or ``image2``.
    mask : (rows, columns), true where a pixel is used.
    color : keep three channels if the source has them.

    Raises
    ------
    ValueError, FileNotFoundError, TypeError
        naming the argument, the value, what is expected and the remedy.
    """
    array, valid = _as_array(source, name)
    if valid is not None and valid.all():
        valid = None
    if mask is not None:
        chosen = np.asarray(mask)
        mask_name = "mask" + name.removeprefix("image") if name.startswith("image") else "mask"
        if chosen.shape != array.shape[:2]:
            raise ValueError(
                f"{mask_name} must have the shape {array.shape[:2]} of {name}, got {chosen.shape}; "
                "true marks the pixels to use"
            )
        used = np.ascontiguousarray(chosen.astype(bool))  # a broadcast mask is not
        valid = used if valid is None else valid & used
        if not valid.any():
            raise ValueError(f"{mask_name} leaves no usable pixel of {name}; true marks the pixels to use")
    elif valid is not None and not valid.any():
        raise ValueError(f"{name} has no usable pixel: all are masked, transparent or not finite")
    with np.errstate(over="raise"):
        try:
            image = Image(_colour(array) if color else _grey(array), _unit(array.dtype), valid)
        except FloatingPointError as error:
            raise ValueError(f"{name} holds numbers beyond 3e38; divide it by its largest value") from error
    # A few thousand pixels nearly always suffice; all of them take as long as a step of the solver.
    if not (image.varies(4000) or image.varies(100_000)):
        raise ValueError(
            f"{name} is constant: there is nothing to align; pass an image with texture, or check the file and the mask"
        )
    return image


def pixels_of(source: Source, name: str) -> Plane:
    """The pixels of the user's argument unchanged, including an alpha channel."""
    if isinstance(source, (str, os.PathLike)):
        return _from_file(Path(source), name)
    if hasattr(source, "getbands") and hasattr(source, "size"):
        return _from_pil(source)
    return _check_array(np.asarray(source), name)


def _as_array(source: Source, name: str) -> tuple[Plane, Mask | None]:
    """Pixels without alpha channel, and which of them are to be used."""
    if isinstance(source, (str, os.PathLike)):
        array = _from_file(Path(source), name)
    elif hasattr(source, "getbands") and hasattr(source, "size"):  # a PIL image
        _check_size(source.size[1], source.size[0], name)
        array = _from_pil(source)
    else:
        if isinstance(source, np.ma.MaskedArray):
            plain, valid = _split_alpha(_check_array(np.asarray(source.data), name))
            mask = np.ma.getmaskarray(source)
            shown = ~np.asarray(np.any(mask.reshape(*plain.shape[:2], -1), axis=2), dtype=np.bool_)
            return plain, shown if valid is None else valid & shown
        if source is None or isinstance(source, (bytes, bytearray)):
            kind = "None" if source is None else "bytes"
            raise TypeError(f"{name} must be an array, a PIL image or the path of a file as text, got {kind}")
        try:
            array = np.asarray(source)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} must be an array, a PIL image or a path, got {type(source).__name__}") from error
    return _split_alpha(_check_array(array, name))


def _check_array(array: Plane, name: str) -> Plane:
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}; pass an array, a PIL image or a path")
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (2, 3, 4)):
        raise ValueError(
            f"{name} must have the shape (rows, columns) or (rows, columns, 3), got {array.shape}; "
            "move the channels to the last axis"
        )
    _check_size(array.shape[0], array.shape[1], name)
    if array.dtype.kind == "b":
        array = array.astype(np.uint8) * np.uint8(255)
    return array


def _check_size(rows: int, columns: int, name: str) -> None:
    if min(rows, columns) < MIN_SIDE:
        raise ValueError(
            f"{name} is too small: {columns} x {rows} pixels; alignment needs at least {MIN_SIDE} x {MIN_SIDE}"
        )
    if rows * columns > MAX_PIXELS:
        raise ValueError(
            f"{name} is too large: {columns} x {rows} pixels exceed the limit of {MAX_PIXELS} "
            "(problm.vision.images.image.MAX_PIXELS); reduce or crop it"
        )


def _split_alpha(array: Plane) -> tuple[Plane, Mask | None]:
    """Mask transparent pixels and values that are not finite."""
    valid: Mask | None = None
    if array.ndim == 3 and array.shape[2] in (2, 4):
        valid = array[:, :, -1] > 0
        array = array[:, :, 0] if array.shape[2] == 2 else array[:, :, :3]
    if array.dtype.kind == "f":
        finite = np.isfinite(array)
        if not finite.all():
            array = np.where(finite, array, 0)
            known = np.asarray(np.all(finite.reshape(*array.shape[:2], -1), axis=2), dtype=np.bool_)
            valid = known if valid is None else valid & known
    return array, valid


def _from_file(path: Path, name: str) -> Plane:
    try:
        from PIL import Image as Pil
        from PIL import ImageOps
    except ImportError as error:
        raise ImportError(
            f"{name}: reading image files needs Pillow: pip install 'problm[vision]', or pass an array"
        ) from error
    if not path.exists():
        raise FileNotFoundError(f"{name}: there is no file {str(path)!r}")
    if path.is_dir():
        raise ValueError(f"{name}: {str(path)!r} is a folder; pass the name of an image file")
    with _readable(path, name):
        # From memory, which bounds what Pillow reads: from a file it requests what a header announces.
        with open_regular(path) as file:
            if (size := os.fstat(file.fileno()).st_size) > _LARGEST_FILE:
                raise ValueError(f"it has more than {_LARGEST_FILE} bytes")
            content = file.read(size)
        if (scans := content.count(b"\xff\xda")) > _MOST_SCANS and content[:2] == b"\xff\xd8":
            raise ValueError(f"it is a JPEG of {scans:,} scans, and every one takes as long as a picture")
        Pil.init()
        opened = Pil.open(BytesIO(content), formats=[form for form in FORMATS if form in Pil.OPEN])
    with opened as picture:
        _check_size(picture.size[1], picture.size[0], name)
        if _PIXEL * picture.size[0] * picture.size[1] > explained(len(content), freely=_FREELY):
            raise ValueError(
                f"{name}: the file {str(path)!r} of {len(content)} bytes announces {picture.size[0]} x "
                f"{picture.size[1]} pixels, more than it explains; pass an array instead"
            )
        with _readable(path, name):
            return _from_pil(ImageOps.exif_transpose(picture))


@contextmanager
def _readable(path: Path, name: str) -> Iterator[None]:
    """Turn the exceptions of Pillow's readers about damaged files into one sentence."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(
            f"{name}: the file {str(path)!r} cannot be read as an image ({error}); is it complete, and a PNG, JPEG, "
            "TIFF, WebP, BMP, GIF, PPM, JPEG 2000, TGA or AVIF file?"
        ) from error


def _from_pil(picture: Any) -> Plane:
    """Pixels of a PIL image; palettes, CMYK and the like become RGB."""
    if picture.mode in ("L", "LA", "RGB", "RGBA", "F", "I;16"):
        return np.asarray(picture)
    if picture.mode in ("1",):
        return np.asarray(picture.convert("L"))
    if picture.mode in ("I", "I;16B", "I;16L", "I;16N"):
        wide = np.asarray(picture)
        fits = wide.size > 0 and wide.min() >= 0 and wide.max() <= 65535
        return wide.astype(np.uint16) if fits else wide.astype(np.float64)
    transparent = picture.mode in ("PA", "La", "RGBa") or "transparency" in picture.info
    return np.asarray(picture.convert("RGBA" if transparent else "RGB"))


def _unit(dtype: np.dtype[Any]) -> float:
    if dtype.kind != "u" or dtype.itemsize > 2:
        return 1.0
    return 1.0 / 255.0 if dtype.itemsize == 1 else 1.0 / 65535.0


def _storable(array: Plane) -> Plane:
    """In one of the kernels' types, contiguous; without a copy where possible."""
    if array.dtype.kind == "u" and array.dtype.itemsize <= 2:
        return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))
    return np.ascontiguousarray(array, dtype=np.float32)


def _colour(array: Plane) -> Plane:
    return _storable(array)


def _grey(array: Plane) -> Plane:
    """Luma by Rec. 601, as in OpenCV and PIL: 0.299 R + 0.587 G + 0.114 B, kept as float32."""
    stored = _storable(array)
    if stored.ndim == 2:
        return stored
    grey = np.empty(stored.shape[:2], dtype=np.float32)
    _luma(stored, grey)
    return grey


@of_pixels(lambda t: types.void(types.Array(t, 3, "C", readonly=True), _f4[:, ::1]))
def _luma(colour, grey):  # type: ignore[no-untyped-def]
    for y in range(grey.shape[0]):
        for x in range(grey.shape[1]):
            grey[y, x] = (
                np.float32(0.299) * colour[y, x, 0]
                + np.float32(0.587) * colour[y, x, 1]
                + np.float32(0.114) * colour[y, x, 2]
            )
