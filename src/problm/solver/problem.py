"""The interface between solver and problem: one class with every hook, its default and its meaning.

A problem is N residual blocks ``r_i(theta)`` of length p with costs ``f_i = loss(||r_i||)``. The solver never sees the
blocks' data: it asks for sums over a range of *positions* ``[lo, hi)`` in the problem's own random order. Position
ranges are only ever cut where the solver has cut before (see `problm.sampling.order`), and the range ``[0, n)`` is
everything, which a problem reads in its natural order, in place.

A new problem sets ``n`` and ``dim`` and fills in `Problem.linearize` and `Problem.costs`; all else has a default.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..linalg.normal import Normal
from ..sampling.moments import Moments
from .journal import Journal

Array = NDArray[np.float64]
Theta = Any
"""A point: an array of shape (d,), or whatever a manifold's `retract` takes and returns."""
JUMP = 0.25
"""Share of all blocks from which a batch becomes everything, unless the problem says otherwise."""
FEW = 10_000
"""Residual blocks up to which a pass over all of them costs next to nothing."""


class Problem:
    """N residual blocks and the space that their parameters live in.

    Points are distinguished by identity: the accepted trial is the same object that `retract` returned (projected onto
    the bounds, if any) and that `costs`, `cost` or `linearize` received. What was computed for a trial may therefore be
    kept and used again where ``theta is kept``. Nobody changes a point in place.
    """

    # --- What it is -------------------------------------------------------------------------------------------------
    n: int
    """Number of residual blocks."""
    dim: int
    """Number of parameters d: the dimension of the tangent space."""
    components: int = 1
    """Residuals per block, for degrees of freedom."""
    cost_bound: float = math.inf
    """Upper bound of the cost of one block (see `problm.losses.Loss.bound`)."""

    robust: bool = False
    """Whether a loss other than the square acts on the blocks, for standard errors."""

    # --- How to evaluate it -----------------------------------------------------------------------------------------
    def linearize(self, theta: Theta, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal:
        """Sums over the blocks at positions [lo, hi); their costs are written to ``costs`` (hi - lo,), if given.

        ``outer`` asks for the sum of outer products of the blocks' gradients; it is never set for all blocks.
        """
        raise NotImplementedError(f"{type(self).__name__} must define linearize(theta, lo, hi, *, outer, costs)")

    def costs(self, theta: Theta, lo: int, hi: int) -> Array:
        """Costs of the blocks at positions [lo, hi), shape (hi - lo,)."""
        raise NotImplementedError(f"{type(self).__name__} must define costs(theta, lo, hi)")

    def cost(self, theta: Theta) -> float:
        """Sum of the costs of all blocks; large problems compute it without an array of length n."""
        return float(self.costs(theta, 0, self.n).sum())

    move: Callable[[Theta, Array], Theta] | None = None
    """The retraction of a manifold; None: steps are added."""

    def retract(self, theta: Theta, delta: Array) -> Theta:
        """The point reached from ``theta`` by the tangent step ``delta`` (d,); a new object."""
        return theta + delta if self.move is None else self.move(theta, delta)

    # --- How to batch it --------------------------------------------------------------------------------------------
    few: int = 0
    """Blocks up to which batches save nothing: the solve then begins on everything."""
    least_batch: int = 0
    """Blocks of the first batch, at least, under the default policy."""
    largest_batch: int | None = None
    """Blocks that a batch may hold (memory): beyond it the batch becomes everything. None: any number."""
    jump: float = JUMP
    """Share of all blocks from which the batch becomes everything."""
    fused: bool = False
    """Whether a trial on everything should linearise at once, so that an accepted step needs one pass and not two."""

    def boundary(self, position: int) -> int:
        """The first position from this one on at which the random order may be cut."""
        return position

    def random_order(self) -> Any:
        """The random order, with ``drawn``, ``state()`` and ``restore(state)``, for checkpoints; None: it has none."""
        return None

    def release(self) -> None:
        """Release the rows of the batch: from now on only everything is read."""

    def make_batch(self, theta: Theta, size: int) -> Any:
        """A `problm.solver.batch.Batch` of the problem's own, where rows lie on other machines; None: the usual one."""
        return None

    def for_compiled_loop(self) -> tuple[Any, ...] | None:
        """All rows and the evaluator, as `problm.solver.compiled_loop` takes them; None: steps are taken one by one.

        Only for few rows: steps taken there do not call any other method.
        """
        return None

    # --- How good its derivatives are -------------------------------------------------------------------------------
    learns: bool = False
    """Whether `linearize` learns curvature from the steps, which are then not extrapolated as well."""

    def refine_derivatives(self) -> bool:
        """Use more accurate derivatives from now on (central for forward differences); returns whether that was
        possible."""
        return False

    def factor(self, theta: Theta, lo: int, hi: int) -> Array | None:
        """Triangular factor (d + 1, d + 1) of the weighted [J r] of the blocks at [lo, hi); None: it has none."""
        return None

    def uncertainty(self, theta: Theta, lo: int, hi: int) -> Array | None:
        """Norms (d,) of the errors of the columns of the weighted Jacobian; None: it is exact."""
        return None

    def concentration(self, theta: Theta, lo: int, hi: int, root: Array) -> Array | None:
        """``sum h_i U_i^T U_i`` over the blocks at [lo, hi), (rank, rank): U_i is the weighted ``J_i root``, root (d,
        rank), and h_i the sum of its squares.

        With it a batch knows when it has too few rows for a parameter (`problm.solver.information`); None: it does not.
        """
        return None

    # --- How to describe its rows -----------------------------------------------------------------------------------
    def moments(self, values: Array, lo: int, hi: int) -> Array | Moments:
        """Values of the blocks at [lo, hi), or their moments where blocks were not drawn one by one."""
        return values

    def indices(self, lo: int, hi: int) -> NDArray[np.int64]:
        """The user's row numbers at the positions [lo, hi), for policies that treat rows differently."""
        raise TypeError("this problem does not tell which rows a batch holds, so groups cannot be used")

    def residuals(self, theta: Theta) -> Array | None:
        """Residuals of all blocks in the user's order, (n, p); None: it does not give them."""
        return None

    def jacobian(self, theta: Theta) -> Array | None:
        """Jacobian of all blocks in the user's order, (n, p, d), without weights; None: it does not give it."""
        return None

    def first_bad_row(self, theta: Theta) -> int | None:
        """The first row, in the user's order, whose residual or derivatives are not finite; None: not known."""
        return None

    # --- How to go on after a crash ----------------------------------------------------------------------------------
    journal: Journal | None = None
    """Of a solve with a checkpoint: where passes over everything are noted, group by group."""

    def keep_journal(self, journal: Journal) -> None:
        """Note passes over everything there from now on."""
        self.journal = journal

    def fingerprint(self) -> dict[str, Any]:
        """What tells the rows from others, by name, for checkpoints: ``rows``, a digest of all of them, or ``files``,
        their sizes and times. Empty: a solve that goes on computes the cost of all rows once more to compare it."""
        return {}

    # --- How it ends ------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Release external resources, such as the workers of a cluster."""


class Wrapper(Problem):
    """A problem that changes some answers of another one: a base class whose every hook asks ``inner``.

    Except for `make_batch` and `for_compiled_loop`, whose steps would bypass the methods that a subclass overrides.
    """

    def __init__(self, inner: Problem) -> None:
        self.inner = inner
        self.n, self.dim, self.components, self.cost_bound = inner.n, inner.dim, inner.components, inner.cost_bound
        self.robust = inner.robust
        self.few, self.least_batch, self.largest_batch = inner.few, inner.least_batch, inner.largest_batch
        self.jump, self.fused, self.learns = inner.jump, inner.fused, inner.learns
        if type(inner).make_batch is not Problem.make_batch:
            raise TypeError(f"a {type(inner).__name__} makes its own batches and cannot be wrapped")

    def linearize(self, theta: Theta, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal:
        return self.inner.linearize(theta, lo, hi, outer=outer, costs=costs)

    def costs(self, theta: Theta, lo: int, hi: int) -> Array:
        return self.inner.costs(theta, lo, hi)

    def cost(self, theta: Theta) -> float:
        return self.inner.cost(theta)

    def retract(self, theta: Theta, delta: Array) -> Theta:
        return self.inner.retract(theta, delta)

    def boundary(self, position: int) -> int:
        return self.inner.boundary(position)

    def random_order(self) -> Any:
        return self.inner.random_order()

    def release(self) -> None:
        self.inner.release()

    def refine_derivatives(self) -> bool:
        return self.inner.refine_derivatives()

    def factor(self, theta: Theta, lo: int, hi: int) -> Array | None:
        return self.inner.factor(theta, lo, hi)

    def uncertainty(self, theta: Theta, lo: int, hi: int) -> Array | None:
        return self.inner.uncertainty(theta, lo, hi)

    def concentration(self, theta: Theta, lo: int, hi: int, root: Array) -> Array | None:
        return self.inner.concentration(theta, lo, hi, root)

    def moments(self, values: Array, lo: int, hi: int) -> Array | Moments:
        return self.inner.moments(values, lo, hi)

    def indices(self, lo: int, hi: int) -> NDArray[np.int64]:
        return self.inner.indices(lo, hi)

    def residuals(self, theta: Theta) -> Array | None:
        return self.inner.residuals(theta)

    def jacobian(self, theta: Theta) -> Array | None:
        return self.inner.jacobian(theta)

    def first_bad_row(self, theta: Theta) -> int | None:
        return self.inner.first_bad_row(theta)

    def keep_journal(self, journal: Journal) -> None:
        self.inner.keep_journal(journal)

    def fingerprint(self) -> dict[str, Any]:
        return self.inner.fingerprint()

    def close(self) -> None:
        self.inner.close()
