r"""Images: reading, checking, grey, pyramid, blur.

An `Image` is a plane of numbers as the compiled kernels read it: uint8, uint16 or float32, rows first, one or three
channels interleaved, with the value of one stored unit (1/255, 1/65535 or 1, so that integer images span 0 to 1 and
floats are taken as they are) and, if some pixels are to be ignored, a mask. Grey uint8 images are used in place.

A pyramid level halves the image with the separable filter (1, 3, 3, 1) / 8, whose centre lies between pixels:
pixel x of the coarse image is centred at 2x + 1/2 of the fine one. Masked pixels do not contribute; a coarse pixel
is valid when at least half of what it is made of is.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numba import types
from numpy.typing import ArrayLike, NDArray

from ..jit import njit

MIN_SIDE = 16
"""Least width and height of an image, in pixels."""
MAX_PIXELS = 2**28
_LARGEST_FILE = 16 * MAX_PIXELS  # bytes: four numbers of 32 bits a pixel
"""Most pixels of an image (268 megapixels): a float32 copy of it takes a gigabyte."""

Mask = NDArray[np.bool_]
Plane = NDArray[Any]
Source = Any
"""What users pass: an array, a PIL image, or the path of a file."""

_f4, _i8 = types.float32, types.int64
_INPUTS = (types.uint8, types.uint16, types.float32)


@dataclass(frozen=True)
class Image:
    """A plane that the kernels read."""

    pixels: Plane
    """(rows, columns) or (rows, columns, 3); uint8, uint16 or float32, contiguous."""
    unit: float
    """Value of one stored unit."""
    valid: Mask | None = None
    """(rows, columns), False where a pixel is ignored; None where none is."""

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.pixels.shape[0]), int(self.pixels.shape[1])

    @property
    def channels(self) -> int:
        return 1 if self.pixels.ndim == 2 else int(self.pixels.shape[2])

    def values(self) -> NDArray[np.float32]:
        """The pixels as float32 in units of one."""
        return self.pixels.astype(np.float32) * np.float32(self.unit)

    def contrast(self) -> float:
        """Standard deviation of the valid pixels, estimated on at most some 100,000 of them."""
        step = max(1, math.isqrt(self.shape[0] * self.shape[1] // 100_000))
        sample = self.pixels[::step, ::step].astype(np.float64)
        if self.valid is not None:
            sample = sample[self.valid[::step, ::step]]
            if sample.size == 0:
                sample = self.pixels[self.valid].astype(np.float64)
        return float(sample.std()) * self.unit if sample.size else 0.0


def read_image(source: Source, name: str, mask: ArrayLike | None = None, *, color: bool = False) -> Image:
    """Make an `Image` of what the user passed.

    Parameters
    ----------
    source : array (rows, columns) or (rows, columns, 1 to 4), PIL image, or path of a file. A masked array's mask,
        pixels that are not finite and transparent pixels are ignored.
    name : how messages call it: ``image1`` or ``image2``.
    mask : (rows, columns), true where a pixel is used.
    color : keep three channels if the source has them.

    Raises
    ------
    ValueError, FileNotFoundError, TypeError
        naming the argument, what came, what is expected and the remedy.
    """
    array, valid = _as_array(source, name)
    if valid is not None and valid.all():
        valid = None
    if mask is not None:
        chosen = np.asarray(mask)
        mask_name = f"mask{name[-1]}"
        if chosen.shape != array.shape[:2]:
            raise ValueError(
                f"{mask_name} must have the shape {array.shape[:2]} of {name}, got {chosen.shape}; "
                "true marks the pixels to use"
            )
        used = chosen.astype(bool)
        valid = used if valid is None else valid & used
        if not valid.any():
            raise ValueError(f"{mask_name} leaves no usable pixel of {name}; true marks the pixels to use")
    elif valid is not None and not valid.any():
        raise ValueError(f"{name} has no usable pixel: all are masked, transparent or not finite")
    image = Image(_colour(array) if color else _grey(array), _unit(array.dtype), valid)
    contrast = image.contrast()
    if not contrast > 1e-6 * max(1.0, float(np.abs(image.pixels[0, 0]).max()) * image.unit):
        raise ValueError(
            f"{name} is constant: there is nothing to align; pass an image with texture, or check the file and the mask"
        )
    return image


def pixels_of(source: Source, name: str) -> Plane:
    """The pixels of what the user passed as they are, alpha channel and all."""
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
            "(problm.vision.images.MAX_PIXELS); reduce or crop it"
        )


def _split_alpha(array: Plane) -> tuple[Plane, Mask | None]:
    """Take transparency and numbers that are not finite out of the pixels."""
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
    with _readable(path, name):
        if not path.is_file():
            raise ValueError("it is no file")
        if path.stat().st_size > _LARGEST_FILE:
            raise ValueError(f"it has more than {_LARGEST_FILE} bytes")
        # From memory, where Pillow gets no more than there is: of a file it asks for what a header announces.
        opened = Pil.open(BytesIO(path.read_bytes()))
    with opened as picture:
        _check_size(picture.size[1], picture.size[0], name)
        with _readable(path, name):
            return _from_pil(ImageOps.exif_transpose(picture))


@contextmanager
def _readable(path: Path, name: str) -> Iterator[None]:
    """Whatever Pillow's readers of some forty formats raise about a damaged file, in a sentence."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(
            f"{name}: the file {str(path)!r} cannot be read as an image ({error}); is it complete, and a PNG, JPEG, "
            "TIFF or other format that Pillow knows?"
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
    """Luma, Rec. 601 as everywhere (OpenCV, PIL): 0.299 R + 0.587 G + 0.114 B, kept as float32."""
    stored = _storable(array)
    if stored.ndim == 2:
        return stored
    grey = np.empty(stored.shape[:2], dtype=np.float32)
    _luma(stored, grey)
    return grey


