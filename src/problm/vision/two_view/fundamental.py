r"""`fundamental_matrix`: the epipolar geometry of two uncalibrated cameras from matches.

It minimises Sampson errors on the manifold of rank-2 matrices with 7 parameters (`problm.manifolds.FUNDAMENTAL`);
otherwise it works like `essential`. Points on one plane do not determine F; the status says so (`degenerate`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .degenerate import plane_only
from .estimate import estimate, outcome, start_matrix, unit_frame
from .matches import check_matches
from .models import FUNDAMENTAL
from .result import Fundamental
from .settings import make_settings


def fundamental_matrix(
    x1: ArrayLike,
    x2: ArrayLike,
    *,
    initial: Any = None,
    robust: bool = True,
    threshold: float | str = "auto",
    loss: str = "truncated",
    levels: int | None = None,
    starts: str = "minimal",
    max_starts: int = 100_000,
    confidence: float = 0.999,
    threads: int | None = None,
    rng: np.random.Generator | int | None = 0,
    **options: Any,
) -> Fundamental:
    """Fundamental matrix of two views: ``x2' F x1 = 0``.

    Parameters
    ----------
    x1, x2 : (N, 2) matched points, N >= 7, in pixels (or any unit: errors and threshold are in the same).
    initial : (3, 3) matrix to start from. None: found by the search.
    robust : whether matches may be wrong. False minimises the squared Sampson errors of *all* matches.
    threshold, loss, levels, starts, max_starts, confidence, threads, rng, **options
        As for `problm.essential_matrix`; minimal samples have seven matches here.

    Returns
    -------
    Fundamental. Its ``status`` is ``"ok"``, ``"degenerate"`` (a plane explains the matches: F is one of many that do),
    ``"no consensus"`` or ``"not converged"``.

    Examples
    --------
    >>> from problm.vision.two_view.simulate import two_views
    >>> views = two_views(500, inliers=0.7, seed=1)
    >>> fit = fundamental_matrix(views.x1, views.x2)
    >>> fit.status, bool(np.mean(fit.inliers == views.inliers) > 0.97)
    ('ok', True)
    """
    a, b = check_matches(x1, x2, 7, "fundamental matrix")
    settings = make_settings(threshold, loss, levels, starts, max_starts, confidence, threads, rng, options)
    frame = unit_frame(a, b, maps=False)
    theta = None if initial is None else start_matrix(initial, frame, FUNDAMENTAL)
    fit, variance = estimate(FUNDAMENTAL, frame, a, b, theta, settings, robust)
    message = ""
    if (
        fit is not None
        and fit.result.success
        and not fit.chance >= 0.0
        and (fit.inliers.sum() > FUNDAMENTAL.dim if robust else math.isfinite(variance))
    ):
        some = slice(None, None, 1 if robust else max(1, len(a) // 2000))
        x = np.concatenate([a[some], b[some]], axis=1, dtype=np.float64)
        # At least the rounding of the coordinates, which is all that is left of exact matches.
        cut = fit.threshold if robust else 3.0 * max(variance**0.5, 1e-11 * float(np.abs(x).max()))
        flat = plane_only(frame, x, fit.inliers[some], cut, fit.accepted if robust else 0.01, settings.rng)
        if flat is not None:
            message = "A homography explains the matches (a plane, or a camera that only turned): F is not determined."
    made: Fundamental = outcome(Fundamental, "F", FUNDAMENTAL, frame, a, b, fit, message)
    return made
