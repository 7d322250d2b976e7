"""COLMAP's binary models: ``cameras.bin``, ``images.bin`` and ``points3D.bin``, little-endian.

Nothing in them is trusted: a count is compared with the rest of the file before anything is allocated, and every
reference must be valid. An error names the file and what was expected.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ...support.files import open_regular, refuse_holes
from ...support.memory import as_bytes
from .camera_models import MODELS, Intrinsics
from .file_values import named

Array = NDArray[np.float64]
FILES = ("cameras.bin", "images.bin", "points3D.bin")
"""Files of a binary model, in the order in which they are written."""
IDS = {
    "SIMPLE_PINHOLE": 0, "PINHOLE": 1, "SIMPLE_RADIAL": 2, "RADIAL": 3, "OPENCV": 4, "OPENCV_FISHEYE": 5,
    "FULL_OPENCV": 6, "SIMPLE_RADIAL_FISHEYE": 8, "RADIAL_FISHEYE": 9,
}  # fmt: skip
"""COLMAP's numbers of camera models."""
_NAMES = {number: name for name, number in IDS.items()}
_OTHERS = {7: "FOV", 10: "THIN_PRISM_FISHEYE"}
_FEATURE = np.dtype([("x", "<f8"), ("y", "<f8"), ("owner", "<i8")])
_LONGEST_NAME = 4096
_EXPANSION = 4
"""Bytes of memory per byte of a file."""


