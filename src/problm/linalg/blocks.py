"""Symmetric block-sparse matrices: the normal equations of parameters in groups of which few pairs interact.

The lower triangle is stored: of the blocks (a, b), b <= a, those that may differ from zero, row by row, each row by row
and the diagonal ones in full. Memory is proportional to them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jit import types
from ..jit.njit import njit

Array = NDArray[np.float64]
Index = NDArray[np.int64]
_f8, _i8 = types.float64, types.int64
_OPTIONS = {"nogil": True, "error_model": "numpy"}


class Pattern:
    """Which blocks there are.

    Parameters
    ----------
    sizes
        (nodes,) number of parameters of each group.
    present
        (nodes, nodes) whether a block may differ from zero; the lower triangle is read, and the diagonal is present.
    """

    def __init__(self, sizes: Index, present: NDArray[np.bool_]) -> None:
        self.sizes = sizes
        self.offset = np.concatenate([[0], np.cumsum(sizes)])
        np.fill_diagonal(present, True)
        row, column = np.nonzero(np.tril(present))
        self.row, self.column = np.ascontiguousarray(row), np.ascontiguousarray(column)
        self.first = np.searchsorted(row, np.arange(len(sizes) + 1))
        self.at = np.concatenate([[0], np.cumsum(sizes[row] * sizes[self.column])])
        self.dim = int(self.offset[-1])
        self.plan: Any = None
        """`problm.linalg.block_cholesky.Plan` of its factor, once that is known."""

    @property
    def diagonal(self) -> Index:
        """(dim,) places of the diagonal entries among the values."""
        start = self.at[self.first[1:] - 1]
        within = np.arange(self.dim) - np.repeat(self.offset[:-1], self.sizes)
        places: Index = np.repeat(start, self.sizes) + within * (np.repeat(self.sizes, self.sizes) + 1)
        return places


class BlockMatrix:
    """A symmetric matrix (dim, dim) with the blocks of a pattern.

    Parameters
    ----------
    pattern, values
        The blocks, and their entries in the pattern's order.
    null
        (dim, k) directions along which the matrix vanishes and steps are zero: freedoms of the parametrisation.
    """

    def __init__(self, pattern: Pattern, values: Array, null: Array | None = None) -> None:
        self.pattern, self.values = pattern, values
        self.null = np.zeros((pattern.dim, 0)) if null is None else null
        self.shape = (pattern.dim, pattern.dim)

    def diagonal(self) -> Array:
        return self.values[self.pattern.diagonal]

    def __add__(self, other: BlockMatrix) -> BlockMatrix:
        return BlockMatrix(self.pattern, self.values + other.values, self.null)

    def __mul__(self, factor: float) -> BlockMatrix:
        return BlockMatrix(self.pattern, self.values * factor, self.null)

    def __matmul__(self, x: Array) -> Array:
        p, out = self.pattern, np.zeros(self.pattern.dim)
        multiply(p.first, p.column, p.at, p.offset, self.values, np.ascontiguousarray(x), out)
        return out

    def scaled(self, scale: Array, factor: float) -> BlockMatrix:
        """``factor S A S`` with the diagonal matrix S of ``scale`` (dim,)."""
        p, values = self.pattern, np.empty_like(self.values)
        scale_blocks(p.first, p.column, p.at, p.offset, self.values, scale, factor, values)
        return BlockMatrix(p, values, self.null / scale[:, None])

    def toarray(self) -> Array:
        """The dense matrix."""
        p, full = self.pattern, np.zeros(self.shape)
        for k, (a, b) in enumerate(zip(p.row, p.column, strict=True)):
            block = self.values[p.at[k] : p.at[k + 1]].reshape(p.sizes[a], p.sizes[b])
            rows, columns = slice(p.offset[a], p.offset[a + 1]), slice(p.offset[b], p.offset[b + 1])
            full[rows, columns], full[columns, rows] = block, block.T
        return full


@njit(types.void(_i8[::1], _i8[::1], _i8[::1], _i8[::1], _f8[::1], _f8[::1], _f8[::1]), **_OPTIONS)
def multiply(first, column, at, offset, values, x, out):  # type: ignore[no-untyped-def]
    """Add the product with x to ``out``."""
    for a in range(first.shape[0] - 1):
        rows = offset[a + 1] - offset[a]
        for k in range(first[a], first[a + 1]):
            b = column[k]
            columns = offset[b + 1] - offset[b]
            for i in range(rows):
                place = at[k] + i * columns
                xi, s = x[offset[a] + i], 0.0
                if a == b:
                    for c in range(columns):
                        s += values[place + c] * x[offset[b] + c]
                else:
                    for c in range(columns):
                        s += values[place + c] * x[offset[b] + c]
                        out[offset[b] + c] += values[place + c] * xi
                out[offset[a] + i] += s


@njit(types.void(_i8[::1], _i8[::1], _i8[::1], _i8[::1], _f8[::1], _f8[::1], _f8, _f8[::1]), **_OPTIONS)
def scale_blocks(first, column, at, offset, values, scale, factor, out):  # type: ignore[no-untyped-def]
    """Multiply entry (i, j) by ``factor scale_i scale_j``."""
    for a in range(first.shape[0] - 1):
        for k in range(first[a], first[a + 1]):
            b = column[k]
            columns = offset[b + 1] - offset[b]
            for i in range(offset[a + 1] - offset[a]):
                place, s = at[k] + i * columns, factor * scale[offset[a] + i]
                for c in range(columns):
                    out[place + c] = s * scale[offset[b] + c] * values[place + c]
