"""Many small problems of one compiled model, solved together: see `problm.kernels.many_fits`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..jit.addresses import address_of
from ..kernels.evaluator import BLOCK
from ..kernels.kernel import Kernel
from ..kernels.lanes import fit_lanes
from ..kernels.many_fits import fit_curves, standard_errors
from ..kernels.passes import LINEARIZE, linearize_chunk, tools
from ..support.descriptors import describe
from ..support.threads import available_threads, pool

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Curves:
    """Rows of many problems of one model, of n rows each."""

    shared: Array
    """(n, k) values that all problems have in common, the theta of the lanes' kernel."""
    own: Array
    """(B, columns, n) those of each problem."""
    lanes: Kernel
    """Residuals of a row as a function of shared values, own columns and parameters as columns."""
    rows: Callable[[], tuple[Kernel, list[Array]]]
    """Makes the usual kernel, with one component and linear loss, and the columns of all problems, one after the
    other; for few problems."""


@dataclass(frozen=True)
class Solved:
    """Solutions of many problems."""

    theta: Array
    """(B, d)"""
    chi2: Array
    """(B,) sums of squares."""
    errors: Array
    """(B, d) standard errors, for noise whose variance is that of the residuals; NaN where there are none."""
    steps: NDArray[np.int64]
    """(B,) number of steps, negative if the fit did not converge."""


def solve_many(
    curves: Curves,
    theta: Array,
    limits: tuple[Array, Array],
    free: NDArray[np.bool_],
    floors: Array,
    counts: NDArray[np.int64],
    max_iter: int,
    threads: int | None,
) -> Solved:
    """Fit all problems.

    Parameters
    ----------
    curves
    theta : (B, d)
        Starts.
    limits
        (d,) lower and upper bounds.
    free : (d,)
    floors : (B,)
        Decreases of the sum of squares below the precision of the data.
    counts : (B,)
        Numbers of rows that are not missing.
    max_iter, threads
    """
    count, d = theta.shape
    n = curves.own.shape[2]
    theta = np.ascontiguousarray(theta).copy()
    sums = np.zeros((count, 1 + d + d * (d + 1) // 2))
    steps = np.zeros(count, dtype=np.int64)
    mask = free.astype(np.int64)
    if count * 4 >= BLOCK or n <= BLOCK:
        least, lanes = BLOCK, curves.lanes
        fit_lanes.compiled  # noqa: B018  before the threads ask for it all at once

        def part(lo: int, hi: int) -> None:
            fit_lanes(
                lanes.address, curves.shared, curves.own[lo:hi], lanes.program, lanes.constants, floors[lo:hi], mask,
                *limits, max_iter, theta[lo:hi], sums[lo:hi], steps[lo:hi],
            )  # fmt: skip
    else:
        least = 1
        kernel, columns = curves.rows()
        linearize, described, ends = address_of(linearize_chunk, LINEARIZE), describe(columns), n * np.arange(count + 1)
        fit_curves.compiled  # noqa: B018

        def part(lo: int, hi: int) -> None:
            fit_curves(
                linearize, kernel.address, described, ends[lo : hi + 1], kernel.program, kernel.constants, tools(False),
                floors[lo:hi], mask, *limits, max_iter, theta[lo:hi], sums[lo:hi], steps[lo:hi],
            )  # fmt: skip

    workers = min(threads or available_threads(), max(1, count // least))
    if workers == 1:
        part(0, count)
    else:
        jobs = min(4 * workers, max(workers, count // (4 * least)))
        cuts = np.linspace(0, count, jobs + 1).astype(int).tolist()
        list(pool(os.getpid()).map(lambda job: part(*job), pairwise(cuts)))
    chi2, errors = 2.0 * sums[:, 0], np.empty((count, d))
    standard_errors(sums, mask, chi2 / np.maximum(counts - free.sum(), 1), errors)
    return Solved(theta, chi2, errors, steps)
