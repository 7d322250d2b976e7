"""The random order of the residual blocks, drawn only as far as it is needed.

Shuffling N rows costs more than a whole solve, so the order is never materialised. It is a list of *segments*:
each `extend` draws a simple random sample, without replacement, of the rows that no earlier segment holds, and
keeps it ascending so that memory is read forwards. A union of leading segments is then a simple random sample
of all rows, and any later segment is a simple random sample of the rest: a batch and its hold-out block. Within a
segment the order is *not* random, so a batch may only be cut where a segment ends (see `boundary`).

The last segment holds all remaining rows in ascending order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]
_NONE: Index = np.empty(0, dtype=np.int64)


def as_generator(rng: np.random.Generator | int | None) -> np.random.Generator:
    """Return a Generator unchanged, or make one from a seed or None by `numpy.random.default_rng` (SPEC 7)."""
    return np.random.default_rng(rng)


def draw_sorted(rng: np.random.Generator, free: int, m: int) -> Index:
    """A simple random sample of ``m`` of the numbers 0..free-1, ascending.

    Numbers are drawn until m different ones are there.

    Examples
    --------
    >>> draw_sorted(np.random.default_rng(0), 1000, 4)
    array([299, 748, 756, 757])
    """
    if m == free:
        return np.arange(free, dtype=np.int64)
    if 4 * m > free:
        chosen: Index = rng.choice(free, m, replace=False, shuffle=False)
        chosen.sort()
        return chosen
    rows = _distinct(_ascending(rng, free, m))
    while len(rows) < m:
        rows = np.concatenate([rows, _ascending(rng, free, m - len(rows))])
        rows.sort(kind="stable")  # merges ascending runs
        rows = _distinct(rows)
    return rows


def _ascending(rng: np.random.Generator, free: int, m: int) -> Index:
    """As many random numbers 0..free-1, ascending: sums of exponential gaps, divided by their total, are uniform
    numbers in ascending order. Sorting would take longer than all the rest."""
    sums = rng.standard_exponential(m + 1).cumsum()
    rows: Index = (sums[:-1] * (free / sums.item(m))).astype(np.int64)
    if rows.item(m - 1) == free:  # by rounding
        rows[m - 1] = free - 1
    return rows


def _distinct(rows: Index) -> Index:
    """Ascending numbers without repetitions."""
    first = np.empty(len(rows), dtype=bool)
    first[0] = True
    np.not_equal(rows[1:], rows[:-1], out=first[1:])
    return rows[first]


def count_free(chosen: Index, taken: Index, union: Index) -> None:
    """Turn ascending numbers among free rows into row numbers, in place: r becomes r + (number of taken rows below).

    ``taken`` is ascending. The taken and the chosen rows are written to ``union``, ascending, unless it is empty.
    """
    from .order_compiled import by_walking

    if by_walking.ready:  # the same rows, faster
        by_walking(chosen, taken, union)
    else:
        by_searching(chosen, taken, union)


def by_searching(chosen: Index, taken: Index, union: Index) -> None:
    """`count_free` with NumPy."""
    before = taken - np.arange(len(taken))  # free rows before each taken one
    if len(chosen) > len(taken):
        places = np.searchsorted(chosen, before)
        chosen += np.bincount(places, minlength=len(chosen) + 1)[:-1].cumsum()
    else:
        chosen += np.searchsorted(before, chosen, side="right")
    if len(union):
        union[: len(taken)], union[len(taken) :] = taken, chosen
        union.sort(kind="stable")


class DrawnOrder(ABC):
    """An order that is drawn segment by segment, and can be drawn again from what a checkpoint holds."""

    def __init__(self, rng: np.random.Generator | int | None) -> None:
        self._rng = rng  # a Generator is made at the first draw: that takes longer than a small fit
        self._states: list[Any] = []  # states of the generator before each draw

    @property
    @abstractmethod
    def cuts(self) -> list[int]:
        """Ends of the segments."""

    @abstractmethod
    def _extend(self, end: int) -> None:
        """Draw a segment up to this position."""

    def _drawing(self) -> np.random.Generator:
        """The generator, for one draw."""
        self._rng = rng = as_generator(self._rng)
        self._states.append(rng.bit_generator.state)
        return rng

    def state(self) -> dict[str, Any]:
        """State from which the order can be restored: its cuts, and the generator before each draw and now."""
        now = self._rng.bit_generator.state if isinstance(self._rng, np.random.Generator) else None
        return {"ends": self.cuts, "states": list(self._states), "now": now}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a state by drawing again. The user's Generator is reset as well."""
        self._rng = as_generator(self._rng)
        for end, before in zip(state["ends"], state["states"], strict=True):
            self._rng.bit_generator.state = before
            self._extend(end)
        if state["now"] is not None:
            self._rng.bit_generator.state = state["now"]


class RandomOrder(DrawnOrder):
    """A lazily drawn random order of ``n`` rows."""

    def __init__(self, n: int, rng: np.random.Generator | int | None = 0) -> None:
        super().__init__(rng)
        self.n = n
        self.drawn = 0
        self.segments: list[Index] = []
        self._ends: list[int] = [0]
        self._taken: Index = _NONE  # all rows drawn, ascending

    def boundary(self, position: int) -> int:
        """The first position, not before ``position``, where the order may be cut."""
        if position >= self.drawn:
            return position
        return min(end for end in self._ends if end >= position)

    def indices(self, lo: int, hi: int) -> Index:
        """Rows at the positions [lo, hi); lo and hi must be ends of segments, or beyond the drawn part."""
        if hi > self.drawn:
            if lo < self.drawn:
                return np.concatenate([self.indices(lo, self.drawn), self.indices(self.drawn, hi)])
            if lo > self.drawn:
                self._extend(lo)
            self._extend(hi)
        first, last = self._ends.index(lo), self._ends.index(hi)
        parts = self.segments[first:last]
        return parts[0] if len(parts) == 1 else np.concatenate([_NONE, *parts])

    @property
    def cuts(self) -> list[int]:
        return self._ends[1:]

    def _extend(self, end: int) -> None:
        free, m = self.n - self.drawn, end - self.drawn
        if m > free:
            raise ValueError(f"cannot draw {m} rows: {free} of {self.n} are left")
        rng = self._drawing()
        rows = self._draw(rng, free, m)
        if not self.drawn:
            self._taken = rows
        else:
            union = np.empty(end if end < self.n else 0, dtype=np.int64)
            count_free(rows, self._taken, union)
            self._taken = union
        self.segments.append(rows)
        self.drawn = end
        self._ends.append(end)

    def _draw(self, rng: np.random.Generator, free: int, m: int) -> Index:
        """Draw ascending numbers of rows among the free ones."""
        return draw_sorted(rng, free, m)
