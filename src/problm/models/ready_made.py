"""Ready-made models: curves that are often fitted, with first guesses from the data.

Each function returns a `problm.models.model.Model`; add them for sums, ``gaussian() + gaussian() + line()``. They run
on the tape, with exact derivatives, and `Model.guess` (which `problm.curve_fit` calls when no ``p0`` is given) finds a
start.

A new curve is one function with the decorator `curve`, written as a formula; `problm.models` exports it.

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

import inspect
import math
from collections.abc import Callable
from typing import TypeVar

from .expression import Expression, constant, exp, make, parameter, variable
from .functions import voigt as _voigt
from .model import Model

_Maker = TypeVar("_Maker", bound=Callable[..., Model])

CURVES: dict[str, Callable[..., Model]] = {}
"""Functions that make the ready-made models, by name."""


def listed(maker: _Maker) -> _Maker:
    """Register a function that returns a model as a ready-made one."""
    CURVES[maker.__name__] = maker
    return maker


def curve(formula: Callable[..., Expression]) -> Callable[[], Model]:
    """Register the ready-made model ``formula(x, *parameters)``; parameters are named after the arguments."""
    _, *names = inspect.signature(formula).parameters

    def maker() -> Model:
        body = formula(variable(0), *map(parameter, range(len(names))))
        return Model.from_expression(body, names, kind=formula.__name__)

    maker.__module__, maker.__name__, maker.__qualname__ = formula.__module__, formula.__name__, formula.__qualname__
    maker.__doc__ = formula.__doc__
    return listed(maker)


@curve
def exponential(x: Expression, amplitude: Expression, rate: Expression, offset: Expression) -> Expression:
    """``amplitude * exp(-rate * x) + offset``."""
    return amplitude * exp(-rate * x) + offset


@curve
def gaussian(x: Expression, amplitude: Expression, center: Expression, sigma: Expression) -> Expression:
    """``amplitude * exp(-((x - center) / sigma)**2 / 2)``."""
    u = (x - center) / sigma
    return amplitude * exp(-0.5 * (u * u))


@curve
def lorentzian(x: Expression, amplitude: Expression, center: Expression, gamma: Expression) -> Expression:
    """``amplitude / (1 + ((x - center) / gamma)**2)``; gamma is half the width at half the height."""
    u = (x - center) / gamma
    return amplitude / (1.0 + u * u)


@curve
def voigt(x: Expression, area: Expression, center: Expression, sigma: Expression, gamma: Expression) -> Expression:
    """``area * voigt(x - center, sigma, gamma)``: a Gaussian of width sigma convolved with a Lorentzian of width gamma.

    The profile is SciPy's `scipy.special.voigt_profile`; the signs of the widths are ignored.
    """
    return area * _voigt(x - center, sigma, gamma)


@curve
def power_law(x: Expression, amplitude: Expression, exponent: Expression) -> Expression:
    """``amplitude * x**exponent``, x > 0."""
    return amplitude * x**exponent


@curve
def logistic(
    x: Expression, amplitude: Expression, center: Expression, rate: Expression, offset: Expression
) -> Expression:
    """``amplitude / (1 + exp(-rate * (x - center))) + offset``, computed by tanh, which cannot overflow."""
    return amplitude * (0.5 + 0.5 * make("tanh", 0.5 * (rate * (x - center)))) + offset


@curve
def damped_sine(
    x: Expression, amplitude: Expression, rate: Expression, frequency: Expression, phase: Expression
) -> Expression:
    """``amplitude * exp(-rate * x) * sin(2 pi frequency x + phase)``."""
    wave = make("sin", (2.0 * math.pi) * frequency * x + phase)
    return amplitude * exp(-rate * x) * wave


@listed
def polynomial(degree: int) -> Model:
    """``c0 + c1 * x + ... + c_degree * x**degree``."""
    if not isinstance(degree, int) or not 0 <= degree <= 50:
        raise ValueError(f"degree must be a whole number from 0 to 50, got {degree!r}")
    body = parameter(degree)
    for k in range(degree - 1, -1, -1):
        body = body * variable(0) + parameter(k)
    return Model.from_expression(body, [f"c{k}" for k in range(degree + 1)], kind="polynomial")


@curve
def line(x: Expression, slope: Expression, intercept: Expression) -> Expression:
    """``slope * x + intercept``."""
    return slope * x + intercept


@curve
def constant_background(x: Expression, background: Expression) -> Expression:
    """``background``, the same for all x."""
    return background + constant(0.0)
