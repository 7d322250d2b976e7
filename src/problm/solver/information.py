r"""Whether the rows of a batch determine every parameter: the effective number of rows.

A batch that holds none of the rows that a parameter depends on (one narrow line in a long spectrum, one group in a
thousand) still proposes a step along it, made of noise, and rows that are held out hold none of them either: no test of
the cost sees the damage, and a line that is lost is never found again. So before a step is computed, every direction v
of the parameters has to be informed by enough rows. With the rows' derivatives J_i, weights of the loss included,

    rows(v) = (sum (J_i v)^2)^2 / sum (J_i v)^4,

rows that are alike count as many, one that outweighs all others as one. With ``H = B^-T B^-1`` the sum over the batch
and ``U_i = J_i B``, every direction is a unit vector u there, ``sum (U_i u)^2 = 1``, and by Cauchy and Schwarz

    1 / rows = sum (U_i u)^4  <=  sum h_i (U_i u)^2,      h_i = ||U_i||^2, the leverage of row i:

the largest eigenvalue of ``sum h_i U_i^T U_i`` bounds all directions at once. It does not change when parameters are
shifted, scaled or mixed.

The sum costs about as much as a linearisation, so it is computed once per batch size, and no more once a batch has
known several times as much as it had to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtri

from ..linalg.normal import Normal
from .batch import Batch

Array = NDArray[np.float64]
LEAST_ROWS = 10.0
"""Effective rows that have to inform every direction. Of fits of one line in 10^5 or 10^6 channels, 10 % to 0.002 % of
them wide, 37 of 150 lose the line without the rule, none of 400 with 10 or 20, and one of 400 others with 10: a line
too faint for a batch of a thousand rows."""
_PIVOT = 1e-7
"""Pivot of the Cholesky factor of H with a unit diagonal below which a direction counts as not informed at all."""
_AMPLE = 4.0
"""How many times the least number of rows makes further checks unnecessary."""
MOST_FACTOR = 32.0
"""Largest growth of a batch that lacks information, at once."""


@dataclass(slots=True)
class Information:
    """Memory of the last check."""

    size: int = 0
    """Blocks of the batch that was checked last."""
    enough: bool = False
    """Whether it knew so much that larger ones need not be checked."""

    def needed(self, batch: Batch, normal: Normal) -> float:
        """How many times as many rows the batch should hold before it proposes a step; 1 where it knows enough."""
        if self.size == normal.count or self.enough:
            return 1.0
        self.size = normal.count
        root, regular = inverse_root(normal.hessian)
        concentration = batch.concentration(root)
        if concentration is None or not np.isfinite(concentration).all():
            return 1.0  # the loop itself deals with what is not finite
        largest = float(np.linalg.eigvalsh(concentration)[-1]) if concentration.size else 1.0
        if regular and largest * LEAST_ROWS <= 1.0:
            self.enough = largest * LEAST_ROWS * _AMPLE <= 1.0
            return 1.0
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
