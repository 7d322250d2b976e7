r"""Two views of a random textured surface with depth and a known motion, for examples, tests and benchmarks.

The surface is a relief ``z = Z(x, y)`` in front of camera 1, about two units away, and its texture a sum of waves of
(x, y), from a few pixels to a third of the image. Both views are rendered exactly, by intersecting every pixel's ray
with the surface (Newton's method), so neither is an interpolation of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...manifolds import rotation_exp

Array = NDArray[np.float64]
Plane = NDArray[np.float32]
TEXTURES = ("waves", "stripes")
_FAR = 2.0
"""Mean depth."""
_WAVES = 40


@dataclass(frozen=True)
class Frames:
    """Two views with the motion between them, ``X2 = R X1 + t``; depth is 0 where it is unknown."""

    image1: Plane
    depth1: Plane
    image2: Plane
    depth2: Plane
    K: Array
    R: Array
    t: Array
    covered: NDArray[np.bool_]
    """Pixels of image 2 that show the occluder."""


def two_frames(
    width: int = 160,
    height: int = 120,
    *,
    angle: float = 3.0,
    shift: float = 0.05,
    relief: float = 0.15,
    texture: str = "waves",
    noise: float = 0.01,
    depth_noise: float = 0.002,
    holes: float = 0.05,
    occluder: float = 0.0,
    gain: float = 1.0,
    bias: float = 0.0,
    seed: int = 0,
) -> Frames:
    """Render two views.

    Parameters
    ----------
    angle, shift : rotation in degrees about a random axis, and length of the translation in units of which the scene
        is two away.
    relief : standard deviation of the depth of the surface; 0 for a plane.
    texture : ``"waves"``, or ``"stripes"``, which do not determine the motion along them.
    noise : standard deviation of a pixel's value; values have a mean of 0.5 and a standard deviation of 0.15.
    depth_noise : standard deviation of depth.
    holes : share of pixels without depth, in spots.
    occluder : share of image 2 that is covered by something that image 1 does not show.
    gain, bias : of the light of image 1 with respect to image 2.

    Examples
    --------
    >>> frames = two_frames(64, 48, holes=0.2)
    >>> frames.image1.shape, round(float((frames.depth1 == 0).mean()), 1)
    ((48, 64), 0.2)
    """
    if texture not in TEXTURES:
        raise ValueError(f"texture={texture!r} is not known; choose one of {', '.join(TEXTURES)}")
    rng = np.random.default_rng(seed)
    K = np.array([[0.9 * width, 0.0, 0.5 * width - 0.3], [0.0, 0.9 * width, 0.5 * height + 0.2], [0.0, 0.0, 1.0]])
    pixel = _FAR / K[0, 0]
    shape = _waves(rng, 6, 0.8, 2.5, relief)
    light = _waves(rng, _WAVES, 5.0 * pixel, 0.33 * width * pixel, 0.15, texture == "stripes")
    R = rotation_exp(np.radians(angle) * _unit(rng))
    t = shift * _unit(rng)
    views = []
    for turn, place in ((np.eye(3), np.zeros(3)), (R, t)):
        depth, xy = _render(shape, K, turn, place, (height, width))
        views.append((0.5 + light(xy)[0].reshape(height, width), depth))
    (value1, near), (value2, far) = views
    covered = np.zeros((height, width), dtype=bool)
    if occluder > 0.0:
        side = np.sqrt(occluder)
        top, left = (int(rng.uniform(0.0, 1.0 - side) * n) for n in (height, width))
        covered[top : top + round(side * height), left : left + round(side * width)] = True
        other = _waves(rng, _WAVES, 5.0 * pixel, 0.33 * width * pixel, 0.15)
        y, x = np.mgrid[0:height, 0:width] * pixel
        value2 = np.where(
            covered, 0.6 + other(np.column_stack([x.ravel(), y.ravel()]))[0].reshape(height, width), value2
        )
        far = np.where(covered, 0.7 * _FAR, far)
    value1 = gain * value1 + bias
    images = [(v + noise * rng.normal(size=v.shape)).astype(np.float32) for v in (value1, value2)]
    depths = []
    for depth in (near, far):
        measured = depth + depth_noise * rng.normal(size=depth.shape)
        depths.append(np.where(_spots(rng, depth.shape, holes), 0.0, measured).astype(np.float32))
    return Frames(images[0], depths[0], images[1], depths[1], K, R, t, covered)


def _unit(rng: np.random.Generator) -> Array:
    v = rng.normal(size=3)
    return np.asarray(v / np.linalg.norm(v))


def _waves(
    rng: np.random.Generator, count: int, shortest: float, longest: float, size: float, along: bool = False
) -> Callable[[Array], tuple[Array, Array]]:
    """A sum of waves of this standard deviation: from points (n, 2) to values (n,) and gradients (n, 2)."""
    length = shortest * (longest / shortest) ** rng.uniform(size=count)
    angle = np.zeros(count) if along else rng.uniform(0.0, 2.0 * np.pi, count)
    k = 2.0 * np.pi / length[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    phase = rng.uniform(0.0, 2.0 * np.pi, count)
    height = np.sqrt(length)
    height *= size * np.sqrt(2.0) / np.linalg.norm(height)

    def values(xy: Array) -> tuple[Array, Array]:
        argument = xy @ k.T + phase
        return np.sin(argument) @ height, np.cos(argument) @ (height[:, None] * k)

    return values


def _render(
    shape: Callable[[Array], tuple[Array, Array]], K: Array, R: Array, t: Array, size: tuple[int, int]
) -> tuple[Array, Array]:
    """Depth (rows, columns) and where (x, y) of the surface, (n, 2), the pixels of a camera look."""
    y, x = np.mgrid[0 : size[0], 0 : size[1]]
    rays = np.column_stack([x.ravel(), y.ravel(), np.ones(x.size)]) @ np.linalg.inv(K).T
    rays = rays @ R  # in the frame of camera 1
    origin = -R.T @ t
    depth = np.full(x.size, _FAR)
    for _ in range(20):
        point = origin + depth[:, None] * rays
        height, slope = shape(point[:, :2])
        off = point[:, 2] - (_FAR + height)
        step = off / (rays[:, 2] - (slope * rays[:, :2]).sum(axis=1))
        depth -= step
        if np.abs(step).max() < 1e-10:
            break
    point = origin + depth[:, None] * rays
    return depth.reshape(size), point[:, :2]


def _spots(rng: np.random.Generator, size: tuple[int, int], share: float) -> NDArray[np.bool_]:
    """Random spots of a few pixels that cover this share."""
    from scipy.ndimage import gaussian_filter

    if share <= 0.0:
        return np.zeros(size, dtype=bool)
    field = gaussian_filter(rng.normal(size=size), 2.0)
    return np.asarray(field < np.quantile(field, share))
