"""Test whether a residual function treats every row by itself.

Batches and chunks are only valid for functions whose residual of a row does not depend on the other rows of the call.
``t - t[0]``, ``cumsum``, ``y / y.sum()``, convolutions, closures over arrays of full length and noise do not qualify.
Users do not declare this, so it is tested:

- Before the first step (`is_row_wise`), on 64 rows: both ends, a run in the middle, and rows from all over. They are
  evaluated together in order; then one half is evaluated shuffled and the other half backwards. Every row must get the
  same values. A value taken from the first or last row, an extreme, a mean, a sum, the number of rows, neighbours and
  ranks all differ between a set and at least one of its halves. The test is done at parameters a little off the start,
  where a zero cannot hide a term.
- At the solution, where the function is evaluated on all rows at once and in chunks (`agree`). This shows effects in
  few rows, such as the convolution of one narrow line.

Values may differ by rounding: a product or an exponential may be computed in another order for another number of rows.
The first tolerance is relative to the largest value. If it is exceeded, the second one is the change of the values when
the parameters change in their last digits, which shows how the function amplifies rounding.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..solver.problem import Theta

Columns = tuple[NDArray[Any], ...]
Evaluate = Callable[[Theta, Columns], Sequence[NDArray[Any]]]
"""``(theta, rows) ->`` arrays with one entry per row along the first axis: residuals, derivatives."""
ROWS = 64
_EIGHTH = ROWS // 8
_GOLDEN = 0.6180339887498949
_SPREAD = (_GOLDEN * np.arange(2, ROWS // 2 + 2)) % 1.0
_SHARES = np.repeat([0.0, 1.0, _GOLDEN, *_SPREAD], [_EIGHTH, _EIGHTH, 2 * _EIGHTH, *[1] * len(_SPREAD)])
_OFFSETS = np.concatenate([np.arange(_EIGHTH), np.arange(-_EIGHTH, 0), np.arange(2 * _EIGHTH), 0 * _SPREAD]).astype(int)
"""Rows to try are these shares of all, plus offsets: both ends, a run in the middle, and rows from all over."""
_APART = 10_000
"""Number of rows from which these differ."""
_SHUFFLED = np.argsort((_GOLDEN * np.arange(1, ROWS + 1)) % 1.0)
RELATIVE = 1e-9
"""Difference relative to the largest value that always counts as rounding."""
_TOGETHER = 1 << 22
"""Largest number of residuals for which all rows are evaluated in one call, to compare them with chunks."""
_PIECES = 16
"""Number of chunks that are compared with their halves if there are more residuals."""
_AMPLIFIED = 64.0
"""Largest difference by rounding, in units of the effect of a change of the parameters by four units in the last
place."""


def is_row_wise(evaluate: Evaluate, points: Sequence[Theta], columns: Columns) -> bool:
    """Whether a row gets the same values in any selection of rows.

    Parameters
    ----------
    evaluate
        The function, and its derivatives if they are the user's.
    points
        Parameters to try: the next point is tried if the values at the last were not finite, or raised.
    columns
        Arrays with N rows; about 128 rows are evaluated at a point.

    Examples
    --------
    >>> t = np.linspace(0.0, 1.0, 1000)
    >>> is_row_wise(lambda a, rows: [a * np.exp(rows[0])], [2.0], (t,))
    True
    >>> is_row_wise(lambda a, rows: [a * (rows[0] - rows[0].mean())], [2.0], (t,))
    False
    """
    chosen, *halves = _selection(len(columns[0]))
    together = tuple([c[chosen] for c in columns])
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for last, theta in enumerate(points, 1 - len(points)):
            try:
                whole = evaluate(theta, together)
            except Exception:
                if last == 0:
                    return False  # it may need all rows; a function that fails on all of them raises later
                continue
            for half in halves:
                if len(half) and not _half_agrees(evaluate, theta, together, whole, half):
                    return False
            if all(np.isfinite(v).all() for v in whole):
                return True
    return True


def tried_rows(n: int) -> NDArray[np.int64]:
    """Rows to try, ascending: both ends, a run in the middle, and rows from all over; all if there are few.

    Examples
    --------
    >>> tried_rows(5)
    array([0, 1, 2, 3, 4])
    >>> len(tried_rows(10**6)) <= ROWS
    True
    """
    if n <= ROWS:
        return np.arange(n)
    rows = (_SHARES * n).astype(np.int64) + _OFFSETS
    rows.sort()
    return rows if n > _APART else np.unique(rows)


@lru_cache(maxsize=16)
def _selection(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Rows to try, and the places among them of one half, shuffled, and of the other, backwards."""
    chosen = tried_rows(n)
    order = _SHUFFLED[len(chosen) > _SHUFFLED]
    half = len(order) // 2
    return chosen, order[:half], order[half:][::-1]


def _half_agrees(
    evaluate: Evaluate, theta: Theta, together: Columns, whole: Sequence[NDArray[Any]], half: NDArray[np.int64]
) -> bool:
    try:
        apart = evaluate(theta, tuple([c[half] for c in together]))
    except Exception:
        return False
    for values in whole:
        if values.shape[:1] != together[0].shape[:1]:
            return False

    def noise() -> Sequence[NDArray[Any]]:
        return rounding(lambda point: evaluate(point, together), theta, whole)

    return agree(apart, [v[half] for v in whole], noise)


