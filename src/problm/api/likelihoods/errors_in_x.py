r"""Errors in x and y (orthogonal distance regression).

The cost of a point is the least of ``((f(x + e) - y) / sigma)^2 + (e / x_sigma)^2`` over its shift e. For given
parameters the shifts of all points are found independently, by a few damped Gauss-Newton steps whose matrices are a
diagonal plus a product, so that no system of equations is solved. The signed root of this least cost is the residual of
an ordinary least-squares problem in the parameters alone: by the envelope theorem its derivative is that of the first
term at the best shift. Batches, bounds and robust losses thus work as for any curve, and memory does not grow with the
shifts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...inference.fit import Fit
from ...models import expression as ex
from ...models.arithmetic import shifted
from ...models.model import Model
from ...models.ties import Ties
from ...solver.result import Result
from ...support.differences import derivatives, relative
from ..arguments import numbers
from ..least_squares import least_squares

Array = NDArray[np.float64]
_STEPS = 50
_STEP = 6e-6
"""Relative step of central differences with respect to x."""


class Distance:
    """Residuals of points with errors in x, and their derivatives.

    Parameters
    ----------
    curve : ``f(x, *theta)`` with x of shape (N,) or (k, N).
    slopes : ``(x, theta) -> (k, N)``, derivatives with respect to x.
    jacobian : ``(x, theta) -> (N, d)``, derivatives with respect to theta.
    k : number of variables.
    """

    def __init__(self, curve: Callable[..., Any], slopes: Any, jacobian: Any, k: int) -> None:
        self.curve, self.slopes, self.jacobian, self.k = curve, slopes, jacobian, k

    def _x(self, x: Array) -> Array:
        return x[0] if self.k == 1 else x

    def value(self, theta: Array, x: Array) -> Array:
        return np.asarray(self.curve(self._x(x), *theta), dtype=np.float64)

    def shifts(self, theta: Array, x: Array, y: Array, sx: Array, sy: Array) -> Array:
        """(k, N) best shifts of the points."""
        e = np.zeros_like(x)
        r = self.value(theta, x) - y
        cost = (r / sy) ** 2
        open_ = np.isfinite(cost)
        for _ in range(_STEPS):
            slope = self.slopes(self._x(x + e), theta)
            # Gauss-Newton step; the inverse of diag(1 / sx^2) + slope slope' / sy^2 is known in closed form.
            spread = sy**2 + np.sum((sx * slope) ** 2, axis=0)
            pull = (r - np.sum(slope * e, axis=0)) / spread
            step = -(sx**2) * slope * pull - e
            share = np.where(open_, 1.0, 0.0)
            for _ in range(30):
                tried = e + share * step
                r_new = self.value(theta, x + tried) - y
                new = (r_new / sy) ** 2 + np.sum(np.divide(tried, sx, out=np.zeros_like(e), where=sx > 0) ** 2, axis=0)
                worse = ~(new <= cost) & (share > 0.0)
                if not worse.any():
                    break
                share = np.where(worse, 0.25 * share, share)
                share = np.where(share < 1e-9, 0.0, share)
            gained = cost - new
            taken = share > 0.0
            e, r, cost = np.where(taken, tried, e), np.where(taken, r_new, r), np.where(taken, new, cost)
            open_ = open_ & taken & (gained > 1e-14 * cost)
            if not open_.any():
                break
        return e

    def parts(self, theta: Array, rows: tuple[Array, ...]) -> tuple[Array, Array, Array]:
        """x + e, the signed root of the cost, and its derivative with respect to f."""
        x, y, sx, sy = rows[0].T, rows[1], rows[2].T, rows[3]
        e = self.shifts(theta, x, y, sx, sy)
        r = self.value(theta, x + e) - y
        drift = np.sum(np.divide(e, sx, out=np.zeros_like(e), where=sx > 0) ** 2, axis=0)
        root = np.sqrt((r / sy) ** 2 + drift)
        slope = self.slopes(self._x(x + e), theta)
        flat = 1.0 / np.sqrt(sy**2 + np.sum((sx * slope) ** 2, axis=0))  # where the point lies on the curve
        weight = np.where(root > 0.0, np.abs(r) / sy**2 / np.where(root > 0.0, root, 1.0), flat)
        return x + e, np.where(r < 0.0, -root, root), weight

    def residuals(self, theta: Array, *rows: Array) -> Array:
        return self.parts(np.asarray(theta, dtype=np.float64), rows)[1]

    def derivative(self, theta: Array, *rows: Array) -> Array:
        at, _, weight = self.parts(np.asarray(theta, dtype=np.float64), rows)
        J: Array = np.asarray(self.jacobian(self._x(at), theta), dtype=np.float64) * weight[:, None]
        return J


def distance_of(curve: Any, jac: Any, k: int) -> Distance:
    """The distance from a model or function of ``k`` variables."""
    if isinstance(curve, Model) and curve.body is not None:
        d = len(curve.parameters)
        moved = [
            Model.from_expression(
                shifted(curve.body, ex.parameter(d) * -1.0, j), (*curve.parameters, "shift"), curve.variables
            )
            for j in range(k)
        ]

        def slopes(x: Any, theta: Array) -> Array:
            return np.stack([m.jacobian(x, *theta, 0.0)[:, d] for m in moved])

        return Distance(curve, slopes, lambda x, theta: curve.jacobian(x, *theta), k)

    def differences(x: Any, theta: Array) -> Array:
        rows = np.atleast_2d(x)
        h = _STEP * np.maximum(np.abs(rows), 1e-3 * (np.abs(rows).max(axis=1, keepdims=True) + 1e-300))
        out = []
        for j in range(k):
            up, down = rows.copy(), rows.copy()
            up[j] += h[j]
            down[j] -= h[j]
            pair = [np.asarray(curve(v[0] if k == 1 else v, *theta), dtype=np.float64) for v in (up, down)]
            out.append((pair[0] - pair[1]) / (up[j] - down[j]))
        return np.stack(out)

    def by_theta(x: Any, theta: Array) -> Array:
        if jac is not None:
            return np.asarray(jac(x, *theta), dtype=np.float64)
        return derivatives(lambda t: np.ravel(np.asarray(curve(x, *t), dtype=np.float64)), theta, relative(theta)).T

    return Distance(curve, differences, by_theta, k)


def fit_distance(
    model: Any,
    ties: Ties,
    jac: Any,
    x: Any,
    y: Array,
    sigma: Any,
    x_sigma: Any,
    start: Array,
    limits: tuple[Array, Array],
    mask: Any,
    absolute_sigma: bool,
    options: dict[str, Any],
) -> Fit:
    """Fit with errors in x and y; called by `problm.fit` if ``x_sigma`` is given."""
    rows = np.atleast_2d(numbers("x", x))
    y = numbers("y", y).ravel()
    sy = _deviations("sigma", 1.0 if sigma is None else sigma, y.shape)
    sx = _deviations("x_sigma", x_sigma, rows.shape, zero=True)
    curve = ties.apply(model)
    distance = distance_of(curve, None if jac is None else ties.apply_to_jacobian(jac), len(rows))

    def refit(start: Any, x: Any = rows, y: Any = y, sigma: Any = sy, fixed: Any = mask) -> Result:
        free = limits
        if fixed is not None and fixed is not mask:
            free = (np.where(fixed, -np.inf, limits[0]), np.where(fixed, np.inf, limits[1]))
        at = np.atleast_2d(np.asarray(x, dtype=np.float64))
        spread = sx if at.shape == sx.shape else np.broadcast_to(sx[:, :1], at.shape)
        # Not rows @ ..., as the solver slices columns along their first axis.
        data = (at.T.copy(), y, np.ascontiguousarray(spread.T), np.broadcast_to(sigma, y.shape).copy())
        return least_squares(
            distance.residuals, start, jac=distance.derivative, data=data, bounds=free, fixed=fixed, **options
        )

    def objective(theta: Array) -> float:
        return float(np.sum(distance.residuals(theta, rows.T, y, sx.T, sy) ** 2))

    result = refit(start)
    result.names, result.absolute = ties.free, absolute_sigma
    given = None if sigma is None else sigma
    return Fit(model, ties, result, x, y, given, absolute_sigma, bounds=limits, jac=jac, refit=refit,
               objective=objective)  # fmt: skip


def _deviations(name: str, value: Any, shape: tuple[int, ...], zero: bool = False) -> Array:
    given = numbers(name, value)
    try:
        spread = np.broadcast_to(given, shape)
    except ValueError:
        raise ValueError(f"{name} must be a number or have the shape {shape} of the data") from None
    if not (np.isfinite(spread).all() and ((spread >= 0.0) if zero else (spread > 0.0)).all()):
        raise ValueError(f"{name} must be {'at least 0' if zero else 'positive'} and finite")
    return spread
