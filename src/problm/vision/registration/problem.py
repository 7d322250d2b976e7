r"""Two clouds as a least-squares problem: one residual block per source point.

The cost of a source point is that of its distance from the target: from the nearest target point, or from the plane
there. Which point is nearest depends on the pose, so a batch searches for the neighbours of its own rows, and only of
these: a step on a thousand of a million points takes a thousand searches. A row's neighbour is kept for as long as it
is certainly the nearest one (`problm.vision.registration.kernels`). Near the minimum, where steps are short compared
with the distances between target points, that holds for most rows, and a pass over all rows takes few searches.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import Kernel, describe
from ...linalg.normal import Normal
from ...losses import Loss
from ...manifolds import ROTATION, euclidean, product
from ...problems.sampled import SampledProblem
from ...solver.problem import Theta
from .kernels import MATCHED, find_stale, gather_matches, plane_evaluator, point_evaluator, transform
from .target import Index, Target

Array = NDArray[np.float64]
RIGID = product(ROTATION, euclidean(3))
SIMILAR = product(ROTATION, euclidean(4))
REACH = 1.5
"""Distance up to which neighbours are searched, in gates: rows just outside need no new search after a short step."""


class RegistrationProblem(SampledProblem):
    """Source points against a target under a pose.

    Parameters
    ----------
    source : (n, 3) float64, contiguous; in spatial order, searches are fastest.
    target : the other cloud.
    plane : point to plane, or point to point.
    similar : whether the logarithm of a scale is a parameter, after rotation and translation.
    loss : robust loss on the norm of a row's residual.
    gate : largest distance of a match; a row without one has the residual ``gate`` and no derivative.
    side : largest distance of a match along its plane.
    threads : number of threads for the passes.
    rng : random seed or Generator for the order of the rows.
    """

    few = 4000  # below, the decisions about batches take as long as the searches
    least_batch = 1000

    def __init__(
        self,
        source: Array,
        target: Target,
        *,
        plane: bool = True,
        similar: bool = False,
        loss: Loss | None = None,
        gate: float = np.inf,
        side: float = np.inf,
        threads: int = 1,
        rng: np.random.Generator | int | None = 0,
    ) -> None:
        space = SIMILAR if similar else RIGID
        super().__init__([source], space.dim, rng)
        self.source, self.target, self.plane, self.gate, self.side = source, target, plane, gate, side
        self.kernel = Kernel(
            plane_evaluator if plane else point_evaluator, space.dim, 1 if plane else 3,
            constants=np.array([gate]), loss=loss or Loss.named("linear"), threads=threads,
        )  # fmt: skip
        self.move = space.retract
        self.robust = not self.kernel.loss.is_linear
        self.components, self.cost_bound = self.kernel.components, self.kernel.loss.bound
        self._everything = np.arange(self.n)
        self._nearest = np.full(self.n, -1, dtype=np.int64)
        self._second = np.full(self.n, -np.inf)  # stale
        self._asked = np.zeros((self.n, 3))
        self.searches = 0
        """Number of searches so far."""

    def linearize(self, theta: Theta, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal:
        rows = self.rows(theta, lo, hi)
        return self.kernel.linearize(theta, describe(rows), hi - lo, outer=outer, costs=costs)

    def costs(self, theta: Theta, lo: int, hi: int) -> Array:
        rows = self.rows(theta, lo, hi)
        return self.kernel.costs(theta, describe(rows), hi - lo)

    def cost(self, theta: Theta) -> float:
        rows = self.rows(theta, 0, self.n)
        return self.kernel.cost(theta, describe(rows), self.n)

    def residuals(self, theta: Theta) -> Array:
        rows = self.rows(theta, 0, self.n)
        return self.kernel.residuals(theta, describe(rows), self.n)

    def jacobian(self, theta: Theta) -> Array:
        rows = self.rows(theta, 0, self.n)
        return self.kernel.jacobian(theta, describe(rows), self.n)

    def grouped(self, theta: Theta, order: NDArray[np.intp], edges: NDArray[np.intp]) -> tuple[Array, Array]:
        """Sums of ``w J^T r`` (m, d) and ``w J^T J`` (m, d, d) over m groups of rows, consecutive in ``order``."""
        rows = [np.ascontiguousarray(c[order]) for c in self.rows(theta, 0, self.n)]
        return self.kernel.linearize_groups(theta, describe(rows), edges)

    def matched(self, theta: Theta) -> NDArray[np.bool_]:
        """(n,) which rows have a target point within the gate."""
        return self.rows(theta, 0, self.n)[1][:, MATCHED - 1] > 0.0

    def thinned(self, most: int) -> tuple[RegistrationProblem, float]:
        """The problem with at most so many of its rows, evenly spread, and their share of all."""
        step = -(-self.n // most)
        if step <= 1:
            return self, 1.0
        some = np.ascontiguousarray(self.source[step // 2 :: step])
        thin = RegistrationProblem(
            some, self.target, plane=self.plane, similar=self.dim > 6, loss=self.kernel.loss, gate=self.gate,
            side=self.side, threads=self.kernel.threads or 1,
        )  # fmt: skip
        return thin, len(some) / self.n

    def rows(self, theta: Array, lo: int, hi: int) -> list[Array]:
        """Source points (k, 3) at the positions [lo, hi) and their matches (k, 7) at this pose."""
        everything = lo == 0 and hi == self.n
        rows: Index = self._everything if everything else self.indices(lo, hi)
        source: Array = self.source if everything else self.source[rows]
        points = np.empty_like(source)
        transform(theta, source, points)
        self._search(points, rows)
        matches = np.empty((len(rows), MATCHED))
        target = self.target
        normals, side = (target.normals, self.side) if self.plane else (target.points, np.inf)  # not read
        gather_matches(points, rows, target.points, normals, self._nearest, self.gate, side, matches)
        return [source, matches]

    def _search(self, points: Array, rows: Index) -> None:
        """Bring the neighbours of these rows up to date."""
        stale = np.empty(len(rows), dtype=bool)
        args = self.target.points, self._nearest, self._asked, self._second
        find_stale(points, rows, *args, self.gate, stale)
        which = np.flatnonzero(stale)
        if len(which) == 0:
            return
        if rows is not self._everything:
            which = which[np.argsort(rows[which])]  # rows are in spatial order
        asked, at = points[which], rows[which]
        self._nearest[at], self._second[at] = self.target.search(asked, REACH * self.gate)
        self._asked[at] = asked
        self.searches += len(which)
