r"""Search for a pose among matches with outliers: minimal samples, scored and refined on a part of the matches.

The matches of a search are a `Pool`: in random order, at most 20,000 of them, as ideal pixels (without distortion,
relative to the principal point) with a factor each that takes the errors back to the pixels of the image.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...jit import types
from ...jit.addresses import address_of, caller
from ...jit.njit import intrinsic, njit
from ...kernels.evaluator import EVALUATOR, FASTMATH
from ...kernels.kernel import Kernel, describe
from ...manifolds import compiled
from ..two_view.candidates import addresses, descend
from .kernels import encode_pose, move_pose, pinhole_evaluator
from .minimal import five_point_focal, three_point

_f8, _i8, _f4 = types.float64, types.int64, types.float32
Array = NDArray[np.float64]

SOLVER = _i8(_f8[:, ::1], _f8[:, ::1], _f8[:, ::1])
"""``(rays (k, 2), points (k, 3), out (4, 13)) -> solutions``."""
MOST = 20_000
"""Number of matches that a search uses at most."""
_LOCAL = 300  # matches on which candidates are refined
_SCORED = 1024  # matches on which samples are compared
_JUDGES = 4096  # matches on which refined candidates are compared
_KEPT = 3  # samples of a round that are refined
_NOTHING = np.zeros((1, 1))


@intrinsic
def _solve_sample(typing: Any, at: Any, rays: Any, X: Any, out: Any) -> Any:
    return SOLVER.return_type(_i8, *SOLVER.args), caller(SOLVER)


@njit(
    types.Tuple((_f4, _f4))(_f8[::1], _f4[:, ::1], _i8, _i8, _f8), any_types=True, nogil=True, error_model="numpy",
    fastmath=FASTMATH,
)  # fmt: skip
def score(pose, columns, lo, hi, threshold):  # type: ignore[no-untyped-def]
    """Sum of ``min(r^2 / threshold^2, 1)`` of a pose (13,) over the matches [lo, hi), and how many are below 1.

    ``columns`` (6, n) are pixels relative to the principal point, the point, and the factor of the error, for a camera
    whose focal length is 1 in these units; ``pose`` holds R, t and log f. Matches behind the camera count 1.
    """
    f = np.float32(np.exp(pose[12]))
    r0, r1, r2, r3 = np.float32(pose[0]), np.float32(pose[1]), np.float32(pose[2]), np.float32(pose[3])
    r4, r5, r6, r7 = np.float32(pose[4]), np.float32(pose[5]), np.float32(pose[6]), np.float32(pose[7])
    r8, t0, t1, t2 = np.float32(pose[8]), np.float32(pose[9]), np.float32(pose[10]), np.float32(pose[11])
    one, scale = np.float32(1.0), np.float32(1.0 / (threshold * threshold))
    total, inside = np.float32(0.0), np.float32(0.0)
    for i in range(lo, hi):
        X, Y, Z = columns[2, i], columns[3, i], columns[4, i]
        z = r6 * X + r7 * Y + r8 * Z + t2
        over = f / z
        u = (r0 * X + r1 * Y + r2 * Z + t0) * over - columns[0, i]
        v = (r3 * X + r4 * Y + r5 * Z + t1) * over - columns[1, i]
        e = (u * u + v * v) * (columns[5, i] * scale)
        good = (e < one) & (z > np.float32(0.0))
        total += e if good else one
        inside += one if good else np.float32(0.0)
    return total, inside


@compiled(types.void(_i8, _f8[:, ::1], _f8[:, ::1], _i8[:, ::1], _f4[:, ::1], _i8, _f8, _f8[:, ::1], _f8[::1]))
def hypothesize(solver, rays, X, samples, columns, m, threshold, best, costs):  # type: ignore[no-untyped-def]
    """Solve samples (S, k), score them on the first m matches, and keep those with the least scores.

    ``best`` (B, 13) and ``costs`` (B,) hold the best poses so far, in ascending order; costs begin as infinite. A pose
    is given up where its score lies three standard deviations above the share of the worst kept one.
    """
    k, most = samples.shape[1], best.shape[0]
    y, points, found = np.empty((k, 2)), np.empty((k, 3)), np.empty((4, 13))
    for s in range(samples.shape[0]):
        distinct = True
        for i in range(k):
            for j in range(i):
                distinct = distinct and samples[s, i] != samples[s, j]
            for c in range(2):
                y[i, c] = rays[samples[s, i], c]
            for c in range(3):
                points[i, c] = X[samples[s, i], c]
        if not distinct:
            continue
        for h in range(_solve_sample(solver, y, points, found)):
            worst = costs[most - 1]
            total, lo = 0.0, 0
            while lo < m:
                hi = min(lo + 128, m)
                total += score(found[h], columns, lo, hi, threshold)[0]
                lo = hi
                if total > worst * lo / m + 1.5 * np.sqrt(lo):
                    break
            if lo < m or not total < worst:
                continue
            place = most - 1
            while place > 0 and total < costs[place - 1]:
                costs[place] = costs[place - 1]
                for j in range(13):
                    best[place, j] = best[place - 1, j]
                place -= 1
            costs[place] = total
            for j in range(13):
                best[place, j] = found[h, j]


@dataclass(frozen=True)
class Candidate:
    """The best pose that a search found."""

    theta: Array
    cost: float
    share: float
    """Share of the matches within the threshold."""
    starts: int


class Pool:
    """Matches in a random order, in the forms that compiled code reads.

    Parameters
    ----------
    ideal : (n, 2) coordinates ``(x / z, y / z)``, or with an unknown focal length the same times it.
    X : (n, 3) points.
    factor : (n,) from distances of ideal coordinates to pixels; a weight's root included.
    middle, size : c and a of the manifold's point (`kernels`).
    focal : whether the focal length is unknown.
    """

    def __init__(
        self, ideal: Array, X: Array, factor: Array, middle: Array, size: float, focal: bool, rng: np.random.Generator
    ) -> None:
        n = len(ideal)
        order = rng.permutation(n) if n <= MOST else rng.choice(n, MOST, replace=False)
        self.focal, self.n, self.rng = focal, len(order), rng
        self.dim, self.sample = (7, 5) if focal else (6, 3)
        self.rays, self.X = ideal[order], (X[order] - middle) / size
        self.factor = factor[order]
        self.columns = np.empty((6, self.n), dtype=np.float32)
        self.columns[:2], self.columns[2:5], self.columns[5] = self.rays.T, self.X.T, self.factor**2
        self.solver = address_of(five_point_focal if focal else three_point, SOLVER)
        frame = np.zeros((1, 64))
        frame[0, 3], frame[0, 4], frame[0, 5:7] = 1.0, float(focal), 1.0
        self.frame = frame
        self._rows = np.column_stack([self.rays, self.X, self.factor])
        self.table = describe([self._rows])
        self.evaluator = address_of(pinhole_evaluator, EVALUATOR)
        self.calls = addresses(encode_pose, move_pose)

    def find(self, threshold: float, most: int, confidence: float, max_time: float) -> Candidate | None:
        """The best pose, or None if no sample gave one."""
        began = time.perf_counter()
        best: Candidate | None = None
        done, wanted, batch = 0, float(most), 32
        m = min(self.n, _SCORED)
        poses, costs = np.empty((_KEPT, 13)), np.full(_KEPT, math.inf)
        while done < min(wanted, most) and time.perf_counter() - began < max_time:
            size = int(min(batch, max(16.0, min(wanted, most) - done)))
            batch = min(2 * batch, 1024)
            done += size
            samples = self.rng.integers(0, self.n, (size, self.sample))
            known = costs.tolist()
            hypothesize(self.solver, self.rays, self.X, samples, self.columns, m, threshold, poses, costs)
            for k, cost in enumerate(costs.tolist()):
                if cost == math.inf or cost in known:
                    continue
                theta = self.walk(poses[k], threshold, _LOCAL, 5)
                cost, share = self.judge(theta, threshold)
                if best is None or cost < best.cost:
                    best = Candidate(theta, cost, share, done)
            if best is not None:
                wanted = samples_needed(best.share, self.sample, confidence)
        return None if best is None else Candidate(best.theta, best.cost, best.share, done)

    def judge(self, theta: Array, threshold: float) -> tuple[float, float]:
        """Mean truncated squared error and share of inliers."""
        m = min(self.n, _JUDGES)
        total, inside = score(np.append(theta, 0.0)[:13], self.columns, 0, m, threshold)
        return float(total) / m, float(inside) / m

    def walk(self, theta: Array, threshold: float, m: int, steps: int) -> Array:
        """The point (12,) or (13,) reached downhill on the first m matches, at twice the threshold and at it."""
        points = np.array(theta[None, : 6 + self.dim])
        descend(
            self.calls, self.evaluator, self.dim, 2, self.table, min(m, self.n), self.frame, _NOTHING, points,
            np.array([2.0 * threshold, threshold]), steps, np.empty(1),
        )  # fmt: skip
        return points[0]

    def errors(self, theta: Array) -> Array:
        """(n,) errors in pixels; infinite behind the camera."""
        r = self._kernel.residuals(encode_pose(theta, self.frame, _NOTHING), self.table, self.n)
        errors = np.sqrt(np.einsum("ij,ij->i", r, r))
        errors[self.X @ theta[6:9] + theta[11] <= 0.0] = math.inf
        return errors

    @cached_property
    def _kernel(self) -> Kernel:
        return Kernel(pinhole_evaluator, self.dim, 2)


def samples_needed(share: float, sample: int, confidence: float) -> float:
    """Number of samples that contain one without outliers with the given confidence."""
    good = min(max(share, 1e-3), 1.0) ** sample
    return math.log1p(-confidence) / math.log1p(-good) if good < 1.0 else 1.0
