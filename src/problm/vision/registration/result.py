"""What `problm.register` returns."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...manifolds import rotation_log, skew
from ...report.serialize import plain
from ...solver.regional import regional_covariance
from ...solver.result import Result

Array = NDArray[np.float64]
_MOST = 200_000
"""Source points from which the covariance is computed, at most."""
_STEP = 0.25
"""Shift over which the curvature is measured, in distances between target points."""


@dataclass(frozen=True, kw_only=True)
class Registration:
    """Motion that moves the source onto the target, ``target ~ scale R source + t``.

    The covariance, (6, 6) or (7, 7), is that of the rotation vector w (radians, in the frame of the target: the
    rotation is ``exp([w]) R``), of t, and of the logarithm of the scale, if that was estimated. It is a sandwich over
    regions of the source, because neighbouring points share target points and their errors. NaN if the motion is not
    determined.

    Examples
    --------
    >>> import problm
    >>> from problm.vision.registration.simulate import two_clouds
    >>> clouds = two_clouds(2000, overlap=0.9, seed=1)
    >>> found = problm.register(clouds.source, clouds.target)
    >>> found.status, found.R.shape, found.scale, bool(found.translation_error(clouds.t) < 0.01)
    ('ok', (3, 3), 1.0, True)
    """

    R: Array
    """(3, 3) rotation."""
    t: Array
    """(3,) translation, in the units of the clouds."""
    scale: float
    """Scale of the similarity; 1 for a rigid motion."""
    inliers: NDArray[np.bool_] = field(repr=False)
    """(N,) source points that agree with the target."""
    noise: float
    """Standard deviation of a component of the residuals of inliers, in the units of the clouds."""
    gate: float
    """Largest distance of a source point from its match."""
    status: str
    """``"ok"``, ``"degenerate"``, ``"no fit"`` or ``"not converged"``."""
    message: str
    undetermined: Array
    """(k, 6 or 7) directions of the parameters that the clouds do not determine: rotation in radians per radius of the
    target, translation in radii."""
    result: Result = field(repr=False)
    """The last solve, over all source points, in coordinates centred and scaled to unit size."""
    seconds: float
    made: tuple[Any, Array, Array, float] = field(repr=False)
    """Problem with all source points, centres of source and target, and unit of length."""

    @property
    def success(self) -> bool:
        return self.status == "ok"

    @property
    def inlier_share(self) -> float:
        """Share of source points that agree with the target."""
        return float(self.inliers.mean())

    @property
    def matrix(self) -> Array:
        """(4, 4) homogeneous matrix of the motion."""
        M = np.eye(4)
        M[:3, :3], M[:3, 3] = self.scale * self.R, self.t
        return M

    def transform(self, points: ArrayLike) -> Array:
        """Move points (k, 3) from the frame of the source to that of the target."""
        moved: Array = self.scale * (np.asarray(points, dtype=np.float64) @ self.R.T) + self.t
        return moved

    @cached_property
    def covariance(self) -> Array:
        """Covariance of the parameters (class docstring); computed on first access."""
        problem, centre, _, unit = self.made
        theta, d = self.result.x, self.result.problem.dim
        C = np.full((d, d), np.nan)
        if self.status in ("degenerate", "no fit"):
            return C
        problem, share = problem.thinned(_MOST)
        # Point to point, neighbours change within an error: the slope is that over a part of their distance.
        step = 0.0 if problem.plane else _STEP * problem.target.spacing * math.sqrt(problem.n / 3.0)
        found = regional_covariance(problem, theta, problem.source, max(self.noise / unit, step))
        if found is None:
            return C
        # From (w, v) in coordinates about the centres to (w, t): t = unit v + centre of target - c R centre of source.
        turned = self.scale * self.R @ centre
        A = np.eye(d)
        A[3:6, 3:6] *= unit
        A[3:6, :3] = skew(turned)
        if d > 6:
            A[3:6, 6] = -turned
        return share * np.asarray(A @ found @ A.T)

    @property
    def standard_errors(self) -> Array:
        """(6,) or (7,) square roots of the diagonal of the covariance."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    def rotation_error(self, R: ArrayLike) -> float:
        """Angle to another rotation, degrees."""
        return math.degrees(float(np.linalg.norm(rotation_log(self.R @ np.asarray(R, dtype=np.float64).T))))

    def translation_error(self, t: ArrayLike) -> float:
        """Distance to another translation."""
        return float(np.linalg.norm(self.t - np.asarray(t, dtype=np.float64)))

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the clouds as numbers, text and lists that JSON can hold."""
        names = ("status", "message", "success", "scale", "noise", "gate", "inlier_share", "seconds")
        out = {name: plain(getattr(self, name)) for name in names}
        arrays = ("R", "t", "matrix", "covariance", "undetermined")
        return out | {name: plain(getattr(self, name)) for name in arrays} | {"iterations": self.result.nit}

    def __str__(self) -> str:
        w = np.degrees(rotation_log(self.R))
        lines = [f"Registration: {self.status}", self.message]
        lines.append(f"inliers    {int(self.inliers.sum())} of {len(self.inliers)}, noise {self.noise:.4g}")
        lines.append(f"rotation   {w[0]: .5f} {w[1]: .5f} {w[2]: .5f} degrees about x, y, z")
        lines.append(f"t          {self.t[0]: .6g} {self.t[1]: .6g} {self.t[2]: .6g}")
        if self.result.problem.dim > 6:
            lines.append(f"scale      {self.scale:.6g}")
        errors = self.standard_errors
        if np.isfinite(errors).all():
            turn = np.degrees(np.linalg.norm(errors[:3]))
            lines.append(f"std. error {turn:.4g} degrees of rotation, {np.linalg.norm(errors[3:6]):.4g} of t")
        time = f"{1e3 * self.seconds:.1f} ms" if self.seconds < 1.0 else f"{self.seconds:.2f} s"
        return "\n".join([*lines, f"time       {time}"])

    def _repr_html_(self) -> str:
        from ...report.page import listing

        return listing(str(self))
