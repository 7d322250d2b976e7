r"""The loop of progressive-batching Levenberg-Marquardt, the only solver loop in the project.

Minimise ``f(theta) = sum_i f_i(theta)``, ``f_i = loss(||r_i||)``, i = 1..N, with a growing batch S of K blocks:

1. *Linearise* on S: g is the mean of ``w J^T r``, H the mean of ``w J^T J``. Blocks already linearised at this point
   are not evaluated again.
2. *Enough?* At K = N, stop if converged. Below N, leave an exhausted batch for a larger one (`problm.solver.growth`)
   or for the end (`problm.solver.short_end`).
3. *Step*: solve ``(H + lambda D) s = -g`` and try s on S; raise lambda until the cost of S falls
   (`problm.solver.damping`). At K = N and near the minimum, a step extrapolated from the last one is tried first
   (`problm.linalg.cholesky`).
4. *Accept?* At K = N always, as in LM. Below N the policy judges whether the cost over all blocks falls too
   (`problm.solver.policies.acceptance`), and may ask for a larger batch.

A converged batch grows and never ends the solve. At K = N the method is Levenberg-Marquardt, with its descent and
stationarity (extrapolated steps must lower the cost like any other), and a converged result carries the gradient over
all residuals. The exceptions have a status of their own: accuracy mode, limits of time, iterations or batch size, and
the callback.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..linalg.quadratic import QuadraticModel
from ..linalg.space import Space
from ..support.caller import as_called
from . import rules, short_end
from .compiled import taking_steps
from .growth import first_size
from .options import Options
from .outcome import not_finite, refuse_underflow, result_of
from .policies import as_acceptance
from .policies.acceptance import Step, Verdict
from .problem import Problem, Theta
from .result import Result, Status
from .run import Run, Stop
from .termination import TOLERANCE
from .verification import follow_valley, hidden_by_errors, leave_saddle, made_up, newton, perfect, settled, verified
from .verification.second_try import better, has_chances

if TYPE_CHECKING:
    from .checkpoint import Checkpoint
    from .compiled.advance import Steps

Array = NDArray[np.float64]
_TAKE = Verdict(True)


def solve(
    problem: Problem, theta: Theta, *, space: Space | None = None, begun: Steps | None = None, **settings: Any
) -> Result:
    """Minimise a problem from the point ``theta``.

    Parameters
    ----------
    problem : the residual blocks (see `problm.solver.problem.Problem`).
    theta : the start, a point that ``problem.retract`` understands.
    space : bounds, fixed parameters and units of the parameters; by default unbounded and flat.
    begun : steps over all rows that were already taken from the start.
    **settings : fields of `problm.solver.options.Options`.

    Returns
    -------
    Result. Non-convergence never raises: ``status`` says how it ended.
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be derived from problm.solver.Problem, got {type(problem).__name__}")
    options = Options.of(**settings)
    if options.callback is not None:
        options = replace(options, callback=as_called(options.callback))
    with np.errstate(all="ignore"):  # steps that lead to overflow are refused; see `problm.support.caller`
        return _solved(problem, theta, space or Space(problem.dim), options, begun)


def _solved(problem: Problem, theta: Theta, space: Space, options: Options, begun: Steps | None) -> Result:
    policy = as_acceptance(options.acceptance)
    loop = Loop(problem, theta, first_size(problem, policy, options), policy, space, options)
    saver: Checkpoint | None = None
    if options.checkpoint is not None:
        from .checkpoint import Checkpoint

        saver = Checkpoint(options.checkpoint, options.checkpoint_every)
        loop = saver.resumed(loop)
    if begun is not None:
        begun.commit(loop)
    if begun is not None and begun.interrupted:
        loop.linearize()
        status = Status.INTERRUPTED
    else:
        status = _until_done(loop, saver)
    try:
        if status is not Status.INTERRUPTED and (loop.lost or loop.ended_above_start()):
            # The statistical tests let the cost rise, which is rare but possible. Plain LM from the start cannot.
            again = loop.again()
            status = _until_done(again, saver)
            loop = again
    except KeyboardInterrupt:  # return the point of the first run
        status = Status.INTERRUPTED
    result = result_of(loop, status)
    return better(loop, result, _until_done) if has_chances(loop, result) else result


def _sparse_model(hessian: Any) -> type[QuadraticModel]:
    from ..linalg.block_model import model_of

    return model_of(hessian)


def _until_done(loop: Loop, saver: Checkpoint | None) -> Status:
    """Iterate until an outcome, a limit, the callback or Ctrl-C ends the solve; write checkpoints in between."""
    try:
        while True:
            if saver is not None:
                saver.note(loop)
            if (status := loop.iterate()) is not None:
                return status
    except Stop as stop:
        return stop.status
    except KeyboardInterrupt:
        if not loop.begun:
            raise  # nothing is known yet
        return Status.INTERRUPTED
    except Exception as error:
        error.add_note(f"problm: raised after {len(loop.history)} iterations; best point: {loop.batch.theta!r}")
        raise


