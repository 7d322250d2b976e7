r"""Inliers that do not determine the model: a rotation for E, a plane for F.

If the camera only rotated, any translation fits; if all points lie on a plane, a two-parameter family of fundamental
matrices fits. In both cases a simpler model, a homography, explains the inliers equally well. What remains outside of
it must then be more than chance: with two free parameters (the direction of t; plane and parallax) two matches always
fit, so `consensus.log_chance` with samples of two decides. Errors of the homography are Sampson errors, chi with two
degrees of freedom, and a match counts as outside beyond 1.5 times the threshold.

Inliers on a line of either image, and in a field so narrow that the bending of perspective is below the noise,
determine no pose either, though one fits: its errors and standard errors look like those of a good one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...jit import types
from ...losses import Loss, as_loss
from ...manifolds import ROTATION, compiled
from ...solver.loop import solve
from .consensus import inlier_quantile, log_chance
from .kernels import encode_rotation, homography_sampson_evaluator
from .models import HOMOGRAPHY_SAMPSON, Frame, Model, two_view_problem
from .result import residual_norms
from .search import Pool, find
from .settings import SearchOptions

_f8 = types.float64

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

TURN = Model(
    "rotation", None, 2, 3, homography_sampson_evaluator, 2, encode_rotation, ROTATION.retract,
    lambda X: np.asarray(X, dtype=np.float64).ravel(), lambda theta: theta.reshape(3, 3), "B2",
)  # fmt: skip
"""The homography of a camera that only rotates."""

_LOOK_AT = 500
_WIDE = 1.5
_LINE = 2.0
"""Spread across the best line, in standard deviations of the noise, below which matches lie on it. With 300 matches and
noise of 0.5 pixels, poses are right to 0.5 degrees at 2.6 and 80 degrees off at 1."""
_ON_LINE, _NEAREST = 0.8, 0.45  # share of points that lie on a line, and the variance of the nearest of Gaussian ones
_LINES, _SOME = 30, 100  # lines through two points that are tried, and points that judge them
_FEW = 12  # points below which none is left out
_NARROW = 2.0
_LEAST_SHARE = 0.01
"""Inliers outside of the simpler model below this share are the tail of the noise, not a translation."""


@dataclass(frozen=True)
class Simpler:
    """A simpler model that explains the inliers."""

    matrix: Array
    """In the model's coordinates: a rotation, or a homography."""
    errors: Array
    """(N,) Sampson errors of all matches."""
    inliers: Flags


@compiled(types.UniTuple(_f8, 2)(_f8[:, :], types.int64), types.UniTuple(_f8, 2)(_f8[:, ::1], types.int64))
def _spread(x, first):  # type: ignore[no-untyped-def]
    """Variances of the points in the columns ``first`` and the next: in all, and across their best line."""
    n = x.shape[0]
    mx = my = xx = xy = yy = 0.0
    for i in range(n):
        mx += x[i, first] / n
        my += x[i, first + 1] / n
    for i in range(n):
        a, b = x[i, first] - mx, x[i, first + 1] - my
        xx += a * a / n
        xy += a * b / n
        yy += b * b / n
    return xx + yy, 0.5 * (xx + yy - np.sqrt((xx - yy) ** 2 + 4.0 * xy * xy))


def undetermined(frame: Frame, x: Array, count: int, variance: float) -> str:
    """Why ``count`` inliers, some of which are x (n, 4), with errors of this variance determine no pose; empty if they
    may."""
    for image, A in enumerate((frame.A1, frame.A2)):
        if on_a_line(x, image, variance):
            return f"The matches lie on a line in image {image + 1}, up to their noise: the pose is not determined."
        whole, _ = _spread(x, 2 * image)
        if whole * A.item(0) * count**0.5 <= _NARROW * variance**0.5:
            return f"The field of image {image + 1} is too narrow for its noise: the pose is not determined."
    return ""


def on_a_line(x: Array, image: int, variance: float) -> bool:
    """Whether the points of matches x (n, 4) in an image lie on a line, but for a fifth, which may be wrong."""
    p = np.ascontiguousarray(x[:, 2 * image : 2 * image + 2])
    if _mostly_fat(p, variance):
        return False
    whole, across = _spread(p, 0)
    if across <= min(_LINE**2 * variance, 0.01 * whole):
        return True
    if len(p) < _FEW:
        return False
    p = p[_near_a_line(p)]
    whole, across = _spread(p, 0)
    return across <= min(_NEAREST * _LINE**2 * variance, 0.01 * whole)


def _mostly_fat(p: Array, variance: float) -> bool:
    """Whether triangles of the points (n, 2) tell quickly that four fifths of them are not on a line.

    Of a triangle that is higher than twice a distance, one corner or more is farther than that from any line. Where
    95 % are, 0.3 of the points are that far away (also if two are left over), and 0.1 of all among any four fifths.
    """
    third = len(p) // 3
    a, b, c = p[:third], p[third : 2 * third], p[2 * third : 3 * third]
    u, v, w = b - a, c - a, c - b
    area = u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]
    longest = np.maximum(np.maximum((u * u).sum(axis=1), (v * v).sum(axis=1)), (w * w).sum(axis=1))
    far = 8.0 * _NEAREST * _LINE**2 * variance  # squared; an eighth of it is the limit of the mean of the four fifths
    return third >= _FEW and bool(np.count_nonzero(area**2 > 4.0 * far * longest) > 0.95 * third)


