"""COLMAP's models: ``cameras``, ``images`` and ``points3D``, as text here and in binary form (`colmap_binary`).

Nothing in them is trusted: every reference must be valid, every number must be finite, no line may be longer than 64
MiB, names of images are never opened as paths, and memory is limited to about ten times the size of the text. An error
names the file, the line and what was expected. Files are written atomically (`problm.support.files`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from ...manifolds import quaternions_of, rotations_of
from ...support.files import text_lines, write_atomically, written_numbers
from . import colmap_binary
from .camera_models import Intrinsics
from .file_values import named, whole_numbers
from .reconstruction import Reconstruction

Array = NDArray[np.float64]
FILES = ("cameras.txt", "images.txt", "points3D.txt")
"""Files of a text model, in the order in which they are written."""
_LONGEST_LINE = 1 << 26
"""Largest length of a line in bytes: the features of an image are one line, with about 40 bytes per feature."""


def read_colmap(folder: str | os.PathLike[str]) -> Reconstruction:
    """Read a model of COLMAP: ``cameras``, ``images`` and ``points3D``, as ``.txt`` or ``.bin``.

    Parameters
    ----------
    folder
        The folder of the three files; text is read if both are there.

    Returns
    -------
    Reconstruction
        Images and points in the order of the files.

    Examples
    --------
    >>> import tempfile
    >>> from problm.vision.bundle.reconstruction import Reconstruction
    >>> camera = Intrinsics("SIMPLE_PINHOLE", (500.0, 320.0, 240.0))
    >>> model = Reconstruction.from_arrays([np.eye(3)], [[0, 0, 0]], camera, [[0, 0, 5]], [[0, 0, 320, 241]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_colmap(model, folder)
    ...     again = read_colmap(folder)
    >>> again, again.residuals()
    (Reconstruction(1 images, 1 points, 1 observations, 1 cameras), array([[ 0., -1.]]))
    """
    root = Path(folder)
    if root.is_file():
        raise NotADirectoryError(f"{root} is a file: give the folder of the COLMAP model (a BAL file: problm.read_bal)")
    text = all((root / name).is_file() for name in FILES)
    if not text and not all((root / name).is_file() for name in colmap_binary.FILES):
        missing = next(name for name in FILES if not (root / name).is_file())
        raise FileNotFoundError(f"{root}: a COLMAP model needs the file {missing}, or cameras, images and points3D.bin")
    form = _TEXT if text else _BINARY
    cameras = form.cameras(root / form.files[0])
    camera_number = {c.id: k for k, c in enumerate(cameras)}
    ids, poses, names, keypoints, owners = form.images(root / form.files[1], camera_number)
    image_number = {i: k for k, i in enumerate(ids)}
    point_ids, points, colors, tracks = form.points(root / form.files[2], image_number, keypoints, owners)
    start = np.concatenate([[0], np.cumsum([len(t) for t in tracks])]).astype(np.int64)
    track = np.concatenate([np.empty((0, 2), dtype=np.int64), *tracks])
    begin = np.cumsum([0, *map(len, keypoints)])
    xy = np.concatenate([np.empty((0, 2)), *keypoints])[begin[track[:, 0]] + track[:, 1]]
    pose = np.array(poses).reshape(-1, 8)
    return Reconstruction(
        tuple(cameras),
        rotations_of(pose[:, [1, 2, 3, 0]]),
        pose[:, 4:7].copy(),
        pose[:, 7].astype(np.int64),
        points,
        start,
        np.ascontiguousarray(track[:, 0]),
        xy,
        tuple(names),
        np.array(ids, dtype=np.int64),
        point_ids,
        colors,
        tuple(keypoints),
        np.ascontiguousarray(track[:, 1]),
    )


def write_colmap(model: Reconstruction, folder: str | os.PathLike[str], *, binary: bool = False) -> None:
    """Write ``cameras``, ``images`` and ``points3D`` as ``.txt`` or ``.bin`` into a folder, which is created if
    necessary.

    Numbers keep all their digits. Files are written atomically. A camera of the model OPENCV5, which COLMAP does not
    have, is written as FULL_OPENCV.

    Parameters
    ----------
    model
        The reconstruction; see `read_colmap` for an example.
    folder
        The output folder.
    binary
        Whether to write COLMAP's binary form.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> camera = Intrinsics("SIMPLE_PINHOLE", (500.0, 320.0, 240.0))
    >>> model = Reconstruction.from_arrays([np.eye(3)], [[0, 0, 0]], camera, [[0, 0, 5]], [[0, 0, 320, 241]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_colmap(model, folder)
    ...     sorted(path.name for path in pathlib.Path(folder).iterdir())
    ['cameras.txt', 'images.txt', 'points3D.txt']
    """
    if any("\n" in name or "\r" in name for name in model.names):
        raise ValueError("model: names of images must not hold line breaks")
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    features, feature = model.keypoints, model.feature
    if features is None or feature is None:
        # If an image has no keypoints, its features are its observations, in their order.
        order = np.argsort(model.image, kind="stable")
        begin = np.cumsum([0, *np.bincount(model.image, minlength=len(model.rotations))])
        features = tuple(model.xy[order[lo:hi]] for lo, hi in pairwise(begin))
        feature = np.empty(len(model.image), dtype=np.int64)
        feature[order] = np.arange(len(order)) - begin[model.image[order]]
    begin = np.cumsum([0, *map(len, features)])
    owners = np.full(begin[-1], -1, dtype=np.int64)
    owners[begin[model.image] + feature] = np.repeat(model.point_ids, model.track_lengths)
    owner = [owners[lo:hi] for lo, hi in pairwise(begin)]
    with np.errstate(all="ignore"):
        errors = np.linalg.norm(model.residuals(), axis=1)
    known = tuple(_as_colmap(c) for c in model.intrinsics)
    turned = quaternions_of(model.rotations)[:, [3, 0, 1, 2]].tolist()
    if binary:
        _write_binary(model, root, known, turned, features, feature, owner, errors)
        return

    def cameras() -> Iterator[str]:
        yield "# Camera list with one line of data per camera:\n#   CAMERA_ID, MODEL, WIDTH, HEIGHT, PARAMS[]\n"
        for c in known:
            yield f"{c.id} {c.model} {c.width} {c.height} {' '.join(map(repr, c.params))}\n"

    def images() -> Iterator[str]:
        yield "# Image list with two lines of data per image:\n"
        yield "#   IMAGE_ID, QW, QX, QY, QZ, TX, TY, TZ, CAMERA_ID, NAME\n#   POINTS2D[] as (X, Y, POINT3D_ID)\n"
        for k, name in enumerate(model.names):
            pose = " ".join(map(repr, [*turned[k], *model.translations[k].tolist()]))
            yield f"{model.image_ids[k]} {pose} {model.intrinsics[model.camera[k]].id} {name}\n"
            pairs = zip(features[k].tolist(), owner[k].tolist(), strict=True)
            yield " ".join(f"{x!r} {y!r} {i}" for (x, y), i in pairs) + "\n"

    def points() -> Iterator[str]:
        yield "# 3D point list with one line of data per point:\n"
        yield "#   POINT3D_ID, X, Y, Z, R, G, B, ERROR, TRACK[] as (IMAGE_ID, POINT2D_IDX)\n"
        for j, (X, color) in enumerate(zip(model.points.tolist(), model.colors.tolist(), strict=True)):
            rows = range(model.start[j], model.start[j + 1])
            error = float(np.mean(errors[rows.start : rows.stop])) if len(rows) else -1.0
            seen = " ".join(f"{model.image_ids[model.image[m]]} {feature[m]}" for m in rows)
            numbers = " ".join(map(repr, X)) + " " + " ".join(map(str, color))
            yield f"{model.point_ids[j]} {numbers} {error!r} {seen}\n"

    for name, lines in zip(FILES, (cameras, images, points), strict=True):
        write_atomically(root / name, lines())


def _as_colmap(camera: Intrinsics) -> Intrinsics:
    if camera.model != "OPENCV5":
        return camera
    return replace(camera, model="FULL_OPENCV", params=(*camera.params, 0.0, 0.0, 0.0))


def _write_binary(
    model: Reconstruction, root: Path, cameras: tuple[Intrinsics, ...], turned: list[list[float]],
    features: tuple[Array, ...], feature: NDArray[np.int64], owner: list[NDArray[np.int64]], errors: Array,
) -> None:  # fmt: skip
    def images() -> Iterator[bytes]:
        yield len(model.names).to_bytes(8, "little")
        for k, name in enumerate(model.names):
            pose = [*turned[k], *model.translations[k].tolist()]
            camera = cameras[model.camera[k]].id
            yield colmap_binary.image_bytes(int(model.image_ids[k]), pose, camera, name, features[k], owner[k])

    def points() -> Iterator[bytes]:
        yield len(model.points).to_bytes(8, "little")
        for j, X in enumerate(model.points.tolist()):
            rows = slice(model.start[j], model.start[j + 1])
            error = float(np.mean(errors[rows])) if len(errors[rows]) else -1.0
            track = np.column_stack([model.image_ids[model.image[rows]], feature[rows]])
            yield colmap_binary.point_bytes(int(model.point_ids[j]), X, model.colors[j].tolist(), error, track)

    contents = colmap_binary.cameras_bytes(cameras), images(), points()
    for name, parts in zip(colmap_binary.FILES, contents, strict=True):
        write_atomically(root / name, b"".join(parts))


def _fail(path: Path, line: int, message: str) -> NoReturn:
    raise ValueError(f"{path}, line {line}: {message}")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    return text_lines(path, _LONGEST_LINE)


def _data_lines(path: Path) -> Iterator[tuple[int, str]]:
    return ((k, line) for k, line in _lines(path) if line.strip() and not line.lstrip().startswith("#"))


def _whole(path: Path, line: int, what: str, text: str, low: int = 0, high: int = 2**62) -> int:
    try:
        value = int(text) if text.isascii() and "_" not in text else low - 1
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        _fail(path, line, f"{what} must be a whole number from {low}, got {text[:40]!r}")
    return value


def _floats(path: Path, line: int, what: str, words: list[str]) -> Array:
    try:
        values = np.array(written_numbers(words), dtype=np.float64)
    except ValueError:
        _fail(path, line, f"{what} must be numbers")
    if not np.isfinite(values).all():
        _fail(path, line, f"{what} must be finite numbers")
    return values


def _read_cameras(path: Path) -> list[Intrinsics]:
    cameras: dict[int, Intrinsics] = {}
    for k, line in _data_lines(path):
        words = line.split()
        if len(words) < 5:
            _fail(path, k, "expected CAMERA_ID MODEL WIDTH HEIGHT PARAMS")
        number = _whole(path, k, "CAMERA_ID", words[0])
        if number in cameras:
            _fail(path, k, f"CAMERA_ID {number} appears twice")
        size = [_whole(path, k, "size", w, 0, 2**31) for w in words[2:4]]
        params = tuple(_floats(path, k, "PARAMS", words[4:]).tolist())
        model = words[1]
        cameras[number] = named(path, f"line {k}", lambda: Intrinsics(model, params, size[0], size[1], number))  # noqa: B023
    return list(cameras.values())


def _read_images(
    path: Path, cameras: dict[int, int]
) -> tuple[list[int], list[list[float]], list[str], list[Array], list[NDArray[np.int64]]]:
    ids: list[int] = []
    known: set[int] = set()
    poses, names, keypoints, owners = [], [], [], []
    lines = _lines(path)
    for k, line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        words = line.split(maxsplit=9)
        if len(words) < 10:
            _fail(path, k, "expected IMAGE_ID QW QX QY QZ TX TY TZ CAMERA_ID NAME")
        number = _whole(path, k, "IMAGE_ID", words[0])
        if number in known:
            _fail(path, k, f"IMAGE_ID {number} appears twice")
        pose = _floats(path, k, "pose", words[1:8])
        norm = math.hypot(*pose[:4])
        if not 1e-3 < norm < 1e3:
            _fail(path, k, f"the quaternion must have length 1, has {norm:.3g}")
        camera = _whole(path, k, "CAMERA_ID", words[8])
        if camera not in cameras:
            _fail(path, k, f"CAMERA_ID {camera} is not in cameras.txt")
        # An image without features has an empty second line, which the file may also end with.
        k, line = next(lines, (k + 1, ""))
        features = _floats(path, k, "POINTS2D", line.split())
        if len(features) % 3:
            _fail(path, k, f"POINTS2D must be triples X Y POINT3D_ID, got {len(features)} numbers")
        triples = features.reshape(-1, 3)
        owner = whole_numbers(triples[:, 2])
        if owner is None:
            _fail(path, k, "POINT3D_ID must be whole numbers")
        ids.append(number)
        known.add(number)
        poses.append([*pose.tolist(), float(cameras[camera])])
        names.append(words[9].strip())
        keypoints.append(np.ascontiguousarray(triples[:, :2]))
        owners.append(owner)
    return ids, poses, names, keypoints, owners


def _read_points(
    path: Path, images: dict[int, int], keypoints: list[Array], owners: list[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], Array, NDArray[np.uint8], list[NDArray[np.int64]]]:
    ids: dict[int, None] = {}
    points, colors, tracks = [], [], []
    for k, line in _data_lines(path):
        words = line.split()
        if len(words) < 8 or len(words) % 2:
            _fail(path, k, "expected POINT3D_ID X Y Z R G B ERROR and pairs IMAGE_ID POINT2D_IDX")
        number = _whole(path, k, "POINT3D_ID", words[0])
        if number in ids:
            _fail(path, k, f"POINT3D_ID {number} appears twice")
        ids[number] = None
        points.append(_floats(path, k, "X Y Z", words[1:4]))
        colors.append([_whole(path, k, "color", w, 0, 255) for w in words[4:7]])
        track = np.empty((len(words) // 2 - 4, 2), dtype=np.int64)
        for row, (a, b) in enumerate(zip(words[8::2], words[9::2], strict=True)):
            image = images.get(_whole(path, k, "IMAGE_ID", a), -1)
            if image < 0:
                _fail(path, k, f"IMAGE_ID {a} is not in images.txt")
            feature = _whole(path, k, "POINT2D_IDX", b)
            if feature >= len(keypoints[image]):
                _fail(path, k, f"POINT2D_IDX {feature}: image {a} has {len(keypoints[image])} features")
            if owners[image][feature] != number:
                _fail(path, k, f"feature {feature} of image {a} belongs to point {owners[image][feature]} there")
            track[row] = image, feature
        tracks.append(track)
    shape = (-1, 3)
    return (
        np.array(list(ids), dtype=np.int64),
        np.array(points, dtype=np.float64).reshape(shape),
        np.array(colors, dtype=np.uint8).reshape(shape),
        tracks,
    )


class _Form(NamedTuple):
    """Names and readers of the three files."""

    files: tuple[str, str, str]
    cameras: Callable[[Path], list[Intrinsics]]
    images: Callable[..., Any]
    points: Callable[..., Any]


_TEXT = _Form(FILES, _read_cameras, _read_images, _read_points)
_BINARY = _Form(colmap_binary.FILES, colmap_binary.read_cameras, colmap_binary.read_images, colmap_binary.read_points)
