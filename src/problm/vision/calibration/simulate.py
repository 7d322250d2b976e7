r"""Views of a board by a known camera, for examples, tests and benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..bundle.camera_models import Intrinsics

Array = NDArray[np.float64]


@dataclass(frozen=True)
class BoardViews:
    """Pixels of the corners of a board, with the truth."""

    object_points: list[Array]
    """(m, 3) per view."""
    image_points: list[Array]
    """(m, 2) per view."""
    camera: Intrinsics
    rotations: Array
    translations: Array
    outliers: list[NDArray[np.bool_]]


def board_views(
    views: int = 10,
    *,
    board: tuple[int, int] = (9, 6),
    noise: float = 0.2,
    outliers: float = 0.0,
    camera: Intrinsics | None = None,
    seed: int = 0,
) -> BoardViews:
    """Simulate views of a chessboard, tilted in random directions, that fill a large part of the image.

    Parameters
    ----------
    board : inner corners per row and column; squares have the side 1.
    noise : standard deviation of each pixel coordinate.
    outliers : share of corners that are off by 5 to 20 pixels.
    camera : by default 640 x 480 pixels, a focal length of 800 and a mild distortion of five coefficients.

    Examples
    --------
    >>> views = board_views(3)
    >>> len(views.image_points), views.image_points[0].shape
    (3, (54, 2))
    """
    from scipy.spatial.transform import Rotation

    rng = np.random.default_rng(seed)
    camera = camera or Intrinsics("OPENCV5", (800.0, 805.0, 325.0, 236.0, -0.2, 0.08, 0.001, -0.0015, 0.01), 640, 480)
    size = np.array([camera.width, camera.height], dtype=np.float64)
    grid = np.stack(np.meshgrid(np.arange(board[0]), np.arange(board[1])), axis=-1).reshape(-1, 2)
    X = np.column_stack([grid - 0.5 * (np.array(board) - 1.0), np.zeros(len(grid))])
    found: list[tuple[Array, Array, Array]] = []
    for _ in range(1000 * views):
        if len(found) == views:
            break
        R = Rotation.from_euler("zxy", [rng.uniform(-0.5, 0.5), *rng.uniform(-0.7, 0.7, 2)]).as_matrix()
        ray = np.append(camera.normalise(rng.uniform(0.3, 0.7, (1, 2)) * size)[0], 1.0)
        t = ray * max(board) * rng.uniform(0.6, 2.0) * camera.places[0] / camera.width
        seen = X @ R.T + t
        with np.errstate(all="ignore"):
            x = camera.project(seen)
            again = camera.normalise(x)
        true = np.abs(again - seen[:, :2] / seen[:, 2:]).max() < 1e-6
        if (seen[:, 2] > 0).all() and (x > 0).all() and (x < size).all() and true:
            found.append((R, t, x))
    else:
        raise ValueError("board_views: the camera sees hardly any board as a whole; use a smaller board")
    wrong = [rng.uniform(size=len(X)) < outliers for _ in found]
    pixels = []
    for (_, _, x), bad in zip(found, wrong, strict=True):
        angle, far = rng.uniform(0.0, 2.0 * np.pi, len(X)), rng.uniform(5.0, 20.0, len(X)) * bad
        moved = np.column_stack([np.cos(angle), np.sin(angle)]) * far[:, None]
        pixels.append(x + noise * rng.normal(size=x.shape) + moved)
    return BoardViews(
        [X.copy() for _ in found], pixels, camera, np.array([R for R, _, _ in found]),
        np.array([t for _, t, _ in found]), wrong,
    )  # fmt: skip