@dataclass(slots=True)
class _Trial:
    """A step that lowered the cost of the batch."""

    step: Array
    change: float
    predicted: float
    ratio: float
    tries: int
    length: float
    """Squared length in the scaled parameters."""
    plain: bool = False
    """Whether it was the Gauss-Newton step, or extrapolated from the last one."""
    rest: float = 0.0
    """The decrement that counts for its contraction, if it was plain."""


class Loop(Run):
    """A running solve and its iterations."""

    def iterate(self) -> Status | None:
        """Do one iteration, steps 1 to 4 of the module's docstring; return an outcome, or None to continue."""
        full = self.batch.full
        system = self.linearize()
        if full and system.rank_in_doubt and self.refine_derivatives():
            return None  # steps along the noise of forward differences would lead astray
        if not full and self.uninformed(system):
            return None  # parameters that few rows of this batch inform would move by noise
        status = self.finished(system)
        if full and newton.pays(self, system, status):
            ended = newton.finish(self)
            self.linearize()
            return Status.GRADIENT if ended else None
        if status is not None:
            return None if full and (self.look_closer() or (self.verified and follow_valley(self))) else status
        if self.options.max_iter == 0:
            return Status.MAX_ITER  # only the start is evaluated
        if full and short_end.take_last_step(self, system):
            return Status.GRADIENT
        if not full and self.exhausted(system):
            if not short_end.finish(self, system, self.linearize):
                self.grow_on()
            return None
        if full and self.compiled_next and self.take_compiled_steps(system):
            return None
        step = self.descend(system)
        if step is not None:
            self.apply(self.judge(step), step, system)
        elif not full:
            self.damping.reset()
            self.grow_on()
        elif not self.look_closer():
            status = self.stalled(system)
            return None if self.verified and follow_valley(self) else status
        return None

    def linearize(self) -> QuadraticModel:
        """The model of the batch at the present point, or at the previous one if this one has no finite derivatives."""
        batch = self.batch
        self.check_time()
        normal = batch.linearize(self.policy.noise_rule)
        system = None
        if math.isfinite(normal.cost + sum(normal.gradient.tolist())):
            errors = None if self.keep_all_directions else batch.uncertainty
            model = QuadraticModel if isinstance(normal.hessian, np.ndarray) else _sparse_model(normal.hessian)
            system = model(normal, batch.theta, self.space, self.damping.scaling, batch.factor, errors)
        if system is None or not system.finite:
            self.step_back()
            return self.linearize()
        self.system, self.begun = system, True
        if not len(self.history) and system.cost == 0.0:
            refuse_underflow(self.problem, batch.theta)
        return system

    def step_back(self) -> None:
        """Undo the last step if the Jacobian is not finite where it led (the cost is, or it would have been rejected).

        Without a step to undo, as after new rows that are not finite here, the solve ends or starts again.
        """
        if not self.begun or self.options.nan_policy == "raise":
            refused = not_finite(self.problem, self.batch.theta)
            if self.options.nan_policy == "raise" or not math.isfinite(self.problem.cost(self.start)):
                raise refused
            self.refused = str(refused)  # a start with a cost is no bad input
            raise Stop(Status.STALLED)
        if self.previous is None:
            self.lost = self.system.count < self.batch.n
            raise Stop(Status.STALLED)
        self.batch.move(self.previous)
        self.previous = None
        self.damping.reject(ratio=math.nan)
        self.record("undo", self.system.cost)

    def uninformed(self, system: QuadraticModel) -> bool:
        """Grow the batch if too few of its rows inform some parameter; return whether it grew."""
        factor = self.information.needed(self.batch, system.normal) if self.policy.noise_rule else 1.0
        if factor > 1.0:
            self.grow(self.growth.enlarged(factor * self.batch.size))
        return factor > 1.0

    def finished(self, system: QuadraticModel) -> Status | None:
        """The outcome at this point, if any: convergence on all residuals, or the requested accuracy."""
        if self.batch.full:
            status = self.termination.converged(system)
            if status is None and perfect(self, system) and settled(self, system):
                self.verified, status = True, Status.COST
            elif status is None and self.termination.crawls():
                self.verified = self.termination.at_rest(self.history.cost) and verified(self, system)
                status = Status.COST if self.verified else None
                self.termination.small_changes = 0
            return status
        if self.policy.noise_rule:
            self.growth.measure(system)
            reached = self.growth.accurate(system) and self.growth.confirmed(system, self.batch, self.space)
            return Status.ACCURACY if reached else None
        return None

    def stalled(self, system: QuadraticModel) -> Status:
        """The status if no step lowers the cost: a minimum to machine precision, or a failure."""
        self.verified = self.termination.close(system) or verified(self, system)
        return Status.COST if self.verified else Status.STALLED

    def exhausted(self, system: QuadraticModel) -> bool:
        """Whether a batch below N is exhausted."""
        if self.policy.noise_rule:
            return self.growth.exhausted(system)
        return self.termination.converged(system) is not None

    def grow_on(self) -> None:
        """Enlarge an exhausted batch by the noise rule, or to all rows (erratum 11: the minimiser of a batch is not the
        answer)."""
        self.grow(None if self.policy.noise_rule else self.batch.n)

    def grow(self, size: int | None, decision: str = "grow", cost: float | None = None) -> None:
        """Enlarge the batch, by the noise rule if no size is given."""
        batch, system = self.batch, self.system
        if size is None:
            size = self.growth.next_size(system, system.step(self.damping.value)[1])
        limit = self.options.max_batch
        if limit is not None and size > limit:
            if batch.size >= limit:
                raise Stop(Status.BATCH_LIMIT)
            size = limit
        if size >= batch.n and not batch.full:
            self.fall = batch.fall(self.start)
        batch.grow(min(size, batch.n))
        self.termination.begin_anew()
        self.record(decision, system.cost if cost is None else cost)

    def descend(self, system: QuadraticModel) -> _Trial | None:
        """Raise the damping until a step lowers the cost of the batch; return None if none does."""
        tries, self.tried = 1 + self.tried, 0
        ahead = self.extrapolated(system) if tries == 1 else None
        while tries <= rules.MOST_TRIALS:
            proposal = self.damping.propose(system)
            plain = rules.is_plain(self.damping.value, proposal[1], system.decrement, tries == 1)
            extrapolated = ahead is not None and plain
            step, predicted, length = ahead[:3] if ahead is not None and extrapolated else proposal
            rest = ahead[3] if ahead is not None and extrapolated else system.decrement
            if not predicted > 0.0:
                return None
            if tries > 1:
                self.check_time()
            change = self.change_by(step)
            ratio = -change / predicted
            if rules.lowers_cost(ratio):
                return _Trial(step, change, predicted, ratio, tries, length, plain, rest)
            if self.batch.full and self.termination.lost_in_rounding(system, change):
                return _Trial(step, change, predicted, 1.0, tries, length, plain, rest)
            if extrapolated:
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

    def change_by(self, step: Array) -> float:
        """Try a step, and return the change of the batch's mean cost."""
        trial = self.space.inside(self.problem.retract(self.batch.theta, step))
        change = self.batch.trial(trial)
        if math.isnan(change) and self.options.nan_policy == "raise":
            raise not_finite(self.problem, trial)
        return change

    def take_compiled_steps(self, system: QuadraticModel) -> bool:
        """Do many iterations in compiled code; return whether any were done."""
        return taking_steps(bool(self.compiled))(self, system)

    def judge(self, step: _Trial) -> Verdict:
        """Judge whether the cost over all blocks falls too."""
        if self.batch.full:
            return _TAKE
        return self.policy.judge(Step(self.batch, step.step, self.generator))

    def apply(self, verdict: Verdict, step: _Trial, system: QuadraticModel) -> None:
        """Take or undo the step and enlarge the batch, as the verdict says."""
        if verdict.accept:
            self.accept(step, system)
        elif verdict.restores:
            self.batch.move(verdict.restore)
        decision = "accept" if verdict.accept else "undo"
        cost = system.cost + (step.change if verdict.accept else 0.0)
        if verdict.grow_to == 0:
            self.record(decision, cost)
        elif verdict.grow_to is not None or not short_end.finish(self, system, self.linearize):
            self.grow(verdict.grow_to, f"{decision}, grow", cost)

    def accept(self, step: _Trial, system: QuadraticModel) -> None:
        """Move to the new point, and update damping, growth and termination."""
        batch = self.batch
        self.previous = batch.theta
        batch.accept()
        plain = batch.full and step.plain
        self.last = (batch.theta, step.step, system.step(0.0)[0]) if plain else None
        self.damping.accept(step.ratio)
        self.growth.stepped(system, step.ratio, step.predicted, step.tries == 1)
        rest = step.rest if plain else 0.0
        self.termination.stepped(system, step.change, step.predicted, step.length, step.tries, rest)
        self.compiled_next = self.compiled is not None

    def look_closer(self) -> bool:
        """Refine derivatives, or trust the present ones to the last digit, if that may reveal a descent step."""
        if self.refine_derivatives() or leave_saddle(self):
            return True
        # Directions that may be errors of the derivatives promise a decrease that matters; the next steps show whether
        # it is real.
        if not self.system.rank_in_doubt or self.termination.flat(self.system) or made_up(self, self.system):
            return False
        self.keep_all_directions = True
        self.begin_anew()
        return True

    def refine_derivatives(self) -> bool:
        """Ask the problem for more accurate derivatives if finite differences may be why no step lowers the cost: the
        Gauss-Newton step still promises a decrease."""
        settled = self.system.decrement <= (self.options.ftol or rules.SMALL_CHANGE) * self.system.cost
        if (settled and hidden_by_errors(self) <= 0.1 * TOLERANCE) or not self.problem.refine_derivatives():
            return False
        self.refined = True
        self.begin_anew()
        self.damping.value = 1e-3 * self.system.least_curvature  # what remains was suppressed by damping
        return True

    def begin_anew(self) -> None:
        """Linearise this point again, with other derivatives."""
        self.move_off(self.batch.theta)
