"""The compiled loop: steps on all rows of a small compiled problem, many in one call.

On few rows an iteration of the loop (`problm.solver.loop`) takes ten times as long as its arithmetic, and most
iterations are alike: a step within the trust region is tried, and is taken if it lowers the cost; otherwise the region
shrinks. `compiled_steps` takes such steps, with the same compiled passes and the same rules
(`problm.solver.compiled.advance`), and so with the same bits (a test compares them).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...jit import types
from ...jit.addresses import address_of, call_encode, call_move
from ...jit.njit import njit
from ...kernels.passes import LINEARIZE, call_linearize, linearize_chunk
from ...linalg.cholesky_compiled import CompiledCholesky
from ...linalg.normal import Normal
from ...linalg.quadratic import QuadraticModel
from ..run import Run
from .advance import AGAIN, COST, STOP, Steps, judge, propose

_f8, _i8 = types.float64, types.int64


@njit(_f8[::1](_f8[::1], _f8[::1]), nogil=True)
def added(theta, delta):  # type: ignore[no-untyped-def]
    """The retraction of flat space. A loop, as everywhere here, because array expressions take seconds to compile."""
    moved = np.empty(len(theta))
    for a in range(len(theta)):
        moved[a] = theta[a] + delta[a]
    return moved


@njit(
    types.void(
        _i8, _i8, _i8[:, ::1], _i8, _i8[::1], _f8[::1], _i8, _i8, _i8, _i8, _f8, _i8, _i8, _f8[:, ::1], _f8[:, ::1],
        _f8[:, ::1], _f8[::1], _f8[::1], _f8[:, ::1], _f8[::1], _f8[:, ::1], _f8[::1], _f8[:, ::1], _f8[:, ::1],
        _f8[::1], _f8[:, ::1],
    ),
    nogil=True,
    error_model="numpy",
)  # fmt: skip
def compiled_steps(  # type: ignore[no-untyped-def]
    linearize, evaluator, columns, n, program, constants, d, p, code, tools, scale, encode, move, A1, A2,
    points, limits, gradient, hessian, largest, trail, state, vectors, matrix, step, history,
):  # fmt: skip
    """Take steps, and update all arguments in place for the point after the last accepted step.

    linearize : address of `problm.kernels.passes.linearize_chunk`.
    tools : address of the functions that it calls (`problm.kernels.passes.tools`).
    encode, move, A1, A2 : addresses of the functions that encode and move a point (`problm.jit.addresses`), and two
        matrices for the first one; 0 in flat space.
    points : (2, q) the present point, and the one before the last accepted step.
    limits, ... : as in `problm.solver.compiled.advance.propose` and `problm.solver.compiled.advance.judge`.
    """
    sums, none, sizes = np.empty(1 + d + d * (d + 1) // 2), np.empty(0), np.empty(d)
    for a in range(d):
        sizes[a] = 1.0  # size of rotations and directions
    flat = points.shape[1] == d
    while True:
        answer = propose(
            n, points[0] if flat else sizes, limits, gradient, hessian, largest, trail, state, vectors, matrix, step
        )
        trial = points[0]
        while answer == AGAIN:
            trial = added(points[0], step) if move == 0 else call_move(move, points[0], step)
            read = trial if encode == 0 else call_encode(encode, trial, A1, A2)
            for a in range(len(sums)):
                sums[a] = 0.0
            call_linearize(
                linearize, evaluator, read, columns, 0, n, program, constants, d, p, code, tools, scale, 0, none, sums
            )
            total = 0.0
            for a in range(len(sums)):
                total += sums[a]
            answer = judge(n, sums[0], total, limits, gradient, hessian, trail, state, vectors, matrix, step, history)
        if answer == STOP:
            return
        for a in range(points.shape[1]):
            points[1, a] = points[0, a]
            points[0, a] = trial[a]
        for a in range(d):
            gradient[a] = sums[1 + a]
            for b in range(a + 1):
                hessian[a, b] = sums[1 + d + a * (a + 1) // 2 + b]
                hessian[b, a] = hessian[a, b]


def take_steps(run: Run, system: QuadraticModel) -> bool:
    """Take steps from a point where all rows are linearised; return whether any were taken."""
    if system.singular:
        return False
    steps = Steps.of(run, system)
    assert run.compiled is not None
    take(steps, run.compiled, run.batch.theta, system.normal)
    return steps.commit(run)


def take(steps: Steps, compiled: tuple[Any, ...], theta: NDArray[np.float64], normal: Normal) -> None:
    """Take steps from a linearised point of the problem with these arguments of `compiled_steps`."""
    points = np.array([theta, theta])
    gradient, hessian = normal.gradient.copy(), normal.hessian.copy()
    compiled_steps(
        address_of(linearize_chunk, LINEARIZE), *compiled, points, steps.limits, gradient, hessian, steps.largest,
        steps.trail, steps.state, steps.vectors, steps.matrix, steps.step, steps.history,
    )  # fmt: skip
    steps.theta, steps.previous, steps.fused = points[0].copy(), points[1].copy(), True
    steps.normal = Normal(steps.n, float(steps.state[COST]), gradient, hessian, compiled=CompiledCholesky)
