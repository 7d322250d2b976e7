r"""Which inliers of a pose are likely, given the depths of the others.

A wrong match that happens to lie near its epipolar line lies anywhere along it, and so at any depth; true matches are
where the scene is. Where the parallax is small, such a match has far more influence on the direction of t than a true
one, because it appears to be very near the cameras.

The distribution under chance is known: *re-paired* matches, x1 of one and x2 of another, near their epipolar lines,
have its distribution of depths. On the scale of that distribution chance is uniform, and the number of wrong matches
among the inliers, hence in any interval of depths, can be predicted. An inlier is kept where more than half of the
inliers with depths like its own are not wrong ones: the local false discovery rate of Efron (2004), with an empirical
null.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...jit import types
from ...losses import Loss
from ...manifolds import compiled
from .models import Frame, Model, pose_of, two_view_problem
from .pose import choose_pose
from .result import residual_norms

_f8 = types.float64

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

_PAIRS = 8000  # number of re-paired matches
_NEAR = 500  # number of those nearest to their epipolar lines, whose depths are used
VOTERS = 10_000  # matches that vote for one of the four poses
_NEIGHBOURS = 2.0  # expected number of wrong matches in an interval of depths
_COUNTED = 10_000  # inliers whose depths are counted
BINS = 64  # of densities on the scale of chance
_WIDE = 0.05  # standard deviation of the smoothing of depths, on the scale of chance
_FLOOR = 0.01  # share of right matches at any depth: wrong ones at rare depths have the most influence


def _smoothing() -> Array:
    """(bins, bins) Gaussian smoothing of a histogram, reflected at both ends."""
    at = np.arange(BINS)
    total = np.zeros((BINS, BINS))
    for image in (at, -1 - at, 2 * BINS - 1 - at):
        total += np.exp(-0.5 * ((at[:, None] - image[None, :]) / (_WIDE * BINS)) ** 2)
    smooth: Array = total / total.sum(axis=0)
    return smooth


SMOOTH = _smoothing()


class Repaired:
    """Re-paired matches, x1 of one and x2 of another, of the matches (N, 4) of a fit."""

    def __init__(self, model: Model, frame: Frame, x: Array) -> None:
        # Always the same pairs, so that the result depends on the matches and not on the seed of the search.
        first, second = np.random.default_rng(0).integers(0, len(x), (2, _PAIRS))
        self.x = np.concatenate([x[first, :2], x[second, 2:]], axis=1)[first != second]
        self.problem = two_view_problem(model, [self.x], frame, Loss.named("linear"))
        self.frame = frame

    @cached_property
    def rays(self) -> Array:
        return self.frame.transform(self.x)

    def near(self, theta: Array, cut: float) -> tuple[float, Flags]:
        """The window, at least ``cut``, of the ones that are nearest to the model, and which these are."""
        errors = residual_norms(self.problem, theta)
        place = min(_NEAR, len(errors) - 1)
        window = max(cut, float(np.partition(errors, place)[place]))
        return window, errors < window


class Depths:
    """Depths by chance, for the matches (N, 4) of a fit."""

    def __init__(self, model: Model, frame: Frame, x: Array) -> None:
        self.model, self.frame, self.x = model, frame, x

    @cached_property
    def repaired(self) -> Repaired:
        return Repaired(self.model, self.frame, self.x)

    def places(self, theta: Array, rays: Array, flags: Flags) -> tuple[Array, float]:
        """Where the depths of matches (n, 4) are among those of the re-paired ones in ``flags``, and the share of
        these in front.

        Places are from 0 to 1, and -1 behind a camera of the pose that most matches vote for.
        """
        pose, front = choose_pose(pose_of(self.model, theta), rays)
        chance = np.sort(_in_front(pose, self.repaired.rays, flags)[1])
        found = np.full(len(rays), -1.0)
        front, depths = _in_front(pose, rays, front)
        if len(chance) < 2:
            found[front] = 0.5
            return found, 1.0
        found[front] = np.interp(depths, chance, (np.arange(len(chance)) + 0.5) / len(chance))
        return found, len(chance) / int(flags.sum())

    def likely(self, theta: Array, rays: Array, inliers: Flags, cut: float) -> Flags:
        """(n,) the inliers, within ``cut`` of their epipolar lines, in front of both cameras of the pose that most
        of them vote for, at a likely depth."""
        step = max(1, len(rays) // VOTERS)
        pose, _ = choose_pose(pose_of(self.model, theta), np.ascontiguousarray(rays[::step]), inliers[::step])
        kept, depths = _in_front(pose, rays, inliers)
        window, nearest = self.repaired.near(theta, cut)
        chance = np.sort(_in_front(pose, self.repaired.rays, nearest)[1])
        step = max(1, len(depths) // _COUNTED)
        wrong = (len(rays) - len(depths)) * len(chance) / len(nearest) * cut / (window * step)
        if wrong < 1.0:
            return kept
        place = np.searchsorted(chance, depths[::step])
        # On the scale of chance depths have as many values as there are depths by chance: all inliers are counted once.
        u = np.arange(len(chance) + 1) / len(chance)
        half = 0.5 * _NEIGHBOURS / wrong
        low, high = np.maximum(u - half, 0.0), np.minimum(u + half, 1.0)
        below = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=len(u)))])
        like = below[np.searchsorted(u, high, side="right")] - below[np.searchsorted(u, low)]
        # Counts are whole numbers and the limit often is one too: rounding must not decide.
        good = like > 2.0 * wrong * (high - low) + 0.5
        edges = chance[np.flatnonzero(good[1:] != good[:-1])]
        _leave_out(kept, depths, edges, bool(good[0]))
        return kept


@compiled(types.Tuple((types.boolean[::1], _f8[::1]))(_f8[::1], _f8[:, ::1], types.boolean[::1]))
def _in_front(pose, rays, flags):  # type: ignore[no-untyped-def]
    """Which of the flagged matches (n, 4) are in front of both cameras, and their inverse depths in camera 1, in units
    of the baseline."""
    R, t = pose[:9].reshape(3, 3), pose[9:]
    kept, out = np.zeros(rays.shape[0], dtype=np.bool_), np.empty(rays.shape[0])
    count = 0
    for i in range(rays.shape[0]):
        if not flags[i]:
            continue
        a, b, c, d = rays[i, 0], rays[i, 1], rays[i, 2], rays[i, 3]
        x = R[0, 0] * a + R[0, 1] * b + R[0, 2]
        y = R[1, 0] * a + R[1, 1] * b + R[1, 2]
        z = R[2, 0] * a + R[2, 1] * b + R[2, 2]
        nx, ny, nz = y - z * d, z * c - x, x * d - y * c
        first = (d * t[2] - t[1]) * nx + (t[0] - c * t[2]) * ny + (c * t[1] - d * t[0]) * nz
        second = (y * t[2] - z * t[1]) * nx + (z * t[0] - x * t[2]) * ny + (x * t[1] - y * t[0]) * nz
        square = nx * nx + ny * ny + nz * nz
        if first > 0.0 and second > 0.0 and square > 0.0:
            kept[i] = True
            out[count] = square / first
            count += 1
    return kept, out[:count].copy()


@compiled(types.void(types.boolean[::1], _f8[::1], _f8[::1], types.boolean))
def _leave_out(kept, depths, edges, first):  # type: ignore[no-untyped-def]
    """Clear the flags of matches whose depth is unlikely: likelihood begins with ``first`` and changes at the edges."""
    k = 0
    for i in range(kept.shape[0]):
        if kept[i]:
            likely = first
            for edge in edges:
                likely ^= depths[k] > edge
            kept[i] = likely
            k += 1


@compiled(_f8[::1](_f8[::1], _f8[:, ::1]))
def density_from(histogram, smoothing):  # type: ignore[no-untyped-def]
    """Density on the scale of chance, (bins,), whose mean is one: smoothed, and nowhere nothing."""
    bins = histogram.shape[0]
    out = np.zeros(bins)
    total = 0.0
    for i in range(bins):
        for j in range(bins):
            out[i] += smoothing[i, j] * histogram[j]
        total += out[i]
    for i in range(bins):
        out[i] = 1.0 if total == 0.0 else (1.0 - _FLOOR) * bins * out[i] / total + _FLOOR
    return out


def density_of_others(place: Array, inside: Flags, wrong: float) -> Array:
    """(n,) density of right matches at each place, from 0 to 1, as all others that are ``inside`` tell.

    ``wrong`` matches are expected inside, at any place alike.
    """
    at, weight = np.minimum((place * BINS).astype(np.intp), BINS - 1), inside.astype(np.float64)
    there = (SMOOTH @ np.bincount(at, weight, BINS))[at] - weight * SMOOTH[at, at] - wrong / BINS
    # One more may be anywhere (Laplace's rule of succession).
    density: Array = (BINS * np.maximum(there, 0.0) + 1.0) / (weight.sum() + 1.0)
    return density
