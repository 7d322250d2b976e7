r"""Whether a pose is to be believed.

*Views that do not show the same.* Where view 2 is seen and the residual is within the noise, the images must correlate,
also about the means of small tiles: two photographs of different places correlate by light and shadow only. The noise
of images that do not belong together is as large as their contrast, so nothing is left out as an outlier there.

*Directions that are not determined.* Stripes can be moved along themselves. Noise looks like texture to the
Gauss-Newton matrix H: it adds a multiple of F, the mean square of the motion of pixels. The eigenvectors of H with
respect to F are therefore those without noise, and the pose is moved along each of them to both sides until pixels have
moved by two pixels. If the cost does not rise by five times the standard error of its change and by 15 % (interpolation
smooths noise by where it reads, which alone changes the cost by some percent), the direction is not determined.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...solver.information import inverse_root
from ..alignment.doubt import LEAST_CORRELATION, LEAST_DETAIL
from ..alignment.sample import Sample
from .problem import RgbdProblem

Array = NDArray[np.float64]
MOST_ROWS = 40_000
"""Rows of the level on which a pose is judged, at most."""
INLIER = 3.0
"""Largest residual of an inlier, in standard deviations."""
LEAST_OVERLAP, LEAST_SHARE = 0.1, 0.3
_PIXELS, _SIGMAS, _RISE = 2.0, 5.0, 0.15
_SHORT = 1e-5
_FARTHEST = 0.5
"""Longest move, in radians and median depths; a direction along which pixels hardly move is not determined."""
_CORRELATED = 9.0
"""Pixels whose residuals count as one: blur and interpolation correlate them."""
_TILES, _LEAST_TILE = 16, 6.0


@dataclass(frozen=True)
class Judgement:
    """What one level says about a pose."""

    overlap: float
    """Share of the pixels of image 1 with depth that fall into image 2."""
    share: float
    """Share of inliers among these."""
    correlation: float
    detail: float
    """The same about the means of tiles."""
    gain: float
    weak: Array
    """(k, 6) directions that are not determined, rotation in radians and translation in median depths."""

    @property
    def misfit(self) -> str:
        """Why the views do not fit, or nothing."""
        if not self.overlap >= LEAST_OVERLAP:
            return f"only {100 * self.overlap:.1f} % of the pixels with depth are seen in image 2"
        if not self.gain > 0.0:
            return f"image 2 fits as a negative (gain {self.gain:.2f})"
        if not self.share >= LEAST_SHARE:
            return f"only {100 * self.share:.0f} % of the pixels agree"
        if not self.correlation >= LEAST_CORRELATION:
            return f"the images correlate by {self.correlation:.2f} only"
        if not self.detail >= LEAST_DETAIL:
            return f"the fine structure of the images correlates by {self.detail:.2f} only"
        return ""


def inliers_of(problem: RgbdProblem, theta: Array) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.float32]]:
    """(n,) rows that are seen in image 2, those of them that agree, and image 2 there."""
    values, weights, places = problem.look_up(theta)
    views, noise = problem.views, problem.noise
    inside = weights[0] > 0.5
    agree = inside & (np.abs(values[0] - views.values) <= INLIER * noise[0])
    if problem.components > 1:
        agree &= (weights[1] <= 0.5) | (np.abs(values[1] - places[2]) <= INLIER * noise[1])
    return inside, agree, values[0]


def judge(problem: RgbdProblem, theta: Array) -> Judgement:
    """Judge a pose on the problem of one level, whose noise is that at the pose."""
    inside, agree, values = inliers_of(problem, theta)
    overlap = float(inside.mean())
    share = float(agree.sum()) / max(int(inside.sum()), 1)
    correlation = detail = 0.0
    if agree.sum() > 10:
        sample = Sample(
            np.ascontiguousarray(problem.views.values[agree, None]), np.ascontiguousarray(values[agree, None]),
            np.ones(int(agree.sum()), dtype=np.float32),
        )  # fmt: skip
        correlation = sample.correlation()
        h, w = problem.views.depth1.shape
        side = max(min(h, w) / _TILES, _LEAST_TILE)
        x, y = problem.views.pixels[agree].T
        detail = sample.detail((y / side).astype(np.intp) * (int(w / side) + 1) + (x / side).astype(np.intp))
    gain = float(theta[12]) if len(theta) > 12 else 1.0
    return Judgement(overlap, share, correlation, detail, gain, weak_directions(problem, theta))


def pixel_motion(problem: RgbdProblem, theta: Array, steps: Array, most: int = 2000) -> Array:
    """(2 k, m) motion in pixels of k points seen in image 2, per unit of each of the steps (d, m)."""
    seen = np.flatnonzero(problem.look_up(theta)[1][0] > 0.0)
    seen = seen[:: max(1, len(seen) // most)]
    motion = np.zeros((2 * len(seen), steps.shape[1]))
    for k, step in enumerate(steps.T):
        ahead, behind = (problem.look_up(problem.retract(theta, s * step))[2][:2, seen] for s in (_SHORT, -_SHORT))
        motion[:, k] = (ahead - behind).ravel() / (2.0 * _SHORT)
    return motion


def weak_directions(problem: RgbdProblem, theta: Array) -> Array:
    """Directions (k, 6) of the pose that the cost does not determine (module docstring)."""
    H = problem.linearize(theta, 0, problem.n, outer=False, costs=None).hessian
    follow: Array = np.zeros((problem.dim - 6, 6))
    if problem.dim > 6:  # light follows the pose
        follow = np.asarray(-np.linalg.lstsq(H[6:, 6:], H[6:, :6], rcond=1e-12)[0])
    motion = pixel_motion(problem, theta, np.eye(problem.dim)[:, :6])
    root, regular = inverse_root(2.0 * motion.T @ motion / max(len(motion), 1))
    if not regular:
        return np.eye(6)
    vectors = root @ np.linalg.eigh(root.T @ (H[:6, :6] + H[:6, 6:] @ follow) @ root)[1]
    here, weights = problem.costs(theta, 0, problem.n), problem.look_up(theta)[1][0]
    weak = []
    for v in vectors.T:  # each moves pixels by one pixel, root mean square
        rises = []
        for side in (_PIXELS, -_PIXELS):
            moved = problem.retract(theta, side * np.concatenate([v, follow @ v]))
            both = (weights > 0.5) & (problem.look_up(moved)[1][0] > 0.5)
            rises.append(_rise(here[both], problem.costs(moved, 0, problem.n)[both]))
        if min(rises) < 1.0 or _PIXELS * np.linalg.norm(v) > _FARTHEST:
            weak.append(v / np.linalg.norm(v))
    return np.array(weak).reshape(-1, 6)


def _rise(here: Array, there: Array) -> float:
    """How clearly the costs of some rows rise; from 1 on they do."""
    if len(here) <= 10:
        return 0.0
    change = there - here
    scatter = float(change.std()) * np.sqrt(_CORRELATED / len(change))
    return float(change.mean()) / max(_SIGMAS * scatter, _RISE * float(here.mean()), 1e-300)
