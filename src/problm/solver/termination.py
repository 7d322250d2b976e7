r"""When a point is the minimum over all residuals: the distance to it, in standard errors.

At a point with the mean cost f, gradient g and Gauss-Newton matrix H over all residuals, the minimum of the quadratic
model lies one Gauss-Newton step away and promises the decrease ``dec = g^T H^-1 g / 2``. With the variance of the
residuals estimated by ``2 N f / dof``, that step is

    distance = sqrt(dof * dec / f)

standard errors of the parameters long (Mahalanobis). It does not change when parameters are shifted, scaled or mixed,
and ``sqrt(dec / f)`` is the cosine between the residuals and the tangent space. A solve has converged when

gradient
    the distance is below `TOLERANCE` where rows are many, the cosine below `DIGITS` where they are few and passes are
    cheap, so that the parameters have all their digits (or the cosine is below gtol, if that is given). Steps that
    shrink slowly, by a factor c each, lie 1 / (1 - c) times as far from the end.
bound
    the step from here is the last one: the contraction c that the last two linearisations over everything show puts
    what is left, ``c / (1 - c) distance``, below half of `TOLERANCE`. The step is then taken without another pass.

Where steps keep gaining next to nothing, or none goes down, the model may be wrong (a Jacobian that is singular at the
minimum, rounding, a wrong derivative), and its distance with it. `problm.solver.verification` then measures slope and
curvature by the cost itself. Nothing else is a success, unless the user asks for it by ftol or xtol.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..linalg.quadratic import QuadraticModel
from . import rules
from .options import Options
from .problem import FEW, Problem
from .result import Status

TOLERANCE = 0.01
"""Distance to the minimum, in standard errors, at which a solve ends where rows are many."""
DIGITS = 1e-8
"""Cosine at which it ends where rows are few."""


@dataclass(slots=True)
class Termination:
    """What the user asked for, and memory of the last steps."""

    ftol: float
    xtol: float
    gtol: float
    """Cosine between residuals and tangent space that is small enough."""
    freedom: int
    """Degrees of freedom: residuals less parameters."""
    ceiling: float
    """Mean cost when every residual is beyond the scale of a bounded loss."""
    digits: bool
    """Whether to go on until the parameters have their digits."""
    bounded: bool
    """Whether the last step may be taken on the strength of its bound."""
    small_changes: int = 0
    """Steps in a row that hardly changed the cost, as predicted."""
    small_step: bool = False
    """Whether the last step was below xtol."""
    blind: int = 0
    """Steps that were taken although rounding hid what they gained."""
    model_agreed: bool = True
    """Whether the last step gained what the model said, so that the damping falls."""
    last_decrement: float = 0.0
    """Decrement over everything before the last step, if that was a Gauss-Newton step; else 0."""

    @classmethod
    def of(cls, options: Options, problem: Problem) -> Termination:
        few = problem.n <= FEW
        freedom = max(problem.n * problem.components - problem.dim, 1)
        gtol = options.gtol
        if gtol is None:
            gtol = DIGITS if few else TOLERANCE / math.sqrt(freedom)
        bounded = options.certificate == "bound" and options.gtol is None and not few
        return cls(options.ftol, options.xtol, gtol, freedom, problem.cost_bound, few, bounded)

    def stepped(
        self, model: QuadraticModel, change: float, predicted: float, squared_length: float, tries: int, plain: bool
    ) -> None:
        """A step was taken at some try: change of the mean cost, predicted decrease, squared scaled length, and whether
        it was the Gauss-Newton step over everything."""
        self.model_agreed = rules.model_agrees(change, predicted, tries == 1)
        small = rules.hardly_changes(change, predicted, model.cost, self.ftol or rules.SMALL_CHANGE)
        self.small_changes = self.small_changes + 1 if small else 0
        self.small_step = rules.is_short(squared_length, model.point_squared(), self.xtol)
        self.last_decrement = model.decrement if plain else 0.0

    def begin_anew(self) -> None:
        """The batch grew, or the derivatives got better: what the last step showed no longer counts."""
        self.small_changes, self.small_step, self.blind = 0, False, 0
        self.model_agreed, self.last_decrement = True, 0.0

    def distance(self, model: QuadraticModel) -> float:
        """Distance to the minimum of the model, in standard errors."""
        if not model.cost > 0.0:
            return 0.0
        return math.sqrt(self.freedom * max(model.decrement, 0.0) / model.cost)

    def converged(self, model: QuadraticModel) -> Status | None:
        """The status to stop with at this point, or None to go on."""
        if rules.gradient_vanishes(model.decrement, model.cost, self.gtol, self.last_decrement):
            # It vanishes, too, where every residual is beyond the scale of a bounded loss.
            return Status.NOT_DETERMINED if model.cost >= (1.0 - 1e-9) * self.ceiling else Status.GRADIENT
        if self.small_changes and model.decrement <= self.ftol * model.cost:
            return Status.COST
        if self.small_step and self.next_step_is_short(model):
            return Status.STEP
        return None

    def one_step_left(self, model: QuadraticModel) -> bool:
        """Whether the Gauss-Newton step from here leads to the minimum, to half of the tolerance."""
        return self.bounded and rules.one_step_left(
            model.decrement, model.cost, self.last_decrement, self.gtol, self.model_agreed
        )

    def left_after(self, model: QuadraticModel) -> float:
        """Distance to the minimum after the Gauss-Newton step from here, in standard errors, by the contraction."""
        rate = rules.contraction(model.decrement, self.last_decrement)
        return rate / (1.0 - rate) * self.distance(model)

    def crawls(self) -> bool:
        """Whether steps have gained next to nothing for so long that the model should be verified."""
        return self.small_changes >= (rules.CRAWL if self.digits else rules.CRAWL // 10)

    def close(self, model: QuadraticModel) -> bool:
        """Whether the model says that the point is within the tolerance, however many digits were asked for."""
        return self.distance(model) <= TOLERANCE

    def next_step_is_short(self, model: QuadraticModel) -> bool:
        """Whether the Gauss-Newton step from here is below xtol relative to the point."""
        return rules.is_short(model.step_squared(), model.point_squared(), self.xtol)

    @property
    def left(self) -> float:
        """Decrease of the cost, relative to it, that the compiled loop leaves to the loop to judge."""
        return DIGITS**2 if self.digits else rules.SMALL_CHANGE

    def hopeless(self, predicted: float, cost: float) -> bool:
        """Whether a rejected step is too small for another try to matter."""
        return rules.is_hopeless(predicted, cost, self.left)

    def flat(self, model: QuadraticModel) -> bool:
        """Whether the model promises next to nothing in the neighbourhood."""
        return rules.is_flat(model.within_reach(), model.cost, model.count)

    def lost_in_rounding(self, model: QuadraticModel, change: float) -> bool:
        """Whether rounding hides what a step gained; it is then counted as taken blindly."""
        if not rules.lost_in_rounding(change, model.decrement, model.cost, self.blind):
            return False
        self.blind += 1
        return True
