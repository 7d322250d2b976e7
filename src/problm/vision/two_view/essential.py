r"""`essential_matrix`: the relative pose of two calibrated cameras from matches.

Refinement from a given start (``robust=False``) minimises the squared Sampson errors of all matches. Robust estimation
needs no start: see `robust` for its steps. A pose carries more information than E, which is used twice:

* The points vote for one of the four poses of E, and an inlier must lie in front of both cameras, at a plausible depth
  (`depths`). About half of the outliers that happen to be near their epipolar line lie behind a camera, which reduces
  the variance that outliers add to the pose to less than a half (simulated scenes, 20 to 80 % inliers); most of the
  rest would be far nearer than the scene, or farther.
* If a rotation alone explains the inliers, t is not determined, and the status says so (`degenerate`).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...losses import Loss
from ...manifolds import as_pose
from ...problems.compiled import CompiledProblem
from ...support.suggest import suggest
from .consensus import inlier_quantile
from .degenerate import Simpler, largest_noise, on_a_line, rotation_only, undetermined
from .depths import VOTERS, Depths
from .kernels import cross_product
from .matches import check_intrinsics, check_matches, inverse_intrinsics, refuse_pixels, undistort
from .models import ESSENTIAL, ESSENTIAL_ANGLES, Frame, Model, angles_from_pose, pose_of, two_view_problem
from .pose import choose_pose, decompose_essential
from .result import RelativePose
from .robust import Fit, find_start, fit_robust, refine, result_variance, within
from .settings import Settings, make_settings

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Points = NDArray[Any]

PARAMETERIZATIONS = {"manifold": ESSENTIAL, "angles": ESSENTIAL_ANGLES}
_SQUARES = Loss.named("linear")
_VOTERS = 500  # matches that vote for one of the four poses


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
    max_starts: int = 100_000,
    confidence: float = 0.999,
    parameterization: str = "manifold",
    threads: int | None = None,
    rng: np.random.Generator | int | None = 0,
    **options: Any,
) -> RelativePose:
    """Essential matrix and relative pose of two views: ``x2 ~ R x1 + t``.

    Parameters
    ----------
    x1, x2 : (N, 2) matched points of image 1 and image 2, in pixels if K1 is given, else in calibrated coordinates.
        Row i of x1 belongs to row i of x2. float64 and float32 are read in place.
    K1, K2 : (3, 3) camera matrices, or (fx, fy, cx, cy). K2 is K1 if not given.
    initial : the start: (R, t), a (3, 3) essential matrix, or a `RelativePose`. None: found by the search.
    robust : whether matches may be wrong. False minimises the squared Sampson errors of *all* matches.
    threshold : largest Sampson error of an inlier, in the units of x1 and x2 (pixels), or ``"auto"``: 2.5 standard
        deviations of the noise, which is estimated.
    distortion : coefficients (k1, k2, p1, p2[, k3..k6]) of the lens, or a pair of them for the two images. Points are
        undistorted first, and errors are pixels of the undistorted images.
    loss : robust loss of the refinement (see `problm.Loss`); its scale is the threshold.
    levels : levels of graduated non-convexity, each solved on all matches, or on a random sample of 10,000 where there
        are many more. None: 5 from ``initial``, or as many as that takes; after a search, which ends near the minimum,
        a short descent.
    starts : ``"minimal"`` (five-point samples) or ``"random"`` (no RANSAC: descent from random poses).
    max_starts, confidence : when the search ends; see `problm.vision.two_view.settings.SearchOptions`.
    parameterization : ``"manifold"``, or ``"angles"`` for the paper's five angles, which have singularities.
    threads : number of threads for the refinement of very many matches; by default all cores.
    rng : random seed or Generator; results are bit-reproducible.
    **options : options of the solver (`problm.Options`), e.g. ``max_time``, ``acceptance``, ``ftol``.

    Returns
    -------
    RelativePose. Its ``status`` is ``"ok"``, ``"degenerate"`` (a rotation explains the matches: R is given, t is not;
    or they lie on a line or in too narrow a field: R and t are one of many that fit), ``"no consensus"`` (no geometry
    better than chance) or ``"not converged"``.

    Examples
    --------
    >>> from problm.vision.two_view.simulate import two_views
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
    A1 = inverse_intrinsics(k1)
    frame = Frame(A1, A1 if k2 is k1 else inverse_intrinsics(k2))
    settings = make_settings(threshold, loss, levels, starts, max_starts, confidence, threads, rng, options)
    theta = None if initial is None else _start(initial, model)
    refuse_pixels(a, "x1", "K1", None if K1 is None else frame.A1)
    refuse_pixels(b, "x2", "K1" if K2 is None else "K2", None if K1 is None and K2 is None else frame.A2)
    task = _Task(model, frame, a, b, k1, k2, settings)
    return _robust_pose(task, theta) if robust else _refine_all(task, theta)