@njit(
    [types.void(types.Array(t, 3, "C", readonly=True), _f4[:, ::1]) for t in _INPUTS],
    nogil=True,
    fastmath=True,
)
def _luma(colour, grey):  # type: ignore[no-untyped-def]
    for y in range(grey.shape[0]):
        for x in range(grey.shape[1]):
            grey[y, x] = (
                np.float32(0.299) * colour[y, x, 0]
                + np.float32(0.587) * colour[y, x, 1]
                + np.float32(0.114) * colour[y, x, 2]
            )


@njit(
    [types.void(types.Array(t, 2, "C", readonly=True), _i8, _f4[:, ::1]) for t in _INPUTS],
    nogil=True,
    fastmath=True,
)
def _halve_into(fine, c, coarse):  # type: ignore[no-untyped-def]
    """Filter (1, 3, 3, 1) / 8 in both directions, every second pixel of c channels; the border is repeated."""
    h, length = fine.shape
    outer, inner = np.float32(0.125), np.float32(0.375)
    line = np.empty(length + 2 * c, dtype=np.float32)
    for y in range(coarse.shape[0]):
        a, b, d = fine[max(2 * y - 1, 0)], fine[2 * y], fine[min(2 * y + 2, h - 1)]
        e = fine[2 * y + 1]
        for i in range(length):
            line[c + i] = outer * (np.float32(a[i]) + np.float32(d[i])) + inner * (np.float32(b[i]) + np.float32(e[i]))
        for k in range(c):
            line[k] = line[c + k]
            line[c + length + k] = line[length + k]
        if c == 1:
            for x in range(coarse.shape[1]):
                coarse[y, x] = outer * (line[2 * x] + line[2 * x + 3]) + inner * (line[2 * x + 1] + line[2 * x + 2])
        else:
            for x in range(coarse.shape[1] // c):
                for k in range(c):
                    at = 2 * x * c + k
                    coarse[y, x * c + k] = outer * (line[at] + line[at + 3 * c]) + inner * (
                        line[at + c] + line[at + 2 * c]
                    )


@njit(
    [types.void(types.Array(t, 2, "C", readonly=True), _i8, _f4, _f4[:, ::1]) for t in _INPUTS],
    nogil=True,
    fastmath=True,
)
def _smooth_into(source, c, side, target):  # type: ignore[no-untyped-def]
    """Filter (side, 1 - 2 side, side) in both directions on c channels; the border is repeated."""
    h, length = source.shape
    centre = np.float32(1.0) - np.float32(2.0) * side
    line = np.empty(length + 2 * c, dtype=np.float32)
    for y in range(h):
        a, b, d = source[max(y - 1, 0)], source[y], source[min(y + 1, h - 1)]
        for i in range(length):
            line[c + i] = centre * np.float32(b[i]) + side * (np.float32(a[i]) + np.float32(d[i]))
        for k in range(c):
            line[k] = line[c + k]
            line[c + length + k] = line[length + k]
        out = target[y]
        for i in range(length):
            out[i] = centre * line[c + i] + side * (line[i] + line[2 * c + i])


@njit(
    types.void(_f4[:, ::1], _i8, _f4[::1], _f4[:, ::1]),
    nogil=True,
    fastmath=True,
)
def _convolve(source, c, kernel, target):  # type: ignore[no-untyped-def]
    """Separable symmetric filter on c channels; the border is repeated. ``kernel``: the centre and one side."""
    h, length = source.shape
    radius = len(kernel) - 1
    pad = radius * c
    line = np.empty(length + 2 * pad, dtype=np.float32)
    for y in range(h):
        centre = source[y]
        for i in range(length):
            line[pad + i] = kernel[0] * centre[i]
        for j in range(1, radius + 1):
            up, low, weight = source[max(y - j, 0)], source[min(y + j, h - 1)], kernel[j]
            for i in range(length):
                line[pad + i] += weight * (up[i] + low[i])
        for i in range(pad):
            line[i] = line[pad + i % c]
            line[pad + length + i] = line[pad + length - c + i % c]
        out = target[y]
        for i in range(length):
            out[i] = kernel[0] * line[pad + i]
        for j in range(1, radius + 1):
            step, weight = j * c, kernel[j]
            for i in range(length):
                out[i] += weight * (line[pad + i - step] + line[pad + i + step])


def halve(image: Image) -> Image:
    """The next coarser level of the pyramid; sides of n pixels become n // 2."""
    if image.valid is None:
        return Image(_halved(image.pixels), image.unit)
    known = image.valid.astype(np.float32)
    weight = _halved(known)
    spread = known if image.pixels.ndim == 2 else known[:, :, None]
    total = _halved(np.ascontiguousarray(image.pixels.astype(np.float32) * spread))
    safe = np.maximum(weight, np.float32(1e-6))
    pixels = total / (safe if total.ndim == 2 else safe[:, :, None])
    return Image(pixels, image.unit, weight >= 0.5)


def _halved(plane: Plane) -> NDArray[np.float32]:
    h, w = plane.shape[0] // 2, plane.shape[1] // 2
    channels = 1 if plane.ndim == 2 else plane.shape[2]
    coarse = np.empty((h, w * channels), dtype=np.float32)
    _halve_into(plane.reshape(plane.shape[0], -1), channels, coarse)
    return coarse.reshape((h, w, *plane.shape[2:]))


def blur(image: Image, sigma: float) -> Image:
    """Gaussian blur of standard deviation ``sigma`` pixels; masked pixels do not contribute.

    Up to 0.7 pixels by three taps of the same variance, beyond by samples of the Gaussian up to three sigma.
    """
    if sigma <= 0.0:
        return image
    if image.valid is None:
        return Image(_blurred(image.pixels, sigma), image.unit)
    known = image.valid.astype(np.float32)
    weight = np.maximum(_blurred(known, sigma), np.float32(1e-6))
    spread = known if image.pixels.ndim == 2 else known[:, :, None]
    total = _blurred(image.pixels.astype(np.float32) * spread, sigma)
    return Image(total / (weight if total.ndim == 2 else weight[:, :, None]), image.unit, image.valid)


def _blurred(plane: Plane, sigma: float) -> NDArray[np.float32]:
    channels = 1 if plane.ndim == 2 else plane.shape[2]
    rows = np.ascontiguousarray(plane).reshape(plane.shape[0], -1)
    target = np.empty(rows.shape, dtype=np.float32)
    if sigma * sigma <= 0.5:
        _smooth_into(rows, channels, np.float32(0.5 * sigma * sigma), target)
        return target.reshape(plane.shape)
    radius = max(1, math.ceil(3.0 * sigma))
    side = np.exp(-0.5 * (np.arange(radius + 1) / sigma) ** 2)
    kernel = (side / (2.0 * side.sum() - side[0])).astype(np.float32)
    _convolve(rows.astype(np.float32, copy=False), channels, kernel, target)
    return target.reshape(plane.shape)


def pyramid(image: Image, levels: int) -> list[Image]:
    """The image and ``levels - 1`` coarser ones, finest first."""
    images = [image]
    while len(images) < levels:
        images.append(halve(images[-1]))
    return images


def deepest(shape1: tuple[int, int], shape2: tuple[int, int], least: int) -> int:
    """Levels until a side would fall below ``least`` pixels."""
    side = min(*shape1, *shape2)
    return max(1, 1 + int(math.log2(side / least))) if side >= least else 1
