r"""Scale of the last loss of a robust fit, chosen from the matches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...losses import Loss, as_loss
from .models import Frame, Model, two_view_problem

Array = NDArray[np.float64]
Points = NDArray[Any]

WIDTHS = (1.0, 1.2, 1.4, 1.6, 2.0)
"""Scales to choose from, in thresholds: 2.5 to 5 standard deviations of the noise of one component."""
ENOUGH = 1000
"""Number of matches that suffice to choose."""
_SQUARES = Loss.named("linear")


def best_width(
    matches: Points, errors: Array, theta: Array, cut: float, name: str, model: Model, frame: Frame
) -> float:
    """Scale of the last loss, in thresholds: the one with the least variance of the parameters, estimated from these
    matches and their errors."""
    some = slice(None, None, max(1, len(matches) // ENOUGH))
    problem = two_view_problem(model, [matches[some]], frame, _SQUARES)
    return least_variance_width(problem.jacobian(theta), problem.residuals(theta), errors[some], cut, name)


def least_variance_width(J: Array, r: Array, errors: Array, cut: float, name: str) -> float:
    """The width of ``WIDTHS`` with the least variance of the parameters, for rows J (n, p, d) and r (n, p).

    Gaussian noise favours a wide loss; long tails and influential wrong matches favour a narrow one. The variance
    is ``A^-1 B A^-1`` (Huber 1967) with ``A = sum w J'J + 2 w' g g'``, the derivative of the gradient, and ``B = sum
    w^2 g g'``, where g = J'r; its trace is taken in the metric of J'J.
    """
    squares = errors**2
    g = np.einsum("npd,np->nd", J, r)
    best, least = WIDTHS[0], math.inf
    rows, each = J.reshape(-1, J.shape[2]), J.shape[1]
    metric = rows.T @ rows
    for wide in WIDTHS:
        loss, inside, h = as_loss(name, wide * cut), squares < (wide * cut) ** 2, 1e-4 * cut**2
        weight = np.where(inside, loss.cost_and_weight(squares)[1], 0.0)
        slope = np.where(inside, loss.cost_and_weight(squares + h)[1] - weight, 0.0) / h
        A = (rows * np.repeat(weight, each)[:, None]).T @ rows + 2.0 * (g * slope[:, None]).T @ g
        B = (g * (weight**2)[:, None]).T @ g
        try:
            half = np.linalg.solve(A, B)
            variance = float(np.trace(np.linalg.solve(A, half.T) @ metric))
        except np.linalg.LinAlgError:
            continue
        if 0.0 < variance < least:  # not for a NaN
            best, least = wide, variance
    return best
