r"""Whether a registration is to be believed.

*Directions that are not determined.* A plane can slide along itself, a sphere can turn. The Gauss-Newton matrix does
not show it, because noise in normals looks like information. So the sample is moved along every eigenvector of
that matrix, to both sides, by two distances between target points (or six standard errors, if these are more), and
matched again. If the cost of the rows that stay matched does not rise by more than five times its own standard
error, the direction is not determined.

*Clouds that do not fit.* The residuals of inliers are compared with those of the target about its own surface. If they
are several times as large, or hardly more rows agree than at random poses, the clouds do not show the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...manifolds import rotation_exp
from .problem import RegistrationProblem
from .stages import noise_of
from .target import Target

Array = NDArray[np.float64]
_MOVE, _SIGMAS, _RISE = 2.0, 6.0, 5.0
_FARTHEST = 0.5
"""Longest move, in radii of the target; a direction with larger errors is not determined."""
_POSES, _FEW = 20, 500
_MORE = 1.5
_ROUGHER = 4.0
LEAST_OVERLAP = 0.05
INLIER = 3.0
"""Largest residual of an inlier, in standard deviations of a component (times the root of their number)."""


@dataclass(frozen=True)
class Judgement:
    """What the sample says about a pose."""

    weak: Array
    """(k, d) directions that are not determined, unit vectors in normalised units."""
    share: float
    """Share of inliers."""
    at_random: float
    """Largest share of inliers at some random poses."""
    own: float
    """Noise of the target about its own surface."""
    noise: float

    @property
    def misfit(self) -> str:
        """Why the clouds do not fit, or nothing."""
        if self.share < LEAST_OVERLAP:
            return f"only {100 * self.share:.1f} % of the source points find the target within reach"
        if self.noise > _ROUGHER * self.own:
            return (
                f"residuals are {self.noise / max(self.own, 1e-300):.1f} times as large as those of the target about "
                "its own surface"
            )
        if self.share < _MORE * self.at_random and not len(self.weak):  # a sphere fits at any rotation
            return (
                f"{100 * self.share:.0f} % of the source points agree, but {100 * self.at_random:.0f} % do at a random "
                "pose"
            )
        return ""


def inliers_of(problem: RegistrationProblem, theta: Array, noise: float) -> NDArray[np.bool_]:
    """(n,) rows whose residual is within the noise."""
    residuals = problem.residuals(theta)
    limit = INLIER * noise * np.sqrt(residuals.shape[1])
    return problem.matched(theta) & (np.linalg.norm(residuals, axis=1) <= max(limit, 1e-12))


def judge(problem: RegistrationProblem, theta: Array, noise: float, own: float) -> Judgement:
    """Judge a pose by a sample."""
    share = float(inliers_of(problem, theta, noise).mean())
    rng = np.random.default_rng(0)
    random = 0.0
    few = problem.thinned(_FEW)[0]
    for _ in range(_POSES):
        turned = theta.copy()
        turned[:9] = (rotation_exp(np.pi * _direction(rng)) @ theta[:9].reshape(3, 3)).ravel()
        turned[9:12] += 0.3 * _direction(rng)
        random = max(random, float(inliers_of(few, turned, noise).mean()))
    return Judgement(weak_directions(problem, theta, noise), share, random, own, noise)


def weak_directions(problem: RegistrationProblem, theta: Array, noise: float) -> Array:
    """Directions (k, d) that the cost does not determine (module docstring)."""
    normal = problem.linearize(theta, 0, problem.n, outer=False, costs=None)
    values, vectors = np.linalg.eigh(normal.hessian)
    here, found = problem.costs(theta, 0, problem.n), problem.matched(theta)
    weak = []
    for value, v in zip(values, vectors.T, strict=True):
        error = noise / np.sqrt(max(value, 1e-300))
        step = max(_MOVE * problem.target.spacing, _SIGMAS * error)
        if step > _FARTHEST:
            weak.append(v)
            continue
        rises = []
        for side in (step, -step):
            moved = problem.retract(theta, side * v)
            both = found & problem.matched(moved)
            change = (problem.costs(moved, 0, problem.n) - here)[both]
            if len(change) <= 10:
                rises.append(0.0)
                continue
            scatter = float(change.std()) / np.sqrt(len(change))
            rises.append(float(change.mean()) / max(scatter, 1e-300))
        if min(rises) < _RISE:
            weak.append(v)
    return np.array(weak).reshape(-1, len(values))


def own_noise(target: Target, plane: bool, seed: int = 0) -> float:
    """Noise of the target about its own surface; for point to point, about its nearest other point."""
    rng = np.random.default_rng(seed)
    if not plane:
        some = target.points[rng.choice(len(target.points), min(2000, len(target.points)), replace=False)]
        distance = target.tree.query(some, k=2)[0][:, -1:]
        return float(np.median(distance)) / 1.5382
    some = target.raw[rng.choice(len(target.raw), min(2000, len(target.raw)), replace=False)]
    near = target.tree.query(some, k=2)[1]
    # A point that is searched as it is would be compared with itself.
    near = near[:, 0] if target.cell > 0.0 else near[:, -1]
    heights = np.einsum("ij,ij->i", some - target.points[near], target.normals[near])
    return noise_of(heights[:, None])


def _direction(rng: np.random.Generator) -> Array:
    v = rng.normal(size=3)
    return np.asarray(v / np.linalg.norm(v))
