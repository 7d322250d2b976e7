"""Convergence, declared on all residuals only.

Convergence is declared on all residuals only, from a linearisation *at the returned point*, so that the result
carries a certificate. Tests, on the mean quadratic model (`problm.linalg.quadratic.QuadraticModel`):

gradient
    the cosine between the residual vector and the tangent space, ``sqrt(decrement / cost)``, is below gtol, or the
    residuals themselves are rounding errors;
cost
    the last step changed the cost by less than ftol, relatively, as predicted, *and* the Gauss-Newton step from
    here would too, or is not to be believed (see below);
step
    the last step was below xtol relative to the point, *and* the Gauss-Newton step from here is too.

The second half of the last two keeps heavily damped steps in a flat valley from being taken for convergence. In such a
valley the model is good, steps succeed and the damping falls. At a minimum where the Jacobian is singular (Freudenstein
and Roth, Chebyquad) the Gauss-Newton step promises a decrease that does not come, the damping stays, and the gradient
is what remains to judge by: the largest cosine between the residuals and a column of the Jacobian, as MINPACK's gtol.
On a smaller batch the same tests only say that this batch is exhausted.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..linalg.quadratic import QuadraticModel
from . import rules
from .problem import FEW
from .result import Status


@dataclass(slots=True)
class Termination:
    ftol: float
    xtol: float
    gtol: float
    left: float
    """What a Gauss-Newton step may still gain, relatively, when the cost test stops."""
    crawl: int = 10
    """Steps in a row that change the cost by less than ftol, after which a flat neighbourhood is enough: more of them
    where rows are few and linear convergence may take its time (NIST's ENSO needs 30)."""
    zero: float = 0.0
    """Mean cost that is rounding: residuals 1e-15 of those at the start."""
    small_changes: int = 0
    """Steps in a row that changed the cost by less than ftol, as predicted."""
    small_step: bool = False
    """Whether the last step was below xtol."""
    blind: int = 0
    """Steps that were taken although rounding hid what they gained."""
    model_agreed: bool = True
    """Whether the last step gained what the model said, so that the damping falls."""

    @classmethod
    def of(cls, ftol: float, xtol: float, gtol: float | None, n: int) -> Termination:
        if n <= FEW:  # a pass costs next to nothing: go on until the parameters have their digits
            return cls(ftol, xtol, 1e-8 if gtol is None else gtol, 1e-8 * ftol, 100)
        return cls(ftol, xtol, 1e-5 if gtol is None else gtol, ftol)

    def stepped(
        self, system: QuadraticModel, change: float, predicted: float, squared_length: float, tries: int
    ) -> None:
        """A step was taken at some try: change of the mean cost, predicted decrease, squared scaled length."""
        self.model_agreed = rules.model_agrees(change, predicted, tries == 1)
        small = rules.hardly_changes(change, predicted, system.cost, self.ftol)
        self.small_changes = self.small_changes + 1 if small else 0
        self.small_step = rules.is_short(squared_length, system.point_squared(), self.xtol)

    def begin_anew(self) -> None:
        """The batch grew, or the derivatives got better: what the last step showed no longer counts."""
        self.small_changes, self.small_step, self.blind = 0, False, 0
        self.model_agreed = True

    def converged(self, system: QuadraticModel) -> Status | None:
        """The status to stop with at this point, or None to go on."""
        if rules.gradient_vanishes(system.decrement, system.cost, self.gtol, self.zero):
            return Status.GRADIENT
        if not self.model_agreed and system.column_cosine() <= min(self.gtol, 1e-8) and self.flat(system):
            return Status.GRADIENT
        if self.small_changes and (
            system.decrement <= self.left * system.cost
            or (not self.model_agreed and system.column_cosine() <= 1e-5 * self.ftol**0.5 and self.flat(system))
            or (self.small_changes >= self.crawl and self.flat(system))
        ):
            return Status.COST
        if self.small_step and self.next_step_is_short(system):
            return Status.STEP
        return None

    def stalled(self, system: QuadraticModel) -> Status:
        """The status when no step goes down: rounding at a minimum, or a failure."""
        if system.decrement <= self.ftol * system.cost or (
            system.column_cosine() <= 0.1 * self.ftol**0.5 and self.flat(system)
        ):
            return Status.COST
        return Status.STEP if self.next_step_is_short(system) else Status.STALLED

    def next_step_is_short(self, system: QuadraticModel) -> bool:
        """Whether the Gauss-Newton step from here is below xtol relative to the point."""
        return rules.is_short(system.step_squared(), system.point_squared(), self.xtol)

    def flat(self, system: QuadraticModel) -> bool:
        """Whether the model promises next to nothing in the neighbourhood."""
        return rules.is_flat(system.within_reach(), system.cost, system.count)

    def lost_in_rounding(self, system: QuadraticModel, change: float) -> bool:
        """Whether rounding hides what a step gained; it is then counted as taken blindly."""
        if not rules.lost_in_rounding(change, system.decrement, system.cost, self.blind):
            return False
        self.blind += 1
        return True

    def hopeless(self, predicted: float, cost: float) -> bool:
        """Whether a rejected step is too small for another try to matter."""
        return rules.is_hopeless(predicted, cost, self.left)
