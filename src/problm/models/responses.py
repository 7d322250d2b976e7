"""Growth, dose and response, kinetics."""

from __future__ import annotations

from .expression import Expression as E
from .expression import constant, exp, make, where
from .ready_made import curve

_GAS = 8.314462618
"""The gas constant in J / (mol K)."""


def _ratio(x: E, scale: E, exponent: E) -> E:
    """``(x / scale)**exponent`` as a quotient of powers, so that its derivative with respect to the scale exists at
    x = 0."""
    return x**exponent / abs(scale) ** exponent


@curve
def michaelis_menten(x: E, vmax: E, km: E) -> E:
    """``vmax * x / (km + x)``."""
    return vmax * (x / (km + x))


@curve
def hill(x: E, amplitude: E, half: E, exponent: E) -> E:
    """``amplitude * x**exponent / (half**exponent + x**exponent)``, x >= 0."""
    return amplitude - amplitude / (1.0 + _ratio(x, half, exponent))


@curve
def logistic_4pl(x: E, bottom: E, top: E, ec50: E, slope: E) -> E:
    """``bottom + (top - bottom) / (1 + (ec50 / x)**slope)``, x >= 0: the four-parameter dose-response curve."""
    return top + (bottom - top) / (1.0 + _ratio(x, ec50, slope))


@curve
def logistic_5pl(x: E, bottom: E, top: E, ec50: E, slope: E, asymmetry: E) -> E:
    """``top + (bottom - top) / (1 + (x / ec50)**slope)**asymmetry``, x >= 0: five parameters, asymmetric."""
    return top + (bottom - top) * exp(-asymmetry * make("log1p", _ratio(x, ec50, slope)))


@curve
def gompertz(x: E, amplitude: E, center: E, rate: E) -> E:
    """``amplitude * exp(-exp(-rate * (x - center)))``: growth, fastest at the center."""
    # exp(500) is large enough and does not overflow, also in derivatives.
    return amplitude * exp(-exp(make("minimum", -rate * (x - center), constant(500.0))))


@curve
def weibull(x: E, amplitude: E, scale: E, shape: E) -> E:
    """``amplitude * (1 - exp(-(x / scale)**shape))``, x >= 0."""
    return amplitude * -make("expm1", -_ratio(x, scale, shape))


@curve
def stretched_exponential(x: E, amplitude: E, tau: E, beta: E, offset: E) -> E:
    """``amplitude * exp(-(x / tau)**beta) + offset``, x >= 0."""
    return amplitude * exp(-_ratio(x, tau, beta)) + offset


@curve
def double_exponential(x: E, amplitude_1: E, rate_1: E, amplitude_2: E, rate_2: E, offset: E) -> E:
    """``amplitude_1 * exp(-rate_1 * x) + amplitude_2 * exp(-rate_2 * x) + offset``."""
    return amplitude_1 * exp(-rate_1 * x) + amplitude_2 * exp(-rate_2 * x) + offset


@curve
def decay_chain(x: E, amplitude: E, rate_1: E, rate_2: E) -> E:
    """``amplitude * rate_1 / (rate_2 - rate_1) * (exp(-rate_1 * x) - exp(-rate_2 * x))``: the middle of A -> B -> C."""
    gap = rate_2 - rate_1
    near = abs(gap * x) < 1e-7
    safe = where(near, 1.0, gap)
    return amplitude * rate_1 * exp(-rate_1 * x) * where(near, x, -make("expm1", -safe * x) / safe)


@curve
def arrhenius(x: E, amplitude: E, energy: E) -> E:
    """``amplitude * exp(-energy / (R x))``, x in kelvin, energy in J/mol, R the gas constant."""
    return amplitude * exp(-energy / (_GAS * x))
