"""Starts of the inner solves of eliminated parameters, chosen so that costs stay a function of theta.

Solves start from what was found at the last linearised theta (``base``). A trial writes elsewhere (``trial``) and
leaves the base alone, so that a rejected one leaves no trace; what an accepted trial found becomes the base when it is
next read: ``stamp`` says which theta a row of ``trial`` belongs to. Thetas are distinguished by identity and numbered.
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
        """(n, q) solutions at the theta last linearised."""
        self.trial = base.copy()
        """(n, q) solutions at the thetas tried since."""
        self.stamp = np.full(len(base), -1, dtype=np.int64)
        """(n,) number of the theta that each row of ``trial`` belongs to."""
        self.here = 0
        """Number of the theta last linearised."""
        self._at: Any = None
        self._latest: tuple[int, Any] = (0, None)

    def number(self, theta: Any) -> int:
        """The number of a theta, the same as long as it is the latest or the one last linearised."""
        if self._at is not None and theta is self._at:
            return self.here
        if theta is not self._latest[1]:
            self._latest = (self._latest[0] + 1, theta)
        return self._latest[0]

    def linearize_at(self, theta: Any) -> int:
        """Make this theta the one that solves start from; returns its number."""
        self.here, self._at = self.number(theta), theta
        return self.here

    def read(self, rows: Index) -> Array:
        """Starts of some rows, (k, q): a copy."""
        current = rows[self.stamp[rows] == self.here]
        self.base[current] = self.trial[current]  # found at the current theta by the trial that led there
        return self.base[rows]

    def tried(self, rows: Index, solutions: Array, number: int) -> None:
        """Keep what was found for some rows at the theta of this number."""
        self.trial[rows] = solutions
        self.stamp[rows] = number
