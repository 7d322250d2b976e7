"""A village from above: fields, roads, houses with shadows, trees."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_REACH = 32
"""Half the side, in pixels, of the part of the image that a house or a tree is drawn into."""


def village(height: int, width: int, rng: np.random.Generator) -> Array:
    """Grey values (height, width) between 0 and 1."""
    from scipy.ndimage import gaussian_filter

    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    area = height * width / 1e5
    image = _fields(x, y, max(4, int(6 * area)), rng)
    for _ in range(int(25 * area)):
        _tree(image, rng)
    for _ in range(3):
        angle = rng.uniform(0, np.pi)
        c, s = np.cos(angle), np.sin(angle)
        u, v = x - rng.uniform(0.2, 0.8) * width, y - rng.uniform(0.2, 0.8) * height
        away = np.abs(c * u + s * v + 12.0 * np.sin((c * v - s * u) / 90.0))
        image[away < 6.0] = 0.72
        image[(away < 0.8) & (np.sin((c * v - s * u) / 4.0) > 0.0)] = 0.95
    for _ in range(int(14 * area)):
        _house(image, rng)
    image += 0.03 * gaussian_filter(rng.standard_normal(image.shape), 1.0)
    return np.clip(gaussian_filter(image, 0.8), 0.0, 1.0)


def _fields(x: Array, y: Array, count: int, rng: np.random.Generator) -> Array:
    """Fields around random points, each with a brightness and furrows of its own."""
    from scipy.spatial import cKDTree

    middle = rng.uniform(0, 1, (count, 2)) * [x.shape[1], x.shape[0]]
    near = cKDTree(middle).query(np.column_stack([x.ravel(), y.ravel()]))[1].reshape(x.shape)
    angle = rng.uniform(0, np.pi, count)[near]
    furrows = np.sin((np.cos(angle) * x + np.sin(angle) * y) / rng.uniform(1.2, 4.0, count)[near])
    shade: Array = rng.uniform(0.3, 0.62, count)[near] + rng.uniform(0.0, 0.06, count)[near] * furrows
    return shade


def _around(image: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """The image around a random place, where to draw, and the coordinates x, y from there."""
    rows, columns = image.shape
    px, py = rng.uniform(0, columns), rng.uniform(0, rows)
    top, left = max(0, int(py) - _REACH), max(0, int(px) - _REACH)
    part = image[top : int(py) + _REACH, left : int(px) + _REACH]
    y, x = np.mgrid[top : top + part.shape[0], left : left + part.shape[1]]
    return part, x - px, y - py


def _house(image: Array, rng: np.random.Generator) -> None:
    """A roof of two tones and its shadow."""
    part, x, y = _around(image, rng)
    angle, length, breadth = rng.uniform(0, np.pi), rng.uniform(7, 20), rng.uniform(5, 11)
    light, dark = rng.uniform(0.75, 1.0), rng.uniform(0.45, 0.6)
    c, s = np.cos(angle), np.sin(angle)

    def inside(u: Array, v: Array) -> NDArray[np.bool_]:
        return np.asarray((np.abs(c * u + s * v) < length) & (np.abs(c * v - s * u) < breadth))

    part[inside(x - 4.0, y - 4.0)] *= 0.35
    roof = inside(x, y)
    part[roof] = np.where((c * y - s * x)[roof] < 0.0, light, dark)


def _tree(image: Array, rng: np.random.Generator) -> None:
    """A dark disc, lighter where the sun shines."""
    part, x, y = _around(image, rng)
    radius = rng.uniform(3.0, 9.0)
    crown = x * x + y * y < radius * radius
    part[crown] = 0.2 - 0.1 * (x + y)[crown] / radius


def seen_through(image: Array, points: Callable[[Array], Array], height: int, width: int) -> Array:
    """The image at points that correspond to the pixels (height, width) of another one, by cubic splines."""
    from scipy.ndimage import map_coordinates

    y, x = np.mgrid[0:height, 0:width]
    there = points(np.column_stack([x.ravel(), y.ravel()]).astype(np.float64))
    values: Array = map_coordinates(image, there.T[::-1], order=3, mode="nearest")
    return values.reshape(height, width)
