r"""Two views of a random scene with known pose and known inliers, for examples, tests and benchmarks.

Points lie in the field of view of camera 1 at random depths; those that camera 2 sees as well are kept.
Outliers are uniform in both images. Matches are one-to-one and in random order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TwoViews:
    """Matches of a simulated pair with its ground truth."""

    x1: Array
    """(N, 2) pixels."""
    x2: Array
    K: Array
    """(3, 3) camera matrix of both views."""
    R: Array
    t: Array
    """Unit vector, or zero for a camera that only rotated: ``X2 = R X1 + |baseline| t``."""
    inliers: NDArray[np.bool_]
    size: tuple[int, int]
    """Width and height of the images in pixels."""


def two_views(
    n: int,
    *,
    inliers: float = 1.0,
    noise: float = 0.5,
    seed: int = 0,
    turn: float = 0.15,
    depth: tuple[float, float] = (4.0, 10.0),
    baseline: float = 1.0,
    plane: bool = False,
    focal: float = 800.0,
    size: tuple[int, int] = (640, 480),
    R: ArrayLike | None = None,
    t: ArrayLike | None = None,
) -> TwoViews:
    """Simulate ``n`` matches of two views.

    Parameters
    ----------
    inliers : share of true matches.
    noise : standard deviation of each coordinate of a true match, pixels.
    turn : standard deviation of each component of the rotation vector, radians.
    depth : nearest and farthest point.
    baseline : distance of the cameras, in the units of the depth; 0 is a pure rotation.
    plane : put all points on a plane.
    R, t : the pose, random if not given.

    Examples
    --------
    >>> views = two_views(100, inliers=0.8)
    >>> views.x1.shape, int(views.inliers.sum())
    ((100, 2), 80)
    """
    from scipy.spatial.transform import Rotation

    rng = np.random.default_rng(seed)
    width, height = size
    K = np.array([[focal, 0.0, width / 2], [0.0, focal, height / 2], [0.0, 0.0, 1.0]])
    true = round(n * inliers)
    for _ in range(100):
        rotation = (
            Rotation.from_rotvec(turn * rng.normal(size=3)).as_matrix() if R is None else np.asarray(R, dtype=float)
        )
        direction = rng.normal(size=3) if t is None else np.array(t, dtype=float)
        direction /= np.linalg.norm(direction)
        pixels = _visible(rng, K, rotation, baseline * direction, true, depth, plane, size)
        if pixels is not None:
            break
    else:
        raise ValueError("two_views: the two cameras see too little in common; choose a smaller turn or another pose")
    pixels = pixels + noise * rng.normal(size=pixels.shape)
    wrong = rng.uniform(size=(n - true, 4)) * [width, height, width, height]
    order = rng.permutation(n)
    matches = np.concatenate([pixels, wrong])[order]
    return TwoViews(
        np.ascontiguousarray(matches[:, :2]),
        np.ascontiguousarray(matches[:, 2:]),
        K,
        rotation,
        direction if baseline else np.zeros(3),
        (np.arange(n) < true)[order],
        size,
    )


def _visible(
    rng: np.random.Generator,
    K: Array,
    R: Array,
    t: Array,
    count: int,
    depth: tuple[float, float],
    plane: bool,
    size: tuple[int, int],
) -> Array | None:
    """Matches (count, 4) of points that both cameras see, or None if these are too few of those tried."""
    width, height = size
    found: list[Array] = []
    missing = count
    for _ in range(50):
        if missing <= 0:
            return np.concatenate([np.empty((0, 4)), *found])[:count]
        m = 2 * missing + 100
        first = rng.uniform(size=(m, 2)) * [width, height]
        rays = np.column_stack([(first - K[:2, 2]) / K[[0, 1], [0, 1]], np.ones(m)])
        if plane:
            normal = np.array([0.3, -0.2, 1.0])
            z = 0.5 * (depth[0] + depth[1]) / (rays @ normal)
        else:
            z = rng.uniform(*depth, size=m)
        moved = (rays * z[:, None]) @ R.T + t
        with np.errstate(divide="ignore", invalid="ignore"):
            second = moved[:, :2] / moved[:, 2:] * K[[0, 1], [0, 1]] + K[:2, 2]
        seen = (moved[:, 2] > 0.1) & (second > 0).all(axis=1) & (second < [width, height]).all(axis=1)
        found.append(np.concatenate([first[seen], second[seen]], axis=1))
        missing -= int(seen.sum())
    return None
