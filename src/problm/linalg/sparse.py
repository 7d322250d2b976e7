r"""The quadratic model of problems with many parameters, whose Jacobian is sparse or only known by its products.

Up to `MANY` parameters the normal equations are dense for any Jacobian (`problm.linalg.quadratic`): rank and digits are
then those of a QR. Above, H is a sparse matrix, factored by SuperLU in a symmetric order of the parameters. If the
Jacobian is a ``LinearOperator``, steps are those of LSMR (Fong and Saunders 2011), which only multiplies by J and its
transpose. Its scales are estimates: for random signs z, ``(J^T z)^2`` has the expectation ``diag(J^T J)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .box import minimum_in_box
from .normal import Normal
from .quadratic import Proposal, QuadraticModel
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


class _Direct:
    """Solves with ``M + damping D`` by SuperLU; M is sparse with unit diagonal."""

    def __init__(self, matrix: Any, metric: Array | None) -> None:
        self.matrix, self._metric = matrix, metric
        self._factors: dict[float, tuple[Any, bool]] = {}

    def __call__(self, damping: float, right: Array) -> Array:
        return np.asarray(self._factor(damping)[0].solve(right))

    def singular(self) -> bool:
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
        self.singular = self._solver.singular()
        self.decrement = 0.5 * float(self._gradient.dot(self._gauss_newton))
        self.least_curvature = 1e-6
        self.finite = math.isfinite(self.decrement) and math.isfinite(normal.cost)

    def _scaled(self) -> None:
        normal, free = self.normal, self._free
        self._scale_by(normal.hessian.diagonal() if free is None else normal.hessian.diagonal()[free])
        if isinstance(normal.hessian, Gram):
            self._solver: Any = _Iterative(normal.hessian, self._scale, free, normal.count, self._diagonal)
            self._matrix = self._solver
            return
        from scipy.sparse import csc_array, diags_array

        hessian: Any = normal.hessian
        part = hessian if free is None else hessian[free][:, free]
        scale = diags_array(self._scale)
        self._matrix = csc_array(scale @ part @ scale) / normal.count
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

        def solve(moving: NDArray[np.intp], right: Array) -> Array:
            return np.asarray(factored(matrix[moving][:, moving])[0].solve(right))

        return minimum_in_box(matrix, self._gradient, low, high, solve)


def factored(matrix: Any, damping: float = 0.0, metric: Array | None = None) -> tuple[Any, bool]:
    """A factorisation of ``M + damping D``, M sparse with unit diagonal, and whether it is singular; a little is then
    added to the diagonal."""
    from scipy.sparse import csc_array, diags_array
    from scipy.sparse.linalg import splu

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

    if isinstance(hessian, Gram):
        raise RuntimeError("no covariance: the matrix of a Jacobian that is a LinearOperator is not known")
    d = hessian.shape[0]
    free = np.arange(d) if fixed is None else np.flatnonzero(~fixed)
    part = csc_array(hessian)[free][:, free]
    scale = 1.0 / np.sqrt(np.maximum(part.diagonal(), 1e-300))
    factor, _ = factored(diags_array(scale) @ part @ diags_array(scale))
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
