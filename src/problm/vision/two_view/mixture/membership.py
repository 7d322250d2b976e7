r"""The pose on which noise, memberships and depths agree: EM for a mixture of right and wrong matches.

The error r of a match has, with c the density of errors by chance,

    p(r) = (1 - q) c + q g (0.9 N(r; s) + 0.1 N(r; 2.5 s)) .

Real features have longer tails than Gaussian noise; the second, wider part is there for those. g is the density of the
depths of right matches relative to that of depths by chance: zero behind a camera, and small where the scene is not.
Both c and the depths by chance come from re-paired matches (`depths.Repaired`).

Everything is smooth in the pose: a match that becomes unlikely fades out, and its neighbours in depth with it. Rules
that take matches in and out as a whole have many fixed points, each match at its limit being in or out, and which of
them is reached depends on the start. EM leads to the same pose from nearly everywhere around, unless there are several
likely ones: with such rules the error changed by more than a tenth between three seeds on 50 % of scenes with coarse
noise and 31 % of photographs of a castle, with EM on none. Nearly flat scenes do have several; the likeliest around is
sought there. On 120 of them the error changes between two seeds on 7 %, and changed on 11 % with subsets that were
drawn anew at every end.

F has no depths: g is one, and c alone tells right from wrong matches. Wrong ones where nothing else holds F, such as
near an epipole, draw it to themselves; they are left out at the end (`Membership._followed`). On 50 scenes with 500
matches, 40 % of them wrong, errors in claimed standard errors had a root mean square of 1.9 with them and have 0.96
without; with 2000 matches 1.4 and 0.88.

Each step minimises the weighted squares, in Newton's metric as far as that is safe: memberships that follow the model
flatten the likelihood, and steps that ignore it are too short by that much.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ....kernels.kernel import describe
from ....kernels.passes import rows_chunk
from ....losses import Loss
from ..consensus import inlier_quantile, squared_movement
from ..depths import BINS, SMOOTH, Depths, Repaired, density_from, density_of_others
from ..matches import extent
from ..models import Frame, Model, two_view_problem
from ..result import residual_norms
from ..search import SAMPLES, Pool, candidates
from .sums import IN_TAIL, TAIL, Sums, expect, log_volume, step_of

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

_CORE = 0.92  # standard deviation of the narrower part, relative to that of Gaussian noise
_REACH = 8.0  # thresholds within which matches are looked at
_NEAR_BY = 0.01  # squared standard errors of a step, up to which the same matches stay near
_MOST = 0.998  # share of right matches
_STEPS, _AGAIN = 60, 2  # most steps, and how often what is near is chosen again at the end
_STILL, _ROUGHLY = 1e-9, 1e-2  # squared standard errors of a step, at which steps end, and where ends are compared
_ROUNDS = 6  # how often what is around is looked at
_LIKELIER = 0.05  # logarithm by which another end must be likelier
_SUBSETS, _MOST_SUBSETS = 4, 24  # number of subsets, and where some of a pose lead elsewhere
_SUBSET = 3  # matches per parameter in each: they move the model by some errors
_AROUND = 3.0  # thresholds within which matches lead from there
_LIKELIEST = 2  # models around an end that EM starts from
_LEFT_OUT = 10  # most turns in which matches are left out
_CONVINCING = 10.0  # odds that a match is right, without its own say, from which it is kept
_FAR = 1.0  # squared standard errors from which another model is another one
_RIVAL = 20.0  # logarithm of the likelihood, down to which it may lead to a likelier end
_SHARP = 0.001  # standard error of a pose, in radians, up to which nothing else is likely
_SQUARES = Loss.named("linear")


@dataclass(frozen=True)
class Agreed:
    """Where EM ended."""

    theta: Array
    sigma: float
    """Standard deviation of the errors."""
    likelihood: float
    """Logarithm, relative to "all matches are wrong". Unlikely depths lower it, likely ones do not raise it: how much
    they would depends on a few re-paired matches, and counts once per inlier."""
    density: float
    """Of errors by chance, that the likelihood was computed with."""
    share: float
    """Of right matches."""
    metric: Array = field(repr=False)
    """(d, d) inverse covariance of the parameters, for memberships as they are."""
    lost: Array = field(repr=False)
    """(d, d) what memberships that follow the model take away from it."""

    @cached_property
    def evidence(self) -> float:
        """Logarithm of the likelihood, integrated over the surroundings (Laplace): a narrow peak counts less."""
        return self.likelihood - 0.5 * log_volume(self.metric, self.lost)

    @property
    def error(self) -> float:
        """Standard error of the least certain direction of the parameters."""
        return 1.0 / math.sqrt(max(float(np.linalg.eigvalsh(self.metric)[0]), 1e-300))


class Membership:
    """The mixture of the matches x (N, 4), whose rays are (N, 4), with their depths."""

    def __init__(self, model: Model, frame: Frame, x: Array, rays: Array, depths: Depths | None) -> None:
        self.model, self.frame, self.x, self.rays, self.depths = model, frame, x, rays, depths
        self.repaired = Repaired(model, frame, x) if depths is None else depths.repaired
        self.problem = two_view_problem(model, [x], frame, _SQUARES)
        self.kept = np.ones(len(x), dtype=bool)
        """(N,) the matches that are not left out; see `_followed`."""
        self.least = 1e-10 * extent(x)  # the noise cannot be estimated below the rounding of the coordinates

    def likeliest(self, theta: Array, cut: float, fixed: bool) -> Agreed | None:
        """The likeliest end of EM from a model and from those around its end; None: it agrees with nothing.

        ``cut`` is the threshold of the noise, which is ``fixed`` or estimated. What is around is looked at until
        nothing is likelier, unless depths leave a pose no other end: it is sharp, and EM did not move far.
        """
        best = self.agree(theta, cut, fixed)
        if best is None:
            return None
        if self.depths is None:
            return self._without_followed(self._likelier(best, fixed), fixed)
        vague = best.error > _SHARP or self._moved(theta, best) > _FAR
        return self._likelier(best, fixed) if vague else best

    def _likelier(self, best: Agreed, fixed: bool) -> Agreed:
        """The likeliest end around an end."""
        for turn in range(_ROUNDS):
            points = self._around(best, turn)
            ends = [self.agree(point, self._cut(best), fixed, best.density, _ROUGHLY) for point in points]
            rough = max((end for end in ends if end is not None), key=lambda end: end.evidence, default=None)
            if rough is None or rough.evidence < best.evidence + _LIKELIER:
                break
            end = self.agree(rough.theta, self._cut(rough), fixed, best.density)
            if end is None or end.evidence < best.evidence + _LIKELIER:
                break
            best = end
        return best

    def _around(self, end: Agreed, turn: int) -> list[Array]:
        """Models around an end that may lead to a likelier one."""
        rng, cut = np.random.default_rng(turn), self._cut(end)  # not the user's: the end depends on the matches only
        pool = Pool(self.model, self.frame, self.x[residual_norms(self.problem, end.theta) < cut], rng)
        some = [*self._minimal(pool, cut, rng), *self._subsets(end, pool, 0, _SUBSETS)]
        known = self._likelihood(end.theta, end)
        if self.depths is None:
            values = [self._likelihood(point, end) for point in some]
            return [some[k] for k in np.argsort(values)[::-1][:_LIKELIEST] if values[k] > known]
        errors = [residual_norms(self.problem, end.theta)]
        found: list[Array] = []
        for points in (iter(some), self._subsets(end, pool, _SUBSETS, _MOST_SUBSETS)):
            for point in points:
                if self._likelihood(point, end) > known - _RIVAL:
                    here = residual_norms(self.problem, point)
                    if all(self._apart(here, there, cut) > _FAR for there in errors):
                        found.append(point)
                        errors.append(here)
            if not found:
                break
        return found

    def _apart(self, here: Array, there: Array, cut: float) -> float:
        """How far apart models with these errors are, in standard errors, squared."""
        inliers = (here < cut) | (there < cut)
        return squared_movement(here[inliers], there[inliers], cut, self.model)

    def _without_followed(self, end: Agreed, fixed: bool) -> Agreed:
        """EM again without the matches that agree only because the model follows them."""
        for _ in range(_LEFT_OUT):
            followed = self._followed(end)
            if not followed.any():
                break
            self.kept &= ~followed
            end = self.agree(end.theta, self._cut(end), fixed, end.density) or end
        return end

    def _followed(self, end: Agreed) -> Flags:
        """(N,) the matches that are likely right, but not by a model that is fitted without them.

        With the variance v of its error by the model, which a match of weight w lowers by the share h = w v, the error
        without it is r / (1 - h), with the variance v / (1 - h) in addition to that of the noise. Right matches are
        where the scene is, and others like them hold the model there; a wrong one lies anywhere along its epipolar
        line, often where nothing else holds the model, which then comes to it. So v is used as depths are: on the scale
        of re-paired matches, with the density of all others.
        """
        followed, near = np.zeros(len(self.x), dtype=bool), self._near(end.theta, self._cut(end), end.density)
        if len(near.rows) <= self.model.dim + 1:
            return followed
        values, sigma = self._rows(end.theta, near.x), _CORE * end.sigma
        r, J = values[:, 0], values[:, 1:]
        odds = end.share / ((1.0 - end.share) * end.density * math.sqrt(2.0 * math.pi))
        first, second = self._parts(r, sigma, 0.0)
        right = odds * (first + second)
        weight = odds / (1.0 + right) * (first + second / TAIL**2) / sigma**2
        try:
            half = np.linalg.inv(np.linalg.cholesky((J * weight[:, None]).T @ J))
        except np.linalg.LinAlgError:
            return followed
        chance = self._rows(end.theta, self.repaired.x[self.repaired.near(end.theta, self._cut(end))[1]])[:, 1:]
        variance, by_chance = (((rows @ half.T) ** 2).sum(axis=1) for rows in (J, chance))
        rest = np.maximum(1.0 - weight * variance, 1e-9)
        alone = odds * sum(self._parts(r / rest, sigma, variance / rest))
        place = np.searchsorted(np.sort(by_chance), variance / rest) / len(by_chance)
        inside = np.abs(r) < self._cut(end)
        wrong = (1.0 - end.share) * len(self.x) * end.density * 2.0 * self._cut(end)
        followed[near.rows] = inside & (alone * density_of_others(place, inside, wrong) < _CONVINCING)
        return followed

    @staticmethod
    def _parts(r: Array, sigma: float, variance: float | Array) -> tuple[Array, Array]:
        """The narrow and the wide part of the density of errors, times sqrt(2 pi), with a variance in addition."""
        narrow, wide = sigma**2 + variance, (TAIL * sigma) ** 2 + variance
        first = (1.0 - IN_TAIL) / np.sqrt(narrow) * np.exp(-0.5 * r**2 / narrow)
        return first, IN_TAIL / np.sqrt(wide) * np.exp(-0.5 * r**2 / wide)

    def _cut(self, end: Agreed) -> float:
        return inlier_quantile(1) * end.sigma

    def _moved(self, theta: Array, end: Agreed) -> float:
        """How far EM moved, in standard errors, squared."""
        before, after = (residual_norms(self.problem, point) for point in (theta, end.theta))
        inliers = after < self._cut(end)
        return squared_movement(before[inliers], after[inliers], self._cut(end), self.model)

    def _minimal(self, pool: Pool, cut: float, rng: np.random.Generator) -> Array:
        """Models of minimal samples of the inliers: the best, refined on all inliers."""
        points = candidates(pool, SAMPLES, cut, rng)
        if len(points):
            pool.walk(points, pool.n, np.array([2.0 * cut, cut]), 5)
        return points

    def _subsets(self, end: Agreed, pool: Pool, first: int, last: int) -> Iterator[Array]:
        """Models of a few more of the inliers than a minimal sample, refined on everything near, in turn.

        Every match has the same rank in each subset, whatever the end, so ends with nearly the same inliers have nearly
        the same subsets: what is found around does not depend on where one comes from.
        """
        cut, errors = self._cut(end), residual_norms(self.problem, end.theta)
        inliers, near = np.flatnonzero(errors < cut), self.x[errors < _AROUND * cut]
        for k in range(first, last):
            ranks = np.random.default_rng(k).random(len(self.x))[inliers]
            rows = inliers[np.argsort(ranks)[: _SUBSET * self.model.dim]]
            point = pool.walk_on(end.theta, np.ascontiguousarray(self.x[rows]), 2.0 * cut, 4)
            yield pool.walk_on(pool.walk_on(point, near, 2.0 * cut, 5), near, cut, 5)

    def _likelihood(self, theta: Array, end: Agreed) -> float:
        """Likelihood of a model with the noise and the share of an end, whatever the depths."""
        odds = end.share / ((1.0 - end.share) * end.density * math.sqrt(2.0 * math.pi))
        parts = self._parts(residual_norms(self.problem, theta), _CORE * end.sigma, 0.0)
        return float(np.log1p(odds * (parts[0] + parts[1])).sum())

    def agree(
        self, theta: Array, cut: float, fixed: bool, density: float | None = None, still: float = _STILL
    ) -> Agreed | None:
        """EM from a model, until steps are shorter than the root of ``still``, in standard errors.

        ``density`` of errors by chance: from re-paired matches if not given. Each such estimate is off by 5 %, which
        counts once per inlier in the likelihood, so ends must be compared with the same one.
        """
        d, near = self.model.dim, self._near(theta, cut, density)
        share = min(0.9 * float((near.errors < cut).sum()) / len(self.x), 0.9)
        state = np.array([max(_CORE * cut / inlier_quantile(1), self.least), share])
        g, again = np.ones(BINS), 0
        for _ in range(_STEPS):
            if len(near.rows) <= d:
                return None
            sums, matrices = Sums(d), self._rows(theta, near.x)
            place, front = self._places(theta, near)
            expect(matrices, place, front, np.array([*state, near.density]), g, *sums.arrays)
            step = step_of(*sums.arrays[1:4]) if sums.members > d else None
            if step is None:
                return None
            moved, end = float(step @ sums.arrays[1] @ step) / d, self._end(theta, state, sums, near)
            state[1] = min(sums.members / len(self.x), _MOST)
            if not fixed:
                state[0] = max(math.sqrt(sums.squares / sums.members), self.least)
            if moved < still:
                again += 1
                if again > _AGAIN or still > _STILL:
                    break
            if moved > _NEAR_BY or moved < still:
                # What is near was chosen on the way: chosen again at the end, the end does not depend on the way.
                near = self._near(theta, inlier_quantile(1) * float(state[0]), density)
            if self.depths is not None:
                g = density_from(sums.arrays[0], SMOOTH)
            theta = self.model.retract(theta, step)
        return end

    def _end(self, theta: Array, state: Array, sums: Sums, near: _Near) -> Agreed:
        likelihood = sums.gain + len(self.x) * math.log1p(-float(state[1]))
        sigma, share = float(state[0]) / _CORE, float(state[1])
        return Agreed(theta, sigma, likelihood, near.density, share, *sums.arrays[1:3])

    def _near(self, theta: Array, cut: float, density: float | None) -> _Near:
        """What is near a model."""
        errors = residual_norms(self.problem, theta)
        rows = np.flatnonzero((errors < _REACH * cut) & self.kept)
        kept, chance = self.x[rows], None
        if density is None or self.depths is not None:
            window, chance = self.repaired.near(theta, cut)
            density = density or max(float(chance.mean()), 1e-9) / (2.0 * window)
        return _Near(rows, kept, self.rays[rows], errors[rows], chance, density)

    def _places(self, theta: Array, near: _Near) -> tuple[Array, float]:
        """See `Depths.places`; without depths all are alike."""
        if self.depths is None or near.chance is None:
            return np.full(len(near.rows), 0.5), 1.0
        return self.depths.places(theta, near.rays, near.chance)

    def _rows(self, theta: Array, x: Array) -> Array:
        """(n, 1 + d) residuals and derivatives of matches (n, 4)."""
        model, kernel, n = self.model, self.problem.kernel, len(x)
        values = np.empty((n, 1 + model.dim))
        point = model.encode(theta, *model.changes(self.frame))
        rows_chunk(kernel.address, point, describe([x]), 0, n, *kernel.fixed[:4], kernel.fixed[5], 1, values)
        return values


@dataclass(frozen=True)
class _Near:
    """What is near a pose."""

    rows: NDArray[np.intp]
    x: Array
    """(n, 4) the matches in these rows."""
    rays: Array
    errors: Array
    chance: Flags | None
    """Re-paired matches, if they are needed."""
    density: float
    """Of these, per unit of the error."""
