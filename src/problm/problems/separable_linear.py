r"""Curves with shared non-linear parameters and their own linear coefficients, which are eliminated.

Block j is a curve ``y_j`` (m samples) modelled by ``Phi(alpha) c_j``: its coefficients ``c_j`` (k) are its own, alpha
(d) is shared. Variable projection replaces ``c_j`` by ``Phi^+ y_j`` and leaves

    r_j(alpha) = Phi c_j - y_j = -(I - Phi Phi^+) y_j

with the exact derivative with respect to alpha_a (Golub and Pereyra 1973)

    dr_j = (I - Phi Phi^+) dPhi_a c_j - (Phi^+)' dPhi_a' r_j

whose two parts are orthogonal; Kaufman's approximation leaves out the second. The gradient is ``r_j' dPhi_a c_j``
either way.

If all curves share x and sigma, they share Phi. Apart from ``C = Y Phi^+'`` and ``E_a = R dPhi_a`` (two matrix
products), a pass then only needs the Gram matrices ``C'WC`` and ``E'WE``, and J'J follows from them with matrices of
Phi alone. Curves with their own x or sigma are evaluated by `problm.problems.separable_kernels`.

A robust loss acts on the norm of a whole curve's residuals. It is increasing, so it does not change which
coefficients are best, and elimination stays exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..linalg.normal import Normal
from ..losses import USER_CODE, Loss
from ..support.differences import derivatives, relative
from ..support.reduction import sum_chunks
from .sampled import SampledProblem, SummedProblem

Array = NDArray[np.float64]
Basis = Callable[[Any, Any], Any]

_NO_FLOAT = np.empty(0)
_NO_SQUARE = np.empty((0, 0))


class LinearSeparableProblem(SummedProblem, SampledProblem):
    """Curves as residual blocks, their shared non-linear parameters alpha (d,) as theta.

    Parameters
    ----------
    basis
        ``basis(x, alpha)`` returns the columns of Phi along the last axis, or as a list of k arrays: (m, k) for a
        shared x, (b, m, k) for the x of b curves.
    x
        Shared: any array whose first axis has m entries. Per curve: (n, m, ...) with ``own_x=True``.
    y
        (n, m).
    dim
        d.
    derivative
        ``derivative(x, alpha)`` with Phi's shape and a last axis of d; ``"3-point"`` or ``"cs"``.
    sigma
        None, (m,) or (n, m): standard deviations of the samples; ``inf`` leaves a sample out.
    own_x
        Whether x has one row per curve.
    exact, loss, threads, rng
        Exact or Kaufman's Jacobian; loss on a curve's norm; threads of the kernels (for own x or sigma); random order.

    Examples
    --------
    >>> from problm.solver.loop import solve
    >>> x = np.linspace(0, 5, 50)
    >>> y = np.array([[2.0], [3.0]]) * np.exp(-0.7 * x)  # two curves with one rate
    >>> problem = LinearSeparableProblem(lambda x, alpha: [np.exp(-alpha[0] * x)], x, y, dim=1)
    >>> solve(problem, np.array([0.3])).x.round(6)
    array([0.7])
    """

    def __init__(
        self,
        basis: Basis,
        x: Any,
        y: NDArray[Any],
        dim: int,
        *,
        derivative: Basis | str = "3-point",
        sigma: Array | None = None,
        own_x: bool = False,
        exact: bool = True,
        loss: Loss | None = None,
        threads: int = 1,
        rng: np.random.Generator | int | None = 0,
    ) -> None:
        self.loss = Loss.named("linear") if loss is None else loss
        self._basis, self._derivative = basis, derivative
        self.x, self._exact, self._threads = x, exact, threads
        self.samples = int(y.shape[1])
        self.own_x = own_x
        self.own_sigma = sigma is not None and sigma.ndim == 2
        self.weight = None if sigma is None or self.own_sigma else 1.0 / sigma
        self.shared = not (own_x or self.own_sigma)
        if self.loss.code == USER_CODE and not self.shared:
            raise TypeError(f"loss={self.loss.name!r}: curves with their own x or sigma accept only built-in losses")
        columns = [y, *([x] if own_x else []), *([sigma] if self.own_sigma else [])]
        super().__init__(columns, dim, rng)
        self.cost_bound = self.loss.bound
        self.terms = 0  # k, known from the first basis
        self.components = max(1, self.samples)  # minus k once that is known
        # About 512 KiB of samples per chunk stay in the cache of a core.
        self._chunk = max(8, 65536 // self.samples)

    def linearize(self, theta: Array, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal:
        rows = self.data.rows(lo, hi)
        chunk = (
            self._shared_sums(theta, rows, outer, costs) if self.shared else self._own_sums(theta, rows, outer, costs)
        )
        cost, gradient, hessian, products = sum_chunks(chunk, hi - lo, self._chunk, 1 if self.shared else self._threads)
        return Normal(hi - lo, float(cost[0]), gradient, hessian, products if outer else None)

    def coefficients(self, theta: Array) -> Array:
        """The eliminated coefficients (n, k) of all curves."""
        return np.concatenate([c for _, _, _, c in self._solved(theta)])

    def residuals(self, theta: Array) -> Array:
        """Residuals (n, m) of all curves, ``(Phi c - y) / sigma``."""
        return np.concatenate([(phi @ c[:, :, None])[:, :, 0] - y for _, phi, y, c in self._solved(theta)])

    def coefficient_variances(self, theta: Array, inverse: Array) -> Array:
        """Variances (n, k) of the coefficients for unit noise; ``inverse`` (d, d) is the covariance of alpha.

        Noise moves c directly, by ``Phi^+``, and through alpha, by ``-M_a c`` with ``M_a = Phi^+ dPhi_a``; at the
        minimum the two are independent.
        """
        once = self._once(theta)
        parts, pinv = [], None
        for part, phi, _, c in self._solved(theta):
            if pinv is None or not self.shared:
                pinv = np.linalg.pinv(phi)
                slopes = self._own_slopes(theta, part, once)
                moved = np.einsum("nkm,anmj->ankj", pinv, slopes, optimize=True)
            moves = (moved @ c[:, :, None])[..., 0]
            parts.append((pinv**2).sum(axis=2) + np.einsum("ank,ab,bnk->nk", moves, inverse, moves, optimize=True))
        return np.concatenate(parts)

    def _solved(self, theta: Array) -> Iterator[tuple[tuple[Array, ...], Array, Array, Array]]:
        """Chunks of the curves in natural order: rows, bases (b or 1, m, k), data (b, m), coefficients (b, k)."""
        rows, once = self.data.rows(0, self.n), None if self.own_x else (self.phi(theta), _NO_FLOAT)
        pinv = self.decompose(once[0])[1] if self.shared and once is not None else None
        for a in range(0, self.n, self._chunk):
            part = self._part(rows, a, min(a + self._chunk, self.n))
            phi, y = self._own_basis(theta, part, once)
            if pinv is not None:
                yield part, phi[None], y, y @ pinv.T
            else:
                from .separable_kernels import block_costs

                c = np.empty((len(y), phi.shape[2]))
                block_costs(phi, y, 0, 1.0, _NO_FLOAT, c)
                yield part, phi, y, c

    def first_bad_row(self, theta: Array) -> int | None:
        bad = np.flatnonzero(~np.isfinite(self.costs(theta, 0, self.n)))
        return int(bad[0]) if len(bad) else None

    def phi(self, theta: Array, x: Any = None, count: int | None = None) -> Array:
        """The weighted basis (m, k), or (b, m, k) for the x of ``count`` curves."""
        shape = (self.samples,) if count is None else (count, self.samples)
        phi = columns_of(self._basis(self.x if x is None else x, theta), shape, "basis")
        if self.terms == 0:
            self.terms = phi.shape[-1]
            self.components = max(1, self.samples - self.terms)
        return phi if self.weight is None else phi * self.weight[:, None]

    def slopes(self, theta: Array, x: Any = None, count: int | None = None) -> Array:
        """Derivatives of the weighted basis, (d, m, k) or (d, b, m, k)."""
        if callable(self._derivative):
            shape = (self.samples,) if count is None else (count, self.samples)
            raw = np.asarray(self._derivative(self.x if x is None else x, theta), dtype=np.float64)
            if raw.shape[:-2] != shape or raw.shape[-1] != self.dim:
                raise ValueError(
                    f"derivative must return an array of shape {_shape(*shape, self.terms or 'k', self.dim)}: "
                    f"samples, basis columns, parameters; got {raw.shape}"
                )
            out = np.moveaxis(raw, -1, 0)
            return np.ascontiguousarray(out if self.weight is None else out * self.weight[:, None])
        if self._derivative != "cs":
            return derivatives(lambda point: self.phi(point, x, count), theta, relative(theta))
        shape = (self.samples,) if count is None else (count, self.samples)

        def complex_phi(point: NDArray[Any]) -> Any:
            return columns_of(self._basis(self.x if x is None else x, point), shape, "basis", complex)

        parts = derivatives(complex_phi, theta, np.ones(self.dim), "cs")
        return parts if self.weight is None else parts * self.weight[:, None]

    @staticmethod
    def decompose(phi: Array) -> tuple[Array, Array]:
        """Orthonormal basis U (m, rank) of Phi's range, and Phi^+ (k, m)."""
        if not np.isfinite(phi).all():
            return np.full_like(phi, np.nan), np.full_like(phi.T, np.nan)
        U, s, Vt = np.linalg.svd(phi, full_matrices=False)
        keep = s > 1e-13 * max(s[0], 1e-300) * max(phi.shape)
        U, inverse = U[:, keep], (Vt[keep].T / s[keep])
        return U, inverse @ U.T

    def _shared_sums(
        self, theta: Array, rows: tuple[NDArray[Any], ...], outer: bool, costs: Array | None
    ) -> Callable[[int, int], tuple[Array, ...]]:
        d = self.dim
        phi = self.phi(theta)
        k = phi.shape[1]
        U, pinv = self.decompose(phi)
        slopes = self.slopes(theta)
        # Factors of the Gram matrices of a chunk: P dPhi_a, and Phi^+ (Phi^+)' = (Phi'Phi)^-1.
        across = slopes - U @ (U.T @ slopes)
        pairs = np.einsum("ami,bmj->abij", across, across, optimize=True)
        metric = pinv @ pinv.T
        flat = slopes.transpose(1, 0, 2).reshape(self.samples, d * k)

        def chunk(a: int, b: int) -> tuple[Array, ...]:
            y = self._weighted(rows[0][a:b])
            C = y @ pinv.T
            R = C @ phi.T
            R -= y
            cost, w = self.loss.cost_and_weight(np.einsum("bm,bm->b", R, R))
            if costs is not None:
                costs[a:b] = cost
            E = R @ flat
            gradients = w[:, None] * np.einsum("bak,bk->ba", E.reshape(-1, d, k), C)
            hessian = np.einsum("abij,ij->ab", pairs, (C * w[:, None]).T @ C)
            if self._exact:
                gram = ((E * w[:, None]).T @ E).reshape(d, k, d, k)
                hessian += np.einsum("aibj,ij->ab", gram, metric)
            products = gradients.T @ gradients if outer else _NO_SQUARE.copy()
            return cost.sum(keepdims=True), gradients.sum(axis=0), 0.5 * (hessian + hessian.T), products

        return chunk

    def _own_sums(
        self, theta: Array, rows: tuple[NDArray[Any], ...], outer: bool, costs: Array | None
    ) -> Callable[[int, int], tuple[Array, ...]]:
        from .separable_kernels import block_sums

        d = self.dim
        once = self._once(theta)

        def chunk(a: int, b: int) -> tuple[Array, ...]:
            part = self._part(rows, a, b)
            phi, y = self._own_basis(theta, part, once)
            slopes = self._own_slopes(theta, part, once)
            gradient, hessian = np.zeros(d), np.zeros((d, d))
            products = np.zeros((d, d) if outer else (0, 0))
            cost = block_sums(
                phi, slopes, y, self.loss.code, self.loss.scale**2, int(self._exact), int(outer),
                _NO_FLOAT if costs is None else costs[a:b], gradient, hessian, products,
            )  # fmt: skip
            for square in (hessian, products):
                square += np.tril(square, -1).T
            return np.array([cost]), gradient, hessian, products

        return chunk

    def _evaluate(self, theta: Array, lo: int, hi: int, costs: Array | None) -> float:
        rows = self.data.rows(lo, hi)
        once = None if self.own_x else (self.phi(theta), _NO_FLOAT)
        if self.shared and once is not None:
            phi, pinv = once[0], self.decompose(once[0])[1]

        def chunk(a: int, b: int) -> tuple[Array, ...]:
            if self.shared:
                y = self._weighted(rows[0][a:b])
                R = y @ pinv.T @ phi.T
                R -= y
                part = self.loss.cost(np.einsum("bm,bm->b", R, R))
                if costs is not None:
                    costs[a:b] = part
                return (part.sum(keepdims=True),)
            from .separable_kernels import block_costs

            own, y = self._own_basis(theta, self._part(rows, a, b), once)
            into = _NO_FLOAT if costs is None else costs[a:b]
            return (np.array([block_costs(own, y, self.loss.code, self.loss.scale**2, into, _NO_SQUARE)]),)

        return float(sum_chunks(chunk, hi - lo, self._chunk, 1 if self.shared else self._threads)[0][0])

    def _once(self, theta: Array) -> tuple[Array, Array] | None:
        """Basis and slopes of a shared x, which the curves then divide by their own sigma."""
        return None if self.own_x else (self.phi(theta), self.slopes(theta)[:, None])

    def _own_basis(
        self, theta: Array, part: tuple[Array, ...], once: tuple[Array, Array] | None
    ) -> tuple[Array, Array]:
        """Weighted bases (b, m, k) and data (b, m) of a part of the curves."""
        y = self._weighted(part[0])
        phi = self.phi(theta, part[1], len(y)) if once is None else once[0]
        if self.own_sigma:
            phi, y = phi / part[-1][:, :, None], y / part[-1]
        return np.ascontiguousarray(phi), np.ascontiguousarray(y)

    def _own_slopes(self, theta: Array, part: tuple[Array, ...], once: tuple[Array, Array] | None) -> Array:
        """Weighted slopes (d, b, m, k) of a part of the curves."""
        slopes = self.slopes(theta, part[1], len(part[0])) if once is None else once[1]
        return np.ascontiguousarray(slopes / part[-1][:, :, None] if self.own_sigma else slopes)

    def _weighted(self, y: NDArray[Any]) -> Array:
        y = y.astype(np.float64, copy=False)
        return y if self.weight is None else y * self.weight

    def _part(self, rows: tuple[NDArray[Any], ...], a: int, b: int) -> tuple[Array, ...]:
        return tuple(np.asarray(r[a:b], dtype=np.float64) for r in rows)


def _shape(*lengths: int | str) -> str:
    return f"({', '.join(map(str, lengths))})"


def columns_of(value: Any, shape: tuple[int, ...], name: str, kind: type = float, into: Array | None = None) -> Array:
    """Basis columns along the last axis, from an array or a list of columns (numbers are constant columns), which is
    written to ``into`` (k, *shape), if given."""
    if isinstance(value, (list, tuple)):
        # Stored column by column: interleaving them takes as long as a function or two.
        stacked = np.empty((len(value), *shape), dtype=kind) if into is None else into
        for place, column in zip(stacked, value, strict=True):
            place[...] = np.broadcast_to(np.asarray(column, dtype=kind), shape)
        value = np.moveaxis(stacked, 0, -1)
    array: Array = np.asarray(value, dtype=kind)
    if array.ndim != len(shape) + 1 or array.shape[:-1] != shape or array.shape[-1] == 0:
        raise ValueError(
            f"{name} must return an array of shape {_shape(*shape, 'k')} with the k basis functions along the last "
            f"axis, or a list of k columns of shape {shape}; got {array.shape}"
        )
    return array
