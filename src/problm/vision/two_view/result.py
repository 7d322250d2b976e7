r"""Results of the two-view functions: the model, its inliers, its covariance and its status."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...problems.compiled import CompiledProblem
from ...solver.regional import regional_covariance
from ...solver.result import Result

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


def norms(r: Array) -> Array:
    """(N,) norms of residuals (N, p)."""
    return np.abs(r[:, 0]) if r.shape[1] == 1 else np.sqrt(np.einsum("ij,ij->i", r, r))


def residual_norms(problem: CompiledProblem, theta: Array) -> Array:
    """(N,) norm of each match's residual."""
    return norms(problem.residuals(theta))


def error_norms(result: Result) -> Array:
    """(N,) norm of each match's residual at the solution."""
    return residual_norms(result.problem, result.x)


@dataclass(frozen=True, kw_only=True)
class TwoViewFit:
    """A model of two views: what E, F and H have in common."""

    inliers: Flags
    """(N,) whether each match agrees with the model; all of them for ``robust=False``."""
    threshold: float
    """Largest error of an inlier; nan if all matches were used."""
    status: str
    """``"ok"``, ``"degenerate"``, ``"no consensus"`` or ``"not converged"``."""
    message: str
    """The status in a sentence."""
    result: Result | None
    """The last solve: on all matches for ``robust=False``, else on the inliers. None if there was none."""
    hessian: Array = field(repr=False)
    """(d, d) Gauss-Newton matrix, summed over the inliers, at the returned model."""
    starts: int
    """Number of minimal samples or random starts of the search; 0 without a search."""
    chance: float
    """Natural logarithm of the expected number of chance models with as many inliers; below 0 is significant. nan for
    ``robust=False``."""
    seconds: float
    points: tuple[NDArray[Any], NDArray[Any]] = field(repr=False)
    """The matches (x1, x2) that the errors refer to; undistorted, if there was distortion."""
    measured: Array | None = field(default=None, repr=False)
    """The errors, if they are known already; else the last solve has them."""
    minimum: tuple[CompiledProblem, Array] | None = field(default=None, repr=False)
    """The problem that was solved last, in the parameters of the covariance, and its minimum; None: not known."""

    @cached_property
    def errors(self) -> Array:
        """(N,) error of each match in the units of the matches (pixels); computed on access."""
        if self.measured is not None:
            return self.measured
        assert self.result is not None
        return error_norms(self.result)

    def __getstate__(self) -> dict[str, Any]:
        """State for pickling: everything except the compiled problem of the last solve."""
        state = {**self.__dict__, "measured": self.errors, "covariance": self.covariance, "minimum": None}
        if self.result is not None:
            state["result"] = replace(self.result, problem=None)
        return state

    @property
    def success(self) -> bool:
        """Whether the status is ``"ok"``."""
        return self.status == "ok"

    @property
    def matrix(self) -> Array:
        """The (3, 3) matrix that relates points of the two images, in the units of the matches.

        Each kind of model has its own.
        """
        raise NotImplementedError

    @cached_property
    def covariance(self) -> Array:
        """(d, d) covariance of the tangent parameters at the model; nan where it is not known.

        It is estimated from the residuals as they are, over regions of image 1 (`problm.solver.regional`): it covers
        noise that changes over the image, errors that neighbouring matches share, and deviations from the model that
        change over the image. Errors that another model would imitate are not covered: a wrong focal length or
        principal point moves the pose and leaves no trace in the residuals.
        """
        unknown = np.full_like(self.hessian, np.nan)
        if self.minimum is None or self.result is None or not np.isfinite(self.hessian).all():
            return unknown
        problem, point = self.minimum
        n, p = problem.n, min(problem.components, 2)
        if n * p <= problem.dim:
            return unknown
        points = np.asarray(problem.data.columns[0][:, :2], dtype=np.float64)
        loss, extent = problem.kernel.loss, float(np.ptp(points, axis=0).max())
        # Exact matches have no errors to measure the curvature by.
        least = 1e-9 * extent if loss.is_linear else 1e-3 * loss.scale
        scale = max(math.sqrt(2.0 * self.result.cost / (n * p)), least)
        covariance = regional_covariance(problem, point, points, scale)
        return unknown if covariance is None else covariance * self.result.batch_factor

    def to_dict(self) -> dict[str, Any]:
        """Return lists, numbers and strings, ready for JSON; numbers that are not finite become None."""
        out: dict[str, Any] = {
            "status": self.status,
            "message": self.message,
            "matches": len(self.inliers),
            "inliers": int(self.inliers.sum()),
            "threshold": plain(self.threshold),
            "starts": self.starts,
            "seconds": self.seconds,
            **self._model_dict(),
            "covariance": plain(self.covariance),
            "inlier_flags": self.inliers.tolist(),
            "errors": plain(self.errors),
        }
        return out

    def _model_dict(self) -> dict[str, Any]:
        return {"matrix": plain(self.matrix)}

    def plot(self, image1: Any = None, image2: Any = None, **options: Any) -> Any:
        """Draw the two images with inliers, outliers and epipolar lines; return a Matplotlib figure."""
        from .plot import plot_matches

        return plot_matches(self, image1, image2, **options)

    def __str__(self) -> str:
        n, k = len(self.inliers), int(self.inliers.sum())
        lines = [f"{type(self).__name__}: {self.status}", self.message]
        cut = "" if math.isnan(self.threshold) else f" within {self.threshold:.4g}"
        lines.append(f"inliers    {k} of {n}{cut}")
        lines += self._lines()
        searched = f", {self.starts} starts" if self.starts else ""
        time = f"{1e3 * self.seconds:.1f} ms" if self.seconds < 1.0 else f"{self.seconds:.2f} s"
        lines.append(f"time       {time}{searched}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from ...report.page import listing

        return listing(str(self))

    def _lines(self) -> list[str]:
        rows = [" ".join(f"{v: .6e}" for v in row) for row in self.matrix]
        return [f"matrix     {rows[0]}", *(f"           {row}" for row in rows[1:])]


def plain(value: Any) -> Any:
    """Lists and floats for JSON, None for what is not finite."""
    if isinstance(value, np.ndarray):
        return [plain(v) for v in value.tolist()]
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


@dataclass(frozen=True, kw_only=True)
class RelativePose(TwoViewFit):
    """Relative pose of two calibrated cameras, ``x2 ~ R x1 + t``: returned by `problm.essential_matrix`.

    The covariance (5, 5) is that of the rotation vector w (radians, in the frame of camera 2: the rotation is
    ``exp([w]) R``) and of the two coordinates of t along ``problm.manifolds.tangent_basis(t)``.

    Examples
    --------
    >>> import problm
    >>> from problm.vision.two_view.simulate import two_views
    >>> views = two_views(300, inliers=0.8, seed=1)
    >>> pose = problm.essential_matrix(views.x1, views.x2, views.K)
    >>> pose.status, pose.R.shape, pose.covariance.shape, round(float(np.linalg.norm(pose.t)), 9)
    ('ok', (3, 3), (5, 5), 1.0)
    """

    R: Array
    """(3, 3) rotation; nan where there is no consensus."""
    t: Array
    """(3,) unit vector; nan where it is not determined."""
    E: Array
    """(3, 3) essential matrix [t] R."""
    K1: Array = field(repr=False)
    K2: Array = field(repr=False)

    @property
    def matrix(self) -> Array:
        """The fundamental matrix ``K2^-T E K1^-1``: relates the matches as they were given, x2' F x1 = 0."""
        F: Array = np.linalg.inv(self.K2).T @ self.E @ np.linalg.inv(self.K1)
        norm = np.linalg.norm(F)
        return F / norm if norm > 0 else F

    F = matrix

    @property
    def rotation_covariance(self) -> Array:
        """(3, 3) covariance of the rotation vector, rad^2."""
        return self.covariance[:3, :3]

    @property
    def translation_covariance(self) -> Array:
        """(3, 3) covariance of the unit vector t, of rank 2."""
        from ...manifolds import tangent_basis

        if not np.isfinite(self.t).all():
            return np.full((3, 3), np.nan)
        B = tangent_basis(self.t)
        C: Array = B @ self.covariance[3:, 3:] @ B.T
        return C

    def rotation_error(self, R: ArrayLike) -> float:
        """Angle to another rotation, degrees."""
        cosine = (np.trace(np.asarray(R, dtype=np.float64).T @ self.R) - 1.0) / 2.0
        sine = float(np.linalg.norm(np.asarray(R, dtype=np.float64) - self.R)) / math.sqrt(8.0)
        # From the sine of half the angle if it is small, where the cosine has lost half of the digits.
        return (
            math.degrees(2.0 * math.asin(min(sine, 1.0)))
            if cosine > 0.5
            else math.degrees(math.acos(max(cosine, -1.0)))
        )

    def translation_error(self, t: ArrayLike) -> float:
        """Angle to another direction of translation, degrees, with its sign: 180 is the opposite direction."""
        other = np.asarray(t, dtype=np.float64)
        other = other / np.linalg.norm(other)
        return math.degrees(
            2.0 * math.atan2(float(np.linalg.norm(self.t - other)), float(np.linalg.norm(self.t + other)))
        )

    def _model_dict(self) -> dict[str, Any]:
        return {"R": plain(self.R), "t": plain(self.t), "E": plain(self.E), "F": plain(self.F)}

    def _lines(self) -> list[str]:
        from ...manifolds import rotation_log

        if not np.isfinite(self.R).all():
            return []
        errors = np.degrees(np.sqrt(np.maximum(np.diag(self.covariance), 0.0)))
        w = np.degrees(rotation_log(self.R))
        lines = [f"rotation   {w[0]: .5f} {w[1]: .5f} {w[2]: .5f} degrees about x, y, z"]
        if np.isfinite(self.t).all():
            lines.append(f"direction  {self.t[0]: .6f} {self.t[1]: .6f} {self.t[2]: .6f}")
        if np.isfinite(errors).all():
            turn, shift = np.linalg.norm(errors[:3]), np.linalg.norm(errors[3:])
            lines.append(f"std. error {turn:.4f} degrees of rotation, {shift:.4f} of direction")
        return lines


@dataclass(frozen=True, kw_only=True)
class Fundamental(TwoViewFit):
    """Fundamental matrix, ``x2' F x1 = 0``: returned by `problm.fundamental_matrix`.

    The covariance (7, 7) is that of the tangent parameters of `problm.manifolds.FUNDAMENTAL` in coordinates of
    unit size.

    Examples
    --------
    >>> import problm
    >>> from problm.vision.two_view.simulate import two_views
    >>> views = two_views(300, inliers=0.8, seed=1)
    >>> fit = problm.fundamental_matrix(views.x1, views.x2)
    >>> fit.status, fit.F.shape, bool(abs(np.linalg.det(fit.F)) < 1e-12)
    ('ok', (3, 3), True)
    """

    F: Array
    """(3, 3), rank 2, unit Frobenius norm; nan where it is not determined."""
    tangents: Array = field(repr=False)
    """(9, 7) derivatives of the entries of F, row by row, with respect to the tangent parameters."""

    @cached_property
    def F_covariance(self) -> Array:
        """(9, 9) covariance of the entries of F, row by row; of rank 7."""
        C: Array = self.tangents @ self.covariance @ self.tangents.T
        return C

    @property
    def matrix(self) -> Array:
        return self.F

    def _model_dict(self) -> dict[str, Any]:
        return {"F": plain(self.F)}


@dataclass(frozen=True, kw_only=True)
class Homography(TwoViewFit):
    """Homography, ``x2 ~ H x1``: returned by `problm.homography`.

    The covariance (8, 8) is that of the tangent parameters of the unit sphere of 9 dimensions, in coordinates
    of unit size.

    Examples
    --------
    >>> import problm
    >>> from problm.vision.two_view.simulate import two_views
    >>> views = two_views(300, inliers=0.8, seed=1, plane=True)
    >>> fit = problm.homography(views.x1, views.x2)
    >>> fit.status, fit.H.shape, float(fit.H[2, 2])
    ('ok', (3, 3), 1.0)
    """

    H: Array
    """(3, 3), last entry 1 (unit norm where that is 0); nan where there is no consensus."""
    tangents: Array = field(repr=False)
    """(9, 8) derivatives of the entries of H, row by row, with respect to the tangent parameters."""

    @cached_property
    def H_covariance(self) -> Array:
        """(9, 9) covariance of the entries of H, row by row; of rank 8."""
        C: Array = self.tangents @ self.covariance @ self.tangents.T
        return C

    @property
    def matrix(self) -> Array:
        return self.H

    def _model_dict(self) -> dict[str, Any]:
        return {"H": plain(self.H)}

    def transfer(self, x: ArrayLike) -> Array:
        """Points (n, 2) of image 1 in image 2."""
        points = np.asarray(x, dtype=np.float64)
        y = points @ self.H[:, :2].T + self.H[:, 2]
        return y[:, :2] / y[:, 2:]