def _model(parameterization: str) -> Model:
    if parameterization not in PARAMETERIZATIONS:
        names = tuple(PARAMETERIZATIONS)
        near = suggest(parameterization, names)
        raise ValueError(f"parameterization={parameterization!r} is not known{near}; choose one of {names}")
    return PARAMETERIZATIONS[parameterization]


def _pair(distortion: Any) -> tuple[Any, Any]:
    """Coefficients for image 1 and image 2, from one list for both or from two lists (None: no distortion)."""
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
        # Copies, because read-only arrays and other memory orders are different types to compiled code.
        R, t = np.array(initial[0], dtype=np.float64, order="C"), np.array(initial[1], dtype=np.float64).ravel()
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
        R, _, t = decompose_essential(E)
    pose, departure, length = as_pose(np.ascontiguousarray(R), np.ascontiguousarray(t))
    if not (math.isfinite(departure) and math.isfinite(length)):
        raise ValueError("initial holds values that are not finite")
    if not length > 0.0:
        raise ValueError("initial: t is zero; its direction is what is estimated")
    if departure > 1e-3:
        raise ValueError("initial: R is not a rotation matrix (R'R = I, det R = 1)")
    point: Array = pose if model is ESSENTIAL else angles_from_pose(pose[:9].reshape(3, 3), pose[9:])
    return point


@dataclass(frozen=True)
class _Task:
    """Data and settings of an estimate."""

    model: Model
    frame: Frame
    a: Points
    b: Points
    K1: Array
    K2: Array
    settings: Settings

    def matches(self, rows: Any = slice(None)) -> Array:
        """(n, 4) float64."""
        return np.concatenate([self.a[rows], self.b[rows]], axis=1, dtype=np.float64)


