r"""Two clouds of a random surface with known motion, for examples, tests and benchmarks.

Both clouds are independent samples of the same surface, so no source point has an exact counterpart. The surfaces:
``"blob"``, a closed surface with bumps of many sizes; ``"room"``, five walls of a box with boxes and balls in it;
``"plane"``, ``"sphere"`` and ``"cylinder"``, which do not determine all of a motion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...manifolds import rotation_exp

Array = NDArray[np.float64]
Sampler = Callable[[int], Array]
SHAPES = ("blob", "room", "plane", "sphere", "cylinder")


@dataclass(frozen=True)
class Clouds:
    """Source and target with the motion between them: ``target ~ scale R source + t``."""

    source: Array
    """(n, 3)"""
    target: Array
    """(m, 3)"""
    R: Array
    t: Array
    scale: float
    shared: NDArray[np.bool_]
    """(n,) which source points lie on the part of the surface that the target shows."""


def two_clouds(
    n: int,
    m: int | None = None,
    *,
    shape: str = "blob",
    noise: float = 0.005,
    overlap: float = 1.0,
    outliers: float = 0.0,
    angle: float = 10.0,
    shift: float = 0.1,
    scale: float = 1.0,
    seed: int = 0,
) -> Clouds:
    """Simulate ``n`` source and ``m`` (by default n) target points.

    Parameters
    ----------
    shape : one of `SHAPES`; all are about two units wide.
    noise : standard deviation of every coordinate in both clouds.
    overlap : share of the source that lies on the part of the surface that the target shows.
    outliers : share of points in both clouds that are uniform in a box instead.
    angle, shift : rotation in degrees about a random axis, and length of the translation.

    Examples
    --------
    >>> clouds = two_clouds(1000, overlap=0.6)
    >>> clouds.source.shape, round(float(clouds.shared.mean()), 1)
    ((1000, 3), 0.6)
    """
    if shape not in SHAPES:
        raise ValueError(f"shape={shape!r} is not known; choose one of {', '.join(SHAPES)}")
    rng = np.random.default_rng(seed)
    m = n if m is None else m
    make = _surface(shape, rng)
    along = _unit(rng.normal(size=3))
    # Cut the same share off both: the target on one side, the source on the other.
    heights = np.sort(make(20_000) @ along)
    cut = 1.0 / (2.0 - overlap)
    high, low = heights[min(int(cut * 20_000), 19_999)], heights[int((1.0 - cut) * 20_000)]
    first = _kept(make, n, lambda x: x @ along <= high if overlap < 1.0 else np.ones(len(x), dtype=bool))
    second = _kept(make, m, lambda x: x @ along >= low if overlap < 1.0 else np.ones(len(x), dtype=bool))
    shared = first @ along >= low if overlap < 1.0 else np.ones(n, dtype=bool)
    R = rotation_exp(np.radians(angle) * _unit(rng.normal(size=3)))
    t = shift * _unit(rng.normal(size=3))
    source, target = first + noise * rng.normal(size=first.shape), second + noise * rng.normal(size=second.shape)
    for cloud in (source, target):
        wrong = rng.uniform(size=len(cloud)) < outliers
        cloud[wrong] = rng.uniform(-1.2, 1.2, size=(int(wrong.sum()), 3))
        shared = shared & ~wrong if cloud is source else shared
    # The source is given before the motion.
    return Clouds((source - t) @ R / scale, target, R, t, scale, shared)


def _unit(v: Array) -> Array:
    return np.asarray(v / np.linalg.norm(v))


def _kept(make: Sampler, n: int, keep: Callable[[Array], NDArray[np.bool_]]) -> Array:
    """n points of the surface that are kept."""
    found: list[Array] = []
    while sum(map(len, found)) < n:
        points = make(n + 100)
        found.append(points[keep(points)])
    return np.concatenate(found)[:n]


def _surface(shape: str, rng: np.random.Generator) -> Sampler:
    """A function that samples n points (n, 3) of the surface."""

    def directions(n: int) -> Array:
        u = rng.normal(size=(n, 3))
        return np.asarray(u / np.linalg.norm(u, axis=1, keepdims=True))

    if shape == "sphere":
        return directions
    if shape == "plane":
        return lambda n: np.column_stack([rng.uniform(-1.0, 1.0, size=(n, 2)), np.zeros(n)])
    if shape == "cylinder":
        return lambda n: np.column_stack([0.5 * _circle(rng.uniform(0.0, 2 * np.pi, n)), rng.uniform(-1.0, 1.0, n)])
    if shape == "blob":
        waves, phases = rng.normal(size=(24, 3)) * np.linspace(2.0, 8.0, 24)[:, None], rng.uniform(0.0, 6.28, 24)
        heights = 0.12 / np.linspace(1.0, 4.0, 24)

        def blob(n: int) -> Array:
            u = directions(n) * [1.0, 0.8, 0.6]
            return np.asarray(u * (1.0 + np.sin(u @ waves.T + phases) @ heights)[:, None])

        return blob
    boxes = [(rng.uniform(-0.7, 0.7, 3), rng.uniform(0.1, 0.3, 3)) for _ in range(3)]
    balls = [(rng.uniform(-0.7, 0.7, 3), rng.uniform(0.1, 0.25)) for _ in range(3)]

    def faces(n: int, centre: Array, half: Array, count: int) -> Array:
        x = rng.uniform(-1.0, 1.0, size=(n, 3))
        face = rng.integers(count, size=n)
        x[np.arange(n), face % 3] = np.where(face < 3, -1.0, 1.0)
        return np.asarray(centre + half * x)

    def room(n: int) -> Array:
        kind = rng.integers(12, size=n)
        x = faces(n, np.zeros(3), np.array([1.0, 0.8, 0.6]), 5)
        for k, (centre, half) in enumerate(boxes):
            at = kind == k
            x[at] = faces(int(at.sum()), centre * 0.6, half, 6)
        for k, (centre, radius) in enumerate(balls):
            at = kind == 3 + k
            x[at] = centre * 0.6 + radius * directions(int(at.sum()))
        return x

    return room


def _circle(angle: Array) -> Array:
    return np.column_stack([np.cos(angle), np.sin(angle)])
