"""How a JAX or PyTorch function is to be called: for a batch of rows, for a single row, or for all rows at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...solver.problem import Theta
from ..row_wise import Evaluate, is_row_wise
from ..rows import Columns

_SOME = 7
"""A number of rows that no shape of the data has by chance."""
Shape = tuple[int, ...] | str
"""Shape of what a function returns, or the error that it raised."""


def way_of_calling(
    shape: Callable[[bool, int], Shape], evaluate: Evaluate, points: Sequence[Theta], columns: Columns
) -> tuple[str, int]:
    """How a function is to be called, and the number of residuals per block.

    ``"batch"``: for any rows; ``"single"``: for one row, to be mapped over rows; ``"whole"``: for all rows at once,
    because rows influence each other or it holds arrays of full length. ``shape(mapped, k)`` gives what it returns for
    k rows. If rows of a batch influence each other, a function of numbers is treated as one of all rows, and a function
    of vectors as one of a single row, if it can be called that way.
    """
    n, k = len(columns[0]), _SOME
    batch, single = shape(False, k), shape(True, k)
    if _has_rows(batch, k) and is_row_wise(evaluate, points, columns):
        return "batch", _width(batch)
    if is_for_single_rows(shape, columns):
        return "single", _width(single)
    everything = shape(False, n)
    if _has_rows(everything, n):
        return "whole", _width(everything)
    raise ValueError(
        f"fun must return residuals of shape (k,) or (k, p) for k rows, or () or (p,) for one row; for a batch it gave "
        f"{_told(batch)}, mapped over single rows {_told(single)}"
    )


def is_for_single_rows(shape: Callable[[bool, int], Shape], columns: Columns) -> bool:
    """Whether a function that does not treat the rows of a batch by themselves can be called for one row."""
    n, single, batch = len(columns[0]), shape(True, _SOME), shape(False, _SOME)
    vectors = not _has_rows(batch, _SOME) or any(c.ndim > 1 for c in columns)
    return _has_rows(single, _SOME) and vectors and not (n > 1 and single[1:] == (n,))


def _has_rows(shape: Shape, k: int) -> bool:
    return isinstance(shape, tuple) and len(shape) in (1, 2) and shape[0] == k


def _width(shape: Shape) -> int:
    return 1 if len(shape) == 1 else int(shape[1])


def _told(shape: Shape) -> str:
    return shape if isinstance(shape, str) else f"shape {shape}"


def error_text(error: Exception) -> str:
    """The first line of an error."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
