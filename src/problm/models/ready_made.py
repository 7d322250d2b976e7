"""Ready-made models: curves that are often fitted, with first guesses from the data.

Each function returns a `problm.models.model.Model`; add them for sums, ``gaussian() + gaussian() + line()``. They run
on the tape, with exact derivatives, and `Model.guess` (which `problm.curve_fit` calls when no ``p0`` is given) finds a
start.

Examples
--------
>>> import numpy as np, problm
>>> rng = np.random.default_rng(0)
>>> x = np.linspace(-5, 5, 2000)
>>> y = 3.0 * np.exp(-0.5 * ((x - 1.0) / 0.4) ** 2) + 0.2 * x + 1.0 + 0.1 * rng.standard_normal(x.size)
>>> popt, pcov = problm.curve_fit(problm.models.gaussian() + problm.models.line(), x, y)
>>> popt.round(1)
array([3. , 1. , 0.4, 0.2, 1. ])
"""

from __future__ import annotations

import math

from .expression import Expression, constant, exp, make, parameter, variable
from .model import Model
from .tracing import voigt as _voigt

__all__ = [
    "constant_background", "damped_sine", "exponential", "gaussian", "line", "logistic", "lorentzian", "polynomial",
    "power_law", "voigt",
]  # fmt: skip

_X = variable(0)


def _model(kind: str, body: Expression, *parameters: str) -> Model:
    return Model.from_expression(body, parameters, kind=kind)


def exponential() -> Model:
    """``amplitude * exp(-rate * x) + offset``."""
    return _model("exponential", parameter(0) * exp(-parameter(1) * _X) + parameter(2), "amplitude", "rate", "offset")


def gaussian() -> Model:
    """``amplitude * exp(-((x - center) / sigma)**2 / 2)``."""
    u = (_X - parameter(1)) / parameter(2)
    return _model("gaussian", parameter(0) * exp(-0.5 * (u * u)), "amplitude", "center", "sigma")


def lorentzian() -> Model:
    """``amplitude / (1 + ((x - center) / gamma)**2)``; gamma is half the width at half the height."""
    u = (_X - parameter(1)) / parameter(2)
    return _model("lorentzian", parameter(0) / (1.0 + u * u), "amplitude", "center", "gamma")


def voigt() -> Model:
    """``area * voigt(x - center, sigma, gamma)``: a Gaussian of width sigma convolved with a Lorentzian of width gamma.

    The profile is SciPy's `scipy.special.voigt_profile`; the widths count by their absolute values.
    """
    body = parameter(0) * _voigt(_X - parameter(1), parameter(2), parameter(3))
    return _model("voigt", body, "area", "center", "sigma", "gamma")


def power_law() -> Model:
    """``amplitude * x**exponent``, x > 0."""
    return _model("power_law", parameter(0) * _X ** parameter(1), "amplitude", "exponent")


def logistic() -> Model:
    """``amplitude / (1 + exp(-rate * (x - center))) + offset``, by way of tanh, which cannot overflow."""
    step = 0.5 + 0.5 * make("tanh", 0.5 * (parameter(2) * (_X - parameter(1))))
    return _model("logistic", parameter(0) * step + parameter(3), "amplitude", "center", "rate", "offset")


def damped_sine() -> Model:
    """``amplitude * exp(-rate * x) * sin(2 pi frequency x + phase)``."""
    wave = make("sin", (2.0 * math.pi) * parameter(2) * _X + parameter(3))
    return _model(
        "damped_sine", parameter(0) * exp(-parameter(1) * _X) * wave, "amplitude", "rate", "frequency", "phase"
    )


def polynomial(degree: int) -> Model:
    """``c0 + c1 * x + ... + c_degree * x**degree``."""
    if not isinstance(degree, int) or not 0 <= degree <= 50:
        raise ValueError(f"degree must be a whole number from 0 to 50, got {degree!r}")
    body = parameter(degree)
    for k in range(degree - 1, -1, -1):
        body = body * _X + parameter(k)
    return _model("polynomial", body, *(f"c{k}" for k in range(degree + 1)))


def line() -> Model:
    """``slope * x + intercept``."""
    return _model("line", parameter(0) * _X + parameter(1), "slope", "intercept")


def constant_background() -> Model:
    """``background``, the same for all x."""
    return _model("constant_background", parameter(0) + constant(0.0), "background")
