"""Ready-made models: values, derivatives, and fits from their own first guesses."""

import numpy as np
import pytest
from lmfit import lineshapes

import problm
from problm import models
from problm.models import ready_made
from problm.models.guesses.first_guess import BINS
from tests.helpers.curves import CURVES, DRAWS, KNOTS, SUMS, found

X = np.linspace(0.2, 6.0, 40)
PLANE = np.stack([X, X[::-1]])


def test_every_ready_made_model_is_tested():
    assert set(CURVES) == set(ready_made.CURVES) == set(models.__all__)
    assert all(getattr(models, name) is maker for name, maker in ready_made.CURVES.items())
    assert all(model.kind.startswith(name) for name, (model, _, _) in CURVES.items())
    assert set(DRAWS) == set(CURVES)


def test_a_curve_is_one_function(monkeypatch):
    """The recipe of CONTRIBUTING.md: the names of the arguments are those of the parameters."""
    monkeypatch.setattr(ready_made, "CURVES", dict(ready_made.CURVES))

    @ready_made.curve
    def saturation(x, limit, half):
        """``limit * x / (half + x)``."""
        return limit * x / (half + x)

    assert ready_made.CURVES["saturation"] is saturation
    assert saturation.__doc__ == "``limit * x / (half + x)``."
    model = saturation()
    assert model.parameters == ("limit", "half")
    assert model.kind == "saturation"
    popt, _ = problm.curve_fit(model + models.line(), X, 3.0 * X / (0.7 + X) + 0.2 * X - 1.0)
    np.testing.assert_allclose(popt, [3.0, 0.7, 0.2, -1.0], rtol=1e-6)


@pytest.mark.parametrize("name", CURVES)
def test_values_and_derivatives(name):
    model, theta, reference = CURVES[name]
    x, theta = PLANE if name == "gaussian_2d" else X, np.array(theta)
    expected = reference(x, *theta)
    np.testing.assert_allclose(model(x, *theta), expected, rtol=1e-13, atol=1e-14 * np.abs(expected).max())
    J = model.jacobian(x, *theta)
    for a in range(len(theta)):
        h = 1e-6 * np.eye(len(theta))[a]
        slope = (reference(x, *(theta + h)) - reference(x, *(theta - h))) / 2e-6
        np.testing.assert_allclose(J[:, a], slope, rtol=1e-6, atol=1e-8)


ABOVE_ZERO = ("power_law", "arrhenius", "lognormal")
FROM_ZERO = ("exponential", "damped_sine", "double_exponential", "maxwell_boltzmann", "decay_chain", "michaelis_menten",
             "hill", "logistic_4pl", "logistic_5pl", "weibull", "stretched_exponential", "bose_einstein")  # fmt: skip


@pytest.mark.parametrize("name", CURVES)
def test_far_from_the_data_nothing_overflows(name):
    model, theta, _ = CURVES[name]
    x = np.array([-1e3, 0.0, 1e3])
    if name in ABOVE_ZERO:
        x = np.array([1e-3, 1e3, 1e6])
    elif name in FROM_ZERO:
        x = np.array([0.0, 1.0, 1e3])
    x = np.stack([x, x]) if name == "gaussian_2d" else x
    assert np.isfinite(model(x, *theta)).all()
    assert np.isfinite(model.jacobian(x, *theta)).all()


@pytest.mark.parametrize("form", ["linear", "arctan", "erf", "logistic"])
def test_forms_of_steps(form):
    np.testing.assert_allclose(
        models.step(form)(X, 2.0, 3.1, 0.8), lineshapes.step(X, 2.0, 3.1, 0.8, form), rtol=1e-13, atol=1e-14
    )
    theta = (2.0, 2.1, 0.3, 4.2, 0.6)
    if form == "linear":  # lmfit's ramps are twice as long here as in its steps
        expected = 2.0 * (np.clip(0.5 + (X - 2.1) / 0.3, 0, 1) - np.clip(0.5 + (X - 4.2) / 0.6, 0, 1))
    else:
        expected = lineshapes.rectangle(X, *theta, form)
    np.testing.assert_allclose(models.rectangle(form)(X, *theta), expected, rtol=1e-13, atol=1e-14)
    for maker in (models.step, models.rectangle):
        with pytest.raises(ValueError, match="form must be"):
            maker("smooth")


def test_equal_rates_of_a_decay_chain():
    np.testing.assert_allclose(models.decay_chain()(X, 2.0, 0.7, 0.7), 2.0 * 0.7 * X * np.exp(-0.7 * X), rtol=1e-12)


def test_knots_are_checked():
    assert models.spline(KNOTS).parameters == tuple(f"s{i}" for i in range(len(KNOTS)))
    for knots in ([0.0, 1.0, 2.0], [0.0, 2.0, 1.0, 3.0], np.arange(31.0), [[0.0, 1.0, 2.0, 3.0]]):
        with pytest.raises(ValueError, match="knots must be"):
            models.spline(knots)


