r"""The search for a start among matches with outliers: many candidates, judged on small batches first.

This is progressive batching over *candidates*: many starts are judged on a small random batch of the matches and the
best few on larger ones, so a bad start costs microseconds. Starts are generated in two ways:

``"minimal"``
    models of minimal samples (`minimal`), drawn until they contain a sample without outliers with the required
    confidence. Each round: all models are scored on 128 matches, the best eighth on 512, the best eight on 2048; three
    are refined on 600 matches and scored on 2000. About 10 us per sample.
``"random"``
    no samples, as in the paper: random points of the manifold descend under the smooth truncated loss, from a scale of
    a tenth of the image down to the threshold, and the best share of them continues at each level. Half of the random
    rotations are near the identity (0.3 rad), the rest uniform: overlapping images mostly have similar orientations.
    Rounds continue until the best minimum has been reached twice, after a number of starts that its inliers make
    plausible.

Without a given threshold the noise is not known, and a wide threshold alone prefers a compromise between structures
to the pose that fits fewer matches exactly. So models are scored at two widths (`FINE`) and refined at the wide and
then at the narrow one. Candidates with other inliers than the best are kept as rivals while they are nearly as good;
`settle` refines each of them and decides by all matches.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import EVALUATOR, Kernel, address_of, describe
from .candidates import SOLVER, addresses, descend, hypothesize, random_points, score
from .consensus import (
    estimate_threshold,
    inlier_quantile,
    noise_scale,
    once_each,
    random_starts_needed,
    samples_needed,
    vote_weights,
)
from .matches import extent
from .models import Frame, Model, pose_of
from .pose import choose_pose
from .result import norms
from .settings import SearchOptions

Array = NDArray[np.float64]

_MOST_MATCHES = 20_000  # if there are more, the search uses a random subset
_LOCAL = 600  # number of matches on which candidates are refined
_JUDGES = 2000  # number of matches on which they are compared
FINE = 0.25
"""Narrow width of the scores of a search without a threshold, relative to the wide one."""
SAMPLES = 128
"""Minimal samples of the inliers that surround a model."""
ENOUGH_FOR_LINES = 70
"""Inliers from which the distance from lines tells one F from another: any noise seems likely for some of fewer."""
_OCTAVES = 6  # widths at which the ends of a search are compared
_ALIKE = 0.5  # share of common inliers, of all inliers of two candidates, from which they count as one
_RIVALS = 4  # candidates that are kept
_RIVAL = 0.8  # depth of the score, relative to the best, down to which other candidates are kept
_HOPEFUL = 0.6  # the same, down to which a candidate is refined at the narrow width


@dataclass(frozen=True)
class Candidate:
    """The best model that a search found."""

    theta: Array
    cost: float
    """Score of the candidate, from `Pool.judge` or `Pool.judge_any_scale`."""
    share: float
    """Share of the matches within the threshold."""
    starts: int
    """Number of samples or random starts examined."""
    inliers: NDArray[np.bool_] | None = None
    """Inliers among the matches that it was judged on."""
    rivals: tuple[Array, ...] = ()
    """Points of other candidates that are nearly as good."""


class Pool:
    """Matches in a random order, in the forms that the compiled code reads."""

    def __init__(self, model: Model, frame: Frame, x: Array, rng: np.random.Generator, fine: float = 1.0) -> None:
        self.fine = fine
        if len(x) > _MOST_MATCHES:
            x = x[rng.choice(len(x), _MOST_MATCHES, replace=False, shuffle=False)]
        order = rng.permutation(len(x))
        weights = vote_weights(x)
        if weights.min() < 1.0:
            # Use one of equal matches, and about one of those that share a point: an epipole in that point would fit
            # them all.
            order, weights = once_each(x, weights, order)
            lucky = order[rng.uniform(size=len(order)) < weights[order]]
            order = lucky if len(lucky) >= 4 * model.sample else order
        self.model, self.frame = model, frame
        self.x = np.ascontiguousarray(x[order], dtype=np.float64)
        self.n = len(self.x)
        self.columns = np.ascontiguousarray(self.x.T, dtype=np.float32)
        self.local = frame.transform(self.x)
        self.table = describe([self.x])
        self.evaluator = address_of(model.evaluator, EVALUATOR)
        self.changes = model.changes(frame)
        self.calls = addresses(model.encode, model.retract)

    def scores(self, pixel: NDArray[np.float32], lo: int, hi: int, threshold: float) -> NDArray[np.float32]:
        out = np.zeros(len(pixel), dtype=np.float32)
        score(self.frame.maps, pixel, self.columns, lo, hi, threshold, self.fine, out)
        return out

    def walk(self, points: Array, m: int, scales: Array, steps: int) -> Array:
        """Move points downhill on the first m matches, in place; return their costs at the last scale."""
        return self._walk(points, self.table, min(m, self.n), scales, steps)

    def walk_to(self, theta: Array, cut: float, m: int, steps: int) -> Array:
        """The point reached from ``theta`` downhill on the first m matches, at twice the threshold and at it."""
        points = theta[None].copy()
        self.walk(points, m, np.array([2.0 * cut, cut]), steps)
        return points[0]

    def walk_on(self, theta: Array, x: Array, scale: float, steps: int) -> Array:
        """The point reached from ``theta`` downhill on other matches."""
        points = theta[None].copy()
        self._walk(points, describe([x]), len(x), np.array([scale]), steps)
        return points[0]

    def _walk(self, points: Array, table: NDArray[np.int64], m: int, scales: Array, steps: int) -> Array:
        costs = np.empty(len(points))
        model = self.model
        descend(
            self.calls, self.evaluator, model.dim, model.components, table, m, *self.changes, points, scales, steps,
            costs,
        )  # fmt: skip
        return costs

    def judge(self, theta: Array, threshold: float, most: int = _JUDGES) -> tuple[float, NDArray[np.bool_]]:
        """Mean truncated squared error at both widths, and the inliers at the wide one, of ``most`` matches."""
        errors, good = self._inliers(theta, threshold, most)
        z = (errors[good] / threshold) ** 2
        inside = 0.5 * float((z + np.minimum(z / self.fine**2, 1.0)).sum())
        return 1.0 + (inside - len(z)) / len(good), good

    def imprecision(self, theta: Array, threshold: float) -> float:
        """Mean truncated squared error at the threshold and its halves, quarters and so on."""
        errors, good = self._inliers(theta, threshold, self.n)
        z = np.where(good, (errors / threshold) ** 2, 1.0)
        return float(np.mean([np.minimum(z * 4.0**k, 1.0).mean() for k in range(_OCTAVES)]))

    def judge_any_scale(self, theta: Array, window: float) -> tuple[float, float]:
        """Like `judge`, with estimated noise: minus the mean log-likelihood gained over "all outliers".

        Inliers are Gaussian with the noise of this very model, outliers uniform over the extent of the matches. A model
        that is accurate to a tenth of a pixel beats one that roughly fits more matches.
        """
        errors, good = self._inliers(theta, 2.0 * window)
        freedom = self.model.freedom
        sigma = noise_scale(errors, window, freedom)
        good &= errors < inlier_quantile(freedom) * sigma
        share = min(max(float(good.mean()), 1e-6), 1.0 - 1e-6)
        r = errors[good]
        # Ratio of the densities at each inlier, one-dimensional for both numbers of degrees of freedom.
        ratio = (
            share / (1.0 - share) * self.extent / (sigma * math.sqrt(2.0 * math.pi)) * np.exp(-0.5 * (r / sigma) ** 2)
        )
        return -(float(np.log1p(freedom * ratio).sum()) / len(good) + math.log1p(-share)), share

    def _inliers(self, theta: Array, threshold: float, most: int = _JUDGES) -> tuple[Array, NDArray[np.bool_]]:
        """Errors of at most ``most`` matches, and which are within the threshold.

        If the model is a pose, a match behind a camera is an outlier: a false pose may fit the epipolar lines, but puts
        about half of its points behind a camera.
        """
        errors = self.errors(theta, most)
        good = errors < threshold
        if self.model.sample == 5:
            good = choose_pose(pose_of(self.model, theta), self.local[:most], good)[1]
        return errors, good

    def errors(self, theta: Array, most: int | None = None) -> Array:
        """(n,) norms of the residuals at a point, of the first ``most`` matches."""
        n = self.n if most is None else min(most, self.n)
        return norms(self._kernel.residuals(self.model.encode(theta, *self.changes), self.table, n))

    @cached_property
    def _kernel(self) -> Kernel:
        return Kernel(self.model.evaluator, self.model.dim, self.model.components)

    @cached_property
    def extent(self) -> float:
        """Largest range of a coordinate."""
        return extent(self.x)


def find(
    pool: Pool, threshold: float, options: SearchOptions, rng: np.random.Generator, any_scale: bool = False
) -> Candidate | None:
    """The best model for the matches of a pool, or None if no sample gave one.

    ``any_scale``: the threshold is only a coarse bound of the noise.
    """
    if options.starts == "random":
        return _random_search(pool, threshold, options, rng, any_scale)
    return _minimal_search(pool, threshold, options, rng)


def _minimal_search(pool: Pool, threshold: float, options: SearchOptions, rng: np.random.Generator) -> Candidate | None:
    began = time.perf_counter()
    model = pool.model
    kept: list[Candidate] = []
    done, wanted = 0, float(options.max_starts)
    batch = 32 if model.sample == 5 else 128  # as many as take less time than what follows each round
    # Homographies have wide basins: fewer need to be followed.
    best, hopeful = (1, 1.0) if model.freedom == 2 else (3, _HOPEFUL)
    while done < min(wanted, options.max_starts) and time.perf_counter() - began < options.max_time:
        size = int(min(batch, max(16.0, min(wanted, options.max_starts) - done)))
        batch = min(2 * batch, 1024)
        done += size
        points = candidates(pool, size, threshold, rng, best)
        if len(points):
            pool.walk(points, _LOCAL, np.array([2.0 * threshold, threshold]), 5)
            for point in points:
                found = _candidate(pool, point, threshold)
                if not kept or 1.0 - found.cost >= hopeful * (1.0 - kept[0].cost):
                    found = _polished(pool, found, threshold)
                _keep(kept, found)
        if kept:
            wanted = samples_needed(kept[0].share, model.sample, options.confidence)
    if not kept:
        return None
    return replace(kept[0], starts=done, rivals=tuple(other.theta for other in kept[1:]))


def _candidate(pool: Pool, point: Array, threshold: float) -> Candidate:
    cost, inliers = pool.judge(point, threshold)
    return Candidate(point.copy(), cost, float(inliers.mean()), 0, inliers)


def _polished(pool: Pool, found: Candidate, threshold: float) -> Candidate:
    """A candidate, or where the narrow width leads to from there.

    As many matches as there are parameters fit a narrow width always, so the score must gain more than those.
    """
    if pool.fine == 1.0:
        return found
    narrow = found.theta[None].copy()
    pool.walk(narrow, _LOCAL, np.array([math.sqrt(pool.fine) * threshold, pool.fine * threshold]), 5)
    other = _candidate(pool, narrow[0], threshold)
    assert other.inliers is not None
    return other if other.cost < found.cost - pool.model.dim / len(other.inliers) else found


def _keep(kept: list[Candidate], new: Candidate) -> None:
    """Put a candidate into the list, which is in the order of the costs, and remove what is not needed then.

    Of candidates with mostly the same inliers the best one stays, and rivals that are much worse than the best go.
    """
    if any(old.cost <= new.cost and _alike(old, new) for old in kept):
        return
    kept[:] = sorted([old for old in kept if not _alike(old, new)] + [new], key=lambda found: found.cost)
    depth = 1.0 - kept[0].cost
    kept[:] = [found for found in kept if found is kept[0] or 1.0 - found.cost >= _RIVAL * depth][:_RIVALS]


def _alike(a: Candidate, b: Candidate) -> bool:
    """Whether most inliers of two candidates are the same."""
    assert a.inliers is not None
    assert b.inliers is not None
    both, either = int((a.inliers & b.inliers).sum()), int((a.inliers | b.inliers).sum())
    return both >= _ALIKE * either


def candidates(pool: Pool, size: int, threshold: float, rng: np.random.Generator, best: int = 3) -> Array:
    """Points of the best models of ``size`` minimal samples."""
    model = pool.model
    most = size * (10 if model.sample == 5 else 3)
    models, pixel = np.empty((most, 9)), np.empty((most, 9), dtype=np.float32)
    samples = rng.integers(0, pool.n, (size, model.sample))
    solver = address_of(model.solver, SOLVER)
    A1, B2 = np.ascontiguousarray(pool.frame.A1), np.ascontiguousarray(pool.frame.B2)
    count = hypothesize(solver, pool.local, samples, A1, B2, models, pixel)
    chosen = np.arange(count)
    total = np.zeros(count, dtype=np.float32)
    lo = 0
    for hi, keep in ((128, max(count // 8, 8)), (512, 8), (2048, best)):
        hi = min(hi, pool.n)
        if hi > lo:
            total += pool.scores(pixel[chosen], lo, hi, threshold)
        lo = hi
        if keep < len(chosen):
            first = np.argpartition(total, keep)[:keep]
            chosen, total = chosen[first], total[first]
    return np.array([model.point(models[k].reshape(3, 3)) for k in chosen])


def _random_search(
    pool: Pool, threshold: float, options: SearchOptions, rng: np.random.Generator, any_scale: bool
) -> Candidate | None:
    began = time.perf_counter()
    scales = np.geomspace(max(8.0 * threshold, 0.12 * pool.extent), threshold, 4)
    best: Candidate | None = None
    again, done, most = 0, 0, max(options.max_starts // 10, 1)
    while done < most and time.perf_counter() - began < options.max_time:
        size = min(64, most - done)
        done += size
        points = random_points(pool.model, size, rng)
        # Shares that keep 19 of 20 starts that would succeed (measured at 20 to 60 % inliers).
        for level, keep in enumerate((0.6, 0.33, 0.5, 1.0)):
            costs = pool.walk(points, 200, scales[level : level + 1], 8)
            points = points[np.argsort(costs)[: max(int(keep * len(points)), 1)]]
        points = np.ascontiguousarray(points[:4])
        pool.walk(points, _LOCAL, np.array([2.0 * threshold, threshold]), 5)
        for k in range(len(points)):
            point = points[k : k + 1]
            if any_scale:
                cut = estimate_threshold(pool.errors(point[0], _JUDGES), threshold, pool.model.freedom)
                pool.walk(point, _LOCAL, np.array([2.0 * cut, cut]), 5)
            if any_scale:
                cost, share = pool.judge_any_scale(point[0], threshold)
            else:
                cost, inliers = pool.judge(point[0], threshold)
                share = float(inliers.mean())
            depth = -cost if any_scale else 1.0 - cost
            # A minimum reached from independent starts: the gap to the best is small against its depth.
            if best is None or cost < best.cost:
                near = best is not None and cost > best.cost - 0.05 * depth
                again = again + 1 if near else 1
                best = Candidate(point[0].copy(), cost, share, done)
            elif cost < best.cost + 0.05 * depth:
                again += 1
        if best is not None and again >= 2 and done >= random_starts_needed(best.share):
            break
    return None if best is None else Candidate(best.theta, best.cost, best.share, done)


def settle(pool: Pool, found: Candidate, coarse: float) -> tuple[Array, float]:
    """The best of a candidate and its rivals, each refined at its own noise, and the threshold of that noise.

    They are compared by all matches of the pool, at many widths: a repeated structure brings many matches roughly into
    line. An F, which nothing but lines hold, has one rival more, which fits some of its inliers more precisely.
    """
    settled = [_settle(pool, theta, coarse) for theta in (found.theta, *found.rivals)]
    if pool.model.sample == 7:
        settled += [_settle(pool, point, 0.5 * cut) for point, cut in _narrower(pool, *settled[0])]
    if len(settled) == 1:
        return settled[0]
    return min(settled, key=lambda one: pool.imprecision(one[0], coarse))


def _narrower(pool: Pool, theta: Array, cut: float) -> list[tuple[Array, float]]:
    """The best model, at a quarter of the threshold, of minimal samples of the inliers; none of few."""
    x, rng = pool.x[pool.errors(theta) < cut], np.random.default_rng(0)  # not the user's: the same for any seed
    if len(x) < ENOUGH_FOR_LINES:
        return []
    some = Pool(pool.model, pool.frame, x, rng)
    points = candidates(some, SAMPLES, 0.25 * cut, rng, 1)
    return [(some.walk_to(point, 0.25 * cut, some.n, 5), cut) for point in points]


def _settle(pool: Pool, theta: Array, coarse: float) -> tuple[Array, float]:
    """Estimate the noise around a candidate and refine it, until the threshold no longer shrinks."""
    cut = coarse
    for k in range(6):
        before = cut
        cut = estimate_threshold(pool.errors(theta), coarse, pool.model.freedom)
        if k and cut > 0.9 * before:
            break
        theta = pool.walk_to(theta, cut, 2000, 5)
    return theta, cut


def explore(pool: Pool, theta: Array, cut: float, rng: np.random.Generator) -> Array:
    """The best of the minima around a point, by the truncated errors of its inliers.

    If a solve on the inliers moves far, the set of inliers depends on the point, and there are several minima. Models
    of minimal samples of the inliers surround the point; each is refined on all inliers.
    """

    def judge(point: Array) -> tuple[float, NDArray[np.bool_]]:
        errors = pool.errors(point)
        inliers = errors < cut
        return float(((errors[inliers] / cut) ** 2).sum() - inliers.sum()), inliers

    lowest, inliers = judge(theta)
    if inliers.sum() <= pool.model.dim:
        return theta
    some = Pool(pool.model, pool.frame, pool.x[inliers], rng)
    for point in candidates(some, SAMPLES, cut, rng):
        point = some.walk_to(point, cut, some.n, 5)
        for _ in range(2):
            near = judge(point)[1]
            if near.sum() > pool.model.dim:
                point = pool.walk_on(point, pool.x[near], 2.0 * cut, 4)
        cost = judge(point)[0]
        if cost < lowest:
            theta, lowest = point, cost
    return theta
