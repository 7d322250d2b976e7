r"""The loop: progressive-batching Levenberg-Marquardt. The only one in the project.

Minimise ``f(theta) = sum_i f_i(theta)``, ``f_i = loss(||r_i||)``, i = 1..N, over a batch S of K blocks that grows:

1. *Linearise* on S: means g of ``w J^T r``, H of ``w J^T J``. Blocks already linearised at this point are not
   evaluated again.
2. *Enough?* At K = N: has it converged? Below: is the batch exhausted (`problm.solver.growth`)? Then grow it.
3. *Step*: ``(H + lambda D) s = -g``; try it on S; raise lambda until the cost of S falls (`problm.solver.damping`). At
   K = N, near the minimum, first one that is extrapolated from the last (`problm.linalg.cholesky`).
4. *Accept?* At K = N: yes, that is LM. Below: the policy judges whether the cost over all blocks falls too
   (`problm.solver.acceptance`), and may ask for a larger batch.

A batch that has converged grows and never ends the solve; at K = N the method is Levenberg-Marquardt, so descent and
stationarity are LM's (an extrapolated step has to lower the cost like any other), and a converged result carries the
gradient over all residuals. The exceptions say so in their status: the accuracy mode, limits of time, iterations or
batch, and the callback.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..linalg.quadratic import Space, System
from ..sampling.order import as_generator
from . import rules
from .acceptance import Acceptance, FullBatch, Holdout, Step, Verdict, as_acceptance
from .batch import Batch
from .damping import Damping, TrustRegion, as_damping
from .growth import Growth
from .options import Options
from .outcome import not_finite, refuse_underflow, result_of
from .problem import JUMP, Problem, Theta
from .result import History, Result, State, Status
from .termination import Termination

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

Array = NDArray[np.float64]
_TAKE = Verdict(True)


class _Stop(Exception):
    """A limit or the callback ends the solve."""

    def __init__(self, status: Status) -> None:
        self.status = status


def solve(problem: Problem, theta: Theta, *, space: Space | None = None, **settings: Any) -> Result:
    """Minimise a problem from the point ``theta``.

    Parameters
    ----------
    problem : the residual blocks (see `problm.solver.problem.Problem`).
    theta : the start, a point that ``problem.retract`` understands.
    space : bounds, fixed parameters and units of the parameters; free and flat if not given.
    **settings : fields of `problm.solver.options.Options`.

    Returns
    -------
    Result. Never raises for want of convergence: ``status`` says how it ended.
    """
    if not isinstance(problem, Problem):
        raise TypeError(
            f"problem must be a problm.solver.Problem, got {type(problem).__name__}: derive it from that class"
        )
    options = Options.of(**settings)
    policy = as_acceptance(options.acceptance)
    space = space or Space(problem.dim)
    first = options.initial_batch or policy.first_batch(problem.n, problem.dim)
    if policy.noise_rule and not options.initial_batch:
        first = max(first, problem.least_batch)
    near = first > _jump(problem, options) * problem.n or problem.n <= problem.few
    if near and not (options.initial_batch or policy.damping == "tenfold"):
        first = problem.n  # batches save nothing, or would become everything at their first growth
    first = min(first, problem.n, options.max_batch or problem.n)
    run = _Run(problem, theta, first, policy, space, options)
    if options.checkpoint is not None:
        run = _resumed(run)
    status = run.until_done()
    if run.before is None and run.batch.full and first < problem.n and run.ended_above_start(theta):
        # The statistics let the cost rise, which is rare but possible: plain LM from the start cannot.
        again = _Run(problem, theta, problem.n, FullBatch(), space, options, run)
        run, status = again, again.until_done()
    return result_of(run, status)


@dataclass
class _Run:
    """A solve under way: the state, and the loop over it."""

    problem: Problem
    theta: Theta
    first: int
    policy: Acceptance
    space: Space
    options: Options
    before: _Run | None = None
    batch: Batch = field(init=False)
    system: System = field(init=False)
    history: History = field(init=False)

    def __post_init__(self) -> None:
        own = self.problem.make_batch(self.theta, self.first)
        if own is not None and not isinstance(self.policy, (Holdout, FullBatch)):
            raise ValueError(
                f"acceptance: {type(self.policy).__name__} needs the costs of single rows in one place, which a "
                "cluster does not give; use 'holdout', 'hoeffding-serfling', 'empirical-bernstein' or 'full'"
            )
        self.batch = Batch(self.problem, self.theta, self.first) if own is None else own
        self.history = History() if self.before is None else self.before.history
        self.began: float = time.perf_counter() if self.before is None else self.before.began
        self.damping: Damping = as_damping(self.options.damping or self.policy.damping)
        o, n = self.options, self.problem.n
        self.termination = Termination.of(o.ftol, o.xtol, o.gtol, n)
        self.growth = Growth(n, o.accuracy, o.confidence, _jump(self.problem, o), self.problem.largest_batch)
        self.rng: np.random.Generator | None = None
        self.previous: Theta = None
        # Where the last step over everything led, if it was not damped; the step; and the Gauss-Newton one.
        self.last: tuple[Theta, Array, Array] | None = None
        self.sharpened = self.trusting = False
        self.compiled = self.problem.for_compiled_loop() if self.unobserved() else None
        self.sailing = self.compiled is not None
        self.tried = 0  # steps that it tried from the present point, in vain
        self.saver: Checkpoint | None = None
        self.first_costs: tuple[float, float] = (math.nan, math.inf)
        if self.before is not None:
            self.batch.residual_rows = self.before.batch.residual_rows
            self.batch.jacobian_rows = self.before.batch.jacobian_rows
            self.saver = self.before.saver

    def unobserved(self) -> bool:
        """Whether nobody but this loop follows or limits its steps."""
        o, space = self.options, self.space
        given = (space.fixed, space.lower, space.upper, space.x_scale, o.callback, o.checkpoint)
        free = all(part is None for part in given) and o.max_time == math.inf and not o.keep_path
        return free and type(self.damping) is TrustRegion

    def generator(self) -> np.random.Generator:
        if self.rng is None:
            self.rng = as_generator(self.options.rng)
        return self.rng

    def until_done(self) -> Status:
        try:
            return self.minimise()
        except _Stop as stop:
            return stop.status
        except KeyboardInterrupt:
            if not hasattr(self, "system"):
                raise  # nothing is known yet
            return Status.INTERRUPTED
        except Exception as error:
            error.add_note(f"problm: raised after {len(self.history)} iterations; best point: {self.batch.theta!r}")
            raise

    def minimise(self) -> Status:
        """Steps 1 to 4 of the module's docstring, until an outcome."""
        batch, policy = self.batch, self.policy
        while True:
            if self.saver is not None:
                self.saver.note(self)
            system = self.linearize()
            if batch.full and system.clouded and self.sharpen():
                continue  # before steps along the noise of forward differences lead astray
            if batch.full:
                if (status := self.termination.converged(system)) is not None:
                    if self.sharpen() or self.look_closer():
                        continue
                    return status
            elif policy.noise_rule:
                exhausted = self.growth.exhausted(system)
                if self.growth.accurate(system):
                    return Status.ACCURACY
                if exhausted:
                    self.grow()
                    continue
            elif self.termination.converged(system) is not None:
                self.grow(batch.n)  # erratum 11: the minimiser of a batch is not the answer
                continue

            if self.sailing and batch.full and self.sail(system):
                continue  # many iterations like those below, in compiled code
            step = self.descend(system)
            if step is None:
                if batch.full:
                    if self.sharpen() or self.look_closer():
                        continue
                    return self.termination.stalled(system)
                self.damping.reset()
                self.grow(None if policy.noise_rule else batch.n)
                continue

            verdict = _TAKE if batch.full else policy.judge(Step(batch, step.step, self.generator))
            if verdict.accept:
                self.previous = batch.theta
                batch.accept()
                plain = batch.full and rules.is_plain(self.damping.value, step.tries == 1)
                self.last = (batch.theta, step.step, system.step(0.0)[0]) if plain else None
                self.damping.accept(step.ratio)
                self.growth.stepped(system, step.ratio, step.predicted, step.tries == 1)
                self.termination.stepped(system, step.change, step.predicted, step.length, step.tries)
                self.sailing = self.compiled is not None
            elif verdict.restores:
                batch.move(verdict.restore)
            if verdict.grow_to == 0:
                self.record("accept", system.cost + step.change)
            else:
                cost = system.cost + (step.change if verdict.accept else 0.0)
                self.grow(verdict.grow_to, "accept, grow" if verdict.accept else "undo, grow", cost)

    def linearize(self) -> System:
        batch = self.batch
        self.check_time(batch.size)
        normal = batch.linearize(self.policy.noise_rule)
        system = None
        if math.isfinite(normal.cost + sum(normal.gradient.tolist())):
            errors = None if self.trusting else batch.uncertainty
            system = System(normal, batch.theta, self.space, self.damping.scaling, batch.factor, errors)
        if system is None or not system.finite:
            if self.previous is None or self.options.nan_policy == "raise":
                raise not_finite(self.problem, batch.theta)
            # The cost is finite there, or the step would not have been taken, but not the Jacobian: step back.
            batch.move(self.previous)
            self.previous = None
            self.damping.reject(ratio=math.nan)
            self.record("undo", self.system.cost)
            return self.linearize()
        self.system = system
        if not len(self.history):
            self.termination.zero = 1e-30 * system.cost
            if system.cost == 0.0:
                refuse_underflow(self.problem, batch.theta)
        if not len(self.history) and not batch.full:
            self.first_costs = batch.first_costs()
        return system

    def descend(self, system: System) -> _Trial | None:
        """Raise the damping until a step lowers the cost of the batch; None if none does."""
        tries, self.tried = 1 + self.tried, 0
        ahead = self.extrapolated(system) if tries == 1 else None
        while tries <= rules.MOST_TRIALS:
            damping = self.damping.choose(system)
            step, predicted, length = system.step(damping) if ahead is None or damping > 0.0 else ahead
            if not predicted > 0.0:
                return None
            if tries > 1:
                self.check_time(self.batch.size)
            trial = self.space.inside(self.problem.retract(self.batch.theta, step))
            change = self.batch.trial(trial)
            if math.isnan(change) and self.options.nan_policy == "raise":
                raise not_finite(self.problem, trial)
            ratio = -change / predicted
            if rules.lowers_cost(ratio):
                return _Trial(step, change, predicted, ratio, tries, length)
            if self.batch.full and self.termination.lost_in_rounding(system, change):
                return _Trial(step, change, predicted, 1.0, tries, length)
            if ahead is not None and damping == 0.0:
                ahead = self.last = None
                self.record("reject", system.cost)
                continue  # with the Gauss-Newton step
            tries += 1
            self.damping.reject(1e-3 * system.least_curvature, ratio)
            self.growth.failed()
            self.record("reject", system.cost)
            if math.isfinite(change) and self.termination.hopeless(predicted, system.cost):
                return None
        return None

    def sail(self, system: System) -> bool:
        from .compiled_loop import sail  # which only problems of few rows compile

        return sail(self, system)

    def extrapolated(self, system: System) -> tuple[Array, float, float] | None:
        """What the last two steps over everything say about the next one, where the problem does not learn itself."""
        if self.last is None or self.last[0] is not self.batch.theta or not self.batch.full:
            return None
        if self.problem.learns:
            return None
        return system.extrapolated(*self.last[1:])

    def sharpen(self) -> bool:
        """Ask the problem for more accurate derivatives, where differences may be why no step goes down: the
        Gauss-Newton step still promises a decrease."""
        settled = self.system.decrement <= self.options.ftol * self.system.cost
        if settled or not self.problem.refine_derivatives():
            return False
        self.sharpened = True
        self.termination.begin_anew()
        self.damping.reset()
        self.damping.value = 1e-3 * self.system.least_curvature  # what is left is what damping suppressed
        self.batch.move(self.batch.theta)
        return True

    def look_closer(self) -> bool:
        """Believe the derivatives to the last digit from now on, where what their errors may have made up promises a
        decrease that matters: whether it is real, the next steps show."""
        if not self.system.clouded or self.termination.flat(self.system):
            return False
        self.trusting = True
        self.termination.begin_anew()
        self.damping.reset()
        self.batch.move(self.batch.theta)
        return True

    def grow(self, size: int | None = None, decision: str = "grow", cost: float | None = None) -> None:
        """Enlarge the batch, by the noise rule if no size is given."""
        batch, system = self.batch, self.system
        if size is None:
            size = self.growth.next_size(system, system.step(self.damping.value)[1])
        limit = self.options.max_batch
        if limit is not None and size > limit:
            if batch.size >= limit:
                raise _Stop(Status.BATCH_LIMIT)
            size = limit
        batch.grow(min(size, batch.n))
        self.termination.begin_anew()
        self.record(decision, system.cost if cost is None else cost)

    def record(self, decision: str, cost: float) -> None:
        """Write the iteration down, tell the callback, and stop at a limit."""
        batch, history = self.batch, self.history
        seconds = time.perf_counter() - self.began
        passes = batch.residual_rows / batch.n, batch.jacobian_rows / batch.n
        history.add(seconds, batch.size, cost * batch.n, self.damping.value, decision, *passes)
        if self.options.keep_path:
            history.path.append(batch.theta)
        if self.options.callback is not None:
            # At least one linearisation, one trial and the certificate on all residuals lie ahead.
            left = 2.0 * batch.seconds(batch.n)
            state = State(
                len(history), seconds, batch.size, batch.n, cost * batch.n, self.damping.value, decision,
                batch.theta, left,
            )  # fmt: skip
            try:
                stop = bool(self.options.callback(state))
            except StopIteration:
                stop = True
            if stop:
                raise _Stop(Status.STOPPED)
        if len(history) >= self.options.max_iter:
            raise _Stop(Status.MAX_ITER)

    def check_time(self, size: int) -> None:
        """Do not begin a pass that would not end in time."""
        if self.options.max_time < math.inf:
            seconds = time.perf_counter() - self.began + self.batch.seconds(size)
            if seconds > self.options.max_time and hasattr(self, "system"):
                raise _Stop(Status.TIME)

    def ended_above_start(self, theta: Theta) -> bool:
        """Whether the cost over all residuals is above the start's, which is only computed if it may be."""
        mean, error = self.first_costs
        now = self.system.normal.cost / self.problem.n
        if now < mean - 6.0 * error:
            return False
        self.batch.residual_rows += self.problem.n
        return now > self.problem.cost(theta) / self.problem.n * (1.0 + 1e-12)


def _resumed(run: _Run) -> _Run:
    """The run, where its checkpoint left it if there is one; it keeps it up to date from now on."""
    from .checkpoint import Checkpoint

    options = run.options
    assert options.checkpoint is not None
    run.saver = Checkpoint(options.checkpoint, options.checkpoint_every)
    state = run.saver.load()
    if state is not None:
        if state["restarted"]:
            run = _Run(run.problem, run.theta, run.problem.n, FullBatch(), run.space, options, run)
        assert run.saver is not None
        run.saver.restore(run, state)
    return run


@dataclass(slots=True)
class _Trial:
    """A step that lowered the cost of the batch."""

    step: Array
    change: float
    predicted: float
    ratio: float
    tries: int
    length: float
    """Squared, in the scaled parameters."""


def _jump(problem: Problem, options: Options) -> float:
    """Share of all rows from which the batch becomes everything; whoever asks for an accuracy may want less."""
    return JUMP if options.accuracy is not None else problem.jump
