r"""Affine bundle adjustment: the weak-perspective model of the paper's supplement, by variable projection.

A camera sees the first two coordinates of ``R_i X_j + t_i`` divided by a depth that is fixed for each point.
For given cameras the points follow by linear least squares, in closed form, so they are eliminated: a residual
block is one point's track in all C views (2C residuals, of which 2C - 3 are left), and the Jacobian is the
exact one of the reduced functional (`problm.vision.bundle.affine_kernels`).

*Gauge.* The model does not change when the world is rotated and shifted (the scale is fixed by the depths). Rotation:
the first camera's R stays. Shift: the third translation of a camera never enters, and ``T + A c`` gives the same
residuals as T for every c. So T is kept in the range of the projector P: a step is ``T + N tau`` with N (2C, 2C - 3) an
orthonormal basis of that range, followed by the projection onto the new one, which changes no residual. That leaves 3
(C - 1) + 2C - 3 = 5C - 6 parameters, none of them redundant, for any geometry of the cameras. At the end the world is
shifted back to the origin of the start.

Two views leave one family of motions undetermined (Koenderink and van Doorn's affine structure from motion), so three
are required. The mirror image of the scene about the image plane has the same cost (Necker's reversal): the start
decides.

*Moments.* With the squared loss the sums over all blocks at one point give those at every other point. All tracks are
read only where residuals cancel so much that digits are lost (`problm.vision.bundle.affine_kernels.carry`): two or
three times in a solve of any number of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...kernels.kernel import CHUNK, available_threads, describe, loadable, square
from ...linalg.cholesky_compiled import CompiledCholesky
from ...linalg.normal import Normal
from ...losses import USER_CODE, Loss, as_loss
from ...problems.sampled import SampledProblem, SummedProblem
from ...sampling.order import as_generator
from ...solver.result import Result
from ...support.reduction import sum_chunks
from .affine_kernels import assemble, carry, costs_chunk, frame, linearize_chunk, moment_count, move, solution_chunk
from .affine_start import check_positive, factorise, fixed_depths, given_cameras
from .damping import camera_options

Array = NDArray[np.float64]
_NO_FLOAT = np.empty(0)
FIRST_DAMPING = 1.0
"""First lambda. Scenes of little depth rotate and flatten together, along a valley that Gauss-Newton steps leave.
Measured against the usual 1e-3, 120 starts each: with cameras off by 0.1 rad the right minimum of three views is found
95 and 79 times, of five views 114 and 108 times; by 0.05 rad 99 and 93, 120 and 118 times, in fewer iterations."""

_MOST_LOSS = 100.0
"""Largest amplification of rounding at which moments of another point replace a pass: two digits of sixteen."""
_OVERHEAD, _PER_ROW, _PER_PRODUCT = 8e5, 5.0, 0.06
"""Nanoseconds that batches cost besides full passes, and of a pass for each track and each of its k x k products."""


@dataclass(frozen=True, eq=False)
class AffineBundle:
    """Cameras and points of a weak-perspective reconstruction."""

    rotations: Array
    """(C, 3, 3), world to camera; the first is that of the start."""
    translations: Array
    """(C, 3); the third component, which the model does not see, is that of the start."""
    points: Array
    """(P, 3)."""
    depths: Array
    """(P,) the fixed depths."""
    cost: float
    """Half the sum of (robustified) squared residuals, in the observations' units squared."""
    rmse: float
    """Root mean square distance between model and observation, in the units of the observations."""
    result: Result
    """Result of the solver: status, message, history; ``x`` is theta of the problem."""
    problem: Any = field(repr=False)

    def __str__(self) -> str:
        r = self.result
        return (
            f"affine bundle: {len(self.rotations)} views, {len(self.points)} points\n{r.message}\n"
            f"cost {self.cost:.6e}, rmse {self.rmse:.4g}; {r.nit} iterations, {r.seconds:.2f} s"
        )


