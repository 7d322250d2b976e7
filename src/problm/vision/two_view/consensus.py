r"""Statistics of the errors of a model: the level of the noise, and whether the model is better than chance.

**Noise.** A mixture is fitted to the errors by EM: chi with 1 (epipolar) or 2 (homography) degrees of freedom
for the inliers, that is the norm of Gaussian noise, and a uniform density for the outliers.

**Chance.** The best of many models fits some matches even if there is no true model. A consensus is
compared with chance as in a-contrario methods (Moisan and Stival 2004): with p the share of *re-paired*
matches, x1 of one and x2 of another, that this very model accepts, the expected number of models with k or more
inliers among all minimal samples of n matches of pure chance is below

    (n - s) C(n, k) C(k, s) p^(k - s)        (samples of s matches)

Points that occur in several matches share one vote, because an epipole at such a point would make all of them inliers.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...jit import types
from ...losses import Loss
from ...manifolds import compiled
from .models import Frame, Model, two_view_problem
from .result import residual_norms

_f8, _i8 = types.float64, types.int64

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
_ENOUGH = 1000  # number of errors that determine the noise to 2 %
_GENERIC = np.array([0.7548776662466927, 0.5698402909980532, 0.8191725133961645, 0.6710436067037893])


def noise_scale(errors: Array, window: float, freedom: int) -> float:
    """Standard deviation of the noise behind the errors below ``window``, by EM.

    Inliers: chi with ``freedom`` degrees of freedom times sigma; outliers: uniform over the window (an interval
    for one degree of freedom, a disk for two). Both are cut off at the window.
    """
    r = errors[errors < window]
    if len(r) == 0:
        return window / 3.0
    r = r[:: max(1, len(r) // _ENOUGH)].copy()
    # Start from below, so that a core is found before the mixture explains everything as noise.
    quarter = len(r) // 4
    sigma = max(float(np.partition(r, quarter)[quarter]), 1e-12 * window)
    log_norm = 0.5 * (2 - freedom) * math.log(2.0) - math.lgamma(0.5 * freedom)
    return float(_mixture(r, float(window), freedom, sigma, math.exp(log_norm)))


@compiled(_f8(_f8[::1], _f8, _i8, _f8, _f8))
def _mixture(r, window, freedom, sigma, norm):  # type: ignore[no-untyped-def]
    """EM from the standard deviation ``sigma``; ``norm`` is the constant of the density of chi."""
    n = r.shape[0]
    mix = 0.7
    for _ in range(30):
        total = squares = 0.0
        for i in range(n):
            inlier, outlier = norm * np.exp(-0.5 * (r[i] / sigma) ** 2) / sigma, 1.0 / window
            if freedom == 2:
                inlier, outlier = inlier * r[i] / sigma, outlier * 2.0 * r[i] / window
            weight = mix * inlier / (mix * inlier + (1.0 - mix) * outlier + 1e-300)
            total += weight
            squares += weight * r[i] * r[i]
        if total < 3.0:
            break
        new = np.sqrt(max(squares / (freedom * total), (1e-12 * window) ** 2))
        mix = min(max(total / n, 0.01), 0.999)
        done = abs(new - sigma) < 3e-3 * sigma
        sigma = new
        if done:
            break
    return sigma


def inlier_quantile(freedom: int) -> float:
    """The error, in standard deviations of the noise, that 98.76 % of the inliers stay below.

    2.5 for one degree of freedom. Real features have longer tails than Gaussian noise, but keeping them does not help:
    with 3 the median error of the pose on 32 real pairs is a sixth higher.
    """
    return 2.5 if freedom == 1 else math.sqrt(-2.0 * math.log(0.01242))


def estimate_threshold(errors: Array, window: float, freedom: int) -> float:
    """Threshold for errors of unknown noise, estimated below ``window``, or beyond if the noise fills it."""
    cut = window
    for _ in range(5):
        cut = inlier_quantile(freedom) * noise_scale(errors, window, freedom)
        if cut < 0.7 * window:
            break
        window *= 2.0
    # The noise cannot be estimated below the rounding of the coordinates.
    return max(cut, 1e-7 * window)


def log_chance(n: float, k: float, p: float, sample: int) -> float:
    """Natural logarithm of the expected number of chance models with k inliers of n; below 0 is significant."""
    if k <= sample or n <= sample:
        return math.inf

    def choose(a: float, b: float) -> float:
        return math.lgamma(a + 1.0) - math.lgamma(b + 1.0) - math.lgamma(a - b + 1.0)

    k = min(k, n)
    return math.log(n - sample) + choose(n, k) + choose(k, sample) + (k - sample) * math.log(max(p, 1e-12))


def vote_weights(x: Array) -> Array:
    """Weight (n,) of each match (n, 4): one over how often the more frequent of its two points occurs."""
    weights = np.ones(len(x))
    for points in (x[:, :2], x[:, 2:]):
        counts = _frequency(points)
        if counts is not None:
            weights = np.minimum(weights, 1.0 / counts)
    return weights


def once_each(x: Array, weights: Array, order: NDArray[np.intp]) -> tuple[NDArray[np.intp], Array]:
    """The order without duplicate matches, and the weights of the others."""
    key = _keys(x)[order]
    first = np.sort(np.unique(key, return_index=True)[1])
    if len(first) < len(order):
        order = order[first]
        weights = weights.copy()
        weights[order] = vote_weights(x[order])
    return order, weights


def _keys(x: Array) -> Array:
    """A generic projection of points (n, k): equal values only for equal points, and sorting numbers is fast."""
    return np.ascontiguousarray(x, dtype=np.float64) @ _GENERIC[: x.shape[1]]


def _frequency(x: Array) -> Array | None:
    """Number of occurrences of each of the points (n, k); None if all differ."""
    key = _keys(x)
    ascending = np.sort(key)
    if not (ascending[1:] == ascending[:-1]).any():
        return None
    order = np.argsort(key, kind="stable")
    new = np.empty(len(key), dtype=bool)
    new[0] = True
    np.not_equal(key[order][1:], key[order][:-1], out=new[1:])
    group = np.cumsum(new) - 1
    counts = np.empty(len(key))
    counts[order] = np.bincount(group)[group]
    return counts


def squared_movement(before: Array, after: Array, cut: float, model: Model) -> float:
    """How far a solve moved, in standard errors, squared: the mean over the parameters, by the errors of its matches.

    ``|J step|^2 / sigma^2`` is the squared length of a step in the metric of the inverse covariance.
    """
    sigma = cut / inlier_quantile(model.freedom)
    return float(((after - before) ** 2).sum()) / (model.dim * sigma**2)


def significance(
    model: Model, frame: Frame, theta: Array, x: Array, inliers: Flags, cut: float, rng: np.random.Generator
) -> tuple[float, float]:
    """`log_chance` of the consensus and the share of re-paired matches that the model accepts."""
    if len(x) > 20_000:  # more than enough to distinguish a model from chance
        some = rng.choice(len(x), 20_000, replace=False, shuffle=False)
        x, inliers = x[some], inliers[some]
    weights = vote_weights(x)
    accepted = accepted_by_chance(model, frame, theta, x, weights, cut, rng)
    n, k = float(weights.sum()), float(weights[inliers].sum())
    return log_chance(n, k, accepted, model.sample), accepted


def accepted_by_chance(
    model: Model, frame: Frame, theta: Array, x: Array, weights: Array, cut: float, rng: np.random.Generator
) -> float:
    """Share of re-paired matches within the threshold, at least what their number can resolve."""
    n = len(x)
    repeats = max(1, min(20, 10_000 // n))
    # All at once: for few matches the overhead of a call dominates.
    shift = np.concatenate([rng.permutation(n) for _ in range(repeats)])
    mixed = np.concatenate([np.tile(x[:, :2], (repeats, 1)), x[shift, 2:]], axis=1)
    inside = residual_norms(two_view_problem(model, [mixed], frame, Loss.named("linear")), theta) < cut
    w = np.minimum(np.tile(weights, repeats), weights[shift])
    # A point paired with its own partner by accident is a true match.
    inside &= shift != np.tile(np.arange(n), repeats)
    return max(float(w[inside].sum()), 1.0) / float(w.sum())
