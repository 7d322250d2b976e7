"""`check_jacobian`: compare a Jacobian with finite differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..losses import Loss
from ..problems.rows import FunctionModel
from ..support.differences import CENTRAL, EPS, relative
from . import arguments as inputs
from .scipy_arguments import bind

MOST_ROWS = 1000


@dataclass(frozen=True)
class JacobianCheck:
    """Largest disagreement between a Jacobian and central differences.

    ``error`` is relative to the size of the column, but at least to the accuracy of the differences.
    """

    ok: bool
    error: float
    row: int
    """Worst row, in the user's order."""
    column: int
    """Worst parameter."""
    component: int
    """Worst residual in the block."""
    given: float
    expected: float

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        verdict = "agrees with differences" if self.ok else "DISAGREES with differences"
        return (
            f"Jacobian {verdict}: worst at row {self.row}, column {self.column}"
            + (f", component {self.component}" if self.component else "")
            + f": jac gives {self.given:.8g}, differences give {self.expected:.8g} (relative error {self.error:.1e})"
        )


def check_jacobian(
    fun: Callable[..., Any],
    jac: Callable[..., Any],
    x0: Any,
    *,
    data: Any = None,
    args: tuple[Any, ...] = (),
    manifold: Any = None,
    tolerance: float = 1e-5,
    rng: np.random.Generator | int | None = 0,
) -> JacobianCheck:
    """Compare ``jac`` with central differences of ``fun`` at ``x0``, on at most 1000 random rows.

    Arguments are those of `problm.least_squares`. The result is true if they agree, and names the worst row and column.

    Examples
    --------
    >>> import numpy as np, problm
    >>> x = np.linspace(0, 1, 50)
    >>> fun = lambda t, x: t[0] * np.exp(t[1] * x) - 1
    >>> wrong = lambda t, x: np.stack([np.exp(t[1] * x), t[0] * np.exp(t[1] * x)], axis=1)
    >>> print(problm.check_jacobian(fun, wrong, [1.0, 0.5], data=(x,)))
    Jacobian DISAGREES with differences: worst at row 0, column 1: jac gives 1, differences give 0 ...
    """
    if not callable(jac):
        raise TypeError(f"jac must be the callable to check, got {jac!r}")
    start = x0 if manifold is not None else inputs.parameters("x0", x0)
    dim = len(start) if manifold is None else int(manifold.dim)
    rows = () if data is None else inputs.columns(data)
    chosen = np.arange(len(rows[0]) if rows else 0)
    if len(chosen) > MOST_ROWS:
        chosen = np.sort(np.random.default_rng(rng).choice(len(chosen), MOST_ROWS, replace=False))
        rows = tuple(a[chosen] for a in rows)
    linear = Loss.named("linear")
    f, move = bind(fun, args, None), None if manifold is None else manifold.retract
    model = FunctionModel(f, bind(jac, args, None), dim, linear, move=move).prepared([start], rows, together=True)
    given = model.problem(rows).jacobian(start)
    problem = replace(model, jac="3-point").problem(rows)
    expected = problem.jacobian(start)
    residuals = problem.residuals(start)
    # Differences with step h have rounding errors of about eps |r| / h; smaller disagreements mean nothing.
    steps = CENTRAL * relative(start if manifold is None else np.zeros(dim))
    floor = 10 * EPS * np.abs(residuals).max(initial=0.0) / steps / tolerance
    column = np.abs(expected).max(axis=(0, 1))
    error = np.abs(given - expected) / np.maximum(np.maximum(column, floor), 1e-300)
    error = np.where(np.isfinite(error), error, np.inf)
    row, component, parameter = np.unravel_index(int(np.argmax(error)), error.shape)
    worst = float(error[row, component, parameter])
    return JacobianCheck(
        worst <= tolerance, worst, int(chosen[row]) if len(chosen) else int(row), int(parameter), int(component),
        float(given[row, component, parameter]), float(expected[row, component, parameter]),
    )  # fmt: skip
