"""A problem whose rows are read from a `problm.data.columns.Source` and need not fit into memory.

Below N, the rows of the batch and of its hold-out block are drawn by a `problm.sampling.chunk_order.ChunkOrder`, read
once and kept. At N, a thread reads pieces of the file ahead, in order, while the others compute; only sums are kept.
Such a pass waits for the disk, so a trial step is linearised in the same pass (``fused``), and the second of two passes
is already the certificate.

Memory: a third of ``max_memory`` is for the batch, its hold-out block and their costs, which limits `largest_batch`; a
larger batch goes to all rows. An eighth is for pieces that are read ahead. The rest keeps chunks that took work to
decode (Parquet, Zarr, Dask), so that a file that fits is decoded once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..data.columns import Columns, Source, even_ends, row_bytes
from ..linalg.normal import Clusters, Normal
from ..sampling.chunk_order import ChunkOrder, Segment
from ..sampling.moments import Moments
from ..solver.problem import Theta
from ..support.files import stamp
from ..support.memory import as_bytes
from ..support.reduction import add_pairwise
from .rows import Modelled, RowModel

Array = NDArray[np.float64]
T = TypeVar("T", Normal, float)
_PIECE_BYTES = 1 << 23
_PIECE_ROWS = 32768
"""Size of a piece: a multiple of the kernels' chunk, about 8 MiB, which is read at the disk's full rate."""
_AHEAD = 2
_READERS = 4


class ChunkedProblem(Modelled[RowModel]):
    """Residual blocks over the rows of a source.

    Parameters
    ----------
    rows
        The model, which evaluates rows (`problm.problems.rows`).
    source
        Source of the rows.
    rng
        Random seed or Generator for the order of the rows.
    max_memory
        Bytes, or text such as ``"1GB"``, for everything the solve keeps; None: half of the free memory.
    """

    fused = True

    def __init__(
        self,
        rows: RowModel,
        source: Source,
        *,
        rng: np.random.Generator | int | None = 0,
        max_memory: int | float | str | None = None,
    ) -> None:
        super().__init__(rows)
        self.source = source
        self.n = source.n
        self.max_memory = as_bytes(max_memory)
        each = row_bytes(source)
        chunks = len(source.ends)
        # Six numbers per row: costs of batch and hold-out block at the point and at the trial, and their differences.
        drawable = self.max_memory // 3 // (each + 48)
        most = 256 if source.fine else 32
        least = min(max(8, chunks // 64), most)
        self.order = ChunkOrder(source.ends, source.fine, least, rng)
        self.largest_batch = max(1, min(drawable // 2, self.n // 4))
        self.least_batch = 0
        if not source.fine:
            # Chunks are read as a whole: a batch with fewer rows than its chunks hold only saves arithmetic.
            mean = -(-self.n // chunks)
            self.least_batch = least * max(1, min(mean, self.largest_batch // (8 * least)))
        self._piece_ends = _pieces(source, min(_PIECE_BYTES, self.max_memory // (8 * (_AHEAD + 1))))
        self._buffers: list[NDArray[Any]] = []
        self._kept = 0
        self._cache: dict[int, Columns] = {}
        self._cache_room = 0 if source.fine else self.max_memory // 2
        self._files: list[str] | None = getattr(source, "files", None)
        self._stamped = self._stamps()

    def linearize(self, theta: Theta, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal:
        if hi == self.n and lo == 0:
            return self._sum(
                lambda piece: self.model.problem(piece).linearize(theta, 0, len(piece[0]), outer=False, costs=None)
            )
        rows = self._rows(lo, hi)
        if not outer:
            return self.model.problem(rows).linearize(theta, 0, hi - lo, outer=False, costs=costs)
        starts = [*self.order.group_starts(lo, hi).tolist(), hi - lo]
        parts = []
        for a, b in pairwise(starts):
            group = self.model.problem(tuple(c[a:b] for c in rows))
            kept = None if costs is None else costs[a:b]
            parts.append(group.linearize(theta, 0, b - a, outer=False, costs=kept))
        return as_units(parts)

    def concentration(self, theta: Theta, lo: int, hi: int, root: Array) -> Array | None:
        return self.model.problem(self._rows(lo, hi)).concentration(theta, 0, hi - lo, root)

    def costs(self, theta: Theta, lo: int, hi: int) -> Array:
        if hi - lo == self.n:
            return np.concatenate([self.model.problem(p).costs(theta, 0, len(p[0])) for _, p in self._stream()])
        rows = self._rows(lo, hi)
        return self.model.problem(rows).costs(theta, 0, hi - lo)

    def cost(self, theta: Theta) -> float:
        return self._sum(lambda piece: self.model.problem(piece).cost(theta))

    def _sum(self, evaluate: Callable[[Columns], T]) -> T:
        """The sum over all pieces, recorded in the journal of a solve with a checkpoint."""
        done, noted = (0, None) if self.journal is None else self.journal.resume("levels")
        counter: list[tuple[int, T]] = [(level, total) for level, total in noted or ()]

        def parts() -> Iterator[T]:
            for k, (_, piece) in enumerate(self._stream(done), done + 1):
                yield evaluate(piece)
                if self.journal is not None:
                    self.journal.note(k, list(counter))

        return add_pairwise(parts(), counter=counter)

    def fingerprint(self) -> dict[str, Any]:
        stamps = self._stamps()
        model = self.identity(tuple(np.zeros((1, *c.shape), dtype=c.dtype) for c in self.source.columns))
        return model if stamps is None else {**model, "files": stamps}

    def _stamps(self) -> list[list[int]] | None:
        """Sizes and times of the files behind the source; None if they are unknown."""
        return None if self._files is None else [stamp(file) for file in self._files]

    def moments(self, values: Array, lo: int, hi: int) -> Moments:
        """Moments of values of the blocks at [lo, hi), in sampling units."""
        return Moments.clusters(values, self.order.group_starts(lo, hi))

    def residuals(self, theta: Theta) -> Array:
        """Residuals of all rows in the file's order, (n, p)."""
        need = 8 * self.n * self.components
        if need > self.max_memory:
            raise MemoryError(
                f"all {self.n} residuals take {need} bytes, more than max_memory={self.max_memory}: "
                "evaluate the model on the rows that you need"
            )
        return np.concatenate([self.model.problem(p).residuals(theta) for _, p in self._stream()])

    def first_bad_row(self, theta: Theta) -> int | None:
        """The first row of the file whose residual or derivatives are not finite."""
        for lo, piece in self._stream():
            row = self.model.problem(piece).first_bad_row(theta)
            if row is not None:
                return lo + row
        return None

    def refine_derivatives(self) -> bool:
        return self.model.refine_derivatives()

    def boundary(self, position: int) -> int:
        return self.order.boundary(position)

    def random_order(self) -> ChunkOrder:
        return self.order

    def indices(self, lo: int, hi: int) -> NDArray[np.int64]:
        """Row numbers of the file at the positions [lo, hi)."""
        return np.arange(self.n) if hi - lo == self.n else self.order.indices(lo, hi)

    def release(self) -> None:
        """Release the rows of the batch, and use their memory for chunks: from now on only all rows are read."""
        self._buffers, self._kept = [], 0
        if not self.source.fine:
            self._cache_room += self.max_memory // 3

    def _rows(self, lo: int, hi: int) -> Columns:
        """Columns at the positions [lo, hi), read if they are not in memory yet."""
        if hi > self._kept:
            segments = self.order.between(self._kept, hi)
            grown = []
            for j, column in enumerate(self.source.columns):
                buffer = np.empty((hi, *column.shape), dtype=column.dtype)
                if self._kept:
                    buffer[: self._kept] = self._buffers[j][: self._kept]
                    self._buffers[j] = buffer[:0]  # release the old buffer before the next column's is allocated
                grown.append(buffer)
            for segment in segments:
                self._gather(segment, tuple(b[segment.lo : segment.hi] for b in grown))
            self._buffers, self._kept = grown, hi
        return tuple(b[lo:hi] for b in self._buffers)

    def _gather(self, segment: Segment, out: Columns) -> None:
        """Read the rows of a segment with several threads, chunks in the order of the file."""
        position = segment.positions()
        ascending = np.argsort(segment.begin, kind="stable")
        read = self._read_run if self.source.fine else self._read_spread

        def some(units: NDArray[np.int64]) -> None:
            for i in units:
                at, taken = int(position[i]), int(segment.taken[i])
                read(segment, int(i), tuple(c[at : at + taken] for c in out))

        readers = min(_READERS, len(ascending))
        with ThreadPoolExecutor(readers, thread_name_prefix="problm-read") as pool:
            for done in [pool.submit(some, ascending[k::readers]) for k in range(readers)]:
                done.result()

    def _read_run(self, segment: Segment, i: int, out: Columns) -> None:
        begin, size = int(segment.begin[i]), int(segment.size[i])
        offset, taken = int(segment.offset[i]), int(segment.taken[i])
        first = min(taken, size - offset)
        _copy(self.source.read(begin + offset, begin + offset + first), tuple(c[:first] for c in out))
        if first < taken:  # wraps around the end of the chunk
            _copy(self.source.read(begin, begin + taken - first), tuple(c[first:] for c in out))

    def _read_spread(self, segment: Segment, i: int, out: Columns) -> None:
        chunk = self._chunk(int(segment.begin[i]), int(segment.begin[i] + segment.size[i]))
        _copy(tuple(c[segment.rows_of(i)] for c in chunk), out)

    def _chunk(self, lo: int, hi: int) -> Columns:
        """Rows [lo, hi) of the file; kept while there is room."""
        kept = self._cache.get(lo)
        if kept is not None and len(kept[0]) == hi - lo:
            return kept
        columns = self.source.read(lo, hi)
        size = sum(c.nbytes for c in columns)
        if size <= self._cache_room:
            self._cache_room -= size
            self._cache[lo] = columns
        return columns

    def _stream(self, first: int = 0) -> Iterator[tuple[int, Columns]]:
        """All rows in the file's order, in pieces from number ``first`` on, each with its first row; a thread reads
        ahead. Raises OSError if files change during the solve: sums over two versions mean nothing."""
        ends = self._piece_ends
        largest = int(np.diff(ends, prepend=0).max())
        spare = [
            tuple(np.empty((largest, *c.shape), dtype=c.dtype) for c in self.source.columns)
            for _ in range(min(_AHEAD + 1, len(ends)) if self.source.fine else 0)
        ]

        def read(k: int) -> Columns:
            lo, hi = int(ends[k - 1]) if k else 0, int(ends[k])
            return self.source.read(lo, hi, spare[k % len(spare)]) if spare else self._chunk(lo, hi)

        each = row_bytes(self.source)
        waiting: deque[Future[Columns]] = deque()
        pool = ThreadPoolExecutor(1, thread_name_prefix="problm-read")
        try:
            asked = first
            for k in range(first, len(ends)):
                while asked < min(k + _AHEAD + 1, len(ends)):
                    waiting.append(pool.submit(read, asked))
                    asked += 1
                yield int(ends[k - 1]) if k else 0, waiting.popleft().result()
                if self.watch is not None:
                    self.watch(int(ends[k]) * each, self.n * each)
            if self._stamps() != self._stamped:
                raise OSError(f"{', '.join(self._files or ())[:200]} changed while being read")
        finally:
            pool.shutdown(cancel_futures=True)


def _pieces(source: Source, size: int) -> NDArray[np.int64]:
    """Ends of the pieces of a pass: at chunks, or anywhere in a file without chunks."""
    each = row_bytes(source)
    if source.fine:
        return even_ends(source.n, max(1, size // each // _PIECE_ROWS) * _PIECE_ROWS)
    # Pieces are the chunks themselves, so that chunks kept from drawing rows are used in passes as well.
    return source.ends


def _copy(columns: Columns, out: Columns) -> None:
    for source, target in zip(columns, out, strict=True):
        target[...] = source


def as_units(parts: list[Normal]) -> Normal:
    """The sum of the normal equations of sampling units, with the outer products of the units' gradients."""
    total = add_pairwise(parts)
    gradients = np.array([p.gradient for p in parts])
    sizes = np.array([p.count for p in parts], dtype=np.float64)
    clusters = Clusters(len(parts), float(sizes @ sizes), sizes @ gradients)
    return Normal(total.count, total.cost, total.gradient, total.hessian, gradients.T @ gradients, clusters)
