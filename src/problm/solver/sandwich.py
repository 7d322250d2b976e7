r"""Standard errors of a robust fit: the asymptotic covariance of an M-estimator.

With a robust loss, ``J^T W J`` is not the curvature of the cost, and the cost is not a variance. The estimate has the
covariance ``A^-1 B A^-1`` (Huber 1967), where A is the matrix of second derivatives of the cost and B the sum of outer
products of the rows' gradients. Both are sums over rows, so a random sample of ten thousand rows gives the errors to a
few per cent (2 to 6, for an exponential with three kinds of noise and three losses): A by differences of the gradient
over one standard error to both sides, B by one linearisation. The only assumption about the noise is that rows are
independent.

Residuals are smaller than errors, because the fit follows the rows: with leverage h by the factor ``1 - h`` in their
mean square. Few rows, or one far out, would make B too small. If errors are alike, what is missing is their mean square
times ``sum h_i J_i^T W J_i`` (MacKinnon and White 1985); it is added if all rows are used. It vanishes for many rows,
whatever the errors.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..linalg.normal import Normal
from .information import inverse_root
from .problem import Problem, Theta

Array = NDArray[np.float64]
_ROWS = 10_000
_LEAST = 0.05
"""Curvature of the cost, relative to that of ``J^T W J``, below which the minimum is too flat for an estimate."""


class Linearized(Protocol):
    """What the curvature is measured by; every `Problem` has it."""

    n: int

    def retract(self, theta: Theta, delta: Array) -> Theta: ...

    def linearize(self, theta: Theta, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal: ...


def sandwich(
    problem: Problem, theta: Theta, hessian: Array, scale: float, fixed: NDArray[np.bool_] | None = None
) -> Array | None:
    """(d, d) covariance of the parameters at the minimum ``theta``, zero for those that are fixed; None if the cost is
    not convex there or H is sparse.

    Parameters
    ----------
    hessian : (d, d) ``J^T W J`` over all rows.
    scale : rough size of a residual, for the steps of the differences.
    """
    n, d = problem.n, problem.dim
    if not isinstance(hessian, np.ndarray):
        return None  # of many parameters
    size = min(n, max(_ROWS, 100 * d))
    size = n if size == n else min(problem.boundary(size), n)
    if not scale > 0.0 or hessian.shape != (d, d):  # a perfect fit, or parameters unknown to the problem
        return None
    free = np.arange(d) if fixed is None else np.flatnonzero(~fixed)
    part, _ = inverse_root(hessian[np.ix_(free, free)])
    root = np.zeros((d, part.shape[1]))
    root[free] = part
    curvature = curvature_of(problem, theta, root, scale, size)
    if curvature is None:
        return None
    normal = problem.linearize(theta, 0, size, outer=True, costs=None)
    noise = root.T @ normal.covariance() @ root * n
    half = root @ np.linalg.inv(curvature)
    taken = problem.concentration(theta, 0, n, root) if size == n else None
    if taken is None:
        residuals = n * problem.components
        return half @ noise @ half.T * (residuals / max(residuals - len(free), 1))
    return half @ _levelled(noise, taken / problem.components) @ half.T


def _levelled(noise: Array, taken: Array) -> Array:
    """Covariance (k, k) of the scores as it would be if the fit had taken up nothing of the errors.

    Parameters
    ----------
    noise : (k, k) the sum of the outer products of the rows' gradients, in coordinates in which H is one.
    taken : (k, k) ``sum h_i U_i^T U_i``, by the leverages h_i.
    """
    left = len(taken) - float(np.trace(taken))
    share = float(np.trace(noise)) / left if left > 0.0 else 0.0
    return noise + share * taken


def curvature_of(problem: Linearized, theta: Theta, root: Array, step: float, size: int) -> Array | None:
    """Second derivatives of the cost in coordinates in which ``J^T W J`` is one; None where it is not convex.

    Parameters
    ----------
    root : (d, k) B with ``B B^T = (J^T W J)^-1``.
    step : length, in these coordinates, over which the gradient is compared to both sides.
    size : rows to compute it from; it is scaled to all of them.
    """
    share = problem.n / size

    def gradient(move: Array) -> Array:
        moved = problem.retract(theta, move)
        return root.T @ problem.linearize(moved, 0, size, outer=False, costs=None).gradient

    columns = [(gradient(step * v) - gradient(-step * v)) * (0.5 * share / step) for v in root.T]
    curvature = np.array(columns).reshape(len(columns), -1)
    curvature = 0.5 * (curvature + curvature.T)
    if not np.isfinite(curvature).all() or np.linalg.eigvalsh(curvature).min(initial=math.inf) < _LEAST:
        return None
    return curvature
