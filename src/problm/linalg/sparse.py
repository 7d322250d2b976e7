r"""The quadratic model of problems with many parameters, whose Jacobian is sparse or only known by its products.

Up to `MANY` parameters the normal equations are dense for any Jacobian (`problm.linalg.quadratic`): rank and digits are
then those of a QR. Above, H is a sparse matrix. Steps are solved by conjugate gradients if that takes few products, as
it does where every parameter is measured (an image, with smoothness). Otherwise H is factored: by LAPACK if it is a
narrow band, by SuperLU in a symmetric order of the parameters if it is not. On large grids a factor takes as long as
hundreds of products.

If the Jacobian is a ``LinearOperator``, steps are those of LSMR (Fong and Saunders 2011), which only multiplies by J
and its transpose. Its scales are estimates: for random signs z, ``(J^T z)^2`` has the expectation ``diag(J^T J)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..support.products import dot
from .blocks import BlockMatrix
from .box import minimum_in_box
from .normal import Normal
from .quadratic import NEAR, Proposal, QuadraticModel
from .secular import MOST, SLACK, next_damping
from .space import Space

Array = NDArray[np.float64]
MANY = 500
"""Largest number of parameters with dense normal equations."""
_PROBES = 16
"""Number of products with the transposed Jacobian that estimate the diagonal of H, to a third."""
_LEAST_PIVOT = 1e-14
"""Pivot of a matrix with unit diagonal below which it counts as singular."""
_RIDGE = 1e-10
"""Value added to the diagonal of a singular matrix with unit diagonal."""
_COLUMNS = 256
"""Number of columns of an inverse that are computed at once."""
_ACCURATE = 1e-10
"""Relative accuracy of an iterative solve."""
_INEXACT = 1e-7
"""Relative residual of a step by conjugate gradients: its decrease is then exact to the square of that, times the
condition, and steps of Gauss-Newton still gain seven digits each."""
_ROUGH = 1e-3
"""The same far from the minimum, and of damped steps. A step of conjugate gradients minimises the model over the
directions so far, so that its predicted decrease is exact."""
_MOST_PRODUCTS = 60
"""Largest number of products before a factor is computed instead."""
_NARROW = 8
"""Largest distance of an entry from the diagonal at which a factor takes no longer than a few products."""


class Gram:
    """``J^T J`` of a linear operator J (m, d): its products and an estimate of its diagonal."""

    def __init__(self, jacobian: Any, residuals: Array) -> None:
        self.jacobian, self.residuals = jacobian, residuals
        self.shape = (jacobian.shape[1], jacobian.shape[1])
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(_PROBES, jacobian.shape[0]))
        self._diagonal = np.mean([jacobian.rmatvec(z) ** 2 for z in signs], axis=0)

    def diagonal(self) -> Array:
        return np.asarray(self._diagonal)

    def __matmul__(self, x: Array) -> Array:
        return np.asarray(self.jacobian.rmatvec(self.jacobian.matvec(x)))

    def __mul__(self, factor: float) -> Gram:
        if factor != 1.0:
            raise ValueError("a matrix that is known by its products must be of all residuals")
        return self


def conjugate_gradients(
    matrix: Any, diagonal: Array, right: Array, most: int = _MOST_PRODUCTS, accuracy: float = _INEXACT
) -> Array | None:
    """Solve with a sparse positive definite matrix plus a diagonal (d,); None if that takes too long.

    Examples
    --------
    >>> conjugate_gradients(np.eye(2), np.array([0.0, 1.0]), np.array([1.0, 1.0]))
    array([1. , 0.5])
    """
    scale = 1.0 / (matrix.diagonal() + diagonal)
    x, r = np.zeros(len(right)), right.copy()
    z = scale * r
    p, rho = z, dot(r, z)
    goal = accuracy**2 * rho
    for _ in range(most):
        if not rho > goal:
            return x if rho == rho else None
        q = matrix @ p + diagonal * p
        bend = dot(p, q)
        if not bend > 0.0:
            return None
        x += (rho / bend) * p
        r -= (rho / bend) * q
        z = scale * r
        last, rho = rho, dot(r, z)
        p = z + (rho / last) * p
    return None


class _Direct:
    """Solves with ``M + damping D`` by conjugate gradients or SuperLU; M is sparse with unit diagonal."""

    def __init__(self, matrix: Any, metric: Array | None) -> None:
        self.matrix, self._metric = matrix, metric
        self._factors: dict[float, tuple[Any, bool]] = {}
        self._iterative = not _narrow(matrix)
        self._products = matrix.T
        """The same by rows, which multiplies in half of the time."""
        self.accuracy = _ROUGH
        """Accuracy of iterative solutions without damping."""

    def __call__(self, damping: float, right: Array) -> Array:
        if self._iterative and damping not in self._factors:
            metric = np.ones(len(right)) if self._metric is None else self._metric
            accuracy = _ROUGH if damping > 0.0 else self.accuracy
            found = conjugate_gradients(self._products, damping * metric, right, accuracy=accuracy)
            if found is not None:
                return found
            self._iterative = False
        return np.asarray(self._factor(damping)[0].solve(right))

    def singular(self) -> bool:
        """Whether M is singular. Not if conjugate gradients find the solution with a right side that has its share in
        every direction: the part along an eigenvalue of nearly zero would remain. A factor may take 70 times as long as
        the rest of a solve (a random Jacobian, 4,000 parameters)."""
        if self._iterative and 0.0 not in self._factors:
            d = self.matrix.shape[0]
            signs = np.random.default_rng(0).choice([-1.0, 1.0], size=d)
            if conjugate_gradients(self._products, np.zeros(d), signs) is not None:
                return False
        return self._factor(0.0)[1]

    def gauss_newton(self, gradient: Array) -> Array:
        return self(0.0, gradient)

    def damped(self, damping: float, gradient: Array) -> Array:
        return self(damping, gradient)

    def _factor(self, damping: float) -> tuple[Any, bool]:
        if damping not in self._factors:
            if len(self._factors) > 2:
                self._factors.clear()
            self._factors[damping] = factored(self.matrix, damping, self._metric)
        return self._factors[damping]


class _Iterative:
    """The same by LSMR, with ``M = A^T A`` of an operator A whose columns have about unit length."""

    def __init__(
        self, gram: Gram, scale: Array, free: NDArray[np.intp] | None, count: int, metric: Array | None
    ) -> None:
        from scipy.sparse.linalg import LinearOperator

        d, root = gram.shape[0], math.sqrt(count)
        whole, index = gram.jacobian, np.arange(d) if free is None else free
        self._metric = np.ones(len(scale)) if metric is None else np.sqrt(metric)

        def spread(x: Array) -> Array:
            full = np.zeros(d)
            full[index] = scale * np.ravel(x) / root
            return full

        self._columns = LinearOperator(
            (whole.shape[0], len(scale)),
            matvec=lambda x: whole.matvec(spread(x)),
            rmatvec=lambda y: scale * whole.rmatvec(y)[index] / root,
            dtype=np.float64,
        )
        self._residuals = gram.residuals / root

    def __matmul__(self, x: Array) -> Array:
        return np.asarray(self._columns.rmatvec(self._columns.matvec(x)))

    def __call__(self, damping: float, right: Array) -> Array:
        """Solve by conjugate gradients, for right sides that are not gradients; only Hebden's slope needs it."""
        from scipy.sparse.linalg import LinearOperator, cg

        matrix = LinearOperator((len(right),) * 2, matvec=lambda x: self @ x + damping * self._metric**2 * x)
        return np.asarray(cg(matrix, right, rtol=1e-4, maxiter=len(right))[0])

    def singular(self) -> bool:
        return False  # unknown

    def gauss_newton(self, gradient: Array) -> Array:
        return self.damped(0.0, gradient)

    def damped(self, damping: float, gradient: Array) -> Array:
        from scipy.sparse.linalg import LinearOperator, lsmr

        inner, metric = self._columns, self._metric
        scaled = LinearOperator(
            inner.shape, matvec=lambda x: inner.matvec(x / metric), rmatvec=lambda y: inner.rmatvec(y) / metric,
            dtype=np.float64,
        )  # fmt: skip
        found = lsmr(
            scaled, self._residuals, math.sqrt(damping), atol=_ACCURATE, btol=_ACCURATE, maxiter=4 * inner.shape[1]
        )
        return np.asarray(found[0]) / metric


