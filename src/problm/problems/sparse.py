"""Jacobians that are not dense arrays: sparse matrices and linear operators, as SciPy accepts them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..linalg.normal import Normal
from ..linalg.sparse import MANY, Gram
from ..losses import Loss

Array = NDArray[np.float64]


def is_sparse(matrix: Any) -> bool:
    """Whether it is one of SciPy's sparse matrices or arrays."""
    return not isinstance(matrix, np.ndarray) and hasattr(matrix, "tocsr")


def as_dense(jacobian: Any) -> Array:
    """Transposed Jacobian (d, m) of a dense transposed one, or of a sparse matrix or operator (m, d)."""
    if isinstance(jacobian, np.ndarray):
        return jacobian
    return np.asarray(jacobian.toarray().T if is_sparse(jacobian) else jacobian.matmat(np.eye(jacobian.shape[1])).T)


def as_sparse(jacobian: Any, shape: tuple[int, int]) -> Any:
    """A sparse Jacobian (m, d) in row format; a linear operator as it is, or as its transposed dense matrix (d, m) if
    parameters are few."""
    if jacobian.shape != shape:
        raise ValueError(f"jac returned shape {jacobian.shape}, expected {shape}")
    if not is_sparse(jacobian):
        return jacobian if shape[1] > MANY else np.asarray(as_dense(jacobian), dtype=np.float64)
    from scipy.sparse import csr_array

    return csr_array(jacobian, dtype=np.float64)


def sparse_sums(loss: Loss, residuals: Array, jacobian: Any) -> Normal:
    """Sums over all residuals (m,), with a sparse Jacobian or a linear operator (m, d); H is dense for few parameters
    only."""
    cost, weight = loss.cost_and_weight(residuals * residuals)
    total, m = float(cost.sum()), len(residuals)
    hessian: Any
    if not is_sparse(jacobian):
        from scipy.sparse import diags_array
        from scipy.sparse.linalg import aslinearoperator

        root = np.sqrt(weight)
        hessian = Gram(aslinearoperator(diags_array(root)) @ aslinearoperator(jacobian), root * residuals)
        return Normal(m, total, np.asarray(jacobian.rmatvec(weight * residuals)), hessian)
    rows = jacobian if loss.is_linear else jacobian.multiply(np.sqrt(weight)[:, None]).tocsr()
    hessian = rows.T @ rows  # symmetric to the last bit, because both factors are the same
    if jacobian.shape[1] <= MANY:
        hessian = hessian.toarray()
    return Normal(m, total, jacobian.T @ (weight * residuals), hessian)
