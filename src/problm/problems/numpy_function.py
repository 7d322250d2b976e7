"""Problems given as NumPy functions of a batch of rows.

``fun(theta, *rows)`` gets the arrays of ``data`` sliced to some rows and returns their residuals, (k,) or (k, p);
``jac(theta, *rows)`` returns (k, d) or (k, p, d). Rows are passed in chunks that fit in the cache. Without ``data``
the function returns all residuals at once, as in SciPy, and no batch can be drawn; ``whole`` passes all rows of the
data in every call (`problm.problems.row_wise`).

A trial on all rows evaluates them in one call, and the linearisation that follows at the same point in chunks. A
row-wise function gives the same values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from sys import getrefcount
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..linalg.cholesky_compiled import at_hand
from ..linalg.normal import Normal
from ..losses import USER_CODE, Loss
from ..sampling.columns import SampledColumns
from ..sampling.order import RandomOrder
from ..solver.problem import STRONG_CREEP, Problem, Theta
from ..support.caller import OURS, UNDEFINED, as_called, undefined
from ..support.digest import code_digest, digest
from ..support.products import dot, times
from .bend import bent
from .differences import Differences
from .row_wise import Comparison
from .sparse import as_dense, as_sparse, is_sparse, sparse_sums

Array = NDArray[np.float64]
Rows = tuple[NDArray[Any], ...]
_DOUBLE = np.dtype(np.float64)


class FunctionProblem(Problem):
    """Residual blocks computed by a NumPy function.

    Parameters
    ----------
    fun, jac
        As above; ``jac`` may be ``"2-point"``, ``"3-point"`` or ``"cs"`` (complex step). A Jacobian of a function
        without data may be sparse, or a ``LinearOperator``.
    data
        Arrays with N rows each. If empty, ``fun(theta)`` returns all residuals, and ``total`` is the number of blocks.
    whole
        Whether to pass all rows in every call.
    known
        A point and the residuals of all rows there, which are not evaluated again.
    differences
        Difference scheme and its options, for a ``jac`` that is not a function.
    refused
        Kinds of Jacobians (``sparse``, ``operator``) that are refused, with the reasons.
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
        whole: bool = False,
        known: tuple[Theta, Array] | None = None,
        differences: Differences | None = None,
        refused: Mapping[str, str] | None = None,
        rng: np.random.Generator | int | None = 0,
    ) -> None:
        self.fun, self.loss = fun, loss
        self._call = as_called(fun)
        self.robust = not loss.is_linear
        self.creep = STRONG_CREEP if self.robust and loss.code != USER_CODE else math.inf
        self._given = jac if callable(jac) else None
        self.jac = as_called(jac) if callable(jac) else None
        self.dim = dim
        self.components = components
        self.data = SampledColumns(data, rng) if data else None
        self.n = self.data.n if self.data is not None else int(total or 0)
        self.digits_up_to = 20_000 if self.data is None else self.few  # without data the method never changes
        self.cost_bound = loss.bound
        self.move = retract
        self.flat = retract is None
        self.nfev, self.njev = 0 if known is None else 1, 0
        """Numbers of calls for residuals (without those for differences) and for Jacobians."""
        self._refused = refused or {}
        self.differences = differences or Differences("2-point" if callable(jac) else jac, dim, retract, limits)
        self.by_differences = not callable(jac) and self.differences.scheme != "cs"
        self._last = None if known is None else (known[0], 0, self.n, 0, self.n, known[1])
        # About 1 MiB of Jacobian and temporaries per chunk. A quarter of it fits in the second-level cache but takes a
        # fifth longer, because of more calls (N = 10^4 to 10^6); four times as much is slower again.
        self.chunk = self.n if whole else max(256, 131072 // (components * (dim + 4)))
        # As many equations as unknowns may have an exact solution, which the scaling of the compiled solver rounds.
        self._cholesky = at_hand(dim) if self.n * components > dim else None
        self._in_one_call = self.chunk >= self.n
        self._comparison: Comparison | None = None
        if self.data is not None and self.chunk < self.n:
            self._comparison = Comparison(self._residuals, self.data.columns, components, self.chunk)

    few = 48_000
    """Number of rows up to which batches save nothing. With batches some models of `bench.studies.scipy_calls` were
    slower than MINPACK up to 40,001 rows, none at 50,000; with all rows none was."""

    def linearize(self, theta: Theta, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal:
        if self._in_one_call and lo == 0 and hi == self.n and self.journal is None:
            rows = () if self.data is None else self.data.rows(0, hi)
            r = self._known(theta, 0, hi, 0, hi)
            r = self._residuals(theta, rows) if r is None else r
            return self._sums(r, self._jacobian(theta, rows, r), outer, costs)
        done, total = self._noted()
        for k, (start, stop, rows) in enumerate(self._chunks(lo, hi)[done:], done + 1):
            residuals = self._known(theta, lo, hi, start, stop)
            if residuals is None:
                residuals = self._residuals(theta, rows)
            if self._comparison is not None and lo == 0 and hi == self.n:
                self._comparison.compare(theta, start, residuals)
            jacobian = self._jacobian(theta, rows, residuals)
            part = self._sums(residuals, jacobian, outer, None if costs is None else costs[start - lo : stop - lo])
            total = part if total is None else total + part
            self._note(k, total)
        assert isinstance(total, Normal)
        return total

    def second_order(self, theta: Theta) -> tuple[Normal, Array] | None:
        return bent(self._parts(theta), self.loss, self.components) if self.creep < math.inf else None

    def _parts(self, theta: Theta) -> Iterator[tuple[Normal, Array, Array]]:
        """Sums, residuals and transposed Jacobian of each chunk of all rows."""
        for _, _, rows in self._chunks(0, self.n):
            r = self._residuals(theta, rows)
            jacobian = self._jacobian(theta, rows, r)
            yield self._sums(r, jacobian, False, None), r, jacobian

    def costs(self, theta: Theta, lo: int, hi: int) -> Array:
        costs = np.empty(hi - lo)
        for start, stop, rows in self._chunks(lo, hi):
            r = self._residuals(theta, rows)
            costs[start - lo : stop - lo] = self.loss.cost(self._squares(r))
            if lo == 0:  # the batch, which is linearised next, but not its hold-out block
                self._last = (theta, lo, hi, start, stop, r)
        return costs

    def cost(self, theta: Theta) -> float:
        if self._in_one_call and self.journal is None:
            r = self._residuals(theta, () if self.data is None else self.data.rows(0, self.n))
            self._last = (theta, 0, self.n, 0, self.n, r)
            return self._cost_of(r)
        done, total = self._noted()
        together, total = None, total or 0.0
        if self.data is not None:
            self.data.check_files()
        if self._comparison is not None and self.journal is None:
            together = self._comparison.together(theta)
        for k, (start, stop, rows) in enumerate(self._chunks(0, self.n)[done:], done + 1):
            p = self.components
            r = self._residuals(theta, rows) if together is None else together[start * p : stop * p]
            total += self._cost_of(r)
            if together is None:
                self._last = (theta, 0, self.n, start, stop, r)
            self._note(k, total)
        return float(total)

    def is_row_wise_at(self, theta: Theta) -> bool:
        """Whether chunks of rows give the same residuals at ``theta`` as all rows in one call."""
        return self._comparison is None or self._comparison.agreed(theta)

    def residuals(self, theta: Theta) -> Array:
        """Residuals of all blocks in the user's order, (n, p)."""
        parts = [self._residuals(theta, rows).reshape(-1, self.components) for _, _, rows in self._chunks(0, self.n)]
        return np.concatenate(parts)

    def jacobian(self, theta: Theta) -> Any:
        """Jacobian of all blocks in the user's order, (n, p, d), or sparse (n, d)."""
        parts = []
        for _, _, rows in self._chunks(0, self.n):
            part = self._jacobian(theta, rows, self._residuals(theta, rows))
            if not isinstance(part, np.ndarray):  # only without data, with one residual per block
                return part
            parts.append(part.T.reshape(-1, self.components, self.dim))
        return np.concatenate(parts)

    def factor(self, theta: Theta, lo: int, hi: int) -> Array:
        """Triangular factor of the weighted [J r] of the blocks at positions [lo, hi), (d + 1, d + 1)."""
        triangle: Any = np.zeros((0, self.dim + 1))
        for _, _, rows in self._chunks(lo, hi):
            r = self._residuals(theta, rows)
            columns = np.vstack([as_dense(self._jacobian(theta, rows, r)), r]) * self._roots(r)
            triangle = np.linalg.qr(np.vstack([triangle, columns.T]), mode="r")
        return np.asarray(triangle)

    def concentration(self, theta: Theta, lo: int, hi: int, root: Array) -> Array:
        sums = np.zeros((root.shape[1], root.shape[1]))
        for _, _, rows in self._chunks(lo, hi):
            residuals = self._residuals(theta, rows)
            white = (root.T @ as_dense(self._jacobian(theta, rows, residuals))) * self._roots(residuals)
            squares = np.einsum("rk,rk->k", white, white).reshape(-1, self.components).sum(axis=1)
            sums += (white * np.repeat(squares, self.components)) @ white.T
        return sums

    def uncertainty(self, theta: Theta, lo: int, hi: int) -> tuple[Array, Array] | None:
        """Norms (d,) of the changes of the columns of the weighted Jacobian, and changes (d,) of the gradient, when the
        steps of the differences double.

        They are as large as the errors of forward differences, and three times those of central ones. None for exact
        derivatives.
        """
        if not self.by_differences:
            return None
        squares, gradient = np.zeros(self.dim), np.zeros(self.dim)
        for _, _, rows in self._chunks(lo, hi):
            residuals = self._residuals(theta, rows)
            change = as_dense(self._jacobian(theta, rows, residuals, 2.0) - self._jacobian(theta, rows, residuals))
            root = self._roots(residuals)
            change *= root
            residuals = residuals * root
            squares += np.einsum("ij,ij->i", change, change)
            gradient += times(change, residuals)
        return np.sqrt(squares), gradient

    def refine_derivatives(self) -> bool:
        """Switch from forward to central differences; return whether that was possible."""
        return self.jac is None and self.differences.refine()

    def boundary(self, position: int) -> int:
        return position if self.data is None else self.data.order.boundary(position)

    def random_order(self) -> RandomOrder | None:
        return None if self.data is None else self.data.order

    def indices(self, lo: int, hi: int) -> NDArray[np.int64]:
        """The user's row numbers at the positions [lo, hi)."""
        return np.arange(lo, hi) if self.data is None else self.data.order.indices(lo, hi)

    def release(self) -> None:
        if self.data is not None:
            self.data.release()

    def for_compiled_loop(self) -> tuple[Any, ...] | None:
        sparse = self.differences.sparsity is not None
        return () if self.flat and self._cholesky is not None and not sparse else None

    def first_bad_row(self, theta: Theta) -> int | None:
        """The first row, in the user's order, with a residual or derivative that is not finite."""
        for start, _, rows in self._chunks(0, self.n):
            r = self._residuals(theta, rows)
            finite = np.isfinite(r) & np.isfinite(as_dense(self._jacobian(theta, rows, r))).all(axis=0)
            bad = ~finite.reshape(-1, self.components).all(axis=1)
            if bad.any():
                return start + int(np.argmax(bad))
        return None

    def _chunks(self, lo: int, hi: int) -> list[tuple[int, int, Rows]]:
        if self.data is None:
            return [(0, self.n, ())]
        rows = self.data.rows(lo, hi)
        if hi - lo <= self.chunk:
            return [(lo, hi, rows)]
        cuts = [*range(lo, hi, self.chunk), hi]
        return [(a, b, tuple(c[a - lo : b - lo] for c in rows)) for a, b in pairwise(cuts)]

    def _known(self, theta: Theta, lo: int, hi: int, start: int, stop: int) -> Array | None:
        """The residuals of the last trial, if it was at this point and on these rows. The range must be the same: all
        rows are read in another order than a batch."""
        last = self._last
        return last[5] if last is not None and last[0] is theta and last[1:5] == (lo, hi, start, stop) else None

    def _noted(self) -> tuple[int, Any]:
        """Number of chunks of the present full pass that a killed solve had finished, and their sum."""
        return (0, None) if self.journal is None else self.journal.resume("sum")

    def _note(self, chunks: int, total: Normal | float) -> None:
        if self.journal is not None:
            self.journal.note(chunks, total)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_call": None, "jac": None}  # which hold the state of the caller

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._call = as_called(self.fun)
        self.jac = None if self._given is None else as_called(self._given)

    def fingerprint(self) -> dict[str, Any]:
        derivatives = self.differences.scheme if self._given is None else code_digest(self._given)
        model = {"model": code_digest(self.fun), "derivatives": derivatives, "loss": [self.loss.name, self.loss.scale]}
        return model if self.data is None else {**model, "rows": digest(self.data.columns)}

    def _residuals(self, theta: Theta, rows: Rows) -> Array:
        """Residuals of some rows along one axis, (k * p,)."""
        self.nfev += 1
        return self._evaluated(theta.copy() if self.flat else theta, rows)  # a copy, in case the function writes to it

    def _evaluated(self, theta: Theta, rows: Rows) -> Array:
        """Residuals of some rows at a point that the function may write to."""
        k = len(rows[0]) if rows else self.n
        try:
            r = self._call(theta, *rows)
        except UNDEFINED as error:
            return undefined(error, k * self.components)
        if type(r) is np.ndarray and (r.base is not None or getrefcount(r) > OURS):
            r = r.copy()  # the function may keep it and reuse it in the next call
        if type(r) is np.ndarray and r.dtype is _DOUBLE and r.shape == (k,) and self.components == 1:
            return r
        r = np.asarray(r)
        if not r.shape and self.data is None:
            r = r.reshape(1)  # a single residual, as in SciPy
        if r.shape != (k, self.components) and not (r.shape == (k,) and self.components == 1):
            want = f"({k},)" if self.components == 1 else f"({k}, {self.components})"
            raise ValueError(f"fun returned shape {r.shape} for {k} rows of data, expected {want}")
        r = np.asarray(r.reshape(-1))
        if r.dtype.char in "dFD" and r.dtype.isnative:
            return r
        if r.dtype.char in "ef":  # single precision: longer steps for the differences
            self.differences.eps = float(np.finfo(r.dtype).eps)
        return r.astype(np.complex128 if r.dtype.kind == "c" else np.float64)

    def _jacobian(self, theta: Theta, rows: Rows, residuals: Array, longer: float = 1.0) -> Any:
        """Transposed Jacobian of some rows, (d, k * p); differences use the usual steps times ``longer``.

        Sparse Jacobians are not transposed: (k, d).
        """
        self.njev += 1
        if self.jac is None:
            fun = partial(_called, self.fun, rows) if self.differences.parallel else partial(self._evaluated, rows=rows)
            return self.differences.jacobian(fun, theta, residuals, longer, lambda t: self._call(t, *rows))
        k = len(residuals) // self.components
        j = self.jac(theta.copy() if self.flat else theta, *rows)
        if not isinstance(j, np.ndarray) and (hasattr(j, "matmat") or is_sparse(j)):
            kind = "sparse" if is_sparse(j) else "operator"
            if kind in self._refused:
                raise ValueError(self._refused[kind])
            return as_sparse(j, (k, self.dim))
        j = np.asarray(j, dtype=np.float64)
        if self.data is None and k == 1 and j.shape == (self.dim,):
            j = j.reshape(1, self.dim)  # a single residual
        if self.data is None and self.components == 1 and j.ndim == 3:
            raise ValueError(f"jac returned shape {j.shape}, expected ({k}, {self.dim})")
        if j.shape != (k, self.components, self.dim) and not (j.shape == (k, self.dim) and self.components == 1):
            want = f"({k}, {self.dim})" if self.components == 1 else f"({k}, {self.components}, {self.dim})"
            raise ValueError(f"jac returned shape {j.shape} for {k} rows of data, expected {want}")
        return j.reshape(-1, self.dim).T

    def _roots(self, residuals: Array) -> Array | float:
        """Square roots of the weights of the residuals by the loss of their blocks, (k * p,)."""
        if not self.robust:
            return 1.0
        return np.sqrt(np.repeat(self.loss.cost_and_weight(self._squares(residuals))[1], self.components))

    def _cost_of(self, residuals: Array) -> float:
        """Sum of the costs of some blocks."""
        if not self.robust:
            return 0.5 * dot(residuals, residuals)
        return float(self.loss.cost(self._squares(residuals)).sum())

    def _squares(self, residuals: Array) -> Array:
        """Squared norms of the blocks, (k,)."""
        squares = residuals * residuals
        return squares if self.components == 1 else squares.reshape(-1, self.components).sum(axis=1)

    def _sums(self, residuals: Array, jacobian: Any, outer: bool, costs: Array | None) -> Normal:
        """Sums of one chunk: residuals (k p,), transposed Jacobian (d, k p) or sparse (k p, d)."""
        k, p = len(residuals) // self.components, self.components
        if not isinstance(jacobian, np.ndarray):
            return sparse_sums(self.loss, residuals, jacobian)
        if not self.robust:
            weighted, total = jacobian, 0.5 * dot(residuals, residuals)
            if costs is not None:
                np.multiply(self._squares(residuals), 0.5, out=costs)
            hessian = times(jacobian, jacobian.T)
        else:
            cost, weight = self.loss.cost_and_weight(self._squares(residuals))
            total = float(cost.sum())
            if costs is not None:
                costs[:] = cost
            weighted = jacobian * (weight if p == 1 else np.repeat(weight, p))
            hessian = times(weighted, jacobian.T)
            hessian = 0.5 * (hessian + hessian.T)
        normal = Normal(k, total, times(weighted, residuals), hessian, compiled=self._cholesky)
        if outer:
            each = weighted * residuals
            if p > 1:
                each = each.reshape(self.dim, k, p).sum(axis=2)
            normal.outer = times(each, each.T)
        return normal


def _called(fun: Callable[..., Any], rows: Rows, theta: Theta) -> Array:
    """Residuals along one axis; a function that can be sent to another process."""
    return np.asarray(fun(theta, *rows)).reshape(-1)
