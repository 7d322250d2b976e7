"""Rows as partitions: tuples of columns, or functions that read them where they are needed.

Where rows are cut and which small partitions are joined depends on the data only, never on the workers: the sums of a
solve are added partition by partition, and have the same bits for any number of workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..data.columns import Columns, Source, row_bytes
from ..data.partitions import Partition, Partitions
from ..data.sources import open_source
from ..support.array_kinds import as_numbers

LEAST_BYTES = 1 << 20
"""Size up to which neighbours are joined: below, a call costs more than its rows."""
_MOST_BYTES = 1 << 26
_PARTS = 64
"""Number of partitions of medium-sized data: enough for the cores of a machine."""


@dataclass(frozen=True)
class Rows:
    """Rows [lo, hi) of a source."""

    source: Source
    lo: int
    hi: int

    def __call__(self) -> Columns:
        return self.source.read(self.lo, self.hi)


def partitions_of(data: Any) -> list[Partition]:
    """Partitions of `Partitions`, or of anything that `problm.data.sources.open_source` takes."""
    if isinstance(data, Partitions):
        return _joined(data.parts)
    source = open_source(data)
    total = source.n * row_bytes(source)
    size = min(max(LEAST_BYTES, total // _PARTS), _MOST_BYTES)
    rows = max(1, size // row_bytes(source))
    bounds = pairwise([*range(0, source.n, rows), source.n])
    if _in_memory(data):  # a partition carries only its rows, not the whole arrays
        return [source.read(lo, hi) for lo, hi in bounds]
    return [Rows(source, lo, hi) for lo, hi in bounds]


def loaded(partition: Partition) -> Columns:
    """The columns of a partition."""
    columns = partition() if callable(partition) else partition
    if not isinstance(columns, (tuple, list)) or not len(columns):
        raise TypeError(f"a partition must be a tuple of columns, got {type(columns).__name__}")
    arrays = tuple(as_numbers(f"column {i} of a partition", c) for i, c in enumerate(columns))
    lengths = {len(c) if c.ndim else -1 for c in arrays}
    if len(lengths) > 1 or -1 in lengths:
        raise ValueError(f"the columns of a partition must have one entry per row, got {[c.shape for c in arrays]}")
    return arrays


def concatenated(parts: Sequence[Columns]) -> Columns:
    """The rows of some partitions, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))


def neighbours(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ranges [first, last) of partitions of these sizes, in bytes, that are joined."""
    first, total = 0, 0
    for i, size in enumerate(sizes):
        total += size
        if total >= LEAST_BYTES or i == len(sizes) - 1:
            yield first, i + 1
            first, total = i + 1, 0


def _joined(parts: Sequence[Partition]) -> list[Partition]:
    """Small neighbours in memory together; functions, whose sizes are unknown, as they are."""
    if any(callable(part) for part in parts):
        return list(parts)
    arrays = [loaded(part) for part in parts]
    sizes = [sum(c.nbytes for c in columns) for columns in arrays]
    return [concatenated(arrays[first:last]) for first, last in neighbours(sizes)]


def _in_memory(data: Any) -> bool:
    parts = list(data.values()) if isinstance(data, Mapping) else data if isinstance(data, (tuple, list)) else [data]
    return any(isinstance(a, np.ndarray) and not isinstance(a, np.memmap) for a in parts)
