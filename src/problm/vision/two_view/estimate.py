r"""Common part of `fundamental_matrix` and `homography`: coordinates of unit size, fit and result.

Without camera matrices the model's coordinates come from the matches themselves: each image's points are moved
to their centre and divided by their spread (Hartley 1997), which conditions minimal solvers and tangent
parameters. Errors stay in pixels.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...losses import Loss
from .models import Frame, Model
from .result import TwoViewFit
from .robust import Fit, find_start, fit_robust, refine, result_variance, within
from .settings import Settings

Array = NDArray[np.float64]
Points = NDArray[Any]

_ENOUGH = 1000  # rows from which centre and spread are computed


def unit_frame(x1: Points, x2: Points, maps: bool) -> Frame:
    """Coordinate changes to centred points with a mean square distance of 2."""
    changes = []
    for x in (x1, x2):
        some = x[:: max(1, len(x) // _ENOUGH)].T.astype(np.float64, order="C")
        # Median and median distance, which are insensitive to a few gross outliers.
        middle = some.shape[1] // 2
        centre = np.sort(some)[:, middle]
        away = np.sort(np.abs(some - centre[:, None]).max(axis=0))
        spread = float(away[middle]) or float(away[-1]) or 1.0
        changes.append(
            np.array([[1 / spread, 0, -centre[0] / spread], [0, 1 / spread, -centre[1] / spread], [0, 0, 1.0]])
        )
    return Frame(changes[0], changes[1], maps)


def start_matrix(initial: Any, frame: Frame, model: Model) -> Array:
    """The point of a (3, 3) matrix, in pixels, that the user starts from."""
    X = np.asarray(getattr(initial, "matrix", initial), dtype=np.float64)
    if X.shape != (3, 3) or not np.isfinite(X).all() or not np.abs(X).max() > 0.0:
        raise ValueError(f"initial must be a (3, 3) {model.name} of finite numbers, not all zero; got {initial!r}")
    return model.point(frame.from_pixels(X))


def estimate(
    model: Model, frame: Frame, a: Points, b: Points, theta: Array | None, settings: Settings, robust: bool
) -> tuple[Fit | None, float]:
    """The fit, and the variance of a component of its errors; nan if that is not known or the fit is robust."""
    began = time.perf_counter()
    if robust:
        return fit_robust(model, frame, a, b, settings, theta), math.nan
    squares = Loss.named("linear")
    start = find_start(model, frame, a, b, settings) if theta is None else theta
    if start is None:
        return None, math.nan
    result = refine(model, frame, [a, b], start, squares, 1, settings.threads, settings.seed, settings.options)
    errors, inliers = within(result, settings.threshold)
    cut = settings.threshold or math.nan
    seconds = time.perf_counter() - began
    fit = Fit(result.x, cut, squares, result, errors, inliers, math.nan, math.nan, 0, seconds)
    return fit, result_variance(result, model)


def outcome(
    kind: Callable[..., TwoViewFit],
    name: str,
    model: Model,
    frame: Frame,
    a: Points,
    b: Points,
    fit: Fit | None,
    simpler: str = "",
) -> Any:
    """Make a result of the given kind from the fit, or from what is known without one.

    ``name`` is the field of the matrix; ``simpler`` is the message where the matches do not determine the model.
    """
    n, d = len(a), model.dim
    common: dict[str, Any] = {"points": (a, b)}
    if fit is None or fit.chance >= 0.0:  # nan, for squared residuals, is neither
        found = "no sample gave one" if fit is None else f"the best has {int(fit.inliers.sum())} of {n} inliers"
        return kind(
            **{name: np.full((3, 3), np.nan)}, tangents=np.full((9, d), np.nan),
            inliers=np.zeros(n, dtype=bool), measured=np.full(n, np.nan), status="no consensus",
            message=f"No {model.name} better than chance: {found}, which wrong matches reach as well.",
            threshold=math.nan if fit is None else fit.threshold, result=None if fit is None else fit.result,
            hessian=np.full((d, d), np.nan), starts=0 if fit is None else fit.starts,
            chance=math.inf if fit is None else fit.chance, seconds=0.0 if fit is None else fit.seconds, **common,
        )  # fmt: skip
    status, message = "ok", f"The {model.name} is determined by its inliers."
    if n * model.freedom <= d:
        message = f"The {model.name} fits exactly: there are no more matches than parameters, and no errors to see."
    if simpler:
        status, message = "degenerate", simpler
    elif not fit.result.success:
        status, message = "not converged", fit.result.message
    matrix = frame.to_pixels(model.matrix(fit.theta))
    return kind(
        **{name: matrix}, tangents=entry_jacobian(model, frame, fit.theta, matrix),
        inliers=fit.inliers, measured=fit.errors, status=status, message=message, threshold=fit.threshold,
        result=fit.result, hessian=fit.result.hessian, minimum=(fit.result.problem, fit.theta), starts=fit.starts,
        chance=fit.chance, seconds=fit.seconds, **common,
    )  # fmt: skip


def entry_jacobian(model: Model, frame: Frame, theta: Array, matrix: Array) -> Array:
    """(9, d) derivative of the entries of the scaled matrix, in pixels, with respect to the tangent parameters."""
    encoded = model.encoder(frame)(theta)
    raw, tangents = encoded[:9], encoded[9 : 9 + 9 * model.dim].reshape(model.dim, 9).T
    if frame.maps and matrix[2, 2] == 1.0:
        return (tangents - matrix.reshape(9, 1) * tangents[8]) / raw[8]
    unit = matrix.reshape(9)
    projected: Array = (tangents - np.outer(unit, unit @ tangents)) / (raw @ unit)
    return projected
