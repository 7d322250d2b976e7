r"""The pose on which noise, memberships and depths agree: EM for a mixture of right and wrong matches.

The error r of a match has, with c the density of errors by chance,

    p(r) = (1 - q) c + q g (0.9 N(r; s) + 0.1 N(r; 2.5 s)) .

Real features have longer tails than Gaussian noise; the second, wider part is there for those. g is the density of the
depths of right matches relative to that of depths by chance: zero behind a camera, and small where the scene is not.
Both c and the depths by chance come from re-paired matches (`depths.Repaired`).

Everything is smooth in the pose: a match that becomes unlikely fades out, and its neighbours in depth with it. Rules
that take matches in and out as a whole have many fixed points, each match at its limit being in or out, and which of
them is reached depends on the start. EM leads to the same pose from nearly everywhere around, unless
there are several likely ones: with such rules the error changed by more than a tenth between three seeds on 50 % of
scenes with coarse noise, 31 % of photographs of a castle and 50 % of nearly flat scenes, with EM on 0, 0 and 31 %.

Each step minimises the weighted squares, in Newton's metric as far as that is safe: memberships that follow the model
flatten the likelihood, and steps that ignore it are too short by that much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...jit import types
from ...kernels.kernel import describe
from ...kernels.passes import rows_chunk
from ...losses import Loss
from ...manifolds import compiled
from .consensus import inlier_quantile, squared_movement
from .depths import Depths
from .matches import extent
from .models import Frame, Model, two_view_problem
from .result import residual_norms
from .search import SAMPLES, Pool, candidates

_f8 = types.float64

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

_TAIL, _IN_TAIL = 2.5, 0.1  # standard deviation of the wider part, relative to the narrower, and its share
_CORE = 0.92  # standard deviation of the narrower part, relative to that of Gaussian noise
_NEWTON = 0.1  # squared standard errors of a step of EM, below which Newton's metric is used
_REACH = 8.0  # thresholds within which matches are looked at
_NEAR_BY = 0.01  # squared standard errors of a step, up to which the same matches stay near
_MOST = 0.998  # share of right matches
_FAR = 1.0  # squared standard errors from which a move is far
_STEPS, _AGAIN = 60, 2  # most steps, and how often what is near is chosen again at the end
_STILL = 1e-9  # squared standard errors of a step, at which steps end
_SAFE = 0.2  # least curvature, relative to that without memberships: steps are at most five times as long
_BINS = 64
_WIDE = 0.05  # standard deviation of the smoothing of depths, on the scale of chance
_FLOOR = 0.01  # share of right matches at any depth: wrong ones at rare depths have the most influence
_SQUARES = Loss.named("linear")


def _smoothing() -> Array:
    """(bins, bins) Gaussian smoothing of a histogram, reflected at both ends."""
    at = np.arange(_BINS)
    total = np.zeros((_BINS, _BINS))
    for image in (at, -1 - at, 2 * _BINS - 1 - at):
        total += np.exp(-0.5 * ((at[:, None] - image[None, :]) / (_WIDE * _BINS)) ** 2)
    smooth: Array = total / total.sum(axis=0)
    return smooth


_SMOOTH = _smoothing()


@dataclass(frozen=True)
class Agreed:
    """Where EM ended."""

    theta: Array
    sigma: float
    """Standard deviation of the errors."""
    likelihood: float
    """Logarithm, relative to "all matches are wrong"."""


class Membership:
    """The mixture of the matches x (N, 4), whose rays are (N, 4), with their depths."""

    def __init__(self, model: Model, frame: Frame, x: Array, rays: Array, depths: Depths) -> None:
        self.model, self.frame, self.x, self.rays, self.depths = model, frame, x, rays, depths
        self.problem = two_view_problem(model, [x], frame, _SQUARES)
        self.least = 1e-10 * extent(x)  # the noise cannot be estimated below the rounding of the coordinates

    def likeliest(self, theta: Array, cut: float, fixed: bool) -> Agreed | None:
        """The end of EM from a pose, or of EM from the poses around it if it moved far: there are several ends then.

        ``cut`` is the threshold of the noise, which is ``fixed`` or estimated. None: the pose agrees with nothing.
        """
        agreed = self.agree(theta, cut, fixed)
        if agreed is None:
            return None
        cut = inlier_quantile(1) * agreed.sigma
        before, after = (residual_norms(self.problem, point) for point in (theta, agreed.theta))
        inliers = after < cut
        if squared_movement(before[inliers], after[inliers], cut, self.model) > _FAR:
            ends = [self.agree(point, cut, fixed) for point in self._around(inliers, cut)]
            agreed = max([agreed, *(end for end in ends if end is not None)], key=lambda end: end.likelihood)
        return agreed

    def _around(self, inliers: Flags, cut: float) -> Array:
        """Poses (k, 12) of minimal samples of the inliers: the best, refined on all inliers."""
        rng = np.random.default_rng(0)  # not the user's: the end depends on the matches only
        pool = Pool(self.model, self.frame, self.x[inliers], rng)
        points = candidates(pool, SAMPLES, cut, rng)
        if len(points):
            pool.walk(points, pool.n, np.array([2.0 * cut, cut]), 5)
        return points

    def agree(self, theta: Array, cut: float, fixed: bool) -> Agreed | None:
        """EM from a pose; see `likeliest`."""
        d, near = self.model.dim, self._near(theta, cut)
        share = min(0.9 * float((residual_norms(self.problem, theta) < cut).mean()), 0.9)
        state = np.array([max(_CORE * cut / inlier_quantile(1), self.least), share])
        g, again = np.ones(_BINS), 0
        for _ in range(_STEPS):
            if len(near.rows) <= d:
                return None
            sums, matrices = _Sums(d), self._rows(theta, near)
            place, front = self.depths.places(theta, near.rays, near.chance)
            _expect(matrices, place, front, np.array([*state, near.density]), g, *sums.arrays)
            step = _step(*sums.arrays[1:4]) if sums.members > d else None
            if step is None:
                return None
            moved, sigma = float(step @ sums.arrays[1] @ step) / d, float(state[0])
            gained = sums.gain + len(self.x) * math.log1p(-float(state[1]))
            state[1] = min(sums.members / len(self.x), _MOST)
            if not fixed:
                state[0] = max(math.sqrt(sums.squares / sums.members), self.least)
            if moved < _STILL:
                again += 1
                if again > _AGAIN:
                    break
            if moved > _NEAR_BY or moved < _STILL:
                # What is near was chosen on the way: chosen again at the end, the end does not depend on the way.
                near = self._near(theta, inlier_quantile(1) * float(state[0]))
            g, theta = _density(sums.arrays[0], _SMOOTH), self.model.retract(theta, step)
        return Agreed(theta, sigma / _CORE, gained)

    def _near(self, theta: Array, cut: float) -> _Near:
        """What is near a pose."""
        rows = np.flatnonzero(residual_norms(self.problem, theta) < _REACH * cut)
        window, chance = self.depths.repaired.near(theta, cut)
        kept = self.x[rows]
        return _Near(rows, kept, self.rays[rows], chance, max(float(chance.mean()), 1e-9) / (2.0 * window))

    def _rows(self, theta: Array, near: _Near) -> Array:
        """(n, 1 + d) residuals and derivatives of the matches near a pose."""
        model, kernel, n = self.model, self.problem.kernel, len(near.x)
        values = np.empty((n, 1 + model.dim))
        point = model.encode(theta, *model.changes(self.frame))
        rows_chunk(kernel.address, point, describe([near.x]), 0, n, *kernel.fixed[:4], kernel.fixed[5], 1, values)
        return values


@dataclass(frozen=True)
class _Near:
    """What is near a pose."""

    rows: NDArray[np.intp]
    x: Array
    """(n, 4) the matches in these rows."""
    rays: Array
    chance: Flags
    """Re-paired matches."""
    density: float
    """Of these, per unit of the error."""


class _Sums:
    """Sums over memberships: a histogram of depths, J'WJ, what memberships take away from it, J'Wr, and numbers."""

    def __init__(self, d: int) -> None:
        self.arrays = np.zeros(_BINS), np.zeros((d, d)), np.zeros((d, d)), np.zeros(d), np.zeros(3)

    @property
    def gain(self) -> float:
        """Logarithm of the likelihood."""
        return float(self.arrays[4][0])

    @property
    def members(self) -> float:
        """Number of right matches."""
        return float(self.arrays[4][1])

    @property
    def squares(self) -> float:
        """Squared errors, of the narrow part's noise."""
        return float(self.arrays[4][2])


