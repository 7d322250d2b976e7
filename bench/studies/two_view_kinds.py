"""Scenes of many kinds for robust two-view estimation, in two halves: settings are chosen on the first, figures come
from the second.

Simulated kinds (every scene follows from its kind, half and number):

``facade``
    A building with a grid of equal windows on two walls, seen 15 to 50 degrees apart. Features of a window are
    matched to the same features of another window, many of them by one common shift, so false geometries agree with
    each other; noise differs from match to match (median 0.25 to 0.5 px, long tails) as scales of features do.
``facade, cut``
    The same after a ratio test, which removes most ambiguous and random matches.
``internet``, ``internet, cut``
    Photographs by two cameras of unequal size, focal lengths known to 0.3 %, clumped keypoints, 10 to 30 % inliers
    (with a cut 30 to 70 % of fewer matches), noise with a median of 0.7 px and long tails, in image 2 by its scale.
``fine``, ``coarse``
    Gaussian noise of 0.3 px and 2 px, 20 to 60 % inliers, uniform outliers.
``forward``
    Motion along the optical axis.
``relief``
    A plane with relief of 1 to 3 % of its distance.
``few``
    20 to 500 matches, 75 % inliers.

Real kinds: ``strecha`` (with all matches and with ratio cuts of 0.8 and 0.9; every other pair is in the other half)
and ``castle``: real keypoints and tracks of a COLMAP model, with matches of unrelated keypoints as outliers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from problm.vision.two_view.simulate import two_views

from ..data import sources

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Scene:
    """Matches with the truth."""

    x1: Array
    x2: Array
    K1: Array
    K2: Array
    R: Array
    t: Array
    exact: Array
    """(m, 4) true correspondences without noise (real pairs: with little), to judge F by."""
    H: Array | None = None
    size: tuple[int, int] = (640, 480)


def generator(kind: str, half: int, number: int) -> np.random.Generator:
    return np.random.default_rng([zlib.crc32(kind.encode()), half, number])


def turned(rng: np.random.Generator, angle: float) -> Array:
    """A rotation by a vector of Gaussian components of ``angle`` radians."""
    from scipy.spatial.transform import Rotation

    matrix: Array = Rotation.from_rotvec(angle * rng.normal(size=3)).as_matrix()
    return matrix


def camera_matrix(width: float, height: float, focal: float) -> Array:
    return np.array([[focal, 0.0, width / 2], [0.0, focal, height / 2], [0.0, 0.0, 1.0]])


def looking_at(centre: Array, target: Array, rng: np.random.Generator, roll: float) -> Array:
    """World-to-camera rotation of a camera at ``centre`` that looks at ``target``; y points down."""
    z = (target - centre) / np.linalg.norm(target - centre)
    x = np.cross(np.array([0.0, 1.0, 0.0]), z)
    x /= np.linalg.norm(x)
    R = np.array([x, np.cross(z, x), z])
    a = roll * rng.normal()
    spin: Array = np.array([[np.cos(a), -np.sin(a), 0.0], [np.sin(a), np.cos(a), 0.0], [0.0, 0.0, 1.0]]) @ R
    return spin


def project(X: Array, K: Array, R: Array, C: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Pixels (n, 2) of points, and whether they are within the image."""
    Y = (X - C) @ R.T
    z = np.where(Y[:, 2] > 0.1, Y[:, 2], np.nan)
    x = Y[:, :2] / z[:, None] * K[[0, 1], [0, 1]] + K[:2, 2]
    with np.errstate(invalid="ignore"):
        inside = (x > 0).all(axis=1) & (x < 2.0 * K[:2, 2]).all(axis=1)
    return x, inside


def relative(R1: Array, C1: Array, R2: Array, C2: Array) -> tuple[Array, Array]:
    t = R2 @ (C1 - C2)
    return R2 @ R1.T, t / np.linalg.norm(t)


def shuffled(
    rng: np.random.Generator, parts: list[Array], K1: Array, K2: Array, pose: tuple[Array, Array], exact: Array
) -> Scene:
    x = np.concatenate(parts)
    x = x[rng.permutation(len(x))]
    return Scene(np.ascontiguousarray(x[:, :2]), np.ascontiguousarray(x[:, 2:]), K1, K2, *pose, exact)


