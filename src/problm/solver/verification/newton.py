r"""The end of a robust fit: Newton steps over all rows.

A robust loss bends. With ``z = r^2 / s^2`` the cost of a row has the second derivatives

    rho' (J^T J + r d2r) + 2 z rho'' J^T J,

and the Gauss-Newton matrix H, which has the weights rho' alone, is larger than their sum A. Its steps leave the share
``1 - A / H`` of the way each, and a distance measured by H is too short by ``A / H``: with Tukey's loss at the scale of
the noise, solves took hundreds of passes and ended with 0.05 to 0.1 standard errors left, where H saw 0.001.

So where steps creep, and before a gradient that vanishes in H's metric is believed, all rows are passed with second
derivatives. If the cost is convex there, steps are made with A. They converge quadratically, so that two to four are
usual. Elsewhere the loop goes on.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...linalg.lapack import dsygvd
from ...linalg.normal import Normal
from ...linalg.quadratic import QuadraticModel
from .. import rules
from ..problem import CREEP
from ..result import Status
from ..run import Run
from ..sample import solved

Array = NDArray[np.float64]
CONVEX = 1e-3
"""Least curvature of the cost, relative to that of H, at which steps are made with A."""
_BEYOND_DOUBT = 0.05
"""Distance in H's metric, relative to the tolerance, at which a gradient is believed without second derivatives."""
_STEPS = 10
"""Largest number of Newton steps in a row."""
_WAIT = 5
"""Number of iterations after which steps that failed are tried again."""


def pays(run: Run, system: QuadraticModel, status: Status | None) -> bool:
    """Whether steps creep, or a gradient that vanished in H's metric may not have vanished in that of A."""
    if run.creep == math.inf or not isinstance(system.normal.hessian, np.ndarray):
        return False
    if status is Status.GRADIENT and run.creep <= CREEP:
        vanished = rules.gradient_vanishes(system.decrement, system.cost, _BEYOND_DOUBT * run.termination.gtol, 0.0)
        return not vanished and run.not_convex is not run.batch.theta
    patient = len(run.history) < run.newton_after
    return (
        status is None
        and not patient
        and rules.creeps(run.creep, system.decrement, run.termination.last_decrement, system.cost)
    )


def finish(run: Run) -> bool:
    """Take Newton steps from a point where all rows are linearised; return whether they led to the minimum."""
    batch, space, n = run.batch, run.space, run.problem.n
    found = run.problem.second_order(batch.theta)
    assert found is not None
    batch.take_all(batch.theta, found[0])
    for blind in range(_STEPS):  # rounding may hide the gain of the first two
        theta, normal = batch.theta, found[0]
        step = _step(*found, space.free(theta, normal.gradient))
        if step is None:
            break
        squared = 0.5 * float(step @ normal.hessian @ step)
        if not squared >= 0.0:
            break  # rounding: H is singular in double precision, and no distance is known
        if squared <= run.termination.gtol**2 * normal.cost:
            run.distance = theta, math.sqrt(run.termination.freedom * squared / normal.cost) if squared > 0.0 else 0.0
            return True
        run.check_time()
        predicted = -0.5 * float(normal.gradient @ step) / n
        trial = space.inside(run.problem.retract(theta, step))
        found = run.problem.second_order(trial)
        assert found is not None
        change = (found[0].cost - normal.cost) / n
        if not (
            rules.lowers_cost(-change / predicted) or rules.lost_in_rounding(change, predicted, normal.cost / n, blind)
        ):
            batch.count_trials(1, None)
            run.record("reject", normal.cost / n)
            break
        run.previous, run.last = theta, None
        batch.take_all(trial, found[0])
        run.termination.begin_anew()
        run.record("accept", found[0].cost / n)
    run.newton_after, run.not_convex = len(run.history) + _WAIT, batch.theta
    return False


def _step(normal: Normal, rest: Array, free: NDArray[Any] | None) -> Array | None:
    """The Newton step (d,) of the free parameters; None if the cost is not convex in all directions."""
    own = slice(None) if free is None else np.ix_(free, free)
    hessian, more = normal.hessian[own], rest[own]
    values, _, info = dsygvd(more, hessian)
    if info != 0 or not values[0] + 1.0 >= CONVEX:
        return None
    if free is None:
        return solved(hessian + more, normal.gradient)
    step, part = np.zeros(len(normal.gradient)), solved(hessian + more, normal.gradient[free])
    if part is None:
        return None
    step[free] = part
    return step
