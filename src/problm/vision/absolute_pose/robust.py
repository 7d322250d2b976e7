r"""Estimation of a pose from matches with outliers: search, noise, refinement, consensus.

1. `search.Pool.find` finds a pose by minimal samples (or the user gives a start).
2. ``threshold="auto"``: the search uses 0.6 % of the extent of the pixels; then the noise is estimated in turn with a
   short descent.
3. The smooth truncated loss is minimised over the matches within its reach. Its width is the one with the least
   variance of the parameters. Noise, inliers and pose are updated in turn until the inliers no longer change.
4. The consensus is compared with chance.

Of very many matches a random sample goes through all of this first; everything then takes the last turns only.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...losses import Loss, as_loss
from ...solver.graduated import graduated
from ...solver.loop import solve
from ...solver.result import Result
from ..two_view.consensus import (
    ENOUGH,
    WIDTHS,
    estimate_threshold,
    inlier_quantile,
    least_variance_width,
    levels_from,
    log_chance,
)
from ..two_view.matches import extent
from ..two_view.robust import solve_options
from ..two_view.settings import Settings
from .model import Scene
from .search import Pool

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

COARSE = 0.006
"""Threshold of the search with ``threshold="auto"``, relative to the extent of the pixels."""
SAMPLE = 10_000
"""Number of matches that very many are represented by."""
_MANY = 4 * SAMPLE
_TURNS = 8  # of noise, inliers and pose; two or three are usual
_STILL = 0.1  # squared standard errors, a mean over the parameters, below which turns of very many matches end
_FEW_WIDTH = 1.6  # thresholds: 97 % of the efficiency of least squares
_JUDGES = 4000  # matches that tell a pose from chance
_PAIRS = 2000  # pixels and points that do not belong together, for the same purpose
_FEW = 100
"""Number of matches up to which the noise is that of the consensus least likely by chance: a mixture needs more."""
_GENERIC = np.array([0.7548776662466927, 0.5698402909980532, 0.8191725133961645])


@dataclass(frozen=True)
class Fit:
    """A pose fitted to matches."""

    theta: Array
    cut: float
    """Largest weighted error of an inlier; nan if all matches were used."""
    loss: Loss
    result: Result
    scene: Scene
    """The matches of the last solve."""
    errors: Array
    """(N,) weighted errors; infinite behind the camera."""
    inliers: Flags
    chance: float
    starts: int


def make_pool(scene: Scene, rng: np.random.Generator) -> Pool:
    """The matches of a search; those that the lens cannot have seen are left out."""
    ideal, factor = scene.ideal()
    X = np.asarray(scene.X, dtype=np.float64)
    good = np.isfinite(ideal).all(axis=1) & np.isfinite(factor) if not scene.pinhole else slice(None)
    return Pool(ideal[good], X[good], factor[good], scene.middle, scene.size, scene.focal, rng)


def fit_robust(scene: Scene, settings: Settings, initial: Array | None, began: float) -> Fit | None:
    """Fit a pose to matches with outliers; None if no sample gave one."""
    if scene.n >= _MANY and "acceptance" not in settings.options:
        some = np.sort(settings.rng.choice(scene.n, SAMPLE, replace=False, shuffle=False))
        head = fit_robust(scene.rows(some), settings, initial, began)
        if head is not None and head.chance < 0.0:
            return _finish(scene, settings, head.theta, head.cut, head.loss.scale / head.cut, head.starts, began)
    coarse = cut = settings.threshold or _coarse(scene)
    theta, starts = initial, 0
    if theta is None:
        pool = make_pool(scene, settings.rng)
        search = settings.search
        found = None
        if pool.n > pool.sample:
            found = pool.find(cut, search.max_starts, search.confidence, search.max_time)
        if found is None:
            return None
        theta, starts = found.theta, found.starts
        if settings.threshold is None:
            theta, cut = _settle(scene, pool, theta, coarse)
    else:
        errors = np.minimum(scene.errors(theta), 1e6 * cut)
        levels = settings.levels or levels_from(errors, cut)
        theta = graduated(
            scene.problem, theta, as_loss(settings.loss, cut), levels, **_options(scene, settings, began)
        ).x
        if settings.threshold is None:
            cut = _cut(scene, scene.errors(theta), coarse)
    return _finish(scene, settings, theta, cut, 0.0, starts, began)


def _cut(scene: Scene, errors: Array, coarse: float) -> float:
    """Threshold for errors of unknown noise."""
    if len(errors) > _FEW:
        return estimate_threshold(errors, coarse, 2)
    ordered = np.sort(errors)
    best, chosen = math.inf, 0
    area, sample, n = _area(scene), _sample(scene), len(errors)
    typical = 1.0 if scene.roots is None else float(np.median(scene.roots))
    floor = 1e-3 * coarse  # errors of a minimal sample are zero
    for k, error in enumerate(ordered.tolist(), 1):
        if k > sample and error < 4.0 * coarse:
            chance = log_chance(n, k, min(math.pi * (max(error, floor) / typical) ** 2 / area, 1.0), sample)
            if chance < best:
                best, chosen = chance, k
    if not chosen:
        return coarse
    r = ordered[:chosen]
    # Few errors are smaller than the noise, by what the parameters took up.
    sigma = math.sqrt(float(r @ r) / max(2 * chosen - scene.dim, 1))
    return max(inlier_quantile(2) * sigma, 1e-7 * coarse)


def _coarse(scene: Scene) -> float:
    few = slice(None, None, max(1, scene.n // SAMPLE))
    size = extent(np.asarray(scene.x[few], dtype=np.float64))
    return COARSE * size * (1.0 if scene.roots is None else float(np.median(scene.roots[few])))


def _settle(scene: Scene, pool: Pool, theta: Array, coarse: float) -> tuple[Array, float]:
    """Estimate the noise around a pose and refine it, until the threshold no longer shrinks."""
    cut = coarse
    for k in range(6):
        before = cut
        cut = _cut(scene, pool.errors(theta), coarse)
        if k and cut > 0.9 * before:
            break
        theta = pool.walk(theta, cut, 2000, 5)
    return theta, cut


def _options(scene: Scene, settings: Settings, began: float) -> dict[str, Any]:
    options = solve_options(dict(settings.options), scene.n)
    if settings.search.max_time < math.inf:
        options["max_time"] = max(settings.search.max_time - (time.perf_counter() - began), 1e-4)
    return options


def _finish(
    scene: Scene, settings: Settings, theta: Array, cut: float, wide: float, starts: int, began: float
) -> Fit | None:
    """Noise, inliers and pose in turn, from a pose near the solution; ``wide`` is 0 if it is to be chosen."""
    coarse, result, part = _coarse(scene), None, scene
    loss, before = as_loss(settings.loss, cut), None
    errors = scene.errors(theta)
    for _ in range(_TURNS):
        if settings.threshold is None:
            cut = _cut(scene, errors, coarse)
        if not wide:
            wide = _width(scene, theta, errors, cut, settings.loss)
        inliers = errors < wide * cut
        if inliers.sum() <= scene.dim // 2 or (before is not None and np.array_equal(inliers, before)):
            break
        loss = as_loss(settings.loss, wide * cut)
        part = scene.rows(inliers)
        result = solve(part.problem(loss, settings.threads, settings.seed), theta, **_options(part, settings, began))
        last, theta, before = errors, result.x, inliers
        errors = scene.errors(theta)
        sigma = cut / inlier_quantile(2)
        near = before & np.isfinite(errors)
        moved = float(((errors[near] - last[near]) ** 2).sum()) / (scene.dim * sigma**2)
        if scene.n >= _MANY and moved < _STILL:
            break
    if result is None:
        return None
    inliers = errors < cut
    chance = _chance(scene, theta, inliers, cut, settings.rng)
    return Fit(theta, cut, loss, result, part, errors, inliers, chance, starts)


def _width(scene: Scene, theta: Array, errors: Array, cut: float, loss: str) -> float:
    near = np.flatnonzero(errors < WIDTHS[-1] * cut)
    if len(near) < _FEW:  # too few to tell
        return _FEW_WIDTH
    near = near[:: max(1, len(near) // ENOUGH)]
    squares = scene.rows(near).squares
    return least_variance_width(squares.jacobian(theta), squares.residuals(theta), errors[near], cut, loss)


def _chance(scene: Scene, theta: Array, inliers: Flags, cut: float, rng: np.random.Generator) -> float:
    """Logarithm of the expected number of chance poses with as many inliers (`two_view.consensus`).

    A match by chance is a pixel of one match and a point of another. Equal pixels, and equal points, count once.
    """
    if scene.n > _JUDGES:
        some = rng.choice(scene.n, _JUDGES, replace=False, shuffle=False)
        scene, inliers = scene.rows(some), inliers[some]
    n = scene.n
    offsets = rng.integers(1, n, max(1, min(20, _PAIRS // n)))
    at = np.tile(np.arange(n), len(offsets))
    shift = (at + np.repeat(offsets, n)) % n
    roots = None if scene.roots is None else scene.roots[shift]
    mixed = Scene(scene.x[shift], scene.X[at], roots, scene.camera, scene.focal, scene.middle, scene.size)
    accepted = float((mixed.errors(theta) < cut).mean())
    typical = 1.0 if scene.roots is None else float(np.median(scene.roots))
    accepted = max(accepted, min(math.pi * (cut / typical) ** 2 / _area(scene), 1.0))
    k = min(_distinct(side[inliers]) for side in (scene.x, scene.X))
    return log_chance(float(n), float(k), accepted, _sample(scene))


def _area(scene: Scene) -> float:
    """Area of the rectangle of the pixels."""
    wide, high = np.ptp(np.asarray(scene.x, dtype=np.float64), axis=0).tolist()
    return max(wide * high, 1e-300)


def _sample(scene: Scene) -> int:
    return 5 if scene.focal else 3


def _distinct(points: NDArray[Any]) -> int:
    """Number of different points (n, k), by a projection in which only equal points coincide."""
    return len(np.unique(np.asarray(points, dtype=np.float64) @ _GENERIC[: points.shape[1]]))
