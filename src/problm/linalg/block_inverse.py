"""Inverses of block matrices, whole or in parts, with known directions along which the matrix vanishes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .block_cholesky import Factor
from .blocks import BlockMatrix

Array = NDArray[np.float64]
RIDGE = 1e-10
"""Value added to the unit diagonal of a matrix that is singular besides."""
_COLUMNS = 256
"""Number of columns of an inverse that are computed at once."""


def held(null: Array) -> tuple[Array, NDArray[np.intp]]:
    """An orthonormal basis of null directions (d, k), and k parameters that determine the position along them."""
    from scipy.linalg import qr

    if not null.shape[1] or not np.isfinite(null).all():
        return np.zeros((len(null), 0)), np.empty(0, dtype=np.intp)
    basis = np.linalg.qr(null / np.linalg.norm(null, axis=0))[0]
    return basis, qr(basis.T, mode="r", pivoting=True)[1][: basis.shape[1]]


def inverse(matrix: BlockMatrix, diagonal: bool = False) -> Array:
    """Dense inverse (d, d), or only its diagonal (d,), with zero variance along the null directions in the metric of
    the diagonal."""
    d = matrix.shape[0]
    scale, null, factor = _regular(matrix)
    result = np.zeros(d if diagonal else (d, d))
    for first in range(0, d, _COLUMNS):
        index = np.arange(first, min(first + _COLUMNS, d))
        right = -null @ null[index].T
        right[index, index - first] += 1.0
        columns = factor.solve(right)
        columns -= null @ (null.T @ columns)
        if diagonal:
            result[index] = scale[index] ** 2 * columns[index, index - first]
        else:
            result[:, index] = scale[:, None] * columns * scale[index]
    return result


def _regular(matrix: BlockMatrix) -> tuple[Array, Array, Factor]:
    """Scales to a unit diagonal, the null directions in these units, and a factor with as many parameters held."""
    scale = 1.0 / np.sqrt(np.maximum(matrix.diagonal(), 1e-300))
    unit = matrix.scaled(scale, 1.0)
    null, fixed = held(unit.null)
    added = np.zeros(len(scale))
    added[fixed] = 1.0
    factor = Factor(unit, added)
    return scale, null, factor if factor.regular else Factor(unit, added + RIDGE)


def diagonal_blocks(matrix: BlockMatrix) -> list[Array]:
    """The diagonal blocks of `inverse`, without the rest of it."""
    scale, null, factor = _regular(matrix)
    pattern, plan = matrix.pattern, factor.plan
    entries = factor.inverse_panels()
    along = factor.solve(null)
    core = null.T @ along
    first = pattern.first[1:] - 1  # the diagonal block is the last one of its row
    blocks = []
    for a, k in enumerate(first):
        size = int(pattern.sizes[a])
        places = plan.to[k] + np.arange(size)[:, None] * plan.stride[k] + np.arange(size)
        mine = slice(pattern.offset[a], pattern.offset[a + 1])
        n, y = null[mine], along[mine]
        block = entries[places] - n @ y.T - y @ n.T + n @ core @ n.T
        blocks.append(block * scale[mine] * scale[mine][:, None])
    return blocks
