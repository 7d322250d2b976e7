"""Where few rows went astray from a poor start, a second try with short first steps finds the minimum."""

from __future__ import annotations

import numpy as np
import pytest

import problm
from problm.solver.result import Status


def lorentzians(t, x, y):
    value = t[-1] + 0.0 * x
    for a, m, s in np.reshape(t[:-1], (-1, 3)):
        value = value + a / (1 + ((x - m) / s) ** 2)
    return value - y


def made(seed):
    """One to three peaks with heights and widths >= 0, and a start that is off by a width or more."""
    rng = np.random.default_rng([123, 0, seed])
    k, n = int(rng.integers(1, 4)), int(rng.choice([60, 200, 800]))
    truth = [v for _ in range(k) for v in (rng.uniform(0.5, 3), rng.uniform(1, 9), rng.uniform(0.2, 1))]
    truth.append(rng.uniform(0, 1))
    start = [
        v for i in range(k)
        for v in (rng.uniform(0.2, 3), truth[3 * i + 1] + rng.normal() * 1.2, rng.uniform(0.15, 2))
    ]  # fmt: skip
    x = np.sort(rng.uniform(0, 10, n))
    y = lorentzians(np.array(truth), x, 0.0) + rng.uniform(0.02, 0.3) * rng.standard_normal(n)
    return (x, y), np.array([*start, 0.5]), (np.array([0, -np.inf, 0] * k + [0.0]), np.inf)


def solved(seed, **options):
    data, start, bounds = made(seed)
    with np.errstate(all="ignore"):
        return problm.least_squares(lorentzians, start, data=data, bounds=bounds, **options)


@pytest.mark.parametrize("seed", [44, 149])
def test_a_solve_that_went_astray_begins_again(seed):
    one_try = solved(seed, callback=lambda state: None)  # those who watch see one solve
    result = solved(seed)
    assert one_try.status in (Status.NOT_DETERMINED, Status.RUNS_AWAY, Status.STALLED)
    assert result.success
    assert result.cost < 0.7 * one_try.cost
    assert result.nfev > one_try.nfev


def test_a_second_try_that_is_no_better_changes_nothing_but_the_counts():
    x = np.linspace(0.0, 1.0, 30)
    rising = lambda t, x, y: t[0] * x / (t[1] + x) - y  # noqa: E731
    start, data = [1.0, 1.0], (x, x + 0.1 * x**2)
    one_try = problm.least_squares(rising, start, data=data, callback=lambda state: None)
    result = problm.least_squares(rising, start, data=data)
    assert result.status is one_try.status is Status.RUNS_AWAY
    assert result.x.tolist() == one_try.x.tolist()
    assert len(result.history) == len(one_try.history)
    assert result.nfev > one_try.nfev
    assert result.residual_passes > one_try.residual_passes


def test_ctrl_c_in_the_second_try_returns_the_first_point():
    one_try = solved(44, callback=lambda state: None)
    assert one_try.status is Status.RUNS_AWAY
    data, start, bounds = made(44)
    calls = 0

    def interrupted(t, x, y):
        nonlocal calls
        calls += 1
        if calls == one_try.nfev + 20:
            raise KeyboardInterrupt
        return lorentzians(t, x, y)

    with np.errstate(all="ignore"):
        result = problm.least_squares(interrupted, start, data=data, bounds=bounds)
    assert result.status is Status.INTERRUPTED
    assert not result.success
    assert not result.certified