def agree(
    found: Sequence[NDArray[Any]],
    expected: Sequence[NDArray[Any]],
    noise: Callable[[], Sequence[NDArray[Any]]] | None = None,
) -> bool:
    """Whether values are the same up to rounding; ``noise`` returns its size per column, and is only called if
    needed."""
    allowed: Sequence[NDArray[Any]] | None = None
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        if a.shape != b.shape:
            return False
        if (a == b).all():  # most of the time; np.array_equal takes twice as long
            continue
        finite = np.isfinite(b)
        if not (np.array_equal(np.isfinite(a), finite) and np.array_equal(a[~finite], b[~finite], equal_nan=True)):
            return False
        with np.errstate(all="ignore"):
            difference = _largest(np.where(finite, np.abs(a - b), 0.0))
            size = _largest(np.where(finite, np.abs(b), 0.0))
        least = RELATIVE if b.dtype.itemsize >= 8 or b.dtype.kind not in "fc" else 1e-5
        if (difference <= least * size).all():
            continue
        if noise is None:
            return False
        allowed = noise() if allowed is None else allowed
        if (difference > np.maximum(least * size, _AMPLIFIED * allowed[i])).any():
            return False
    return True


def rounding(
    evaluate: Callable[[Theta], Sequence[NDArray[Any]]], theta: Theta, values: Sequence[NDArray[Any]]
) -> Sequence[NDArray[Any]]:
    """Change of the values when parameters change in their last digits; zero if they are not numbers."""
    if not isinstance(theta, np.ndarray) or theta.dtype.kind != "f":
        return [np.zeros(()) for _ in values]
    with np.errstate(all="ignore"):
        moved = evaluate(theta * (1.0 + 4.0 * np.finfo(np.float64).eps))
        changes = [np.abs(b - a) for a, b in zip(values, moved, strict=True)]
    return [_largest(np.where(np.isfinite(c), c, 0.0)) for c in changes]


class Comparison:
    """Compares the residuals of all rows in one call with those of chunks at the same point.

    Parameters
    ----------
    evaluate
        ``(theta, rows) -> (k p,)`` residuals.
    columns
        Arrays with N rows.
    components
        Number p of residuals per row.
    chunk
        Rows that are usually evaluated together.
    """

    def __init__(
        self, evaluate: Callable[[Theta, Columns], NDArray[Any]], columns: Columns, components: int, chunk: int
    ) -> None:
        self._evaluate, self._columns, self._components, self._chunk = evaluate, columns, components, chunk
        self.possible = len(columns[0]) * components <= _TOGETHER
        self._together: tuple[Theta, NDArray[Any]] | None = None
        self._agreed: tuple[Theta, bool] | None = None

    def together(self, theta: Theta) -> NDArray[Any] | None:
        """Residuals of all rows by one call, kept for the comparison; None if there are too many."""
        if not self.possible:
            return None
        found = self._evaluate(theta, self._columns)
        self._together, self._agreed = (theta, found), None
        return found

    def compare(self, theta: Theta, start: int, residuals: NDArray[Any]) -> None:
        """Record whether the residuals of the rows from ``start`` on, from a separate call, are the same."""
        if self._together is None or self._together[0] is not theta:
            return
        at = start * self._components
        together = self._together[1][at : at + len(residuals)]
        same = np.array_equal(residuals, together)
        if not same:
            rows = tuple(c[start : start + len(residuals) // self._components] for c in self._columns)
            same = self._same(theta, rows, residuals, together)
        self._agreed = (theta, same and (self._agreed is None or self._agreed[1]))

    def agreed(self, theta: Theta) -> bool:
        """Whether the residuals are the same at ``theta``.

        Costs nothing if they have just been compared. If there are too many, only some pieces are compared.
        """
        if self._agreed is not None and self._agreed[0] is theta:
            return self._agreed[1]
        n, chunk = len(self._columns[0]), self._chunk
        if self.together(theta) is not None:
            for at in range(0, n, chunk):
                self.compare(theta, at, self._evaluate(theta, tuple(c[at : at + chunk] for c in self._columns)))
            return self._agreed is None or self._agreed[1]
        half = chunk // 2
        for at in np.linspace(0, n - chunk, _PIECES).astype(int).tolist():
            rows = tuple(c[at : at + chunk] for c in self._columns)
            parts = tuple(c[:half] for c in rows), tuple(c[half:] for c in rows)
            apart = np.concatenate([self._evaluate(theta, part) for part in parts])
            if not self._same(theta, rows, apart, self._evaluate(theta, rows)):
                return False
        return True

    def _same(self, theta: Theta, rows: Columns, found: NDArray[Any], expected: NDArray[Any]) -> bool:
        def noise() -> Sequence[NDArray[Any]]:
            return rounding(lambda point: [self._evaluate(point, rows)], theta, [found])

        return agree([found], [expected], noise)


def _largest(values: NDArray[Any]) -> NDArray[Any]:
    """Largest absolute value over the rows, one per column: (), (p,) or (p, d)."""
    return np.asarray(values.max(axis=0, initial=0.0))
