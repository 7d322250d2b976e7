r"""Convergence: the distance to the minimum over all residuals, in standard errors.

At a point with the mean cost f, gradient g and Gauss-Newton matrix H over all residuals, the minimum of the quadratic
model lies one Gauss-Newton step away and predicts the decrease ``dec = g^T H^-1 g / 2``. With the variance of the
residuals estimated by ``2 N f / dof``, that step is

    distance = sqrt(dof * dec / f)

standard errors of the parameters long (Mahalanobis). It does not change when parameters are shifted, scaled or mixed,
and ``sqrt(dec / f)`` is the cosine between the residuals and the tangent space. A solve has converged when

gradient
    The distance is below `TOLERANCE` if rows are many. If they are few, passes are cheap, and the cosine must be below
    `DIGITS`, so that the parameters have all their digits. For a function, few are as many as are all used from the
    start: accuracy changes where the method does (`Problem.digits_up_to`). If gtol is given, the cosine must be below
    gtol. If steps shrink slowly, by a factor c each, the minimum is 1 / (1 - c) times as far away.
bound
    The step from here is the last one, because a sample of the rows bounds what it leaves (`problm.solver.short_end`).
    Where no sample can be evaluated: with the square root c of the contraction between the last two linearisations over
    all residuals, the distance after the step, ``c / (1 - c) distance``, is below half of `TOLERANCE` (few rows: its
    cosine is below half of `last_digits`, if such a certificate is asked for). The step is taken without another pass.

If steps keep gaining next to nothing, or no step lowers the cost, the model and its distance may be wrong (a Jacobian
that is singular at the minimum, rounding, a wrong derivative). `problm.solver.verification` then measures slope and
curvature by evaluating the cost. Nothing else counts as success, unless the user sets ftol or xtol.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..linalg.quadratic import QuadraticModel
from . import rules
from .options import Options
from .problem import Problem
from .result import Status

TOLERANCE = 0.01
"""Distance to the minimum, in standard errors, at which a solve of many rows ends."""
DIGITS = 1e-8
"""Cosine at which a solve of few rows ends."""
LAST_DIGITS = 4e-7
"""Twice the cosine that the bound of a last step over few rows may leave. The bound is three times what is left, or
more: over 9,670 steps of twelve curves (50 to 1,000 points) at most 7e-8 was left, as much as by errors of forward
differences. With 1e-7 instead such fits take 4 % more calls, and Nelson of NIST's, by differences, keeps 5.9 digits,
not 5.4."""
MANY_POINTS, MANY_DIGITS = 5_000, 1e-5
"""Number of rows from which the time of a fit is that of its calls of the function, and the same limit from there on:
the parameters are then still closer to the minimum than MINPACK's, and some 1e-5 standard errors away."""


def last_digits(n: int) -> float:
    """Twice the cosine that the bound of a last step over n rows, which are few, may leave."""
    return LAST_DIGITS if n < MANY_POINTS else MANY_DIGITS


