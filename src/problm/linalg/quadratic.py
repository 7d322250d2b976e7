r"""The quadratic model of a batch's mean cost, and the steps that it proposes.

With g and H the means over the batch, the model of the change of the mean cost is ``g^T s + s^T H s / 2``.
A step solves ``(H + lambda D) s = -g``. Lengths are those of parameters scaled to a unit diagonal of H, where
Marquardt's ``D = diag(H)`` is the identity and rank does not depend on units. Most systems are well-conditioned and
have no bounds; these are solved unscaled (`problm.linalg.cholesky`).

Normal equations square the condition of the Jacobian. If their Cholesky factor shows that half of the digits are lost,
the triangular factor of the Jacobian itself is requested (`Problem.factor`, a QR over the rows, only for small
problems) and its singular values take over: the digits and the rank are then those of MINPACK's QR.

Bounds and fixed parameters act here: a fixed parameter, or one on its bound with the gradient pushing outwards, is
removed; a step that would cross a bound is replaced by the minimum of the model within the box.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .box import minimum_in_box
from .cholesky import REFINE, Cholesky
from .dense import identity, solve_unit
from .normal import Normal
from .secular import MOST, SLACK, next_damping
from .space import Space

Array = NDArray[np.float64]
_RANK = 1e-14
"""Singular values of J, relative to the largest, that count as zero: the rounding of a QR over many rows."""
NEAR = 1e-4
"""Relative decrease of the cost below which steps are extrapolated: farther away two steps are not informative."""
_DOUBTFUL = 1e-5
"""Singular values that errors of finite differences may have caused; the errors are then measured."""


Proposal = tuple[Array, float, float]
"""A step (d,), the decrease of the mean cost that the model predicts, and the squared length in scaled parameters."""
Extrapolation = tuple[Array, float, float, float]
"""The same of an extrapolated step, and the decrement of the rest of the Gauss-Newton step that it leaves."""


class QuadraticModel:
    """Mean normal equations at a point, ready to propose steps.

    Uses as few NumPy calls as possible: each costs a microsecond, which matters for small problems.
    """

    __slots__ = (
        "_damped",
        "_diagonal",
        "_factored",
        "_free",
        "_gauss_newton",
        "_gradient",
        "_inverse_root",
        "_known",
        "_matrix",
        "_scale",
        "_space",
        "_spectrum",
        "_svd",
        "_theta",
        "cost",
        "count",
        "decrement",
        "finite",
        "least_curvature",
        "normal",
        "rank_in_doubt",
        "singular",
        "weak",
    )  # fmt: skip
    _damped: Array | None
    _diagonal: Array | None
    _factored: Any
    _free: NDArray[np.intp] | None
    _gradient: Array
    _known: tuple[float, Proposal] | None
    """The last damping, and its step."""
    _matrix: Any
    _scale: Array
    rank_in_doubt: bool
    """Whether errors of the Jacobian may hide directions."""

    def __init__(
        self,
        normal: Normal,
        theta: Any,
        space: Space,
        scaling: Callable[[Array], Array | None],
        refine: Callable[[], Array | None] | None = None,
        uncertainty: Callable[[], tuple[Array, Array] | None] | None = None,
    ) -> None:
        self._begin(normal, theta, space, scaling)
        if self._free is None and space.x_scale is None:
            self._factored = factored = (normal.compiled or Cholesky).of(normal, self._point(), self._damped)
            if factored is not None:
                self._known = 0.0, (factored.step, factored.decrement, factored.squares[0])
                self.decrement = factored.decrement
                self.least_curvature = factored.pivot * factored.pivot
                self.singular = False
                self.finite = math.isfinite(normal.cost)
                return
        self._scaled()
        self._gauss_newton, self.singular, pivot = solve_unit(self._matrix, self._gradient)
        self.decrement = 0.5 * float(self._gradient.dot(self._gauss_newton))
        self.least_curvature = pivot * pivot  # roughly the smallest eigenvalue of the scaled H
        if pivot < REFINE and refine is not None and math.isfinite(self.decrement):
            self._refine(refine(), uncertainty)
        self.finite = math.isfinite(self.decrement) and math.isfinite(normal.cost)

    def _begin(self, normal: Normal, theta: Any, space: Space, scaling: Callable[[Array], Array | None]) -> None:
        """What is known before anything is factored."""
        self.normal = normal
        self._inverse_root: Array | None = None
        self.rank_in_doubt = False
        self._svd: tuple[Array, Array, Array] | None = None
        self._spectrum: tuple[Array, Array] | None = None
        self.weak: tuple[float, Array, Array] | None = None  # errors, singular values, and steps along them
        self._known = None
        self.count = normal.count
        self.cost = normal.cost / normal.count
        self._space, self._theta = space, theta
        self._damped = scaling(normal.hessian.diagonal() / normal.count)
        self._factored = None
        self._free = space.free(theta, normal.gradient)

    def _scaled(self) -> None:
        """Scale H to a unit diagonal, with the gradient and the metric D of the damping."""
        matrix = self.normal.hessian if self._free is None else self.normal.hessian[np.ix_(self._free, self._free)]
        self._scale_by(matrix.diagonal())
        self._matrix = matrix * self._scale * (self._scale / self.count)[:, None]

    def _scale_by(self, diagonal: Array) -> None:
        """Scale gradient and metric by the diagonal of H."""
        normal, space, free, damped = self.normal, self._space, self._free, self._damped
        gradient = normal.gradient if free is None else normal.gradient[free]
        # A parameter without influence keeps a positive scale, so that damping holds it still. There is no other limit:
        # columns of the Jacobian may differ by 1e21 (a decay that has run away) and still all be exact.
        least = 1e-300
        scale = self._scale = np.sqrt(normal.count / np.maximum(diagonal, least))
        self._gradient = scale / normal.count * gradient
        self._diagonal = None  # the identity
        if space.x_scale is not None:
            units = space.x_scale if free is None else space.x_scale[free]
            self._diagonal = (scale / units) ** 2
            if len(scale):
                self._diagonal /= self._diagonal.min()  # lambda stays relative to H
        elif damped is not None:
            self._diagonal = scale**2 * np.maximum(damped if free is None else damped[free], least / normal.count)

    def step(self, damping: float) -> Proposal:
        """The damped step."""
        if self._known is not None and self._known[0] == damping:
            return self._known[1]
        if self._factored is not None:
            if (found := self._factored.damped(damping)) is not None:
                self._known = damping, found
                return self._known[1]
            self._scaled()
        if damping == 0.0:
            x = self._gauss_newton
        elif self._svd is not None:
            left, values, right = self._svd  # in the units in which D is the identity
            x = right @ (values / (values**2 + damping) * left)
            if self._diagonal is not None:
                x = x / np.sqrt(self._diagonal)
        else:
            resistance = identity(len(self._matrix))
            if self._diagonal is not None:
                resistance = resistance * self._diagonal
            x = solve_unit(self._matrix + damping * resistance, self._gradient)[0]
        return self._described(x, damping)

    def _described(self, x: Array, damping: float) -> Proposal:
        """The damped step -x of the scaled parameters, in their own units and within the bounds."""
        length = float(x.dot(x))
        resisted = length if self._diagonal is None else float(x @ (self._diagonal * x))
        predicted = 0.5 * (float(self._gradient.dot(x)) + damping * resisted)
        step = self._full(self._scale * -x)
        if self._space.lower is None and self._space.upper is None:
            return step, predicted, length
        return self._bounded(step, damping, predicted, length)

    def extrapolated(self, taken: Array, promised: Array) -> Extrapolation | None:
        """A step extrapolated from the last one (`problm.linalg.cholesky.Cholesky.extrapolated`); None if far away."""
        if self._factored is None or not self.decrement < NEAR * self.cost:
            return None
        return self._factored.extrapolated(taken, promised)  # type: ignore[no-any-return]

    def lengths(self) -> tuple[float, float]:
        """Lengths of the point and of the Gauss-Newton step in the metric of the damping."""
        if self._factored is not None:
            _, step, _, point, _ = self._factored.squares
            return math.sqrt(point), math.sqrt(step)
        gn = self._gauss_newton
        step = float(gn.dot(gn if self._diagonal is None else self._diagonal * gn))
        return math.sqrt(self._point_squared(self._diagonal)), math.sqrt(step)

    def damping_within(self, radius: float) -> tuple[float, float]:
        """The smallest damping whose step is no longer than ``radius`` in the metric of the damping, and the length.

        Zero if the Gauss-Newton step is short enough; otherwise from Hebden's iteration on the secular equation (More
        1978), to a tenth of the radius.
        """
        length = self.lengths()[1]
        if length <= 1.1 * radius and not self.singular:
            return 0.0, length
        if self._factored is not None:
            if (found := self._factored.within(radius)) is not None:
                damping, length, step = found
                self._known = damping, step
                return damping, length
            self._scaled()
        if self._svd is not None:
            inner, roots, _ = self._svd
            values, parts = roots**2, inner * roots
        else:
            root = 1.0 if self._diagonal is None else 1.0 / np.sqrt(self._diagonal)
            values, vectors = np.linalg.eigh(self._matrix * root * np.reshape(root, (-1, 1)))
            values, parts = np.maximum(values, 0.0), vectors.T @ (root * self._gradient)
        # Singular values of the refined factor are accurate however small, eigenvalues of H to 1e-16 of the largest.
        least = 1e-300 if self._svd is not None else 1e-16 * float(values.max(initial=0.0)) + 1e-300
        return _secular(values, parts, radius, least)

    def within_reach(self) -> float:
        """Decrease of the mean cost that the model predicts for the best step of a tenth of the point's length.

        Predictions along a nearly singular direction are reliable only at this distance.
        """
        if self._factored is not None:
            self._scaled()
        reach = 0.1 * math.sqrt(self._point_squared(None))
        if not reach > 0.0:
            return self.decrement
        if self._spectrum is not None:  # includes directions that may be errors of the Jacobian: they may be real
            inner, roots = self._spectrum
            values, parts = roots**2, inner * roots
        else:
            values, vectors = np.linalg.eigh(self._matrix)
            values, parts = np.maximum(values, 0.0), vectors.T @ self._gradient
        x = parts / (values + _secular(values, parts, reach, 1e-300)[0])
        return float(x @ (parts - 0.5 * values * x))

    def decrement_by(self, gradient: Array) -> float:
        """Decrease of the mean cost that a Gauss-Newton step with this gradient (d,) of the total cost predicts."""
        if self._factored is not None:
            self._scaled()
        part = self._scale / self.count * (gradient if self._free is None else gradient[self._free])
        if self._inverse_root is None:
            return 0.5 * float(part @ solve_unit(self._matrix, part)[0])
        return 0.5 * float(np.square(part @ self._inverse_root).sum())

    def step_squared(self) -> float:
        """Squared length of the Gauss-Newton step in the scaled parameters."""
        if self._factored is not None:
            return float(self._factored.squares[0])
        return float(self._gauss_newton @ self._gauss_newton)

    def point_squared(self) -> float:
        """Squared length of the point in the scaled parameters."""
        return self._point_squared(None) if self._factored is None else float(self._factored.squares[2])

    def _point_squared(self, metric: Array | None) -> float:
        """Squared length of the point in a metric of the scaled parameters."""
        point = self._point()
        point = (point if self._free is None else point[self._free]) / self._scale
        return float(point.dot(point if metric is None else metric * point))

    def _point(self) -> Array:
        """The point (d,); ones on a manifold, where rotations and directions have size one."""
        theta, d = self._theta, self._space.dim
        return theta if isinstance(theta, np.ndarray) and theta.shape == (d,) else _ones(d)

    def noise(self) -> tuple[float, float]:
        """Traces of W and W W with W = H^-1 Sigma, Sigma the covariance of the blocks' gradients.

        They are for one block; `problm.solver.growth` computes the noise of a batch from them.
        """
        if self._factored is not None and self.normal.clusters is None:
            traces: tuple[float, float] = self._factored.noise()
            return traces
        if self._factored is not None:
            self._scaled()
        sigma = self.normal.covariance()
        if self._free is not None:
            sigma = sigma[np.ix_(self._free, self._free)]
        sigma = sigma * self._scale[:, None] * self._scale
        w = solve_unit(self._matrix, sigma)[0]
        return float(w.trace()), float(np.vdot(w, w.T))

    def covariance_root(self) -> Array | None:
        """B with ``B B^T = (J^T J)^-1`` from the refined factor, (d, rank); None if that was not needed."""
        if self._inverse_root is None:
            return None
        return self._full((self._scale[:, None] * self._inverse_root / math.sqrt(self.count)).T).T

    def projected_gradient(self) -> Array:
        """Gradient of the total cost (d,), zero for fixed parameters and active bounds."""
        return self.normal.gradient if self._free is None else self._full(self.normal.gradient[self._free])

    def _full(self, part: Array) -> Array:
        """(..., d) from values of the free parameters, with zeros for the others."""
        if self._free is None:
            return part
        full = np.zeros((*part.shape[:-1], self._space.dim))
        full[..., self._free] = part
        return full

    def _refine(self, factor: Array | None, uncertainty: Callable[[], Any] | None) -> None:
        """Use the triangular factor of [J r], (d + 1, d + 1): singular values instead of their squares.

        The rank is that of the Jacobian with unit columns, not in the metric of the damping, whose columns may have
        very different lengths. Singular values that errors of the Jacobian can explain (Weyl) count as zero.
        """
        if factor is None or not np.isfinite(factor).all():
            return
        d = self._space.dim
        jacobian = factor[:, :d] if self._free is None else factor[:, self._free]
        root = math.sqrt(self.count)
        left, values, right = np.linalg.svd(jacobian * (self._scale / root), full_matrices=False)
        level = _RANK * values[0]
        if values[-1] < _DOUBTFUL * values[0] and uncertainty is not None and (errors := uncertainty()) is not None:
            norms = errors[0] if self._free is None else errors[0][self._free]
            level = max(level, float(np.linalg.norm(norms * self._scale)) / root)
            self.rank_in_doubt = bool(values[-1] <= level)
            self.weak = level, values, self._full(right * self._scale)
        seen = values > _RANK * values[0]
        self._spectrum = (left.T @ factor[:, d] / root)[seen], values[seen]
        rank = int(np.count_nonzero(values > level))
        if not rank:  # the loss gives every block the weight zero
            return
        left, values, right = left[:, :rank], values[:rank], right[:rank]
        self._inverse_root = right.T / values
        inner = left.T @ factor[:, d] / root
        self.least_curvature = float(values[-1]) ** 2
        self.singular = rank < len(self._scale)
        self._gauss_newton = self._inverse_root @ inner
        self.decrement = 0.5 * float(inner @ inner)
        if self._diagonal is not None:
            left, values, right = np.linalg.svd(left * values @ (right / np.sqrt(self._diagonal)), full_matrices=False)
            kept = min(rank, int(np.count_nonzero(values)))  # columns of very different lengths may underflow
            left, values, right = left[:, :kept], values[:kept], right[:kept]
            inner = left.T @ factor[:, d] / root
        self._svd = (inner, values, right.T)

    def _bounded(self, step: Array, damping: float, predicted: float, length: float) -> Proposal:
        """The damped step within the bounds: the minimum of the model over the box.

        Cutting the step at the bounds is not enough: the rest may increase the cost (Bertsekas 1982). But it has digits
        that the normal equations of the box lose if parameters are nearly collinear.
        """
        least, most = self._space.room(self._theta)
        if np.all((step >= least) & (step <= most)):
            return step, predicted, length
        index = np.arange(len(step)) if self._free is None else self._free
        y = self._minimum_in_box(damping, least[index] / self._scale, most[index] / self._scale)
        found = -float(y @ (self._gradient + 0.5 * (self._matrix @ y)))
        if self._svd is not None:  # the cut step has the digits
            share = float((np.where(step > 0.0, most, least) / np.where(step != 0.0, step, np.nan))[step != 0.0].min())
            x = step[index] / self._scale * share
            cut = share * share * predicted + (share - 1.0) * float(self._gradient @ x)
            if cut > found:
                return share * step, cut, float(x @ x)
        step[index] = self._scale * y  # all others are zero
        return step, found, float(y @ y)

    def _minimum_in_box(self, damping: float, low: Array, high: Array) -> Array:
        """The minimum of the damped model over a box of the scaled parameters, held off the bounds ahead."""
        held = self._space.resistance(self._theta, self.normal.gradient) / self.count
        held = self._scale**2 * (held if self._free is None else held[self._free])
        resistance = held + damping * (1.0 if self._diagonal is None else self._diagonal)
        return minimum_in_box(self._matrix + np.diag(resistance), self._gradient, low, high)


@lru_cache(maxsize=64)
def _ones(d: int) -> Array:
    return np.ones(d)


def _secular(values: Array, parts: Array, radius: float, least: float) -> tuple[float, float]:
    """A damping of at least ``least`` for which ``parts / (values + damping)`` is as long as the radius, to a tenth of
    it, and that length (`problm.linalg.secular`)."""
    squares, length = parts**2, math.inf
    # No single component may be longer than the radius: this bounds the damping from below and avoids division by zero.
    damping = max(least, float((np.abs(parts) / (SLACK * radius) - values).max(initial=0.0)))
    for _ in range(MOST):
        shifted = values + damping
        length = math.sqrt(float((squares / shifted**2).sum()))
        slope = float((squares / shifted**3).sum())  # may underflow
        if length <= SLACK * radius or not (math.isfinite(length) and slope > 0.0):
            break
        damping = next_damping(damping, length**2, slope, length, radius)
    return damping, length
