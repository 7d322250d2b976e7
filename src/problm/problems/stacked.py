"""Values of a function at many points by one call, if it broadcasts its parameters.

A Jacobian of d parameters by differences takes d calls, and at few rows a call takes much longer than its arithmetic.
If each parameter is an array (d, 1) instead of a number, with its values at d points one below the other, a function of
elementwise operations returns the values (d, n) at all of them. A Jacobian of 16 peaks, 49 parameters, then takes 0.4
instead of 2.4 ms at 200 rows.

Whether a function does that is tried. The first time all values are compared with those of single calls, after that one
point each time; they must have the same bits. A function that raises for arrays (``if t[0] > 0``, ``math.exp``),
returns another shape (products of matrices) or other values (``t.sum()``) is called point by point from then on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
FEWEST = 6
"""Number of parameters below which single calls are as fast."""
MOST = 50_000
"""Number of values up to which a call for all points is faster: beyond, temporary arrays leave the caches (49
parameters, 1000 rows: 1.8 against 3.3 ms; 10,000 rows: 40 against 12 ms)."""


class Stacked:
    """Remembers whether a function broadcasts its parameters."""

    def __init__(self) -> None:
        self.works: bool | None = None
        """None until the function has been tried."""
        self._checked = 0

    def pays(self, dim: int, rows: int) -> bool:
        """Whether values of so many parameters and rows are worth a call, as far as is known."""
        return self.works is not False and dim >= FEWEST and dim * rows <= MOST

    def values(
        self, together: Callable[[Array], Any], single: Callable[[Array], Array], points: Array, rows: int
    ) -> Array | None:
        """Values (d, rows) at ``points`` (d, d), one a row; None if they must be computed one by one.

        Parameters
        ----------
        together
            The function of the parameters (d, d, 1), of which entry i is the i-th one at all points.
        single
            The function at one point.
        points, rows
            The points, and the number of values at each.
        """
        d = len(points)
        if not self.pays(d, rows):
            return None
        found = self._tried(together, points)
        self._checked = (self._checked + 1) % d
        at = [self._checked] if self.works else range(d)
        fits = type(found) is np.ndarray and found.dtype == np.float64 and found.shape == (d, rows)
        # As many NaNs as there are: at the edge of a model they are treated later.
        self.works = fits and all(np.array_equal(found[a], single(points[a]), equal_nan=True) for a in at)
        return found if self.works else None

    def _tried(self, together: Callable[[Array], Any], points: Array) -> Any:
        parameters = points.T[:, :, None].copy()
        try:
            if self.works:
                return together(parameters)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a function that was never meant to get arrays
                return together(parameters)
        except Exception:
            return None
