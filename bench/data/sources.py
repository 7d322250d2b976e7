"""The real data sets, if their folder is given: image pairs, matches with ground truth, a reconstruction.

Their README describes content and terms. A missing file raises an error that names it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .stand_ins import Matches, Tracks, moved_corners

Array = NDArray[np.float64]

PAPER_PAIRS = ("head", "hartley", "unionhouse", "oldclassicswing", "johnssonb", "napiera")
"""Image pairs of Fig. 1, in its order."""
DINO = "dino1"
"""The pair of the authors' own demo."""
MORE_PAIRS = ("barrsmith", "library", "elderhalla", "sene")
"""Image pairs in place of the four of the supplement (its Fig. 4 uses pairs of ETH3D)."""


def folder_of(name: str) -> str:
    return "problm_dino" if name == DINO else "adelaidemrf"


def adelaide_files(data: str, name: str) -> tuple[str, str]:
    """The two images of a pair of AdelaideRMF, or of the authors' demo."""
    found = []
    for side in "AB":
        choices = [Path(data, folder_of(name), f"{name}{side}.{kind}") for kind in ("png", "jpg")]
        there = [p for p in choices if p.exists()]
        if not there:
            raise FileNotFoundError(f"data: neither {choices[0]} nor {choices[1].name} is there")
        found.append(str(there[0]))
    return found[0], found[1]


