"""The parameter space: bounds, fixed parameters and units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_SHORT = 1e-4
"""Share of the distance between start and bound from which a step may end on the bound."""


@dataclass(frozen=True)
class Space:
    """Limits and units of the parameters (tangent coordinates on a manifold)."""

    dim: int
    lower: Array | None = None
    """(d,) lower bounds, or None if there are no bounds."""
    upper: Array | None = None
    fixed: NDArray[np.bool_] | None = None
    """(d,) mask of fixed parameters."""
    x_scale: Array | None = None
    """(d,) typical sizes for the damping; None: from the diagonal of H."""

    start: Array | None = None
    """(d,) start of the solve, if there are bounds."""

    @property
    def bounded(self) -> bool:
        """Whether there are bounds."""
        return self.lower is not None or self.upper is not None

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

    def room(self, theta: Array) -> tuple[Array, Array]:
        """Largest steps down and up, (d,) each: half of the distance to a bound, or all of it if that is short.

        A step onto a bound often ends on a face where the model is degenerate (a peak of width zero) and stays there.
        Of 200 fits of one to three peaks with heights and widths >= 0, 170 reach the best minimum if steps may go all
        the way to a bound (SciPy's trf 180), 184 if they go half of it (trf 174).
        """
        down = np.full(self.dim, -np.inf) if self.lower is None else self.lower - theta
        up = np.full(self.dim, np.inf) if self.upper is None else self.upper - theta
        if self.start is None:
            return down, up
        if self.lower is not None:
            down = np.where(-down > _SHORT * np.abs(self.start - self.lower), 0.5 * down, down)
        if self.upper is not None:
            up = np.where(up > _SHORT * np.abs(self.upper - self.start), 0.5 * up, up)
        return down, up

    def inside(self, theta: Any) -> Any:
        """Return the point, moved onto a bound where rounding carried it across."""
        if self.lower is None and self.upper is None:
            return theta
        return np.clip(theta, self.lower, self.upper)
