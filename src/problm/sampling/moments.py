r"""Moments of sampled values by sampling unit, for acceptance policies; they can be merged.

Rows drawn one by one are their own sampling units. Rows that were read together, such as a run of a file or a row
group, may be similar and then carry less information than as many independent rows. A sample of clusters is therefore
described by its clusters: with y_u the sum and s_u the number of rows of unit u, the mean is the ratio
``sum y / sum s``, and its variance is, by the usual linearisation (Cochran, Sampling Techniques, 3rd ed., section 6.4;
units drawn without replacement from many),

    var(mean) = m / (m - 1) * sum (y_u - s_u mean)^2 / (sum s)^2,      m units.

This is the formula of a simple sample if every s_u is one. It assumes that the units were drawn at random, and nothing
about the rows within a unit. The same linearisation, for gradients, is in `problm.linalg.normal.Clusters`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Moments:
    """A sample of ``count`` values that came in ``units`` independent draws."""

    count: int
    units: int
    mean: float
    sd: float
    """Standard deviation of one unit: the standard error of the mean is ``sd / sqrt(units)``."""
    low: float = math.nan
    high: float = math.nan
    """Extremes of single values, if requested."""

    @property
    def clustered(self) -> bool:
        return self.units != self.count

    @classmethod
    def of(cls, values: Array | Moments, extremes: bool = False) -> Moments:
        """Moments of values drawn one by one; moments pass through.

        Examples
        --------
        >>> Moments.of(np.array([1.0, 3.0]), extremes=True)
        Moments(count=2, units=2, mean=2.0, sd=1.0, low=1.0, high=3.0)
        """
        if isinstance(values, Moments):
            return values
        low, high = (float(values.min()), float(values.max())) if extremes else (math.nan, math.nan)
        n = len(values)
        mean = float(values.sum()) / n
        centred = values - mean
        return cls(n, n, mean, math.sqrt(float(centred.dot(centred)) / n), low, high)

    @classmethod
    def clusters(cls, values: Array, starts: NDArray[np.int64]) -> Moments:
        """Moments of values whose sampling units begin at the positions ``starts`` (ascending, the first is 0).

        Examples
        --------
        >>> Moments.clusters(np.array([1.0, 1.0, 3.0, 3.0]), np.array([0, 2])).sd  # two draws, not four
        1.4142135623730951
        """
        sums = np.add.reduceat(values, starts)
        sizes = np.diff(starts, append=len(values))
        return cls.from_units(sums, sizes, float(values.min()), float(values.max()))

    @classmethod
    def from_units(cls, sums: Array, sizes: NDArray[np.int64], low: float, high: float) -> Moments:
        """Moments from the sums and sizes of the units."""
        m, count = len(sums), int(sizes.sum())
        mean = float(sums.sum()) / count
        error2 = float(((sums - sizes * mean) ** 2).sum()) / count**2
        error2 = error2 * m / (m - 1) if m > 1 else math.inf
        return cls(count, m, mean, math.sqrt(error2 * m), low, high)

    @classmethod
    def merge(cls, parts: Sequence[Moments]) -> Moments:
        """Moments of several samples drawn one by one (strata or shards), as if they were one."""
        count = sum(p.count for p in parts)
        mean = sum(p.count * p.mean for p in parts) / count
        square = sum(p.count * (p.sd**2 + (p.mean - mean) ** 2) for p in parts) / count
        return cls(count, count, mean, math.sqrt(square), min(p.low for p in parts), max(p.high for p in parts))
