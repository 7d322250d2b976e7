"""The state of a running solve between two iterations, and its bookkeeping.

The loop (`problm.solver.loop`) takes the steps. The compiled loop, checkpoints and the result read and write the same
state.
"""

from __future__ import annotations

import math
import time
from copy import deepcopy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..linalg.quadratic import Extrapolation, QuadraticModel
from ..linalg.space import Space
from ..sampling.order import as_generator
from ..support import compiling
from . import rules
from .batch import Batch
from .damping import Damping, Tenfold, TrustRegion, as_damping
from .growth import Growth
from .information import Information
from .options import Options
from .policies.acceptance import Acceptance, FullBatch, Holdout
from .problem import CREEP, Problem, Theta
from .result import History, State, Status
from .termination import Termination

Array = NDArray[np.float64]
_FEW = 100
"""Number of iterations that a look elsewhere takes at most."""


class Stop(Exception):
    """Raised when a limit, the callback or the bound of the short end ends the solve."""

    def __init__(self, status: Status) -> None:
        self.status = status


class Run:
    """The state of a solve that begins with a batch of ``first`` blocks at the point ``start``."""

    system: QuadraticModel
    """The model at the present point; set by the first linearisation (``begun``)."""

    def __init__(
        self, problem: Problem, start: Theta, first: int, policy: Acceptance, space: Space, options: Options
    ) -> None:
        self.problem, self.start, self.first = problem, start, first
        self.policy, self.options = policy, options
        self.space = replace(space, start=start) if space.bounded else space
        self.batch = _batch_of(problem, start, first, policy)
        self.damping: Damping = as_damping(options.damping or policy.damping)
        self.growth = Growth.of(problem, options)
        self.information = Information()
        self.termination = Termination.of(options, problem)
        self.history = History()
        self.began, self.compiling_before = time.perf_counter(), compiling.seconds()
        self.begun = False
        self.refused = ""
        """Why no step from the start is possible: its derivatives are not finite."""
        self.lost = False
        """Whether steps on a batch led to a point where other rows are not finite."""
        self.restarted = False
        """Whether this is plain LM from the start, after a solve that ended above it."""
        self.fall: tuple[float, float] = (math.nan, math.inf)
        """Mean decrease of the cost of the last batch by steps on batches, and its standard error."""
        self.rng: np.random.Generator | None = None
        self.previous: Theta = None
        """The point before the last step, to return to."""
        self.last: tuple[Theta, Array, Array] | None = None
        """Point after the last undamped step over all rows, that step, and the Gauss-Newton step there."""
        self.tried = 0
        """Number of failed steps that the compiled loop tried from the present point."""
        self.refined = False
        """Whether the problem was asked for more accurate derivatives and provided them."""
        self.keep_all_directions = False
        """Whether directions are kept that may only be errors of the derivatives."""
        self.verified = False
        """Whether evaluations of the cost confirmed that the point is a minimum (`problm.solver.verification`)."""
        self.bound: float | None = None
        """Distance to the minimum, in standard errors, after a last step that was taken because of its bound."""
        self.sample: Any = None
        """The rows that told what a step over all rows leaves (`problm.solver.short_end`)."""
        self.start_squares: list[float] | Array | None = None
        """Squares of the sizes of the parameters at the start (`problm.solver.verification.perfect`)."""
        self.hidden: tuple[QuadraticModel | None, float] = (None, 0.0)
        """A model, and the distance that errors of its derivatives hide (`problm.solver.verification`)."""
        self.creep = problem.creep if problem.robust and not isinstance(self.damping, Tenfold) else math.inf
        self.newton_after = 0
        self.not_convex: Theta = None
        """Number of iterations from which on Newton steps may be taken where steps ``creep``, and the point from which
        they led nowhere (`problm.solver.verification.newton`)."""
        self.distance: tuple[Theta, float] | None = None
        """A point, and its distance from the minimum in standard errors by the second derivatives of the cost."""
        self.escapes = 0
        """Number of saddle points left so far."""
        self.compiled = problem.for_compiled_loop() if self._unobserved() else None
        self.compiled_next = self.compiled is not None
        """Whether the compiled loop may take the next steps over all rows."""

    def again(self, **settings: Any) -> Self:
        """A run of plain Levenberg-Marquardt from the start that continues the history and counters of this run."""
        options = replace(self.options, **settings)
        run = type(self)(self.problem, self.start, self.problem.n, FullBatch(), self.space, options)
        run.restarted, run.first = True, self.first
        run.history, run.began = deepcopy(self.history), self.began
        run.batch.residual_rows, run.batch.jacobian_rows = self.batch.residual_rows, self.batch.jacobian_rows
        return run

    def from_elsewhere(self, start: Array, fixed: NDArray[np.bool_]) -> Theta:
        """Where Levenberg-Marquardt leads from another start, in a few steps, if these parameters (d,) are fixed."""
        quiet = replace(self.options, callback=None, checkpoint=None, max_iter=_FEW)
        fixed = fixed if self.space.fixed is None else fixed | self.space.fixed
        run = type(self)(self.problem, start, self.problem.n, FullBatch(), replace(self.space, fixed=fixed), quiet)
        try:
            while run.iterate() is None:
                pass
        except (Stop, ValueError):  # a limit, or the start has no finite cost
            pass
        self.batch.count_residuals(int(run.batch.residual_rows))
        return run.batch.theta

    def move_off(self, point: Theta) -> None:
        """Continue from another point as if the solve began there."""
        self.termination.begin_anew()
        self.damping.reset()
        self.verified = False
        self.batch.move(point)

    def extrapolated(self, system: QuadraticModel) -> Extrapolation | None:
        """The next step extrapolated from the last two over all rows, unless Newton steps are possible, the problem
        learns curvature itself or the damping is the paper's; and the decrement that counts for its contraction."""
        if self.last is None or self.last[0] is not self.batch.theta or not self.batch.full or self.problem.learns:
            return None
        if self.creep <= CREEP or isinstance(self.damping, Tenfold):
            return None
        found = system.extrapolated(*self.last[1:])
        if found is None:
            return None
        return *found[:3], rules.mixed(system.decrement, self.termination.last_decrement, found[3])

    def iterate(self) -> Status | None:
        """Do one iteration (`problm.solver.loop`)."""
        raise NotImplementedError

    def generator(self) -> np.random.Generator:
        """Random generator of the solve, created on first use."""
        if self.rng is None:
            self.rng = as_generator(self.options.rng)
        return self.rng

    def seconds(self) -> float:
        """Seconds since the start, without those in which functions were compiled."""
        return time.perf_counter() - self.began - (compiling.seconds() - self.compiling_before)

    def record(self, decision: str, cost: float) -> None:
        """Record the iteration, call the callback, and stop at a limit."""
        batch, history = self.batch, self.history
        seconds = self.seconds()
        passes = batch.residual_rows / batch.n, batch.jacobian_rows / batch.n
        history.add(seconds, batch.size, cost * batch.n, self.damping.value, decision, *passes)
        if self.options.keep_path:
            history.path.append(batch.theta)
        if self.options.callback is not None and self._told(seconds, decision, cost):
            raise Stop(Status.STOPPED)
        if len(history) >= self.options.max_iter:
            raise Stop(Status.MAX_ITER)

    def check_time(self) -> None:
        """Stop before a pass over the batch that would not end in time."""
        if self.options.max_time < math.inf:
            seconds = time.perf_counter() - self.began + self.batch.seconds(self.batch.size)
            if seconds > self.options.max_time and self.begun:
                raise Stop(Status.TIME)

    def fell(self) -> bool:
        """Whether the cost fell since the start beyond doubt, as far as rows of the last batch tell."""
        fall, error = self.fall
        return fall > 6.0 * error

    def ended_above_start(self) -> bool:
        """Whether the cost over all residuals is above that of the start, which is computed only if needed, by more
        than the bound of the last step concedes."""
        if self.restarted or not self.batch.full or self.first == self.problem.n:
            return False
        if self.fell() or self.fall == (0.0, 0.0):  # beyond doubt; or no batch led away from the start
            return False
        conceded = 1e-12 + (self.bound or 0.0) ** 2 / self.termination.freedom
        self.batch.residual_rows += self.problem.n
        most = self.problem.cost(self.start) * (1.0 + conceded)
        if self.bound is None:
            return self.system.normal.cost > most
        if self.history.cost[-1] <= most:
            return False
        self.batch.residual_rows += self.problem.n  # the cost after the last step is an estimate
        return self.problem.cost(self.batch.theta) > most

    def _told(self, seconds: float, decision: str, cost: float) -> bool:
        """Call the callback, and return whether it wants to stop."""
        batch = self.batch
        # At least one linearisation, one trial and the certificate on all residuals remain.
        left = 2.0 * batch.seconds(batch.n)
        state = State(
            len(self.history), seconds, batch.size, batch.n, cost * batch.n, self.damping.value, decision,
            batch.theta, left,
        )  # fmt: skip
        assert self.options.callback is not None
        try:
            return bool(self.options.callback(state))
        except StopIteration:
            return True

    def _unobserved(self) -> bool:
        """Whether no callback, limit or checkpoint needs to see single steps."""
        o, space = self.options, self.space
        free = space.fixed is None and space.lower is None and space.upper is None and space.x_scale is None
        free = free and o.callback is None and o.checkpoint is None and o.max_time == math.inf and not o.keep_path
        return free and type(self.damping) is TrustRegion


def _batch_of(problem: Problem, theta: Theta, size: int, policy: Acceptance) -> Batch:
    """Make the first batch, of the problem's own kind if it has one."""
    own: Batch | None = problem.make_batch(theta, size)
    if own is None:
        return Batch(problem, theta, size)
    if not isinstance(policy, (Holdout, FullBatch)):
        raise ValueError(
            f"acceptance: {type(policy).__name__} needs the costs of single rows in one place, which a cluster cannot "
            "provide; use 'holdout', 'hoeffding-serfling', 'empirical-bernstein' or 'full'"
        )
    return own
