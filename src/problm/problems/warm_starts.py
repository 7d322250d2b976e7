"""Starts of the inner solves for eliminated parameters, chosen so that costs stay a function of theta.

Solves start from the solutions at the last linearised theta (``base``). A trial writes its solutions to ``trial`` and
leaves the base alone, so that a rejected trial leaves no trace. The solutions of an accepted trial become the base when
they are next read: ``stamp`` says which theta a row of ``trial`` belongs to. Thetas are distinguished by identity and
numbered.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]


class WarmStarts:
    """Solutions of n inner problems with q unknowns each; compiled code reads and writes the arrays itself.

    Examples
    --------
    >>> starts, theta = WarmStarts(np.zeros((2, 1))), np.ones(1)
    >>> everything = np.arange(2)
    >>> starts.tried(everything, np.array([[3.0], [4.0]]), starts.number(theta))
    >>> starts.read(everything).ravel()  # the trial is not accepted yet
    array([0., 0.])
    >>> _ = starts.linearize_at(theta)
    >>> starts.read(everything).ravel()
    array([3., 4.])
    """

    def __init__(self, base: Array) -> None:
        self.base = base
        """(n, q) solutions at the last linearised theta."""
        self.trial = base.copy()
        """(n, q) solutions at the thetas tried since."""
        self.stamp = np.full(len(base), -1, dtype=np.int64)
        """(n,) number of the theta that each row of ``trial`` belongs to."""
        self.here = 0
        """Number of the last linearised theta."""
        self.at: Any = None
        """The last linearised theta, if any."""
        self._latest: tuple[int, Any] = (0, None)

    def number(self, theta: Any) -> int:
        """The number of a theta, which is the same while it is the latest or the last linearised one."""
        if self.at is not None and theta is self.at:
            return self.here
        if theta is not self._latest[1]:
            self._latest = (self._latest[0] + 1, theta)
        return self._latest[0]

    def linearize_at(self, theta: Any) -> int:
        """Make this theta the one that solves start from; return its number."""
        self.here, self.at = self.number(theta), theta
        return self.here

    def read(self, rows: Index) -> Array:
        """Starts of some rows, (k, q): a copy."""
        current = rows[self.stamp[rows] == self.here]
        self.base[current] = self.trial[current]  # solutions of the trial that led to the current theta
        return self.base[rows]

    def tried(self, rows: Index, solutions: Array, number: int) -> None:
        """Keep the solutions of some rows at the theta of this number."""
        self.trial[rows] = solutions
        self.stamp[rows] = number