def adelaide_images(data: str, name: str, most: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The two images in grey, halved until they have at most ``most`` pixels."""
    from problm.vision.images.image import read_image
    from problm.vision.images.pyramid import halve

    found = []
    for path, which in zip(adelaide_files(data, name), ("image1", "image2"), strict=True):
        image = read_image(path, which)
        while image.shape[0] * image.shape[1] > most:
            image = halve(image)
        found.append(image.values())
    return found[0], found[1]


def strecha_pairs(data: str) -> list[str]:
    """``scene/AAAA_BBBB`` of all pairs with matches."""
    names = []
    for scene in ("fountain-P11", "Herz-Jesus-P8"):
        with np.load(Path(data, "strecha", scene, "sift_putative.npz")) as file:
            names += [f"{scene}/{key.removeprefix('pair_')}" for key in file.files]
    return names


def strecha(data: str, pair: str, seed: int, *, within: float | None = None) -> Matches:
    """The putative matches of a pair, shuffled; with ``within`` only those within that many pixels of the true pose."""
    scene, numbers = pair.split("/")
    first, second = numbers.split("_")
    folder = Path(data, "strecha", scene)
    with np.load(folder / "sift_putative.npz") as file:
        rows = file[f"pair_{numbers}"]
    K1, R1, C1 = _camera(folder / f"{first}.jpg.camera")
    K2, R2, C2 = _camera(folder / f"{second}.jpg.camera")
    assert np.allclose(K1, K2)
    R = R2 @ R1.T
    t = R2 @ (C1 - C2)
    t /= np.linalg.norm(t)
    rows = rows[np.random.default_rng(seed).permutation(len(rows))]  # the file is sorted by quality
    x1, x2 = rows[:, :2].astype(float), rows[:, 2:4].astype(float)
    error = sampson(x1, x2, K1, R, t)
    inlier = error < 2.0
    keep = np.ones(len(rows), dtype=bool) if within is None else error < within
    return Matches(x1[keep], x2[keep], K1, R, t, inlier[keep])


def eth3d_putative(data: str, seed: int) -> Matches:
    """The authors' own putative matches, normalised and shuffled. Neither pose nor inliers are known (both are set to
    something), and the matches are degenerate: good for the convergence on a fixed cost only."""
    rows = np.loadtxt(Path(data, "eth3d_putative", "putative.txt"), skiprows=1)
    rows = rows[np.random.default_rng(seed).permutation(len(rows))]
    nothing = np.zeros(len(rows), dtype=bool)
    return Matches(rows[:, :2].copy(), rows[:, 2:4].copy(), np.eye(3), np.eye(3), np.array([1.0, 0.0, 0.0]), nothing)


def strecha_cameras(data: str, scene: str) -> list[tuple[Array, Array]]:
    """World-to-camera rotation and centre of each view of a scene."""
    return [_camera(path)[1:] for path in sorted(Path(data, "strecha", scene).glob("*.camera"))]


def _camera(path: Path) -> tuple[Array, Array, Array]:
    """K, the world-to-camera rotation and the centre."""
    rows = [[float(v) for v in line.split()] for line in path.read_text().splitlines() if line.strip()]
    return np.array(rows[0:3]), np.array(rows[4:7]).T, np.array(rows[7])


def sampson(x1: Array, x2: Array, K: Array, R: Array, t: Array) -> Array:
    """Sampson distances (n,) in pixels."""
    inverse = np.linalg.inv(K)
    cross = np.array([[0, -t[2], t[1]], [t[2], 0, -t[0]], [-t[1], t[0], 0]])
    F = inverse.T @ cross @ R @ inverse
    a = np.c_[x1, np.ones(len(x1))] @ F.T
    b = np.c_[x2, np.ones(len(x2))] @ F
    c = (np.c_[x2, np.ones(len(x2))] * a).sum(axis=1)
    return np.abs(c) / np.sqrt(a[:, 0] ** 2 + a[:, 1] ** 2 + b[:, 0] ** 2 + b[:, 1] ** 2)


def castle_tracks(data: str, views: int, points: int | None, seed: int) -> Tracks:
    """Adjacent views of the COLMAP model and the points that all of them see, with perturbed cameras.

    The last three views share 818 points (the paper's problem has 802); from the five adjacent views that share most,
    ``points`` points are drawn (the paper has 212).
    """
    from scipy.spatial.transform import Rotation

    from problm import read_colmap

    model = read_colmap(Path(data, "colmap_sceaux_castle"))
    C = len(model.rotations)
    order = np.argsort(model.names)
    seen = np.zeros((C, len(model.points)), dtype=bool)
    point = np.repeat(np.arange(len(model.points)), np.diff(model.start))
    seen[model.image, point] = True
    windows = [order[i : i + views] for i in range(C - views + 1)]
    chosen = windows[-1] if views == 3 else max(windows, key=lambda w: int(seen[w].all(axis=0).sum()))
    common = np.flatnonzero(seen[chosen].all(axis=0))
    rng = np.random.default_rng(seed)
    if points is not None and len(common) > points:
        common = np.sort(rng.choice(common, points, replace=False))
    observed = np.empty((views, len(common), 2))
    lookup = {int(p): k for k, p in enumerate(common)}
    place = {int(c): k for k, c in enumerate(chosen)}
    for m, (image, p) in enumerate(zip(model.image, point, strict=True)):
        if int(image) in place and int(p) in lookup:
            camera = model.intrinsics[model.camera[image]]
            observed[place[int(image)], lookup[int(p)]] = _normalised(camera, model.xy[m])
    R, t = model.rotations[chosen], model.translations[chosen]
    depth = (np.einsum("cij,pj->cpi", R, model.points[common]) + t[:, None])[..., 2].mean(axis=0)
    start = Rotation.from_rotvec(rng.normal(0.0, 0.05, (views, 3))).as_matrix() @ R
    return Tracks(observed, start, t + rng.normal(0.0, 0.05 * np.abs(depth).mean(), (views, 3)), depth)


def _normalised(camera: object, xy: Array) -> Array:
    """A pixel as a ray; distortion is inverted by a fixed-point iteration on the camera's own projection."""
    from typing import Any

    c: Any = camera
    ray = np.array([0.0, 0.0])
    at = c.project(np.array([[0.0, 0.0, 1.0]]))[0]
    focal = c.project(np.array([[1e-3, 0.0, 1.0]]))[0][0] - at[0]
    for _ in range(20):
        error = c.project(np.array([[ray[0], ray[1], 1.0]]))[0] - xy
        ray = ray - error / (focal / 1e-3)
    return ray


def plane(data: str, name: str, shape: tuple[int, ...]) -> Array:
    """The homography (3, 3) of the largest labelled group of matches of a pair.

    Groups are planes; those of ``head`` and of the authors' pair are validation points. From the identity
    every method ends somewhere else on these wide pairs; near the plane there is a minimum to find. ``shape`` is that
    of image 1 as used, possibly halved.
    """
    from problm.vision.images.image import read_image

    rows = np.loadtxt(Path(data, folder_of(name), f"{name}_pts.txt"))
    labels = rows[:, 6].astype(int)
    chosen = labels == np.argmax(np.bincount(labels)[1:]) + 1
    # Pixel x of an image halved k times is centred at 2^k (x + 1/2) - 1/2 of the full one.
    factor = round(read_image(adelaide_files(data, name)[0], "image1").shape[1] / shape[1])
    first, second = ((rows[chosen, k : k + 2] + 0.5) / factor - 0.5 for k in (0, 3))
    return _fit_homography(first, second)


def plane_start(data: str, name: str, offset: float, seed: int, shape: tuple[int, ...]) -> Array:
    """A start for aligning a pair: the homography `plane`, corners moved by ``offset`` widths."""
    rng = np.random.default_rng([seed, *name.encode()])
    return moved_corners(plane(data, name, shape), shape, offset, rng)


def _fit_homography(a: Array, b: Array) -> Array:
    """Robust homography by OpenCV if it is installed, else a linear fit."""
    try:
        import cv2
    except ImportError:
        mean, scale = a.mean(axis=0), a.std()
        p, q = (a - mean) / scale, (b - b.mean(axis=0)) / b.std()
        one, zero = np.ones((len(p), 1)), np.zeros((len(p), 3))
        first = np.hstack([p, one, zero, -q[:, :1] * np.hstack([p, one])])
        second = np.hstack([zero, p, one, -q[:, 1:] * np.hstack([p, one])])
        H = np.linalg.svd(np.vstack([first, second]))[2][-1].reshape(3, 3)
        T = np.array([[1 / scale, 0, -mean[0] / scale], [0, 1 / scale, -mean[1] / scale], [0, 0, 1]])
        s, m = b.std(), b.mean(axis=0)
        found: Array = np.array([[s, 0, m[0]], [0, s, m[1]], [0, 0, 1]]) @ H @ T
        return found / found[2, 2]
    matrix, _ = cv2.findHomography(a, b, cv2.RANSAC, 3.0)
    return np.asarray(matrix, dtype=float)
