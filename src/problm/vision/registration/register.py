"""`register`: the rigid motion between two point clouds, from all of their points."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...losses import as_loss
from ...manifolds import nearest_rotation
from ...sampling.order import as_generator
from ...solver.options import Options
from ...solver.result import Result
from ...support.suggest import suggest
from .problem import RegistrationProblem
from .result import Registration
from .stages import SAMPLE, Setup, Stage, approach, finish, noise_of
from .start import search
from .target import Target, spatial_order
from .trust import Judgement, inliers_of, judge, own_noise

Array = NDArray[np.float64]
METHODS = ("plane", "point")
_LEAST = 10


def register(
    source: ArrayLike,
    target: ArrayLike,
    *,
    method: str = "plane",
    initial: Any = None,
    normals: ArrayLike | None = None,
    scale: bool = False,
    loss: str = "tukey",
    f_scale: float | None = None,
    max_distance: float | None = None,
    threads: int = 1,
    rng: np.random.Generator | int | None = 0,
    **options: Any,
) -> Registration:
    """Find the motion that moves the source onto the target, ``target ~ R source + t``.

    Minimises the distances of the source points from the target surface (or from the nearest target points), with a
    robust loss whose scale is found from the data, so the clouds need to overlap only in part. It starts from a sample,
    goes on with growing batches, whose points alone search their neighbours, and ends on all points.

    Parameters
    ----------
    source : (N, 3) points.
    target : (M, 3) points.
    method : ``"plane"``, distance from the plane through the target points around the nearest one, or ``"point"``,
        distance from the nearest target point, for clouds without surfaces.
    initial : start: None (the identity), a (4, 4) matrix, ``(R, t)``, or ``"auto"``: a search over all rotations with
        the centroids put on each other, for clouds that overlap nearly fully, besides the identity.
    normals : (M, 3) normals of the target, of either sign. None: estimated in cells whose width is found from the data.
    scale : estimate a scale as well. The start must be near it: a source that shrinks comes near the target, too.
    loss : name of a robust loss; ``"linear"`` for least squares within ``max_distance``.
    f_scale : scale of the loss, in the units of the clouds; None: from the noise.
    max_distance : largest distance of a source point from its match at the end. None: from the noise and
        the distances between target points.
    threads : number of threads.
    rng : random seed or Generator; results are bit-reproducible.
    **options : options of the solver (`problm.Options`), e.g. ``max_time``, ``callback``, ``acceptance``.

    Returns
    -------
    Registration. Its ``status`` is ``"ok"``, ``"degenerate"`` (the clouds can be moved along ``undetermined`` without
    a change, as planes and spheres can), ``"no fit"`` (the clouds do not show the same surface, or the start was too
    far away) or ``"not converged"``.

    Examples
    --------
    >>> from problm.vision.registration.simulate import two_clouds
    >>> clouds = two_clouds(5000, overlap=0.7, seed=1)
    >>> found = register(clouds.source, clouds.target)
    >>> found.status, bool(found.rotation_error(clouds.R) < 0.2), bool(found.translation_error(clouds.t) < 0.005)
    ('ok', True, True)
    """
    began = time.perf_counter()
    _check(method, loss, f_scale, max_distance, threads, options)
    a, b = _cloud(source, "source"), _cloud(target, "target")
    directions = None if normals is None else _normals(normals, len(b))
    start = as_start(initial)
    centre1, centre2 = a.mean(axis=0), b.mean(axis=0)
    a, b = a - centre1, b - centre2
    unit = float(np.sqrt((b**2).sum(axis=1).mean()))
    if not unit > 0.0:
        raise ValueError("target: all points are the same")
    a, b = a / unit, b / unit
    order = spatial_order(a)
    a = np.ascontiguousarray(a[order])
    aim = Target(b, directions, method == "plane", threads=threads)
    if len(aim.points) < _LEAST:
        raise ValueError(
            f"target: {len(aim.points)} places with enough points around for a plane; give more points, normals=, or "
            'method="point"'
        )
    setup = Setup(
        method == "plane", scale, loss, None if f_scale is None else f_scale / unit,
        None if max_distance is None else max_distance / unit, threads, rng, options, began,
    )  # fmt: skip
    sample = a[as_generator(rng).permutation(len(a))[:SAMPLE]]
    theta = _point(start, centre1, centre2, unit, scale)
    stage = _approached(sample, aim, theta, setup, isinstance(initial, str))
    result, problem = finish(a, aim, stage, setup)
    noise = noise_of(_some(problem, result.x))
    judgement = judge(problem.thinned(SAMPLE)[0], result.x, noise, own_noise(aim, setup.plane))
    flags = np.empty(len(a), dtype=bool)
    flags[order] = inliers_of(problem, result.x, noise)
    status, message = _verdict(result, judgement, flags)
    R, c = result.x[:9].reshape(3, 3), math.exp(result.x[12]) if scale else 1.0
    return Registration(
        R=R.copy(), t=unit * result.x[9:12] + centre2 - c * R @ centre1, scale=c, inliers=flags, noise=noise * unit,
        gate=stage.gate * unit, status=status, message=message, undetermined=judgement.weak, result=result,
        seconds=time.perf_counter() - began, made=(problem, centre1, centre2, unit),
    )  # fmt: skip


def _approached(sample: Array, target: Target, theta: Array, setup: Setup, everywhere: bool) -> Stage:
    """Bring a sample near the target, from the start or from the best of many."""
    ordered = np.ascontiguousarray(sample[spatial_order(sample)])
    moved = ordered @ theta[:9].reshape(3, 3).T + theta[9:12]
    if everywhere:
        stage = search(sample, target, theta[None], setup)
        theta, gate = stage.theta, 2.0 * stage.gate
    else:
        gate = max(2.0 * float(np.median(target.tree.query(moved)[0])), 4.0 * target.spacing)
    return approach(ordered, target, theta, gate, setup)


def _some(problem: RegistrationProblem, theta: Array) -> Array:
    """Residuals of matched rows, of a sample of many rows."""
    some = problem.thinned(10 * SAMPLE)[0]
    return some.residuals(theta)[some.matched(theta)]


def _verdict(result: Result, judgement: Judgement, inliers: NDArray[np.bool_]) -> tuple[str, str]:
    """Status and message."""
    if not result.success:
        return "not converged", result.message
    if why := judgement.misfit:
        return "no fit", f"The clouds do not fit: {why}. Start nearer, or from initial='auto'."
    if len(judgement.weak):
        turns, shifts = (np.linalg.norm(judgement.weak[:, k : k + 3], axis=1) > 0.5 for k in (0, 3))
        kinds = [name for name, any_of in (("rotations", turns.any()), ("shifts", shifts.any())) if any_of]
        return "degenerate", (
            f"The clouds do not determine {len(judgement.weak)} of {judgement.weak.shape[1]} directions "
            f"({' and '.join(kinds) or 'scale'}): moving along them changes nothing."
        )
    return "ok", f"{100.0 * inliers.mean():.0f} % of the source points agree with the target."


def _check(
    method: str, loss: str, f_scale: float | None, max_distance: float | None, threads: int, options: dict[str, Any]
) -> None:
    """Check all arguments but the clouds before any work."""
    if method not in METHODS:
        raise ValueError(f"method={method!r} is not known{suggest(method, METHODS)}; choose one of {METHODS}")
    if not isinstance(loss, str):
        raise TypeError(f"loss must be the name of a loss (f_scale is its scale), got {type(loss).__name__}")
    as_loss(loss)
    for name, value in (("f_scale", f_scale), ("max_distance", max_distance)):
        if value is not None and not (math.isfinite(value) and value > 0.0):
            raise ValueError(f"{name} must be a positive length, or None, got {value!r}")
    if int(threads) != threads or threads < 1:
        raise ValueError(f"threads must be a whole number from 1, got {threads!r}")
    if loss == "linear" and f_scale is not None:
        raise ValueError('f_scale: loss="linear" has no scale; choose a robust loss or leave f_scale out')
    Options.of_several(**options)


def _cloud(points: ArrayLike, name: str) -> Array:
    """Checked points (n, 3)."""
    x = np.asarray(points, dtype=np.float64)
    if x.ndim != 2 or x.shape[1] != 3:
        raise ValueError(f"{name} must be an array of points (n, 3), got shape {x.shape}")
    if len(x) < _LEAST:
        raise ValueError(f"{name} must have at least {_LEAST} points, got {len(x)}")
    if not np.isfinite(x).all():
        bad = int(np.flatnonzero(~np.isfinite(x).all(axis=1))[0])
        raise ValueError(f"{name}: point {bad} is not finite; leave such points out")
    return np.ascontiguousarray(x)


def _normals(normals: ArrayLike, count: int) -> Array:
    """Checked normals as unit vectors."""
    n = np.asarray(normals, dtype=np.float64)
    if n.shape != (count, 3):
        raise ValueError(f"normals must have the shape of target, ({count}, 3), got {n.shape}")
    length = np.linalg.norm(n, axis=1, keepdims=True)
    if not (np.isfinite(length).all() and (length > 0.0).all()):
        raise ValueError("normals must be finite and not zero")
    return np.ascontiguousarray(n / length)


def as_start(initial: Any) -> tuple[Array, Array]:
    """Rotation and translation of a start."""
    if initial is None:
        return np.eye(3), np.zeros(3)
    if isinstance(initial, str):
        if initial != "auto":
            raise ValueError(f'initial={initial!r} is not known; give a (4, 4) matrix, (R, t), None or "auto"')
        return np.eye(3), np.zeros(3)
    if isinstance(initial, Registration):
        return initial.R, initial.t
    if isinstance(initial, tuple | list) and len(initial) == 2:
        R, t = np.asarray(initial[0], dtype=np.float64), np.asarray(initial[1], dtype=np.float64).ravel()
    else:
        M = np.asarray(initial, dtype=np.float64)
        if M.shape != (4, 4):
            raise ValueError(f"initial must be a (4, 4) matrix or (R, t), got shape {M.shape}")
        R, t = M[:3, :3], M[:3, 3]
    if R.shape != (3, 3) or t.shape != (3,) or not (np.isfinite(R).all() and np.isfinite(t).all()):
        raise ValueError("initial: R (3, 3) and t (3,) must be finite")
    if np.abs(R @ R.T - np.eye(3)).max() > 1e-3 or np.linalg.det(R) < 0.0:
        raise ValueError("initial: R is not a rotation matrix (R'R = I, det R = 1)")
    return nearest_rotation(R), t


def _point(start: tuple[Array, Array], centre1: Array, centre2: Array, unit: float, scale: bool) -> Array:
    """The parameters of a start in normalised coordinates."""
    R, t = start
    parts = [R.ravel(), (t + R @ centre1 - centre2) / unit]
    return np.concatenate([*parts, np.zeros(1)] if scale else parts)
