"""The compiled loop: steps on all rows of a small compiled problem, many in one call.

On few rows an iteration of the loop (`problm.solver.loop`) takes ten times as long as its arithmetic, and most
iterations are alike: a step within the trust region is tried, and is taken if it lowers the cost; otherwise the region
shrinks. `compiled_steps` takes such steps, with the same compiled passes and the same rules (`problm.solver.rules`) in
the same order, and so with the same bits (a test compares them). It returns to the Python loop for every other
decision: a cost that is not finite, a Jacobian that is nearly rank-deficient, and anything that may end the solve.
"""

from __future__ import annotations

import math
import time

import numpy as np

from ..jit import types
from ..jit.addresses import address_of, call_encode, call_move
from ..jit.njit import compilable, njit
from ..kernels.passes import LINEARIZE, call_linearize, linearize_chunk
from ..linalg import quadratic as systems
from ..linalg.cholesky import REFINE
from ..linalg.cholesky_compiled import CompiledCholesky, extrapolated, reduce, within
from ..linalg.normal import Normal
from ..linalg.quadratic import QuadraticModel
from .damping import TrustRegion
from .rules import (
    COMPILED,
    MOST_TRIALS,
    SMALL_CHANGE,
    gradient_vanishes,
    hardly_changes,
    is_hopeless,
    is_plain,
    is_short,
    lost_in_rounding,
    lowers_cost,
    model_agrees,
    next_radius,
    one_step_left,
)  # fmt: skip
from .run import Run

_f8, _i8 = types.float64, types.int64
MOST = 100
"""Approximate number of steps per call, so that Ctrl-C is handled in time."""
_GENTLE = 1e-5
"""Largest cosine between the residuals and a column of the Jacobian at which the Python loop examines a step that
gained less than predicted."""


compilable(COMPILED, error_model="numpy")

# Indices into ``state``.
_COST, _RADIUS, _LENGTH, _DAMPING, _SMALL, _SHORT, _AGREED, _BLIND, _FOLLOWS, _LAST, _TAKEN, _TRIED, _FAILED = range(13)


@njit(_f8[::1](_f8[::1], _f8[::1]), nogil=True)
def added(theta, delta):  # type: ignore[no-untyped-def]
    """The retraction of flat space. A loop, as everywhere here, because array expressions take seconds to compile."""
    moved = np.empty(len(theta))
    for a in range(len(theta)):
        moved[a] = theta[a] + delta[a]
    return moved


