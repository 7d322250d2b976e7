r"""A random order over chunks: few reads, and a sample whose error can still be estimated.

Reading single rows of a large file at random costs one seek per row. Reading whole chunks is cheap, but rows of one
chunk may be similar: files are often sorted by time, place or experiment. A segment of the order is therefore a
*cluster sample*:

1. Chunks are drawn at random without replacement, at least ``least`` of them however few rows are needed.
2. The same share of rows is taken from each chunk, evenly spaced from a random start (or as a contiguous run, if a part
   of a chunk can be read alone), so that every row of the file has the same probability.
3. The chunks are distributed at random over at most 64 groups. A group is the sampling unit of the statistics.

The only assumption is that the draws are random. Rows within a chunk may be arbitrarily similar: the sample's error is
computed from the spread *between* the groups (`problm.sampling.moments`, "random groups": Wolter, Introduction to
Variance Estimation, chapter 2), so a sorted file only widens the acceptance test and makes the batch grow sooner. Rows
that were not taken from a drawn chunk are not drawn later. The hold-out block therefore always lies in other chunks
than the batch, which makes the test stricter than necessary, never laxer.

When all chunks have been drawn, they are drawn again, and a row may then occur twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .order import DrawnOrder, RandomOrder

Index = NDArray[np.int64]
GROUPS = 64
"""Sampling units in a segment: enough for a standard deviation to 9 %, few enough for a pass over each."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows at the positions [lo, hi) of the order; one entry per chunk, in the order of the positions."""

    lo: int
    hi: int
    chunk: Index
    """Number of the chunk."""
    begin: Index
    """First row of the chunk."""
    size: Index
    """Number of rows in the chunk."""
    offset: Index
    """The row of the chunk to start at."""
    stride: Index
    taken: Index
    """Number of rows taken from the chunk."""
    groups: Index
    """(g,) positions, counted from lo, at which the groups begin."""

    def positions(self) -> Index:
        """Positions, counted from lo, at which the rows of each chunk begin, (chunks,)."""
        return np.cumsum(self.taken) - self.taken

    def rows_of(self, i: int) -> Index:
        """Row numbers taken from the i-th chunk, counted from the beginning of the chunk."""
        rows: Index = (self.offset[i] + self.stride[i] * np.arange(self.taken[i])) % self.size[i]
        return rows


class ChunkOrder(DrawnOrder):
    """A random order of the rows of a chunked file, drawn only as far as it is needed.

    Parameters
    ----------
    ends : (M,) ends of the chunks.
    fine : whether to take contiguous runs of rows, rather than rows spread over the chunk.
    least : minimum number of chunks in a segment.
    rng : seed or Generator.
    """

    def __init__(self, ends: Index, fine: bool, least: int, rng: np.random.Generator | int | None = 0) -> None:
        super().__init__(rng)
        self.n = int(ends[-1])
        self.ends = ends
        self.least = min(least, len(ends))
        self.fine = fine
        self.segments: list[Segment] = []
        self._chunks: RandomOrder | None = None

    @property
    def drawn(self) -> int:
        return self.segments[-1].hi if self.segments else 0

    def boundary(self, position: int) -> int:
        """The first position, not before ``position``, where the order may be cut."""
        if position >= self.drawn:
            return position
        return min(s.hi for s in self.segments if s.hi >= position)

    def between(self, lo: int, hi: int) -> list[Segment]:
        """The segments that make up [lo, hi), drawn as needed; the order must be cut at both ends."""
        if lo > self.drawn:
            self._extend(lo)
        if hi > self.drawn:
            self._extend(hi)
        found = [s for s in self.segments if lo <= s.lo and s.hi <= hi]
        if not found or found[0].lo != lo or found[-1].hi != hi:
            raise ValueError(f"the order cannot be cut at {lo} and {hi}")
        return found

    def indices(self, lo: int, hi: int) -> Index:
        """Row numbers at the positions [lo, hi)."""
        parts = [s.begin[i] + s.rows_of(i) for s in self.between(lo, hi) for i in range(len(s.chunk))]
        return np.concatenate(parts)

    def group_starts(self, lo: int, hi: int) -> Index:
        """Positions, counted from lo, at which the sampling units of [lo, hi) begin."""
        return np.concatenate([s.lo - lo + s.groups for s in self.between(lo, hi)])

    @property
    def cuts(self) -> list[int]:
        return [s.hi for s in self.segments]

    def _extend(self, end: int) -> None:
        rows = end - self.drawn
        rng = self._drawing()
        chosen = self._draw_chunks(rows)
        order = rng.permutation(len(chosen))  # random groups: chunks come out of the draw in ascending order
        chosen = chosen[order]
        begin = np.where(chosen > 0, self.ends[chosen - 1], 0)
        size = self.ends[chosen] - begin
        # Take the same share of every chunk, rounded so that the sum is exact.
        total = np.cumsum(size)
        cuts = rows * total // total[-1]
        taken = np.diff(cuts, prepend=0)
        kept = taken > 0
        chosen, begin, size, taken = chosen[kept], begin[kept], size[kept], taken[kept]
        offset = rng.integers(0, size)
        stride = np.ones_like(size) if self.fine else size // taken
        first = np.cumsum(taken) - taken
        count = min(GROUPS, len(chosen))
        groups = first[len(chosen) * np.arange(count) // count]
        self.segments.append(Segment(self.drawn, end, chosen, begin, size, offset, stride, taken, groups))

    def _draw_chunks(self, rows: int) -> Index:
        """Chunks, ascending, that together hold at least ``rows`` rows."""
        chosen: list[Index] = []
        held, missing = 0, max(min(self.least, rows), -(-rows * len(self.ends) // self.n))
        while held < rows or not chosen:
            if self._chunks is None or self._chunks.drawn == self._chunks.n:
                self._chunks = RandomOrder(len(self.ends), self._rng)
            at = self._chunks.drawn
            more = self._chunks.indices(at, min(at + missing, self._chunks.n))
            chosen.append(more)
            held += int((self.ends[more] - np.where(more > 0, self.ends[more - 1], 0)).sum())
            missing = max(1, -(-(rows - held) * len(self.ends) // self.n))
        return np.sort(np.concatenate(chosen))
