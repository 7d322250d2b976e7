r"""The problem of calibration: intrinsics of one camera and the poses of all views, each point of a view one block.

A point theta of the manifold holds the p parameters of the camera model, then R (9, by rows) and t (3) of every view.
The tangent space holds the free parameters, then a rotation vector and a translation per view: ``exp([w]) R``, ``t +
v``. A block depends on the intrinsics and one view only, so that the sums of a view are one product of matrices of 6
plus p columns, and H is their sum in its places.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...jit import types
from ...linalg.dense import inverse_spd
from ...linalg.normal import Normal
from ...losses import Loss
from ...manifolds import compiled, rotate
from ...problems.sampled import SummedProblem
from ..bundle.camera_models import MODELS, PLACES

_f8, _i8 = types.float64, types.int64
Array = NDArray[np.float64]


@compiled(_f8[::1](_f8[::1], _f8[::1], _i8[::1], _i8))
def move_views(theta, delta, free, p):  # type: ignore[no-untyped-def]
    """Move the parameters named by ``free`` and, after the first p numbers, the poses of all views."""
    out = theta.copy()
    for k in range(free.shape[0]):
        out[free[k]] += delta[k]
    for v in range((theta.shape[0] - p) // 12):
        at, by = p + 12 * v, free.shape[0] + 6 * v
        R = rotate(theta[at : at + 9], delta[by : by + 3])
        for j in range(9):
            out[at + j] = R[j]
        for j in range(3):
            out[at + 9 + j] += delta[by + 3 + j]
    return out


class CalibrationProblem(SummedProblem):
    """Views of known points by one camera.

    Parameters
    ----------
    model : name of the camera model.
    objects, images : (m, 3) points and (m, 2) pixels of every view.
    free : numbers of the model's parameters that are estimated.
    loss : robust loss of each point's error in pixels.
    """

    components = 2

    def __init__(
        self, model: str, objects: Sequence[Array], images: Sequence[Array], free: NDArray[np.int64], loss: Loss
    ) -> None:
        self.model, self.free, self.loss = MODELS[model], np.ascontiguousarray(free), loss
        self.X, self.x = np.concatenate(objects), np.concatenate(images)
        self.edges = np.cumsum([0, *map(len, objects)])
        self.view = np.repeat(np.arange(len(objects)), np.diff(self.edges))
        self.n, self.views, self.p = len(self.X), len(objects), len(self.model.parameters)
        self.dim = len(free) + 6 * self.views
        self.robust, self.cost_bound = not loss.is_linear, loss.bound
        self.few = self.n  # all points from the first step on: few points see each pose

    def retract(self, theta: Array, delta: Array) -> Array:
        moved: Array = move_views(theta, np.ascontiguousarray(delta), self.free, self.p)
        return moved

    def linearize(self, theta: Array, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal:
        r, J = self._rows(theta, lo, hi)
        value, weight = self.loss.cost_and_weight(np.einsum("ij,ij->i", r, r))
        if costs is not None:
            costs[:] = value
        gradient, hessian = self._sums(J, r, weight, lo, hi)
        products = None
        if outer:
            g = np.einsum("npd,np->nd", J, r) * weight[:, None]
            products = self._sums(g[:, None], np.zeros((hi - lo, 1)), np.ones(hi - lo), lo, hi)[1]
        return Normal(hi - lo, float(value.sum()), gradient, hessian, products)

    def _evaluate(self, theta: Array, lo: int, hi: int, costs: Array | None) -> float:
        r = self._project(theta, lo, hi)[0]
        value = self.loss.cost(np.einsum("ij,ij->i", r, r))
        # No point lies behind the camera that sees it, and no focal length is negative: such a step is rejected.
        if not (self._places(theta)[:2] > 0.0).all():
            value = np.full(hi - lo, np.inf)
        if costs is not None:
            costs[:] = value
        return float(value.sum())

    def residuals(self, theta: Array) -> Array:
        """(n, 2) projections minus pixels."""
        return self._project(theta, 0, self.n)[0]

    def jacobian(self, theta: Array) -> Array:
        """(n, 2, d) derivatives."""
        local = self._rows(theta, 0, self.n)[1]
        J, q = np.zeros((self.n, 2, self.dim)), len(self.free)
        J[:, :, :q] = local[:, :, :q]
        for v, part in enumerate(self._parts(0, self.n)):
            J[part, :, q + 6 * v : q + 6 * v + 6] = local[part, :, q:]
        return J

    def covariance(self, theta: Array) -> Array:
        """(d, d) covariance of an M-estimator at its minimum, for errors that have the same distribution everywhere.

        ``v (J'J)^-1`` with ``v = sum w^2 s / (2 n - d) / mean(w + w' s)^2``, s = |r|^2 (Huber 1973). The sandwich
        without that assumption is a fifth too small for 50 corners in each of six views.
        """
        r, J = self._rows(theta, 0, self.n)
        s, h = np.einsum("ij,ij->i", r, r), 1e-4 * self.loss.scale**2
        weight = self.loss.cost_and_weight(s)[1]
        slope = (self.loss.cost_and_weight(s + h)[1] - weight) / h
        variance = (
            float((weight**2 * s).sum()) / max(2 * self.n - self.dim, 1) / float((weight + slope * s).mean()) ** 2
        )
        return variance * inverse_spd(self._sums(J, r, np.ones(self.n), 0, self.n)[1])[0]

    def _places(self, theta: Array) -> Array:
        places = np.zeros(PLACES)
        for place, k in enumerate(self.model.places):
            places[place] = theta[k] if k >= 0 else 0.0
        return places

    def _project(self, theta: Array, lo: int, hi: int) -> tuple[Array, Any]:
        """Residuals of the blocks [lo, hi), and what their derivatives need."""
        places = self._places(theta)
        poses = theta[self.p :].reshape(-1, 12)[self.view[lo:hi]]
        turned = np.einsum("nij,nj->ni", poses[:, :9].reshape(-1, 3, 3), self.X[lo:hi])
        x = turned + poses[:, 9:]
        with np.errstate(all="ignore"):
            u, v = x[:, 0] / x[:, 2], x[:, 1] / x[:, 2]
            (a, b), by = self.model.distortion.apply(u, v, places[4:])
        r = np.stack([places[0] * a + places[2], places[1] * b + places[3]], axis=1) - self.x[lo:hi]
        r[x[:, 2] <= 0.0] = 1e6  # behind the camera
        return r, (places, turned, x[:, 2], u, v, a, b, by)

    def _rows(self, theta: Array, lo: int, hi: int) -> tuple[Array, Array]:
        """Residuals (n, 2), and derivatives (n, 2, q + 6) by the free parameters and the pose of the block's view."""
        r, (places, turned, z, u, v, a, b, (au, av, bu, bv)) = self._project(theta, lo, hi)
        n, q = hi - lo, len(self.free)
        fx, fy = places[:2]
        J = np.empty((n, 2, q + 6))
        columns = [(a, 0.0 * a), (0.0 * b, b), (np.ones(n), np.zeros(n)), (np.zeros(n), np.ones(n))]
        columns += self.model.distortion.by_coefficients(u, v, places[4:], fx, fy)
        J[:, :, :q] = 0.0
        at = {int(k): j for j, k in enumerate(self.free)}
        for place, k in enumerate(self.model.places):
            if k in at:
                J[:, 0, at[k]] += columns[place][0]
                J[:, 1, at[k]] += columns[place][1]
        for c, (by_u, by_v) in enumerate(((fx * au / z, fx * av / z), (fy * bu / z, fy * bv / z))):
            by_z = -(by_u * u + by_v * v)
            J[:, c, q] = by_z * turned[:, 1] - by_v * turned[:, 2]
            J[:, c, q + 1] = by_u * turned[:, 2] - by_z * turned[:, 0]
            J[:, c, q + 2] = by_v * turned[:, 0] - by_u * turned[:, 1]
            J[:, c, q + 3], J[:, c, q + 4], J[:, c, q + 5] = by_u, by_v, by_z
        return r, J

    def _parts(self, lo: int, hi: int) -> list[slice]:
        """The rows of every view among the blocks [lo, hi)."""
        edges = np.clip(self.edges, lo, hi) - lo
        return [slice(int(a), int(b)) for a, b in pairwise(edges)]

    def _sums(self, J: Array, r: Array, weight: Array, lo: int, hi: int) -> tuple[Array, Array]:
        """``sum w J'r`` (d,) and ``sum w J'J`` (d, d) of local derivatives (n, c, q + 6)."""
        q, c = len(self.free), J.shape[1]
        gradient, hessian = np.zeros(self.dim), np.zeros((self.dim, self.dim))
        flat, each = J.reshape(-1, q + 6), np.repeat(weight, c)
        for v, part in enumerate(self._parts(lo, hi)):
            rows = slice(c * part.start, c * part.stop)
            mine, w = flat[rows], each[rows, None]
            H, g = (mine * w).T @ mine, (mine * w).T @ r.reshape(-1)[rows]
            own = slice(q + 6 * v, q + 6 * v + 6)
            gradient[:q] += g[:q]
            gradient[own] = g[q:]
            hessian[:q, :q] += H[:q, :q]
            hessian[own, own] = H[q:, q:]
            hessian[:q, own], hessian[own, :q] = H[:q, q:], H[q:, :q]
        return gradient, hessian