def test_the_degree_is_checked():
    assert models.polynomial(0).parameters == ("c0",)
    for degree in (-1, 51, 2.0, "3"):
        with pytest.raises(ValueError, match="degree must be"):
            models.polynomial(degree)


@pytest.mark.parametrize("name", [*DRAWS, *SUMS])
def test_fits_from_the_guess_find_the_truth(name):
    """As good a fit as the true parameters give; `tests.helpers.curves` tries a thousand cases of each."""
    assert sum(found(name, seed) for seed in range(100, 105)) >= 4


def test_formulas_guess_as_well():
    rng = np.random.default_rng(0)
    x = np.linspace(0, 20, 3000)
    cases = {
        "a*x/(b + x)": [3.0, 2.0],
        "a*exp(-x/tau) + c*x": [2.0, 3.0, 0.1],
        "a*sin(w*x + p) + b": [2.0, 1.7, 0.4, 5.0],
        "a*(1 + tanh((x - m)/s))": [2.0, 8.0, 1.5],
        "a/(1 + exp(-k*(x - m)))": [4.0, 1.1, 11.0],
        "a*x**b*exp(-c*x)": [2.0, 1.5, 0.4],
    }
    for text, theta in cases.items():
        model = problm.formula(text)
        y = model(x, *theta) + 0.02 * rng.standard_normal(len(x))
        popt, _ = problm.curve_fit(model, x, y)
        rms = np.sqrt(np.mean((model(x, *popt) - y) ** 2))
        assert rms < 0.0205, (text, popt)


def test_guesses_withstand_outliers_and_missing_values():
    rng = np.random.default_rng(1)
    model = models.gaussian() + models.constant_background()
    x = rng.uniform(0, 10, 20_000)
    y = model(x, 3.0, 6.0, 0.5, 1.0) + 0.1 * rng.standard_normal(len(x))
    y[::50] += 100.0
    y[::77] = np.nan
    x[::101] = np.inf
    np.testing.assert_allclose(model.guess(x, y), [3.0, 6.0, 0.5, 1.0], atol=0.1)
    with pytest.raises(ValueError, match="no finite points"):
        model.guess(x, np.full(len(x), np.nan))
    with pytest.raises(ValueError, match="guess: x must hold 1 value"):
        model.guess(x[:5], y)


def test_guesses_of_several_variables():
    rng = np.random.default_rng(2)
    x = rng.uniform(0, 5, (2, 4000))
    model = problm.formula("a*exp(-((x1 - m)**2 + (x2 - n)**2)/(2*s**2)) + c")
    y = model(x, 3.0, 2.0, 3.5, 0.7, 0.5) + 0.05 * rng.standard_normal(4000)
    for form in (x, x.T, tuple(x)):
        np.testing.assert_allclose(model.guess(form, y), [3.0, 2.0, 3.5, 0.7, 0.5], atol=0.1)


def test_guesses_are_repeatable_and_sublinear():
    import time

    rng = np.random.default_rng(3)
    model = models.exponential()
    times = []
    for n in (100_000, 3_000_000):
        x = rng.uniform(0, 5, n)
        y = 2.0 * np.exp(-0.7 * x) + 0.3
        first = model.guess(x, y)
        began = time.process_time()
        np.testing.assert_array_equal(model.guess(x, y), first)
        times.append(time.process_time() - began)
    assert times[1] < 5 * times[0] + 0.05


@pytest.mark.parametrize("n", [1, 2, 3, 10, BINS, BINS + 1])
def test_guesses_of_few_points_are_finite(n):
    x = np.linspace(0, 1, n)
    for model in (models.gaussian() + models.line(), models.damped_sine(), models.power_law(), models.voigt()):
        with np.errstate(all="ignore"):
            assert np.isfinite(model.guess(x, np.cos(7 * x))).all()
            assert np.isfinite(model.guess(np.ones(n), np.ones(n))).all()


def test_curve_fit_needs_no_start():
    rng = np.random.default_rng(4)
    model = models.gaussian() + models.gaussian() + models.line()
    theta = [3.0, 3.0, 0.5, 2.0, 7.0, 0.8, 0.1, 1.0]
    x = rng.uniform(0, 10, 100_000)
    y = model(x, *theta) + 0.2 * rng.standard_normal(len(x))
    popt, pcov = problm.curve_fit(model, x, y)
    peaks = popt[:6].reshape(2, 3)
    popt = np.concatenate([peaks[np.argsort(peaks[:, 1])].ravel(), popt[6:]])
    np.testing.assert_allclose(popt, theta, atol=0.02)
    assert (np.sqrt(np.diag(pcov)) < 0.01).all()


def test_a_guess_that_fails_says_so_and_blames_nobody():
    model = problm.formula("sqrt(-(a**2) - x**2) + b")
    with pytest.raises(ValueError, match=r"no first guess was found .* give a start"):
        model.guess(np.linspace(1e3, 2e3, 50), np.ones(50))
