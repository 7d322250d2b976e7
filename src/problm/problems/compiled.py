"""A problem whose rows are evaluated by the compiled kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jit.addresses import ENCODE, MOVE
from ..kernels.kernel import CHUNK, Kernel, address_of, describe, loadable, loadable_type
from ..kernels.second_order import SecondOrder
from ..linalg.normal import Normal, Runs
from ..solver.problem import CREEP, JUMP, Theta
from ..support.digest import digest
from .sampled import SampledProblem

Array = NDArray[np.float64]


_OVERHEAD = 1.2e6
"""Nanoseconds that batches cost besides the full passes: draws, decisions, small calls."""
_GATHER = 240.0
"""Twice the nanoseconds for drawing and gathering two rows, one of the batch and one of its hold-out block."""
_NONE = np.empty((0, 0))
_FLAT = (0, 0, _NONE, _NONE)


class CompiledProblem(SampledProblem):
    """Columns of data, a `Kernel`, and the space of the parameters.

    Parameters
    ----------
    kernel
        The model, with its loss and threads.
    columns
        Arrays of equal length N; float64, float32 and integers are read in place, of any stride. An (N, k) array
        counts as k columns. Other types (big-endian, float16) are converted to float64: row by row for a batch, as a
        whole only when all rows are read.
    retract
        ``(theta, delta) -> theta``; flat space if not given.
    encode
        ``theta -> (q,) float64``: what the kernel reads from a point; by default the point itself.
    moves
        Compiled versions of both for a manifold: functions with the signatures `problm.jit.addresses.ENCODE` and
        ``MOVE``, and the two matrices that the first one takes; many steps are then taken in one call.
    second
        The kernel with second derivatives along the retraction, if they are known; by default that of the model, in
        flat space.
    fused
        Whether a trial on all rows linearises as well (`problm.solver.batch`). That pays off if derivatives cost little
        compared with residuals and most steps are accepted, as for curves: an accepted step then takes one pass instead
        of two.
    rng
        Random seed or Generator for the order of the rows.
    """

    def __init__(
        self,
        kernel: Kernel,
        columns: Sequence[NDArray[Any]],
        *,
        retract: Callable[[Theta, Array], Theta] | None = None,
        encode: Callable[[Theta], Array] | None = None,
        moves: tuple[Any, Any, Array, Array] | None = None,
        second: SecondOrder | None = None,
        fused: bool = False,
        rng: np.random.Generator | int | None = 0,
    ) -> None:
        super().__init__(columns, kernel.dim, rng, [loadable_type(c) for c in columns])
        self.kernel = kernel
        self.robust = not kernel.loss.is_linear
        self.components, self.cost_bound = kernel.components, kernel.loss.bound
        self.fused = fused
        # If a full pass takes a millisecond, batches cost as much time as they save.
        work = kernel.work
        self.few = int(_OVERHEAD / work)
        self.jump = min(max(work / _GATHER, 0.01), JUMP)
        self.move = retract
        self._moves = moves
        self._encode = encode
        self._known_second = second
        self._whole: tuple[NDArray[np.int64], list[NDArray[Any]]] | None = None
        self._described: dict[tuple[int, int], tuple[tuple[Any, ...], NDArray[np.int64]]] = {}

    @property
    def least_batch(self) -> int:  # type: ignore[override]
        """Number of rows below which evaluating them takes less time than deciding about them.

        With many parameters the minimiser of a small batch may be far from the one of all rows, along directions that
        its noise determines: 50 overlapping bumps of saturated height and 200,000 rows took 13 to 127 passes from 2,000
        rows, 5 from 20,000.
        """
        return 1024 if self.dim <= 16 else 8 * self.dim * self.dim

    def linearize(self, theta: Theta, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal:
        return self.kernel.linearize(
            self._point(theta), self._columns(lo, hi), hi - lo, outer=outer, costs=costs,
            notes=self.journal if hi - lo == self.n else None,
        )  # fmt: skip

    def costs(self, theta: Theta, lo: int, hi: int) -> Array:
        return self.kernel.costs(self._point(theta), self._columns(lo, hi), hi - lo)

    def cost(self, theta: Theta) -> float:
        return self.kernel.cost(self._point(theta), self._everything(), self.n, self.journal)

    def residuals(self, theta: Theta) -> Array:
        """Residuals of all rows in the user's order, shape (n, p)."""
        return self.kernel.residuals(self._point(theta), self._everything(), self.n)

    def jacobian(self, theta: Theta) -> Array:
        """Jacobian of all rows in the user's order, shape (n, p, d)."""
        return self.kernel.jacobian(self._point(theta), self._everything(), self.n)

    def grouped(self, theta: Theta, order: NDArray[np.intp], edges: NDArray[np.intp]) -> tuple[Array, Array]:
        """Sums of ``w J^T r`` (m, d) and ``w J^T J`` (m, d, d) over m groups of rows, consecutive in ``order``."""
        columns = [loadable(c[order]) for c in self.data.columns]
        return self.kernel.linearize_groups(self._point(theta), describe(columns), edges)

    in_place = True

    def runs(self, theta: Theta, starts: NDArray[np.int64], length: int, *, second: bool) -> Runs:
        made = self._second() if second else None
        if made is None:
            return self.kernel.linearize_runs(self._point(theta), self._everything(), starts, length)
        return made.runs(theta, self._everything(), starts, length, self.kernel.threads)

    @property
    def creep(self) -> float:  # type: ignore[override]
        return math.inf if self._second() is None else CREEP

    def second_order(self, theta: Theta) -> tuple[Normal, Array] | None:
        made = self._second()
        return None if made is None else made.everything(theta, self._everything(), self.n, self.kernel.threads)

    def _second(self) -> SecondOrder | None:
        """The kernel with second derivatives of the cost, if they are known."""
        made, flat = self._known_second, self.move is None and self._encode is None
        if made is None and flat and self.kernel.second is not None:
            made = self.kernel.second()
        return made.with_loss(self.kernel.loss) if made is not None and self.robust else made

    def carried(self, theta: Theta, step: Array) -> Array | None:
        made = self._second()
        return None if made is None else made.carried(theta, step)

    def factor(self, theta: Theta, lo: int, hi: int) -> Array:
        """Triangular factor of the weighted [J r] of the blocks at positions [lo, hi), (d + 1, d + 1)."""
        return self.kernel.factor(self._point(theta), self._columns(lo, hi), hi - lo)

    def concentration(self, theta: Theta, lo: int, hi: int, root: Array) -> Array | None:
        return self.kernel.concentration(self._point(theta), self._columns(lo, hi), hi - lo, root)

    def for_compiled_loop(self) -> tuple[Any, ...] | None:
        known = self._moves is not None or (self._encode is None and self.move is None)
        if not (known and self.fused and self.n <= CHUNK):
            return None
        moves: tuple[Any, ...] = _FLAT
        if self._moves is not None:
            encode, move, *matrices = self._moves
            moves = address_of(encode, ENCODE), address_of(move, MOVE), *matrices
        return self.kernel.address, self._everything(), self.n, *self.kernel.fixed, *moves

    def first_bad_row(self, theta: Theta) -> int | None:
        """The first row, in the user's order, with a residual or derivative that is not finite."""
        point, step = self._point(theta), max((1 << 20) // (1 + self.dim), 1)
        for lo in range(0, self.n, step):
            part = [loadable(c[lo : lo + step]) for c in self.data.columns]
            table, k = describe(part), len(part[0])
            finite = np.isfinite(self.kernel.costs(point, table, k))
            finite &= np.isfinite(self.kernel.jacobian(point, table, k).reshape(k, -1)).all(axis=1)
            if not finite.all():
                return lo + int(np.argmin(finite))
        return None

    def fingerprint(self) -> dict[str, Any]:
        kernel = self.kernel
        # A program that points to memory is another one in every process.
        program = [] if kernel.keep else [kernel.program]
        model = {"model": digest([*program, kernel.constants]), "loss": [kernel.loss.name, kernel.loss.scale]}
        return {**super().fingerprint(), **model}

    def release(self) -> None:
        """Release the gathered rows: from now on only passes over all rows follow."""
        self._described.clear()
        super().release()

    def _point(self, theta: Theta) -> Array:
        point = theta if self._encode is None else self._encode(theta)
        return np.ascontiguousarray(point, dtype=np.float64)

    def _everything(self) -> NDArray[np.int64]:
        """Descriptor of the user's columns in place; kept together with converted copies."""
        self.data.check_files()
        if self._whole is None:
            columns = [loadable(c) for c in self.data.columns]
            self._whole = describe(columns), columns
        return self._whole[0]

    def _columns(self, lo: int, hi: int) -> NDArray[np.int64]:
        """Descriptor of the rows at [lo, hi), kept because a batch and its hold-out block alternate."""
        if lo == 0 and hi == self.n:
            return self._everything()
        known = self._described.get((lo, hi))
        if known is not None and self.data.keeps(known[0][0]):
            return known[1]
        views = self.data.rows(lo, hi)
        # The buffers behind the views are kept alive while the descriptor is used.
        buffers = tuple(v if v.base is None else v.base for v in views)
        if not all(self.data.keeps(owners[0]) for owners, _ in self._described.values()):
            self._described.clear()  # those rows are not read again
        table = describe(views)
        self._described[lo, hi] = buffers, table
        return table
