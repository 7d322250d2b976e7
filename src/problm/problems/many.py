"""Many small problems of one compiled model, solved together: see `problm.kernels.many_fits`."""

from __future__ import annotations

import os
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..jit.addresses import address_of
from ..kernels.evaluator import BLOCK
from ..kernels.kernel import Kernel
from ..kernels.many_fits import fit_curves, fit_packed
from ..kernels.passes import LINEARIZE, linearize_chunk, tools
from ..support.descriptors import describe
from ..support.threads import available_threads, pool

Array = NDArray[np.float64]


PACKED = BLOCK // 4
"""Most rows of problems that are evaluated several at once. Measured for dose-response curves: 0.9 us per step and
problem against 1.9 with 12 rows, 2.4 against 1.9 with 60."""


def solve_many(
    kernel: Kernel,
    packed: Kernel,
    columns: list[Array],
    ends: NDArray[np.int64],
    theta: Array,
    limits: tuple[Array, Array],
    free: NDArray[np.bool_],
    floors: Array,
    max_iter: int,
    threads: int | None,
) -> tuple[Array, Array, Array, NDArray[np.int64]]:
    """Fit all ranges of rows.

    Parameters
    ----------
    kernel
        Residuals of a row with one component and linear loss.
    packed
        The same, with the parameters as columns after those of the data.
    columns
        Data of all problems, one after the other.
    ends : (B + 1,)
        First rows of the problems, and the end of the last one.
    theta : (B, d)
        Starts.
    limits
        (d,) lower and upper bounds.
    free : (d,)
    floors : (B,)
        Decreases of the sum of squares below the precision of the data.
    max_iter, threads

    Returns
    -------
    theta : (B, d)
    chi2 : (B,)
    hessian : (B, d, d)
    steps : (B,)
        Number of steps, negative if the fit did not converge.
    """
    count, d = theta.shape
    theta = np.ascontiguousarray(theta).copy()
    sums = np.zeros((count, 1 + d + d * (d + 1) // 2))
    steps = np.zeros(count, dtype=np.int64)
    mask = free.astype(np.int64)
    if np.diff(ends).max(initial=0) <= PACKED:
        data = np.stack(columns)
        fit_packed.compiled  # noqa: B018  before the threads ask for it all at once

        def part(lo: int, hi: int) -> None:
            fit_packed(
                packed.address, data, ends[lo : hi + 1], packed.program, packed.constants, floors[lo:hi], mask, *limits,
                max_iter, theta[lo:hi], sums[lo:hi], steps[lo:hi],
            )  # fmt: skip
    else:
        linearize, described = address_of(linearize_chunk, LINEARIZE), describe(columns)
        fit_curves.compiled  # noqa: B018

        def part(lo: int, hi: int) -> None:
            fit_curves(
                linearize, kernel.address, described, ends[lo : hi + 1], kernel.program, kernel.constants, tools(False),
                floors[lo:hi], mask, *limits, max_iter, theta[lo:hi], sums[lo:hi], steps[lo:hi],
            )  # fmt: skip

    workers = min(threads or available_threads(), max(1, count // 16))
    cuts = np.linspace(0, count, 4 * workers + 1 if workers > 1 else 2).astype(int).tolist()
    if workers == 1:
        part(0, count)
    else:
        list(pool(os.getpid()).map(lambda job: part(*job), pairwise(cuts)))
    hessian = np.zeros((count, d, d))
    below = np.tril_indices(d)
    hessian[:, below[0], below[1]] = sums[:, 1 + d :]
    hessian[:, below[1], below[0]] = sums[:, 1 + d :]
    return theta, 2.0 * sums[:, 0], hessian, steps
