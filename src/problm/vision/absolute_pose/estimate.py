r"""`absolute_pose`: the pose of a camera from pixels of known points, also called resection or PnP.

Refinement from a given start (``robust=False``) minimises the squared reprojection errors of all matches. Robust
estimation needs no start: see `robust` for its steps. Errors are measured in the pixels of the image, with the
distortion of the lens.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...losses import Loss
from ...manifolds import as_rotation, rotation_exp, skew
from ...solver.loop import solve
from ..two_view.robust import solve_options
from ..two_view.settings import Settings, make_settings
from .degenerate import Shape, second_pose, too_similar, undetermined
from .model import Scene, check_camera, check_points, check_weights
from .result import AbsolutePose
from .robust import COARSE, Fit, fit_robust, make_pool

Array = NDArray[np.float64]


def absolute_pose(
    points2d: ArrayLike,
    points3d: ArrayLike,
    K: Any = None,
    *,
    distortion: Any = None,
    estimate_focal: bool = False,
    weights: ArrayLike | None = None,
    initial: Any = None,
    robust: bool = True,
    threshold: float | str = "auto",
    loss: str = "truncated",
    levels: int | None = None,
    max_starts: int = 50_000,
    confidence: float = 0.999,
    threads: int | None = None,
    rng: np.random.Generator | int | None = 0,
    **options: Any,
) -> AbsolutePose:
    """Pose of a camera from pixels of known points: ``z (u, v, 1) = R X + t``.

    Parameters
    ----------
    points2d : (N, 2) pixels, or calibrated coordinates without K; (N, 1, 2) as OpenCV's.
    points3d : (N, 3) points, row i of which is seen at row i of points2d.
    K : (3, 3) camera matrix, (fx, fy, cx, cy), a `problm.Intrinsics` with its distortion, or a mapping of ``model`` and
        ``params``. The identity if not given.
    distortion : coefficients (k1, k2, p1, p2[, k3[, k4, k5, k6]]) of the lens, as OpenCV's.
    estimate_focal : estimate the focal length as well. That of K gives its unit and the ratio fy / fx only; the
        principal point is kept. A distortion is kept too.
    weights : (N,) weights of the squared errors, such as one over a variance; errors times the root of the weight are
        compared with the threshold.
    initial : the start: (R, t) or (rotation vector, t), a (3, 4) matrix, or an `AbsolutePose`. None: found by a search.
    robust : whether matches may be wrong. False minimises the squared errors of *all* matches.
    threshold : largest error of an inlier in pixels, or ``"auto"``: 3 standard deviations of the noise, which is
        estimated.
    loss : robust loss of the refinement (see `problm.Loss`).
    levels : levels of graduated non-convexity from ``initial``. None: as many as it takes.
    max_starts, confidence : when the search ends: number of minimal samples, and probability of one without outliers.
    threads : number of threads for the refinement of very many matches; by default all cores.
    rng : random seed or Generator; results are bit-reproducible.
    **options : options of the solver (`problm.Options`), e.g. ``max_time``.

    Returns
    -------
    AbsolutePose. Its ``status`` is ``"ok"``, ``"degenerate"`` (the inliers do not determine the pose, two poses explain
    them, or points lie behind the camera), ``"no consensus"`` (no pose better than chance) or ``"not converged"``.

    Examples
    --------
    >>> from problm.vision.absolute_pose.simulate import one_view
    >>> view = one_view(500, inliers=0.5, seed=1)
    >>> pose = absolute_pose(view.points2d, view.points3d, view.K)
    >>> pose.status, bool(pose.rotation_error(view.R) < 0.1), bool(pose.center_error(view.R, view.t) < 0.05)
    ('ok', True, True)
    """
    began = time.perf_counter()
    camera = check_camera(K, distortion)
    x, X = check_points(points2d, points3d, 6 if estimate_focal else 4)
    roots = check_weights(weights, len(x))
    settings = make_settings(threshold, loss, levels, "minimal", max_starts, confidence, threads, rng, options)
    scene = Scene.of(x, X, roots, camera, bool(estimate_focal))
    theta = None if initial is None else _start(initial, scene)
    fit = fit_robust(scene, settings, theta, began) if robust else _refine_all(scene, settings, theta)
    if fit is None or not (fit.chance < 0.0 or math.isnan(fit.chance)):
        return _nothing(scene, fit, time.perf_counter() - began)
    return _result(scene, fit, began)


def _start(initial: Any, scene: Scene) -> Array:
    """The point of a start given as (R, t), (rotation vector, t), [R t] or AbsolutePose."""
    scale = 1.0
    if isinstance(initial, AbsolutePose):
        R, t = initial.R, initial.t
        scale = initial.focal / float(scene.camera.places[0])
    elif isinstance(initial, tuple | list) and len(initial) == 2:
        R, t = (np.array(part, dtype=np.float64) for part in initial)
        R = rotation_exp(R.ravel()) if R.size == 3 else R
    else:
        matrix = np.array(initial, dtype=np.float64)
        if matrix.shape not in ((3, 4), (4, 4)):
            raise ValueError(f"initial must be (R, t), a (3, 4) matrix or an AbsolutePose, got shape {matrix.shape}")
        R, t = matrix[:3, :3], matrix[:3, 3]
    R, t = np.ascontiguousarray(R), t.ravel()
    if R.shape != (3, 3) or t.shape != (3,):
        raise ValueError(f"initial=(R, t) must have the shapes (3, 3) or (3,), and (3,), got {R.shape} and {t.shape}")
    if not (np.isfinite(R).all() and np.isfinite(t).all()):
        raise ValueError("initial holds values that are not finite")
    R, departure = as_rotation(R)
    if departure > 1e-3:
        raise ValueError("initial: R is not a rotation matrix (R'R = I, det R = 1)")
    return scene.point(R, t, scale)


def _refine_all(scene: Scene, settings: Settings, theta: Array | None) -> Fit | None:
    """Minimise the squared errors of all matches."""
    if theta is None:
        pool = make_pool(scene, settings.rng)
        cut = settings.threshold or COARSE * float(np.ptp(np.asarray(scene.x), axis=0).max())
        found = pool.find(cut, settings.search.max_starts, settings.search.confidence, settings.search.max_time)
        if found is None:
            return None
        theta = found.theta
    squares = Loss.named("linear")
    problem = scene.problem(squares, settings.threads, settings.seed)
    result = solve(problem, theta, **solve_options(dict(settings.options), scene.n))
    errors = scene.errors(result.x)
    inliers = np.ones(scene.n, dtype=bool) if settings.threshold is None else errors < settings.threshold
    cut = math.nan if settings.threshold is None else settings.threshold
    return Fit(result.x, cut, squares, result, scene, errors, inliers, math.nan, 0)


def _noise(fit: Fit) -> float:
    """Standard deviation of a coordinate of the weighted errors of the inliers."""
    kept = fit.errors[fit.inliers & np.isfinite(fit.errors)]
    freedom = max(2 * len(kept) - fit.scene.dim, 1)
    # At least the rounding of the coordinates, which is all that is left of exact matches.
    floor = 1e-12 * float(np.abs(fit.scene.x[:1000]).max())
    return max(math.sqrt(float(kept @ kept) / freedom), floor, 1e-300)


def _judged(fit: Fit) -> tuple[Fit, str, str, Array | None]:
    """The fit, or a better one of flat points; status and message; a second pose that is as good."""
    sigma = _noise(fit)
    shape = Shape.of(fit.scene.X)
    behind = int((fit.scene.depths(fit.theta) <= 0.0).sum())
    if behind:
        return fit, "degenerate", f"{behind} of {fit.scene.n} points lie behind the camera.", None
    if not fit.result.success:
        return fit, "not converged", fit.result.message, None
    if why := undetermined(fit, shape, sigma):
        return fit, "degenerate", why, None
    flat = " They lie in a plane." if shape.flat else ""
    other = second_pose(fit, shape, sigma)
    if other is not None:
        theta, excess = other
        if excess < 0.0:
            fit, theta, excess = _exchanged(fit, theta), fit.theta, -excess
        if too_similar(excess):
            why = "Two poses explain the inliers, which lie nearly in a plane: see other."
            return fit, "degenerate", why, theta
    if 2 * int(fit.inliers.sum()) <= fit.scene.dim + 2 and math.isfinite(fit.chance):
        flat += " They are few: other poses may fit as well."
    return fit, "ok", f"The pose is determined by its inliers.{flat}", None


def _exchanged(fit: Fit, theta: Array) -> Fit:
    """The fit with a better pose of the same inliers."""
    result = solve(fit.result.problem, theta, acceptance="full", ftol=1e-8, xtol=1e-8)
    return replace(fit, theta=result.x, result=result)


def _result(scene: Scene, fit: Fit, began: float) -> AbsolutePose:
    before = fit.theta
    fit, status, message, other = _judged(fit)
    if fit.theta is not before:
        errors = scene.errors(fit.theta)
        fit = replace(fit, errors=errors, inliers=errors < fit.cut if math.isfinite(fit.cut) else fit.inliers)
    R, t = scene.pose(fit.theta)
    camera = scene.seen(fit.theta)
    measured = fit.errors if scene.roots is None else fit.errors / scene.roots[:, 0]
    transform = np.eye(scene.dim)
    transform[3:6, :3], transform[3:6, 3:6] = skew(R @ scene.middle), scene.size * np.eye(3)
    if scene.focal:
        transform[6, 6] = camera.places[0]
    sure = status == "ok" or other is not None
    return AbsolutePose(
        R=R, t=t, camera=camera, inliers=fit.inliers, measured=measured, threshold=fit.cut, status=status,
        message=message, result=fit.result, hessian=fit.result.hessian, transform=transform,
        minimum=(fit.result.problem, fit.theta) if sure else None, starts=fit.starts, chance=fit.chance,
        other=None if other is None else scene.pose(other), seconds=time.perf_counter() - began,
        points=(scene.x, scene.X),
    )  # fmt: skip


def _nothing(scene: Scene, fit: Fit | None, seconds: float) -> AbsolutePose:
    """The result if no pose is better than chance."""
    n, nan = scene.n, np.full((3, 3), np.nan)
    found = "no pose fits any sample" if fit is None else f"the best one has {int(fit.inliers.sum())} of {n} inliers"
    return AbsolutePose(
        R=nan, t=nan[0], camera=scene.camera, inliers=np.zeros(n, dtype=bool), measured=np.full(n, np.nan),
        threshold=math.nan if fit is None else fit.cut, status="no consensus",
        message=f"No pose better than chance: {found}, which wrong matches reach as well.",
        result=None if fit is None else fit.result, hessian=np.full((scene.dim, scene.dim), np.nan),
        transform=np.eye(scene.dim), starts=0 if fit is None else fit.starts,
        chance=math.inf if fit is None else fit.chance, seconds=seconds, points=(scene.x, scene.X),
    )  # fmt: skip
