"""The space that parameters live in: bounds, fixed parameters and units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Space:
    """Limits and units of the parameters (tangent coordinates on a manifold)."""

    dim: int
    lower: Array | None = None
    """(d,) lower bounds, or None when there are none at all."""
    upper: Array | None = None
    fixed: NDArray[np.bool_] | None = None
    """(d,) parameters that may not move."""
    x_scale: Array | None = None
    """(d,) typical sizes for the damping; None: from the diagonal of H."""

    def free(self, theta: Array, gradient: Array) -> NDArray[np.intp] | None:
        """Indices of the parameters that may move, or None for all."""
        if self.fixed is None and self.lower is None and self.upper is None:
            return None
        held = np.zeros(self.dim, dtype=bool) if self.fixed is None else self.fixed.copy()
        if self.lower is not None:
            held |= (theta <= self.lower) & (gradient > 0.0)
        if self.upper is not None:
            held |= (theta >= self.upper) & (gradient < 0.0)
        return np.flatnonzero(~held)

    def inside(self, theta: Any) -> Any:
        """A point that rounding may have carried over a bound, put on it."""
        if self.lower is None and self.upper is None:
            return theta
        return np.clip(theta, self.lower, self.upper)
