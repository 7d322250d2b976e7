"""The interface between solver and problem: one class with every hook, its default and its meaning.

A problem is N residual blocks ``r_i(theta)`` of length p with costs ``f_i = loss(||r_i||)``. The solver never sees the
blocks' data: it asks for sums over a range of *positions* ``[lo, hi)`` in the problem's own random order. Position
ranges are only cut where the solver has cut before (see `problm.sampling.order`). The range ``[0, n)`` is all rows,
which a problem reads in their natural order, in place.

A new problem sets ``n`` and ``dim`` and defines `Problem.linearize` and `Problem.costs`; everything else has a default.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..linalg.normal import Normal, Runs
from ..sampling.moments import Moments
from .journal import Journal

Array = NDArray[np.float64]
Theta = Any
"""A point: an array of shape (d,), or whatever a manifold's `retract` takes and returns."""
JUMP = 0.25
"""Share of all blocks from which a batch goes to all blocks, unless the problem overrides it."""
CREEP, STRONG_CREEP = 0.1, 0.6
"""`Problem.creep` if a pass with second derivatives takes at most 1.6 times as long as one without, and if a step takes
two of them."""
FEW = 10_000
"""Number of residual blocks up to which a pass over all of them is cheap for any problem."""


class Problem:
    """N residual blocks and the space that their parameters live in.

    Points are distinguished by identity: the accepted trial is the same object that `retract` returned (projected onto
    the bounds, if any) and that `costs`, `cost` or `linearize` received. Values computed for a trial may therefore be
    kept and reused if ``theta is kept``. Points are never changed in place.
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
    """Whether a robust loss acts on the blocks, for standard errors."""

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

    def reads(self, theta: Theta) -> bool:
        """Whether an evaluation of all blocks at this point reads them; not if sums of an earlier pass tell the result.
        For counts of passes."""
        return True

    move: Callable[[Theta, Array], Theta] | None = None
    """Retraction of a manifold; None: steps are added."""

    def retract(self, theta: Theta, delta: Array) -> Theta:
        """The point reached from ``theta`` by the tangent step ``delta`` (d,); a new object."""
        return theta + delta if self.move is None else self.move(theta, delta)

    def distance(self, theta: Theta, other: Theta) -> float | None:
        """Distance between two points in the units of steps; None if it is not known (steps are not simply added)."""
        if self.move is not None or type(self).retract is not Problem.retract:
            return None
        return float(np.linalg.norm(np.subtract(other, theta)))

    def carried(self, theta: Theta, step: Array) -> Array | None:
        """D (d, d) with ``retract(theta, step + v) = retract(retract(theta, step), D v)`` for small v: it takes
        derivatives at the end of a step to the coordinates of its start. None: no change, as in flat space."""
        return None

    # --- How to batch it --------------------------------------------------------------------------------------------
    few: int = 0
    """Number of blocks up to which batches save nothing: the solve then starts on all blocks."""
    digits_up_to: int = FEW
    """Number of blocks up to which passes are so cheap that the parameters get all their digits; for more they are
    exact to 0.01 standard errors."""
    least_batch: int = 0
    """Smallest size of the first batch under the default policy."""
    largest_batch: int | None = None
    """Largest number of blocks of a batch (memory); a larger one goes to all blocks. None: any number."""
    jump: float = JUMP
    """Share of all blocks from which a batch goes to all blocks."""
    fused: bool = False
    """Whether a trial on all blocks linearises as well, so that an accepted step needs one pass instead of two."""

    watch: Callable[[int, int], object] | None = None
    """Called during a long pass over all blocks with the bytes read so far and those of the pass."""

    def boundary(self, position: int) -> int:
        """The first position, not before this one, at which the random order may be cut."""
        return position

    def random_order(self) -> Any:
        """The random order for checkpoints, with ``drawn``, ``state()`` and ``restore(state)``, if there is one."""
        return None

    def release(self) -> None:
        """Release the rows of the batch: from now on only passes over all rows follow."""

    in_place: bool = False
    """Whether `runs` evaluates rows where they are, without gathering them."""

    def runs(self, theta: Theta, starts: NDArray[np.int64], length: int, *, second: bool) -> Runs:
        """Sums over runs of ``length`` consecutive blocks in the user's order, which begin at ``starts`` (m,); with
        second derivatives along the retraction, if they are known and ``second`` is set."""
        raise NotImplementedError(f"{type(self).__name__} does not evaluate runs of rows")

    creep: float = math.inf
    """Contraction by Gauss-Newton steps of a robust fit from which on passes with second derivatives take less time
    (`problm.solver.verification.newton`); inf: they are not known."""

    def second_order(self, theta: Theta) -> tuple[Normal, Array] | None:
        """Sums over all blocks, and what the second derivatives of the cost (d, d) have besides the Gauss-Newton
        matrix: residual times second derivatives, and the bend of a loss; None if it is not known."""
        return None

    def make_batch(self, theta: Theta, size: int) -> Any:
        """The problem's own kind of `problm.solver.batch.Batch`, for rows on other machines; None: the usual one."""
        return None

    def for_compiled_loop(self) -> tuple[Any, ...] | None:
        """All rows and the evaluator for `problm.solver.compiled.loop`; None: the Python loop takes every step.

        Only for few rows: the compiled steps do not call any other method. An empty tuple: steps are computed in
        compiled code, but evaluated by `cost` and `linearize` (`problm.solver.compiled.advance`); steps must simply be
        added.
        """
        return None

    # --- How good its derivatives are -------------------------------------------------------------------------------
    by_differences: bool = False
    """Whether derivatives are by differences, with errors that `uncertainty` tells."""
    learns: bool = False
    """Whether `linearize` learns curvature from the steps; they are then not extrapolated."""

    def refine_derivatives(self) -> bool:
        """Use more accurate derivatives from now on (central instead of forward differences); return whether that was
        possible."""
        return False

    def factor(self, theta: Theta, lo: int, hi: int) -> Array | None:
        """Triangular factor (d + 1, d + 1) of the weighted [J r] of the blocks at [lo, hi); None if not available."""
        return None

    def uncertainty(self, theta: Theta, lo: int, hi: int) -> tuple[Array, Array] | None:
        """Norms (d,) of the errors of the columns of the weighted Jacobian, and errors (d,) of the gradient; None if
        derivatives are exact."""
        return None

    def concentration(self, theta: Theta, lo: int, hi: int, root: Array) -> Array | None:
        """``sum h_i U_i^T U_i`` over the blocks at [lo, hi), (rank, rank), with the weighted ``U_i = J_i root``, root
        (d, rank), and h_i the sum of squares of U_i.

        It tells whether a batch has too few rows for a parameter (`problm.solver.information`); None if not available.
        """
        return None

    # --- How to describe its rows -----------------------------------------------------------------------------------
    def moments(self, values: Array, lo: int, hi: int) -> Array | Moments:
        """Values of the blocks at [lo, hi), or their moments if blocks were not drawn one by one."""
        return values

    def indices(self, lo: int, hi: int) -> NDArray[np.int64]:
        """The user's row numbers at the positions [lo, hi), for policies that treat rows differently."""
        raise TypeError("this problem does not know which rows a batch holds, so groups cannot be used")

    def residuals(self, theta: Theta) -> Array | None:
        """Residuals of all blocks in the user's order, (n, p); None if not available."""
        return None

    def jacobian(self, theta: Theta) -> Array | None:
        """Jacobian of all blocks in the user's order, (n, p, d), without weights; None if not available."""
        return None

    def first_bad_row(self, theta: Theta) -> int | None:
        """The first row, in the user's order, whose residual or derivatives are not finite; None if unknown."""
        return None

    # --- How to resume after a crash ---------------------------------------------------------------------------------
    journal: Journal | None = None
    """Record of full passes, group by group, in a solve with a checkpoint."""

    def keep_journal(self, journal: Journal) -> None:
        """Record full passes in this journal from now on."""
        self.journal = journal

    def fingerprint(self) -> dict[str, Any]:
        """Identity of the rows, for checkpoints: ``rows``, a digest of all rows, or ``files``, their sizes and times.
        If empty, a resumed solve computes the cost of all rows again and compares it."""
        return {}

    # --- How it ends ------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Release external resources, such as the workers of a cluster."""


