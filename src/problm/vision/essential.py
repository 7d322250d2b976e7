r"""`essential_matrix`: the relative pose of two calibrated cameras from matches.

Refinement from a given start (``robust=False``) minimises the squared Sampson errors of all matches. Robust
estimation needs no start: see `robust` for its steps. Of an essential matrix two more things can be asked,
because a pose says more than E:

* The points vote for one of the four poses of E, and an inlier must lie before both cameras. About half of the
  outliers that happen to be near their epipolar line do not; this takes the variance that outliers add to the
  pose to less than a half (simulated scenes, 20 to 80 % inliers).
* Where a rotation alone explains the inliers, t is not determined, and the status says so (`degenerate`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..losses import Loss
from ..manifolds import essential_point, skew
from ..options import suggest
from .consensus import inlier_quantile
from .degenerate import Simpler, rotation_only
from .matches import check_intrinsics, check_matches, undistort
from .outcome import RelativePose, m_estimator_variance
from .relative_pose import in_front, resolve_cheirality
from .robust import Fit, Settings, error_norms, find_start, fit_robust, make_settings, refine
from .two_view import ESSENTIAL, ESSENTIAL_ANGLES, Frame, Model, angles_from_pose, inverted, two_view_problem

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Points = NDArray[Any]

PARAMETERIZATIONS = {"manifold": ESSENTIAL, "angles": ESSENTIAL_ANGLES}
_VOTERS = 2000  # matches that vote for one of the four poses


def essential_matrix(
    x1: ArrayLike,
    x2: ArrayLike,
    K1: ArrayLike | None = None,
    K2: ArrayLike | None = None,
    *,
    initial: Any = None,
    robust: bool = True,
    threshold: float | str = "auto",
    distortion: Any = None,
    loss: str = "truncated",
    levels: int | None = None,
    starts: str = "minimal",
    max_starts: int = 50_000,
    confidence: float = 0.999,
    parameterization: str = "manifold",
    threads: int = 1,
    rng: np.random.Generator | int | None = 0,
    **options: Any,
) -> RelativePose:
    """Essential matrix and relative pose of two views: ``x2 ~ R x1 + t``.

    Parameters
    ----------
    x1, x2 : (N, 2) matched points of image 1 and image 2, in pixels if K1 is given, else in calibrated
    coordinates.
        Row i of x1 belongs to row i of x2. float64 and float32 are read in place.
    K1, K2 : (3, 3) camera matrices, or (fx, fy, cx, cy). K2 is K1 if not given.
    initial : the start: (R, t), a (3, 3) essential matrix, or a `RelativePose`. None: found by the search.
    robust : whether matches may be wrong. False minimises the squared Sampson errors of *all* matches.
    threshold : largest Sampson error of an inlier, in the units of x1 and x2 (pixels), or ``"auto"``: three
    standard
        deviations of the noise, which is estimated.
    distortion : coefficients (k1, k2, p1, p2[, k3..k6]) of the lens, or a pair of them for the two images.
    Points are
        undistorted first, and errors are pixels of the undistorted images.
    loss : robust loss of the refinement (see `problm.Loss`); its scale is the threshold.
    levels : levels of graduated non-convexity. None: 2 after a search, 5 from ``initial``.
    starts : ``"minimal"`` (five-point samples) or ``"random"`` (no RANSAC: random poses walk downhill).
    max_starts, confidence : when the search ends; see `problm.vision.starts.SearchOptions`.
    parameterization : ``"manifold"``, or ``"angles"`` for the paper's five angles, which have singular places.
    threads : for the refinement of very many matches.
    rng : seed or Generator of everything random.
    **options : of the solver (`problm.Options`), e.g. ``max_time``, ``acceptance``, ``ftol``.

    Returns
    -------
    RelativePose. Its ``status`` is ``"ok"``, ``"degenerate"`` (a rotation explains the matches: R is given, t
    is not),
    ``"no consensus"`` (no geometry better than chance) or ``"not converged"``.

    Examples
    --------
    >>> from problm.vision.simulate import two_views
    >>> views = two_views(500, inliers=0.7, seed=1)
    >>> pose = essential_matrix(views.x1, views.x2, views.K)
    >>> pose.status, bool(pose.rotation_error(views.R) < 0.5), bool(pose.translation_error(views.t) < 2.0)
    ('ok', True, True)
    """
    model = _model(parameterization)
    k1 = check_intrinsics(K1, "K1")
    k2 = k1 if K2 is None else check_intrinsics(K2, "K2")
    a, b = check_matches(x1, x2, 5, "essential matrix")
    if distortion is not None:
        first, second = _pair(distortion)
        a = a if first is None else undistort(a, k1, first)
        b = b if second is None else undistort(b, k2, second)
    frame = Frame(inverted(k1), inverted(k2))
    settings = make_settings(threshold, loss, levels, starts, max_starts, confidence, threads, rng, options)
    theta = None if initial is None else _start(initial, model)
    return (_robust_pose if robust else _refine_all)(model, frame, a, b, theta, settings)


def _model(parameterization: str) -> Model:
    if parameterization not in PARAMETERIZATIONS:
        names = tuple(PARAMETERIZATIONS)
        near = suggest(parameterization, names)
        raise ValueError(f"parameterization={parameterization!r} is not known{near}; choose one of {names}")
    return PARAMETERIZATIONS[parameterization]


def _pair(distortion: Any) -> tuple[Any, Any]:
    """Coefficients for image 1 and image 2: one list for both, or two of them (None: no distortion)."""
    if np.ndim(distortion[0]) == 0 and distortion[0] is not None:
        return distortion, distortion
    if len(distortion) != 2:
        raise ValueError(f"distortion must be one list of coefficients or a pair of them, got {len(distortion)} items")
    return distortion[0], distortion[1]


def _start(initial: Any, model: Model) -> Array:
    """The point of a start given as (R, t), E or RelativePose."""
    if isinstance(initial, RelativePose):
        R, t = initial.R, initial.t
    elif isinstance(initial, tuple | list) and len(initial) == 2:
        R, t = np.asarray(initial[0], dtype=np.float64), np.asarray(initial[1], dtype=np.float64).ravel()
        if R.shape != (3, 3) or t.shape != (3,):
            raise ValueError(f"initial=(R, t) must have the shapes (3, 3) and (3,), got {R.shape} and {t.shape}")
    else:
        E = np.asarray(initial, dtype=np.float64)
        if E.shape != (3, 3):
            raise ValueError(
                f"initial must be (R, t), a (3, 3) essential matrix or a RelativePose, got shape {E.shape}"
            )
        if not np.isfinite(E).all() or not np.abs(E).max() > 0.0:
            raise ValueError("initial: the essential matrix must be finite and not zero")
        return model.point(E)
    if not (np.isfinite(R).all() and np.isfinite(t).all()):
        raise ValueError("initial holds values that are not finite")
    if not np.linalg.norm(t) > 0.0:
        raise ValueError("initial: t is zero; its direction is what is estimated")
    if np.abs(R.T @ R - np.eye(3)).max() > 1e-3 or np.linalg.det(R) < 0.0:
        raise ValueError("initial: R is not a rotation matrix (R'R = I, det R = 1)")
    point = essential_point(R, t)
    return point if model is ESSENTIAL else angles_from_pose(point[:9].reshape(3, 3), point[9:])


def _refine_all(
    model: Model, frame: Frame, a: Points, b: Points, theta: Array | None, settings: Settings
) -> RelativePose:
    """Squared residuals of all matches."""
    began = time.perf_counter()
    start = find_start(model, frame, a, b, settings) if theta is None else theta
    if start is None:
        return _nothing(frame, a, b, settings, time.perf_counter() - began)
    result = refine(
        model, frame, [a, b], start, Loss.named("linear"), 1, settings.threads, settings.rng, settings.options
    )
    errors = error_norms(result)
    inliers = np.ones(len(a), dtype=bool) if settings.threshold is None else errors < settings.threshold
    variance = 2.0 * result.cost / result.degrees_of_freedom
    some = slice(None, None, max(1, len(a) // _VOTERS))
    voters = np.concatenate([a[some], b[some]], axis=1, dtype=np.float64)
    simpler = None
    if result.success:  # else the errors are not yet those of noise
        cut = inlier_quantile(1) * max(variance, 1e-300) ** 0.5
        simpler = rotation_only(frame, model.matrix(result.x), voters, np.ones(len(voters), dtype=bool), cut, 0.01)
    fit = Fit(
        result.x, settings.threshold or math.nan, Loss.named("linear"), result, errors, inliers, math.nan,
        math.nan, 0, time.perf_counter() - began,
    )  # fmt: skip
    return _pose(model, frame, a, b, fit, simpler, frame.transform(voters), variance)


def _robust_pose(
    model: Model, frame: Frame, a: Points, b: Points, theta: Array | None, settings: Settings
) -> RelativePose:
    """Matches with outliers."""
    began = time.perf_counter()
    fit = fit_robust(model, frame, a, b, settings, theta, _believer(model, frame))
    if fit is None or not fit.chance < 0.0:
        return _nothing(frame, a, b, settings, time.perf_counter() - began, fit)
    x = np.concatenate([a, b], axis=1, dtype=np.float64)
    simpler = rotation_only(frame, model.matrix(fit.theta), x, fit.inliers, fit.threshold, fit.accepted)
    variance = m_estimator_variance(fit.errors[fit.inliers], fit.loss, 5)
    return _pose(model, frame, a, b, fit, simpler, frame.transform(x[fit.inliers]), variance)


def _believer(model: Model, frame: Frame) -> Callable[[Array, Array, Flags], Flags]:
    """An inlier lies before both cameras of the pose that most inliers vote for."""

    def believe(theta: Array, x: Array, inliers: Flags) -> Flags:
        rays = frame.transform(x[inliers])
        if len(rays) == 0:
            return inliers
        R, t, _ = resolve_cheirality(model.matrix(theta), rays[:: max(1, len(rays) // _VOTERS)])
        kept = inliers.copy()
        kept[inliers] = in_front(R, t, rays)
        return kept

    return believe


def _pose(
    model: Model,
    frame: Frame,
    a: Points,
    b: Points,
    fit: Fit,
    simpler: Simpler | None,
    voters: Array,
    variance: float,
) -> RelativePose:
    """Resolve the pose of a fit, and say how it went."""
    R, t, _ = resolve_cheirality(model.matrix(fit.theta), voters[:: max(1, len(voters) // _VOTERS)])
    E, errors, inliers = skew(t) @ R, fit.errors, fit.inliers
    status, message = "ok", "The pose is determined by its inliers."
    hessian = np.full((5, 5), np.nan)
    if simpler is not None:
        status = "degenerate"
        message = "A rotation alone explains the matches: the direction of t is not determined."
        R, t, E = simpler.matrix, np.full(3, np.nan), np.full((3, 3), np.nan)
        if len(simpler.errors) == len(a):
            errors, inliers = simpler.errors, simpler.inliers
    else:
        hessian = _hessian(frame, fit, R, t)
        if not fit.result.success:
            status, message = "not converged", fit.result.message
    return RelativePose(
        R=R, t=t, E=E, inliers=inliers, errors=errors, threshold=fit.threshold, status=status, message=message,
        result=fit.result, hessian=hessian, variance=variance, starts=fit.starts, chance=fit.chance,
        seconds=fit.seconds, points=(a, b), K1=inverted(frame.A1), K2=inverted(frame.A2),
    )  # fmt: skip


def _hessian(frame: Frame, fit: Fit, R: Array, t: Array) -> Array:
    """Gauss-Newton matrix in the tangent parameters of the pose that was chosen of the four."""
    point = np.concatenate([R.ravel(), t])
    if np.array_equal(point, fit.theta):
        return fit.result.hessian
    data = list(fit.result.problem.data.columns)
    problem = two_view_problem(ESSENTIAL, data, frame, fit.loss)
    return problem.linearize(point, 0, problem.n, outer=False, costs=None).hessian


def _nothing(
    frame: Frame, a: Points, b: Points, settings: Settings, seconds: float, fit: Fit | None = None
) -> RelativePose:
    """No geometry better than chance."""
    n = len(a)
    found = "no model fits any sample" if fit is None else f"the best model has {int(fit.inliers.sum())} of {n} inliers"
    nan = np.full((3, 3), np.nan)
    return RelativePose(
        R=nan, t=nan[0], E=nan, inliers=np.zeros(n, dtype=bool), errors=np.full(n, np.nan),
        threshold=math.nan if fit is None else fit.threshold, status="no consensus",
        message=f"No geometry better than chance: {found}, which wrong matches reach as well.",
        result=None if fit is None else fit.result, hessian=np.full((5, 5), np.nan), variance=math.nan,
        starts=0 if fit is None else fit.starts, chance=math.inf if fit is None else fit.chance, seconds=seconds,
        points=(a, b), K1=inverted(frame.A1), K2=inverted(frame.A2),
    )  # fmt: skip
