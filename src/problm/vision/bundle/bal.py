"""Problems of "Bundle Adjustment in the Large": text files of numbers only.

BAL has the camera look along -z: its point is projected to ``-(x, y) / z``. The reader rotates the camera by 180
degrees about x and flips the image's y, which makes the model exactly COLMAP's RADIAL with its principal point at 0 and
leaves the length of every residual as it was.

Files are not trusted (`problm.vision.bundle.file_values`). The counts at the beginning bound how much is read, and a
packed file may unpack to a hundred times its size: meaningful digits do not compress better.
"""

from __future__ import annotations

import bz2
import gzip
import os
import warnings
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...manifolds import rotation_log, rotations_by
from ...support.files import TEXT_EXPANSION, open_regular, refuse_holes, write_atomically
from ...support.memory import as_bytes
from .camera_models import BROWN, MODELS, Intrinsics
from .file_values import named, whole_numbers
from .reconstruction import Reconstruction, tracks_of

Array = NDArray[np.float64]
_TEXT_TO_MEMORY = 8
"""Bytes of memory per byte of text while reading: the text twice, its numbers, and the arrays made from them."""
_PIECE = 1 << 20
_LONGEST_NUMBER = 64
"""Bytes of text per number that the counts announce, including blanks."""


def read_bal(path: str | os.PathLike[str]) -> Reconstruction:
    """Read a problem of "Bundle Adjustment in the Large"; files packed by bzip2 or gzip are unpacked.

    Parameters
    ----------
    path
        Text file: ``cameras points observations``, then one observation per line (camera, point, x, y), then 9 numbers
        per camera (rotation vector, translation, f, k1, k2) and 3 per point.

    Returns
    -------
    Reconstruction
        With one RADIAL camera per image. The y axis of the image points down (see the module's notes).

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "tiny.txt")
    ...     _ = file.write_text("1 1 1  0 0 -10.0 20.0  0 0 0 0 0 0 100 0 0  0.1 -0.2 -1")
    ...     model = read_bal(file)
    >>> model, model.residuals()[0].round(9)
    (Reconstruction(1 images, 1 points, 1 observations, 1 cameras), array([20., 40.]))
    """
    name = os.fspath(path)
    values = _numbers(_unpacked(name), name)
    counts = values[:3]
    if len(values) < 3 or (counts != np.floor(counts)).any() or (counts < 0).any():
        raise ValueError(f"{name}: the file must begin with the numbers of cameras, points and observations")
    told = counts.tolist()
    expected = 3 + 4 * told[2] + 9 * told[0] + 3 * told[1]
    if len(values) != expected:
        raise ValueError(
            f"{name}: {told[0]:.15g} cameras, {told[1]:.15g} points and {told[2]:.15g} observations make "
            f"{expected:.15g} numbers, but the file holds {len(values)}: it is cut short or not a BAL file"
        )
    C, P, M = (int(c) for c in told)
    if not np.isfinite(values).all():
        raise ValueError(f"{name}: all numbers must be finite")
    seen = values[3 : 3 + 4 * M].reshape(M, 4)
    image, point = (whole_numbers(column) for column in seen[:, :2].T)
    if image is None or point is None:
        raise ValueError(f"{name}: camera and point numbers of observations must be whole")
    flip = np.array([1.0, -1.0, -1.0])
    xy = seen[:, 2:] * flip[:2]
    try:
        start, order = tracks_of(image, point, xy, C, P)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    cameras = values[3 + 4 * M : 3 + 4 * M + 9 * C].reshape(C, 9)
    return Reconstruction(
        tuple(_bal_camera(name, i, *c[6:].tolist()) for i, c in enumerate(cameras)),
        flip[:, None] * rotations_by(cameras[:, :3]),
        flip * cameras[:, 3:6],
        np.arange(C),
        values[3 + 4 * M + 9 * C :].reshape(P, 3).copy(),
        start,
        np.ascontiguousarray(image[order]),
        np.ascontiguousarray(xy[order]),
        tuple(f"camera{i:04d}" for i in range(C)),
        np.arange(1, C + 1),
        np.arange(1, P + 1),
        np.zeros((P, 3), dtype=np.uint8),
    )