class AffineProblem(SummedProblem, SampledProblem):
    """Tracks seen in all C views as residual blocks, rotations and translations as parameters.

    A point theta, (11 C,), holds the rotations row by row and then the first two translations of each camera.

    Parameters
    ----------
    observations
        (C, P, 2); read in place if float64 or float32.
    depths
        (P,), positive.
    loss
        Robust loss on the norm of a track's 2C residuals. It is increasing, so it does not change the optimal point,
        and elimination stays exact.
    exact
        Whether to use the exact Jacobian of the reduced functional; if not, Kaufman's approximation.
    moments
        Whether moments of an earlier pass may replace one over all tracks (squared loss only).
    threads, rng
        Number of threads; random seed for the order of the points.
    """

    def __init__(
        self,
        observations: NDArray[Any],
        depths: Array,
        *,
        loss: Loss | None = None,
        exact: bool = True,
        moments: bool = True,
        threads: int = 1,
        rng: np.random.Generator | int | None = 0,
    ) -> None:
        self.views = len(observations)
        self.loss = Loss.named("linear") if loss is None else loss
        if self.loss.code == USER_CODE:
            raise TypeError(f"loss={self.loss.name!r}: affine bundle adjustment accepts only built-in losses")
        self._exact, self._threads = int(exact), threads
        # Views as (P, 2) columns: np.take would first copy a whole strided column to draw a few rows of it.
        views = [np.ascontiguousarray(loadable(view)) for view in observations]
        super().__init__([*views, loadable(depths)], 5 * self.views - 6, rng)
        self.components = 2 * self.views - 3  # residuals of a block minus the three coordinates of its point
        self.cost_bound = self.loss.bound
        k = 2 * self.views + 4
        # For fewer tracks a pass is cheaper than to carry moments.
        self._carries = moments and self.loss.is_linear and self.n > 8 * k
        # With moments, batches save one pass of two at best.
        self.few = self.n if self._carries else int(_OVERHEAD / (_PER_ROW + _PER_PRODUCT * k * k))
        self._known: tuple[Array, Array] | None = None  # a point and its moments over all tracks
        self._everything: NDArray[np.int64] | None = None
        # Kept for two points: the current one and the latest trial.
        self._frames: tuple[tuple[Any, Any], tuple[Any, Any]] = ((None, None), (None, None))

    fused = True
    """The moments take a quarter of the time of a pass."""

    def retract(self, theta: Array, delta: Array) -> Array:
        here, new = self._frame(theta), self._empty_frame()
        moved: Array = move(theta, np.ascontiguousarray(delta), here[2], *new)
        self._frames = (theta, here), (moved, self._whole_frame(moved, new))
        return moved

    def sees_depth(self, theta: Array) -> bool:
        """Whether the views look in different directions: A has rank 3."""
        inverse = self._frame(theta)[1]
        return float(np.abs(inverse).max()) < 1e6

    def linearize(self, theta: Array, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal:
        n, d = hi - lo, self.dim
        Q, S, N, R, _ = self._frame(theta)
        whole = n == self.n and not outer and costs is None
        moments, products = (self._carried(theta) if whole else None), _NO_FLOAT
        if moments is None:
            moments, products = self._moments(theta, lo, hi, outer, costs)
            if whole and self._carries:
                self._known = theta, moments
        gradient, hessian = np.empty(d), np.empty((d, d))
        assemble(moments, R, Q, S, N, self._exact, gradient, hessian)
        return Normal(
            n, moments.item(0), gradient, hessian, square(products, d) if outer else None, None, CompiledCholesky
        )

    def cost(self, theta: Array) -> float:
        moments = self._carried(theta)
        return super().cost(theta) if moments is None else moments.item(0)

    def reads(self, theta: Array) -> bool:
        return self._carried(theta) is None

    def _carried(self, theta: Array) -> Array | None:
        """Moments over all tracks from those of the last pass; None if a pass is needed."""
        if self._known is None or self.journal is not None:
            return None
        point, known = self._known
        if point is theta:
            return known
        moments = np.empty(len(known))
        Q, S, *_ = self._frame(theta)
        return moments if carry(known, point, theta, Q, S, moments) <= _MOST_LOSS else None

    def _moments(self, theta: Array, lo: int, hi: int, outer: bool, costs: Array | None) -> tuple[Array, Array]:
        """Moments of the tracks at [lo, hi), and the products of their gradients, if requested."""
        (columns, first, _held), d = self._columns(lo, hi), self.dim
        Q, S, N, R, T = self._frame(theta)
        count = moment_count(self.views)

        def chunk(a: int, b: int) -> tuple[Array, ...]:
            moments = np.zeros(count)
            products = np.zeros(d * (d + 1) // 2 if outer else 0)
            part = _NO_FLOAT if costs is None else costs[a:b]
            args = (columns, first + a, first + b, Q, S, T, self.loss.code, self.loss.scale, R, N, int(outer), part)
            linearize_chunk(*args, moments, products)
            return moments, products

        moments, products = sum_chunks(chunk, hi - lo, CHUNK, self._threads)
        return moments, products

    def residuals(self, theta: Array) -> Array:
        """Residuals (n, 2C) of all tracks at their optimal points."""
        residuals = np.empty((self.n, 2 * self.views))
        self.solution(theta, residuals)
        return residuals

    def points(self, theta: Array) -> Array:
        """The eliminated points (n, 3)."""
        return self.solution(theta)[0]

    def solution(self, theta: Array, residuals: Array | None = None) -> tuple[Array, Array]:
        """Points (n, 3) and squared norms (n,) of the residuals of all tracks; residuals are written if an array is
        given."""
        points, squares = np.empty((self.n, 3)), np.empty(self.n)
        Q, S, _, _, T = self._frame(theta)
        into = np.empty((0, 2 * self.views)) if residuals is None else residuals
        solution_chunk(self._columns(0, self.n)[0], 0, self.n, Q, S, T, points, into, squares)
        return points, squares

    def first_bad_row(self, theta: Array) -> int | None:
        bad = np.flatnonzero(~np.isfinite(self.costs(theta, 0, self.n)))
        return int(bad[0]) if len(bad) else None

    def _frame(self, theta: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Q (2C, 3), S = -R_A^-1 (3, 3), N (2C, 2C - 3), the rotations (3C, 3), and T (2C,) of a point."""
        for point, known in self._frames:
            if point is theta:
                return known
        new = self._empty_frame()
        frame(theta, *new)
        known = self._whole_frame(theta, new)
        self._frames = self._frames[1], (theta, known)
        return known

    def _empty_frame(self) -> tuple[Array, Array, Array]:
        k = 2 * self.views
        return np.empty((k, 3)), np.empty((3, 3)), np.empty((k, k - 3))

    def _whole_frame(self, theta: Array, new: tuple[Array, Array, Array]) -> tuple[Array, Array, Array, Array, Array]:
        turns = 9 * self.views
        return *new, theta[:turns].reshape(-1, 3), theta[turns:]

    def _evaluate(self, theta: Array, lo: int, hi: int, costs: Array | None) -> float:
        columns, first, _held = self._columns(lo, hi)
        Q, S, _, _, T = self._frame(theta)

        def chunk(a: int, b: int) -> tuple[Array, ...]:
            total = np.zeros(1)
            part = _NO_FLOAT if costs is None else costs[a:b]
            costs_chunk(columns, first + a, first + b, Q, S, T, self.loss.code, self.loss.scale, part, total)
            return (total,)

        return float(sum_chunks(chunk, hi - lo, CHUNK, self._threads)[0][0])

    def _columns(self, lo: int, hi: int) -> tuple[NDArray[np.int64], int, Sequence[NDArray[Any]]]:
        """Descriptors of the tracks at [lo, hi), the index of the first, and the arrays that hold them."""
        if lo > 0 or hi < self.n:
            return self.data.table(lo, hi)
        if self._everything is None:
            check_positive(self.data.columns[-1])  # not earlier: it takes as long as a step on a batch
            self._everything = describe(self.data.columns)
        return self._everything, 0, self.data.columns


def affine_bundle_adjustment(
    observations: ArrayLike,
    cameras: tuple[ArrayLike, ArrayLike] | None = None,
    points: ArrayLike | None = None,
    *,
    depths: ArrayLike | None = None,
    jacobian: str = "exact",
    loss: str | Loss = "linear",
    f_scale: float = 1.0,
    threads: int | None = None,
    rng: np.random.Generator | int | None = 0,
    **options: Any,
) -> AffineBundle:
    """Weak-perspective bundle adjustment with every point seen in every view, by variable projection.

    Minimises the squared distances between ``observations[i, j]`` and ``(R_i X_j + t_i)[:2] / depth_j`` over rotations,
    translations and points, with fixed depths.

    Parameters
    ----------
    observations
        (C, P, 2) with C >= 3 views: image coordinates divided by the focal length (or any unit common to all views).
    cameras
        Rotations (C, 3, 3) and translations (C, 3) to start from. By default a factorisation (Tomasi and Kanade) of a
        sample of the points.
    points
        (P, 3) points at the start. Only used for the depths.
    depths
        (P,) fixed depths. By default the mean depths over the views at the start if cameras and points are given, else
        1.
    jacobian
        ``"exact"`` (Golub and Pereyra) or ``"kaufman"``, which leaves out a term that vanishes with the residuals.
    loss, f_scale
        Robust loss on the norm of a whole track's residuals, and its scale.
    threads
        Number of threads; by default all cores that the process may use. Results do not depend on it.
    rng
        Random seed for the order of the points.
    **options
        Options of the solver: ``acceptance``, ``max_iter``, ``max_time``, ``ftol``, ``accuracy``, ``callback``, ...

    Returns
    -------
    AffineBundle

    Examples
    --------
    >>> from scipy.spatial.transform import Rotation
    >>> rng = np.random.default_rng(0)
    >>> R = Rotation.from_euler("yx", [[0.0, 0.0], [0.3, 0.1], [-0.2, 0.4]]).as_matrix()
    >>> X = rng.normal(size=(2000, 3))
    >>> seen = np.einsum("cij,pj->cpi", R[:, :2], X) + 1e-3 * rng.normal(size=(3, 2000, 2))
    >>> fit = affine_bundle_adjustment(seen)
    >>> fit.result.success, f"{fit.rmse / (1e-3 * np.sqrt(2)):.1f}"   # 3 of 6 residuals are left to the noise
    (True, '0.7')
    >>> angle = Rotation.from_matrix(fit.rotations[1]).magnitude()
    >>> bool(abs(angle - Rotation.from_matrix(R[1]).magnitude()) < 0.01)
    True
    """
    from ...solver.loop import solve

    seen = np.asarray(observations)
    if seen.dtype.kind not in "fiu":
        seen = seen.astype(np.float64)
    if seen.ndim != 3 or seen.shape[2] != 2:
        raise ValueError(f"observations must have the shape (C, P, 2), got {seen.shape}")
    C, P = seen.shape[:2]
    if C < 3:
        raise ValueError(f"observations: affine motion needs at least 3 views, got {C}")
    if P < 4:
        raise ValueError(f"observations: at least 4 points are needed, got {P}")
    if jacobian not in ("exact", "kaufman"):
        raise ValueError(f"jacobian={jacobian!r} is not known; choose 'exact' or 'kaufman'")
    generator = as_generator(rng)
    R, t = given_cameras(cameras, C) if cameras is not None else (None, np.zeros((C, 3)))
    depth = fixed_depths(depths, points, R, t, P)
    if R is None:
        check_positive(depth)
        sample = np.sort(generator.choice(P, min(P, 5000), replace=False, shuffle=False))
        part = seen[:, sample].astype(np.float64)
        if not np.isfinite(part).all():
            raise _not_seen(seen)
        R, t = factorise(part, depth[sample])
    theta = np.concatenate([R.ravel(), t[:, :2].ravel()])
    the_loss = as_loss(loss, f_scale)
    problem = AffineProblem(
        seen,
        depth,
        loss=the_loss,
        exact=jacobian == "exact",
        threads=threads or available_threads(),
        rng=generator,
    )
    axes = _axes(theta, C)
    if not problem.sees_depth(theta):
        raise ValueError("cameras: all views look in the same direction, so depth cannot be seen; move the start apart")
    try:
        start = problem.retract(theta, np.zeros(problem.dim))
        result = solve(problem, start, **camera_options(options, FIRST_DAMPING))
    except ValueError as error:
        raise _explained(error, seen, depth) from None
    # Shift the world back to the origin of the start: adds A c, which changes no residual.
    best = result.x.copy()
    best[9 * C :] += _axes(best, C) @ np.linalg.lstsq(axes, theta[9 * C :], rcond=None)[0]
    points_found, squares = problem.solution(best)
    translations = t.copy()
    translations[:, :2] = best[9 * C :].reshape(C, 2)
    rotations, cost = best[: 9 * C].reshape(C, 3, 3).copy(), float(the_loss.cost(squares).sum())
    rmse = float(np.sqrt(squares.sum() / (C * P)))
    return AffineBundle(rotations, translations, points_found, depth, cost, rmse, result, problem)


def _explained(error: ValueError, observations: NDArray[Any], depths: Array) -> ValueError:
    """The error, or its cause in the data, which is searched only now because that takes longer than the fit."""
    try:
        check_positive(depths)
    except ValueError as found:
        return found
    return error if np.isfinite(observations).all() else _not_seen(observations)


def _not_seen(observations: NDArray[Any]) -> ValueError:
    view, point = (int(i[0]) for i in np.nonzero(~np.isfinite(observations).all(axis=2)))
    return ValueError(
        f"observations must be finite: every point must be seen in every view, and point {point} is not in view {view} "
        "(leave out such points, or use problm.bundle_adjustment)"
    )


def _axes(theta: Array, C: int) -> Array:
    """A (2C, 3): the first two rows of every rotation."""
    return theta[: 9 * C].reshape(C, 3, 3)[:, :2].reshape(2 * C, 3)
