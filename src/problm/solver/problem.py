"""What the solver needs of a problem, and nothing more.

A problem is N residual blocks ``r_i(theta)`` of length p with costs ``f_i = loss(||r_i||)``. The solver never
sees the blocks' data: it asks for sums over a range of *positions* ``[lo, hi)`` in the problem's own random
order. Position ranges are only ever cut where the solver has cut before (see `problm.sampling.order`), and the
range ``[0, n)`` is everything, which a problem reads in its natural order, in place.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..linalg.normal import Normal

Array = NDArray[np.float64]
Theta = Any
"""A point: an array of shape (d,), or whatever a manifold's `retract` takes and returns."""


@runtime_checkable
class Problem(Protocol):
    """N residual blocks and the space that their parameters live in."""

    @property
    def n(self) -> int:
        """Number of residual blocks."""
        ...

    @property
    def dim(self) -> int:
        """Number of parameters: the dimension of the tangent space."""
        ...

    @property
    def cost_bound(self) -> float:
        """Upper bound of one block's cost, ``inf`` when there is none (see `Loss.bound`)."""
        ...

    def linearize(self, theta: Theta, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal:
        """Sums over the blocks at positions [lo, hi); with their costs written to ``costs``, if given.

        ``outer`` asks for the sum of outer products of the blocks' gradients.
        """
        ...

    def costs(self, theta: Theta, lo: int, hi: int) -> Array:
        """Costs of the blocks at positions [lo, hi), shape (hi - lo,)."""
        ...

    def cost(self, theta: Theta) -> float:
        """Sum of the costs of all blocks, without an array of length n."""
        ...

    def retract(self, theta: Theta, delta: Array) -> Theta:
        """The point reached from ``theta`` by the tangent step ``delta``; ``theta + delta`` in flat space."""
        ...
