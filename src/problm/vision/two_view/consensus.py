r"""Statistics of the errors of a model: the level of the noise, whether the model is better than chance, how wide the
last loss should be, and how many starts and levels it takes.

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
from ...losses import Loss, as_loss
from ...manifolds import compiled
from .models import Frame, Model, two_view_problem
from .result import residual_norms

_f8, _i8 = types.float64, types.int64

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
_ENOUGH = 10_000  # number of errors, of inliers and outliers, that determine the noise to about 1 %
_WINDOW = 3.0  # window of the noise, in windows of the search: noise may fill the latter
WIDTHS = (0.4, 0.55, 0.75, 1.0, 1.4, 2.0)
"""Scales to choose from, in thresholds: 1 to 5 standard deviations of the noise of one component. Narrow ones are for
noise that differs from match to match, where the most accurate matches tell nearly everything."""
ENOUGH = 5000
"""Number of matches that suffice to choose."""
_CLEARLY = 0.9
"""Ratio of variances below which a narrower width is better: what is less is chance, and another sample decides
otherwise."""
_FEW_PAIRS, _PAIRS = 2000, 10_000
"""Re-paired matches that tell chance from a consensus: the first where it is clear."""
_CLEAR = -50.0  # log of the number of chance models, below which it is
_ROUNDING = 1e-11  # of coordinates, relative to the largest: points that differ by less are equal
_GENERIC = np.array([0.7548776662466927, 0.5698402909980532, 0.8191725133961645, 0.6710436067037893])


def noise_scale(errors: Array, window: float, freedom: int) -> float:
    """Standard deviation of the noise behind the errors below ``window``, by EM.

    Inliers: chi with ``freedom`` degrees of freedom times sigma; outliers: uniform over the window (an interval
    for one degree of freedom, a disk for two). Both are cut off at the window. EM begins with several levels of noise,
    and the likelihood decides between their ends: from below it may end in an accidental core, from above it may
    explain everything as noise.
    """
    some = errors[:: max(1, len(errors) // _ENOUGH)]  # always the same matches: the noise must not jump with the model
    r = some[some < window]
    if len(r) == 0:
        return window / 3.0
    quarter = len(r) // 4
    low = max(float(np.partition(r, quarter)[quarter]), 1e-12 * window)
    starts = np.array([low, *(s for s in (window / 27.0, window / 9.0, window / 3.0) if s > 1.5 * low)])
    log_norm = 0.5 * (2 - freedom) * math.log(2.0) - math.lgamma(0.5 * freedom)
    return float(_mixture(r, float(window), freedom, starts, math.exp(log_norm)))


@compiled(_f8(_f8[::1], _f8, _i8, _f8[::1], _f8))
def _mixture(r, window, freedom, starts, norm):  # type: ignore[no-untyped-def]
    """The likeliest end of EM from the standard deviations ``starts``; ``norm`` is the constant of the density of chi.

    Errors are counted in bins of a twelfth of an octave, by the mean square of their errors.
    """
    bins = 240
    counts, means = np.zeros(bins), np.zeros(bins)
    for i in range(r.shape[0]):
        z = (r[i] / window) ** 2
        at = min(int(-6.0 * np.log2(max(z, 1e-30))), bins - 1)
        counts[at] += 1.0
        means[at] += z
    used = 0
    for k in range(bins):
        if counts[k] > 0.0:
            counts[used], means[used] = counts[k], means[k] / counts[k]
            used += 1
    n = float(r.shape[0])
    best, likeliest = starts[0], -np.inf
    for start in starts:
        sigma, mix, gain = start / window, 0.7, 0.0
        for _ in range(30):
            total = squares = gain = 0.0
            # Density of inliers over that of outliers.
            height = norm / sigma if freedom == 1 else 0.5 * norm / (sigma * sigma)
            for k in range(used):
                ratio = mix * height * np.exp(-0.5 * means[k] / (sigma * sigma))
                both = ratio + 1.0 - mix
                weight = counts[k] * ratio / both
                total += weight
                squares += weight * means[k]
                gain += counts[k] * np.log(both)
            if total < 3.0:
                break
            new = np.sqrt(max(squares / (freedom * total), 1e-24))
            mix = min(max(total / n, 0.01), 0.999)
            done = abs(new - sigma) < 3e-3 * sigma
            sigma = new
            if done:
                break
        if gain > likeliest:
            best, likeliest = sigma * window, gain
    return best


def inlier_quantile(freedom: int) -> float:
    """The error, in standard deviations of the noise, that 98.76 % of the inliers stay below.

    2.5 for one degree of freedom. Real features have longer tails than Gaussian noise, but keeping them does not help:
    with 3 the median error of the pose on 32 real pairs is a sixth higher.
    """
    return 2.5 if freedom == 1 else math.sqrt(-2.0 * math.log(0.01242))


def estimate_threshold(errors: Array, window: float, freedom: int) -> float:
    """Threshold for errors of unknown noise: of the order of ``window``, or less."""
    window *= _WINDOW
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
    group = _groups(x)
    first = order if group is None else order[np.sort(np.unique(group[order], return_index=True)[1])]
    if len(first) < len(order):
        order, weights = first, weights.copy()
        weights[order] = vote_weights(x[order])
    return order, weights


def _groups(x: Array) -> NDArray[np.intp] | None:
    """Number of the group of equal points, up to rounding, that each of the points (n, k) is in; None if all differ.

    Points are compared by a generic projection, which is equal only for equal points: sorting numbers is fast.
    """
    key = np.ascontiguousarray(x, dtype=np.float64) @ _GENERIC[: x.shape[1]]
    ascending = np.sort(key)
    rounding = _ROUNDING * max(abs(ascending[0]), abs(ascending[-1]))
    if not (np.diff(ascending) <= rounding).any():
        return None
    order = np.argsort(key, kind="stable")
    group = np.empty(len(key), dtype=np.intp)
    group[order] = np.concatenate([[0], np.cumsum(np.diff(key[order]) > rounding)])
    return group


def _frequency(x: Array) -> Array | None:
    """Number of occurrences of each of the points (n, k); None if all differ."""
    group = _groups(x)
    return None if group is None else np.bincount(group)[group].astype(np.float64)


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
    n, k = float(weights.sum()), float(weights[inliers].sum())
    for pairs in (_FEW_PAIRS, _PAIRS):
        accepted = accepted_by_chance(model, frame, theta, x, weights, cut, rng, pairs)
        chance = log_chance(n, k, accepted, model.sample)
        if chance < _CLEAR:
            break
    return chance, accepted


def accepted_by_chance(
    model: Model, frame: Frame, theta: Array, x: Array, weights: Array, cut: float, rng: np.random.Generator, pairs: int
) -> float:
    """Share of ``pairs`` re-paired matches within the threshold, at least what their number can resolve."""
    n = len(x)
    repeats = max(1, min(20, pairs // n))
    # All at once: for few matches the overhead of a call dominates.
    shift = np.concatenate([rng.permutation(n) for _ in range(repeats)])
    mixed = np.concatenate([np.tile(x[:, :2], (repeats, 1)), x[shift, 2:]], axis=1)
    inside = residual_norms(two_view_problem(model, [mixed], frame, Loss.named("linear")), theta) < cut
    w = np.minimum(np.tile(weights, repeats), weights[shift])
    # A point paired with its own partner by accident is a true match.
    inside &= shift != np.tile(np.arange(n), repeats)
    return max(float(w[inside].sum()), 1.0) / float(w.sum())


def best_width(matches: Array, errors: Array, theta: Array, cut: float, name: str, model: Model, frame: Frame) -> float:
    """Scale of the last loss, in thresholds: the one with the least variance of the parameters, estimated from these
    matches and their errors."""
    problem = two_view_problem(model, [matches], frame, Loss.named("linear"))
    return least_variance_width(problem.jacobian(theta), problem.residuals(theta), errors, cut, name)


def least_variance_width(J: Array, r: Array, errors: Array, cut: float, name: str) -> float:
    """The width of ``WIDTHS`` with the least variance of the parameters, for rows J (n, p, d) and r (n, p).

    Gaussian noise favours a wide loss; long tails and influential wrong matches favour a narrow one. The variance
    is ``A^-1 B A^-1`` (Huber 1967) with ``A = sum w J'J + 2 w' g g'``, the derivative of the gradient, and ``B = sum
    w^2 g g'``, where g = J'r; its trace is taken in the metric of J'J.
    """
    scales = (np.array(WIDTHS) * cut) ** 2
    z, h, loss = errors**2 / scales[:, None], 1e-4 * cut**2 / scales[:, None], as_loss(name, 1.0)
    weights = np.where(z < 1.0, loss.cost_and_weight(z)[1], 0.0)
    slopes = np.where(z < 1.0, loss.cost_and_weight(z + h)[1] - weights, 0.0) / (1e-4 * cut**2)
    metric, A, B = _sandwiches(np.ascontiguousarray(J), np.ascontiguousarray(r), weights, slopes)
    minima = np.linalg.eigvalsh(A)[:, 0] > 0.0 if np.isfinite(A).all() else np.zeros(len(WIDTHS), dtype=bool)
    half = np.linalg.solve(A[minima], B[minima])
    variances = np.trace(np.linalg.solve(A[minima], half.transpose(0, 2, 1)) @ metric, axis1=1, axis2=2)
    best, least = WIDTHS[0], math.inf
    for wide, variance in list(zip(np.array(WIDTHS)[minima].tolist(), variances.tolist(), strict=True))[::-1]:
        if 0.0 < variance < _CLEARLY * least:  # not for a NaN
            best, least = wide, variance
    return best


@compiled(types.Tuple((_f8[:, ::1], _f8[:, :, ::1], _f8[:, :, ::1]))(
    _f8[:, :, ::1], _f8[:, ::1], _f8[:, ::1], _f8[:, ::1]
))  # fmt: skip
def _sandwiches(J, r, weights, slopes):  # type: ignore[no-untyped-def]
    """``sum J'J`` (d, d), and for each of the weights (k, n) and their derivatives ``sum w J'J + 2 w' g g'`` and
    ``sum w^2 g g'``, both (k, d, d)."""
    n, p, d = J.shape
    count = len(weights)
    metric, A, B = np.zeros((d, d)), np.zeros((count, d, d)), np.zeros((count, d, d))
    g = np.empty(d)
    for i in range(n):
        for a in range(d):
            g[a] = 0.0
            for c in range(p):
                g[a] += J[i, c, a] * r[i, c]
        for a in range(d):
            for b in range(a + 1):
                plain, outer = 0.0, g[a] * g[b]
                for c in range(p):
                    plain += J[i, c, a] * J[i, c, b]
                metric[a, b] += plain
                for k in range(count):
                    w = weights[k, i]
                    A[k, a, b] += w * plain + 2.0 * slopes[k, i] * outer
                    B[k, a, b] += w * w * outer
    for a in range(d):
        for b in range(a):
            metric[b, a] = metric[a, b]
            for k in range(count):
                A[k, b, a], B[k, b, a] = A[k, a, b], B[k, a, b]
    return metric, A, B


def samples_needed(share: float, sample: int, confidence: float) -> float:
    """Number of samples that contain one without outliers with the given confidence."""
    good = min(max(share, 1e-3), 1.0) ** sample
    return math.log1p(-confidence) / math.log1p(-good) if good < 1.0 else 1.0


def random_starts_needed(share: float) -> float:
    """Number of random starts before a minimum reached twice is accepted: the fewer inliers, the more likely a false
    one.

    A start succeeds in 5, 1.5 and 0.8 % of tries at 60, 40 and 20 % inliers (simulated scenes); false minima have few
    inliers, so they require many starts.
    """
    return 128.0 * (0.6 / max(share, 1e-3)) ** 2.5


def levels_from(errors: Array, cut: float) -> int:
    """Levels from a start: five, or more if less than a tenth of the matches lie within half of the widest loss."""
    tenth = len(errors) // 10
    near = float(np.partition(errors, tenth)[tenth])
    return max(5, 1 + math.ceil(math.log2(max(2.0 * near / cut, 1.0))))