def noisy(rng: np.random.Generator, exact: Array, median: float, tail: float, second: float = 1.0) -> Array:
    """Matches with noise whose level differs from match to match: its logarithm has the deviation ``tail``."""
    sigma = median * np.exp(tail * rng.normal(size=(len(exact), 1)))
    scale = sigma * np.array([1.0, 1.0, second, second])
    disturbed: Array = exact + scale * rng.normal(size=exact.shape)
    return disturbed


def windows(rng: np.random.Generator) -> tuple[Array, Array]:
    """Points of a building, and for each (wall, column, row, feature); -1 for what occurs once."""
    across, up, features = int(rng.integers(5, 10)), int(rng.integers(3, 6)), int(rng.integers(12, 30))
    wide, high = rng.uniform(1.5, 3.0), rng.uniform(2.0, 3.5)
    points, names = [], []
    for wall in range(2):
        pattern = np.column_stack([
            rng.uniform(0.0, 0.8 * wide, features), rng.uniform(0.0, 0.7 * high, features),
            rng.choice([0.0, 0.0, -0.3, 0.2], features),
        ])  # fmt: skip
        for i in range(across):
            for j in range(up):
                p = pattern + np.array([i * wide, -j * high, 0.0])
                points.append(p if wall == 0 else np.column_stack([p[:, 2], p[:, 1], p[:, 0]]) * [1.0, 1.0, -1.0])
                names.append(np.column_stack([np.full((features, 3), [wall, i, j]), np.arange(features)]))
    once = int(rng.integers(50, 400))
    clutter = rng.uniform(0.0, 1.0, (once, 3)) * [across * wide, up * high, 3.0] + [0.0, -up * high, -3.0]
    return np.concatenate([*points, clutter]), np.concatenate([*names, np.full((once, 4), -1)])


def facade(kind: str, half: int, number: int) -> Scene:
    rng = generator(kind, half, number)
    cut = kind.endswith("cut")
    while True:
        width, height = rng.choice([[1536, 1024], [3072, 2048]])
        K = camera_matrix(width, height, rng.uniform(0.9, 1.4) * width)
        X, names = windows(rng)
        middle = np.median(X, axis=0)
        views = []
        first, apart = rng.uniform(-0.2, 1.0), np.radians(rng.uniform(15.0, 50.0)) * rng.choice([-1.0, 1.0])
        for angle in (first, first + apart):
            far = rng.uniform(12.0, 20.0)
            C = middle + np.array([far * np.sin(angle), rng.normal(), -far * np.cos(angle)])
            views.append((looking_at(C, middle + rng.normal(size=3), rng, 0.03), C))
        (a, in1), (b, in2) = (project(X, K, R, C) for R, C in views)
        seen = np.flatnonzero(in1 & in2)
        if len(seen) > 250:
            break
    grid = {tuple(name): k for k, name in enumerate(names.tolist()) if name[0] >= 0}
    common = int(rng.choice([-2, -1, 1, 2])), int(rng.choice([-1, 0, 0, 0, 1]))
    right, random = (rng.uniform(0.3, 0.8), 0.2) if cut else (rng.uniform(0.05, 0.4), rng.uniform(0.5, 2.0))
    true, false = [], []
    for k in seen:
        wall, i, j, f = names[k].tolist()
        if rng.random() < (1.5 * right if wall < 0 else right):
            true.append(k)
            continue
        di, dj = common if rng.random() < 0.5 else (int(rng.integers(-3, 4)), int(rng.integers(-1, 2)))
        other = grid.get((wall, i + di, j + dj, f)) if wall >= 0 else None
        if other is not None and in2[other]:
            false.append((k, other))
    exact = np.concatenate([a[true], b[true]], axis=1)
    noise = rng.uniform(0.25, 0.5)
    parts = [noisy(rng, exact, noise, 0.8)]
    if false:
        k, other = np.array(false).T
        parts.append(noisy(rng, np.concatenate([a[k], b[other]], axis=1), noise, 0.8))
    wrong = int(random * len(seen))
    parts.append(rng.uniform(size=(wrong, 4)) * [width, height, width, height])
    (R1, C1), (R2, C2) = views
    return shuffled(rng, parts, K, K, relative(R1, C1, R2, C2), exact)