class Wrapper(Problem):
    """Base class of problems that change some answers of another one: every hook forwards to ``inner``.

    `make_batch`, `for_compiled_loop`, `runs`, `second_order` and `carried` are not forwarded: they would bypass the
    methods that a subclass overrides.
    """

    def __init__(self, inner: Problem) -> None:
        self.inner = inner
        self.n, self.dim, self.components, self.cost_bound = inner.n, inner.dim, inner.components, inner.cost_bound
        self.robust = inner.robust
        self.few, self.least_batch, self.largest_batch = inner.few, inner.least_batch, inner.largest_batch
        self.jump, self.fused, self.learns = inner.jump, inner.fused, inner.learns
        self.digits_up_to, self.by_differences = inner.digits_up_to, inner.by_differences
        if type(inner).make_batch is not Problem.make_batch:
            raise TypeError(f"a {type(inner).__name__} makes its own batches and cannot be wrapped")

    def linearize(self, theta: Theta, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal:
        return self.inner.linearize(theta, lo, hi, outer=outer, costs=costs)

    def costs(self, theta: Theta, lo: int, hi: int) -> Array:
        return self.inner.costs(theta, lo, hi)

    def cost(self, theta: Theta) -> float:
        return self.inner.cost(theta)

    def reads(self, theta: Theta) -> bool:
        return self.inner.reads(theta)

    def retract(self, theta: Theta, delta: Array) -> Theta:
        return self.inner.retract(theta, delta)

    def distance(self, theta: Theta, other: Theta) -> float | None:
        return self.inner.distance(theta, other)

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

    def uncertainty(self, theta: Theta, lo: int, hi: int) -> tuple[Array, Array] | None:
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