@compiled(_f8[::1](_f8[::1], _f8[:, ::1]))
def _density(histogram, smoothing):  # type: ignore[no-untyped-def]
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


@compiled(
    types.void(
        _f8[:, ::1], _f8[::1], _f8, _f8[::1], _f8[::1], _f8[::1], _f8[:, ::1], _f8[:, ::1], _f8[::1], _f8[::1]
    )
)  # fmt: skip
def _expect(values, place, front, state, g, histogram, A, C, v, sums):  # type: ignore[no-untyped-def]
    """Memberships of matches, and the sums that they weight.

    Parameters
    ----------
    values : (n, 1 + d) residuals and derivatives.
    place : (n,) depths on the scale of chance, -1 behind a camera.
    front : share of re-paired matches in front.
    state : standard deviation of the narrow part, share of right matches, density by chance.
    g : (bins,) density of the depths.
    histogram, A, C, v, sums : see `_Sums`; added to.
    """
    n, d, bins = values.shape[0], v.shape[0], g.shape[0]
    sigma, right = state[0], state[1] / ((1.0 - state[1]) * state[2])
    precise, wide = 1.0 / (sigma * sigma), 1.0 / (_TAIL * _TAIL * sigma * sigma)
    height = right * np.sqrt(precise / (2.0 * np.pi)) / front
    first, second = (1.0 - _IN_TAIL) * height, _IN_TAIL * height / _TAIL
    for i in range(n):
        r = values[i, 0]
        if place[i] < 0.0 or r * r * wide > 60.0:
            continue
        at = min(max(place[i] * bins - 0.5, 0.0), bins - 1.000001)
        left = int(at)
        share = at - left
        here = (1.0 - share) * g[left] + share * g[left + 1]
        a, b = first * here * np.exp(-0.5 * r * r * precise), second * here * np.exp(-0.5 * r * r * wide)
        every = 1.0 + a + b
        sums[0] += np.log(every)
        a, b = a / every, b / every
        sums[1] += a + b
        sums[2] += r * r * (a + b / (_TAIL * _TAIL))
        histogram[left] += (1.0 - share) * (a + b)
        histogram[left + 1] += share * (a + b)
        weight = a * precise + b * wide
        spread = (a * precise * precise + b * wide * wide - weight * weight) * r * r
        for x in range(d):
            v[x] += weight * r * values[i, 1 + x]
            for y in range(x + 1):
                product = values[i, 1 + x] * values[i, 1 + y]
                A[x, y] += weight * product
                C[x, y] += spread * product
    for x in range(d):
        for y in range(x):
            A[y, x], C[y, x] = A[x, y], C[x, y]


def _step(A: Array, C: Array, v: Array) -> Array | None:
    """The step ``-(A - C)^-1 v``, with the eigenvalues of A - C in the metric of A from `_SAFE` to one.

    Far from the end it is ``-A^-1 v``, the step of EM, which raises the likelihood.
    """
    try:
        half = np.linalg.inv(np.linalg.cholesky(A))
    except np.linalg.LinAlgError:
        return None
    pull = half @ v
    if pull @ pull < _NEWTON * len(v):
        lost, axes = np.linalg.eigh(half @ C @ half.T)
        pull = axes @ ((axes.T @ pull) / np.clip(1.0 - lost, _SAFE, 1.0))
    step: Array = -half.T @ pull
    return step
