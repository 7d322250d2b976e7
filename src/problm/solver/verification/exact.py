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
_FAR_START = 1e6
"""Size of a start, relative to all parameters at the end, that says nothing about theirs."""


def perfect(run: Run, model: QuadraticModel) -> bool:
    """Whether residuals are only rounding errors: 1e-14 of what parameters as large as the start contribute to them,
    with the median over the parameters (at the edge of the model's domain a derivative may be infinite)."""
    if run.start_squares is None:
        run.start_squares = [size * size for size in _sizes_at_start(run)]
    signal = list(map(mul, model.normal.hessian.diagonal().tolist(), run.start_squares))  # few: NumPy takes longer
    least = model.cost * model.count / (_PERFECT * len(signal))
    if not max(signal) >= least:
        return False
    signal.sort()
    if not 0.5 * (signal[(len(signal) - 1) // 2] + signal[len(signal) // 2]) >= least:
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