class SparseModel(QuadraticModel):
    """Mean normal equations with a sparse H, or an H that is only known by its products."""

    __slots__ = ("_solver",)

    @property
    def singular(self) -> bool:  # type: ignore[override]
        """Whether H is rank-deficient: factored when asked, at the end of a solve."""
        return bool(self._solver.singular())

    def __init__(
        self,
        normal: Normal,
        theta: Any,
        space: Space,
        scaling: Callable[[Array], Array | None],
        refine: Any = None,
        uncertainty: Any = None,
    ) -> None:
        self._begin(normal, theta, space, scaling)
        self._scaled()
        self._gauss_newton = self._solver.gauss_newton(self._gradient)
        self.decrement = 0.5 * dot(self._gradient, self._gauss_newton)
        if isinstance(self._solver, _Direct) and self.decrement < NEAR * self.cost:
            self._solver.accuracy = _INEXACT
            self._gauss_newton = self._solver.gauss_newton(self._gradient)
            self.decrement = 0.5 * dot(self._gradient, self._gauss_newton)
        self.least_curvature = 1e-6
        self.finite = math.isfinite(self.decrement) and math.isfinite(normal.cost)

    def _scaled(self) -> None:
        normal, free = self.normal, self._free
        self._scale_by(normal.hessian.diagonal() if free is None else normal.hessian.diagonal()[free])
        if isinstance(normal.hessian, Gram):
            self._solver: Any = _Iterative(normal.hessian, self._scale, free, normal.count, self._diagonal)
            self._matrix = self._solver
            return
        from scipy.sparse import csc_array

        hessian: Any = normal.hessian
        part = csc_array(hessian if free is None else hessian[free][:, free])
        scale, (at, of) = self._scale, (part.indices, np.repeat(np.arange(part.shape[0]), np.diff(part.indptr)))
        scaled = part.data * scale[at] * (scale[of] / normal.count)
        self._matrix = csc_array((scaled, at, part.indptr), shape=part.shape)
        self._solver = _Direct(self._matrix, self._diagonal)

    def step(self, damping: float) -> Proposal:
        """The damped step."""
        if self._known is not None and self._known[0] == damping:
            return self._known[1]
        x = self._gauss_newton if damping == 0.0 else self._solver.damped(damping, self._gradient)
        self._known = damping, self._described(x, damping)
        return self._known[1]

    def damping_within(self, radius: float) -> tuple[float, float]:
        """The smallest damping whose step is no longer than ``radius`` in the metric of the damping, and the length."""
        metric = 1.0 if self._diagonal is None else self._diagonal
        damping, x, length = 0.0, self._gauss_newton, math.inf
        for tries in range(MOST):
            pull = metric * x
            squared = float(x.dot(pull))
            length = math.sqrt(squared)
            if not length > SLACK * radius or tries == MOST - 1:
                break
            slope = float(pull.dot(self._solver(damping, pull)))
            if not slope > 0.0:  # it underflowed
                break
            damping = next_damping(damping, squared, slope, length, radius)
            x = self._solver.damped(damping, self._gradient)
        self._known = damping, self._described(x, damping)
        return damping, length

    def within_reach(self) -> float:
        """Decrease of the mean cost that the model predicts."""
        return self.decrement

    def _minimum_in_box(self, damping: float, low: Array, high: Array) -> Array:
        solver = self._solver
        if isinstance(solver, _Iterative):
            # Move towards the damped step, cut at the bounds, as far as the model falls.
            y = np.clip(-solver.damped(damping, self._gradient), low, high)
            fall, bend = float(self._gradient.dot(y)), float(y.dot(solver @ y))
            return y * min(1.0, -fall / bend) if fall < 0.0 < bend else np.clip(-self._gradient, low, high)
        from scipy.sparse import diags_array

        resistance = np.ones(len(low)) if self._diagonal is None else self._diagonal
        matrix = (self._matrix + diags_array(damping * resistance)).tocsr()
        direct = [_narrow(matrix)]

        def solve(moving: NDArray[np.intp], right: Array) -> Array:
            part = matrix if len(moving) == len(low) else matrix[moving][:, moving]
            none = np.zeros(len(moving))
            found = None if direct[0] else conjugate_gradients(part, none, right, accuracy=solver.accuracy)
            direct[0] = found is None
            return np.asarray(factored(part)[0].solve(right)) if found is None else found

        return minimum_in_box(matrix, self._gradient, low, high, solve, least=solver.accuracy**2)


