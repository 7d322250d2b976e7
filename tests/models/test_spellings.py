"""Formulas as users spell them find their own start, in any units of x and y."""

import numpy as np
import pytest

import problm

X = np.linspace(0.005, 1.0, 200)
SPELT = {
    "top*x**n/(k**n + x**n)": (2.9, 2.8, 0.24),
    "top/(1 + (k/x)**n)": (2.9, 0.24, 0.8),
    "bottom + (top-bottom)/(1 + (x/ic50)^h)": (0.2, 1.7, 0.3, 1.4),
    "y0 + A/(1 + exp(-(x-x0)/k))": (0.5, -1.3, 0.6, 0.04),
    "A*exp(-(x-m)**2/(2*s**2)) + B": (1.2, 0.4, 0.05, 0.3),
    "2*A/pi*w/(4*(x-xc)^2 + w^2) + y0": (0.3, 0.08, 0.6, 0.2),
    "A1*exp(-t/t1) + A2*exp(-t/t2)": (1.0, 0.03, 0.7, 0.6),
    "c + A*exp(-(t/tau)**beta)": (0.4, 1.5, 0.2, 0.7),
    "A*exp(-t/tau)*sin(2*pi*f*t + phi) + c": (1.1, 0.4, 12.0, 0.9, 0.1),
    "A*cos(pi*(x-x0)/L)**2 + b": (1.4, 0.02, 0.13, 0.2),
    "A*(sin(k*(x-x0))/(k*(x-x0)))**2 + b": (1.7, 33.0, 0.4012, 0.2),
    "x0 + v*t + g/2*t**2": (0.3, -2.0, 3.0),
    "k*x^(-n)": (0.7, 1.2),
}
UNITS = [(1.0, 1.0), (1e-9, 1.0), (1e9, 1e-6), (1e-3, 1e9)]


@pytest.mark.parametrize("text", SPELT)
@pytest.mark.parametrize("units", UNITS, ids=str)
def test_the_best_fit_is_found_without_a_start(text, units):
    model = problm.formula(text)
    curve = model(X, *SPELT[text])
    noise = 0.01 * np.ptp(curve) * np.random.default_rng(0).standard_normal(X.size)
    x, y = units[0] * X, units[1] * (curve + noise)
    fitted = problm.fit(model, x, y)
    assert fitted.result.success
    assert np.sum((fitted.predict(x) - y) ** 2) <= np.sum((units[1] * noise) ** 2)


@pytest.mark.parametrize("text", ["top*x**n/(k**n + x**n)", "top/(1 + (k/x)**n)"])
def test_an_exponent_has_no_units(text):
    """Concentrations in mol/l: the exponent is guessed as one, not as a place on the axis of the concentrations."""
    model = problm.formula(text)
    truth = dict(zip(model.parameters, SPELT[text], strict=True))
    guess = model.guess(1e-9 * X, model(X, *SPELT[text]))
    assert guess[model.parameters.index("n")] == pytest.approx(truth["n"], rel=1e-2)
    assert guess[model.parameters.index("k")] == pytest.approx(1e-9 * truth["k"], rel=1e-2)
