"""Data for a fresh machine: rendered textured scenes, simulated cameras with pixel noise and outliers.

They replace the photographs, matches and reconstructions of the paper if those are not available. Everything follows
from a seed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, map_coordinates
from scipy.spatial.transform import Rotation

Array = NDArray[np.float64]
Picture = NDArray[np.uint8]


def texture(rng: np.random.Generator, height: int, width: int) -> Array:
    """A grey picture (height, width) in [0, 1] with contrast at all scales and sharp edges, as photographs have."""
    picture = np.zeros((height, width))
    for octave in range(1, 8):
        scale = 2.0**octave
        shape = (int(height / scale) + 4, int(width / scale) + 4)
        rows, columns = np.arange(height) / scale + 1.0, np.arange(width) / scale + 1.0
        grid = np.meshgrid(rows, columns, indexing="ij")
        picture += scale**0.6 * map_coordinates(rng.standard_normal(shape), grid, order=2, mode="nearest")
    picture = (picture - picture.mean()) / picture.std()
    y, x = np.mgrid[:height, :width]
    for _ in range(40):  # bars and discs: windows, beams, ornaments
        cx, cy = rng.uniform(0, width), rng.uniform(0, height)
        angle, long, wide = rng.uniform(0, np.pi), rng.uniform(15, 0.25 * width), rng.uniform(4, 40)
        u = (x - cx) * np.cos(angle) + (y - cy) * np.sin(angle)
        v = -(x - cx) * np.sin(angle) + (y - cy) * np.cos(angle)
        inside = (np.abs(u) < long) & (np.abs(v) < wide) if rng.random() < 0.7 else u * u + v * v < wide * wide
        picture[inside] += rng.normal(0.0, 0.9)
    picture = gaussian_filter(picture, 0.7)
    low, high = np.quantile(picture, [0.01, 0.99])
    return np.clip((picture - low) / (high - low), 0.0, 1.0)


@dataclass(frozen=True)
class Pair:
    """Two photographs of a scene that is mostly a plane."""

    image1: Picture
    image2: Picture
    matrix: Array
    """(3, 3): maps pixels of image 1 to pixels of image 2, on the plane."""


def image_pair(seed: int, height: int = 480, width: int = 640, shift: float = 0.006) -> Pair:
    """A facade seen twice, with a foreground that moves differently (parallax), noise, and 8 bits per pixel.

    Parameters
    ----------
    seed : random seed.
    height, width : size of both images.
    shift : standard deviation of the shift of the corners, in widths of the image.
    """
    rng = np.random.default_rng(seed)
    shift *= width
    margin = int(0.15 * width) + int(4 * shift)
    wall = texture(rng, height + 2 * margin, width + 2 * margin)
    front = texture(rng, height + 2 * margin, width + 2 * margin)
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=float)
    plane = homography_between(corners, corners + rng.normal(0.0, shift, (4, 2)))
    nearer = np.eye(3)
    nearer[:2, 2] = rng.normal(0.0, 1.5 * shift, 2)
    x = np.arange(wall.shape[1])[None, :] - margin
    cover = np.zeros(wall.shape, dtype=bool)  # where the foreground hides the wall: a few poles
    for _ in range(2):
        at, wide = rng.uniform(0.1, 0.9) * width, rng.uniform(0.003, 0.01) * width
        cover |= np.abs(x - at) < wide
    images = []
    for wall_warp, front_warp in ((np.eye(3), np.eye(3)), (plane, nearer @ plane)):
        back = _look(wall, wall_warp, height, width, margin)
        pole = _look(front, front_warp, height, width, margin)
        mask = 0.4 * _look(cover.astype(float), front_warp, height, width, margin)  # hazy: the plane must dominate
        image = (1.0 - mask) * back + mask * pole + rng.normal(0.0, 0.012, (height, width))
        images.append(np.clip(np.round(255.0 * image), 0, 255).astype(np.uint8))
    return Pair(images[0], images[1], plane)


def homography_between(a: Array, b: Array) -> Array:
    """The homography (3, 3) that maps four points (4, 2) to four others."""
    rows = []
    for (x, y), (u, v) in zip(a, b, strict=True):
        rows.append([x, y, 1, 0, 0, 0, -u * x, -u * y, -u])
        rows.append([0, 0, 0, x, y, 1, -v * x, -v * y, -v])
    matrix: Array = np.linalg.svd(np.array(rows))[2][-1].reshape(3, 3)
    return matrix / matrix[2, 2]


def moved_corners(matrix: Array, shape: tuple[int, ...], offset: float, rng: np.random.Generator) -> Array:
    """The homography whose images of the corners lie ``offset`` widths (standard deviation) from those of another."""
    height, width = shape[:2]
    corners = np.array([[0.0, 0.0], [width, 0.0], [width, height], [0.0, height]])
    mapped = corners @ matrix[:, :2].T + matrix[:, 2]
    return homography_between(corners, mapped[:, :2] / mapped[:, 2:] + rng.normal(0.0, offset * width, (4, 2)))


def _look(plane: Array, warp: Array, height: int, width: int, margin: int) -> Array:
    """The plane as seen by a camera whose pixels are ``warp`` times those of the plane."""
    y, x = np.mgrid[:height, :width].astype(float)
    m = np.linalg.inv(warp)
    z = m[2, 0] * x + m[2, 1] * y + m[2, 2]
    u, v = (m[0, 0] * x + m[0, 1] * y + m[0, 2]) / z, (m[1, 0] * x + m[1, 1] * y + m[1, 2]) / z
    found: Array = map_coordinates(plane, [v + margin, u + margin], order=3, mode="nearest")
    return found


@dataclass(frozen=True)
class Matches:
    """Matches between two calibrated views, one to one, in random order."""

    x1: Array
    """(n, 2) pixels in image 1."""
    x2: Array
    K: Array
    """(3, 3) camera matrix of both views."""
    R: Array
    """(3, 3): x2 ~ R x1 + t."""
    t: Array
    """(3,) unit vector."""
    inlier: NDArray[np.bool_]


def matches(seed: int, n: int = 2000, inliers: float = 1.0, noise: float = 0.5) -> Matches:
    """Two views of a building: points on two walls and the ground, pixel noise, and wrong matches.

    Parameters
    ----------
    seed : random seed.
    n : number of matches.
    inliers : share of correct matches.
    noise : standard deviation of each coordinate, in pixels.
    """
    rng = np.random.default_rng(seed)
    width, height, focal = 3072, 2048, 2760.0
    K = np.array([[focal, 0.0, width / 2], [0.0, focal, height / 2], [0.0, 0.0, 1.0]])
    R = Rotation.from_rotvec(rng.normal(0.0, [0.05, 0.12, 0.04])).as_matrix()
    t = rng.normal(0.0, [1.0, 0.25, 0.35])
    t /= np.linalg.norm(t)
    wanted = round(inliers * n)
    kept: list[Array] = []
    while sum(map(len, kept)) < wanted:
        kept.append(_seen_twice(rng, 4 * n, K, R, t, width, height))
    right = np.concatenate(kept)[:wanted] + rng.normal(0.0, noise, (wanted, 4))
    wrong = rng.uniform(0.0, 1.0, (n - wanted, 4)) * [width, height, width, height]
    order = rng.permutation(n)
    both = np.concatenate([right, wrong])[order]
    return Matches(both[:, :2].copy(), both[:, 2:].copy(), K, R, t, (np.arange(n) < wanted)[order])


def _seen_twice(rng: np.random.Generator, n: int, K: Array, R: Array, t: Array, width: int, height: int) -> Array:
    """Pixels (m, 4) of points of the scene that both views see."""
    kind = rng.random(n)
    X = np.empty((n, 3))
    wall = kind < 0.55
    X[wall] = rng.uniform([-5, -3, 7.9], [5, 3, 8.1], (int(wall.sum()), 3))
    side = (kind >= 0.55) & (kind < 0.85)
    X[side] = rng.uniform([2.9, -3, 4], [3.1, 3, 8], (int(side.sum()), 3))
    ground = kind >= 0.85
    X[ground] = rng.uniform([-4, 1.9, 4], [4, 2.1, 8], (int(ground.sum()), 3))
    Y = X @ R.T + t
    ahead = (X[:, 2] > 0.5) & (Y[:, 2] > 0.5)
    first, second = (P[ahead] @ K.T for P in (X, Y))
    pixels = np.concatenate([first[:, :2] / first[:, 2:], second[:, :2] / second[:, 2:]], axis=1)
    inside = ((pixels >= 0) & (pixels <= [width, height, width, height])).all(axis=1)
    return pixels[inside]


@dataclass(frozen=True)
class Tracks:
    """Points seen in all of a few views, and a start for cameras and points."""

    observations: Array
    """(C, P, 2) normalised image coordinates."""
    rotations: Array
    """(C, 3, 3), perturbed."""
    translations: Array
    """(C, 3), perturbed."""
    depths: Array
    """(P,) fixed depths of the points at the start."""


def tracks(seed: int, views: int, points: int, noise: float = 3e-4) -> Tracks:
    """A few neighbouring perspective views of a building, as a weak-perspective problem (paper's supplement)."""
    rng = np.random.default_rng(seed)
    X = rng.uniform([-3, -2, 8], [3, 2, 12], (points, 3))
    turn = rng.normal(0.0, 0.03, (views, 3))
    turn[:, 1] += np.linspace(-0.12, 0.12, views)
    R = Rotation.from_rotvec(turn).as_matrix()
    centre = np.array([0.0, 0.0, 10.0])
    t = centre - np.einsum("cij,j->ci", R, centre) + rng.normal(0.0, 0.1, (views, 3))
    Y = np.einsum("cij,pj->cpi", R, X) + t[:, None]
    observed = Y[..., :2] / Y[..., 2:] + rng.normal(0.0, noise, (views, points, 2))
    start = Rotation.from_rotvec(rng.normal(0.0, 0.05, (views, 3))).as_matrix() @ R
    moved = t + rng.normal(0.0, 0.1, (views, 3))
    return Tracks(observed, start, moved, Y[..., 2].mean(axis=0))