def _narrow(matrix: Any) -> bool:
    """Whether all entries of a sparse matrix are close to its diagonal."""
    across = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)) - matrix.indices
    return int(np.abs(across).max(initial=0)) <= _NARROW


class _Banded:
    """The Cholesky factor of a narrow matrix by LAPACK, which takes a tenth of SuperLU's time."""

    def __init__(self, factor: Array) -> None:
        self._factor = factor

    @classmethod
    def of(cls, matrix: Any, damping: float, metric: Array | None) -> _Banded | None:
        """Factor ``M + damping D``; None if it is (nearly) singular."""
        from scipy.linalg import LinAlgError, cholesky_banded

        d = matrix.shape[0]
        column = np.repeat(np.arange(d), np.diff(matrix.indptr))  # of a symmetric matrix, in either format
        below = matrix.indices - column
        lower = below >= 0
        bands = np.zeros((int(below.max(initial=0)) + 1, d))
        bands[below[lower], column[lower]] = matrix.data[lower]
        bands[0] += damping if metric is None else damping * metric
        try:
            factor = cholesky_banded(bands, lower=True, check_finite=False)  # NaN is no positive pivot
        except LinAlgError:
            return None
        return cls(factor) if float(factor[0].min(initial=1.0)) ** 2 > _LEAST_PIVOT else None

    def solve(self, right: Array) -> Array:
        from scipy.linalg import cho_solve_banded

        return np.asarray(cho_solve_banded((self._factor, True), right, check_finite=False))


