r"""The result of `problm.absolute_pose`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...manifolds import quaternions_of, rotation_log, skew
from ..bundle.camera_models import Intrinsics
from ..two_view.result import TwoViewFit, plain

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class AbsolutePose(TwoViewFit):
    """Pose of a camera, ``z (u, v, 1) = R X + t``: returned by `problm.absolute_pose`.

    The covariance, (6, 6) or with an unknown focal length (7, 7), is that of the rotation vector w (radians, in the
    frame of the camera: the rotation is ``exp([w]) R``), of t, and of the focal length fx in pixels. It is estimated
    from the residuals over regions of the image, as for two views. Errors that another pose would imitate are not
    covered: a wrong focal length or principal point.

    Examples
    --------
    >>> import problm
    >>> from problm.vision.absolute_pose.simulate import one_view
    >>> view = one_view(300, inliers=0.8, seed=1)
    >>> pose = problm.absolute_pose(view.points2d, view.points3d, view.K)
    >>> pose.status, pose.R.shape, bool(np.abs(pose.center + view.R.T @ view.t).max() < 0.05)
    ('ok', (3, 3), True)
    """

    R: Array
    """(3, 3) rotation from the scene to the camera; nan where there is no consensus."""
    t: Array
    """(3,) translation, in the units of the points."""
    camera: Intrinsics = field(repr=False)
    """The camera, with the focal length that was estimated."""
    transform: Array = field(repr=False)
    """(d, d) derivatives of the parameters of the covariance by those of the solve."""
    other: tuple[Array, Array] | None = field(default=None, repr=False)
    """A second pose (R, t) that noise does not tell from this one, as points in a plane may have; else None."""

    @property
    def rvec(self) -> Array:
        """(3,) rotation vector, as OpenCV's."""
        return rotation_log(self.R) if np.isfinite(self.R).all() else np.full(3, np.nan)

    @property
    def quaternion(self) -> Array:
        """(4,) unit quaternion w, x, y, z with w >= 0, as COLMAP's."""
        if not np.isfinite(self.R).all():
            return np.full(4, np.nan)
        return quaternions_of(self.R[None])[0, [3, 0, 1, 2]]

    @property
    def center(self) -> Array:
        """(3,) position of the camera, ``-R' t``."""
        C: Array = -self.R.T @ self.t
        return C

    @property
    def matrix(self) -> Array:
        """(3, 4) matrix [R t]."""
        return np.column_stack([self.R, self.t])

    @property
    def focal(self) -> float:
        """Focal length fx, pixels."""
        return float(self.camera.places[0])

    @property
    def K(self) -> Array:
        """(3, 3) camera matrix."""
        fx, fy, cx, cy = self.camera.places[:4]
        return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])

    @cached_property
    def covariance(self) -> Array:
        """(6, 6) or (7, 7) covariance of w, t and fx; nan where it is not known."""
        tangent: Array = TwoViewFit.covariance.func(self)  # type: ignore[attr-defined]
        C: Array = self.transform @ tangent @ self.transform.T
        return C

    @property
    def standard_errors(self) -> Array:
        """(6,) or (7,) roots of the diagonal of the covariance."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    @property
    def center_covariance(self) -> Array:
        """(3, 3) covariance of the position of the camera."""
        J = -self.R.T @ np.hstack([skew(self.t), np.eye(3)])
        C: Array = J @ self.covariance[:6, :6] @ J.T
        return C

    def project(self, points: ArrayLike) -> Array:
        """Pixels (n, 2) of points (n, 3); nan behind the camera."""
        x = np.asarray(points, dtype=np.float64) @ self.R.T + self.t
        with np.errstate(divide="ignore", invalid="ignore"):
            pixels = self.camera.project(x)
        pixels[x[:, 2] <= 0.0] = np.nan
        return pixels

    def rotation_error(self, R: ArrayLike) -> float:
        """Angle to another rotation, degrees."""
        sine = float(np.linalg.norm(np.asarray(R, dtype=np.float64) - self.R)) / math.sqrt(8.0)
        return math.degrees(2.0 * math.asin(min(sine, 1.0)))

    def center_error(self, R: ArrayLike, t: ArrayLike) -> float:
        """Distance to the position of another pose, in the units of the points."""
        other = -np.asarray(R, dtype=np.float64).T @ np.asarray(t, dtype=np.float64)
        return float(np.linalg.norm(self.center - other))

    def plot(self, image: Any = None, **options: Any) -> Any:  # type: ignore[override]
        """Draw the image with pixels and reprojected points, and the camera among the points."""
        from .plot import plot_pose

        return plot_pose(self, image, **options)

    def _model_dict(self) -> dict[str, Any]:
        return {
            "R": plain(self.R), "t": plain(self.t), "rvec": plain(self.rvec), "quaternion": plain(self.quaternion),
            "center": plain(self.center), "camera": {"model": self.camera.model, "params": list(self.camera.params)},
        }  # fmt: skip

    def _lines(self) -> list[str]:
        if not np.isfinite(self.R).all():
            return []
        w, C = np.degrees(self.rvec), self.center
        lines = [
            f"rotation   {w[0]: .5f} {w[1]: .5f} {w[2]: .5f} degrees about x, y, z",
            f"t          {self.t[0]: .6g} {self.t[1]: .6g} {self.t[2]: .6g}",
            f"camera at  {C[0]: .6g} {C[1]: .6g} {C[2]: .6g}",
        ]
        if len(self.hessian) > 6:
            lines.append(f"focal      {self.focal:.6g} px")
        errors = self.standard_errors
        if np.isfinite(errors).all():
            turn, place = math.degrees(np.linalg.norm(errors[:3])), math.sqrt(np.trace(self.center_covariance))
            more = f", {errors[6]:.3g} px of focal length" if len(errors) > 6 else ""
            lines.append(f"std. error {turn:.4g} degrees of rotation, {place:.3g} of position{more}")
        kept = self.errors[self.inliers]
        if len(kept):
            lines.append(f"errors     {float(np.sqrt(np.mean(kept**2))):.3g} px rms of the inliers")
        return lines