def _refine_all(task: _Task, theta: Array | None) -> RelativePose:
    """Minimise the squared residuals of all matches."""
    began = time.perf_counter()
    model, frame, a, b, settings = task.model, task.frame, task.a, task.b, task.settings
    start = find_start(model, frame, a, b, settings) if theta is None else theta
    if start is None:
        return _nothing(task, time.perf_counter() - began)
    result = refine(model, frame, [a, b], start, _SQUARES, 1, settings.threads, settings.seed, settings.options)
    errors, inliers = within(result, settings.threshold)
    variance = result_variance(result, model)
    voters = task.matches(slice(None, None, max(1, len(a) // _VOTERS)))
    pose, _ = choose_pose(pose_of(model, result.x), frame.transform(voters))
    simpler = None
    if result.success:  # else the errors are not yet those of noise
        # At least the rounding of the coordinates, which is all that is left of exact matches.
        cut = inlier_quantile(1) * max(variance**0.5, 1e-11 * float(np.abs(voters).max()))
        simpler = rotation_only(frame, pose, voters, None, cut, 0.01)
    nan = math.nan
    fit = Fit(result.x, settings.threshold or nan, _SQUARES, result, errors, inliers, nan, nan, 0, 0.0)
    return _result(task, fit, pose, simpler, variance, began)


def _robust_pose(task: _Task, theta: Array | None) -> RelativePose:
    """Estimate the pose from matches with outliers."""
    began = time.perf_counter()
    model, frame = task.model, task.frame
    x = task.matches()
    depths = Depths(model, frame, x)
    fit = fit_robust(model, frame, task.a, task.b, task.settings, theta, depths, x)
    if fit is None or (not fit.chance < 0.0 and not _on_a_line(task, fit)):
        return _nothing(task, time.perf_counter() - began, fit)
    voters = np.flatnonzero(fit.inliers)
    pose, _ = choose_pose(pose_of(model, fit.theta), frame.transform(x[voters[:: max(1, len(voters) // VOTERS)]]))
    simpler = rotation_only(frame, pose, x, fit.inliers, fit.threshold, fit.accepted)
    kept = fit.errors[fit.inliers] if fit.errors is not None else np.zeros(1)
    return _result(task, fit, pose, simpler, float(kept @ kept) / max(1, len(kept)), began)


def _result(task: _Task, fit: Fit, pose: Array, simpler: Simpler | None, variance: float, began: float) -> RelativePose:
    """Make the result."""
    R, t = pose[:9].reshape(3, 3), pose[9:]
    E, errors, inliers = cross_product(t, R), fit.errors, fit.inliers
    status, message = "ok", "The pose is determined by its inliers."
    if len(inliers) <= task.model.dim:
        message = "The pose fits exactly, as others may: there are no more matches than parameters."
    if simpler is not None:
        hessian = np.full((5, 5), np.nan)
        status = "degenerate"
        message = "A rotation alone explains the matches: the direction of t is not determined."
        R, t, E = simpler.matrix, np.full(3, np.nan), np.full((3, 3), np.nan)
        if len(simpler.errors) == len(inliers):
            errors, inliers = simpler.errors, simpler.inliers
        minimum = None
    else:
        minimum = _minimum(task.frame, fit, pose)
        hessian = fit.result.hessian
        if minimum[0] is not fit.result.problem:
            hessian = minimum[0].linearize(pose, 0, minimum[0].n, outer=False, costs=None).hessian
        if not fit.result.success:
            status, message = "not converged", fit.result.message
        elif why := _doubt(task, inliers, variance):
            hessian, minimum = np.full((5, 5), np.nan), None
            status, message = "degenerate", why
    return RelativePose(
        R=R, t=t, E=E, inliers=inliers, measured=errors, threshold=fit.threshold, status=status, message=message,
        result=fit.result, hessian=hessian, minimum=minimum, starts=fit.starts, chance=fit.chance,
        seconds=time.perf_counter() - began, points=(task.a, task.b), K1=task.K1, K2=task.K2,
    )  # fmt: skip


def _on_a_line(task: _Task, fit: Fit) -> bool:
    """Whether a consensus is no better than chance because nearly all matches lie on a line."""
    few = task.matches(slice(None, None, max(1, len(task.a) // _VOTERS)))
    variance = (fit.threshold / inlier_quantile(1)) ** 2
    return int(fit.inliers.sum()) > task.model.dim and any(on_a_line(few, image, variance) for image in (0, 1))


def _doubt(task: _Task, inliers: Flags, variance: float) -> str:
    """Why the inliers determine no pose, or nothing."""
    kept = int(np.count_nonzero(inliers))
    some = slice(None, None, max(1, kept // _VOTERS))
    few = task.matches(some if kept == len(inliers) else np.flatnonzero(inliers)[some])
    variance *= largest_noise(kept, task.model.dim) ** 2
    return undetermined(task.frame, few, kept, variance) if kept > task.model.dim else ""


def _minimum(frame: Frame, fit: Fit, pose: Array) -> tuple[CompiledProblem, Array]:
    """The last problem in the tangent parameters of the chosen pose, and the pose."""
    problem: CompiledProblem = fit.result.problem
    if pose.tolist() == fit.theta.tolist():
        return problem, pose
    return two_view_problem(ESSENTIAL, list(problem.data.columns), frame, fit.loss), pose


def _nothing(task: _Task, seconds: float, fit: Fit | None = None) -> RelativePose:
    """The result if no geometry is better than chance."""
    n = len(task.a)
    found = "no model fits any sample" if fit is None else f"the best model has {int(fit.inliers.sum())} of {n} inliers"
    nan = np.full((3, 3), np.nan)
    return RelativePose(
        R=nan, t=nan[0], E=nan, inliers=np.zeros(n, dtype=bool), measured=np.full(n, np.nan),
        threshold=math.nan if fit is None else fit.threshold, status="no consensus",
        message=f"No geometry better than chance: {found}, which wrong matches reach as well.",
        result=None if fit is None else fit.result, hessian=np.full((5, 5), np.nan),
        starts=0 if fit is None else fit.starts, chance=math.inf if fit is None else fit.chance, seconds=seconds,
        points=(task.a, task.b), K1=task.K1, K2=task.K2,
    )  # fmt: skip
