"""A minimum that straight lines see is refuted where the floor of a curved valley falls on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize

import problm
from problm.solver.result import Status
from tests.helpers import wild_problems, zoo
from tests.helpers.wild_problems import Family, grid

SIZES, SHARES = [12, 30, 100, 1000, 20000, 60000], [0.2, 0.25, 0.25, 0.12, 0.05, 0.03]
FAMILIES = {
    "logistic": (11, "a/(1+exp(-(x-m)/w))", lambda r: (r.uniform(1, 3), r.uniform(2, 15), r.uniform(0.5, 2))),
    "log": (12, "a*log(x+c)+d", lambda r: (r.uniform(1, 3), 10 ** r.uniform(-2, 2), r.uniform(-1, 1))),
    "cosh": (
        17,
        "a*(exp(b*(x-c))+exp(-b*(x-c)))",
        lambda r: (r.uniform(0.2, 2), r.uniform(0.3, 2), r.uniform(-2, 7)),
    ),
}


def made(name: str, seed: int) -> wild_problems.Wild:
    """A curve whose data show so little of it that its parameters have a curved valley."""
    index, text, truth_of = FAMILIES[name]
    family, rng = Family(text, truth_of, grid(0, 5)), np.random.default_rng([index, 77, seed])
    parameters = wild_problems.parameters_of(text, family.variables)
    value = wild_problems.evaluated(text, family.variables, parameters)
    truth = np.array(truth_of(rng))
    n = int(rng.choice([len(truth) + 3, *SIZES], p=[0.1, *SHARES]))
    x = family.points(rng, n)[0]
    level, signal = float(rng.choice([1e-3, 0.03, 0.1, 0.3])), value(truth, x)
    y = signal + level * np.std(signal) * rng.standard_normal(n)
    start = truth * (1 + family.spread * rng.uniform(-1, 1, len(truth)))
    fit = zoo.Fit(name, lambda t, x, y: value(t, x) - y, start, (x, y), solution=truth, scale=level)
    return wild_problems.Wild(replace(fit), "formula", text, family.variables, parameters)


@pytest.mark.parametrize(("name", "seed"), [("logistic", 31015), ("log", 31023), ("cosh", 32025), ("cosh", 32105)])
def test_a_success_in_a_curved_valley_is_a_minimum(name, seed):
    """They ended between 0.015 and 2.6 standard errors above it: the wall hid the slope of the floor."""
    wild = made(name, seed)
    outcome, fit = wild_problems.solved(wild), wild.fit
    assert outcome.success
    with np.errstate(all="ignore"):
        ends = [
            scipy.optimize.least_squares(
                lambda t: fit.residuals(t).ravel(), start, fit.jacobian, method="lm", max_nfev=3000,
                ftol=1e-15, xtol=1e-15, gtol=1e-15,
            ).x
            for start in (outcome.x, fit.solution)
        ]  # fmt: skip
    cost = fit.cost(outcome.x)
    gain = cost - min(fit.cost(end) for end in ends)
    assert np.sqrt((fit.n - len(outcome.x)) * max(gain, 0.0) / cost) <= 0.011


def test_a_floor_that_does_not_fall_is_not_followed():
    """Where only a product of two parameters matters, the floor is level."""
    rng = np.random.default_rng(5)
    x = np.linspace(0, 5, 100)
    y = 2.0 * np.exp(-0.7 * x) + 0.1 * rng.standard_normal(100)
    one = problm.least_squares(lambda t, x, y: t[0] * np.exp(-t[1] * x) - y, [1, 1], data=(x, y), jac="3-point")
    two = problm.least_squares(
        lambda t, x, y: t[0] * t[2] * np.exp(-t[1] * x) - y, [1, 1, 0.5], data=(x, y), jac="3-point"
    )
    assert two.success
    assert two.cost == pytest.approx(one.cost, rel=1e-9)


@pytest.mark.parametrize("scale", [1.0, 1e-100, 1e100])
def test_an_exact_fit_has_nothing_below(scale):
    """Costs of zero, or too small to be halved, leave no distance to look at."""
    x = np.linspace(0.0, 1.0, 20)
    found = problm.fit("a*x + b", x, scale * x)
    assert found.result.success
    assert found.result.x == pytest.approx([scale, 0.0], abs=1e-12 * scale)


def arctangent(seed: int) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """A start and the data of arctan(a (x - b)), from far off."""
    rng = np.random.default_rng([6, 77, seed])
    truth = np.array([rng.uniform(0.3, 5), rng.uniform(-2, 7)])
    n = int(rng.choice([5, *SIZES], p=[0.1, *SHARES]))
    x = grid(0, 5)(rng, n)[0]
    signal = np.arctan(truth[0] * (x - truth[1]))
    level = float(rng.choice([1e-3, 0.03, 0.1, 0.3]))
    y = signal + level * np.std(signal) * rng.standard_normal(n)
    return truth + np.array([rng.normal() * 3, rng.normal() * 20]), (x, y)


@pytest.mark.parametrize("seed", [31013, 32018, 32040, 32050, 41034])
def test_a_way_to_infinity_that_errors_of_differences_hide_is_no_success(seed):
    """Only a * b is seen far out, by differences: the slope along the rest of the valley is within their errors."""
    start, data = arctangent(seed)
    residuals = lambda t, x, y: np.arctan(t[0] * (x - t[1])) - y  # noqa: E731
    fit = problm.least_squares(residuals, start, data=data, callback=lambda state: None)  # one try
    assert fit.status is Status.RUNS_AWAY


def test_a_second_try_finds_what_the_way_to_infinity_missed():
    found = 0
    for seed in (31013, 32018, 32040, 32050, 41034):
        start, data = arctangent(seed)
        residuals = lambda t, x, y: np.arctan(t[0] * (x - t[1])) - y  # noqa: E731
        fit = problm.least_squares(residuals, start, data=data)
        assert fit.status in (Status.RUNS_AWAY, Status.GRADIENT)
        found += fit.success
    assert found >= 4


@pytest.mark.parametrize("seed", [31010, 31013])
def test_a_way_to_infinity_along_a_power_law_is_no_success(seed):
    """A bell curve is the limit of a power p of a Lorentzian as w^2 = s p grows: with w held, p alone leads upwards."""
    rng = np.random.default_rng([13, 77, seed])
    truth = np.array([rng.uniform(1, 3), rng.uniform(0, 5), rng.uniform(0.5, 3), 10 ** rng.uniform(-0.3, 2)])
    n = int(rng.choice([7, *SIZES], p=[0.1, *SHARES]))
    x = grid(0, 5)(rng, n)[0]

    def curve(t, x):
        return t[0] * (1 + ((x - t[1]) / t[2]) ** 2) ** (-t[3])

    level = float(rng.choice([1e-3, 0.03, 0.1, 0.3]))
    y = curve(truth, x) + level * np.std(curve(truth, x)) * rng.standard_normal(n)
    start = truth * (1 + 0.3 * rng.uniform(-1, 1, 4))
    fit = problm.least_squares(lambda t, x, y: curve(t, x) - y, start, data=(x, y))
    assert fit.status is Status.RUNS_AWAY
    assert fit.x[3] > 1e4