def clumps(rng: np.random.Generator, n: int, width: float, height: float) -> Array:
    """Keypoints (n, 2) where the image has texture."""
    centres = rng.uniform(size=(12, 2)) * [width, height]
    x = centres[rng.integers(12, size=n)] + rng.normal(size=(n, 2)) * rng.uniform(0.02, 0.12) * width
    return np.clip(x, 0.0, [width, height])


def internet(kind: str, half: int, number: int) -> Scene:
    rng = generator(kind, half, number)
    cut = kind.endswith("cut")
    while True:
        n = int(rng.integers(100, 700)) if cut else int(rng.integers(400, 4000))
        share = rng.uniform(0.3, 0.7) if cut else rng.uniform(0.1, 0.3)
        true = int(share * n)
        sizes = [rng.choice([[1024, 768], [768, 1024], [640, 480]]) for _ in range(2)]
        K1, K2 = (camera_matrix(*size, rng.uniform(0.8, 1.8) * max(size)) for size in sizes)
        # A facade with relief, and things before it.
        m = 8 * true + 200
        X = np.column_stack([rng.uniform(-12.0, 12.0, m), rng.uniform(-8.0, 3.0, m), 0.3 * rng.normal(size=m)])
        X[rng.random(m) < 0.3, 2] -= rng.uniform(0.0, 6.0)
        first, apart = rng.normal() * 0.3, np.radians(rng.uniform(5.0, 45.0)) * rng.choice([-1.0, 1.0])
        views = []
        for angle in (first, first + apart):
            far = rng.uniform(10.0, 30.0)
            C = np.array([far * np.sin(angle), rng.normal(), -far * np.cos(angle)])
            views.append((looking_at(C, rng.normal(size=3) * [2.0, 1.0, 0.0] - [0.0, 2.0, 0.0], rng, 0.05), C))
        (a, in1), (b, in2) = (project(X, K, R, C) for K, (R, C) in zip((K1, K2), views, strict=True))
        seen = np.flatnonzero(in1 & in2)[:true]
        if len(seen) > 0.8 * true:
            break
    exact = np.concatenate([a[seen], b[seen]], axis=1)
    (R1, C1), (R2, C2) = views
    nearer = (K2[0, 0] / np.linalg.norm(C2)) / (K1[0, 0] / np.linalg.norm(C1))
    matches = noisy(rng, exact, 0.7 / max(1.0, nearer) ** 0.5, 0.5, float(np.clip(nearer, 0.4, 2.5)))
    wrong = np.concatenate([clumps(rng, n - len(seen), *size) for size in sizes], axis=1)
    some = wrong[rng.integers(len(wrong), size=len(wrong))]
    again = rng.random(len(wrong)) < 0.2  # points that several others are matched to
    wrong[again, 2:] = some[again, 2:]
    for K in (K1, K2):
        K[[0, 1], [0, 1]] *= 1.0 + 0.003 * rng.normal()
    return shuffled(rng, [matches, wrong], K1, K2, relative(R1, C1, R2, C2), exact)


def plain(kind: str, half: int, number: int) -> Scene:
    rng = generator(kind, half, number)
    seed = int(rng.integers(2**31))
    n, share, noise = int(rng.integers(300, 3000)), rng.uniform(0.2, 0.6), 0.5
    more: dict[str, object] = {}
    if kind == "fine":
        noise = 0.3
    elif kind == "coarse":
        noise = 2.0
    elif kind == "forward":
        t = np.array([0.1 * rng.normal(), 0.1 * rng.normal(), rng.choice([-1.0, 1.0])])
        share, more = rng.uniform(0.3, 0.7), {"t": t, "turn": 0.05, "depth": (3.0, 15.0)}
    elif kind == "few":
        n, share = int(np.exp(rng.uniform(np.log(20), np.log(500)))), 0.75
    v = two_views(n, inliers=share, noise=0.0, seed=seed, **more)  # type: ignore[arg-type]
    exact = np.concatenate([v.x1, v.x2], axis=1)
    x = exact + noise * rng.normal(size=exact.shape)
    return Scene(x[:, :2].copy(), x[:, 2:].copy(), v.K, v.K, v.R, v.t, exact[v.inliers])


