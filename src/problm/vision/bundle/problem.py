r"""Bundle adjustment as a problem in the cameras alone.

Every point is eliminated: block j is the track of one point, its cost the minimum over all positions of the point
(`problm.vision.bundle.points`), and its derivatives those of the reduced functional (`problm.vision.bundle.kernels`).
So N is the number of points, d that of camera parameters, and batches are drawn over points.

*A function of theta.* Inner solves start from the solutions at the last linearised theta
(`problm.problems.warm_starts`). Every inner solve runs until at most 1e-12 of the block's cost can be gained, so a cost
depends on its start, and thereby on the order of evaluations, by no more than that, unless the start decides between
two minima of a track's cost. Then the minimum along the path of the cameras is used, as in any bundle adjustment.

*Gauge.* Moving the world by a similarity changes nothing: the reduced matrix H has 7 vanishing eigenvalues. No camera
is singled out. With G (d, 7) the tangent vectors of the similarity group at theta and D = diag(H), ``D G (G'DG)^-1
G'D`` is added to H. Because ``H G = 0`` and ``g'G = 0``, the Gauss-Newton step and its predicted decrease do not
change, but the 7 gauge directions now have curvature, and the step has no component along them. The term
is the same for every basis of the gauge space and, like the parameters themselves (which live in each camera's own
frame), unaffected by a change of the world: a solve started from a transformed world takes the same steps. With one
fixed image only the scale about its centre is left (G has one column), with two none is left.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...linalg.blocks import BlockMatrix, Pattern
from ...linalg.lapack import dposv
from ...linalg.normal import Normal
from ...losses import USER_CODE, Loss
from ...problems.sampled import SummedProblem
from ...problems.warm_starts import WarmStarts
from ...sampling.order import RandomOrder
from ...support.digest import digest
from ...support.reduction import sum_chunks
from .block_kernels import covisible, linearize_blocks, missing_gains
from .camera_models import DISTORTIONS, PLACES, project
from .columns import CameraColumns
from .kernels import costs_chunk, homogeneous, linearize_chunk, move_cameras
from .points import retriangulate
from .priors import PositionPriors
from .projection import NUMBER
from .reconstruction import Reconstruction

Array = NDArray[np.float64]
Index = NDArray[np.int64]

CHUNK = 2048
FEW_PARAMETERS = 500
"""Number of camera parameters up to which the matrix is dense."""
MOST_PARAMETERS = 5000
"""Largest number of camera parameters with a dense matrix."""
RESTARTS = 3
"""Number of points, from the first on, at which bad tracks are solved from other starts."""
BAD = 25.0
"""Cost per observation of a bad track, relative to the median track."""
_LEAST, _PIVOT = 1e-300, 1e-5
"""Least diagonal entry, and pivot relative to it, of a matrix of gauge directions that are independent."""
_NO_ROWS = np.empty(0, dtype=np.int64)
_NO_FLOAT = np.empty(0)


class BundleProblem(CameraColumns, SummedProblem):
    """Cameras of a `Reconstruction` as parameters, its tracks as residual blocks.

    A point theta, (12 C + PLACES G,), holds the rotations (row by row) and translations of the C images and the
    intrinsics (`problm.vision.bundle.camera_models.PLACES`) of the G cameras; its tangent space holds what is free.

    Parameters
    ----------
    model
        The reconstruction; tracks of fewer than two observations are left out.
    free
        Groups of intrinsics to estimate: any of ``focal``, ``principal_point``, ``distortion``.
    fixed_images
        Images whose pose is fixed.
    fixed_cameras
        Cameras whose intrinsics are fixed.
    loss
        Robust loss on each observation's error in pixels.
    threads, rng
        Number of threads; random seed for the order of the points.
    sparse
        Whether the matrix of the cameras is kept in blocks, which batches cannot be drawn with; by default above
        `FEW_PARAMETERS`.
    priors
        Known positions of images.

    Attributes
    ----------
    kept
        (n,) the points of the model that are blocks of the problem.
    base
        (n, 4) homogeneous points at the last linearised theta.
    order
        The random order of the blocks.
    """

    def __init__(
        self,
        model: Reconstruction,
        *,
        free: Collection[str] = ("focal", "distortion"),
        fixed_images: Collection[int] = (),
        fixed_cameras: Collection[int] = (),
        loss: Loss | None = None,
        threads: int = 1,
        rng: np.random.Generator | int | None = 0,
        sparse: bool | None = None,
        priors: PositionPriors | None = None,
    ) -> None:
        self.loss = Loss.named("linear") if loss is None else loss
        if self.loss.code == USER_CODE:
            raise TypeError(
                f"loss={self.loss.name!r}: bundle adjustment is compiled and accepts only built-in losses; "
                "choose one of problm.losses.LOSSES"
            )
        self._threads = threads
        self._scale2 = self.loss.scale**2
        self._tracks(model)
        self._parameters(model, set(free), set(fixed_images), set(fixed_cameras))
        self.priors = None if priors is None else priors.without(self.free_images)
        self.pattern = self._blocks(sparse)
        if self.pattern is not None:
            self.few = self.n  # batches need a dense matrix
        # Mean residuals per block after its three point coordinates are eliminated.
        self.components = max(1, round((2 * len(self.xy) - 3 * self.n) / self.n))
        self.cost_bound = self.loss.bound * self.longest
        self.order = RandomOrder(self.n, rng)
        self.base = np.empty((self.n, 4))
        homogeneous(np.ascontiguousarray(model.points, dtype=np.float64), self.kept, self.base)
        self._starts = WarmStarts(self.base)
        self._reached = np.full(self.n, np.inf)
        self._tried = np.full(self.n, np.inf)
        self._restarts = 0

    def _tracks(self, model: Reconstruction) -> None:
        lengths = model.track_lengths
        self.kept = np.flatnonzero(lengths >= 2)
        if len(self.kept) == len(lengths):
            self.start, self.image, self.xy = model.start, model.image, model.xy
        else:
            mine = np.repeat(lengths >= 2, lengths)
            self.start = np.concatenate([[0], np.cumsum(lengths[self.kept])]).astype(np.int64)
            self.image, self.xy = model.image[mine], model.xy[mine]
        if not len(self.kept):
            raise ValueError("model: no point is seen twice, so there is nothing to adjust")
        self.n = len(self.kept)
        self.longest = int(lengths.max())

    def _blocks(self, sparse: bool | None) -> Pattern | None:
        """The blocks of the normal equations; None for a dense matrix."""
        if sparse is None:
            sparse = self.dim > FEW_PARAMETERS
        if not sparse:
            if self.dim > MOST_PARAMETERS:
                raise ValueError(
                    f"model: batches need a dense matrix, which is too large for {self.dim} camera parameters; at most "
                    f"{MOST_PARAMETERS} are supported: leave out initial_batch and acceptance"
                )
            return None
        nodes = len(self._offset) - 1
        present = np.zeros((nodes, nodes), dtype=np.bool_)
        covisible(self.start, self.image, self._node, present)
        return Pattern(np.diff(self._offset), present)

    @property
    def degrees_of_freedom(self) -> int:
        """Residuals minus all parameters, including those of the points but not the gauge freedoms."""
        known = 0 if self.priors is None else 3 * len(self.priors.images)
        return max(1, 2 * len(self.xy) - 3 * self.n - self.dim + self._gauge_size + known)

    def boundary(self, position: int) -> int:
        return self.order.boundary(position)

    def random_order(self) -> RandomOrder:
        return self.order

    def retract(self, theta: Array, delta: Array) -> Array:
        return move_cameras(theta, np.ascontiguousarray(delta), self._local, self._tangent, self._camera)

    def linearize(self, theta: Array, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal:
        starts = self._starts
        if hi - lo == self.n:
            self._restart_points(theta)
        here = starts.linearize_at(theta)
        if self.pattern is not None:
            return self._linearize_blocks(self.pattern, theta, here, costs)
        rows, cams, d = self._rows(lo, hi), self._cameras(theta), self.dim

        def chunk(a: int, b: int) -> tuple[Array, ...]:
            gradient, half = np.zeros(d), np.zeros((d, d))
            products = np.zeros((d, d) if outer else (0, 0))
            cost = linearize_chunk(
                cams, self.start, self.image, self.xy, rows, a, b, starts.base, starts.trial, starts.stamp,
                here, self.loss.code, self._scale2, self._local, self._width, self._tangent, self.longest,
                int(outer), self._reached, _NO_FLOAT if costs is None else costs[a:b], gradient, half, products,
            )  # fmt: skip
            return np.array([cost]), gradient, half, products

        cost, gradient, half, products = sum_chunks(chunk, hi - lo, CHUNK, self._threads)
        hessian = half + half.T
        known = self._add_priors(theta, hi - lo, gradient, hessian, costs)
        self._hold_gauge(theta, hessian)
        return Normal(hi - lo, float(cost[0]) + known, gradient, hessian, products if outer else None)

    def _add_priors(self, theta: Array, count: int, gradient: Array, matrix: Any, costs: Array | None) -> float:
        """Add what is known of positions, a share for ``count`` blocks; return its cost.

        ``matrix``: the dense matrix (d, d), or the values of the block matrix.
        """
        if self.priors is None:
            return 0.0
        share = count / self.n
        cost, slope, curvature = self.priors.terms(self._poses(theta))
        index = self._tangent[self.priors.images, 3:6]
        gradient[index] += share * slope
        if self.pattern is None:
            matrix[index[:, :, None], index[:, None, :]] += share * curvature
        else:
            node = self._node[self.priors.images, 0]
            size, three = self.pattern.sizes[node][:, None, None], np.arange(3, 6)
            at = self.pattern.at[self.pattern.first[node + 1] - 1][:, None, None]
            matrix[at + three[:, None] * size + three] += share * curvature
        if costs is not None:
            costs += cost / self.n
        return share * cost

    def _poses(self, theta: Array) -> Array:
        return theta[: 12 * self.images].reshape(-1, 12)

    def _restart_points(self, theta: Array) -> None:
        """Solve the worst tracks from other starts at the first points that are linearised over all tracks."""
        if self._restarts >= RESTARTS:
            return
        self._restarts += 1
        if not self._evaluate(theta, 0, self.n, None) < np.inf:
            return
        each = self._tried / np.diff(self.start)
        rows = np.flatnonzero(each > BAD * np.median(each))
        retriangulate(
            self._cameras(theta), self.start, self.image, self.xy, rows, self._starts.trial, self._tried,
            self.loss.code, self._scale2,
        )  # fmt: skip

    def _linearize_blocks(self, pattern: Pattern, theta: Array, here: int, costs: Array | None) -> Normal:
        """The same over all points, with a block matrix."""
        starts, cams = self._starts, self._cameras(theta)
        lengths = np.diff(self.start)
        # As many sums as cost little beside what is added to them, of which every thread needs its own.
        parts = int(min(8, max(1, (lengths * (lengths + 1)).sum() // (16 * len(pattern.row)))))

        def chunk(a: int, b: int) -> tuple[Array, ...]:
            gradient, values = np.zeros(self.dim), np.zeros(int(pattern.at[-1]))
            cost = linearize_blocks(
                cams, self.start, self.image, self.xy, a, b, starts.base, starts.trial, starts.stamp, here,
                self.loss.code, self._scale2, self._local, self._width, self.longest, self._node, self._split,
                self._offset, pattern.first, pattern.column, pattern.at,
                self._reached, _NO_FLOAT if costs is None else costs[a:b], gradient, values,
            )  # fmt: skip
            return np.array([cost]), gradient, values

        cost, gradient, values = sum_chunks(chunk, self.n, max(CHUNK, -(-self.n // parts)), self._threads)
        known = self._add_priors(theta, self.n, gradient, values, costs)
        return Normal(self.n, float(cost[0]) + known, gradient, BlockMatrix(pattern, values, self.gauge(theta)))  # type: ignore[arg-type]

    def fingerprint(self) -> dict[str, Any]:
        # Not "rows", by which sums would be believed: the points of a stopped solve are not in its checkpoint.
        priors = [] if self.priors is None else [self.priors.images, self.priors.positions, self.priors.sigma]
        arrays = [self.start, self.image, self.xy, self.base, self._tangent, self._local, self._camera, *priors]
        return {"observations": digest(arrays), "loss": [self.loss.name, self.loss.scale]}

    def points(self, theta: Array) -> Array:
        """The eliminated points (n, 4) at theta: homogeneous, unit length; in the order of `kept`."""
        self._evaluate(theta, 0, self.n, None)
        return self._starts.trial.copy()

    def residuals(self, theta: Array) -> Array:
        """Projection minus observation (M, 2) in pixels, at the optimal points."""
        X, cams = self.points(theta), self._cameras(theta)
        out = np.empty_like(self.xy)
        for a in range(0, len(self.xy), 65536):
            part = slice(a, min(a + 65536, len(self.xy)))
            mine = X[np.searchsorted(self.start, np.arange(part.start, part.stop), side="right") - 1]
            cam = cams[self.image[part]]
            x = np.einsum("mij,mj->mi", cam[:, :9].reshape(-1, 3, 3), mine[:, :3]) + cam[:, 9:12] * mine[:, 3:]
            for number in np.unique(cam[:, NUMBER]):
                mine = cam[:, NUMBER] == number
                out[part][mine] = (
                    project(DISTORTIONS[int(number)], cam[mine, 12:NUMBER].T, x[mine]) - self.xy[part][mine]
                )
        return out

    def metric(self, hessian: Any) -> Array:
        """The diagonal (d,) of the normal equations without the term that holds the gauge."""
        return self._diagonal if self.pattern is None else np.asarray(hessian.diagonal())

    def missing_gain(self, step: Array, most: float) -> Array:
        """What the last trial, at this step from the last linearised point, gained less than predicted, by image."""
        missing = np.zeros(self.images)
        missing_gains(
            self._cameras(self._starts.at), self.start, self.image, self.xy, self._starts.base, self.loss.code,
            self._scale2, self._local, self._width, self._tangent, self.longest, step, self._reached, self._tried,
            most, missing,
        )  # fmt: skip
        return missing

    def first_bad_row(self, theta: Array) -> int | None:
        """The first point of the model whose cost is not a finite number."""
        bad = np.flatnonzero(~np.isfinite(self.costs(theta, 0, self.n)))
        return int(self.kept[bad[0]]) if len(bad) else None

    def _hold_gauge(self, theta: Array, hessian: Array) -> None:
        self._diagonal = hessian.diagonal().copy()
        if self._gauge_size and np.isfinite(hessian).all():
            G = self.gauge(theta)
            if not G.shape[1]:
                return
            scaled = hessian.diagonal()[:, None] * G
            hessian += scaled @ _solved(G.T @ scaled, scaled.T)

    def _evaluate(self, theta: Array, lo: int, hi: int, costs: Array | None) -> float:
        starts = self._starts
        number = starts.number(theta)
        rows, cams = self._rows(lo, hi), self._cameras(theta)
        before = cams if starts.at is None else self._cameras(starts.at)
        if not (cams[:, 12:14] > 0.0).all():  # a focal length is not positive: the step is rejected
            self._tried.fill(np.inf)
            if costs is not None:
                costs.fill(np.inf)
            return np.inf

        def chunk(a: int, b: int) -> tuple[Array, ...]:
            # The costs of a trial over all points are kept: `missing_gain` needs them.
            part = self._tried[a:b] if costs is None else costs[a:b]
            costs_chunk(
                before, cams, self.start, self.image, self.xy, rows, a, b, starts.base, starts.trial, starts.stamp,
                number, starts.here, self.loss.code, self._scale2, self._reached, part,
            )  # fmt: skip
            return (part.sum(keepdims=True),)

        total = float(sum_chunks(chunk, hi - lo, CHUNK, self._threads)[0][0])
        if self.priors is None:
            return total
        known = self.priors.terms(self._poses(theta))[0]
        if costs is not None:
            costs += known / self.n
        return total + known * (hi - lo) / self.n

    def _cameras(self, theta: Array) -> Array:
        images = len(self._local)
        cams = np.empty((images, NUMBER + 1))
        cams[:, :12] = theta[: 12 * images].reshape(images, 12)
        cams[:, 12:NUMBER] = theta[12 * images :].reshape(-1, PLACES)[self._camera]
        cams[:, NUMBER] = self._distortion[self._camera]
        return cams

    def _rows(self, lo: int, hi: int) -> Index:
        return _NO_ROWS if lo == 0 and hi == self.n else self.order.indices(lo, hi)


def start_point(model: Reconstruction) -> Array:
    """theta, (12 C + PLACES G,), of a reconstruction."""
    poses = np.concatenate([model.rotations.reshape(-1, 9), model.translations], axis=1)
    return np.concatenate([poses.ravel(), *[camera.places for camera in model.intrinsics]])


def _solved(matrix: Array, right: Array) -> Array:
    """The least solution x of ``matrix x = right`` for a positive semidefinite matrix."""
    scale = 1.0 / np.sqrt(np.maximum(matrix.diagonal(), _LEAST))
    factor, x, failed = dposv(matrix * (scale[:, None] * scale), scale[:, None] * right)
    if failed == 0 and factor.diagonal().min() > _PIVOT:
        return np.asarray(scale[:, None] * x)
    return np.asarray(np.linalg.pinv(matrix, hermitian=True) @ right)  # takes five times as long
