r"""Whether the rows of a batch determine every parameter: the effective number of rows.

A batch that holds none of the rows that a parameter depends on (one narrow line in a long spectrum, one group in a
thousand) still proposes a step along it, made of noise, and rows that are held out hold none of them either: no test of
the cost sees the damage, and a line that is lost is never found again. So before a step is computed, every direction v
of the parameters has to be informed by enough rows. With the rows' derivatives J_i, weights of the loss included,

    rows(v) = (sum (J_i v)^2)^2 / sum (J_i v)^4  >=  1 / max_i h_i,      h_i = J_i H^-1 J_i^T,

where H is the sum over the batch. The leverages h_i do not change when parameters are shifted, scaled or mixed, and
their largest bounds the effective number of rows of all directions at once.

Leverages cost about as much as a linearisation, so they are computed once per batch size, and again where the matrix H
of the batch has changed by half in some direction since.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtri

from ..linalg.dense import identity
from ..linalg.normal import Normal
from .batch import Batch

Array = NDArray[np.float64]
LEAST_ROWS = 20.0
"""Rows that have to inform every direction. Of 150 fits of one line in 10^5 or 10^6 channels, 10 % to 0.002 % of them
wide, 37 lose the line without the rule and none with 10, 20 or 40."""
_PIVOT = 1e-7
"""Pivot of the Cholesky factor of H with a unit diagonal below which a direction counts as not informed at all."""
MOST_FACTOR = 32.0
"""Largest growth of a batch that lacks information, at once."""


@dataclass(slots=True)
class Information:
    """Memory of the last check."""

    size: int = 0
    _root: Array | None = None
    """(d, d) B with ``B B^T`` the inverse of the mean H of the batch at the last check, where it was regular."""

    def needed(self, batch: Batch, normal: Normal) -> float:
        """Factor by which the batch should grow before it proposes a step; 1 if it has enough information."""
        if self.size == normal.count and self._root is not None:
            change = self._root.T @ normal.hessian @ self._root / normal.count - identity(len(self._root))
            if float(np.vdot(change, change)) < 0.25:
                return 1.0
        root, regular = inverse_root(normal.hessian)
        largest = batch.largest_leverage(root)
        if largest is None:
            return 1.0
        self.size, self._root = normal.count, root * math.sqrt(normal.count) if regular else None
        if not math.isfinite(largest) or (regular and largest * LEAST_ROWS <= 1.0):
            return 1.0  # the loop itself deals with numbers that are not finite
        return min(max(1.5 * LEAST_ROWS * largest, 2.0), MOST_FACTOR)


def inverse_root(hessian: Array) -> tuple[Array, bool]:
    """B (d, rank) with ``B B^T`` the inverse of the matrix (d, d) on its range, and whether that is everything."""
    factor, failed = dpotrf(hessian)
    if failed == 0 and (factor.diagonal() > _PIVOT * np.sqrt(hessian.diagonal())).all():
        return dtrtri(factor)[0], True
    scale = 1.0 / np.sqrt(np.maximum(hessian.diagonal(), 1e-300))
    if not np.isfinite(hessian).all():
        return np.zeros((len(hessian), 0)), False
    values, vectors = np.linalg.eigh(hessian * scale * scale[:, None])
    kept = values > _PIVOT**2 * max(values[-1], 1e-300)
    return scale[:, None] * vectors[:, kept] / np.sqrt(values[kept]), bool(kept.all())
