"""When all residuals agree that the point is a minimum.

Convergence is declared on all residuals only, from a linearisation *at the returned point*, so that the result
carries a certificate. Tests, on the mean quadratic model (`problm.linalg.quadratic.System`):

gradient
    the cosine between the residual vector and the tangent space, ``sqrt(decrement / cost)``, is below gtol, or the
    residuals themselves are rounding errors;
cost
    the last step changed the cost by less than ftol, relatively, as predicted, *and* the Gauss-Newton step from
    here would too, or is not to be believed (see below);
step
    the last step was below xtol relative to the point, *and* the Gauss-Newton step from here is too.

The second half of the last two keeps heavily damped steps in a flat valley from passing for convergence. In such a
valley the model is good, steps succeed and the damping falls. At a minimum where the Jacobian is singular (Freudenstein
and Roth, Chebyquad) the Gauss-Newton step promises a decrease that does not come, the damping stays, and the gradient
is what remains to judge by: the largest cosine between the residuals and a column of the Jacobian, as MINPACK's gtol.
On a smaller batch the same tests only say that this batch is exhausted.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..linalg.quadratic import System
from .problem import FEW
from .result import Status

_FLAT = 8e-6
"""What the best step of a tenth of the point's length may still gain, relatively, where the gradient is judged by its
columns. Their cosines alone are small anywhere in an ill-conditioned valley: of 100 random problems with conditions up
to 1e12, 13 ended there with a success that was none."""

ROUNDING = 1e-14
"""Relative change of a cost that its rounding may hide."""
MOST_BLIND = 2
"""Steps that may be taken all the same."""


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
    believed: bool = True
    """Whether the last step gained what the model said, so that the damping falls."""

    @classmethod
    def of(cls, ftol: float, xtol: float, gtol: float | None, n: int) -> Termination:
        if n <= FEW:  # a pass costs next to nothing: go on until the parameters have their digits
            return cls(ftol, xtol, 1e-8 if gtol is None else gtol, 1e-8 * ftol, 100)
        return cls(ftol, xtol, 1e-5 if gtol is None else gtol, ftol)

    def stepped(self, system: System, change: float, predicted: float, squared_length: float, tries: int) -> None:
        """A step was taken at some try: change of the mean cost, predicted decrease, squared scaled length."""
        self.believed = tries == 1 and -change > 0.75 * predicted
        small = self.ftol * system.cost
        self.small_changes = self.small_changes + 1 if abs(change) <= small and predicted <= small else 0
        self.small_step = system.relative(squared_length) <= self.xtol

    def grown(self) -> None:
        """The batch grew, or the derivatives got better: what the last step showed no longer counts."""
        self.small_changes, self.small_step, self.blind = 0, False, 0
        self.believed = True

    def converged(self, system: System) -> Status | None:
        """The status to stop with at this point, or None to go on."""
        if system.decrement <= self.gtol**2 * system.cost or system.cost <= self.zero:
            return Status.GRADIENT
        if not self.believed and system.column_cosine() <= min(self.gtol, 1e-8) and self.flat(system):
            return Status.GRADIENT
        if self.small_changes and (
            system.decrement <= self.left * system.cost
            or (not self.believed and system.column_cosine() <= 1e-5 * self.ftol**0.5 and self.flat(system))
            or (self.small_changes >= self.crawl and self.flat(system))
        ):
            return Status.COST
        if self.small_step and system.relative_step() <= self.xtol:
            return Status.STEP
        return None

    def stalled(self, system: System) -> Status:
        """The status when no step goes down: rounding at a minimum, or a failure."""
        if system.decrement <= self.ftol * system.cost or (
            system.column_cosine() <= 0.1 * self.ftol**0.5 and self.flat(system)
        ):
            return Status.COST
        if system.relative_step() <= self.xtol:
            return Status.STEP
        return Status.STALLED

    def flat(self, system: System) -> bool:
        """Whether the model promises next to nothing in the neighbourhood."""
        # Also next to nothing in units of the parameters' standard errors: a tenth of one at most.
        return system.within_reach() <= min(_FLAT, 5e-3 / system.count) * system.cost

    def hidden(self, system: System, change: float) -> bool:
        """Whether rounding hides what a step gained, so that it may be taken on the model's word: two at most.

        At a minimum that is worth half of the digits of the parameters: the cost has no more to tell, but the gradient
        has. And where a solve ends no longer depends on how sums are rounded.
        """
        if self.blind == MOST_BLIND or not max(abs(change), system.decrement) <= ROUNDING * system.cost:
            return False
        self.blind += 1
        return True

    def hopeless(self, predicted: float, cost: float) -> bool:
        """Whether a rejected step is too small for another try to matter."""
        return predicted <= max(1e-3 * self.left, ROUNDING) * cost
