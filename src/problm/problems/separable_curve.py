r"""One curve with linear coefficients, which are eliminated: the textbook case of variable projection.

With one curve a pass needs no derivatives of the whole basis Phi (m, k), only ``u_a = dPhi_a c`` (m,) and
``e_a = dPhi_a' r`` (k,) for every parameter a. With ``P = I - Phi Phi^+`` (see `problm.problems.separable_linear`)

    gradient = e_a' c,    J'J = (P u_a)' (P u_b) + e_a' (Phi'Phi)^-1 e_b

*Projection* by ``(Phi'Phi)^-1``, once or, if Phi is not well-conditioned, twice, which leaves rounding errors only. A
Phi with nearly dependent columns is decomposed instead.

*Differences in few calls.* Most columns depend on one or two parameters. The first pass moves one parameter at a time
and sees which columns change. After that, parameters that share no column move together: a sum of exponentials needs
two calls instead of 2 d. Whether the columns depend on nothing else where the solve ends is for the caller to check
(`SingleCurveProblem.shares_no_column_at`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..linalg.cholesky_compiled import at_hand
from ..linalg.normal import Normal
from ..support.differences import CENTRAL, EPS, relative
from ..support.products import combine, dot, subtract, times
from .separable_linear import LinearSeparableProblem, columns_of

Array = NDArray[np.float64]
_ONCE = 1e-13
"""Rounding error, relative to a vector, up to which one projection is enough."""
_TWICE = 1e-8
"""The same for two projections: the second one squares it."""


class _Projection(NamedTuple):
    """Basis (k, m), coefficients (k,) and residuals (m,) at a point, and (Phi'Phi)^-1 (k, k)."""

    basis: Array
    coefficients: Array
    residuals: Array
    metric: Array
    orthonormal: Array | None
    """(rank, m) orthonormal rows that span those of a nearly dependent basis."""
    passes: int

    def remove(self, rows: Array) -> None:
        """Subtract from ``rows`` (d, m) what the basis explains."""
        if self.orthonormal is not None:
            subtract(times(self.orthonormal, rows.T).T, self.orthonormal, rows)
            return
        for _ in range(self.passes):
            subtract(times(self.basis, rows.T).T @ self.metric, self.basis, rows)


class SingleCurveProblem(LinearSeparableProblem):
    """A single curve without a robust loss, as one residual block; arguments as for `LinearSeparableProblem`.

    Examples
    --------
    >>> from problm.solver.loop import solve
    >>> x = np.linspace(0, 5, 50)
    >>> problem = SingleCurveProblem(lambda x, a: [np.exp(-a[0] * x)], x, 2.0 * np.exp(-0.7 * x)[None], 1)
    >>> solve(problem, np.array([0.3])).x.round(6)
    array([0.7])
    """

    def __init__(self, basis: Any, x: Any, y: NDArray[Any], dim: int, **options: Any) -> None:
        super().__init__(basis, x, y, dim, **options)
        if self.n != 1 or not self.shared or not self.loss.is_linear:
            raise ValueError("a single curve has one row of y, its x and sigma of shape (m,), and no robust loss")
        self._y: Array = self._weighted(y[0])
        self._last: tuple[bytes, _Projection] | None = None
        self._depends: NDArray[np.bool_] | None = None
        """(d, k): which columns change with which parameter; known after the first pass."""
        self._groups: Sequence[Sequence[int]] = [[a] for a in range(dim)]
        self._compiled = at_hand(dim) is not None
        self._space = np.empty((0, 0, 0))
        """(2, k, m) for the columns on both sides: new pages for each call take longer than the arithmetic."""

    def for_compiled_loop(self) -> tuple[Any, ...] | None:
        return () if self._compiled else None

    def linearize(self, theta: Array, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal:
        at = self._projection(theta)
        if callable(self._derivative) or self._derivative == "cs":
            slopes = self.slopes(theta)
            moved, products = slopes @ at.coefficients, at.residuals @ slopes
        else:
            moved, products = self._by_differences(theta, at)
        at.remove(moved)
        gradient = products @ at.coefficients
        hessian = times(moved, moved.T)
        if self._exact:
            hessian += products @ at.metric @ products.T
        cost = 0.5 * dot(at.residuals, at.residuals)
        if costs is not None:
            costs[:] = cost
        return Normal(1, cost, gradient, 0.5 * (hessian + hessian.T), np.outer(gradient, gradient) if outer else None)

    def coefficients(self, theta: Array) -> Array:
        return self._projection(theta).coefficients[None].copy()

    def residuals(self, theta: Array) -> Array:
        return self._projection(theta).residuals[None].copy()

    def shares_no_column_at(self, theta: Array) -> bool:
        """Whether parameters that move together share no column at this point; True if none do."""
        if self._depends is None or len(self._groups) == self.dim:
            return True
        here, steps = self._columns(theta, 0), CENTRAL * relative(theta)
        for a in range(self.dim):
            moved = theta.copy()
            moved[a] += steps[a]
            there = self._columns(moved, 1)
            if not all(np.array_equal(here[j], there[j]) for j in np.flatnonzero(~self._depends[a])):
                return False
        return True

    def move_one_by_one(self) -> None:
        """Move one parameter at a time from now on, as if every column depended on all."""
        self._groups, self._depends = [[a] for a in range(self.dim)], np.ones((self.dim, self.terms), dtype=bool)

    def _evaluate(self, theta: Array, lo: int, hi: int, costs: Array | None) -> float:
        r = self._projection(theta).residuals
        cost = 0.5 * dot(r, r)
        if costs is not None:
            costs[:] = cost
        return cost

    def _columns(self, theta: Array, side: int) -> Array:
        """The basis without weights, (k, m), valid until the next call for this side."""
        if self._space.shape[1] != self.terms:
            self._space = np.empty((2, self.terms, self.samples))
        value = self._basis(self.x, theta)
        into = self._space[side] if len(value) == self.terms else None
        return columns_of(value, (self.samples,), "basis", into=into).T

    def _projection(self, theta: Array) -> _Projection:
        key = theta.tobytes()
        if self._last is None or self._last[0] != key:
            self._last = key, _project(np.ascontiguousarray(self.phi(theta).T), self._y)
        return self._last[1]

    def _by_differences(self, theta: Array, at: _Projection) -> tuple[Array, Array]:
        """``dPhi_a c`` (d, m) and ``dPhi_a' r`` (d, k) by central differences."""
        c, steps = at.coefficients, CENTRAL * relative(theta)
        weighted = at.residuals if self.weight is None else at.residuals * self.weight
        moved, products = np.empty((self.dim, self.samples)), np.zeros((self.dim, len(c)))
        seen = np.ones((self.dim, len(c)), dtype=bool) if self._depends is None else self._depends
        for group in self._groups:
            high, low = theta.copy(), theta.copy()
            high[group] += steps[group]
            low[group] -= steps[group]
            widths = high - low
            change = np.subtract(self._columns(high, 0), self._columns(low, 1), out=self._space[0])
            product = times(change, weighted)
            for a in group:
                if self._depends is None:
                    seen[a] = change.any(axis=1)
                mine = np.flatnonzero(seen[a])
                part = change if len(mine) == len(c) else change[mine]
                moved[a] = combine(c[mine][None] / widths[a], part)[0]
                products[a, mine] = product[mine] / widths[a]
        if self._depends is None:
            self._depends, self._groups = seen, _grouped(seen)
        if self.weight is not None:
            moved *= self.weight
        return moved, products


def _project(basis: Array, y: Array) -> _Projection:
    gram = times(basis, basis.T)
    size = np.sqrt(gram.diagonal())
    unit = gram / np.outer(size, size) if size.all() else gram
    if not np.isfinite(unit).all():
        basis, metric = np.full_like(basis, np.nan), np.full_like(gram, np.nan)
        return _Projection(basis, metric[0], np.full_like(y, np.nan), metric, None, 1)
    values, vectors = np.linalg.eigh(unit)
    if not size.all() or not _TWICE * values[0] >= EPS:
        rows, inverse = LinearSeparableProblem.decompose(basis.T)
        c = times(inverse, y)
        return _Projection(basis, c, combine(c[None], basis)[0] - y, inverse @ inverse.T, rows.T.copy(), 1)
    metric = (vectors / values) @ vectors.T / np.outer(size, size)
    c = metric @ times(basis, y)
    r = combine(c[None], basis)[0] - y
    passes = 1 if _ONCE * values[0] >= EPS else 2
    if passes == 2:
        change = metric @ times(basis, r)
        c -= change
        subtract(change[None], basis, r[None])
    return _Projection(basis, c, r, metric, None, passes)


def _grouped(depends: NDArray[np.bool_]) -> list[list[int]]:
    """Parameters that share no column, by first fit."""
    groups: list[list[int]] = []
    for a, columns in enumerate(depends):
        free = (group for group in groups if not (depends[group] & columns).any())
        group = next(free, None)
        if group is None:
            groups.append([a])
        else:
            group.append(a)
    return groups
