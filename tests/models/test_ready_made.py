"""Ready-made models: values, derivatives, and fits from their own first guesses."""

import numpy as np
import pytest
from scipy.optimize import curve_fit
from scipy.special import voigt_profile

import problm
from problm import models
from problm.models import ready_made
from problm.models.first_guess import BINS

X = np.linspace(0.2, 6.0, 40)
CURVES = {
    "exponential": (models.exponential(), [2.0, 0.7, 0.3], lambda x, a, r, c: a * np.exp(-r * x) + c),
    "gaussian": (models.gaussian(), [2.0, 3.0, 0.8], lambda x, a, m, s: a * np.exp(-0.5 * ((x - m) / s) ** 2)),
    "lorentzian": (models.lorentzian(), [2.0, 3.0, 0.8], lambda x, a, m, g: a / (1 + ((x - m) / g) ** 2)),
    "voigt": (models.voigt(), [2.0, 3.0, 0.8, 0.4], lambda x, a, m, s, g: a * voigt_profile(x - m, s, g)),
    "power_law": (models.power_law(), [2.0, -1.3], lambda x, a, p: a * x**p),
    "logistic": (models.logistic(), [2.0, 3.0, 1.5, 0.2], lambda x, a, m, r, c: a / (1 + np.exp(-r * (x - m))) + c),
    "damped_sine": (models.damped_sine(), [2.0, 0.3, 0.8, 0.5],
                    lambda x, a, r, f, p: a * np.exp(-r * x) * np.sin(2 * np.pi * f * x + p)),
    "polynomial": (models.polynomial(3), [1.0, -2.0, 0.5, 0.1], lambda x, *c: np.polynomial.polynomial.polyval(x, c)),
    "line": (models.line(), [2.0, -1.0], lambda x, s, i: s * x + i),
    "constant_background": (models.constant_background(), [2.0], lambda x, c: c + 0 * x),
}  # fmt: skip


def test_every_ready_made_model_is_tested():
    assert set(CURVES) == set(ready_made.CURVES) == set(models.__all__)
    assert all(getattr(models, name) is maker for name, maker in ready_made.CURVES.items())
    assert all(model.kind == name for name, (model, _, _) in CURVES.items())


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
    theta = np.array(theta)
    np.testing.assert_allclose(model(X, *theta), reference(X, *theta), rtol=3e-14, atol=1e-15)
    J = model.jacobian(X, *theta)
    for a in range(len(theta)):
        h = 1e-6 * np.eye(len(theta))[a]
        slope = (reference(X, *(theta + h)) - reference(X, *(theta - h))) / 2e-6
        np.testing.assert_allclose(J[:, a], slope, rtol=1e-6, atol=1e-8)


def test_far_from_the_data_nothing_overflows():
    for name, (model, theta, _) in CURVES.items():
        x = np.array([1e-3, 1e3, 1e6]) if name == "power_law" else np.array([-1e3, 0.0, 1e3])
        if name in ("exponential", "damped_sine"):
            x = np.abs(x)
        assert np.isfinite(model(x, *theta)).all(), name
        assert np.isfinite(model.jacobian(x, *theta)).all(), name


def test_the_degree_is_checked():
    assert models.polynomial(0).parameters == ("c0",)
    for degree in (-1, 51, 2.0, "3"):
        with pytest.raises(ValueError, match="degree must be"):
            models.polynomial(degree)


def between(low, high):
    return lambda rng: np.exp(rng.uniform(np.log(low), np.log(high)))


def uniform(low, high):
    return lambda rng: rng.uniform(low, high)


def signed(low, high):
    return lambda rng: rng.choice([-1, 1]) * rng.uniform(low, high)


# Parameters drawn at random, on x from 0 to 10.
DRAWS = {
    "exponential": (models.exponential(), [signed(1, 5), between(0.15, 3), uniform(-3, 3)]),
    "gaussian": (models.gaussian(), [signed(1, 5), uniform(1, 9), between(0.1, 2.5)]),
    "lorentzian": (models.lorentzian(), [signed(1, 5), uniform(1, 9), between(0.1, 2)]),
    "voigt": (models.voigt(), [signed(3, 10), uniform(2, 8), uniform(0.2, 0.8), uniform(0.2, 0.8)]),
    "power_law": (models.power_law(), [signed(1, 5), uniform(-2, 3)]),
    "logistic": (models.logistic(), [signed(2, 5), uniform(2, 8), between(0.7, 8), uniform(-3, 3)]),
    "damped_sine": (models.damped_sine(), [uniform(1, 5), uniform(0.02, 0.6), between(0.2, 5), uniform(0, 6.28)]),
    "polynomial": (models.polynomial(3), [uniform(-2, 2)] * 4),
    "line": (models.line(), [uniform(-2, 2)] * 2),
    "peak on a line": (
        models.gaussian() + models.line(),
        [signed(1, 5), uniform(1, 9), between(0.1, 1.5), uniform(-1, 1), uniform(-3, 3)],
    ),
    "two peaks on a line": (
        models.gaussian() + models.gaussian() + models.line(),
        [uniform(2, 5), uniform(1, 4), uniform(0.2, 0.6), uniform(2, 5), uniform(6, 9), uniform(0.2, 0.6),
         uniform(-0.3, 0.3), uniform(-3, 3)],
    ),
    "a peak on a decay": (
        models.exponential() + models.gaussian(),
        [uniform(2, 5), uniform(0.3, 1), uniform(-1, 1), uniform(2, 5), uniform(3, 8), uniform(0.2, 0.6)],
    ),
    "oscillation about a level": (
        models.damped_sine() + models.constant_background(),
        [uniform(1, 5), uniform(0.02, 0.6), between(0.2, 5), uniform(0, 6.28), uniform(-5, 5)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWS)
def test_fits_from_the_guess_find_the_truth(name):
    """At least 95 % of random draws: as good a fit as the true parameters give."""
    model, draw = DRAWS[name]
    rounds, found = 20, 0
    for seed in range(rounds):
        rng = np.random.default_rng(1000 + seed)
        n = int(rng.choice([100, 300, 1000, 5000]))
        x = np.sort(rng.uniform(0, 10, n)) if seed % 2 else np.linspace(0, 10, n)
        if name == "power_law":
            x += 0.3
        theta = np.array([f(rng) for f in draw])
        clean = model(x, *theta)
        y = clean + (0.05 * clean.std() + 0.02) * rng.standard_normal(n)
        start = model.guess(x, y)
        popt, _ = curve_fit(model, x, y, p0=start, jac=model.jacobian, maxfev=2000)
        best = np.sum((model(x, *popt) - y) ** 2)
        found += bool(best <= 1.001 * np.sum((clean - y) ** 2))
    assert found >= 0.95 * rounds


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