def relief(kind: str, half: int, number: int) -> Scene:
    """A plane with relief; ``plane``: without any, and its homography."""
    rng = generator(kind, half, number)
    share, n = rng.uniform(0.2, 0.6), int(rng.integers(300, 2000))
    K = camera_matrix(1024, 768, 1000.0)
    while True:
        R, t, m = turned(rng, 0.15), rng.normal(size=3), 4 * n
        t *= rng.uniform(0.5, 1.5) / np.linalg.norm(t)
        normal = np.array([0.4 * rng.normal(), 0.4 * rng.normal(), 1.0])
        normal /= np.linalg.norm(normal)
        a = rng.uniform(size=(m, 2)) * [1024, 768]
        rays = np.column_stack([(a - K[:2, 2]) / K[0, 0], np.ones(m)])
        d = 6.0 * (1.0 + (0.0 if kind.startswith("plane") else rng.uniform(0.01, 0.03)) * rng.normal(size=m))
        b, inside = project(rays * (d / (rays @ normal))[:, None], K, R, -R.T @ t)
        seen = np.flatnonzero(inside & (rays @ normal > 0.1))[: int(share * n)]
        if len(seen) == int(share * n):
            break
    exact = np.concatenate([a[seen], b[seen]], axis=1)
    if kind == "plane, coarse":
        matches = noisy(rng, exact, 2.0, 0.0)
    else:
        matches = noisy(rng, exact, rng.uniform(0.3, 1.0), 0.5)
    wrong = rng.uniform(size=(n - len(seen), 4)) * [1024, 768, 1024, 768]
    H = K @ (R + np.outer(t, normal) / 6.0) @ np.linalg.inv(K)
    x = np.concatenate([matches, wrong])[rng.permutation(n)]
    return Scene(x[:, :2].copy(), x[:, 2:].copy(), K, K, R, t / np.linalg.norm(t), exact, H, (1024, 768))


@lru_cache(maxsize=1)
def _strecha_names(data: str) -> list[str]:
    return sources.strecha_pairs(data)


def strecha(kind: str, half: int, number: int, data: str) -> Scene | None:
    names = _strecha_names(data)[half::2]
    if number >= 2 * len(names):
        return None
    pair, order = names[number % len(names)], number // len(names)
    m = sources.strecha(data, pair, order)
    keep = np.ones(len(m.x1), dtype=bool)
    if "," in kind:
        scene, numbers = pair.split("/")
        with np.load(Path(data, "strecha", scene, "sift_putative.npz")) as file:
            rows = file[f"pair_{numbers}"]
        ratio = rows[np.random.default_rng(order).permutation(len(rows)), 4]
        keep = ratio < float(kind.split()[-1])
    error = sources.sampson(m.x1, m.x2, m.K, m.R, m.t)
    exact = np.concatenate([m.x1, m.x2], axis=1)[error < 0.5]
    return Scene(m.x1[keep], m.x2[keep], m.K, m.K, m.R, m.t, exact)


@lru_cache(maxsize=1)
def _castle(data: str) -> list[tuple[Array, Array, Array, NDArray[np.int64]]]:
    """Rotation, translation, keypoints in pixels of an ideal lens, and the point of each (-1: none), of each view."""
    from scipy.spatial.transform import Rotation

    from problm.vision.two_view.matches import undistort

    views = []
    lines = [s for s in Path(data, "colmap_sceaux_castle", "images.txt").read_text().splitlines() if s[:1] != "#"]
    for head, body in zip(lines[::2], lines[1::2], strict=True):
        q = np.array(head.split()[1:8], dtype=float)
        rows = np.array(body.split(), dtype=float).reshape(-1, 3)
        R = Rotation.from_quat(q[[1, 2, 3, 0]]).as_matrix()
        x = undistort(rows[:, :2], camera_matrix(2832, 2128, 2971.71), [-0.164224])
        views.append((R, q[4:7], x, rows[:, 2].astype(np.int64)))
    return views


