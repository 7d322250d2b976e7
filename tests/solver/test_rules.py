"""The rules of the loop, and that both loops use the same ones."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
from numba import njit
from numba.extending import register_jitable

from problm.solver import rules
from problm.solver.compiled import advance

AWKWARD = [0.0, 1.0, -1.0, 0.25, 0.75, 1e-4, 1e-14, 1e-300, 1e300, 2.0, -1e-17]


def arguments(rule, rng):
    """Numbers of all sizes for the parameters of a rule, some of them at its thresholds."""
    for name, parameter in inspect.signature(rule).parameters.items():
        if parameter.annotation == "bool":
            yield bool(rng.integers(2))
        elif name == "blind":
            yield float(rng.integers(4))
        else:
            value = rng.choice(AWKWARD) if rng.uniform() < 0.3 else rng.normal() * 10.0 ** rng.integers(-16, 4)
            yield float(value) if name in ("ratio", "change") else abs(float(value))


@pytest.mark.parametrize("rule", rules.COMPILED, ids=lambda rule: rule.__name__)
def test_a_compiled_rule_gives_the_same_bits(rule):
    assert vars(advance).get(rule.__name__, rule) is rule
    for other in rules.COMPILED:
        register_jitable(error_model="numpy")(other)  # rules call one another
    compiled = njit(error_model="numpy")(rule)
    rng = np.random.default_rng(0)
    for _ in range(2000):
        given = tuple(arguments(rule, rng))
        assert compiled(*given) == rule(*given), given


def test_the_radius_follows_the_ratio():
    assert rules.next_radius(1.0, 0.8, 0.1, 0.9) == 1.6
    assert rules.next_radius(1.0, 0.8, 0.0, 0.5) == 1.6, "an undamped step says that the region is too small"
    assert rules.next_radius(1.0, 0.8, 0.1, 0.5) == 1.0
    assert rules.next_radius(1.0, 0.8, 0.1, 0.25) == 0.5
    assert rules.next_radius(1.0, 0.8, 0.1, -1e9) == 0.1
    assert rules.next_radius(1.0, 0.8, 0.1, math.nan) == 0.1
    assert rules.next_radius(1.0, 0.01, 0.1, math.nan) == pytest.approx(0.01)


def test_the_first_radius_is_relative_to_the_start():
    assert rules.first_radius(100.0, 2.0, 5.0) == 200.0
    assert rules.first_radius(100.0, 0.0, 5.0) == 5.0
    assert rules.first_radius(100.0, 0.0, 0.0) == 1.0


def test_an_extrapolated_step_counts_as_the_rest_that_it_leaves():
    assert rules.mixed(1e-6, 1e-4, 2e-7) == 2e-7
    assert rules.mixed(1e-6, 1e-4, 0.0) == pytest.approx(1e-8), "a tenth of a step whose tenth was left before"
    assert rules.mixed(1e-6, 0.0, 3e-7) == 3e-7, "nothing is known of the last step"


def test_a_step_whose_rest_is_short_may_be_the_last():
    shrinking = 4e-12, 1.0, 4e-10, 1e-6, True  # by a tenth each
    assert not rules.one_step_left(*shrinking, 4e-12)
    assert rules.one_step_left(*shrinking, 1e-13)


def test_a_point_at_zero_has_no_short_steps():
    assert not rules.is_short(0.0, 0.0, 1e-8)
    assert rules.is_short(0.9e-16, 1.0, 1e-8)
    assert not rules.is_short(1.1e-16, 1.0, 1e-8)


def test_a_cost_that_is_not_a_number_is_no_decrease():
    assert not rules.lowers_cost(math.nan)
    assert not rules.lost_in_rounding(math.nan, 0.0, 1.0, 0)
