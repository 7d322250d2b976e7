"""Residuals of a row as expressions, and the test that rows do not influence each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...losses import Loss
from ..expression import Expression, TraceError, as_expression, make, variable
from ..model import kernel_of
from ..node import topological

if TYPE_CHECKING:
    from ...kernels.kernel import Kernel

Values = NDArray[Any]
"""Nodes (dtype object), or integers and truth values that are known."""
ROWS = 2
"""Number of rows for which a program is repeated."""
_MOST_NODES = 2000
"""Largest number of nodes of a row: longer programs are better run by their own library."""


@dataclass(frozen=True, eq=False)
class RecordedRows:
    """Residuals of a row as expressions of parameters and columns: a model for `problm.problems.rows.CompiledModel`."""

    residuals: tuple[Expression, ...]
    own_derivatives: bool = False
    """Whether the function has rules for its derivatives, which must be compared with those of the expressions."""
    _made: dict[int, Any] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordedRows, (self.residuals, self.own_derivatives)  # programs are recreated

    def residual_kernel(self, shapes: Sequence[int], n_parameters: int, loss: Loss, threads: int | None) -> Kernel:
        """The kernel of these residuals, made once; see `problm.models.model.Model.residual_kernel`."""
        if n_parameters not in self._made:
            self._made[n_parameters] = kernel_of(self.residuals, None, n_parameters)
        made: Kernel = replace(self._made[n_parameters], loss=loss, threads=threads)
        return made


def nodes(found: Any) -> Values:
    """An array of nodes."""
    array = np.asarray(found)
    if array.dtype == object:
        return array
    if array.dtype.kind not in "fiub":
        raise TraceError(f"{array.dtype} is not recorded")
    made = np.empty(array.shape, dtype=object)
    made.reshape(-1)[:] = [as_expression(v) for v in array.reshape(-1).tolist()]
    return made


def variables(shapes: Sequence[tuple[int, ...]]) -> list[Values]:
    """Columns of `ROWS` rows, each row with variables of its own: those of row i begin at i times the width."""
    widths = [int(np.prod(shape)) for shape in shapes]
    total, columns, at = sum(widths), [], 0
    for shape, width in zip(shapes, widths, strict=True):
        column = np.empty((ROWS, width), dtype=object)
        for i in range(ROWS):
            column[i] = [variable(i * total + at + k) for k in range(width)]
        columns.append(column.reshape(ROWS, *shape))
        at += width
    return columns


def independent_rows(found: Values, total: int) -> tuple[Expression, ...]:
    """The residuals of a row, from those of `ROWS` rows with ``total`` variables each.

    Raises `TraceError` unless every row depends on its own variables only, in the same way.
    """
    first, *others = nodes(found).reshape(ROWS, -1).tolist()
    order = topological(first)
    if len(order) > _MOST_NODES:
        raise TraceError("the program is long")
    if any(e.op == "variable" and e.value >= total for e in order):
        raise TraceError("rows depend on each other")
    for i, row in enumerate(others, 1):
        moved: dict[int, Expression] = {}
        for e in order:
            if e.op == "variable":
                moved[e.serial] = variable(int(e.value) + i * total)
            else:
                moved[e.serial] = make(e.op, *(moved[a.serial] for a in e.args)) if e.args else e
        if any(moved[a.serial] is not b for a, b in zip(first, row, strict=True)):
            raise TraceError("rows depend on each other or on their number")
    return tuple(first)
