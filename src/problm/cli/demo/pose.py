"""The demo's essential matrix: refined on very many matches, and found among wrong ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...manifolds import skew, tangent_basis
from ...vision.two_view.essential import essential_matrix
from ...vision.two_view.simulate import TwoViews, two_views
from .parts import Measured, Part, passes, repeated

Array = NDArray[np.float64]
_TURN = 0.2


def run(n: int, seed: int, progress: Callable[..., Any] | None) -> Part:
    """Refine a pose that is 0.2 rad off, on n matches without outliers."""
    views = two_views(n, noise=0.5, seed=seed)
    start = _disturbed(views, seed)
    essential_matrix(views.x1[:1000], views.x2[:1000], views.K, initial=start, robust=False)  # loads what is compiled

    def solve(**options: Any) -> Any:
        return essential_matrix(
            views.x1, views.x2, views.K, initial=start, robust=False, rng=seed, callback=progress, **options
        )

    poses, seconds = repeated([solve, lambda: solve(acceptance="full")])
    measured = [
        Measured(name, s, _cost(pose.E, views), passes(pose.result))
        for name, pose, s in zip(("ProBLM", "LM (ProBLM's own)"), poses, seconds, strict=True)
    ]
    measured.append(_scipy(views, start))
    return Part(
        f"Essential matrix, {n:,} matches",
        "Sampson error in pixels, five parameters, from a rotation and a direction that are 0.2 rad off; no outliers. "
        "SciPy's least_squares (lm) works on the same residuals in NumPy, with difference quotients.",
        measured,
        result=poses[0].result,
        pictures=[_robust(seed)],
    )


def _disturbed(views: TwoViews, seed: int) -> tuple[Array, Array]:
    from scipy.spatial.transform import Rotation

    rng = np.random.default_rng(seed + 1)
    axis = rng.normal(size=3)
    turn = Rotation.from_rotvec(_TURN * axis / np.linalg.norm(axis)).as_matrix()
    sideways = tangent_basis(views.t) @ rng.normal(size=2)
    direction = np.cos(_TURN) * views.t + np.sin(_TURN) * sideways / np.linalg.norm(sideways)
    return turn @ views.R, direction


def _homogeneous(views: TwoViews) -> tuple[Array, Array]:
    """Points of both images as columns (3, n)."""
    one = np.ones(len(views.x1))
    return np.stack([*views.x1.T, one]), np.stack([*views.x2.T, one])


def _sampson(E: Array, K: Array, x1: Array, x2: Array) -> Array:
    """Sampson errors (n,) in pixels."""
    inverse = np.linalg.inv(K)
    F = inverse.T @ E @ inverse
    a, b = F @ x1, F[:, :2].T @ x2
    errors: Array = (x2 * a).sum(axis=0) / np.sqrt(a[0] ** 2 + a[1] ** 2 + b[0] ** 2 + b[1] ** 2)
    return errors


def _cost(E: Array, views: TwoViews) -> float:
    r = _sampson(E, views.K, *_homogeneous(views))
    return 0.5 * float(r @ r)


def _scipy(views: TwoViews, start: tuple[Array, Array]) -> Measured:
    from scipy.optimize import least_squares
    from scipy.spatial.transform import Rotation

    R0, t0 = start
    sideways, (x1, x2) = tangent_basis(t0), _homogeneous(views)

    def essential(theta: Array) -> Array:
        t = t0 + sideways @ theta[3:]
        E: Array = skew(t / np.linalg.norm(t)) @ Rotation.from_rotvec(theta[:3]).as_matrix() @ R0
        return E

    def residuals(theta: Array) -> Array:
        return _sampson(essential(theta), views.K, x1, x2)

    began = time.perf_counter()
    found = least_squares(residuals, np.zeros(5), method="lm")
    seconds = time.perf_counter() - began
    E = essential(found.x)
    return Measured("SciPy least_squares", seconds, _cost(E, views), "difference quotients")


def _robust(seed: int) -> tuple[bytes, str]:
    """Plot of a robust fit to 400 matches of which 40 % are wrong, and its caption."""
    from ...report.page import figure_png

    views = two_views(400, inliers=0.6, seed=seed + 2)
    began = time.perf_counter()
    pose = essential_matrix(views.x1, views.x2, views.K, rng=seed)
    milliseconds = 1e3 * (time.perf_counter() - began)
    caption = (
        f"400 matches, 160 of them wrong: {int(pose.inliers.sum())} inliers found in {milliseconds:.0f} ms, rotation "
        f"off by {pose.rotation_error(views.R):.3f} and direction by {pose.translation_error(views.t):.3f} degrees"
    )
    return figure_png(pose.plot()), caption
