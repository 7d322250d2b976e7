r"""Blocks with their own non-linear parameters, which are eliminated by a few Gauss-Newton steps per block.

Block j has residuals ``r_j(theta, z_j)`` (p) with shared parameters theta (d) and its own z_j (q, few). As a
function of theta alone its cost is ``f_j(theta) = min_z loss(||r_j(theta, z)||)``. Bundle adjustment is of this
kind (z is the point; `problm.vision.bundle.problem` is its compiled form), and so are curves with their own offset in
time or phase.

*Inner solve*, all blocks of a chunk at a time: ``(V + mu diag V) u = -J_z' r``, ``V = J_z' J_z``, mu = 0 while
the cost falls, until the predicted decrease is below 1e-12 of the block's cost. The loss is increasing in the
norm, so it does not matter here. *Reduction*: with ``J_z = Q R`` the residuals and Jacobian are ``(I - QQ')
[r, J_theta]``. The gradient is exact at the inner minimum (the envelope theorem), and J'J is the Schur complement.

*A function of theta.* Inner solves start from the z of the last linearised theta (`problm.problems.warm_starts`).
Because every solve runs to 1e-12, costs depend on the starts and the order of evaluations by no more than about that,
as long as a block has a single minimum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..linalg.normal import Normal
from ..losses import Loss
from ..support.differences import derivatives, relative
from .sampled import SampledProblem
from .warm_starts import WarmStarts

Array = NDArray[np.float64]
Index = NDArray[np.int64]

INNER_TOL = 1e-12
INNER_STEPS = 50


class SeparableProblem(SampledProblem):
    """Residual blocks with a few non-linear parameters per block.

    Parameters
    ----------
    residual
        ``residual(theta, z, *rows) -> (b, p)`` for b blocks, with their parameters ``z`` (b, q) and rows of ``data``.
    z0
        (n, q) starts of the blocks' own parameters.
    data
        Arrays with n rows each.
    dim
        d, the number of shared parameters (of the tangent space with ``retract``).
    jac, inner_jac
        ``(theta, z, *rows) -> (b, p, d)`` and ``(b, p, q)``; central differences if not given.
    retract
        ``(theta, delta) -> theta``; addition if not given.
    loss
        Robust loss on the norm of a block's residuals.
    rng
        Random seed for the order of the blocks.

    Examples
    --------
    Pulses of one common width, each with its own amplitude and position:

    >>> from problm.solver.loop import solve
    >>> rng = np.random.default_rng(0)
    >>> x = np.linspace(-4, 4, 60)
    >>> place, height = rng.uniform(-1, 1, 500), rng.uniform(1, 2, 500)
    >>> y = height[:, None] * np.exp(-((x - place[:, None]) / 0.8) ** 2) + 0.02 * rng.normal(size=(500, 60))
    >>> def pulse(theta, z, y):
    ...     return z[:, :1] * np.exp(-((x - z[:, 1:]) / theta[0]) ** 2) - y
    >>> problem = SeparableProblem(pulse, np.column_stack([y.max(axis=1), x[y.argmax(axis=1)]]), (y,), 1)
    >>> fit = solve(problem, np.array([1.5]))
    >>> fit.success, bool(abs(fit.x[0] - 0.8) < 0.01), bool(abs(problem.inner(fit.x)[:, 1] - place).max() < 0.1)
    (True, True, True)
    """

    def __init__(
        self,
        residual: Callable[..., Any],
        z0: ArrayLike,
        data: Sequence[NDArray[Any]],
        dim: int,
        *,
        jac: Callable[..., Any] | None = None,
        inner_jac: Callable[..., Any] | None = None,
        retract: Callable[[Any, Array], Any] | None = None,
        loss: Loss | None = None,
        rng: np.random.Generator | int | None = 0,
    ) -> None:
        self.z = np.array(z0, dtype=np.float64)
        if self.z.ndim != 2 or 0 in self.z.shape:
            raise ValueError(f"z0 must have the shape (blocks, own parameters), got {self.z.shape}")
        if not np.isfinite(self.z).all():
            raise ValueError("z0 must be finite")
        super().__init__([np.arange(len(self.z)), *(np.asarray(a) for a in data)], int(dim), rng)
        self.loss = Loss.named("linear") if loss is None else loss
        self.cost_bound = self.loss.bound
        self._residual, self._jac, self._inner_jac = residual, jac, inner_jac
        self.move = retract
        self._starts = WarmStarts(self.z)
        self._size = 0  # p, known from the first residuals

    def linearize(self, theta: Any, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal:
        self._starts.linearize_at(theta)
        total = Normal.zero(self.dim, outer)
        for start, rows, data in self._chunks(lo, hi):
            z = self._starts.read(rows)
            r, Jz = self._solve(theta, z, data)
            self.z[rows] = z
            J = self._outer_jacobian(theta, z, data, r.shape[1])
            # QR of [J_z, r, J]: the remaining parts of r and J are those that the block's parameters cannot explain.
            Q = np.linalg.qr(Jz)[0]
            block = np.concatenate([r[:, :, None], J], axis=2)
            block -= Q @ (Q.transpose(0, 2, 1) @ block)
            cost, w = self.loss.cost_and_weight(np.einsum("bp,bp->b", r, r))
            if costs is not None:
                costs[start : start + len(rows)] = cost
            left, J = block[:, :, 0], block[:, :, 1:]
            gradients = w[:, None] * np.einsum("bp,bpd->bd", left, J)
            flat = (np.sqrt(w)[:, None, None] * J).reshape(-1, self.dim)
            total = total + Normal(
                len(rows),
                float(cost.sum()),
                gradients.sum(axis=0),
                flat.T @ flat,
                gradients.T @ gradients if outer else None,
            )
        return total

    def costs(self, theta: Any, lo: int, hi: int) -> Array:
        return np.concatenate([self.loss.cost(np.einsum("bp,bp->b", r, r)) for r in self._evaluate(theta, lo, hi)])

    def cost(self, theta: Any) -> float:
        return float(sum(self.loss.cost(np.einsum("bp,bp->b", r, r)).sum() for r in self._evaluate(theta, 0, self.n)))

    def residuals(self, theta: Any) -> Array:
        """Residuals (n, p) of all blocks at the optimum of their own parameters."""
        return np.concatenate(list(self._evaluate(theta, 0, self.n)))

    def inner(self, theta: Any) -> Array:
        """The eliminated parameters (n, q) at theta."""
        for _ in self._evaluate(theta, 0, self.n):
            pass
        return self._starts.trial.copy()

    def first_bad_row(self, theta: Any) -> int | None:
        bad = np.flatnonzero(~np.isfinite(self.costs(theta, 0, self.n)))
        return int(bad[0]) if len(bad) else None

    def _evaluate(self, theta: Any, lo: int, hi: int) -> Iterator[Array]:
        number = self._starts.number(theta)
        for _, rows, data in self._chunks(lo, hi):
            z = self._starts.read(rows)
            r, _ = self._solve(theta, z, data)
            self._starts.tried(rows, z, number)
            yield r

    def _chunks(self, lo: int, hi: int) -> Iterator[tuple[int, Index, tuple[NDArray[Any], ...]]]:
        columns = self.data.rows(lo, hi)
        # About 4 MiB of Jacobian and temporaries: larger chunks exceed the cache, smaller ones need more NumPy calls.
        size = max(64, 524288 // max(1, (self._size or 16) * (self.dim + 4)))
        for a in range(0, hi - lo, size):
            rows, *data = (c[a : a + size] for c in columns)
            yield a, np.asarray(rows, dtype=np.int64), tuple(data)

    def _evaluate_residual(self, theta: Any, z: Array, data: tuple[NDArray[Any], ...]) -> Array:
        r = np.asarray(self._residual(theta, z, *data), dtype=np.float64)
        if r.ndim != 2 or len(r) != len(z):
            raise ValueError(f"residual must return an array of shape ({len(z)}, p), one row per block; got {r.shape}")
        self._size = int(r.shape[1])
        self.components = max(1, self._size - int(self.z.shape[1]))  # minus the block's own parameters
        return r

    def _inner_jacobian(self, theta: Any, z: Array, data: tuple[NDArray[Any], ...], p: int) -> Array:
        if self._inner_jac is not None:
            return _checked("inner_jac", self._inner_jac(theta, z, *data), (len(z), p, z.shape[1]))
        by = derivatives(lambda moved: self._evaluate_residual(theta, moved, data), z, relative(z))
        return np.ascontiguousarray(np.moveaxis(by, 0, 2))

    def _outer_jacobian(self, theta: Any, z: Array, data: tuple[NDArray[Any], ...], p: int) -> Array:
        if self._jac is not None:
            return _checked("jac", self._jac(theta, z, *data), (len(z), p, self.dim))
        flat = isinstance(theta, np.ndarray) and theta.shape == (self.dim,)
        sizes = relative(theta if flat else np.ones(self.dim))
        by = derivatives(lambda moved: self._evaluate_residual(moved, z, data), theta, sizes, retract=self.move)
        return np.ascontiguousarray(np.moveaxis(by, 0, 2))

    def _solve(self, theta: Any, z: Array, data: tuple[NDArray[Any], ...]) -> tuple[Array, Array]:
        """Move z (b, q) to the minimum of each block, in place; return residuals and inner Jacobian there."""
        r = self._evaluate_residual(theta, z, data)
        J = self._inner_jacobian(theta, z, data, r.shape[1])
        cost = 0.5 * np.einsum("bp,bp->b", r, r)
        mu = np.zeros(len(z))
        active = np.flatnonzero(np.isfinite(cost))
        for _ in range(INNER_STEPS):
            if not len(active):
                break
            part = tuple(column[active] for column in data)
            g = np.einsum("bpq,bp->bq", J[active], r[active])
            V = np.einsum("bpq,bps->bqs", J[active], J[active])
            step, promised = _damped(V, g, mu[active])
            # A damped step predicts little at any distance from the minimum: only an undamped one may end the solve.
            done = (mu[active] == 0.0) & ~(promised > INNER_TOL * cost[active] + 1e-300)
            done |= mu[active] > 1e10
            new = z[active] + step
            r_new = self._evaluate_residual(theta, new, part)
            cost_new = 0.5 * np.einsum("bp,bp->b", r_new, r_new)
            better = (cost_new < cost[active]) & ~done
            worse = ~better & ~done
            done |= worse & (cost_new - cost[active] <= 1e-14 * cost[active])  # rounding
            chosen = active[better]
            z[chosen], r[chosen], cost[chosen] = new[better], r_new[better], cost_new[better]
            if len(chosen):
                J[chosen] = self._inner_jacobian(theta, z[chosen], tuple(c[chosen] for c in data), r.shape[1])
            mu[chosen] = np.where(mu[chosen] < 1e-5, 0.0, 0.1 * mu[chosen])
            mu[active[worse]] = np.maximum(10.0 * mu[active[worse]], 1e-3)
            active = active[~done]
        return r, J


def _damped(V: Array, g: Array, mu: Array) -> tuple[Array, Array]:
    """Steps (b, q) of ``(V + mu diag V) u = -g`` and their predicted decreases; vanishing directions are not moved."""
    q = V.shape[1]
    diagonal = np.einsum("bqq->bq", V)
    scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    unit = V * scale[:, :, None] * scale[:, None, :]
    unit[:, np.arange(q), np.arange(q)] += mu[:, None] + 1e-14
    unit[~np.isfinite(unit).all(axis=(1, 2))] = np.eye(q)
    unit[:, np.arange(q), np.arange(q)] += diagonal <= 0.0
    try:
        step = -scale * np.linalg.solve(unit, (scale * g)[:, :, None])[:, :, 0]
    except np.linalg.LinAlgError:
        step = -scale * np.einsum("bqs,bs->bq", np.linalg.pinv(unit, hermitian=True), scale * g)
    return step, -0.5 * np.einsum("bq,bq->b", step, g)


def _checked(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    array = np.asarray(value, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} must return an array of shape {shape}, got {array.shape}")
    return array
