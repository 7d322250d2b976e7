"""Rows that come in partitions, for solves on clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .columns import Columns

Partition = Columns | Callable[[], Columns]


class Partitions:
    """Rows that are already cut, as data of a solve on a cluster.

    Parameters
    ----------
    parts
        One entry per partition: a tuple of columns (arrays with one entry per row), or a function without arguments
        that returns such a tuple. The function runs on the worker that needs the rows.

    Examples
    --------
    >>> import numpy as np, problm
    >>> x = np.linspace(0.0, 1.0, 1000)
    >>> parts = problm.Partitions([(x[:300], 2 * x[:300]), (x[300:], 2 * x[300:])])
    >>> problm.least_squares(problm.formula("y ~ a*x"), [1.0], data=parts).x
    array([2.])
    """

    def __init__(self, parts: Sequence[Partition]) -> None:
        if not len(parts):
            raise ValueError("Partitions: give at least one partition")
        for i, part in enumerate(parts):
            if not callable(part) and not (isinstance(part, (tuple, list)) and len(part)):
                raise TypeError(
                    f"Partitions: partition {i} must be a tuple of columns or a function that returns one, "
                    f"got {type(part).__name__}"
                )
        self.parts = tuple(parts)

    def __len__(self) -> int:
        return len(self.parts)
