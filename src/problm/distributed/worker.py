"""Functions that run on the workers of a cluster: sums over a partition, which any other worker can repeat.

A function takes a request, the number of a partition and the partition, and returns that number and sums of size d^2.
The answer depends on nothing else. If a worker dies, the same call runs on another one and returns the same bits. The
client adds the partitions in their own order, so the solve is the same. Data kept between calls (the gathered rows of
the batch, their costs at the last points) only save work.

Partition p, with n_p of all N rows, has its own random order. Level L of the batch holds the first ``ceil(L n_p / N)``
rows of each partition: a stratified sample with the same share of every partition. Costs are always computed between
the same cuts, so that they have the same bits whether they were kept or not.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.columns import Columns
from ..data.partitions import Partition
from ..linalg.normal import Normal, Runs
from ..problems.rows import RowModel
from ..sampling.moments import Moments
from ..sampling.order import RandomOrder
from ..solver.problem import Theta
from ..support.digest import digest
from ..support.version import __version__
from .blas import one_thread
from .partitions import loaded

Array = NDArray[np.float64]
_POINTS = 2
"""Number of points whose costs are kept: the current one and the trial."""
_RUNS = 2
"""Number of solves whose gathered rows are kept."""


@dataclass(frozen=True, slots=True)
class Request:
    """One round of a solve."""

    run: str
    """Name of the solve."""
    model: RowModel
    seed: int
    share: tuple[int, ...]
    """Levels at which the order has been cut so far, ascending."""
    n: int
    """Number of rows of all partitions."""
    theta: Theta
    trial: Theta = None
    level: int = 0
    """Index in ``share`` of the batch's level; -1 for all rows."""
    known: int = -1
    """Index of the level whose sums are known at ``theta``, -1 for none: only the rows between are linearised."""
    held: int = 0
    """Index of the level at which the hold-out block ends."""
    outer: bool = True
    starts: tuple[NDArray[np.int64], ...] = ()
    """First rows of runs of ``length`` rows in each partition."""
    length: int = 0
    second: bool = False
    """Whether second derivatives are asked for."""