def castle(kind: str, half: int, number: int, data: str) -> Scene | None:
    rng = generator(kind, half, number)
    views = _castle(data)
    pairs = [(i, j) for i in range(len(views)) for j in range(i) if len(_common(views, i, j)[0]) >= 60][half::2]
    if number >= len(pairs):
        return None
    i, j = pairs[number]
    R = views[j][0] @ views[i][0].T
    t = views[j][1] - R @ views[i][1]
    k, m = _common(views, i, j)
    some = rng.random(len(k)) < rng.uniform(0.2, 0.8)
    exact = np.concatenate([views[i][2][k[some]], views[j][2][m[some]]], axis=1)
    alone = [views[v][2][views[v][3] < 0] for v in (i, j)]
    n = int(len(exact) * rng.uniform(0.5, 4.0))
    wrong = np.concatenate([a[rng.integers(len(a), size=n)] for a in alone], axis=1)
    K = camera_matrix(2832, 2128, 2971.71)
    return shuffled(rng, [exact, wrong], K, K, (R, t / np.linalg.norm(t)), exact)


def _common(views: list[tuple[Array, Array, Array, NDArray[np.int64]]], i: int, j: int) -> tuple[Array, Array]:
    first, second = views[i][3], views[j][3]
    _, k, m = np.intersect1d(np.where(first < 0, -1, first), np.where(second < 0, -2, second), return_indices=True)
    return k, m


@lru_cache(maxsize=64)
def _sift(data: str, folder: str, k: int) -> tuple[Array, Array, Array]:
    """Keypoints of image 1 and image k and their ratios, matched by OpenCV."""
    import cv2

    found = []
    for number in (1, k):
        image = cv2.imread(str(Path(data, "oxford_affine", folder, f"img{number}.png")), 0)
        found.append(cv2.SIFT_create(4000).detectAndCompute(image, None))
    (p, d), (q, e) = found
    pairs = cv2.BFMatcher().knnMatch(d, e, k=2)
    x1 = np.array([p[m.queryIdx].pt for m, _ in pairs])
    x2 = np.array([q[m.trainIdx].pt for m, _ in pairs])
    return x1, x2, np.array([m.distance / max(o.distance, 1e-9) for m, o in pairs])


OXFORD = [(f, k) for f in ("bikes", "boat", "graf", "leuven", "ubc") for k in (2, 3)] + [("graf", 4)]


def oxford(kind: str, half: int, number: int, data: str) -> Scene | None:
    import cv2

    choices = OXFORD[half::2]
    if number >= len(choices):
        return None
    folder, k = choices[number]
    x1, x2, ratio = _sift(data, folder, k)
    keep = ratio < (float(kind.split()[-1]) if "," in kind else 2.0)
    storage = cv2.FileStorage(str(Path(data, "oxford_affine", folder, f"H1to{k}p.xml")), cv2.FILE_STORAGE_READ)
    H = storage.getFirstTopLevelNode().mat()
    height, width = cv2.imread(str(Path(data, "oxford_affine", folder, "img1.png")), 0).shape
    eye = np.eye(3)
    return Scene(x1[keep], x2[keep], eye, eye, eye, eye[0], np.empty((0, 4)), H, (width, height))


SIMULATED: dict[str, Callable[[str, int, int], Scene]] = {
    "facade": facade, "facade, cut": facade, "internet": internet, "internet, cut": internet,
    "fine": plain, "coarse": plain, "forward": plain, "few": plain, "relief": relief,
}  # fmt: skip
REAL: dict[str, Callable[[str, int, int, str], Scene | None]] = {
    "strecha": strecha, "strecha, 0.9": strecha, "strecha, 0.8": strecha, "castle": castle,
}  # fmt: skip
PLANES: dict[str, Callable[[str, int, int], Scene]] = {"plane": relief, "plane, coarse": relief}
REAL_PLANES: dict[str, Callable[[str, int, int, str], Scene | None]] = {"oxford": oxford, "oxford, 0.8": oxford}


def scenes(kind: str, half: int, count: int, data: str | None) -> Iterator[Scene]:
    """Scenes of a kind and a half, at most ``count``."""
    for number in range(count):
        if kind in SIMULATED or kind in PLANES:
            yield (SIMULATED | PLANES)[kind](kind, half, number)
        elif data is not None:
            scene = (REAL | REAL_PLANES)[kind](kind, half, number, data)
            if scene is None:
                return
            yield scene
