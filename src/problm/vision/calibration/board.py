r"""Corners of chessboards in images, by OpenCV's detector (extra ``vision``)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..images.image import read_image

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Boards:
    """Boards found in images, in the form that `problm.calibrate_camera` takes."""

    object_points: list[Array]
    """(m, 3) per image with a board, Z = 0."""
    image_points: list[Array]
    """(m, 2) pixels; the centre of the first pixel is (0, 0)."""
    image_size: tuple[int, int]
    found: list[int]
    """Numbers of the images with a board."""


def find_board(images: Iterable[Any], board: tuple[int, int], square: float = 1.0) -> Boards:
    """Inner corners of a chessboard in images of one camera.

    Parameters
    ----------
    images : paths of files, arrays (rows, columns[, 3]) or PIL images, all of one size.
    board : inner corners per row and per column, e.g. (9, 6).
    square : side of a square, in any unit.

    Raises
    ------
    ValueError if no image shows the whole board, or sizes differ.

    Examples
    --------
    >>> board = 255.0 * (np.indices((7, 10)).sum(axis=0) % 2)  # 10 x 7 squares, 9 x 6 corners between them
    >>> image = np.pad(np.kron(board, np.ones((30, 30))), 40, constant_values=255.0).astype(np.uint8)
    >>> found = find_board([image], (9, 6), square=25.0)
    >>> found.image_points[0].shape, found.object_points[0].max(axis=0)
    ((54, 2), array([200., 125.,   0.]))
    """
    try:
        cv2 = import_module("cv2")
    except ImportError as error:
        raise ImportError("the detector of boards needs OpenCV: pip install 'problm[vision]'") from error
    columns, rows = (int(v) for v in board)
    if min(columns, rows) < 3 or not square > 0.0:
        raise ValueError(f"board must be at least (3, 3) inner corners and square positive, got {board} and {square}")
    grid = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), axis=-1).reshape(-1, 2) * float(square)
    X = np.column_stack([grid, np.zeros(len(grid))])
    pixels, found, size = [], [], None
    for k, source in enumerate(images):
        values = read_image(source, f"images[{k}]").values()
        grey = values.mean(axis=2) if values.ndim == 3 else values
        low, high = float(grey.min()), float(grey.max())
        scaled = np.round((grey - low) * (255.0 / max(high - low, 1e-300))).astype(np.uint8)
        here = scaled.shape[1], scaled.shape[0]
        if size is not None and here != size:
            raise ValueError(f"images[{k}] has the size {here}, the ones before {size}: calibrate each camera alone")
        size = here
        ok, corners = cv2.findChessboardCornersSB(scaled, (columns, rows), flags=cv2.CALIB_CB_ACCURACY)
        if ok:
            pixels.append(np.asarray(corners, dtype=np.float64).reshape(-1, 2))
            found.append(k)
    if size is None or not found:
        raise ValueError(f"images: no image shows a whole board of {columns} x {rows} inner corners")
    return Boards([X.copy() for _ in found], pixels, size, found)
