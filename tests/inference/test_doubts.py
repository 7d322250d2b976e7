"""Fits that are wrong say so, those that are right do not; and a poor start gets a second one."""

import numpy as np
import pytest

import problm
from problm import models
from problm.api import fit as front
from problm.models.guesses.first_guess import alternatives
from tests.helpers.curves import DRAWS, SUMS, case

X = np.linspace(0, 10, 400)


def noise(seed=0, n=400):
    return np.random.default_rng(seed).standard_normal(n)


@pytest.mark.parametrize("name", [*DRAWS, *SUMS])
def test_right_fits_raise_no_doubts(name):
    model, x, y, clean = case(name, 500)
    fit = problm.fit(model, x, y)
    assert fit.chi2 <= 1.001 * np.sum((clean - y) ** 2)
    assert fit.warnings == ()


def test_a_model_that_misses_the_data():
    fit = problm.fit(models.line(), X, np.sin(8 * X) + 0.05 * noise())
    assert any("of the variance" in w for w in fit.warnings)
    assert any("residuals are" in w for w in fit.warnings)
    assert "warning: " in str(fit)
    assert "Warning:" in fit._repr_html_()
    assert fit.to_dict()["warnings"] == list(fit.warnings)


def test_structure_in_the_residuals():
    y = models.gaussian()(X, 3.0, 4.0, 0.8) + models.gaussian()(X, 0.8, 7.0, 0.5) + 0.05 * noise()
    (warning,) = problm.fit(models.gaussian(), X, y).warnings
    assert "misses structure" in warning
    # At many rows of much noise, too.
    x = np.random.default_rng(1).uniform(0, 10, 200_000)
    many = models.gaussian()(x, 3.0, 4.0, 0.8) + models.gaussian()(x, 3.0, 7.0, 0.5) + 0.5 * noise(2, 200_000)
    assert any("misses structure" in w for w in problm.fit(models.gaussian(), x, many).warnings)


def test_a_constant_explains_no_variance_and_need_not():
    assert problm.fit(models.constant_background(), X, 2.0 + 0.1 * noise()).warnings == ()


def test_exact_and_few_data_are_not_doubted():
    assert problm.fit(models.gaussian(), X, models.gaussian()(X, 3.0, 4.0, 0.8)).warnings == ()
    assert problm.fit(models.line(), [0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 4.0, 9.0]).warnings == ()


def test_peaks_that_coincide():
    y = models.gaussian()(X, 3.0, 4.0, 0.8) + 0.05 * noise()
    fit = problm.fit(models.gaussian() + models.gaussian(), X, y, p0=[2.0, 4.0, 0.8, 1.0, 4.0, 0.8], max_iter=3)
    assert any("coincide" in w or "do not determine" in w for w in fit.warnings)


def test_parameters_that_cannot_be_told_apart():
    fit = problm.fit("y ~ a*exp(b + 0*x) + c*x", X, 2.0 + 0.1 * X + 0.05 * noise(), p0=[1.0, 0.1, 0.0])
    assert any("do not determine" in w for w in fit.warnings)
    far = problm.fit("y ~ a + b*x", 1e5 + X, 2.0 + 0.1 * X + 0.05 * noise())
    assert any("hardly tell apart a and b" in w for w in far.warnings)


def test_parameters_at_a_bound():
    fit = problm.fit("y ~ a*x", X, 2.0 * X + 0.05 * noise(), bounds={"a": (0, 1)})
    assert any("a at a bound" in w for w in fit.warnings)


def test_a_poor_start_gets_a_second_one(monkeypatch):
    """The guess is made to fail: at half the period, or with both peaks upon one another."""
    wave = models.sine()
    y = wave(X, 2.0, 0.7, 0.4) + 0.1 * noise()
    monkeypatch.setattr(front.Model, "guess", lambda self, x, y, robust: np.array([1.0, 1.4, 0.0]))
    fit = problm.fit(wave, X, y)
    assert fit.params["frequency"].value == pytest.approx(0.7, abs=0.005)
    assert fit.warnings == ()
    two = models.gaussian() + models.gaussian()
    y = two(X, 3.0, 3.0, 0.4, 2.0, 7.0, 0.6) + 0.05 * noise()
    monkeypatch.setattr(front.Model, "guess", lambda self, x, y, robust: np.array([1.0, 3.0, 0.5, 1.0, 3.1, 0.5]))
    fit = problm.fit(two, X, y)
    assert sorted(fit.params[f"center_{k}"].value for k in (1, 2)) == pytest.approx([3.0, 7.0], abs=0.05)
    assert fit.warnings == ()
    # What the user has given is not second-guessed.
    assert problm.fit(wave, X, y, p0=[1.0, 1.4, 0.0]).warnings


def test_alternatives_are_distinct_and_ordered():
    model = models.gaussian() + models.gaussian()
    y = model(X, 3.0, 3.0, 0.4, 2.0, 7.0, 0.6) + 0.05 * noise()
    found = alternatives(model, X, y)
    costs = [np.sum((model(X, *theta) - y) ** 2) for theta in found]
    assert (np.diff(costs) >= -1e-6).all()
    assert costs[0] < 2.0
    assert alternatives(models.line(), X, y) == []
