r"""`calibrate_camera`: intrinsics of a camera from views of known points, such as the corners of a board."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...losses import Loss, as_loss
from ...solver.graduated import graduated
from ...solver.loop import solve
from ...solver.options import Options
from ...solver.result import Result
from ...support.suggest import suggest
from ..bundle.camera_models import MODELS, Intrinsics
from .problem import CalibrationProblem
from .result import Calibration
from .start import starts, with_poses

Array = NDArray[np.float64]

NAMES = {"brown": "OPENCV5", "rational": "FULL_OPENCV", "fisheye": "OPENCV_FISHEYE", "pinhole": "PINHOLE"}
"""Short names of camera models."""
_LIKELY = 3  # starts that are refined
_LEVELS = 6  # of a robust loss, from 32 times its width
_UNSURE = 0.2
"""Standard error of the focal length, relative to it, above which the views do not determine the camera."""


def calibrate_camera(
    object_points: Any,
    image_points: Sequence[ArrayLike],
    image_size: tuple[int, int],
    model: str = "brown",
    *,
    initial: Intrinsics | None = None,
    fixed: Collection[str] = (),
    loss: str | Loss = "linear",
    f_scale: float = 1.0,
    **options: Any,
) -> Calibration:
    """Intrinsics of a camera, and the poses of the views, from pixels of known points.

    Parameters
    ----------
    object_points : list of (m, 3) points per view, or one array (m, 3) or (m, 2) for all views, in any unit.
    image_points : list of (m, 2) pixels per view; (m, 1, 2) as OpenCV's.
    image_size : width and height in pixels.
    model : ``"brown"`` (OpenCV's five coefficients), ``"rational"`` (eight), ``"fisheye"`` (OpenCV's four),
        ``"pinhole"``, or any model of `problm.Intrinsics`.
    initial : a camera to start from. None: found by Zhang's closed form and other focal lengths.
    fixed : names of parameters that stay as they are, e.g. ``("cx", "cy")`` or ``("k3",)``.
    loss, f_scale : robust loss of each point's error (see `problm.Loss`), and its scale in pixels.
    **options : options of the solver (`problm.Options`).

    Returns
    -------
    Calibration, with the camera, the covariance of its parameters, and the poses.

    Examples
    --------
    >>> from problm.vision.calibration.simulate import board_views
    >>> views = board_views(10, seed=1)
    >>> found = calibrate_camera(views.object_points, views.image_points, (640, 480))
    >>> found.status, bool(abs(found.K[0, 0] - 800.0) < 5 * found.standard_errors["fx"])
    ('ok', True)
    """
    began = time.perf_counter()
    name = _model(model)
    size = _size(image_size)
    objects, images = check_views(object_points, image_points)
    camera = initial
    if camera is not None:
        if not isinstance(camera, Intrinsics) or camera.model != name:
            raise ValueError(f"initial must be problm.Intrinsics of the model {name}, got {initial!r}")
        camera = Intrinsics(name, camera.params, *size)
    free = _free(name, fixed)
    rule = as_loss(loss, f_scale)
    Options.of_several(**options)
    if sum(map(len, objects)) * 2 < len(free) + 6 * len(objects):
        raise ValueError(
            f"image_points: {sum(map(len, objects))} points in {len(objects)} views are too few for {len(free)} "
            "parameters; add views, or hold parameters by fixed="
        )
    problem = CalibrationProblem(name, objects, images, free, Loss.named("linear"))
    begins = starts(name, objects, images, size) if camera is None else with_poses(camera, objects, images)
    options = {"acceptance": "full", **options}
    result = _best(problem, [(c, _theta(c, poses)) for c, poses in begins], options)
    if not rule.is_linear:
        # From the least-squares solution through wider losses: no view gets out of the loss's reach.
        result = graduated(
            lambda wide: CalibrationProblem(name, objects, images, free, wide), result.x, rule, _LEVELS, **options
        )
        problem = result.problem
    return _made(problem, result, Intrinsics(name, tuple(result.x[: problem.p]), *size), began)


def _model(model: str) -> str:
    name = NAMES.get(model, model)
    if name not in MODELS:
        known = (*NAMES, *MODELS)
        raise ValueError(f"model={model!r} is not known{suggest(str(model), known)}; choose one of {', '.join(known)}")
    return name


def _size(size: Any) -> tuple[int, int]:
    try:
        width, height = (int(v) for v in size)
    except (TypeError, ValueError):
        raise ValueError(f"image_size must be (width, height) in pixels, got {size!r}") from None
    if width < 1 or height < 1:
        raise ValueError(f"image_size must be (width, height) in pixels, got {size!r}")
    return width, height


def _free(name: str, fixed: Collection[str]) -> NDArray[np.int64]:
    if isinstance(fixed, str):
        fixed = (fixed,)
    parameters = MODELS[name].parameters
    for given in fixed:
        if given not in parameters:
            raise ValueError(f"fixed: {name} has no parameter {given!r}; choose from {', '.join(parameters)}")
    return np.array([k for k, parameter in enumerate(parameters) if parameter not in fixed], dtype=np.int64)


def check_views(object_points: Any, image_points: Any) -> tuple[list[Array], list[Array]]:
    """Points (m, 3) and pixels (m, 2) of every view."""
    images = [_points(x, 2, f"image_points[{k}]") for k, x in enumerate(image_points)]
    if not images:
        raise ValueError("image_points: at least one view is needed")
    if isinstance(object_points, np.ndarray) and object_points.ndim == 2:
        object_points = [object_points] * len(images)
    if len(object_points) != len(images):
        raise ValueError(
            f"object_points and image_points must have one array per view, but have {len(object_points)} and "
            f"{len(images)}"
        )
    objects = [_points(X, 3, f"object_points[{k}]") for k, X in enumerate(object_points)]
    for k, (X, x) in enumerate(zip(objects, images, strict=True)):
        if len(X) != len(x):
            raise ValueError(f"view {k}: object_points has {len(X)} rows, and image_points has {len(x)}")
        if len(X) < 4:
            raise ValueError(f"view {k}: at least 4 points are needed, got {len(X)}; leave the view out")
    return objects, images


def _points(x: Any, width: int, name: str) -> Array:
    try:
        array = np.array(x, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers") from error
    if array.ndim == 3 and 1 in array.shape[:2]:
        array = array.reshape(-1, array.shape[2])
    if width == 3 and array.ndim == 2 and array.shape[1] == 2:
        array = np.column_stack([array, np.zeros(len(array))])
    if array.ndim != 2 or array.shape[1] != width:
        raise ValueError(f"{name} must have the shape (m, {width}), got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds values that are not finite: remove these points")
    return array


def _theta(camera: Intrinsics, poses: Sequence[tuple[Array, Array]]) -> Array:
    return np.concatenate([camera.params, *(np.concatenate([R.ravel(), t]) for R, t in poses)])


def _best(problem: CalibrationProblem, begins: list[tuple[Intrinsics, Array]], options: dict[str, Any]) -> Result:
    """The solution from the most likely starts: those with the least cost."""
    if not begins:
        raise ValueError("image_points: no start was found; give initial=, or leave out views of points on a line")
    ranked = sorted(begins, key=lambda begin: _finite(problem.cost(begin[1])))
    if len(ranked) == 1:
        return solve(problem, ranked[0][1], **options)
    # A few steps tell which start leads down.
    short = [solve(problem, theta, **{**options, "max_iter": 8}) for _, theta in ranked[:_LIKELY]]
    return solve(problem, min(short, key=lambda r: _finite(r.cost)).x, **options)


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.inf


def _made(problem: CalibrationProblem, result: Result, camera: Intrinsics, began: float) -> Calibration:
    poses = result.x[problem.p :].reshape(-1, 12)
    r = problem.residuals(result.x)
    parts = [r[a:b] for a, b in zip(problem.edges, problem.edges[1:], strict=False)]
    status, message = "ok", "The camera is determined by the views."
    f = camera.places[0]
    variance = 2.0 * result.cost / result.degrees_of_freedom
    spread = np.diag(result.unscaled_covariance)[: len(problem.free)] * max(variance, 1e-12)
    focal = [j for j, k in enumerate(problem.free) if MODELS[camera.model].parameters[k] in ("f", "fx", "fy")]
    if not result.success:
        status, message = "not converged", result.message
    if result.singular or any(not spread[j] < (_UNSURE * f) ** 2 for j in focal):
        status = "degenerate"
        message = "The views do not determine the camera: tilt the board in several directions, or fix parameters."
    return Calibration(
        camera=camera, rotations=poses[:, :9].reshape(-1, 3, 3).copy(), translations=poses[:, 9:].copy(),
        status=status, message=message, cost=result.cost,
        view_errors=np.array([math.sqrt(float(np.mean((part**2).sum(axis=1)))) for part in parts]),
        residuals=parts, points=[problem.x[a:b] for a, b in zip(problem.edges, problem.edges[1:], strict=False)],
        free=problem.free, result=result, seconds=time.perf_counter() - began,
    )  # fmt: skip
