"""Steps, rectangles, waves, thermal distributions and splines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from .expression import Expression as E
from .expression import constant, exp, make, parameter, variable, where
from .model import Model
from .ready_made import curve, listed

_FORMS: dict[str, Callable[[E], E]] = {
    "linear": lambda u: make("minimum", make("maximum", 0.5 + u, constant(0.0)), constant(1.0)),
    "arctan": lambda u: 0.5 + make("arctan", u) / math.pi,
    "erf": lambda u: 0.5 * make("erfc", -u),
    "logistic": lambda u: 0.5 + 0.5 * make("tanh", 0.5 * u),
}
"""Steps from 0 to 1 around u = 0."""


def _form(form: str) -> Callable[[E], E]:
    if form not in _FORMS:
        raise ValueError(f"form must be one of {', '.join(_FORMS)}, got {form!r}")
    return _FORMS[form]


@listed
def step(form: str = "erf") -> Model:
    """``amplitude * step((x - center) / sigma)``, from 0 to amplitude.

    ``form`` is ``"linear"`` (over a length sigma), ``"arctan"``, ``"erf"`` or ``"logistic"``.
    """
    body = parameter(0) * _form(form)((variable(0) - parameter(1)) / parameter(2))
    return Model.from_expression(body, ("amplitude", "center", "sigma"), kind=f"step_{form}")


@listed
def rectangle(form: str = "erf") -> Model:
    """``amplitude * (step((x - center_1) / sigma_1) - step((x - center_2) / sigma_2))``, with the forms of `step`."""
    up, down = (_form(form)((variable(0) - parameter(k)) / parameter(k + 1)) for k in (1, 3))
    names = ("amplitude", "center_1", "sigma_1", "center_2", "sigma_2")
    return Model.from_expression(parameter(0) * (up - down), names, kind=f"rectangle_{form}")


@curve
def sine(x: E, amplitude: E, frequency: E, phase: E) -> E:
    """``amplitude * sin(2 pi frequency x + phase)``."""
    return amplitude * make("sin", (2.0 * math.pi) * frequency * x + phase)


@curve
def fermi_dirac(x: E, amplitude: E, center: E, kt: E) -> E:
    """``amplitude / (exp((x - center) / kt) + 1)``."""
    return amplitude * (0.5 - 0.5 * make("tanh", 0.5 * ((x - center) / kt)))


@curve
def bose_einstein(x: E, amplitude: E, center: E, kt: E) -> E:
    """``amplitude / (exp((x - center) / kt) - 1)``, for x > center."""
    v = (x - center) / kt
    return amplitude * exp(-v) / -make("expm1", -v)


@curve
def maxwell_boltzmann(x: E, amplitude: E, kt: E) -> E:
    """``amplitude * exp(-x / kt)``."""
    return amplitude * exp(-x / kt)


@curve
def quadratic(x: E, a: E, b: E, c: E) -> E:
    """``a * x**2 + b * x + c``."""
    return (a * x + b) * x + c


@listed
def spline(knots: Sequence[float]) -> Model:
    """A cubic spline, smooth to the second derivative, whose parameters ``s0, s1, ...`` are its values at the knots.

    Its ends are not-a-knot, as in `scipy.interpolate.CubicSpline`; outside the knots the end pieces are continued.
    """
    places = np.asarray(knots, dtype=np.float64)
    if places.ndim != 1 or not 4 <= len(places) <= 30 or not (np.diff(places) > 0.0).all():
        raise ValueError("knots must be 4 to 30 ascending numbers")
    from scipy.interpolate import CubicSpline

    # (4, pieces, parameters): the spline is linear in its values, so the splines of unit vectors suffice.
    weights = CubicSpline(places, np.eye(len(places))).c
    x, total = variable(0), constant(0.0)
    for piece in range(len(places) - 1):
        t = x - float(places[piece])
        value = constant(0.0)
        for power in range(4):
            row = weights[power, piece]
            value = value * t + sum((float(w) * parameter(i) for i, w in enumerate(row)), constant(0.0))
        total = value if piece == 0 else where(x < float(places[piece]), total, value)
    return Model.from_expression(total, [f"s{i}" for i in range(len(places))], kind="spline")