@dataclass(slots=True)
class Termination:
    """The tolerances, and memory of the last steps."""

    ftol: float
    xtol: float
    gtol: float
    """Largest cosine between residuals and tangent space at convergence."""
    freedom: int
    """Degrees of freedom: residuals minus parameters."""
    ceiling: float
    """Mean cost when every residual is beyond the scale of a bounded loss."""
    digits: bool
    """Whether to continue until the parameters have all their digits."""
    bounded: float
    """Twice the cosine that a last step may leave, by its bound, if it is taken without another pass; 0: never."""
    small_changes: int = 0
    """Number of successive steps that hardly changed the cost, as predicted."""
    small_step: bool = False
    """Whether the last step was below xtol."""
    blind: int = 0
    """Number of steps taken although rounding hid their gain."""
    model_agreed: bool = True
    """Whether the last step gained what the model predicted, so that the damping falls."""
    last_decrement: float = 0.0
    """Decrement over all rows before the last step, if that was a Gauss-Newton step, or what counts as such for an
    extrapolated one (`problm.solver.rules.mixed`); else 0."""

    @classmethod
    def of(cls, options: Options, problem: Problem) -> Termination:
        few = problem.n <= problem.digits_up_to
        freedom = max(problem.n * problem.components - problem.dim, 1)
        gtol = options.gtol
        if gtol is None:
            gtol = DIGITS if few else TOLERANCE / math.sqrt(freedom)
        certificate = options.certificate or ("gradient" if few else "bound")
        last = last_digits(problem.n) if few else gtol
        bounded = 0.0 if certificate == "gradient" or options.gtol is not None else last
        return cls(options.ftol, options.xtol, gtol, freedom, problem.cost_bound, few, bounded)

    def stepped(
        self, model: QuadraticModel, change: float, predicted: float, squared_length: float, tries: int, rest: float
    ) -> None:
        """Record a step: change of the mean cost, predicted decrease, squared scaled length, number of the try, and the
        decrement that counts for its contraction, if it was undamped and over all rows; else 0."""
        self.model_agreed = rules.model_agrees(change, predicted, tries == 1)
        small = rules.hardly_changes(change, predicted, model.cost, self.ftol or rules.SMALL_CHANGE)
        self.small_changes = self.small_changes + 1 if small else 0
        self.small_step = rules.is_short(squared_length, model.point_squared(), self.xtol)
        self.last_decrement = rest

    def begin_anew(self) -> None:
        """Forget the last step after the batch grew or the derivatives improved."""
        self.small_changes, self.small_step, self.blind = 0, False, 0
        self.model_agreed, self.last_decrement = True, 0.0

    def distance(self, model: QuadraticModel) -> float:
        """Distance to the minimum of the model, in standard errors."""
        if not model.cost > 0.0:
            return 0.0
        return math.sqrt(self.freedom * max(model.decrement, 0.0) / model.cost)

    def converged(self, model: QuadraticModel) -> Status | None:
        """The status to stop with at this point, or None to continue."""
        if rules.gradient_vanishes(model.decrement, model.cost, self.gtol, self.last_decrement):
            # The gradient also vanishes where every residual is beyond the scale of a bounded loss.
            return Status.NOT_DETERMINED if model.cost >= (1.0 - 1e-9) * self.ceiling else Status.GRADIENT
        if self.small_changes and model.decrement <= self.ftol * model.cost:
            return Status.COST
        if self.small_step and self.next_step_is_short(model):
            return Status.STEP
        return None

    def one_step_left(self, model: QuadraticModel, rest: float) -> bool:
        """Whether the next step leads to the minimum within half of the tolerance.

        ``rest`` is the decrement that counts for its contraction.
        """
        return self.bounded > 0.0 and rules.one_step_left(
            model.decrement, model.cost, self.last_decrement, self.bounded, self.model_agreed, rest
        )

    def one_short_step(self, model: QuadraticModel) -> bool:
        """Whether the Gauss-Newton step from here is so short that it may be the last."""
        return self.model_agreed and rules.is_last_size(model.decrement, model.cost, self.bounded)

    def left_after(self, model: QuadraticModel, rest: float) -> float:
        """Distance to the minimum after the next step, in standard errors, from the contraction.

        Twice what that says: if rows are few, the next contraction may be the slower one.
        """
        share = rules.left_by_last_step(model.decrement, self.last_decrement)
        least = 0.5 * LAST_DIGITS * math.sqrt(self.freedom) if self.digits else 0.0  # contraction ends at rounding
        return 2.0 * max(share * math.sqrt(self.freedom * rest / model.cost), least)

    def crawls(self) -> bool:
        """Whether steps have gained next to nothing for so long that the model should be verified."""
        return self.small_changes >= (rules.CRAWL if self.digits else rules.CRAWL // 10)

    def at_rest(self, costs: list[float]) -> bool:
        """Whether these steps together gained less than the tolerance, so that as many more would, too: in a curved
        valley single steps gain almost nothing, but many together do. Not where later steps gain more than earlier
        ones: there the cost bends downwards, as far from the minimum of a robust loss. ``costs`` are the costs after
        each step."""
        last = costs[-min(self.small_changes, len(costs)) :]
        half = (len(last) - 1) // 2
        earlier, later = last[-1 - 2 * half] - last[-1 - half], last[-1 - half] - last[-1]
        if later - earlier > rules.ROUNDING * last[-1]:
            return False
        return self.freedom * (last[0] - last[-1]) <= TOLERANCE**2 * last[-1]

    def close(self, model: QuadraticModel) -> bool:
        """Whether the point is within `TOLERANCE` according to the model, whatever was asked for."""
        return self.distance(model) <= TOLERANCE

    def next_step_is_short(self, model: QuadraticModel) -> bool:
        """Whether the Gauss-Newton step from here is below xtol relative to the point."""
        return rules.is_short(model.step_squared(), model.point_squared(), self.xtol)

    @property
    def left(self) -> float:
        """Relative decrease of the cost below which the compiled loop leaves the decision to the Python loop."""
        return DIGITS**2 if self.digits else rules.SMALL_CHANGE

    def hopeless(self, predicted: float, cost: float) -> bool:
        """Whether a rejected step is too small for another try to matter."""
        return rules.is_hopeless(predicted, cost, self.left)

    def flat(self, model: QuadraticModel) -> bool:
        """Whether the model predicts almost no decrease in the neighbourhood."""
        return rules.is_flat(model.within_reach(), model.cost, model.count)

    def lost_in_rounding(self, model: QuadraticModel, change: float) -> bool:
        """Whether rounding hides the gain of a step; the step is then counted as taken blindly."""
        if not rules.lost_in_rounding(change, model.decrement, model.cost, self.blind):
            return False
        self.blind += 1
        return True
