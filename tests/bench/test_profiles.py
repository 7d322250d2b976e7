"""Profiles against cases worked out by hand."""

from __future__ import annotations

import doctest

import bench.harness.profiles
import numpy as np
import pytest
from bench.harness.findings import by_limit, gained, shares_within, spread_of, verdict_on, wins
from bench.harness.profiles import cost_profile, data_profile, performance_profile
from bench.harness.run import SEEDS

INF = np.inf


def test_performance_profile_by_hand():
    # Problem 1: A 1 s, B 3 s. Problem 2: A 4 s, B 2 s. Problem 3: only A. Problem 4: nobody.
    needed = [[1.0, 3.0], [4.0, 2.0], [5.0, INF], [INF, np.nan]]
    rho = performance_profile(needed, [1.0, 1.9, 2.0, 3.0, 1e9])
    np.testing.assert_array_equal(rho[0], [0.5, 0.5, 0.75, 0.75, 0.75])
    np.testing.assert_array_equal(rho[1], [0.25, 0.25, 0.25, 0.5, 0.5])


def test_performance_profile_at_one_counts_who_is_fastest():
    rng = np.random.default_rng(0)
    needed = rng.uniform(1, 2, (50, 4))
    assert performance_profile(needed, [1.0]).sum() == pytest.approx(1.0)


def test_performance_profile_refuses_what_it_cannot_divide():
    with pytest.raises(ValueError, match="positive"):
        performance_profile([[0.0, 1.0]], [1.0])
    with pytest.raises(ValueError, match="shape"):
        performance_profile([1.0, 2.0], [1.0])


def test_data_profile_by_hand():
    share = data_profile([[10.0, 1.0], [20.0, INF], [30.0, 2.0], [np.nan, 2.0]], [1.0, 2.0, 25.0])
    np.testing.assert_array_equal(share[0], [0.0, 0.0, 0.5])
    np.testing.assert_array_equal(share[1], [0.25, 0.75, 0.75])
    with pytest.raises(ValueError, match="shape"):
        data_profile([1.0], [1.0])


def test_cost_profile_by_hand():
    # f* = 1 and 10: ratios 1, 1.5, nan (failed) and 1.1, 4.
    rho = cost_profile([[1.0, 1.5, np.nan], [11.0, 40.0]], [1.0, 10.0], [1.0, 1.2, 2.0, 5.0])
    np.testing.assert_allclose(rho, [0.2, 0.4, 0.6, 0.8])
    with pytest.raises(ValueError, match="2 problems"):
        cost_profile([[1.0], [2.0]], [1.0], [1.0])


def test_costs_equal_up_to_rounding_are_equal():
    assert cost_profile([[1.0 + 1e-12]], [1.0], [1.0])[0] == 1.0


def test_profiles_never_fall():
    rng = np.random.default_rng(1)
    needed = rng.exponential(size=(30, 3)) + 1e-3
    taus = np.geomspace(1, 100, 40)
    assert (np.diff(performance_profile(needed, taus), axis=1) >= 0).all()
    assert (np.diff(data_profile(needed, taus), axis=1) >= 0).all()


def test_examples():
    assert doctest.testmod(bench.harness.profiles).failed == 0


def test_figures_are_computed_for_each_seed_apart():
    def record(method, start, seconds):
        trace = {"seconds": [0.0, seconds], "cost": [9.0, 1.0], "final": 1.0, "status": 1}
        return {"case": "a", "method": method, "start": start, **trace}

    runs = [record("lm", k, 4.0) for k in range(7)] + [record("fast", k, 1.0 + (k % SEEDS == 2)) for k in range(7)]
    assert gained(runs, "fast") == [4.0, 4.0, 2.0, 4.0, 4.0]
    assert spread_of(gained(runs, "fast")) == "4 (2 to 4)"
    assert wins(runs, "fast") == (7, 7)
    assert verdict_on([1.3, 1.2, 1.4]) == "agrees"
    assert verdict_on([1.3, 0.9, 1.4]) == "agrees in part"  # not for every seed
    assert verdict_on([1.0, 1.1], [5.0, 4.0]) == "agrees in part"  # for our default only
    assert verdict_on([], []) == "disagrees"
    assert shares_within(runs, "fast", 1.5) == [1.0, 1.0, 0.0, 1.0, 1.0]


def test_runs_that_end_by_a_limit_are_marked():
    assert [by_limit({"status": s}) for s in (1, 2, 0, -3, -1)] == [False, False, True, True, False]
