"""The only thing that a cluster has to do: apply a function to every partition, and return the answers.

`MapReduce` is three functions. Everything else (which rows, which sums, in which order they are added) is done by
`problm.distributed.problem` and `problm.distributed.worker`, for Dask (`problm.distributed.dask_cluster`), pools of
`concurrent.futures`, a single process, and whatever the user plugs in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..data.partitions import Partition
from .partitions import partitions_of

Function = Callable[[Any, int, Partition], tuple[int, Any]]
"""Function of a message, the number of a partition and the partition; returns that number and the answer."""


@dataclass(frozen=True)
class MapReduce:
    """A cluster as three functions, for ``client=``.

    Parameters
    ----------
    scatter
        ``scatter(partitions) -> placed``: place a list of partitions and return whatever finds them again. A partition
        is a tuple of NumPy arrays or a function without arguments that returns one (rows of a file, for example).
    map
        ``map(function, message, placed) -> answers``: call ``function(message, i, partition)`` for the i-th partition,
        for all i, anywhere, and return the answers in any order. Calls may be repeated elsewhere: the same arguments
        give the same bits. ``function`` and ``message`` can be pickled if the model can.
    release
        ``release(placed)``: forget the partitions at the end of the solve. By default nothing is done.
    partitions
        How to cut the user's data; by default small neighbours are joined and files are cut into parts of 1 to 64 MB.
    threads
        Threads that a call may use, for compiled models.

    Examples
    --------
    >>> import numpy as np, problm
    >>> def everywhere(function, message, placed):
    ...     return [function(message, i, partition) for i, partition in enumerate(placed)]
    >>> x = np.linspace(0.0, 1.0, 1000)
    >>> cluster = problm.MapReduce(scatter=list, map=everywhere)
    >>> problm.least_squares(problm.formula("y ~ a*x"), [1.0], data=(x, 2 * x), client=cluster).x
    array([2.])
    """

    scatter: Callable[[Sequence[Any]], Any]
    map: Callable[[Function, Any, Any], Sequence[tuple[int, Any]]]
    release: Callable[[Any], object] = lambda placed: None
    partitions: Callable[[Any], Sequence[Any]] = partitions_of
    threads: int = 1
