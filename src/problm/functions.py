"""Problems given as NumPy functions of a batch of rows.

``fun(theta, *rows)`` gets the arrays of ``data`` sliced to some rows and returns their residuals, (k,) or (k, p);
``jac(theta, *rows)`` returns (k, d) or (k, p, d). Rows are passed in chunks that stay in the cache. Without
``data`` the function returns all residuals at once, as SciPy's, and there is nothing to batch.

Difference quotients move along the retraction, so they are right on manifolds too; steps are relative to the
parameter's size, as MINPACK's, and turn around at a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .losses import Loss
from .normal import Normal
from .problem import Theta
from .sampling import SampledColumns

Array = NDArray[np.float64]
_EPS = float(np.finfo(float).eps)
_STEP = {"2-point": _EPS**0.5, "3-point": _EPS ** (1 / 3), "cs": 1e-20}
JACOBIANS = tuple(_STEP)


class FunctionProblem:
    """Residual blocks computed by a NumPy function.

    Parameters
    ----------
    fun, jac
        As above; ``jac`` may be ``"2-point"``, ``"3-point"`` or ``"cs"`` (complex step).
    data
        Arrays with N rows each; empty: ``fun(theta)`` returns everything, and ``total`` says how many blocks.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        jac: str | Callable[..., Any],
        data: Sequence[NDArray[Any]],
        dim: int,
        loss: Loss,
        *,
        total: int | None = None,
        components: int = 1,
        retract: Callable[[Theta, Array], Theta] | None = None,
        limits: tuple[Array, Array] | None = None,
        rng: np.random.Generator | int | None = 0,
    ) -> None:
        self.fun, self.jac, self.loss = fun, jac, loss
        self.dim = dim
        self.components = components
        self.data = SampledColumns(data, rng) if data else None
        self.n = self.data.n if self.data is not None else int(total or 0)
        self.retract = retract or _add
        self.flat = retract is None
        self.limits = limits
        # About 256 KiB of Jacobian and temporaries a chunk: the size of a core's second-level cache.
        self.chunk = max(256, 32768 // (components * (dim + 4)))

    @property
    def cost_bound(self) -> float:
        return self.loss.bound

    def linearize(self, theta: Theta, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal:
        total = Normal.zero(self.dim, outer)
        for start, stop, rows in self._chunks(lo, hi):
            residuals = self._residuals(theta, rows)
            jacobian = self._jacobian(theta, rows, residuals)
            cost, weight = self.loss.cost_and_weight(np.einsum("kp,kp->k", residuals, residuals))
            if costs is not None:
                costs[start - lo : stop - lo] = cost
            total = total + _normal(residuals, jacobian, cost, None if self.loss.is_linear else weight, outer)
        return total

    def costs(self, theta: Theta, lo: int, hi: int) -> Array:
        costs = np.empty(hi - lo)
        for start, stop, rows in self._chunks(lo, hi):
            r = self._residuals(theta, rows)
            costs[start - lo : stop - lo] = self.loss.cost(np.einsum("kp,kp->k", r, r))
        return costs

    def cost(self, theta: Theta) -> float:
        total = 0.0
        for _, _, rows in self._chunks(0, self.n):
            r = self._residuals(theta, rows)
            total += float(self.loss.cost(np.einsum("kp,kp->k", r, r)).sum())
        return total

    def residuals(self, theta: Theta) -> Array:
        """Residuals of all blocks in the user's order, (n, p)."""
        return np.concatenate([self._residuals(theta, rows) for _, _, rows in self._chunks(0, self.n)])

    def jacobian(self, theta: Theta) -> Array:
        """Jacobian of all blocks in the user's order, (n, p, d)."""
        parts = []
        for _, _, rows in self._chunks(0, self.n):
            parts.append(self._jacobian(theta, rows, self._residuals(theta, rows)))
        return np.concatenate(parts)

    def boundary(self, position: int) -> int:
        return position if self.data is None else self.data.order.boundary(position)

    def indices(self, lo: int, hi: int) -> NDArray[np.int64]:
        """The user's row numbers at the positions [lo, hi)."""
        return np.arange(lo, hi) if self.data is None else self.data.order.indices(lo, hi)

    def release(self) -> None:
        if self.data is not None:
            self.data.release()

    def first_bad_row(self, theta: Theta) -> int | None:
        """The first row, in the user's order, with a residual or derivative that is not finite."""
        for start, _, rows in self._chunks(0, self.n):
            r = self._residuals(theta, rows)
            bad = ~np.isfinite(r).all(axis=1) | ~np.isfinite(self._jacobian(theta, rows, r)).all(axis=(1, 2))
            if bad.any():
                return start + int(np.argmax(bad))
        return None

    def _chunks(self, lo: int, hi: int) -> list[tuple[int, int, tuple[NDArray[Any], ...]]]:
        if self.data is None:
            return [(0, self.n, ())]
        rows = self.data.rows(lo, hi)
        if hi - lo <= self.chunk:
            return [(lo, hi, rows)]
        cuts = [*range(lo, hi, self.chunk), hi]
        return [(a, b, tuple(c[a - lo : b - lo] for c in rows)) for a, b in zip(cuts[:-1], cuts[1:], strict=True)]

    def _residuals(self, theta: Theta, rows: tuple[NDArray[Any], ...]) -> Array:
        r = np.asarray(self.fun(theta, *rows))
        k = len(rows[0]) if rows else self.n
        if r.shape == (k,) and self.components == 1:
            r = r[:, None]
        elif r.shape != (k, self.components):
            want = f"({k},)" if self.components == 1 else f"({k}, {self.components})"
            raise ValueError(f"fun returned shape {r.shape} for {k} rows of data, expected {want}")
        return r if r.dtype.kind in "fc" and r.dtype.itemsize >= 8 else r.astype(np.float64)

    def _jacobian(self, theta: Theta, rows: tuple[NDArray[Any], ...], residuals: Array) -> Array:
        k = len(residuals)
        if callable(self.jac):
            j = np.asarray(self.jac(theta, *rows), dtype=np.float64)
            if j.shape == (k, self.dim) and self.components == 1:
                return j[:, None, :]
            if j.shape != (k, self.components, self.dim):
                want = f"({k}, {self.dim})" if self.components == 1 else f"({k}, {self.components}, {self.dim})"
                raise ValueError(f"jac returned shape {j.shape} for {k} rows of data, expected {want}")
            return j
        result = np.empty((k, self.components, self.dim))
        sizes = np.abs(theta) if self.flat else np.zeros(self.dim)
        for a in range(self.dim):
            h = _STEP[self.jac] * (sizes[a] if sizes[a] > 0.0 else 1.0)
            result[:, :, a] = self._difference(theta, rows, residuals, a, h)
        return result

    def _difference(self, theta: Theta, rows: tuple[NDArray[Any], ...], residuals: Array, a: int, h: float) -> Array:
        if self.jac == "cs":
            moved = theta.astype(np.complex128)
            moved[a] += 1j * h
            return self._residuals(moved, rows).imag / h
        below, above = -np.inf, np.inf
        if self.limits is not None:
            below, above = self.limits[0][a] - theta[a], self.limits[1][a] - theta[a]
        if self.jac == "3-point" and below <= -h and h <= above:
            plus, minus = self._moved(theta, a, h), self._moved(theta, a, -h)
            width = plus[a] - minus[a] if self.flat else 2.0 * h
            return (self._residuals(plus, rows) - self._residuals(minus, rows)) / width
        if h > above:
            h = -h if below <= -h else (above if above >= -below else below)
        if h == 0.0:  # a fixed parameter
            return np.zeros_like(residuals)
        point = self._moved(theta, a, h)
        width = point[a] - theta[a] if self.flat else h  # what was added after rounding
        return (self._residuals(point, rows) - residuals) / width

    def _moved(self, theta: Theta, a: int, h: float) -> Theta:
        delta = np.zeros(self.dim)
        delta[a] = h
        return self.retract(theta, delta)


def _add(theta: Array, delta: Array) -> Array:
    return theta + delta


def _normal(residuals: Array, jacobian: Array, cost: Array, weight: Array | None, outer: bool) -> Normal:
    """Sums of one chunk: residuals (k, p), jacobian (k, p, d), cost and weight (k,)."""
    k, p, d = jacobian.shape
    weighted = jacobian if weight is None else jacobian * weight[:, None, None]
    flat = jacobian.reshape(k * p, d)
    hessian = weighted.reshape(k * p, d).T @ flat
    if weight is not None:
        hessian = 0.5 * (hessian + hessian.T)
    if not outer:
        gradient = weighted.reshape(k * p, d).T @ residuals.reshape(k * p)
        return Normal(k, float(cost.sum()), gradient, hessian)
    each = weighted[:, 0, :] * residuals if p == 1 else np.einsum("kpd,kp->kd", weighted, residuals)
    return Normal(k, float(cost.sum()), each.sum(axis=0), hessian, each.T @ each)
