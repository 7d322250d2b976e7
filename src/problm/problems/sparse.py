"""Jacobians that are not dense arrays: sparse matrices and linear operators, as SciPy accepts them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def is_sparse(matrix: Any) -> bool:
    """Whether it is one of SciPy's sparse matrices or arrays."""
    return not isinstance(matrix, np.ndarray) and hasattr(matrix, "tocsr")


def as_dense(jacobian: Any) -> Array:
    """Dense transposed Jacobian (d, m), from a dense transposed one or a sparse one (m, d)."""
    return np.asarray(jacobian.toarray().T if is_sparse(jacobian) else jacobian)


def as_sparse(jacobian: Any, shape: tuple[int, int]) -> Any:
    """A sparse Jacobian (m, d) in row format; a linear operator becomes its transposed dense matrix (d, m)."""
    if jacobian.shape != shape:
        raise ValueError(f"jac returned shape {jacobian.shape}, expected {shape}")
    if not is_sparse(jacobian):
        return np.asarray(jacobian.matmat(np.eye(shape[1])), dtype=np.float64).T
    from scipy.sparse import csr_array

    return csr_array(jacobian, dtype=np.float64)