def factored(matrix: Any, damping: float = 0.0, metric: Array | None = None) -> tuple[Any, bool]:
    """A factorisation of ``M + damping D``, M sparse with unit diagonal, and whether it is singular; a little is then
    added to the diagonal."""
    from scipy.sparse import csc_array, diags_array
    from scipy.sparse.linalg import splu

    if _narrow(matrix) and (banded := _Banded.of(matrix, damping, metric)) is not None:
        return banded, False
    how: dict[str, Any] = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
    d = matrix.shape[0]
    if damping > 0.0:
        matrix = matrix + diags_array(damping * (np.ones(d) if metric is None else metric))
    try:
        factor = splu(csc_array(matrix), **how)
        if float(np.abs(factor.U.diagonal()).min(initial=1.0)) > _LEAST_PIVOT:
            return factor, False
    except RuntimeError:  # exactly singular
        pass
    return splu(csc_array(matrix + diags_array(np.full(d, _RIDGE))), **how), True


def inverse(hessian: Any, fixed: NDArray[np.bool_] | None, diagonal: bool = False) -> Array:
    """Dense inverse (d, d) of a sparse matrix, or only its ``diagonal`` (d,); zero for fixed parameters."""
    from scipy.sparse import csc_array, diags_array

    if isinstance(hessian, BlockMatrix):
        from .block_inverse import inverse as inverse_blocks

        return inverse_blocks(hessian, diagonal)
    if isinstance(hessian, Gram):
        raise RuntimeError("no covariance: the matrix of a Jacobian that is a LinearOperator is not known")
    d = hessian.shape[0]
    free = np.arange(d) if fixed is None else np.flatnonzero(~fixed)
    part = csc_array(hessian)[free][:, free]
    scale = 1.0 / np.sqrt(np.maximum(part.diagonal(), 1e-300))
    factor, _ = factored(csc_array(diags_array(scale) @ part @ diags_array(scale)))
    result = np.zeros(d if diagonal else (d, d))
    for first in range(0, len(free), _COLUMNS):
        index = np.arange(first, min(first + _COLUMNS, len(free)))
        unit = np.zeros((len(free), len(index)))
        unit[index, index - first] = scale[index]
        columns = scale[:, None] * factor.solve(unit)
        if diagonal:
            result[free[index]] = columns[index, index - first]
        else:
            result[np.ix_(free, free[index])] = columns
    return result
