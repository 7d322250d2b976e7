"""The rules of the trust region, of rounding and of stopping, each written once.

They are plain functions of numbers. The loop calls them (`problm.solver.damping`, `problm.solver.termination`), and
`problm.solver.compiled.advance` compiles them, with the same bits. In all of them costs and decreases are means over
the batch, ``cost`` is the cost of the present point, ``decrement`` the decrease that the Gauss-Newton step from there
predicts, ``change`` the change of the cost by a step, and ``predicted`` the decrease that the model predicted for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

MOST_TRIALS = 40
"""Largest number of steps to try from a point."""
FACTOR = 100.0
"""First radius of the trust region, relative to the length of the start."""
LEAST_RATIO = 1e-4
"""Least ratio of actual to predicted decrease of an accepted step."""
NEARLY = 0.9999
"""Share of the Gauss-Newton step's decrease that a step promises whose damping makes no difference."""
ROUNDING = 1e-14
"""Relative change of a cost that its rounding may hide."""
SMALL_CHANGE = 1e-8
"""Relative change of the cost that counts as negligible."""
SHORT_WAY = 1e-2
"""Largest predicted relative decrease of the cost by a step whose contraction is trusted."""
LAST_STEP = 2.5e-6
"""Largest relative decrease of the cost by a last step that is taken without evaluation: so short that the matrix H,
which gives the covariance, differs from that at the end by at most one per cent."""
MOST_RATE = 0.5
"""Largest share of a step by which the next one may be as long if that is taken without evaluation."""
CRAWL = 100
"""Number of successive steps with negligible gain after which the model is verified, if rows are few and linear
convergence may take time (NIST's ENSO needs 30); otherwise a tenth of it."""
MOST_BLIND = 2
"""Largest number of steps that are taken although rounding hides their gain."""
FLAT = 8e-6
"""Largest relative gain of the best step of a tenth of the point's length, if the gradient is judged by the columns of
the Jacobian. Their cosines alone are small anywhere in an ill-conditioned valley: 13 of 100 random problems with
condition numbers up to 1e12 ended there with a false success."""


# --- Trust region ---------------------------------------------------------------------------------------------------


def first_radius(factor: float, point: float, step: float) -> float:
    """The first radius, from the lengths of the start and of the Gauss-Newton step."""
    # A start (nearly) at zero says nothing about sizes: the Gauss-Newton step is then tried first.
    radius = factor * point if point > 1e-10 * step else step
    return radius if radius > 0.0 else 1.0


def next_radius(radius: float, length: float, damping: float, ratio: float) -> float:
    """The radius after a step of this length and damping with this ratio of actual to predicted decrease."""
    if not ratio > 0.25:
        # Shrink to the minimum of the parabola through slope and change along the step, between a half and a tenth.
        share = 1.0 / (2.0 - ratio) if ratio < 1.0 else 0.1  # NaN: far too long
        return min(max(share, 0.1), 0.5) * min(radius, 10.0 * length)
    if ratio >= 0.75 or damping == 0.0:
        return 2.0 * length
    return radius


def lowers_cost(ratio: float) -> bool:
    """Whether a step with this ratio of actual to predicted decrease may be taken; False for NaN."""
    return ratio > LEAST_RATIO


def model_agrees(change: float, predicted: float, first_try: bool) -> bool:
    """Whether a step gained what the model predicted at the first try, so that the damping falls."""
    return first_try and -change > 0.75 * predicted


def is_plain(damping: float, predicted: float, decrement: float, first_try: bool) -> bool:
    """Whether a step shows how fast Gauss-Newton steps shrink, so that the next one can be extrapolated."""
    return first_try and (damping == 0.0 or predicted >= NEARLY * decrement)


# --- Rounding -------------------------------------------------------------------------------------------------------


def lost_in_rounding(change: float, decrement: float, cost: float, blind: float) -> bool:
    """Whether rounding hides the gain of a step, so that it may be taken because the model predicts it: two at most.

    At a minimum this gives half of the digits of the parameters: the cost shows no more differences, but the gradient
    does. The end of a solve also no longer depends on how sums are rounded.
    """
    return blind < MOST_BLIND and max(abs(change), decrement) <= ROUNDING * cost