@njit(
    _i8(
        _i8, _i8, _i8[:, ::1], _i8, _i8[::1], _f8[::1], _i8, _i8, _i8, _i8, _f8, _i8, _i8, _f8[:, ::1], _f8[:, ::1],
        _f8[::1], _f8[:, ::1], _f8[:, ::1], _f8[::1], _f8[:, ::1], _f8[::1], _f8[::1], _f8[:, ::1],
    ),
    nogil=True,
    error_model="numpy",
)  # fmt: skip
def compiled_steps(  # type: ignore[no-untyped-def]
    linearize, evaluator, columns, n, program, constants, d, p, code, tools, scale, encode, move, A1, A2,
    limits, points, trail, gradient, hessian, largest, state, history,
):  # fmt: skip
    """Take steps, update all arguments in place for the point after the last accepted step, and return the number of
    steps tried.

    linearize : address of `problm.kernels.passes.linearize_chunk`.
    tools : address of the functions that it calls (`problm.kernels.passes.tools`).
    encode, move, A1, A2 : addresses of the functions that encode and move a point (`problm.jit.addresses`), and two
        matrices for the first one; 0 in flat space.
    limits : ftol, xtol, gtol and left of `problm.solver.termination.Termination`, the smallest pivot of the scaled
        Cholesky factor, the decrease relative to the cost below which steps are extrapolated, the largest number of
        steps to try, whether the last step may be taken because of its bound, and ftol if the user gave it, else 0.
    points : (2, q) the present point, and the one before the last accepted step.
    trail : (2, d) the last accepted step and the Gauss-Newton step there, if neither was damped.
    gradient, hessian : (d,), (d, d) sums at the present point.
    largest : (d,) the largest mean diagonal of H so far, including this point (`problm.solver.damping`).
    state : cost, radius, length and damping of the last step, number of successive steps that hardly changed the cost,
        whether the last step was short, whether it gained what was predicted, number of steps taken blindly, whether
        there is a trail, the decrement before a Gauss-Newton step, the number of accepted steps, the number of failed
        steps from the present point, whether another one failed in a way that the Python loop has to handle.
    history : (3, most + tries + 1) cost after each step, its damping, and whether it was accepted.
    """
    ftol, xtol, gtol, left = limits[0], limits[1], limits[2], limits[3]
    least_pivot, near, most, bounded = limits[4], limits[5], int(limits[6]), limits[7]
    enough = max(left, limits[8])
    triangle = d * (d + 1) // 2
    vectors, matrix, sums, step = np.empty((5, d)), np.empty((d, d)), np.empty(1 + d + triangle), np.empty(d)
    none, sizes = np.empty(0), np.empty(d)
    flat = points.shape[1] == d
    present = True  # whether the largest diagonal so far is the present one
    for a in range(d):
        sizes[a] = 1.0  # size of rotations and directions
        present = present and hessian[a, a] / n >= largest[a]
    steps = 0
    while True:
        found = reduce(
            n, gradient, hessian, points[0] if flat else sizes, none if present else largest, vectors, matrix
        )
        decrement, pivot, resisted, point, steepest = found[0], found[1], found[3], found[4], found[6]
        mean = state[_COST] / n
        if not (pivot >= least_pivot and math.isfinite(decrement)):
            return steps
        if steps > 0:
            if gradient_vanishes(decrement, mean, gtol, state[_LAST]):
                return steps
            if bounded != 0.0 and one_step_left(decrement, mean, state[_LAST], gtol, state[_AGREED] != 0.0):
                return steps
            if state[_AGREED] == 0.0 and steepest / math.sqrt(2.0 * mean) <= _GENTLE:
                return steps
            if state[_SMALL] > 0.0 and (decrement <= enough * mean or state[_SMALL] >= 3.0):
                return steps
            if state[_SHORT] != 0.0 and is_short(found[2], point, xtol):
                return steps
        if steps >= MOST:
            return steps
        ahead = state[_FOLLOWS] != 0.0 and state[_TRIED] == 0.0 and decrement < near * mean
        while True:  # until a step lowers the cost
            size, damping, predicted, length = math.sqrt(resisted), 0.0, decrement, found[2]
            for a in range(d):
                step[a] = vectors[4, a]
            if size > 1.1 * state[_RADIUS]:
                damping, size, predicted, length = within(vectors, matrix, state[_RADIUS], step)
                ahead = False
            elif ahead:
                promise, reach = extrapolated(n, gradient, hessian, vectors[4], decrement, trail[0], trail[1], step)
                ahead = promise > 0.0
                if ahead:
                    predicted, length = promise, reach
                else:  # the step has been overwritten nevertheless
                    for a in range(d):
                        step[a] = vectors[4, a]
            if steps == most or state[_TRIED] == MOST_TRIALS or not predicted > 0.0:
                return steps
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
            change = (sums[0] - state[_COST]) / n
            ratio = -change / predicted
            taken = lowers_cost(ratio)
            lost = lost_in_rounding(change, decrement, mean, state[_BLIND])
            if not math.isfinite(total) or (is_hopeless(predicted, mean, left) and not (taken or lost)):
                state[_FAILED] = 1.0
                return steps
            if lost and not taken:
                taken, ratio = True, 1.0
                state[_BLIND] += 1.0
            state[_LENGTH], state[_DAMPING] = size, damping
            history[0, steps], history[1, steps], history[2, steps] = sums[0], damping, 1.0
            steps += 1
            if ahead and not taken:
                ahead, state[_FOLLOWS] = False, 0.0
                history[0, steps - 1], history[2, steps - 1] = state[_COST], 0.0
                continue
            state[_RADIUS] = next_radius(state[_RADIUS], size, damping, ratio)
            if taken:
                break
            history[0, steps - 1], history[2, steps - 1] = state[_COST], 0.0
            state[_TRIED] += 1.0
        first = state[_TRIED] == 0.0
        state[_SMALL] = state[_SMALL] + 1.0 if hardly_changes(change, predicted, mean, ftol) else 0.0
        state[_SHORT] = 1.0 if is_short(length, point, xtol) else 0.0
        state[_AGREED] = 1.0 if model_agrees(change, predicted, first) else 0.0
        plain = is_plain(damping, predicted, decrement, first)
        state[_FOLLOWS] = 1.0 if plain else 0.0
        state[_LAST] = decrement if plain and not ahead else 0.0
        for a in range(d):
            trail[0, a], trail[1, a] = step[a], vectors[4, a]
        state[_COST], state[_TRIED] = sums[0], 0.0
        state[_TAKEN] += 1.0
        for a in range(points.shape[1]):
            points[1, a] = points[0, a]
            points[0, a] = trial[a]
        present = True
        for a in range(d):
            gradient[a] = sums[1 + a]
            for b in range(a + 1):
                hessian[a, b] = sums[1 + d + a * (a + 1) // 2 + b]
                hessian[b, a] = hessian[a, b]
            present = present and hessian[a, a] / n >= largest[a]
        for a in range(d):
            largest[a] = max(largest[a], hessian[a, a] / n)


def take_steps(run: Run, system: QuadraticModel) -> bool:
    """Take steps from a point where all rows are linearised; return whether any were taken."""
    batch, damping, t = run.batch, run.damping, run.termination
    assert isinstance(damping, TrustRegion)
    radius = damping.radius_at(system)
    if system.singular:
        return False
    n, normal = batch.n, system.normal
    most = run.options.max_iter - len(run.history) - 1  # the Python loop takes the last one, and stops
    rest = REFINE, systems.NEAR, most, t.bounded, t.ftol
    limits = np.array([t.ftol or SMALL_CHANGE, t.xtol, t.gtol, t.left, *rest])
    points = np.array([batch.theta, batch.theta])
    gradient, hessian, largest = normal.gradient.copy(), normal.hessian.copy(), damping.largest.copy()
    state, history = np.zeros(13), np.empty((3, MOST + MOST_TRIALS + 1))
    last = run.last if run.last is not None and run.last[0] is batch.theta else None
    trail = np.zeros((2, len(gradient))) if last is None else np.array(last[1:])
    state[:_TAKEN] = (
        normal.cost, radius, damping.length, damping.value, t.small_changes, t.small_step, t.model_agreed, t.blind,
        last is not None, t.last_decrement,
    )  # fmt: skip
    assert run.compiled is not None
    passed = address_of(linearize_chunk, LINEARIZE), *run.compiled
    steps: int = compiled_steps(*passed, limits, points, trail, gradient, hessian, largest, state, history)
    cost, radius, length, value, small_changes, small_step, agreed, blind, follows, decrement, taken, tried, failed = (
        state.tolist()
    )
    run.compiled_next, run.tried = not failed and tried < MOST_TRIALS, int(tried)
    if steps:
        damping.stepped(value, radius, length, largest)
        seconds = time.perf_counter() - run.began
        for k, (after, value, good) in enumerate(history[:, :steps].T.tolist(), 1):
            passes = batch.residual_rows / n + k, batch.jacobian_rows / n + k
            run.history.add(seconds, n, after, value, "accept" if good else "reject", *passes)
    if taken:
        t.small_changes, t.small_step = int(small_changes), bool(small_step)
        t.model_agreed, t.blind, t.last_decrement = bool(agreed), int(blind), decrement
        run.previous = points[1].copy()
        batch.arrive(points[0].copy(), Normal(n, cost, gradient, hessian, compiled=CompiledCholesky))
    run.last = (batch.theta, *trail) if follows else None
    batch.count_fused(steps + bool(failed))
    return taken > 0.0
