"""A Gauss-Newton matrix with more of the curvature, kept positive definite."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .lapack import dsygvd

Array = NDArray[np.float64]


def corrected(hessian: Array, correction: Array, floor: float, cap: float) -> Array:
    """``H + S`` (d, d) with its eigenvalues relative to H kept within [floor, cap]; H itself if it is singular."""
    # S v = value H v with V^T H V = I, so that H + S = H V (1 + values) V^T H.
    values, vectors, info = dsygvd(correction, hessian)
    if info != 0:
        return hessian
    basis = hessian @ vectors
    # Not np.clip, which takes longer than everything else on a handful of numbers.
    kept = np.minimum(np.maximum(values + 1.0, floor), cap)
    made: Array = (basis * kept) @ basis.T
    return made
