"""Peaks: symmetric, skewed and split. ``amplitude`` is the height unless stated otherwise.

In all of them ``u = (x - center) / sigma``.
"""

from __future__ import annotations

import math

from .expression import Expression as E
from .expression import constant, exp, log, make, parameter, variable, where
from .functions import voigt as _voigt
from .model import Model
from .ready_made import curve, listed

_LN2, _ROOT2 = math.log(2.0), math.sqrt(2.0)


@curve
def split_lorentzian(x: E, amplitude: E, center: E, gamma_left: E, gamma_right: E) -> E:
    """``amplitude / (1 + ((x - center) / gamma)**2)`` with a separate half width on each side."""
    u = (x - center) / where(x < center, gamma_left, gamma_right)
    return amplitude / (1.0 + u * u)


@curve
def pseudo_voigt(x: E, amplitude: E, center: E, sigma: E, fraction: E) -> E:
    """``amplitude * ((1 - fraction) * exp(-log(2) * u**2) + fraction / (1 + u**2))``; sigma is half the width."""
    u = (x - center) / sigma
    return amplitude * ((1.0 - fraction) * exp(-_LN2 * (u * u)) + fraction / (1.0 + u * u))


@curve
def moffat(x: E, amplitude: E, center: E, sigma: E, beta: E) -> E:
    """``amplitude * (1 + u**2)**-beta``."""
    u = (x - center) / sigma
    return amplitude * exp(-beta * make("log1p", u * u))


@curve
def pearson4(x: E, amplitude: E, center: E, sigma: E, exponent: E, skew: E) -> E:
    """``amplitude * (1 + u**2)**-exponent * exp(-skew * arctan(u))``; amplitude is the value at the center."""
    u = (x - center) / sigma
    return amplitude * exp(-exponent * make("log1p", u * u) - skew * make("arctan", u))


@curve
def pearson7(x: E, amplitude: E, center: E, sigma: E, exponent: E) -> E:
    """``amplitude * (1 + u**2 * (2**(1 / exponent) - 1))**-exponent``; sigma is half the width at half the height."""
    u = (x - center) / sigma
    return amplitude * exp(-exponent * make("log1p", u * u * make("expm1", _LN2 / exponent)))


@curve
def students_t(x: E, amplitude: E, center: E, sigma: E, nu: E) -> E:
    """``amplitude * (1 + u**2 / nu)**(-(nu + 1) / 2)``, Student's t with nu degrees of freedom."""
    u = (x - center) / sigma
    return amplitude * exp(-0.5 * (nu + 1.0) * make("log1p", u * u / nu))


@curve
def breit_wigner(x: E, amplitude: E, center: E, sigma: E, q: E) -> E:
    """``amplitude * (q / 2 + u)**2 / (1 / 4 + u**2)``: Breit, Wigner and Fano's resonance of full width sigma."""
    u = (x - center) / sigma
    return amplitude * ((0.5 * q + u) * (0.5 * q + u) / (0.25 + u * u))


@curve
def lognormal(x: E, amplitude: E, center: E, sigma: E) -> E:
    """``amplitude * exp(-(log(x / center) / sigma)**2 / 2)``, x > 0; 0 at x = 0."""
    positive = where(x > 0.0, x, 1.0)
    u = (log(positive) - log(abs(center))) / sigma
    return where(x > 0.0, amplitude * exp(-0.5 * (u * u)), 0.0)


@curve
def exponential_gaussian(x: E, area: E, center: E, sigma: E, rate: E) -> E:
    """A Gaussian of width sigma convolved with the decay ``rate * exp(-rate * x)``, x > 0, with a given area."""
    s, k = abs(sigma), abs(rate)
    u = (x - center) / s
    z = (s * k - u) / _ROOT2
    # exp(z**2) erfc(z) is w(iz), which is computed without overflow for z > 0; for z < 0 erfc is not small.
    tail = exp(-0.5 * (u * u)) * make("w_real", 0.0 * z, make("maximum", z, constant(0.0)))
    rise = make("minimum", 0.5 * (s * k) * (s * k) - s * k * u, constant(0.0))
    return 0.5 * area * k * where(z > 0.0, tail, exp(rise) * make("erfc", make("minimum", z, constant(0.0))))


@curve
def skewed_gaussian(x: E, amplitude: E, center: E, sigma: E, skew: E) -> E:
    """``amplitude * exp(-u**2 / 2) * (1 + erf(skew * u / sqrt(2)))``."""
    u = (x - center) / sigma
    return amplitude * exp(-0.5 * (u * u)) * (1.0 + make("erf", skew * u / _ROOT2))


@curve
def skewed_voigt(x: E, area: E, center: E, sigma: E, gamma: E, skew: E) -> E:
    """``area * voigt(x - center, sigma, gamma) * (1 + erf(skew * u / sqrt(2)))``."""
    u = (x - center) / sigma
    return area * _voigt(x - center, sigma, gamma) * (1.0 + make("erf", skew * u / _ROOT2))


@curve
def doniach(x: E, amplitude: E, center: E, sigma: E, asymmetry: E) -> E:
    """``amplitude * cos(pi a / 2 + (1 - a) * arctan(u)) / (1 + u**2)**((1 - a) / 2)``, where a is the asymmetry.

    Doniach and Sunjic's line of metals in photoemission.
    """
    u = (x - center) / sigma
    angle = 0.5 * math.pi * asymmetry + (1.0 - asymmetry) * make("arctan", u)
    return amplitude * make("cos", angle) * exp(-0.5 * (1.0 - asymmetry) * make("log1p", u * u))


@curve
def damped_oscillator(x: E, amplitude: E, center: E, sigma: E) -> E:
    """``amplitude / sqrt((1 - (x / center)**2)**2 + (2 * sigma * x / center)**2)``: a driven oscillator's response."""
    v = x / center
    return amplitude / make("sqrt", (1.0 - v * v) * (1.0 - v * v) + 4.0 * (sigma * v) * (sigma * v))


@curve
def damped_harmonic_oscillator(x: E, amplitude: E, center: E, sigma: E, gamma: E) -> E:
    """``amplitude * sigma / pi * n(x) * (L(x - center) - L(x + center))``, ``L(v) = 1 / (v**2 + sigma**2)``.

    ``n(x) = 1 / (1 - exp(-x / gamma))`` is the thermal factor: the excitation of a sample at a
    temperature gamma in the units of x, as in neutron scattering.
    """
    stokes = 1.0 / ((x - center) * (x - center) + sigma * sigma)
    anti = 1.0 / ((x + center) * (x + center) + sigma * sigma)
    # Both factors vanish at x = 0; their ratio does not.
    near = abs(x / gamma) < 1e-9
    v = make("minimum", -where(near, 1.0, x / gamma), constant(500.0))
    bose = where(near, gamma, x / -make("expm1", v))
    return amplitude * sigma / math.pi * bose * 4.0 * center * stokes * anti


@listed
def gaussian_2d() -> Model:
    """``amplitude * exp(-((x - center_x) / sigma_x)**2 / 2 - ((y - center_y) / sigma_y)**2 / 2)``, of x and y."""

    amplitude, center_x, center_y, sigma_x, sigma_y = map(parameter, range(5))
    u, v = (variable(0) - center_x) / sigma_x, (variable(1) - center_y) / sigma_y
    names = ("amplitude", "center_x", "center_y", "sigma_x", "sigma_y")
    return Model.from_expression(amplitude * exp(-0.5 * (u * u + v * v)), names, ("x", "y"), kind="gaussian_2d")
