"""Steps of well-conditioned normal equations, from the Cholesky factor of H itself.

Scaling the parameters only scales the rows of the factor. The scaled system of a
`problm.linalg.quadratic.QuadraticModel`, which takes longer to form than to solve, is therefore not needed. Only the
pivots are scaled, to check that the system is well-conditioned. `problm.linalg.cholesky_compiled` does the same for
compiled rows.
"""

from __future__ import annotations

import math
from operator import mul, truediv

import numpy as np
from numpy.typing import NDArray

from .lapack import dposv, dpotrs
from .normal import Normal
from .secular import MOST, SLACK, next_damping

Array = NDArray[np.float64]
REFINE = 1e-4
"""Least pivot of H scaled to a unit diagonal, about 1 / condition of J, below which the factor of J itself is used."""
_LEAST = 1e-280
"""Diagonal entry below which numbers lose digits."""
LEAST_SHARE, MOST_SHARE = 0.002, 1.0
"""Smallest and largest share of the last step that an extrapolation takes back or adds: less saves no step, more is not
reliable."""


class Cholesky:
    """The Gauss-Newton step (d,), its predicted decrease of the mean cost, the smallest pivot, the squared lengths of
    step and point in scaled parameters and in the metric of the damping, and the largest entry of the scaled
    gradient."""

    __slots__ = ("_factor", "_metric", "_normal", "_x", "decrement", "pivot", "squares", "step")

    decrement: float
    pivot: float
    step: Array
    squares: tuple[float, float, float, float, float]
    _normal: Normal
    _factor: Array
    _x: Array
    _metric: Array | None

    @classmethod
    def of(cls, normal: Normal, theta: Array, damped: Array | None) -> Cholesky | None:
        """Factor H at a point (d,); ``damped`` is D (d,), None for the diagonal of the mean H. Returns None if H is
        ill-conditioned."""
        h, count = normal.hessian, normal.count
        factor, x, info = dposv(h, normal.gradient)
        diagonal = h.diagonal()
        entries = diagonal.tolist()
        if info != 0 or not min(entries) > _LEAST:
            return None
        # Python numbers: NumPy calls take longer on few of them.
        roots = list(map(math.sqrt, entries))
        gradient, solution = normal.gradient.tolist(), x.tolist()
        self = cls()
        self.pivot = min(map(truediv, factor.diagonal().tolist(), roots))
        self.decrement = 0.5 * sum(map(mul, gradient, solution)) / count
        if not (self.pivot >= REFINE and math.isfinite(self.decrement)):
            return None
        self.step = -x
        squares = list(map(mul, solution, solution))
        point = [t * t for t in theta.tolist()]
        lengths = resisted = sum(map(mul, squares, entries)) / count, sum(map(mul, point, entries)) / count
        if damped is not None:
            metric = damped.tolist()
            resisted = sum(map(mul, squares, metric)), sum(map(mul, point, metric))
        steepest = max(map(abs, map(truediv, gradient, roots))) / math.sqrt(count)
        self.squares = lengths[0], resisted[0], lengths[1], resisted[1], steepest
        self._normal, self._factor, self._x, self._metric = normal, factor, x, damped
        return self

    def damped(self, damping: float) -> tuple[Array, float, float] | None:
        """The damped step, its predicted decrease and its squared length in scaled parameters."""
        _, x, info = self._solved(damping)
        return self._described(damping, x) if info == 0 else None

    def within(self, radius: float) -> tuple[float, float, tuple[Array, float, float]] | None:
        """The smallest damping whose step is no longer than a radius, to a tenth of it, the length, and the step as in
        `damped` (`problm.linalg.secular`)."""
        damping, factor, x, length, metric = 0.0, self._factor, self._x, math.nan, self._resistance()
        for tries in range(MOST):
            pull = metric * x
            squared = float(pull.dot(x))
            length = math.sqrt(squared)
            if not length > SLACK * radius or tries == MOST - 1:
                break
            y, _ = dpotrs(factor, pull)
            slope = self._normal.count * float(pull.dot(y))
            if not slope > 0.0:  # it underflowed
                break
            damping = next_damping(damping, squared, slope, length, radius)
            factor, x, info = self._solved(damping)
            if info != 0:
                return None
        return damping, length, self._described(damping, x)

    def extrapolated(self, taken: Array, promised: Array) -> tuple[Array, float, float, float] | None:
        """A step, as in `damped`, extrapolated from the last step: ``taken`` (d,) is that step, ``promised`` (d,) the
        Gauss-Newton step there. None if an extrapolation does not help.

        If residuals are large or the loss is robust, Gauss-Newton converges linearly: its steps p shrink by a factor
        that shows in the last two. Anderson's method (1965), with one step of memory, uses it: with the change q of p
        since the last step, the new step is ``p - share (taken + q)``, with the share that makes ``p - share q``
        shortest in the metric of H. The last number is the decrement that belongs to that rest of p: the new step is
        as good as a plain one from where only the rest is left.
        """
        normal = self._normal
        change = self.step - promised
        resisted = normal.hessian.dot(change)
        curvature = float(change.dot(resisted))
        turn = float(self.step.dot(resisted))
        share = turn / curvature if curvature > 0.0 else 0.0
        if not LEAST_SHARE < abs(share) < MOST_SHARE:
            return None
        step = self.step - share * (taken + change)
        # The decrease to the minimum of a quadratic is half of the slope, whatever its curvature.
        predicted = -0.5 * float(normal.gradient.dot(step)) / normal.count
        if not predicted > 0.5 * self.decrement:
            return None
        rest = max(self.decrement - 0.5 * share * turn / normal.count, 0.0)
        return step, predicted, float((step * step).dot(normal.hessian.diagonal())) / normal.count, rest

    def noise(self) -> tuple[float, float]:
        """Traces of W and W W (`QuadraticModel.noise`)."""
        w, _ = dpotrs(self._factor, self._normal.covariance())
        count = self._normal.count
        return count * float(w.trace()), count * count * float(np.vdot(w, w.T))

    def _resistance(self) -> Array:
        """D (d,), as a mean over the batch."""
        return self._normal.hessian.diagonal() / self._normal.count if self._metric is None else self._metric

    def _solved(self, damping: float) -> tuple[Array, Array, int]:
        matrix = self._normal.hessian.copy()
        matrix.reshape(-1)[:: len(matrix) + 1] += (damping * self._normal.count) * self._resistance()
        factor, x, info = dposv(matrix, self._normal.gradient)
        return factor, x, info

    def _described(self, damping: float, x: Array) -> tuple[Array, float, float]:
        normal, squares = self._normal, x * x
        resisted = damping * float(squares.dot(self._resistance()))
        predicted = 0.5 * (float(normal.gradient.dot(x)) / normal.count + resisted)
        return -x, predicted, float(squares.dot(normal.hessian.diagonal())) / normal.count
