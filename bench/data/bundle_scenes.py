"""Simulated bundles of 8 to 1,700 cameras with the covisibility of *Bundle Adjustment in the Large*.

`street`
    A car that drives through streets, as in Ladybug: three cameras look ahead and to both sides, tracks are short, and
    images see only their neighbours in time. The start drifts. ``loop`` closes the way.
`photos`
    Photographs of buildings by strangers, as in Trafalgar, Dubrovnik and Venice: long tracks, all kinds of focal
    lengths, groups of images that see the same front, and a few images that connect two of them.

Observations have 0.7 pixels of noise and 1 % of wrong matches. In every start some points are near or behind a camera.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from problm import Reconstruction
from problm.vision.bundle.camera_models import Intrinsics

Array = NDArray[np.float64]
HALF = (640.0, 480.0)
"""Half of width and height of the images, in pixels."""


def street(images: int, seed: int, *, loop: bool = False, per_image: int = 160) -> Reconstruction:
    """Images along a street; ``per_image`` points of it for every image."""
    rng = np.random.default_rng(seed)
    at = np.arange(images) // 3
    steps = at[-1] + 1
    turn = np.full(steps, 2.0 * np.pi / steps) if loop else np.cumsum(rng.normal(0.0, 0.004, steps))
    heading = np.cumsum(turn + rng.normal(0.0, 0.002, steps))
    if loop:
        heading *= 2.0 * np.pi / heading[-1]
    way = np.cumsum(np.stack([np.sin(heading), np.zeros(steps), np.cos(heading)], axis=1), axis=0)
    look = heading[at] + np.choose(np.arange(images) % 3, [0.0, 0.9, -0.9]) + rng.normal(0.0, 0.01, images)
    R = Rotation.from_rotvec(np.outer(-look, [0.0, 1.0, 0.0])).as_matrix()
    centres = way[at] + rng.normal(0.0, 0.02, (images, 3))
    focal = np.full(images, 700.0) * (1.0 + rng.normal(0.0, 0.01, images))
    count = images * per_image
    s = rng.integers(0, steps, count)
    side = np.where(rng.random(count) < 0.5, -1.0, 1.0) * rng.uniform(3.0, 12.0, count)
    ahead = rng.uniform(0.0, 25.0, count)
    along = np.stack([np.sin(heading), np.zeros(steps), np.cos(heading)], axis=1)[s]
    across = np.stack([np.cos(heading), np.zeros(steps), -np.sin(heading)], axis=1)[s]
    X = way[s] + ahead[:, None] * along + side[:, None] * across
    X[:, 1] += rng.uniform(-4.0, 2.0, count)
    near = s[:, None] * 3 + np.arange(-9, 27)  # images at which a point may be seen
    near = near % images if loop else np.where((near >= 0) & (near < images), near, -1)
    pairs = _seen(rng, R, centres, focal, X, near, farthest=30.0, most=8)
    # Drift: a random walk of rotation and position along the way.
    drift = np.cumsum(rng.normal(0.0, 0.0008, (steps, 3)), axis=0)[at]
    walk = np.cumsum(rng.normal(0.0, 0.006, (steps, 3)), axis=0)[at]
    return _start(rng, R, centres, focal, X, pairs, drift, walk, turn=0.003, shift=0.03, focals=0.02, depth=0.05)


def photos(images: int, seed: int, *, group: int = 40, per_image: int = 120, most: int = 60) -> Reconstruction:
    """Photographs of ``images / group`` fronts."""
    rng = np.random.default_rng(seed)
    groups = max(1, round(images / group))
    which = rng.integers(0, groups, images)
    front = np.stack([30.0 * np.arange(groups), np.zeros(groups), 3.0 * rng.normal(size=groups)], axis=1)
    angle = rng.normal(0.0, 0.45, images)
    distance = rng.lognormal(3.1, 0.35, images)
    centres = front[which] + distance[:, None] * np.stack([np.sin(angle), 0.0 * angle, -np.cos(angle)], axis=1)
    centres += rng.normal(0.0, 1.0, (images, 3))
    # Every sixth photograph looks between two fronts.
    between = (rng.random(images) < 1 / 6) & (which < groups - 1)
    target = (
        front[which] + rng.normal(0.0, [4.0, 2.0, 0.5], (images, 3)) + between[:, None] * np.array([15.0, 0.0, 0.0])
    )
    R = _looking(centres, target)
    focal = 900.0 * rng.lognormal(0.0, 0.3, images)
    count = images * per_image
    home = rng.integers(0, groups, count)
    X = front[home] + np.stack(
        [rng.uniform(-14, 14, count), rng.uniform(-8, 5, count), rng.gamma(1.5, 1.5, count)], axis=1
    )
    slots = int(min(images, 4 * group))
    order = np.argsort(which, kind="stable")
    first = np.searchsorted(which[order], home)
    near = order[np.clip(first[:, None] - group // 2 + rng.permuted(np.tile(np.arange(slots), (count, 1)), axis=1)
                         [:, : 2 * group], 0, images - 1)]  # fmt: skip
    pairs = _seen(rng, R, centres, focal, X, near, farthest=90.0, most=most, popular=True)
    none = np.zeros((images, 3))
    return _start(rng, R, centres, focal, X, pairs, none, none, turn=0.01, shift=0.15, focals=0.05, depth=0.03)


def _looking(centres: Array, target: Array) -> Array:
    z = target - centres
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    x = np.cross([0.0, 1.0, 0.0], z)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return np.stack([x, np.cross(z, x), z], axis=1)


def _seen(
    rng: np.random.Generator, R: Array, centres: Array, focal: Array, X: Array, near: NDArray[np.int64],
    *, farthest: float, most: int, popular: bool = False,
) -> NDArray[np.int64]:  # fmt: skip
    """(M, 2) pairs of point and image: in front, inside of the image, not too far, at most ``most`` per point."""
    kept = []
    for a in range(0, len(X), 20_000):
        images, mine = near[a : a + 20_000], X[a : a + 20_000]
        i = np.maximum(images, 0)
        x = np.einsum("pkij,pkj->pki", R[i], mine[:, None] - centres[i])
        z = x[..., 2]
        with np.errstate(divide="ignore", invalid="ignore"):
            u, v = focal[i] * x[..., 0] / z, focal[i] * x[..., 1] / z
        ok = (images >= 0) & (z > 1.5) & (z < farthest) & (abs(u) < HALF[0]) & (abs(v) < HALF[1])
        ok &= rng.random(ok.shape) < (rng.beta(0.6, 2.0, (len(ok), 1)) if popular else 0.7)
        ok &= np.cumsum(ok, axis=1) <= rng.integers(2, most + 1, (len(ok), 1))
        p, k = np.nonzero(ok)
        kept.append(np.stack([a + p, images[p, k]], axis=1))
    pairs = np.unique(np.concatenate(kept), axis=0)
    length = np.bincount(pairs[:, 0], minlength=len(X))
    return pairs[length[pairs[:, 0]] >= 2]


def _start(
    rng: np.random.Generator, R: Array, centres: Array, focal: Array, X: Array, pairs: NDArray[np.int64],
    drift: Array, walk: Array, *, turn: float, shift: float, focals: float, depth: float,
) -> Reconstruction:  # fmt: skip
    """A reconstruction with noisy observations whose cameras and points are off."""
    used, point = np.unique(pairs[:, 0], return_inverse=True)
    X, image, C = X[used], pairs[:, 1], len(R)
    x = np.einsum("mij,mj->mi", R[image], X[point] - centres[image])
    u = x[:, :2] / x[:, 2:]
    q = (u**2).sum(axis=1, keepdims=True)
    k1, k2 = rng.normal(-0.03, 0.01, C), rng.normal(0.005, 0.002, C)
    xy = focal[image, None] * u * (1.0 + q * (k1[image, None] + q * k2[image, None]))
    xy += rng.normal(0.0, 0.7, xy.shape)
    wrong = rng.random(len(xy)) < 0.01
    xy[wrong] += rng.normal(0.0, 30.0, (int(wrong.sum()), 2))
    cameras = tuple(
        Intrinsics("RADIAL", (f, 0.0, 0.0, 0.0, 0.0), id=i + 1)
        for i, f in enumerate(focal * (1.0 + rng.normal(0.0, focals, C)))
    )
    # A point drifts with the first image that sees it, and its depth from there is off; of some by far.
    first = image[np.searchsorted(point, np.arange(len(X)))]
    ray = X - centres[first]
    share = 1.0 + rng.normal(0.0, depth, len(X))
    draw = rng.random(len(X))
    near, behind = draw < 0.003, draw > 0.999
    share[near] = rng.uniform(0.5, 0.9, int(near.sum()))
    share[behind] = rng.uniform(-0.3, -0.1, int(behind.sum()))
    turns = Rotation.from_rotvec(drift)
    moved = centres + walk
    points = moved[first] + turns[first].apply(ray * share[:, None])
    off = Rotation.from_rotvec(rng.normal(0.0, turn, (C, 3))).as_matrix() @ R @ turns.inv().as_matrix()
    where = moved + rng.normal(0.0, shift, (C, 3))
    t = -np.einsum("cij,cj->ci", off, where)
    return Reconstruction.from_arrays(off, t, cameras, points, np.column_stack([image, point, xy]), camera=np.arange(C))
