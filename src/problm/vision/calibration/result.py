r"""The result of `problm.calibrate_camera`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...manifolds import rotation_log
from ...report.plots import new_figure, save_figure
from ...solver.result import Result
from ..bundle.camera_models import MODELS, Intrinsics

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration:
    """A calibrated camera: returned by `problm.calibrate_camera`.

    Examples
    --------
    >>> import problm
    >>> from problm.vision.calibration.simulate import board_views
    >>> views = board_views(8, seed=1)
    >>> found = problm.calibrate_camera(views.object_points, views.image_points, (640, 480))
    >>> found.status, found.K.shape, found.rvecs.shape, bool(found.rms < 0.5)
    ('ok', (3, 3), (8, 3), True)
    """

    camera: Intrinsics
    """Model and parameters, in pixels."""
    rotations: Array
    """(V, 3, 3) from the board to the camera, one per view."""
    translations: Array
    """(V, 3)."""
    status: str
    """``"ok"``, ``"degenerate"`` (the views do not determine the camera) or ``"not converged"``."""
    message: str
    cost: float
    """Half the sum of (robustified) squared errors, pixels squared."""
    view_errors: Array
    """(V,) root mean square error of each view, pixels."""
    residuals: list[Array] = field(repr=False)
    """Projections minus pixels, (m, 2) per view."""
    points: list[Array] = field(repr=False)
    """Pixels, (m, 2) per view."""
    free: NDArray[np.int64] = field(repr=False)
    """Numbers of the parameters that were estimated."""
    result: Result = field(repr=False)
    seconds: float

    @property
    def success(self) -> bool:
        """Whether the status is ``"ok"``."""
        return self.status == "ok"

    @property
    def rms(self) -> float:
        """Root mean square distance between projection and pixel, over all points; OpenCV's first return value."""
        return math.sqrt(float(np.mean(np.concatenate([(r**2).sum(axis=1) for r in self.residuals]))))

    @property
    def K(self) -> Array:
        """(3, 3) camera matrix."""
        fx, fy, cx, cy = self.camera.places[:4]
        return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])

    @property
    def distortion(self) -> Array:
        """Coefficients of the distortion in the order of the model, which is OpenCV's."""
        return self.camera.places[4 : 4 + len(MODELS[self.camera.model].distortion.names)]

    @property
    def rvecs(self) -> Array:
        """(V, 3) rotation vectors."""
        return np.array([rotation_log(R) for R in self.rotations]).reshape(-1, 3)

    @cached_property
    def covariance(self) -> Array:
        """(p, p) covariance of the model's parameters, with the poses estimated as well; zero for fixed ones."""
        names, q = len(MODELS[self.camera.model].parameters), len(self.free)
        full = np.zeros((names, names))
        problem = self.result.problem
        if self.status == "degenerate" or problem is None:
            full[:] = np.nan
            return full
        C = problem.covariance(self.result.x) if problem.robust else self.result.covariance
        full[np.ix_(self.free, self.free)] = C[:q, :q]
        return full

    @property
    def standard_errors(self) -> dict[str, float]:
        """Standard error of every parameter of the model."""
        errors = np.sqrt(np.maximum(np.diag(self.covariance), 0.0)).tolist()
        return dict(zip(MODELS[self.camera.model].parameters, errors, strict=True))

    @property
    def parameters(self) -> dict[str, float]:
        """Parameters of the model by name."""
        return dict(zip(MODELS[self.camera.model].parameters, self.camera.params, strict=True))

    def undistort_points(self, pixels: ArrayLike) -> Array:
        """Where a pinhole with the same K would see pixels (n, 2)."""
        ideal: Array = self.camera.normalise(np.asarray(pixels, dtype=np.float64)) @ self.K[:2, :2].T + self.K[:2, 2]
        return ideal

    def to_dict(self) -> dict[str, Any]:
        """Numbers and strings, ready for JSON."""
        return {
            "status": self.status, "message": self.message, "model": self.camera.model,
            "width": self.camera.width, "height": self.camera.height, "parameters": self.parameters,
            "standard_errors": self.standard_errors, "rms": self.rms, "view_errors": self.view_errors.tolist(),
            "rvecs": self.rvecs.tolist(), "tvecs": self.translations.tolist(), "seconds": self.seconds,
        }  # fmt: skip

    def __str__(self) -> str:
        errors = self.standard_errors
        lines = [f"Calibration: {self.status}", self.message, f"model      {self.camera.model}"]
        for name, value in self.parameters.items():
            spread = f" +- {errors[name]:.2g}" if errors[name] > 0.0 else " (fixed)" if errors[name] == 0.0 else ""
            lines.append(f"{name:<10} {value: .7g}{spread}")
        points = sum(map(len, self.residuals))
        lines.append(f"errors     {self.rms:.4g} px rms over {points} points of {len(self.rotations)} views")
        worst = int(np.argmax(self.view_errors))
        lines.append(f"worst view {worst}: {self.view_errors[worst]:.4g} px rms")
        lines.append(f"time       {self.seconds:.2f} s, {self.result.nit} iterations")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from ...report.page import listing

        return listing(str(self))

    def plot(self, path: Any = None) -> Any:
        """Draw errors over the image and per view; return a Matplotlib figure (extra ``plot``)."""
        figure, (left, right) = new_figure(1, 2, figsize=(12.0, 5.0))
        x, r = np.concatenate(self.points), np.concatenate(self.residuals)
        left.quiver(*x.T, *r.T, angles="xy", color="#1b6fb5", width=0.002)
        left.set_xlim(0, self.camera.width or None)
        left.set_ylim(self.camera.height or None, 0)
        left.set_title("errors over the image (enlarged)")
        right.bar(np.arange(len(self.view_errors)), self.view_errors, color="#1b6fb5")
        right.axhline(self.rms, color="#222222", lw=1.0)
        right.set_xlabel("view")
        right.set_ylabel("rms error, px")
        if path is not None:
            from pathlib import Path

            save_figure(figure, Path(path))
        return figure
