r"""One view of a random scene with known pose and known inliers, for examples, tests and benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..bundle.camera_models import Intrinsics

Array = NDArray[np.float64]


@dataclass(frozen=True)
class View:
    """Pixels of known points, with the truth."""

    points2d: Array
    """(N, 2) pixels."""
    points3d: Array
    """(N, 3) points."""
    camera: Intrinsics
    R: Array
    t: Array
    """``z (u, v, 1) = R X + t``."""
    inliers: NDArray[np.bool_]

    @property
    def K(self) -> Array:
        """(3, 3) camera matrix."""
        fx, fy, cx, cy = self.camera.places[:4]
        return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])


def one_view(
    n: int,
    *,
    inliers: float = 1.0,
    noise: float = 1.0,
    seed: int = 0,
    depth: tuple[float, float] = (4.0, 10.0),
    plane: bool = False,
    camera: Intrinsics | None = None,
    offset: Any = (0.0, 0.0, 0.0),
) -> View:
    """Simulate ``n`` matches of pixels and points.

    Parameters
    ----------
    inliers : share of true matches; the pixels of the others are uniform in the image.
    noise : standard deviation of each pixel coordinate.
    depth : nearest and farthest point.
    plane : put all points on a tilted plane.
    camera : by default a pinhole of 640 x 480 pixels with a focal length of 800.
    offset : where the middle of the scene lies.

    Examples
    --------
    >>> view = one_view(100, inliers=0.8)
    >>> view.points2d.shape, view.points3d.shape, int(view.inliers.sum())
    ((100, 2), (100, 3), 80)
    """
    from scipy.spatial.transform import Rotation

    rng = np.random.default_rng(seed)
    camera = camera or Intrinsics("PINHOLE", (800.0, 800.0, 320.0, 240.0), 640, 480)
    size = np.array([camera.width, camera.height], dtype=np.float64)
    if not (size > 0).all():
        raise ValueError("camera: the simulation needs its width and height")
    R = Rotation.from_quat(rng.normal(size=4)).as_matrix()
    pixels = rng.uniform(size=(n, 2)) * size
    rays = np.column_stack([camera.normalise(pixels), np.ones(n)])
    z = rng.uniform(*depth, size=n)
    if plane:
        z = 0.5 * (depth[0] + depth[1]) / (rays @ [0.3, -0.2, 1.0])
    seen = rays * z[:, None]
    middle = np.array([0.0, 0.0, 0.5 * (depth[0] + depth[1])])
    # The middle of the scene is the offset: R offset + t = middle.
    t = middle - R @ np.asarray(offset, dtype=np.float64)
    X = (seen - t) @ R
    true = np.zeros(n, dtype=bool)
    true[rng.permutation(n)[: round(n * inliers)]] = True
    pixels = np.where(true[:, None], pixels + noise * rng.normal(size=(n, 2)), rng.uniform(size=(n, 2)) * size)
    return View(pixels, X, camera, R, t, true)
