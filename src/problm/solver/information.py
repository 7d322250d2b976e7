r"""Whether the rows of a batch determine every parameter: the effective number of rows.

A batch may hold none of the rows that a parameter depends on (one narrow line in a long spectrum, one group in a
thousand). It still proposes a step for that parameter, made of noise. The hold-out block holds none of these rows
either, so no test of the cost sees the damage, and a lost line is never found again. Therefore every direction v of the
parameters must be informed by enough rows before a step is computed. With the rows' derivatives J_i, including the
weights of the loss, the effective number of rows is

    rows(v) = (sum (J_i v)^2)^2 / sum (J_i v)^4.

Equal rows all count; a row that outweighs all others counts as one. With the sum ``H = B^-T B^-1`` over the batch and
``U_i = J_i B``, every direction is a unit vector u with ``sum (U_i u)^2 = 1``, and by Cauchy and Schwarz

    1 / rows = sum (U_i u)^4  <=  sum h_i (U_i u)^2,      h_i = ||U_i||^2, the leverage of row i.

The largest eigenvalue of ``sum h_i U_i^T U_i`` bounds all directions at once. It does not change when parameters are
shifted, scaled or mixed.

The sum costs about as much as a linearisation, so it is computed once per batch size, and not after a batch with
several times the necessary number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..linalg.lapack import dpotrf, dtrtri
from ..linalg.normal import Normal
from .batch import Batch

Array = NDArray[np.float64]
LEAST_ROWS = 10.0
"""Smallest effective number of rows for every direction. In fits of one line in 10^5 or 10^6 channels, 10 % to 0.002 %
of them wide, 37 of 150 lose the line without the rule, none of 400 with 10 or 20, and one of 400 others with 10, a line
too faint for a batch of a thousand rows."""
_PIVOT = 1e-7
"""Pivot of the Cholesky factor of H, scaled to a unit diagonal, below which a direction counts as not informed."""
_AMPLE = 4.0
"""Multiple of the smallest number of rows that makes further checks unnecessary."""
MOST_FACTOR = 32.0
"""Largest factor by which a batch that lacks information grows at once."""


@dataclass(slots=True)
class Information:
    """Memory of the last check."""

    size: int = 0
    """Size of the batch that was checked last."""
    enough: bool = False
    """Whether it had so many effective rows that larger batches need no check."""

    def needed(self, batch: Batch, normal: Normal) -> float:
        """Factor by which the batch should grow before it proposes a step; 1 if it is large enough."""
        if self.size == normal.count or self.enough:
            return 1.0
        self.size = normal.count
        root, regular = inverse_root(normal.hessian)
        concentration = batch.concentration(root)
        if concentration is None or not np.isfinite(concentration).all():
            return 1.0  # the loop handles values that are not finite
        largest = float(np.linalg.eigvalsh(concentration)[-1]) if concentration.size else 1.0
        if regular and largest * LEAST_ROWS <= 1.0:
            self.enough = largest * LEAST_ROWS * _AMPLE <= 1.0
            return 1.0
        return min(max(1.5 * LEAST_ROWS * largest, 2.0), MOST_FACTOR)


def inverse_root(hessian: Array) -> tuple[Array, bool]:
    """B (d, rank) such that ``B B^T`` inverts the matrix (d, d) on its range, and whether the rank is full."""
    factor, failed = dpotrf(hessian)
    if failed == 0 and (factor.diagonal() > _PIVOT * np.sqrt(hessian.diagonal())).all():
        return dtrtri(factor)[0], True
    scale = 1.0 / np.sqrt(np.maximum(hessian.diagonal(), 1e-300))
    if not np.isfinite(hessian).all():
        return np.zeros((len(hessian), 0)), False
    values, vectors = np.linalg.eigh(hessian * scale * scale[:, None])
    kept = values > _PIVOT**2 * max(values[-1], 1e-300)
    return scale[:, None] * vectors[:, kept] / np.sqrt(values[kept]), bool(kept.all())