class _Cursor:
    """A file's bytes and a place in them; reading beyond the end raises an error that names the file."""

    def __init__(self, path: Path) -> None:
        self.path, self.at = path, 0
        with open_regular(path) as file:
            refuse_holes(file, path)
            size = os.fstat(file.fileno()).st_size
            if size > as_bytes(None) // _EXPANSION:
                raise ValueError(f"{path} has {size / 1e9:.1f} GB, more than fits in memory")
            self.data = file.read()

    def fail(self, message: str) -> NoReturn:
        raise ValueError(f"{self.path}, byte {self.at}: {message}")

    def take(self, form: str) -> tuple[Any, ...]:
        size = struct.calcsize("<" + form)
        if self.at + size > len(self.data):
            self.fail("the file is cut short")
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += size
        return values

    def count(self, least: int) -> int:
        """A number of records of at least so many bytes each."""
        number = int(self.take("Q")[0])
        if number * least > len(self.data) - self.at:
            self.fail(f"{number} records are announced, more than the file holds")
        return number

    def floats(self, count: int, what: str) -> Array:
        values = np.array(self.take(f"{count}d"))
        if not np.isfinite(values).all():
            self.fail(f"{what} must be finite numbers")
        return values

    def table(self, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        size = count * dtype.itemsize
        values = np.frombuffer(self.data, dtype=dtype, count=count, offset=self.at)
        self.at += size
        return values

    def name(self) -> str:
        end = self.data.find(b"\0", self.at, self.at + _LONGEST_NAME)
        if end < 0:
            self.fail("the name of an image has no end")
        text = self.data[self.at : end].decode("utf-8", errors="replace")
        self.at = end + 1
        return text

    def finished(self) -> None:
        if self.at != len(self.data):
            self.fail(f"{len(self.data) - self.at} bytes are left over")


def read_cameras(path: Path) -> list[Intrinsics]:
    """Cameras of ``cameras.bin``."""
    file = _Cursor(path)
    cameras: dict[int, Intrinsics] = {}
    for _ in range(file.count(24)):
        number, kind, width, height = file.take("IiQQ")
        if kind not in _NAMES:
            file.fail(f"camera {number} has the model {_OTHERS.get(kind, kind)}, which is not supported")
        if number in cameras or max(width, height) > 2**31:
            file.fail(f"camera {number} appears twice or has an impossible size")
        model = _NAMES[kind]
        params = tuple(file.floats(len(MODELS[model].parameters), "parameters").tolist())
        where = f"camera {number}"
        cameras[number] = named(path, where, lambda: Intrinsics(model, params, width, height, number))  # noqa: B023
    file.finished()
    return list(cameras.values())


def read_images(
    path: Path, cameras: dict[int, int]
) -> tuple[list[int], list[list[float]], list[str], list[Array], list[NDArray[np.int64]]]:
    """Identifiers, poses with the number of the camera, names, features, and the points that these belong to."""
    file = _Cursor(path)
    ids: dict[int, None] = {}
    poses, names, keypoints, owners = [], [], [], []
    for _ in range(file.count(69)):
        number = int(file.take("I")[0])
        pose = file.floats(7, "pose")
        camera = int(file.take("I")[0])
        if number in ids or camera not in cameras:
            file.fail(f"image {number} appears twice, or its camera {camera} is not in cameras.bin")
        norm = math.hypot(*pose[:4])
        if not 1e-3 < norm < 1e3:
            file.fail(f"the quaternion of image {number} must have length 1, has {norm:.3g}")
        names.append(file.name())
        features = file.table(_FEATURE, file.count(_FEATURE.itemsize))
        xy = np.column_stack([features["x"], features["y"]]).astype(np.float64)
        if not np.isfinite(xy).all():
            file.fail(f"features of image {number} must be finite")
        ids[number] = None
        poses.append([*pose.tolist(), float(cameras[camera])])
        keypoints.append(xy)
        owners.append(features["owner"].astype(np.int64))
    file.finished()
    return list(ids), poses, names, keypoints, owners


def read_points(
    path: Path, images: dict[int, int], keypoints: list[Array], owners: list[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], Array, NDArray[np.uint8], list[NDArray[np.int64]]]:
    """Identifiers, positions, colours, and tracks of (image, feature)."""
    file = _Cursor(path)
    ids: dict[int, None] = {}
    points, colors, tracks = [], [], []
    for _ in range(file.count(51)):
        number = int(file.take("Q")[0])
        if number in ids or number > 2**62:
            file.fail(f"point {number} appears twice, or its number is too large")
        ids[number] = None
        points.append(file.floats(3, "X Y Z"))
        *color, _error = file.take("BBBd")
        colors.append(color)
        pairs = file.table(np.dtype("<u4"), 2 * file.count(8)).reshape(-1, 2).astype(np.int64)
        for row in pairs:
            image = images.get(int(row[0]), -1)
            if image < 0 or row[1] >= len(keypoints[image]):
                file.fail(f"point {number}: image {row[0]} has no feature {row[1]}")
            if owners[image][row[1]] != number:
                file.fail(f"feature {row[1]} of image {row[0]} belongs to point {owners[image][row[1]]} there")
            row[0] = image
        tracks.append(pairs)
    file.finished()
    return (
        np.array(list(ids), dtype=np.int64), np.array(points, dtype=np.float64).reshape(-1, 3),
        np.array(colors, dtype=np.uint8).reshape(-1, 3), tracks,
    )  # fmt: skip


def cameras_bytes(cameras: tuple[Intrinsics, ...]) -> Iterator[bytes]:
    """Contents of ``cameras.bin``."""
    yield struct.pack("<Q", len(cameras))
    for c in cameras:
        yield struct.pack(f"<IiQQ{len(c.params)}d", c.id, IDS[c.model], c.width, c.height, *c.params)


def image_bytes(
    number: int, pose: list[float], camera: int, name: str, features: Array, owner: NDArray[np.int64]
) -> bytes:
    """One image of ``images.bin``; pose: quaternion w x y z, translation."""
    table = np.empty(len(features), dtype=_FEATURE)
    table["x"], table["y"], table["owner"] = features[:, 0], features[:, 1], owner
    head = struct.pack("<I7dI", number, *pose, camera) + name.encode() + b"\0"
    return head + struct.pack("<Q", len(features)) + table.tobytes()


def point_bytes(number: int, X: list[float], color: list[int], error: float, track: NDArray[np.int64]) -> bytes:
    """One point of ``points3D.bin``; track: (k, 2) identifiers of images and numbers of features."""
    head = struct.pack("<Q3d3BdQ", number, *X, *color, error, len(track))
    return head + track.astype("<u4").tobytes()
