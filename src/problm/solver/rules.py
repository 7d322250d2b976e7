"""The rules of the trust region, of rounding and of stopping, each written once.

They are plain functions of numbers. The loop calls them (`problm.solver.damping`, `problm.solver.termination`), and
`problm.solver.compiled_loop` compiles them, to the same bits. In all of them costs and decreases are means over the
batch, ``cost`` is that of the present point, ``decrement`` the decrease that the Gauss-Newton step from there promises,
and ``change`` and ``predicted`` are the change of the cost by a step and the decrease that the model promised for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

MOST_TRIALS = 40
"""Steps to try from a point."""
LEAST_RATIO = 1e-4
"""Least ratio of actual to predicted decrease of an accepted step."""
ROUNDING = 1e-14
"""Relative change of a cost that its rounding may hide."""
SMALL_CHANGE = 1e-8
"""Relative change of the cost that counts as next to nothing."""
SHORT_WAY = 1e-2
"""Decrease of the cost, relative to it, that a step promises whose contraction is believed."""
LAST_STEP = 2.5e-6
"""Decrease of the cost, relative to it, by a last step that is taken on its word: so short that the matrix H, of which
covariances are made, is that of the end to a per cent."""
MOST_RATE = 0.3
"""Contraction up to which the last step may be taken on its word."""
CRAWL = 100
"""Steps in a row that gain next to nothing, after which the model is verified: many where rows are few and linear
convergence may take its time (NIST's ENSO needs 30), a tenth of them else."""
MOST_BLIND = 2
"""Steps that may be taken although rounding hides what they gain."""
FLAT = 8e-6
"""What the best step of a tenth of the point's length may still gain, relatively, where the gradient is judged by its
columns. Their cosines alone are small anywhere in an ill-conditioned valley: of 100 random problems with conditions up
to 1e12, 13 ended there with a success that was none."""


# --- Trust region ---------------------------------------------------------------------------------------------------


def first_radius(factor: float, point: float, step: float) -> float:
    """The radius at the start, where the point and the Gauss-Newton step have these lengths."""
    # A start (nearly) at zero says nothing about sizes: there the Gauss-Newton step is tried first.
    radius = factor * point if point > 1e-10 * step else step
    return radius if radius > 0.0 else 1.0


def next_radius(radius: float, length: float, damping: float, ratio: float) -> float:
    """The radius after a step of this length and damping with this ratio of actual to predicted decrease."""
    if not ratio > 0.25:
        # To the minimum of the parabola through slope and change along the step, within a half and a tenth.
        share = 1.0 / (2.0 - ratio) if ratio < 1.0 else 0.1  # not a number: far too long
        return min(max(share, 0.1), 0.5) * min(radius, 10.0 * length)
    if ratio >= 0.75 or damping == 0.0:
        return 2.0 * length
    return radius


def lowers_cost(ratio: float) -> bool:
    """Whether a step with this ratio of actual to predicted decrease may be taken; not one whose ratio is NaN."""
    return ratio > LEAST_RATIO


def model_agrees(change: float, predicted: float, first_try: bool) -> bool:
    """Whether a step gained what the model said, at the first try, so that the damping falls."""
    return first_try and -change > 0.75 * predicted


def is_plain(damping: float, first_try: bool) -> bool:
    """Whether a step shows how fast Gauss-Newton steps shrink, so that the next one can be extrapolated."""
    return first_try and damping == 0.0


# --- Rounding -------------------------------------------------------------------------------------------------------


def lost_in_rounding(change: float, decrement: float, cost: float, blind: float) -> bool:
    """Whether rounding hides what a step gained, so that it may be taken on the model's word: two at most.

    At a minimum that is worth half of the digits of the parameters: the cost has no more to tell, but the gradient has.
    And where a solve ends no longer depends on how sums are rounded.
    """
    return blind < MOST_BLIND and max(abs(change), decrement) <= ROUNDING * cost


def is_hopeless(predicted: float, cost: float, left: float) -> bool:
    """Whether a rejected step is too small for another try to matter."""
    return predicted <= max(1e-3 * left, ROUNDING) * cost


# --- Stopping -------------------------------------------------------------------------------------------------------


def contraction(decrement: float, last: float) -> float:
    """By how much a Gauss-Newton step with the decrement ``last`` shortened the way that is left; 0 if not known."""
    return math.sqrt(decrement / last) if last > 0.0 and decrement > 0.0 else 0.0


def gradient_vanishes(decrement: float, cost: float, gtol: float, last: float) -> bool:
    """Whether the cosine between residuals and tangent space is below gtol.

    Steps that shrink by a factor c each lie 1 / (1 - c) times as far from the minimum as the next one leads.
    """
    least = (1.0 - min(contraction(decrement, last), 0.9)) * gtol
    return decrement <= least * least * cost


def one_step_left(decrement: float, cost: float, last: float, gtol: float, agreed: bool) -> bool:
    """Whether the next Gauss-Newton step leads to the minimum, to half of gtol, by what the last one achieved.

    Believed only where that one was short already: how a long step contracts says nothing about the next.
    """
    rate = contraction(decrement, last)
    short = decrement <= 1e4 * gtol * gtol * cost and decrement <= LAST_STEP * cost and last <= SHORT_WAY * cost
    if not (agreed and short and 0.0 < rate < MOST_RATE):
        return False
    left = rate / (1.0 - rate)
    return left * left * decrement <= 0.25 * gtol * gtol * cost


def hardly_changes(change: float, predicted: float, cost: float, ftol: float) -> bool:
    """Whether a step changed the cost by less than ftol, relatively, as predicted."""
    small = ftol * cost
    return abs(change) <= small and predicted <= small


def is_short(squared_length: float, squared_point: float, xtol: float) -> bool:
    """Whether a step is below xtol relative to the point, both in the scaled parameters."""
    return squared_point > 0.0 and math.sqrt(squared_length / squared_point) <= xtol


def is_flat(reach: float, cost: float, count: int) -> bool:
    """Whether the model promises next to nothing in the neighbourhood: ``reach`` for the best step there."""
    # Also next to nothing in units of the parameters' standard errors: a tenth of one at most.
    return reach <= min(FLAT, 5e-3 / count) * cost


COMPILED: tuple[Callable[..., Any], ...] = (
    next_radius, lowers_cost, model_agrees, is_plain, lost_in_rounding, is_hopeless, contraction, gradient_vanishes,
    one_step_left, hardly_changes, is_short,
)  # fmt: skip
"""The rules that `problm.solver.compiled_loop` compiles."""
