"""Which worker evaluates which partitions: those that it has, but none many more than its share."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

_UNEVEN = 1.25
"""Multiple of its share that a worker keeps: sending a partition takes longer than several passes over it."""


@dataclass(frozen=True)
class Shard:
    """Partitions of one worker; ``worker`` is None for a partition that nobody has yet."""

    worker: str | None
    indices: list[int]


def shards_of(owners: Sequence[Sequence[str]], workers: Collection[str]) -> list[Shard]:
    """Divide partitions among workers.

    Parameters
    ----------
    owners : for each partition, the workers that have it.
    workers : all workers.

    Examples
    --------
    >>> shards_of([["a"], ["a"], ["a"], []], {"a", "b"})
    [Shard(worker='a', indices=[0, 1]), Shard(worker='b', indices=[2]), Shard(worker=None, indices=[3])]
    """
    made = [i for i, names in enumerate(owners) if names]
    even = len(made) / max(len(workers), 1)
    most = max(math.ceil(even), int(_UNEVEN * even))
    taken: dict[str, list[int]] = {worker: [] for worker in sorted(workers)}
    homeless = []
    for i in made:
        worker = min(owners[i], key=lambda name: len(taken[name]))
        if len(taken[worker]) < most:
            taken[worker].append(i)
        else:
            homeless.append(i)
    for i in homeless:
        min(taken.values(), key=len).append(i)
    found = [Shard(worker, sorted(indices)) for worker, indices in taken.items() if indices]
    return found + [Shard(None, [i]) for i, names in enumerate(owners) if not names]
