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

import numpy as np
from numpy.typing import NDArray

from ...linalg.normal import Normal
from ...losses import USER_CODE, Loss
from ...problems.sampled import SummedProblem
from ...problems.warm_starts import WarmStarts
from ...sampling.order import RandomOrder
from ...support.reduction import sum_chunks
from .camera_models import DISTORTIONS, GROUPS, MODELS, PLACES, project
from .kernels import costs_chunk, homogeneous, linearize_chunk, move_cameras
from .projection import COLUMNS, NUMBER
from .reconstruction import Reconstruction

Array = NDArray[np.float64]
Index = NDArray[np.int64]

CHUNK = 2048
MOST_PARAMETERS = 5000
_NO_ROWS = np.empty(0, dtype=np.int64)
_NO_FLOAT = np.empty(0)


class BundleProblem(SummedProblem):
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
    loss
        Robust loss on each observation's error in pixels.
    threads, rng
        Number of threads; random seed for the order of the points.

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
        loss: Loss | None = None,
        threads: int = 1,
        rng: np.random.Generator | int | None = 0,
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
        self._parameters(model, set(free), set(fixed_images))
        # Mean residuals per block after its three point coordinates are eliminated.
        self.components = max(1, round((2 * len(self.xy) - 3 * self.n) / self.n))
        self.cost_bound = self.loss.bound * self.longest
        self.order = RandomOrder(self.n, rng)
        self.base = np.empty((self.n, 4))
        homogeneous(np.ascontiguousarray(model.points, dtype=np.float64), self.kept, self.base)
        self._starts = WarmStarts(self.base)

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

    def _parameters(self, model: Reconstruction, free: set[str], fixed: set[int]) -> None:
        images = len(model.rotations)
        self._camera = np.ascontiguousarray(model.camera, dtype=np.int64)
        self._distortion = np.array([DISTORTIONS.index(MODELS[c.model].distortion) for c in model.intrinsics])
        self._local = np.full((images, COLUMNS), -1, dtype=np.int64)
        self._tangent = np.full((images, COLUMNS), -1, dtype=np.int64)
        self._width = np.zeros(images, dtype=np.int64)
        used = np.flatnonzero(np.bincount(self.image, minlength=images))
        self.free_images = np.setdiff1d(used, list(fixed))
        self._gauge_size = 7 if len(self.free_images) == len(used) else 1 if len(fixed & set(used.tolist())) == 1 else 0
        self._anchor = min(fixed & set(used.tolist()), default=-1)
        d = 0
        for i in self.free_images:
            self._local[i, :6] = np.arange(6)
            self._tangent[i, :6] = np.arange(d, d + 6)
            self._width[i] = 6
            d += 6
        places = {p for group in free for p in GROUPS[group]}
        for k, camera in enumerate(model.intrinsics):
            mine = used[self._camera[used] == k]
            numbers: dict[int, int] = {}
            for place, q in enumerate(MODELS[camera.model].places) if len(mine) else ():
                if q < 0 or place not in places:
                    continue
                if q not in numbers:
                    numbers[q] = d
                    self._tangent[mine, self._width[mine]] = d
                    self._width[mine] += 1
                    d += 1
                # One focal length fills two places: both get its column.
                column = np.argmax(self._tangent[mine] == numbers[q], axis=1)
                self._local[mine, 6 + place] = column
        if d > MOST_PARAMETERS:
            raise ValueError(
                f"model: the dense matrix of {d} camera parameters is too large; at most {MOST_PARAMETERS} are "
                "supported: fix intrinsics, or adjust fewer images at a time"
            )
        if d == 0:
            raise ValueError("fixed_images, intrinsics: there is nothing to estimate; free an image or intrinsics")
        self.dim = d

    @property
    def degrees_of_freedom(self) -> int:
        """Residuals minus all parameters, including those of the points but not the gauge freedoms."""
        return max(1, 2 * len(self.xy) - 3 * self.n - self.dim + self._gauge_size)

    def boundary(self, position: int) -> int:
        return self.order.boundary(position)

    def random_order(self) -> RandomOrder:
        return self.order

    def retract(self, theta: Array, delta: Array) -> Array:
        return move_cameras(theta, np.ascontiguousarray(delta), self._local, self._tangent, self._camera)

    def linearize(self, theta: Array, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal:
        starts = self._starts
        here = starts.linearize_at(theta)
        rows, cams, d = self._rows(lo, hi), self._cameras(theta), self.dim

        def chunk(a: int, b: int) -> tuple[Array, ...]:
            gradient, half = np.zeros(d), np.zeros((d, d))
            products = np.zeros((d, d) if outer else (0, 0))
            cost = linearize_chunk(
                cams, self.start, self.image, self.xy, rows, a, b, starts.base, starts.trial, starts.stamp,
                here, self.loss.code, self._scale2, self._local, self._width, self._tangent, self.longest,
                int(outer), _NO_FLOAT if costs is None else costs[a:b], gradient, half, products,
            )  # fmt: skip
            return np.array([cost]), gradient, half, products

        cost, gradient, half, products = sum_chunks(chunk, hi - lo, CHUNK, self._threads)
        hessian = half + half.T
        self._hold_gauge(theta, hessian)
        return Normal(hi - lo, float(cost[0]), gradient, hessian, products if outer else None)

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

    def first_bad_row(self, theta: Array) -> int | None:
        """The first point of the model whose cost is not a finite number."""
        bad = np.flatnonzero(~np.isfinite(self.costs(theta, 0, self.n)))
        return int(self.kept[bad[0]]) if len(bad) else None

    def gauge(self, theta: Array) -> Array:
        """Tangent vectors (d, 7), (d, 1) or (d, 0) along which the world moves and no residual changes.

        X -> (1 + s)(X + q cross X) + c is undone by w = -R q and v = s t - R c - w cross t of each camera.
        """
        G = np.zeros((self.dim, self._gauge_size))
        if not self._gauge_size:
            return G
        poses = theta[: 12 * len(self._local)].reshape(-1, 12)[self.free_images]
        R, t = poses[:, :9].reshape(-1, 3, 3), poses[:, 9:]
        turn = self._tangent[self.free_images, 0][:, None] + np.arange(3)
        if self._gauge_size == 7:
            G[turn, :3] = -R
            G[turn + 3, :3] = np.cross(R, t[:, :, None], axis=1)
            G[turn + 3, 3:6] = -R
            G[turn + 3, 6] = t
        else:
            anchor = theta[12 * self._anchor : 12 * self._anchor + 12]
            centre = -anchor[:9].reshape(3, 3).T @ anchor[9:]
            G[turn + 3, 0] = t + R @ centre
        return G

    def _hold_gauge(self, theta: Array, hessian: Array) -> None:
        if self._gauge_size and np.isfinite(hessian).all():
            G = self.gauge(theta)
            scaled = hessian.diagonal()[:, None] * G
            hessian += scaled @ np.linalg.pinv(G.T @ scaled, hermitian=True) @ scaled.T

    def _evaluate(self, theta: Array, lo: int, hi: int, costs: Array | None) -> float:
        starts = self._starts
        number = starts.number(theta)
        rows, cams = self._rows(lo, hi), self._cameras(theta)
        if not (cams[:, 12:14] > 0.0).all():  # a focal length is not positive: the step is rejected
            if costs is not None:
                costs.fill(np.inf)
            return np.inf

        def chunk(a: int, b: int) -> tuple[Array, ...]:
            part = np.empty(b - a) if costs is None else costs[a:b]
            costs_chunk(
                cams, self.start, self.image, self.xy, rows, a, b, starts.base, starts.trial, starts.stamp, number,
                starts.here, self.loss.code, self._scale2, part,
            )  # fmt: skip
            return (part.sum(keepdims=True),)

        return float(sum_chunks(chunk, hi - lo, CHUNK, self._threads)[0][0])

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
