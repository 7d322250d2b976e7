"""A step of the compiled loop in two calls; between them the caller evaluates the trial.

`propose` looks at the sums of a point and writes the step to try; `judge` gets the cost there, and either writes
another step or takes this one. With the rules of the loop (`problm.solver.rules`) in the same order they give the same
bits. `problm.solver.compiled.loop` calls them, from compiled code for compiled rows and from Python for functions. Both
leave every other decision to the Python loop: a cost that is not finite, a Jacobian that is nearly rank-deficient, and
anything that may end the solve.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...jit import types
from ...jit.njit import compilable, njit, part
from ...linalg import quadratic as systems
from ...linalg.cholesky import REFINE
from ...linalg.cholesky_compiled import extrapolated, reduce, within
from ...linalg.normal import Normal
from ...linalg.quadratic import QuadraticModel
from ..damping import TrustRegion
from ..problem import CREEP, Theta
from ..rules import (
    COMPILED,
    FACTOR,
    MOST_TRIALS,
    SMALL_CHANGE,
    creeps,
    first_radius,
    gradient_vanishes,
    hardly_changes,
    is_hopeless,
    is_plain,
    is_short,
    lost_in_rounding,
    lowers_cost,
    mixed,
    model_agrees,
    next_radius,
    one_step_left,
)  # fmt: skip
from ..run import Run

Array = NDArray[np.float64]
_f8, _i8 = types.float64, types.int64
MOST = 100
"""Approximate number of steps per call, so that Ctrl-C is handled in time."""
_GENTLE = 1e-5
"""Largest cosine between the residuals and a column of the Jacobian at which the Python loop examines a step that
gained less than predicted."""
STOP, AGAIN, TAKEN = 0, 1, 2
"""Answers of `judge`: leave the decision to the Python loop, evaluate another step, linearise the new point."""

# Indices into ``state``: what is kept between two calls of the compiled loop, and then what belongs to one step.
(
    COST, RADIUS, LENGTH, DAMPING, SMALL, SHORT, AGREED, BLIND, FOLLOWS, LAST, ACCEPTED, TRIED, FAILED, STEPS,
    AHEAD, DECREMENT, REST, SQUARED, RESISTED, POINT, SIZE, TRIAL_DAMPING, PREDICTED, TRIAL_SQUARED, STATES,
) = range(25)  # fmt: skip

compilable(COMPILED, error_model="numpy")


@njit(
    _i8(
        _i8, _f8[::1], _f8[::1], _f8[::1], _f8[:, ::1], _f8[::1], _f8[:, ::1], _f8[::1], _f8[:, ::1], _f8[:, ::1],
        _f8[::1],
    ),
    nogil=True,
    error_model="numpy",
)  # fmt: skip
def propose(  # type: ignore[no-untyped-def]
    n, sizes, limits, gradient, hessian, largest, trail, state, vectors, matrix, step
):
    """Write the next step from a point to ``step`` (d,); return `AGAIN`, or `STOP` if the Python loop must decide.

    n : number of rows.
    sizes : (d,) the point; ones on a manifold.
    limits : ftol, xtol, gtol and left of `problm.solver.termination.Termination`, the smallest pivot of the scaled
        Cholesky factor, the decrease relative to the cost below which steps are extrapolated, the largest number of
        steps to try, the tolerance of a last step that is taken because of its bound, ftol if the user gave it, and
        the contraction from which on steps creep.
    gradient, hessian : (d,), (d, d) sums at the point.
    largest : (d,) the largest mean diagonal of H so far; brought up to date (`problm.solver.damping`).
    trail : (2, d) the last accepted step and the Gauss-Newton step there, if neither was damped.
    state : (STATES,) cost, radius (0 before the first step), length and damping of the last step, number of successive
        steps that hardly changed the cost, whether the last step was short, whether it gained what was predicted,
        number of steps taken blindly, whether there is a trail, the decrement before a Gauss-Newton step, the number of
        accepted steps, the number of failed steps from this point, whether another one failed in a way that the Python
        loop has to handle, the number of steps tried; and numbers of the step that is being tried.
    vectors, matrix : (5, d), (d, d) results of `problm.linalg.cholesky_compiled.reduce`.
    """
    xtol, gtol, left, least_pivot, near, bounded = limits[1], limits[2], limits[3], limits[4], limits[5], limits[7]
    state[DECREMENT] = math.nan
    present = True  # whether the largest diagonal so far is the present one
    for a in range(len(gradient)):
        largest[a] = max(largest[a], hessian[a, a] / n)
        present = present and hessian[a, a] / n >= largest[a]
    found = reduce(n, gradient, hessian, sizes, largest[:0] if present else largest, vectors, matrix)
    decrement, pivot, point, steepest = found[0], found[1], found[4], found[6]
    mean = state[COST] / n
    if not (pivot >= least_pivot and math.isfinite(decrement)):
        return STOP
    state[DECREMENT], state[SQUARED], state[RESISTED], state[POINT] = decrement, found[2], found[3], point
    if not state[RADIUS] > 0.0:
        state[RADIUS] = first_radius(FACTOR, math.sqrt(found[5]), math.sqrt(found[3]))
    state[AHEAD], state[REST] = 0.0, decrement
    if state[FOLLOWS] != 0.0 and state[TRIED] == 0.0 and decrement < near * mean:
        promise, reach, rest = extrapolated(n, gradient, hessian, vectors[4], decrement, trail[0], trail[1], step)
        if promise > 0.0:
            state[AHEAD], state[PREDICTED], state[TRIAL_SQUARED] = 1.0, promise, reach
            state[REST] = mixed(decrement, state[LAST], rest)
    if state[STEPS] > 0.0:
        if gradient_vanishes(decrement, mean, gtol, state[LAST]):
            return STOP
        if creeps(limits[9], decrement, state[LAST], mean):
            return STOP
        if bounded > 0.0 and one_step_left(decrement, mean, state[LAST], bounded, state[AGREED] != 0.0, state[REST]):
            return STOP
        if state[AGREED] == 0.0 and steepest / math.sqrt(2.0 * mean) <= _GENTLE:
            return STOP
        if state[SMALL] > 0.0 and (decrement <= max(left, limits[8]) * mean or state[SMALL] >= 3.0):
            return STOP
        if state[SHORT] != 0.0 and is_short(found[2], point, xtol):
            return STOP
    if state[STEPS] >= MOST:
        return STOP
    return _next_step(limits, state, vectors, matrix, step)


@part(nogil=True, error_model="numpy")
def _next_step(limits, state, vectors, matrix, step):  # type: ignore[no-untyped-def]
    """Write the step within the trust region to ``step``, unless an extrapolated one that is within it is there; return
    `AGAIN`, or `STOP` if there is none."""
    plain = vectors[4]
    size, damping, predicted, length = math.sqrt(state[RESISTED]), 0.0, state[DECREMENT], state[SQUARED]
    if size > 1.1 * state[RADIUS]:
        damping, size, predicted, length = within(vectors, matrix, state[RADIUS], step)
        state[AHEAD] = 0.0
    elif state[AHEAD] != 0.0:
        predicted, length = state[PREDICTED], state[TRIAL_SQUARED]
    else:
        for a in range(len(step)):
            step[a] = plain[a]
    if state[STEPS] == limits[6] or state[TRIED] == MOST_TRIALS or not predicted > 0.0:
        return STOP
    state[SIZE], state[TRIAL_DAMPING], state[PREDICTED], state[TRIAL_SQUARED] = size, damping, predicted, length
    return AGAIN


@njit(
    _i8(
        _i8, _f8, _f8, _f8[::1], _f8[::1], _f8[:, ::1], _f8[:, ::1], _f8[::1], _f8[:, ::1], _f8[:, ::1], _f8[::1],
        _f8[:, ::1],
    ),
    nogil=True,
    error_model="numpy",
)  # fmt: skip
def judge(  # type: ignore[no-untyped-def]
    n, cost, total, limits, gradient, hessian, trail, state, vectors, matrix, step, history
):
    """Take a step if it led to a lower cost, or write another one; see `propose`.

    cost : the cost after the step.
    total : any sum that is not finite if the cost, or derivatives that are known already, are not.
    history : (3, MOST + MOST_TRIALS + 1) cost after each step, its damping, and whether it was accepted.
    """
    ftol, xtol, left = limits[0], limits[1], limits[3]
    mean, decrement, predicted = state[COST] / n, state[DECREMENT], state[PREDICTED]
    damping, ahead = state[TRIAL_DAMPING], state[AHEAD] != 0.0
    change = (cost - state[COST]) / n
    ratio = -change / predicted
    taken = lowers_cost(ratio)
    lost = lost_in_rounding(change, decrement, mean, state[BLIND])
    if not math.isfinite(total) or (is_hopeless(predicted, mean, left) and not (taken or lost)):
        state[FAILED] = 1.0
        return STOP
    if lost and not taken:
        taken, ratio = True, 1.0
        state[BLIND] += 1.0
    state[LENGTH], state[DAMPING] = state[SIZE], damping
    k = int(state[STEPS])
    history[0, k], history[1, k], history[2, k] = cost if taken else state[COST], damping, 1.0 if taken else 0.0
    state[STEPS] += 1.0
    if ahead and not taken:
        state[AHEAD] = state[FOLLOWS] = 0.0
        return _next_step(limits, state, vectors, matrix, step)
    state[RADIUS] = next_radius(state[RADIUS], state[SIZE], damping, ratio)
    if not taken:
        state[TRIED] += 1.0
        return _next_step(limits, state, vectors, matrix, step)
    first = state[TRIED] == 0.0
    state[SMALL] = state[SMALL] + 1.0 if hardly_changes(change, predicted, mean, ftol) else 0.0
    state[SHORT] = 1.0 if is_short(state[TRIAL_SQUARED], state[POINT], xtol) else 0.0
    state[AGREED] = 1.0 if model_agrees(change, predicted, first) else 0.0
    plain = is_plain(damping, predicted, decrement, first)
    state[FOLLOWS] = 1.0 if plain else 0.0
    state[LAST] = (state[REST] if ahead else decrement) if plain else 0.0
    for a in range(len(step)):
        trail[0, a], trail[1, a] = step[a], vectors[4, a]
    state[COST], state[TRIED] = cost, 0.0
    state[ACCEPTED] += 1.0
    return TAKEN


class Steps:
    """What `propose` and `judge` work with, at first for a point with this cost, before any step.

    Parameters
    ----------
    n, d : numbers of rows and parameters.
    cost : the cost of the point.
    limits : (10,) see `propose`.
    """

    def __init__(self, n: int, d: int, cost: float, limits: tuple[float, ...]) -> None:
        self.n, self.limits = n, np.array(limits)
        self._costs = [cost]  # of the points so far, as linearised, unless they are those of the trials
        self.largest, self.trail, self.state = np.zeros(d), np.zeros((2, d)), np.zeros(STATES)
        self.state[COST], self.state[AGREED] = cost, 1.0
        self.theta: Theta = None
        self.previous: Theta = None
        self.normal: Normal | None = None
        self.fused = False
        """Whether every trial was linearised."""
        self.interrupted = False
        """Whether Ctrl-C ended them."""
        self.history = np.empty((3, MOST + MOST_TRIALS + 1))
        self.vectors, self.matrix, self.step = np.empty((5, d)), np.empty((d, d)), np.empty(d)

    @classmethod
    def of(cls, run: Run, system: QuadraticModel) -> Steps:
        """Steps from the present point of a run."""
        damping, t, normal = run.damping, run.termination, system.normal
        assert isinstance(damping, TrustRegion)
        most = run.options.max_iter - len(run.history) - 1  # the Python loop takes the last one, and stops
        rest = REFINE, 0.0 if run.creep <= CREEP else systems.NEAR, float(most), t.bounded, t.ftol, run.creep
        limits = t.ftol or SMALL_CHANGE, t.xtol, t.gtol, t.left, *rest
        self = cls(run.batch.n, len(normal.gradient), normal.cost, limits)
        self.largest = damping.largest.copy()
        last = run.last if run.last is not None and run.last[0] is run.batch.theta else None
        if last is not None:
            self.trail = np.array(last[1:])
        self.state[:ACCEPTED] = (
            normal.cost, damping.radius_at(system), damping.length, damping.value, t.small_changes, t.small_step,
            t.model_agreed, t.blind, last is not None, t.last_decrement,
        )  # fmt: skip
        return self

    @property
    def count(self) -> int:
        """Number of steps tried."""
        return int(self.state[STEPS])

    @property
    def cost(self) -> float:
        """The cost of the present point."""
        return float(self.state[COST])

    @property
    def decrement(self) -> float:
        """Mean decrease that the Gauss-Newton step from the present point predicts; NaN if that is not known."""
        return float(self.state[DECREMENT])

    @property
    def last_decrement(self) -> float:
        """The same before the last step, if that was a Gauss-Newton step, or what counts as such; else 0."""
        return float(self.state[LAST])

    @property
    def agreed(self) -> bool:
        """Whether the last step gained what was predicted."""
        return bool(self.state[AGREED])

    @property
    def rest(self) -> float:
        """The decrement that counts for the contraction by the next step."""
        return float(self.state[REST])

    def next_step(self) -> tuple[Array, float]:
        """(d,) the undamped step from the present point, and the mean decrease that it predicts."""
        if self.state[AHEAD]:
            return self.step, float(self.state[PREDICTED])
        return self.vectors[4], self.decrement

    def take(
        self,
        theta: Array,
        normal: Normal,
        linearized: Callable[[Array], Normal | None],
        cost: Callable[[Array], float] | None,
    ) -> None:
        """Take steps from a linearised point; ``theta``, ``previous`` and ``normal`` are then those of the last one.

        Parameters
        ----------
        linearized : sums at a point, which has been tried if ``cost`` is given; None to stop there.
        cost : the cost of a point; None if ``linearized`` computes it with the rest.
        """
        self.theta, self.previous, self.normal, self.fused = theta, None, normal, cost is None
        n, limits, step, history = self.n, self.limits, self.step, self.history
        work, largest = (self.trail, self.state, self.vectors, self.matrix, step), self.largest
        propose_next, judge_trial = propose.compiled, judge.compiled
        there: Normal | None = normal
        while there is not None and there.compiled is not None:
            self.normal = there
            sums = there.gradient, there.hessian
            answer = propose_next(n, self.theta, limits, *sums, largest, *work)
            while answer == AGAIN:
                trial = self.theta + step
                if cost is not None:
                    value = cost(trial)
                else:
                    there = linearized(trial)
                    assert there is not None
                    value = there.cost
                answer = judge_trial(n, value, value, limits, *sums, *work, history)
            if answer == STOP:
                break
            self.theta, self.previous, self.normal = trial, self.theta, None
            there = there if cost is None else linearized(trial)
            if there is None or not math.isfinite(there.cost + sum(there.gradient.tolist())):
                self.normal = there
                break
            # The point was linearised after its trial; its cost may differ by rounding.
            self.state[COST] = there.cost
            self._costs.append(there.cost)

    def commit(self, run: Run) -> bool:
        """Bring the run to the present point, which is linearised if ``normal`` is known; return whether a step was
        taken."""
        batch, t, n, fused = run.batch, run.termination, self.n, self.fused
        radius, length, value, small, short, agreed, blind, follows, decrement, taken, tried, failed, steps = (
            self.state[RADIUS : STEPS + 1].tolist()
        )
        run.compiled_next, run.tried = not failed and tried < MOST_TRIALS, int(tried)
        if steps:
            assert isinstance(run.damping, TrustRegion)
            run.damping.stepped(value, radius, length, self.largest)
            seconds, residuals, jacobians = time.perf_counter() - run.began, batch.residual_rows, batch.jacobian_rows
            costs = iter(self._costs)
            before = next(costs)
            for after, value, good in zip(*self.history[:, : int(steps)].tolist(), strict=True):
                residuals += n
                jacobians += n if fused else 0
                passes = residuals / n, jacobians / n
                # Rounded as in `problm.solver.loop.Loop.apply`.
                cost = (before / n + ((after - before) / n if good else 0.0)) * n
                run.history.add(seconds, n, cost, value, "accept" if good else "reject", *passes)
                if good:
                    before = next(costs, after)
                    jacobians += 0 if fused else n
        if taken:
            t.small_changes, t.small_step = int(small), bool(short)
            t.model_agreed, t.blind, t.last_decrement = bool(agreed), int(blind), decrement
            run.previous = self.previous
            batch.arrive(self.theta, self.normal)
        run.last = (batch.theta, *self.trail) if follows else None
        batch.count_trials(int(steps + failed), None if fused else int(taken))
        return bool(taken > 0.0)


def take_steps(run: Run, system: QuadraticModel) -> bool:
    """Take steps from a point where all rows are linearised, with calls of the problem; return whether any were taken.

    Not for compiled rows (`problm.solver.compiled.loop`).
    """
    if system.singular or system.normal.compiled is None or not at_hand():
        run.compiled_next = False
        return False
    problem, steps = run.problem, Steps.of(run, system)

    def linearized(theta: Theta) -> Normal:
        return problem.linearize(theta, 0, steps.n, outer=False, costs=None)

    try:
        steps.take(run.batch.theta, system.normal, linearized, None if problem.fused else problem.cost)
    finally:  # also where the function raises
        done = steps.commit(run)
    return done


def at_hand() -> bool:
    """Whether the functions of this module need no compiler."""
    return propose.ahead_of_time and judge.ahead_of_time