def is_hopeless(predicted: float, cost: float, left: float) -> bool:
    """Whether a rejected step is too small for another try to matter."""
    return predicted <= max(1e-3 * left, ROUNDING) * cost


# --- Stopping -------------------------------------------------------------------------------------------------------


def contraction(decrement: float, last: float) -> float:
    """Factor by which a Gauss-Newton step with the decrement ``last`` reduced the remaining distance; 0 if unknown."""
    return math.sqrt(decrement / last) if last > 0.0 and decrement > 0.0 else 0.0


def creeps(most: float, decrement: float, last: float, cost: float) -> bool:
    """Whether short Gauss-Newton steps leave more than this share of the way, so that Newton steps take less time."""
    return last <= SHORT_WAY * cost and contraction(decrement, last) > most


def gradient_vanishes(decrement: float, cost: float, gtol: float, last: float) -> bool:
    """Whether the cosine between residuals and tangent space is below gtol.

    If each step shrinks by a factor c, the minimum is 1 / (1 - c) times as far away as the next step leads.
    """
    least = (1.0 - min(contraction(decrement, last), 0.9)) * gtol
    return decrement <= least * least * cost


def is_last_size(decrement: float, cost: float, gtol: float) -> bool:
    """Whether the next Gauss-Newton step is so short that it may be the last, if little is left after it."""
    return decrement <= min(1e4 * gtol * gtol, LAST_STEP) * cost


def left_by_last_step(decrement: float, last: float) -> float:
    """Share of the next Gauss-Newton step that remains after it, judging by the contraction of the last one.

    That contraction is no bound: linear convergence slows down as fast directions die out (the iteration is
    self-adjoint in the metric of H). Its square root was exceeded in 2 of 117 fits, with 3e-4 and 7e-4 standard errors
    left; the contraction itself in 25, with up to 0.016 left.
    """
    rate = math.sqrt(contraction(decrement, last))
    return rate / (1.0 - rate) if 0.0 < rate < MOST_RATE else math.inf


def mixed(decrement: float, last: float, rest: float) -> float:
    """The decrement whose contraction an extrapolated step leaves: of the ``rest`` of the Gauss-Newton step that the
    extrapolation could not explain, but not less than linear convergence can tell."""
    rate = contraction(decrement, last)
    return max(rest, rate * rate * decrement)


def one_step_left(decrement: float, cost: float, last: float, gtol: float, agreed: bool, rest: float) -> bool:
    """Whether the next step leads to the minimum within half of gtol, judging by the last one; ``rest`` is the
    decrement that counts for it, of a Gauss-Newton step its own (`mixed`).

    Only trusted if the last step was already short: the contraction of a long step says nothing about the next.
    """
    if not (agreed and last <= SHORT_WAY * cost and is_last_size(decrement, cost, gtol)):
        return False
    left = left_by_last_step(decrement, last)
    return left * left * rest <= 0.25 * gtol * gtol * cost


def hardly_changes(change: float, predicted: float, cost: float, ftol: float) -> bool:
    """Whether the relative change of the cost by a step is below ftol, as predicted."""
    small = ftol * cost
    return abs(change) <= small and predicted <= small


def is_short(squared_length: float, squared_point: float, xtol: float) -> bool:
    """Whether a step is below xtol relative to the point, both in the scaled parameters."""
    return squared_point > 0.0 and math.sqrt(squared_length / squared_point) <= xtol


def is_flat(reach: float, cost: float, count: int) -> bool:
    """Whether the model predicts almost no decrease in the neighbourhood; ``reach`` is that of the best step there."""
    # Also almost nothing in units of the standard errors of the parameters: at most a tenth of one.
    return reach <= min(FLAT, 5e-3 / count) * cost


COMPILED: tuple[Callable[..., Any], ...] = (
    first_radius, next_radius, lowers_cost, model_agrees, is_plain, lost_in_rounding, is_hopeless, contraction,
    creeps, gradient_vanishes, is_last_size, left_by_last_step, mixed, one_step_left, hardly_changes, is_short,
)  # fmt: skip
"""The rules that `problm.solver.compiled.advance` compiles."""
