"""Whether claimed errors are true: estimate less truth over the claimed error, for poses, F, H and `align`.

    OMP_NUM_THREADS=1 python -m bench.studies.errors [--data DIR] [--runs 300] [--only simulated align real]

simulated
    Poses, fundamental matrices and homographies of 500 and 2000 matches, with noise that is Gaussian, with wrong
    matches, with noise that grows over the image, with neighbours that share their errors and, in the same place of the
    image, similar ones.
align
    A photograph-like texture and its warp, with noise, and with parallax: displacements of one pixel and less from the
    homography that change over the image.
real
    The pairs of ``strecha``. Against the cameras of the data set; against these cameras, corrected by the estimates of
    other pairs; around triangles of three views (rotations must close, and the three directions lie in a plane); and
    between the estimates from opposite quarters of the image.

*z* is the root of the mean square of the single parameters' errors over their claimed errors, *distance* that of the
Mahalanobis distance over the number of parameters, *coverage* the share of single errors below 1.96 claimed ones. The
column *independent* has z for the covariance of independent rows (`problm.solver.sandwich`, or that of least squares).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, map_coordinates
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

import problm
from problm.linalg.dense import inverse_spd
from problm.manifolds import rotation_log, tangent_basis
from problm.solver.sandwich import sandwich
from problm.vision.alignment.warps import corners, transform
from problm.vision.two_view.simulate import two_views

from ..data import sources, stand_ins
from ..harness import record
from ..harness.summary import markdown_table

Array = NDArray[np.float64]
SEED = 8100
MODES = ("Gaussian", "40 % wrong matches", "noise that grows", "shared by four", "smooth over 30 pixels")
Found = tuple[Array, Array, Array | None]
"""Errors (d,), their claimed covariance (d, d), and that of independent rows."""


def matches(mode: str, n: int, seed: int, plane: bool) -> tuple[Any, Array, Array]:
    """A scene and its noisy matches."""
    rng = np.random.default_rng(seed + 1_000_000)
    wrong, plain = mode == MODES[1], mode in MODES[:2]
    views = two_views(n, inliers=0.6 if wrong else 1.0, noise=0.5 if plain else 0.0, seed=seed, plane=plane)
    x = np.concatenate([views.x1, views.x2], axis=1)
    if mode == MODES[2]:
        x += (0.2 + 1.2 * (x[:, :1] / 640.0) ** 2) * rng.normal(size=x.shape)
    elif mode == MODES[3]:
        x = x[np.arange(n) // 4 * 4]  # the same point, found four times
        x += np.repeat(0.45 * rng.normal(size=(n // 4, 4)), 4, axis=0) + 0.2 * rng.normal(size=x.shape)
    elif mode == MODES[4]:
        at = x[:, 1::-1].T / 10.0
        x += 0.3 * rng.normal(size=x.shape)
        for j in range(4):
            field = gaussian_filter(rng.normal(size=(49, 65)), 3.0)
            x[:, j] += 0.4 * map_coordinates(field / field.std(), at, order=1, mode="nearest")
    return views, np.ascontiguousarray(x[:, :2]), np.ascontiguousarray(x[:, 2:])


def independent(fit: Any) -> Array | None:
    """Covariance if rows were independent."""
    problem, point = fit.minimum
    rows = problem.n * min(problem.components, 2) - problem.dim
    variance = 2.0 * fit.result.cost / rows
    if not problem.robust:
        return variance * inverse_spd(fit.hessian)[0]
    return sandwich(problem, point, fit.hessian, variance**0.5)


def moved(fit: Any, R: Array, t: Array) -> Array:
    """(5,) tangent step from the pose of a fit to another."""
    return np.concatenate([rotation_log(R @ fit.R.T), tangent_basis(fit.t).T @ (t - fit.t * (fit.t @ t))])


def pose(mode: str, n: int, seed: int) -> Found | None:
    views, x1, x2 = matches(mode, n, seed, False)
    fit = problm.essential_matrix(x1, x2, views.K)
    if fit.status != "ok" or fit.rotation_error(views.R) > 5.0:
        return None
    return moved(fit, views.R, views.t), fit.covariance, independent(fit)


def fundamental(mode: str, n: int, seed: int) -> Found | None:
    views, x1, x2 = matches(mode, n, seed, False)
    fit = problm.fundamental_matrix(x1, x2)
    if fit.status != "ok":
        return None
    inverse = np.linalg.inv(views.K)
    cross = np.cross(np.eye(3), views.t)
    F = (inverse.T @ cross.T @ views.R @ inverse).ravel()
    F /= np.linalg.norm(F)
    step = np.linalg.lstsq(fit.tangents, np.sign(F @ fit.F.ravel()) * F - fit.F.ravel())[0]
    return step, fit.covariance, independent(fit)


def homography(mode: str, n: int, seed: int) -> Found | None:
    views, x1, x2 = matches(mode, n, seed, True)
    exact = two_views(100, noise=0.0, seed=seed, plane=True, R=views.R, t=views.t)
    fit = problm.homography(x1, x2)
    if fit.status != "ok":
        return None
    H = problm.homography(exact.x1, exact.x2, robust=False, initial=fit.H, gtol=1e-12).H
    step = np.linalg.lstsq(fit.tangents, (H - fit.H).ravel())[0]
    return step, fit.covariance, independent(fit)


ESTIMATORS = {"pose": pose, "fundamental matrix": fundamental, "homography": homography}


def warped(seed: int, parallax: float, smooth: float, noise: float) -> tuple[Array, Array, Array]:
    """Two images (240, 320) and the homography between them, up to the parallax [pixels]."""
    rng = np.random.default_rng(seed)
    texture = stand_ins.texture(rng, 300, 380)
    H = np.eye(3)
    H[:2] += rng.normal(size=(2, 3)) * [[0.004, 0.004, 1.5]]
    H[2, :2] = rng.normal(size=2) * 1e-5
    y, x = np.mgrid[0:240, 0:320].astype(float)
    w = H @ np.stack([x.ravel(), y.ravel(), np.ones(x.size)])
    u, v = (w[0] / w[2]).reshape(x.shape), (w[1] / w[2]).reshape(x.shape)
    if parallax:
        field = gaussian_filter(rng.normal(size=x.shape), smooth, mode="reflect")
        along = rng.normal(size=2)
        u, v = (
            q + parallax * a * field / field.std() for q, a in zip((u, v), along / np.linalg.norm(along), strict=True)
        )
    second = texture[30:270, 30:350]
    first = map_coordinates(texture, [v + 30, u + 30], order=3, mode="nearest")
    return first + noise * rng.normal(size=x.shape), second + noise * rng.normal(size=x.shape), H


def aligned(mode: str, seed: int) -> Found | None:
    parallax, smooth, noise = {
        "noise": (0.0, 1.0, 0.02), "parallax, smooth over 10 pixels": (0.7, 10.0, 0.005),
        "parallax, smooth over 20 pixels": (0.7, 20.0, 0.005),
    }[mode]  # fmt: skip
    first, second, H = warped(seed, parallax, smooth, noise)
    fit = problm.align(first, second, photometric=False, threads=1)
    if not fit.success:
        return None
    at = corners((240, 320))
    step = (transform(H, at) - transform(fit.matrix, at)).ravel()
    J = fit._corner_jacobian
    return step, J @ fit.covariance @ J.T, J @ fit.result.covariance @ J.T


ALIGNED = ("noise", "parallax, smooth over 10 pixels", "parallax, smooth over 20 pixels")


def summary(found: list[Found]) -> dict[str, Any]:
    """z, distance and coverage."""
    found = [f for f in found if np.isfinite(f[1]).all()]
    errors = np.array([f[0] for f in found])
    claimed = np.array([np.sqrt(np.diag(f[1])) for f in found])
    z = errors / claimed
    distances = [f[0] @ np.linalg.solve(f[1], f[0]) / len(f[0]) for f in found]
    alone = [f[0] / np.sqrt(np.diag(f[2])) for f in found if f[2] is not None]
    return {
        "runs": len(found), "z": float(np.sqrt((z**2).mean())), "distance": float(np.sqrt(np.mean(distances))),
        "coverage": float((np.abs(z) < 1.96).mean()), "independent": float(np.sqrt((np.array(alone) ** 2).mean())),
    }  # fmt: skip


def simulated(runs: int) -> Iterator[dict[str, Any]]:
    for name, estimate in ESTIMATORS.items():
        for n in (500, 2000):
            for mode in MODES:
                found = [estimate(mode, n, SEED + k) for k in range(runs)]
                kept = [f for f in found if f is not None and np.isfinite(f[1]).all()]
                yield {"problem": f"{name}, {n} matches", "mode": mode, **summary(kept)}


def alignment(runs: int) -> Iterator[dict[str, Any]]:
    for mode in ALIGNED:
        found = [aligned(mode, SEED + k) for k in range(runs)]
        yield {"problem": "align, corners", "mode": mode, **summary([f for f in found if f is not None])}


def real(data: str) -> Iterator[dict[str, Any]]:
    fits = {}
    for pair in sources.strecha_pairs(data):
        given = sources.strecha(data, pair, SEED)
        fits[pair] = problm.essential_matrix(given.x1, given.x2, given.K), given
    kept = {name: (fit, given) for name, (fit, given) in fits.items() if fit.status == "ok"}
    found: list[Found] = [(moved(f, g.R, g.t), f.covariance, independent(f)) for f, g in kept.values()]
    yield {"problem": "real pairs", "mode": "against the cameras of the data set", **summary(found)}
    yield {
        "problem": "real pairs",
        "mode": "against cameras corrected by other pairs",
        **summary(list(corrected(data, kept))),
    }
    yield {"problem": "real pairs", "mode": "around triangles", **summary(list(triangles(kept)))}
    yield {"problem": "real pairs", "mode": "opposite quarters of the image", **summary(list(quarters(kept)))}


def corrected(data: str, fits: dict[str, Any]) -> Iterator[Found]:
    """Pairs of views that are not neighbours, against cameras whose poses were corrected by those that are.

    Positions are kept within some centimetres of the data set's. The errors of the cameras add to those of the pairs.
    """
    for scene in sorted({name.split("/")[0] for name in fits}):
        pairs = {tuple(map(int, name[len(scene) + 1 :].split("_"))): f for name, f in fits.items() if scene in name}
        near = {pair: f for pair, f in pairs.items() if pair[1] - pair[0] == 1}
        cameras = sources.strecha_cameras(data, scene)

        def relative(steps: Array, a: int, b: int, cameras: Any = cameras) -> tuple[Array, Array]:
            (Ra, Ca), (Rb, Cb) = (
                (Rotation.from_rotvec(s[:3]).as_matrix() @ cameras[k][0], cameras[k][1] + s[3:])
                for k, s in ((k, steps.reshape(-1, 6)[k]) for k in (a, b))
            )
            t = Rb @ (Ca - Cb)
            return Rb @ Ra.T, t / np.linalg.norm(t)

        def misfit(steps: Array, near: Any = near, relative: Any = relative) -> Array:
            each = []
            for pair, (fit, _) in near.items():
                root = np.linalg.cholesky(np.linalg.inv(fit.covariance))
                each.append(root.T @ moved(fit, *relative(steps, *pair)))
            return np.concatenate([*each, steps / 0.02])

        steps = least_squares(misfit, np.zeros(6 * len(cameras)), x_scale=1e-3).x
        for pair, (fit, _) in pairs.items():
            if pair not in near:
                yield moved(fit, *relative(steps, *pair)), fit.covariance, independent(fit)


def triangles(fits: dict[str, Any]) -> Iterator[Found]:
    """Rotations of three pairs of views around a triangle, and how far the third direction leaves the plane."""
    names = sorted(fits)
    for name in names:
        scene, numbers = name.split("/")
        a, b = numbers.split("_")
        for c in range(int(b) + 1, int(b) + 3):
            others = f"{scene}/{b}_{c:04d}", f"{scene}/{a}_{c:04d}"
            if all(other in fits for other in others):
                yield around([fits[k][0] for k in (name, *others)])


def around(poses: list[Any]) -> Found:
    """How a triangle closes: rotation (3,) and the sine of the angle of the third direction to the plane."""

    def closed(steps: Array) -> Array:
        R, t = [], []
        for fit, step in zip(poses, steps.reshape(3, 5), strict=True):
            R.append(Rotation.from_rotvec(step[:3]).as_matrix() @ fit.R)
            t.append(fit.t + tangent_basis(fit.t) @ step[3:])
        normal = np.cross(R[1] @ t[0], t[1])
        return np.append(
            rotation_log(R[1] @ R[0] @ R[2].T), t[2] @ normal / np.linalg.norm(normal) / np.linalg.norm(t[2])
        )

    J = np.stack([(closed(h) - closed(-h)) / 2e-6 for h in 1e-6 * np.eye(15)], axis=1)
    totals = [np.zeros((4, 4)), np.zeros((4, 4))]
    for k, fit in enumerate(poses):
        part = J[:, 5 * k : 5 * k + 5]
        for total, covariance in zip(totals, (fit.covariance, independent(fit)), strict=True):
            total += part @ covariance @ part.T
    return closed(np.zeros(15)), totals[0], totals[1]


def quarters(fits: dict[str, Any]) -> Iterator[Found]:
    """Difference of the poses from the matches of two pairs of opposite quarters of image 1."""
    for fit, given in fits.values():
        middle = np.median(given.x1[fit.inliers], axis=0)
        side = (given.x1 > middle)[:, 0] ^ (given.x1 > middle)[:, 1]
        halves = []
        for chosen in (side, ~side):
            x1, x2 = given.x1[chosen], given.x2[chosen]
            halves.append(problm.essential_matrix(x1, x2, given.K, initial=(fit.R, fit.t), threshold=fit.threshold))
        a, b = halves
        if a.status == b.status == "ok":
            yield moved(a, b.R, b.t), a.covariance + b.covariance, independent(a) + independent(b)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("PROBLM_DATA") or None)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--only", nargs="+", choices=("simulated", "align", "real"))
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    arguments = parser.parse_args()
    began = time.perf_counter()
    parts = {
        "simulated": lambda: simulated(arguments.runs), "align": lambda: alignment(arguments.runs // 3),
        "real": lambda: real(arguments.data) if arguments.data else iter(()),
    }  # fmt: skip
    measured: dict[str, list[dict[str, Any]]] = record.read(arguments.output, "errors") or {}
    for name in arguments.only or parts:
        measured[name] = []
        for row in parts[name]():
            measured[name].append(row)
            print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    cells = [
        [
            r["problem"], r["mode"], f"{r['runs']}", f"{r['z']:.2f}", f"{r['distance']:.2f}",
            f"{100 * r['coverage']:.1f} %", f"{r['independent']:.2f}",
        ]
        for name in parts for r in measured.get(name, [])
    ]  # fmt: skip
    text = [
        "# Whether claimed errors are true",
        "*z*: root mean square of errors over claimed errors, one if these are true; *distance*: the same of the "
        "Mahalanobis distance; *coverage* of 1.96 claimed errors, 95 % if they are true; *independent*: z if rows are "
        "taken as independent.",
        markdown_table(["problem", "errors", "runs", "z", "distance", "coverage", "independent"], cells),
        "The cameras of the real pairs are less accurate than the estimates: corrections of their positions by some "
        "millimetres, found from neighbouring views alone, explain most of the differences in the other pairs.",
    ]
    known = record.about(seconds=time.perf_counter() - began, seed=SEED)
    record.write(arguments.output, "errors", text, measured, known)


if __name__ == "__main__":
    main()