def write_bal(model: Reconstruction, path: str | os.PathLike[str]) -> None:
    """Write a reconstruction as a problem of "Bundle Adjustment in the Large", atomically.

    Parameters
    ----------
    model
        Its cameras must have one focal length, at most the coefficients k1 and k2, and no other distortion: models
        SIMPLE_PINHOLE, PINHOLE with square pixels, SIMPLE_RADIAL, RADIAL. The principal point is subtracted from the
        pixels. Colours and names are not part of the format.
    path
        The file.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> camera = Intrinsics("SIMPLE_RADIAL", (500.0, 0.0, 0.0, -0.1))
    >>> model = Reconstruction.from_arrays([np.eye(3)], [[0, 0, 0]], camera, [[0, 0, 5]], [[0, 0, 0, 1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_bal(model, pathlib.Path(folder, "model.txt"))
    ...     read_bal(pathlib.Path(folder, "model.txt")).points
    array([[0., 0., 5.]])
    """
    for c in model.intrinsics:
        places = c.places
        if MODELS[c.model].distortion is not BROWN or places[6:].any() or places[0] != places[1]:
            raise ValueError(f"camera {c.id}: BAL has f, k1 and k2 only, which does not describe {c.model} {c.params}")
    flip = np.array([1.0, -1.0, -1.0])
    point = np.repeat(np.arange(len(model.points)), model.track_lengths)
    middle = np.array([c.places[2:4] for c in model.intrinsics])[model.camera]
    xy = (model.xy - middle[model.image]) * flip[:2]
    turned = [rotation_log(R) for R in flip[:, None] * model.rotations]
    moved = flip * model.translations

    def lines() -> Iterator[str]:
        yield f"{len(model.rotations)} {len(model.points)} {len(model.xy)}\n"
        for i, j, (x, y) in zip(model.image.tolist(), point.tolist(), xy.tolist(), strict=True):
            yield f"{i} {j} {x!r} {y!r}\n"
        for k, which in enumerate(model.camera):
            f, _, _, _, k1, k2 = model.intrinsics[which].places[:6].tolist()
            for value in (*turned[k].tolist(), *moved[k].tolist(), f, k1, k2):
                yield f"{value!r}\n"
        for value in model.points.ravel().tolist():
            yield f"{value!r}\n"

    write_atomically(path, lines())


def _bal_camera(path: str, i: int, f: float, k1: float, k2: float) -> Intrinsics:
    return named(path, f"camera {i}", lambda: Intrinsics("RADIAL", (f, 0.0, 0.0, k1, k2), id=i + 1))


def _unpacked(name: str) -> bytes:
    """The text of a file, unpacked if necessary; at most as much as its counts, its size and the memory allow."""
    parts: list[bytes] = []
    with open_regular(name) as raw:
        # By its first bytes, not by its name: downloads lose their suffixes.
        begin = raw.read(3)
        size = raw.seek(0, os.SEEK_END)
        raw.seek(0)
        file: Any = raw
        if begin[:2] == b"\x1f\x8b" or name.endswith(".gz"):
            file = gzip.GzipFile(fileobj=raw)
        elif begin == b"BZh" or name.endswith(".bz2"):
            file = bz2.BZ2File(raw)
        else:
            refuse_holes(raw, name)
        limits = [(as_bytes(None) // _TEXT_TO_MEMORY, "the most that fits in memory")]
        if file is not raw:
            limits.append(
                (_PIECE + TEXT_EXPANSION * size, f"{TEXT_EXPANSION} times its size: unpack it yourself to read it")
            )
        read = 0
        try:
            while part := file.read(_PIECE):
                if not parts:
                    limits.append((_announced(part), "which its first three numbers do not explain"))
                parts.append(part)
                read += len(part)
                limit, why = min(limits)
                if read > limit:
                    raise ValueError(f"{name} holds more than {limit / 1e9:.3g} GB of text, {why}")
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{name} cannot be unpacked: {error}") from None
    return b"".join(parts)


def _announced(begin: bytes) -> int:
    """Most bytes of text that the counts at the beginning of a file explain."""
    words = begin[:4096].split(None, 3)[:3]
    try:
        cameras, points, observations = (float(word) for word in words)
        return _PIECE + max(0, int(_LONGEST_NUMBER * (3 + 4 * observations + 9 * cameras + 3 * points)))
    except ValueError:  # reported later, with the contents of the first piece
        return _PIECE
    except OverflowError:
        return 2**62


def _numbers(text: bytes, name: str) -> Array:
    with warnings.catch_warnings():
        # NumPy only warns where the text stops being numbers.
        warnings.simplefilter("error", DeprecationWarning)
        try:
            return np.fromstring(text.decode("ascii"), sep=" ")
        except (ValueError, DeprecationWarning):
            raise ValueError(f"{name}: a BAL file holds nothing but numbers, but something else was found") from None