def _near_a_line(p: Array) -> Flags:
    """(n,) the four fifths of the points (n, 2) that are nearest to a line: the best of some through two points."""
    few, place = p[:: max(1, len(p) // _SOME)], int(_ON_LINE * len(p))
    first, second = np.random.default_rng(0).integers(0, len(few), (2, _LINES))
    along = few[second] - few[first]
    length = np.maximum(np.hypot(along[:, 0], along[:, 1]), 1e-300)
    normal = np.column_stack([-along[:, 1], along[:, 0]]) / length[:, None]
    away = np.abs(normal @ few.T - np.einsum("kd,kd->k", normal, few[first])[:, None])
    away[length <= 1e-300] = np.inf  # twice the same point
    best = int(np.argmin(np.partition(away, int(_ON_LINE * len(few)), axis=1)[:, int(_ON_LINE * len(few))]))
    distance = np.abs((p - few[first[best]]) @ normal[best])
    for _ in range(2):
        near = distance <= np.partition(distance, place)[place]
        centre = p[near].mean(axis=0)
        distance = np.abs((p - centre) @ np.linalg.svd(p[near] - centre, full_matrices=False)[2][1])
    flags: Flags = distance <= np.partition(distance, place)[place]
    return flags


def rotation_only(
    frame: Frame, pose: Array, x: Array, inliers: Flags | None, cut: float, chance: float
) -> Simpler | None:
    """The rotation that explains the inliers of an essential matrix, if there is one.

    Parameters
    ----------
    frame : of the essential matrix.
    pose : (R, t), (12,). If the camera only rotated, one of the two rotations of its E is the camera's.
    x : (N, 4) matches.
    inliers : of the essential matrix; None: all.
    cut : threshold of its Sampson error.
    chance : share of re-paired matches that it accepts.
    """
    flags = np.ones(len(x), dtype=bool) if inliers is None else inliers
    rows = np.flatnonzero(flags)
    few = x[rows[:: max(1, len(rows) // _LOOK_AT)]]
    wide = _threshold(cut, len(rows), 5)
    maps = replace(frame, maps=True)
    # The rotation that aligns the rays is the better guess without outliers, those of E with them. Those of few matches
    # may be far from the camera's, if they make up for it by t.
    R, t = pose[:9].reshape(3, 3), pose[9:]
    guesses = [_align(maps.transform(few)).ravel(), R.ravel(), (2.0 * np.outer(t, t) @ R - R).ravel()]
    guessed = [_errors(TURN, maps, few, guess) for guess in guesses]
    # Real parallax is many times the noise, so a few matches suffice to detect it.
    if max(float(np.mean(error < 6.0 * wide)) for error in guessed) < 0.5:
        return None
    near = [float(np.mean(error < 3.0 * wide)) for error in guessed]
    result = solve(
        two_view_problem(TURN, [x[rows]], maps, as_loss("truncated", 2.0 * wide)),
        guesses[int(np.argmax(near))],
        acceptance="full",
        max_iter=50,
    )
    errors = _errors(TURN, maps, x, result.x)
    return _judge(result.x.reshape(3, 3), errors, wide, flags, chance, 2)


def plane_only(
    frame: Frame, x: Array, inliers: Flags, cut: float, chance: float, rng: np.random.Generator
) -> Simpler | None:
    """The homography that explains the inliers of a fundamental matrix, if there is one."""
    maps = replace(frame, maps=True)
    kept = x[inliers]
    wide = _threshold(cut, len(kept), 7)
    pool = Pool(HOMOGRAPHY_SAMPSON, maps, kept, rng)
    found = find(pool, wide, SearchOptions(max_starts=200), rng)
    if found is None or found.share < 0.5:
        return None
    problem = two_view_problem(HOMOGRAPHY_SAMPSON, [kept], maps, as_loss("truncated", 2.0 * wide))
    result = solve(problem, found.theta, acceptance="full", max_iter=50)
    errors = _errors(HOMOGRAPHY_SAMPSON, maps, x, result.x)
    return _judge(result.x.reshape(3, 3), errors, wide, inliers, chance, 4)


def _threshold(cut: float, n: int, fitted: int) -> float:
    """Threshold of a two-dimensional error for the same noise, of n errors, as large as it may be."""
    return cut * inlier_quantile(2) / inlier_quantile(1) * largest_noise(n, fitted)


def largest_noise(n: int, fitted: int) -> float:
    """Standard deviation that noise may have (99 %), relative to the root mean square of n errors, to which ``fitted``
    parameters were fitted."""
    free = max(n - fitted, 1)
    part = 2.0 / (9.0 * free)  # quantile of chi-squared by Wilson and Hilferty (1931)
    least = free * max(1.0 - part - 2.33 * math.sqrt(part), 0.2) ** 3
    return math.sqrt(max(n / least, 1.0))


def _errors(model: Model, frame: Frame, x: Array, theta: Array) -> Array:
    return residual_norms(two_view_problem(model, [x], frame, Loss.named("linear")), theta)


def _align(rays: Array) -> Array:
    """The rotation that takes the rays of image 1 nearest to those of image 2 (Kabsch)."""
    u, v = np.ones((len(rays), 3)), np.ones((len(rays), 3))
    u[:, :2], v[:, :2] = rays[:, :2], rays[:, 2:]
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    U, _, Vt = np.linalg.svd(v.T @ u)
    U[:, 2] *= np.linalg.det(U @ Vt)
    R: Array = U @ Vt
    return R


def _judge(matrix: Array, errors: Array, wide: float, inliers: Flags, chance: float, sample: int) -> Simpler | None:
    """The simpler model, unless the inliers outside of it are more than chance; ``sample`` matches fit it always."""
    outside = errors > _WIDE * wide
    extra = int((inliers & outside).sum())
    rest = int(outside.sum())
    if extra and int(inliers.sum()) - extra < 2 * sample:
        return None  # it has little more matches than always fit
    determined = extra >= max(8.0, _LEAST_SHARE * int(inliers.sum())) and log_chance(rest, extra, chance, 2) < 0.0
    return None if determined else Simpler(matrix, errors, errors < wide)
