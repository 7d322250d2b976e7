"""Bundle adjustment by variable projection: points eliminated, cameras estimated, batches drawn over points.

`bundle_adjustment` solves the full perspective problem (pinhole with distortion, missing observations, robust losses),
`affine_bundle_adjustment` the weak-perspective one of the paper's supplement. Both build a problem in the cameras alone
for the solver: with C cameras there are about 6 C to 9 C parameters for any number of points, and each point
is one residual block. With few cameras and very many points a small random sample of the points suffices to move the
cameras; with many cameras and few points a solve is plain Levenberg-Marquardt with variable projection, which needs far
fewer iterations than one that moves cameras and points jointly. The matrix of many cameras is kept in blocks, one for
each pair of images that see a point in common (`problm.linalg.blocks`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...losses import Loss, as_loss
from .affine import AffineBundle, affine_bundle_adjustment
from .camera_models import GROUPS, PLACES
from .damping import camera_options
from .reconstruction import Reconstruction

if TYPE_CHECKING:
    from ...solver.result import Result

Array = NDArray[np.float64]

__all__ = ["AffineBundle", "BundleResult", "affine_bundle_adjustment", "bundle_adjustment"]


@dataclass(frozen=True, eq=False)
class BundleResult:
    """An adjusted reconstruction and the result of the solve."""

    model: Reconstruction
    """The adjusted cameras and points."""
    cost: float
    """Half the sum of (robustified) squared errors over the observations, pixels squared."""
    start_cost: float
    """Cost at the start, with the given points."""
    rmse: float
    """Root mean square distance between projection and observation, in pixels."""
    behind: NDArray[np.bool_]
    """(P,) points that lie behind a camera that observes them: the errors alone do not prevent it, and a point of
    almost parallel rays may move beyond infinity. Treat them as points at infinity, or drop them."""
    result: Result
    """Result of the solver: status, message, history; ``x`` is theta of the problem."""
    problem: Any = field(repr=False)

    @property
    def rotations(self) -> Array:
        """(C, 3, 3), world to camera."""
        return self.model.rotations

    @property
    def translations(self) -> Array:
        """(C, 3)."""
        return self.model.translations

    @property
    def points(self) -> Array:
        """(P, 3)."""
        return self.model.points

    @property
    def covariance(self) -> Array:
        """(d, d) covariance of the camera parameters with the points free, in the free-network gauge.

        Coordinates are those of the tangent space: for each free image in turn 3 rotation and 3 translation components
        in its own frame and the free intrinsics that only this image has, then those that images share. Uncertainty
        along the gauge freedoms (position, orientation and scale of the world) is excluded: the data do not determine
        it.
        """
        inverse = self.result.unscaled_covariance * (2.0 * self.cost / self.problem.degrees_of_freedom)
        G = self.problem.gauge(self.result.x)
        if not G.shape[1]:
            return inverse
        weighted = self.problem.metric(self.result.hessian)[:, None] * G
        P = np.eye(len(G)) - G @ np.linalg.solve(G.T @ weighted, weighted.T)
        return P @ inverse @ P.T

    @property
    def pose_covariances(self) -> Array:
        """(C, 6, 6) covariance of every image's pose: 3 rotation and 3 translation components in its own frame.

        Blocks of `covariance`, which is not made for this: with many cameras only the entries of the inverse that are
        needed are computed. Zero for fixed images and those without observations.
        """
        problem, variance = self.problem, 2.0 * self.cost / self.problem.degrees_of_freedom
        out = np.zeros((problem.images, 6, 6))
        if problem.pattern is None:
            covariance = self.covariance
            for i in problem.free_images:
                mine = problem.columns(i)[:6]
                out[i] = covariance[np.ix_(mine, mine)]
            return out
        from ...linalg.block_inverse import diagonal_blocks

        hessian: Any = self.result.hessian
        blocks = diagonal_blocks(hessian)
        for i in problem.free_images:
            out[i] = variance * blocks[problem.node(i)][:6, :6]
        return out

    def __str__(self) -> str:
        r = self.result
        return (
            f"{self.model!r}\n{r.message}\n"
            f"cost {self.start_cost:.6e} -> {self.cost:.6e}, rmse {self.rmse:.4f} pixels, "
            f"{int(self.behind.sum())} points behind a camera; {r.nit} iterations, {r.seconds:.2f} s"
        )

    def _repr_html_(self) -> str:
        from ...report.page import listing

        return listing(str(self))


def bundle_adjustment(
    model: Reconstruction,
    *,
    intrinsics: str | Sequence[str] = "free",
    fixed_images: Collection[int] = (),
    fixed_cameras: Collection[int] = (),
    loss: str | Loss = "linear",
    f_scale: float = 1.0,
    positions: ArrayLike | None = None,
    position_sigma: ArrayLike = 1.0,
    threads: int | None = None,
    rng: np.random.Generator | int | None = 0,
    **options: Any,
) -> BundleResult:
    """Adjust cameras and points to the observations, by variable projection.

    Parameters
    ----------
    model
        A reconstruction from `problm.read_colmap`, `problm.read_bal` or `Reconstruction.from_arrays`. Points need not
        be visible in all images, and images may share a camera.
    intrinsics
        ``"free"`` (focal lengths and distortion, the usual choice), ``"fixed"``, or a list of the groups to
        estimate: ``focal``, ``distortion``, ``principal_point``.
    fixed_images
        Numbers of images whose pose is fixed. None is needed to fix the gauge: see `problm.vision.bundle.problem`.
    fixed_cameras
        Numbers of cameras, in the order of ``model.intrinsics``, whose intrinsics are known and stay as they are.
    loss, f_scale
        Robust loss on each observation's distance in pixels, and its scale in pixels.
    positions, position_sigma
        Known positions of the images, (C, 3), NaN where there is none, and their standard errors: a number, (C,) or (C,
        3), both in the units of the world. Squared errors in units of sigma are added to those in pixels, whose
        standard error is thereby taken as one. They are part of the solver's cost, not of `BundleResult.cost`. Without
        fixed images the model is first moved to them as a whole; two positions are enough for the scale.
    threads
        Number of threads; by default all cores that the process may use. Results do not depend on it.
    rng
        Random seed for the order of the points.
    **options
        Options of the solver: ``acceptance``, ``max_iter``, ``max_time``, ``ftol``, ``callback``, ...

    Returns
    -------
    BundleResult

    Examples
    --------
    Five cameras on an arc around 60 points, a start that is off by a few degrees:

    >>> from scipy.spatial.transform import Rotation
    >>> from problm.vision.bundle.camera_models import Intrinsics
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (60, 3))
    >>> R = Rotation.from_rotvec(np.outer(np.linspace(-0.5, 0.5, 5), [0, 1, 0])).as_matrix()
    >>> t = np.tile([0.0, 0.0, 6.0], (5, 1))
    >>> camera = Intrinsics("SIMPLE_RADIAL", (800.0, 0.0, 0.0, -0.05))
    >>> seen = np.stack([camera.project(X @ R[i].T + t[i]) for i in range(5)])
    >>> seen[0, :10] = np.nan                                        # not seen by the first camera
    >>> off = Rotation.from_rotvec(rng.normal(0, 0.03, (5, 3))).as_matrix() @ R
    >>> start = Reconstruction.from_arrays(off, t, camera, X + rng.normal(0, 0.05, X.shape), seen)
    >>> fit = bundle_adjustment(start, intrinsics="fixed")
    >>> fit.result.success, bool(fit.rmse < 1e-5)
    (True, True)
    """
    from ...kernels.kernel import available_threads
    from ...solver.loop import solve
    from .damping import LocalDamping
    from .priors import PositionPriors
    from .problem import BundleProblem, start_point

    if not isinstance(model, Reconstruction):
        raise TypeError(
            f"model must be a Reconstruction, got {type(model).__name__}: make one with problm.read_colmap, "
            "problm.read_bal or Reconstruction.from_arrays"
        )
    images = len(model.rotations)
    _refuse_numbers("images", fixed_images, images)
    _refuse_numbers("cameras", fixed_cameras, len(model.intrinsics))
    the_loss = as_loss(loss, f_scale)
    priors = None if positions is None else PositionPriors(positions, position_sigma, images)
    if priors is not None and not fixed_images:
        model = priors.aligned(model)
    problem = BundleProblem(
        model,
        free=_groups(intrinsics),
        fixed_images=fixed_images,
        fixed_cameras=fixed_cameras,
        loss=the_loss,
        threads=threads or available_threads(),
        rng=rng,
        priors=priors,
        sparse=False if _in_batches(options) else None,
    )
    if problem.pattern is not None and options.get("checkpoint") is not None:
        raise ValueError(
            f"checkpoint={options['checkpoint']!r}: the matrix of {problem.dim} camera parameters is kept in blocks, "
            "which no checkpoint holds; instead pass max_time= and adjust the model that comes back"
        )
    local = None if problem.pattern is None else LocalDamping(problem=problem)
    result = solve(problem, start_point(model), **camera_options(options, damping=local))
    adjusted = _adjusted(model, problem, result.x)
    used = np.repeat(model.track_lengths >= 2, model.track_lengths)
    squares = (adjusted.residuals()[used] ** 2).sum(axis=1)
    point = np.repeat(np.arange(len(model.points)), model.track_lengths)
    behind = np.zeros(len(model.points), dtype=bool)
    behind[point[used & (adjusted.depths() <= 0.0)]] = True
    return BundleResult(
        adjusted,
        float(the_loss.cost(squares).sum()),
        float(the_loss.cost((model.residuals()[used] ** 2).sum(axis=1)).sum()),
        float(np.sqrt(squares.mean())),
        behind,
        result,
        problem,
    )


def _refuse_numbers(kind: str, fixed: Collection[int], count: int) -> None:
    """Raise unless these are numbers of things of which there are so many."""
    if isinstance(fixed, str) or not isinstance(fixed, Collection):
        raise TypeError(f"fixed_{kind} must be a collection of numbers of {kind}, such as [0], got {fixed!r}")
    bad = [i for i in fixed if not (isinstance(i, (int, np.integer)) and 0 <= i < count)]
    if bad:
        raise ValueError(f"fixed_{kind} must be numbers of {kind} from 0 to {count - 1}, got {bad[0]!r}")


def _in_batches(options: dict[str, Any]) -> bool:
    """Whether the options ask for batches of points, which need a dense matrix of the cameras."""
    from ...solver.policies import as_acceptance

    tenfold = as_acceptance(options.get("acceptance", "holdout")).damping == "tenfold"
    return tenfold or any(options.get(name) is not None for name in ("initial_batch", "max_batch"))


def _groups(intrinsics: str | Sequence[str]) -> tuple[str, ...]:
    if intrinsics == "free":
        return ("focal", "distortion")
    if intrinsics == "fixed":
        return ()
    groups = (intrinsics,) if isinstance(intrinsics, str) else tuple(intrinsics)
    for name in groups:
        if name not in GROUPS:
            from ...support.suggest import suggest

            choices = ("free", "fixed", *GROUPS)
            raise ValueError(
                f"intrinsics={intrinsics!r}: {name!r} is not known{suggest(name, choices)}; "
                f"choose 'free', 'fixed' or a list of {', '.join(GROUPS)}"
            )
    return groups


def _adjusted(model: Reconstruction, problem: Any, theta: Array) -> Reconstruction:
    images = len(model.rotations)
    poses = theta[: 12 * images].reshape(images, 12)
    places = theta[12 * images :].reshape(-1, PLACES)
    X = problem.points(theta)
    # A point at infinity is put far away: 1e12 units.
    w = np.copysign(np.maximum(np.abs(X[:, 3]), 1e-12), X[:, 3])
    points = model.points.copy()
    points[problem.kept] = X[:, :3] / w[:, None]
    return replace(
        model,
        rotations=poses[:, :9].reshape(images, 3, 3).copy(),
        translations=poses[:, 9:].copy(),
        intrinsics=tuple(c.with_places(p) for c, p in zip(model.intrinsics, places, strict=True)),
        points=points,
    )
