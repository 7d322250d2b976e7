"""Ridges and plateaus that far starts lead to: what still falls there is no success, and nothing is certified."""

from __future__ import annotations

import numpy as np
import pytest

from problm.solver.result import Status
from problm.solver.termination import Termination
from tests.helpers import far_problems, zoo
from tests.helpers.polish import polished


def solved(seed):
    """A problem and what its first try leads to: with a callback there is no second one."""
    with np.errstate(all="ignore"):
        fit = far_problems.make(seed)
        return fit, zoo.problm(fit, callback=lambda state: None)


def is_honest(fit, outcome):
    """Neither a success nor certified, or within the tolerance of where SciPy goes from there."""
    claimed = outcome.success or outcome.result.certified
    with np.errstate(all="ignore"):
        return not claimed or polished(fit, outcome.x).distance <= 0.05


def test_each_way_to_infinity_is_followed_by_itself():
    """A decay with Cauchy's loss becomes a straight line; from one start far out the fit fell into a lower valley that
    leads nowhere, which hid that the other one falls on."""
    _, outcome = solved(17)
    assert outcome.result.status is Status.RUNS_AWAY
    assert not outcome.result.certified


@pytest.mark.parametrize("seed", [30, 101])
def test_gains_that_grow_are_no_end(seed):
    """Far out on a robust loss the cost bends downwards: steps of next to nothing gain more and more."""
    assert is_honest(*solved(seed))


def test_steps_that_gain_more_and_more_are_not_at_rest():
    ended = Termination(0.0, 0.0, 1e-8, 100, np.inf, True, 0.0, small_changes=100)
    falling = 1.0 - np.cumsum(1e-10 * 1.02 ** np.arange(100.0))
    ending = 1.0 - np.cumsum(1e-10 * 0.9 ** np.arange(100.0))
    assert not ended.at_rest(falling.tolist())
    assert ended.at_rest(ending.tolist())


@pytest.mark.parametrize("seed", [10036, 20671])
def test_steps_of_differences_follow_a_parameter_that_shrinks(seed):
    """The scale of a stretched exponential ran to 1e-10 of its start, and was moved by steps larger than itself: its
    slope vanished, and the point was certified 0.2 standard errors above what lay before it. With the right steps the
    first one runs into the limit of iterations, where the certificate of a point long left behind must not count."""
    fit, outcome = solved(seed)
    assert is_honest(fit, outcome)
    assert outcome.success or not outcome.result.certified


def test_a_peak_beyond_the_data_does_not_become_a_continent():
    """From a plateau the nearest point that gains counts, not a peak as wide as 1e7, where nothing depends on it."""
    fit, outcome = solved(294)
    assert is_honest(fit, outcome)
    assert outcome.cost <= 2.6 < 4.4  # a constant


def test_a_matrix_that_rounding_makes_indefinite_is_no_error():
    """A peak as wide as its background: the squared length of a Newton step was negative."""
    _, outcome = solved(50019)
    assert outcome.error is None
