"""Redundant parameters, data with hardly any noise: slopes that errors of differences make up are no reason to fail."""

from __future__ import annotations

import numpy as np
import pytest

import problm
from tests.helpers import random_problems, zoo

REDUNDANT = {
    "sum": (lambda t, x: t[0] * x + t[1] + t[2], 3),
    "four": (lambda t, x: t[0] * x + t[1] * x * 2 + t[2] * (x - 1) + t[3], 4),
    "product": (lambda t, x: t[0] * t[1] * np.exp(-t[2] * x), 3),
    "ratio": (lambda t, x: t[0] * t[1] * x / (t[2] * t[1] + x), 3),
    "growth": (lambda t, x: t[0] + t[1] * np.exp(t[2]) * x, 3),
    "power": (lambda t, x: t[0] * (t[1] * x) ** t[2], 3),
}


@pytest.mark.parametrize("name", REDUNDANT)
def test_single_precision_without_noise_is_no_failure(name):
    """Nearly all ended as stalled."""
    curve, d = REDUNDANT[name]
    for seed in range(12):
        rng = np.random.default_rng([5, seed])
        n, truth = int(rng.choice([5, 12, 50, 400, 3000])), rng.uniform(0.5, 2.0, d)
        x = rng.uniform(0.05, 4, n).astype(np.float32).astype(float)
        y = curve(truth, x).astype(np.float32).astype(float)
        fit = problm.least_squares(lambda t, x, y: curve(t, x) - y, truth * rng.uniform(0.5, 1.6, d), data=(x, y))
        assert fit.success, (seed, fit.message)
        assert np.sqrt(2 * fit.cost / n) <= 1e-7 * np.abs(y).max()


@pytest.mark.parametrize("slope", [1e-7, 1e-6])
def test_a_weak_direction_that_lowers_the_cost_is_followed(slope):
    """The second column differs from the first by little; residuals are so small that this matters."""
    rng = np.random.default_rng(3)
    x = np.linspace(0.5, 2, 40)
    other = x + slope * np.sin(9 * x)
    y = 1.0 * x + 2.0 * other + 1e-9 * rng.standard_normal(40)
    fit = problm.least_squares(lambda t, x, w, y: t[0] * x + t[1] * w - y, [1.5, 1.5], data=(x, other, y))
    best = np.linalg.lstsq(np.stack([x, other], axis=1), y, rcond=None)[0]
    lowest = 0.5 * np.square(np.stack([x, other], axis=1) @ best - y).sum()
    assert not fit.success or 38 * (fit.cost - lowest) <= 1e-4 * lowest


@pytest.mark.parametrize(("kind", "seed"), [("duplicated_rows", 610019), ("duplicated_rows", 600025)])
def test_minima_with_a_singular_jacobian_are_found(kind, seed):
    """An exact fit of redundant parameters, below which rounding errors looked like a way down; and a sine in four
    different rows, where a direction is lost to the Jacobian, but not to the cost."""
    fit = random_problems.make(kind, seed)
    outcome = zoo.problm(fit)
    assert outcome.success
    assert not zoo.violations(fit, outcome)