def rows_of(level: int, rows: int, n: int) -> int:
    """Number of rows of a level in a partition with ``rows`` of all ``n`` rows."""
    return -(-level * rows // n)


class _Part:
    """A partition on this worker: its problem, and computed costs. It may be empty, and then has no problem."""

    def __init__(self, model: RowModel, columns: Columns, seed: int, index: int) -> None:
        self.n = len(columns[0])
        self.problem: Any = model.problem(columns, np.random.default_rng([seed, index])) if self.n else None
        self.dim = model.dim
        self._ends = [0]
        self._costs: OrderedDict[tuple[bytes, int], Array] = OrderedDict()
        self._points: list[bytes] = []

    def cuts(self, request: Request) -> list[int]:
        """Positions of the levels in this partition's order, which is drawn in the same steps everywhere."""
        ends = [0, *(rows_of(level, self.n, request.n) for level in request.share)]
        order = self.problem.random_order() if self.n else None
        for lo, hi in zip(ends[len(self._ends) - 1 : -1], ends[len(self._ends) :], strict=True):
            if order is not None and lo < hi < self.n:
                order.indices(lo, hi)
        self._ends = ends
        return ends

    def costs(self, theta: Theta, ends: Sequence[int], first: int, last: int) -> Array:
        """Costs of the rows from cut ``first`` to cut ``last`` at a point."""
        key = point_key(theta)
        if key not in self._points:
            self._points.append(key)
            for old in self._points[:-_POINTS]:
                for name in [name for name in self._costs if name[0] == old]:
                    del self._costs[name]
            del self._points[:-_POINTS]
        parts = []
        for i in range(first, last):
            if ends[i] == ends[i + 1]:
                continue
            if (key, i) not in self._costs:
                self._costs[key, i] = self.problem.costs(theta, ends[i], ends[i + 1])
            parts.append(self._costs[key, i])
        return np.concatenate(parts) if parts else np.empty(0)

    def linearize(self, theta: Theta, ends: Sequence[int], first: int, last: int, outer: bool) -> Normal:
        lo, hi = ends[first], ends[last]
        if lo == hi:
            return Normal.zero(self.dim, outer)
        normal: Normal = self.problem.linearize(theta, lo, hi, outer=outer, costs=None)
        return normal


_parts: OrderedDict[tuple[str, int], _Part] = OrderedDict()
_lock = threading.Lock()


def point_key(theta: Theta) -> bytes:
    """Bytes that identify a point."""
    if isinstance(theta, np.ndarray):
        return theta.tobytes()
    if isinstance(theta, (tuple, list)):
        return b"|".join(point_key(t) for t in theta)
    return repr(theta).encode()


def _part(request: Request, index: int, partition: Partition) -> _Part:
    with _lock:
        found = _parts.get((request.run, index))
        if found is None:
            runs = list(dict.fromkeys(run for run, _ in _parts))
            for name in [n for n in _parts if n[0] in runs[: -_RUNS + 1] and n[0] != request.run]:
                del _parts[name]
            found = _parts[request.run, index] = _Part(request.model, loaded(partition), request.seed, index)
        return found


def forget(run: str, index: int, partition: Partition) -> tuple[int, None]:
    """Release what is kept of a partition for a solve."""
    with _lock:
        _parts.pop((run, index), None)
    return index, None


@one_thread
def linearize(request: Request, index: int, partition: Partition) -> tuple[int, Normal]:
    """Sums over a partition, from the known level (or the beginning) to that of the batch; all rows at level -1."""
    part = _part(request, index, partition)
    if request.level < 0:
        return index, part.linearize(request.theta, [0, part.n], 0, 1, False)
    ends = part.cuts(request)
    return index, part.linearize(request.theta, ends, request.known + 1, request.level + 1, request.outer)


@one_thread
def runs(request: Request, index: int, partition: Partition) -> tuple[int, Runs | None]:
    """Sums over the runs of rows in a partition; None if there are none."""
    starts = request.starts[index]
    if not len(starts):
        return index, None
    problem = _part(request, index, partition).problem
    return index, problem.runs(request.theta, starts, request.length, second=request.second)


@one_thread
def second_order(request: Request, index: int, partition: Partition) -> tuple[int, tuple[Normal, Array]]:
    """Sums over a partition, and the sum of residual times second derivatives, which are known."""
    part = _part(request, index, partition)
    if not part.n:
        return index, (Normal.zero(part.dim), np.zeros((part.dim, part.dim)))
    return index, part.problem.second_order(request.theta)


@dataclass(frozen=True, slots=True)
class Trial:
    """Answer of a partition about a trial step."""

    inside: Moments | None
    outside: Moments | None
    normal: Normal
    """Sums at the trial point: if the step is accepted, they save a round."""


@one_thread
def trial(request: Request, index: int, partition: Partition) -> tuple[int, Trial]:
    """Changes of the costs of batch and hold-out block by a trial step, and the sums at the trial point."""
    part = _part(request, index, partition)
    ends = part.cuts(request)
    level, held = request.level + 1, request.held + 1
    inside, outside = (_changes(part, request, ends, a, b) for a, b in ((0, level), (level, held)))
    return index, Trial(inside, outside, part.linearize(request.trial, ends, 0, level, request.outer))


def _changes(part: _Part, request: Request, ends: Sequence[int], first: int, last: int) -> Moments | None:
    changes = part.costs(request.trial, ends, first, last) - part.costs(request.theta, ends, first, last)
    return Moments.of(changes, extremes=True) if len(changes) else None


def merge(parts: Sequence[Moments | None]) -> Moments | None:
    """Moments of all parts together; None if there are none."""
    found = [p for p in parts if p is not None]
    return Moments.merge(found) if found else None


@one_thread
def cost(request: Request, index: int, partition: Partition) -> tuple[int, float]:
    """Sum of the costs of the batch's rows, or of all rows."""
    part = _part(request, index, partition)
    if request.level < 0:
        return index, part.problem.cost(request.theta) if part.n else 0.0
    return index, float(part.costs(request.theta, part.cuts(request), 0, request.level + 1).sum())


@one_thread
def first_bad_row(request: Request, index: int, partition: Partition) -> tuple[int, int | None]:
    """The first row of a partition with a residual or derivative that is not finite."""
    part = _part(request, index, partition)
    return index, part.problem.first_bad_row(request.theta) if part.n else None


@one_thread
def residuals(request: Request, index: int, partition: Partition) -> tuple[int, Array]:
    """Residuals of a partition, (n, p)."""
    part = _part(request, index, partition)
    return index, part.problem.residuals(request.theta) if part.n else np.empty((0, request.model.components))


def digest_rows(_message: None, index: int, partition: Partition) -> tuple[int, str]:
    """Digest of the rows of a partition."""
    return index, digest(loaded(partition))


@dataclass(frozen=True, slots=True)
class Look:
    """Answer of a partition before the solve."""

    rows: int
    first: Columns
    """Its first rows."""
    versions: dict[str, str]
    """Versions of what the worker computes with."""


def look(rows: int, index: int, partition: Partition) -> tuple[int, Look]:
    """Number of rows, the first ``rows`` of them, and the worker's versions."""
    columns = loaded(partition)
    return index, Look(len(columns[0]), tuple(np.array(c[:rows]) for c in columns), versions())


def versions() -> dict[str, str]:
    """Versions on which the answers of a worker depend."""
    return {"Python": "{}.{}".format(*sys.version_info), "problm": __version__, "numpy": np.__version__}


@dataclass(frozen=True, slots=True)
class Head:
    """Request for the first rows of the random order."""

    seed: int
    level: int
    n: int


def head(request: Head, index: int, partition: Partition) -> tuple[int, Columns]:
    """The partition's share of the head: the first rows of its random order."""
    columns = loaded(partition)
    n = len(columns[0])
    rows = rows_of(request.level, n, request.n)
    if rows >= n:
        return index, columns
    chosen = RandomOrder(n, np.random.default_rng([request.seed, index])).indices(0, rows)
    return index, tuple(c[chosen] for c in columns)
