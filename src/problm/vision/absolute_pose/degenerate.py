r"""What the inliers of a pose do not determine: points on a line or in a plane, too narrow a field, a second pose.

Points in a plane, seen from afar, look the same if the plane is tilted the other way: the pose

    R' = (I - 2 v v') R (I - 2 n n'),   v towards the middle of the points, n the normal of the plane,

puts the middle at the same place and every depth on the other side of it. If a solve from there ends elsewhere with a
cost that noise could explain, the pose is one of two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...solver.loop import solve
from .robust import Fit

Array = NDArray[np.float64]

_FLAT = 0.1
"""Thickness of points, relative to their length, up to which they may have a second pose."""
_THIN = 1e-3
"""Thickness, relative to their length, below which they are said to be flat or straight."""
_TURN, _DISTANCE, _FOCAL = 0.2, 0.3, 0.3
"""Standard errors of an undetermined pose: radians, relative to the distance, and of log f."""
_EQUAL = 9.0
"""Difference of ``2 cost / sigma^2`` up to which two poses count as equally good: three standard deviations."""


@dataclass(frozen=True)
class Shape:
    """Principal axes of points."""

    axes: Array
    """(3, 3) rows, longest first."""
    lengths: Array
    """(3,) standard deviations along them."""

    @classmethod
    def of(cls, X: NDArray[Any]) -> Shape:
        few = np.asarray(X[:: max(1, len(X) // 5000)], dtype=np.float64)
        apart = few - few.mean(axis=0)
        squares, axes = np.linalg.eigh(apart.T @ apart / len(few))
        return cls(axes.T[::-1], np.sqrt(np.maximum(squares[::-1], 0.0)))

    @property
    def straight(self) -> bool:
        return bool(self.lengths[1] <= _THIN * self.lengths[0])

    @property
    def flat(self) -> bool:
        return bool(self.lengths[2] <= _THIN * self.lengths[0])


def second_pose(fit: Fit, shape: Shape, sigma: float) -> tuple[Array, float] | None:
    """Another pose of nearly flat points, and by how much its cost is higher, in ``2 cost / sigma^2``; None without."""
    scene, theta = fit.scene, fit.theta
    if shape.lengths[2] > _FLAT * shape.lengths[0] or shape.straight or scene.focal:
        return None
    middle = np.asarray(scene.X, dtype=np.float64).mean(axis=0)
    R, t = scene.pose(theta)
    at, normal = R @ middle + t, shape.axes[2]
    v = at / np.linalg.norm(at)
    other = (np.eye(3) - 2.0 * np.outer(v, v)) @ R @ (np.eye(3) - 2.0 * np.outer(normal, normal))
    problem = scene.problem(fit.loss)
    start = scene.point(other, at - other @ middle)
    result = solve(problem, start, acceptance="full", ftol=1e-8, xtol=1e-8, max_iter=50)
    if not result.success or not (scene.depths(result.x) > 0.0).all():
        return None
    if np.linalg.norm(result.x[:9] - theta[:9]) < 0.02:
        return None
    return result.x, 2.0 * (result.cost - fit.result.cost) / sigma**2


def undetermined(fit: Fit, shape: Shape, sigma: float) -> str:
    """Why the inliers determine no pose, or nothing."""
    H = fit.result.hessian
    if shape.straight:
        return "The inliers lie on a line in space: the pose may turn about it."
    size = np.sqrt(np.maximum(H.diagonal(), 1e-300))
    values, vectors = np.linalg.eigh(H / np.outer(size, size))
    if not values[0] > 1e-12:
        return "The inliers do not determine the pose: they lie on a line, or on a circle through the camera."
    covariance = (vectors / values) @ vectors.T / np.outer(size, size) * sigma**2
    errors = np.sqrt(np.diag(covariance))
    distance = float(np.linalg.norm(fit.theta[9:12]))
    if fit.scene.focal and errors[6] > _FOCAL:
        return "The focal length is not determined: the inliers have about the same depth, or the field is too narrow."
    if errors[:3].max() > _TURN or errors[3:6].max() > _DISTANCE * distance:
        return "The inliers do not determine the pose: they are too few, too close together, or nearly on a line."
    return ""


def too_similar(excess: float) -> bool:
    """Whether noise could explain by how much the cost of a second pose is higher."""
    return excess < _EQUAL
