"""What `problm.align_rgbd` returns."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...manifolds import rotation_log
from ...report.plots import new_figure, save_figure
from ...report.serialize import plain
from ...solver.information import inverse_root
from ...solver.regional import regional_covariance
from ...solver.result import Result
from .problem import RgbdProblem
from .trust import pixel_motion

Array = NDArray[np.float64]
_PART_OF_A_CELL = 0.1
"""Movement of pixels, to both sides, over which the curvature of the cost is measured; it has kinks where pixels cross
into the next cell."""


@dataclass(frozen=True, kw_only=True)
class RgbdMotion:
    """Motion from the frame of camera 1 to that of camera 2, ``X2 = R X1 + t``.

    The covariance (6, 6) is that of the rotation vector w (radians, in the frame of camera 2: the rotation is
    ``exp([w]) R``) and of t. It is a sandwich over regions of image 1, which covers noise that blur and interpolation
    correlate, and errors of the depth map that change within regions of about a sixth of the image's side.
    NaN if the motion is not determined.

    Examples
    --------
    >>> import problm
    >>> from problm.vision.rgbd.simulate import two_frames
    >>> frames = two_frames(angle=1.0, shift=0.02, seed=1)
    >>> found = problm.align_rgbd(frames.image1, frames.depth1, frames.image2, frames.K)
    >>> found.status, found.R.shape, bool(found.translation_error(frames.t) < 0.005)
    ('ok', (3, 3), True)
    """

    R: Array
    """(3, 3) rotation."""
    t: Array
    """(3,) translation, in the units of the depth map."""
    gain: float
    """Gain of image 2: ``gain I2 + bias`` fits image 1."""
    bias: float
    noise: float
    """Standard deviation of the residuals of light, in units of the images' values (0 to 1 for integers), after the
    blur."""
    depth_noise: float
    """The same of depth, in the units of the depth map; NaN without ``depth2``."""
    overlap: float
    """Share of the pixels of image 1 with a depth that are seen in image 2."""
    correlation: float
    """Correlation of the images at inliers."""
    inliers: NDArray[np.bool_] = field(repr=False)
    """(rows, columns) of image 1: pixels that agree with view 2."""
    status: str
    """``"ok"``, ``"degenerate"``, ``"no fit"`` or ``"not converged"``."""
    message: str
    undetermined: Array
    """(k, 6) directions of (w, t) that the views do not determine: radians and median depths."""
    result: Result = field(repr=False)
    """The last solve, over all pixels; translation in units of ``unit``."""
    problem: RgbdProblem = field(repr=False)
    """The problem of the last solve."""
    unit: float = field(repr=False)
    """Median depth."""
    seconds: float

    @property
    def success(self) -> bool:
        return self.status == "ok"

    @property
    def rvec(self) -> Array:
        """(3,) rotation vector, radians."""
        return rotation_log(self.R)

    @property
    def matrix(self) -> Array:
        """(4, 4) homogeneous matrix of the motion."""
        M = np.eye(4)
        M[:3, :3], M[:3, 3] = self.R, self.t
        return M

    @property
    def inlier_share(self) -> float:
        """Share of the pixels with a depth that agree with view 2."""
        return float(self.inliers.sum()) / max(self.problem.n, 1)

    @cached_property
    def covariance(self) -> Array:
        """(6, 6) covariance of w and t (class docstring); computed on first access."""
        unknown = np.full((6, 6), np.nan)
        if self.status in ("degenerate", "no fit"):
            return unknown
        problem, theta = self.problem, self.result.x
        root, regular = inverse_root(self.result.hessian)
        if not regular:
            return unknown
        motion = float(np.abs(pixel_motion(problem, theta, root)).max(initial=0.0))
        found = regional_covariance(problem, theta, problem.views.pixels, _PART_OF_A_CELL / max(motion, 1e-300))
        if found is None:
            return unknown
        scale = np.repeat([1.0, self.unit], 3)
        return np.asarray(found[:6, :6] * np.outer(scale, scale) * self.result.batch_factor)

    @property
    def standard_errors(self) -> Array:
        """(6,) square roots of the diagonal of the covariance."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    def warp(self) -> NDArray[np.float32]:
        """(rows, columns) image 2 as camera 1 sees it, with gain and bias; NaN where it is unknown."""
        values, weights, _ = self.problem.look_up(self.result.x)
        views = self.problem.views
        out = np.full(views.depth1.size, np.nan, dtype=np.float32)
        out[views.rows] = np.where(weights[0] > 0.5, values[0], np.float32(np.nan))
        return out.reshape(views.depth1.shape)

    def rotation_error(self, R: ArrayLike) -> float:
        """Angle to another rotation, degrees."""
        return math.degrees(float(np.linalg.norm(rotation_log(self.R @ np.asarray(R, dtype=np.float64).T))))

    def translation_error(self, t: ArrayLike) -> float:
        """Distance to another translation."""
        return float(np.linalg.norm(self.t - np.asarray(t, dtype=np.float64)))

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw image 1, image 2 as camera 1 sees it, their difference and the inliers; return a Matplotlib figure."""
        first, second = self.problem.views.image1.values(), self.warp()
        figure, panels = new_figure(2, 2, figsize=(10.0, 7.5))
        axes = panels.ravel()
        low, high = float(first.min()), float(first.max())
        wide = 5.0 * self.noise
        axes[0].imshow(first, cmap="gray", vmin=low, vmax=high)
        axes[1].imshow(second, cmap="gray", vmin=low, vmax=high)
        axes[2].imshow(second - first, cmap="RdBu", vmin=-wide, vmax=wide)
        axes[3].imshow(self.inliers, cmap="gray", vmin=0, vmax=1)
        for ax, title in zip(axes, ("image 1", "image 2 as camera 1 sees it", "difference", "inliers"), strict=True):
            ax.set_title(title)
            ax.set_axis_off()
        if path is not None:
            save_figure(figure, Path(path))
        return figure

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the images as numbers, text and lists that JSON can hold."""
        names = (
            "status", "message", "success", "R", "t", "rvec", "matrix", "gain", "bias", "noise", "depth_noise",
            "overlap", "inlier_share", "correlation", "covariance", "undetermined", "seconds",
        )  # fmt: skip
        return {name: plain(getattr(self, name)) for name in names} | {"iterations": self.result.nit}

    def __str__(self) -> str:
        w = np.degrees(self.rvec)
        lines = [f"RGB-D motion: {self.status}", self.message]
        lines.append(f"rotation   {w[0]: .5f} {w[1]: .5f} {w[2]: .5f} degrees about x, y, z")
        lines.append(f"t          {self.t[0]: .6g} {self.t[1]: .6g} {self.t[2]: .6g}")
        errors = self.standard_errors
        if np.isfinite(errors).all():
            turn = np.degrees(np.linalg.norm(errors[:3]))
            lines.append(f"std. error {turn:.4g} degrees of rotation, {np.linalg.norm(errors[3:]):.4g} of t")
        lines.append(f"light      gain {self.gain:.4f}, bias {self.bias:.4f}, noise {self.noise:.4g}")
        if math.isfinite(self.depth_noise):
            lines.append(f"depth      noise {self.depth_noise:.4g}")
        lines.append(f"overlap    {100 * self.overlap:.0f} %, of which {self._agreeing:.0f} % agree")
        time = f"{1e3 * self.seconds:.1f} ms" if self.seconds < 1.0 else f"{self.seconds:.2f} s"
        return "\n".join([*lines, f"time       {time}"])

    @property
    def _agreeing(self) -> float:
        return 100.0 * self.inlier_share / max(self.overlap, 1e-12)

    def _repr_html_(self) -> str:
        from ...report.page import listing

        return listing(str(self))
