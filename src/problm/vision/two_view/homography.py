r"""`homography`: the map between two views of a plane, or of a camera that only rotates, from matches.

There are two errors: *symmetric transfer*, the distances of H x1 from x2 and of H^-1 x2 from x1 (four residuals per
match), and *Sampson*, the first-order distance of the match from an exact one (two residuals). With noise in both
images Sampson is nearly optimal; symmetric transfer is what other libraries report.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...support.suggest import suggest
from .degenerate import largest_noise, on_a_line
from .estimate import estimate, outcome, start_matrix, unit_frame
from .matches import check_matches
from .models import HOMOGRAPHY, HOMOGRAPHY_SAMPSON
from .result import Homography
from .robust import Fit
from .settings import make_settings

Points = NDArray[Any]
_LOOK_AT = 500  # inliers that tell whether they lie on a line

ERRORS = {"sampson": HOMOGRAPHY_SAMPSON, "transfer": HOMOGRAPHY}


def homography(
    x1: ArrayLike,
    x2: ArrayLike,
    *,
    error: str = "sampson",
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
) -> Homography:
    """Homography of two views: ``x2 ~ H x1``.

    Parameters
    ----------
    x1, x2 : (N, 2) matched points, N >= 4, in pixels (or any unit: errors and threshold are in the same).
    error : ``"sampson"`` or ``"transfer"`` (symmetric; the error of a match is the root of the sum of both squared
        distances, about twice the Sampson error).
    initial : (3, 3) matrix to start from. None: found by the search.
    robust : whether matches may be wrong. False minimises the squared errors of *all* matches.
    threshold, loss, levels, starts, max_starts, confidence, threads, rng, **options
        As for `problm.essential_matrix`; minimal samples have four matches here, and ``"auto"`` is the error
        that 98.8 % of the inliers stay below.

    Returns
    -------
    Homography. Its ``status`` is ``"ok"``, ``"degenerate"`` (the matches lie on a line: H is one of many that fit),
    ``"no consensus"`` or ``"not converged"``.

    Examples
    --------
    >>> from problm.vision.two_view.simulate import two_views
    >>> views = two_views(500, inliers=0.7, seed=1, plane=True)
    >>> fit = homography(views.x1, views.x2)
    >>> fit.status, bool(np.mean(fit.inliers == views.inliers) > 0.97)
    ('ok', True)
    """
    if error not in ERRORS:
        raise ValueError(f"error={error!r} is not known{suggest(error, ERRORS)}; choose one of {tuple(ERRORS)}")
    model = ERRORS[error]
    a, b = check_matches(x1, x2, 4, "homography")
    settings = make_settings(threshold, loss, levels, starts, max_starts, confidence, threads, rng, options)
    frame = unit_frame(a, b, maps=True)
    theta = None if initial is None else start_matrix(initial, frame, model)
    fit, _ = estimate(model, frame, a, b, theta, settings, robust)
    made: Homography = outcome(Homography, "H", model, frame, a, b, fit, _doubt(a, b, fit))
    return made


def _doubt(a: Points, b: Points, fit: Fit | None) -> str:
    """Why the inliers determine no homography, or nothing."""
    if fit is None or fit.errors is None or fit.chance >= 0.0 or int(fit.inliers.sum()) <= 4:
        return ""
    kept = np.flatnonzero(fit.inliers)
    some = kept[:: max(1, len(kept) // _LOOK_AT)]
    x = np.concatenate([a[some], b[some]], axis=1, dtype=np.float64)
    errors = fit.errors[some]
    variance = 0.5 * float(errors @ errors) / len(some) * largest_noise(2 * len(kept), 8) ** 2
    if on_a_line(x, 0, variance) or on_a_line(x, 1, variance):
        return "The matches lie on a line, up to their noise: the homography is not determined."
    return ""
