"""How a robust loss bends the cost of rows of a NumPy function."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ..linalg.normal import Normal
from ..losses import Loss
from ..support.products import times

Array = NDArray[np.float64]


def bent(parts: Iterable[tuple[Normal, Array, Array]], loss: Loss, components: int) -> tuple[Normal, Array]:
    """Sums over chunks of rows, and their bend; each comes with its residuals (k * p,) and transposed Jacobian."""
    total: Normal | None = None
    rest: Array | float = 0.0
    for normal, residuals, jacobian in parts:
        total = normal if total is None else total + normal
        rest = rest + bend(loss, residuals, jacobian, components)
    assert total is not None
    return total, np.asarray(rest)


def bend(loss: Loss, residuals: Array, jacobian: Array, components: int) -> Array:
    """What the second derivatives (d, d) of the cost have besides ``sum w J^T J`` if the residuals are linear.

    With the cost ``s^2/2 rho(z)``, ``z = ||r||^2 / s^2``, of a block that is ``2 rho''(z) / s^2 (J^T r)(J^T r)^T``.

    Parameters
    ----------
    residuals : (k * p,) of k blocks with p ``components``.
    jacobian : (d, k * p), transposed.
    """
    slopes, squares = jacobian * residuals, residuals * residuals
    if components > 1:
        slopes = slopes.reshape(len(jacobian), -1, components).sum(axis=2)
        squares = squares.reshape(-1, components).sum(axis=1)
    made = times(slopes * (2.0 / loss.scale**2 * loss.curvature(squares)), slopes.T)
    return 0.5 * (made + made.T)
