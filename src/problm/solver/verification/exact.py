"""Fits of exact data, which end by digits: they have no standard errors to measure by."""

from __future__ import annotations

from operator import mul

import numpy as np

from ...linalg.quadratic import QuadraticModel
from ..problem import Theta
from ..run import Run
from .costs import Array

_DIGITS = 1e-10
_PERFECT = 1e-28
_FEW = 100
"""Number of parameters up to which Python's numbers take less time than NumPy's."""
_FAR_START = 1e6
"""Size of a start, relative to all parameters at the end, that says nothing about theirs."""


def perfect(run: Run, model: QuadraticModel) -> bool:
    """Whether residuals are only rounding errors: 1e-14 of what parameters as large as the start contribute to them,
    with the median over the parameters (at the edge of the model's domain a derivative may be infinite)."""
    squares, diagonal = run.start_squares, model.normal.hessian.diagonal()
    if squares is None:
        few = len(diagonal) <= _FEW
        squares = [size * size for size in _sizes_at_start(run)] if few else sizes_at(run, run.start) ** 2
        run.start_squares = squares
    least = model.cost * model.count / (_PERFECT * len(diagonal))
    if isinstance(squares, list):
        signal = sorted(map(mul, diagonal.tolist(), squares))
        middle = 0.5 * (signal[(len(signal) - 1) // 2] + signal[len(signal) // 2])
    else:
        middle = float(np.median(diagonal * squares))
    if not middle >= least:
        return False
    there = model.normal.hessian.diagonal() * sizes_at(run, run.batch.theta) ** 2  # a start of 1e100 says nothing
    return bool(np.median(there) >= least)


def settled(run: Run, model: QuadraticModel) -> bool:
    """Whether the Gauss-Newton step changes no parameter in its first ten digits. This ends fits of exact data, which
    have no standard errors to measure by."""
    return bool((np.abs(model.step(0.0)[0]) <= _DIGITS * sizes_at(run, run.batch.theta)).all())


def sizes_at(run: Run, theta: Theta) -> Array:
    """(d,) sizes of the parameters at a point or at the start, whichever is larger; 1 on manifolds. A start that is
    `_FAR_START` times as large as all parameters counts as no larger than that."""
    start, d = run.start, run.problem.dim
    if not (isinstance(theta, np.ndarray) and theta.shape == (d,)):
        return np.ones(d)
    largest = float(np.abs(theta).max(initial=0.0))
    begun = np.minimum(np.abs(start), _FAR_START * largest) if largest > 0.0 else np.abs(start)
    return np.maximum(np.maximum(np.abs(theta), begun), 1e-6 * float(begun.max(initial=0.0)))


def _sizes_at_start(run: Run) -> list[float]:
    """`sizes_at` the start; every solve needs them, and for a few numbers NumPy takes ten times as long."""
    start, d = run.start, run.problem.dim
    if not (isinstance(start, np.ndarray) and start.shape == (d,)):
        return [1.0] * d
    sizes = list(map(abs, start.tolist()))
    least = 1e-6 * max(sizes, default=0.0)
    return [max(size, least) for size in sizes]
