"""Ready-made curves: formulas to check them against, and random cases for their first guesses.

``python -m tests.helpers.curves [name ...]`` tries a thousand cases of each (or of some) and prints the share in which
plain Levenberg-Marquardt, started from the guess, reaches a fit as good as the true parameters.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import lmfit.lineshapes as shapes
import numpy as np
from scipy import special, stats
from scipy.interpolate import CubicSpline
from scipy.optimize import leastsq

from problm import formula, models

KNOTS = [0.0, 1.5, 3.0, 5.0, 7.0, 8.5, 10.0]


def _height(shape: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """An lmfit lineshape (of a given area) as one of a given height at the center."""

    def curve(x: Any, amplitude: float, center: float, *rest: float) -> Any:
        more = dict(zip(names, rest, strict=True))
        return amplitude * shape(x, 1.0, center, **more) / shape(np.array([center]), 1.0, center, **more)[0]

    return curve


def _step(form: str) -> Callable[..., Any]:
    return lambda x, a, m, s: shapes.step(x, a, m, s, form)


def _emg(x: Any, area: float, center: float, sigma: float, rate: float) -> Any:
    return area * stats.exponnorm.pdf(x, 1.0 / (sigma * rate), center, sigma)


# model, parameters, reference
CURVES: dict[str, tuple[Any, list[float], Callable[..., Any]]] = {
    "exponential": (models.exponential(), [2.0, 0.7, 0.3], lambda x, a, r, c: a * np.exp(-r * x) + c),
    "gaussian": (models.gaussian(), [2.0, 3.0, 0.8], _height(shapes.gaussian, "sigma")),
    "lorentzian": (models.lorentzian(), [2.0, 3.0, 0.8], _height(shapes.lorentzian, "sigma")),
    "voigt": (models.voigt(), [2.0, 3.0, 0.8, 0.4], lambda x, a, m, s, g: a * special.voigt_profile(x - m, s, g)),
    "power_law": (models.power_law(), [2.0, -1.3], shapes.powerlaw),
    "logistic": (models.logistic(), [2.0, 3.0, 1.5, 0.2], lambda x, a, m, r, c: a * special.expit(r * (x - m)) + c),
    "damped_sine": (models.damped_sine(), [2.0, 0.3, 0.8, 0.5],
                    lambda x, a, r, f, p: a * np.exp(-r * x) * np.sin(2 * np.pi * f * x + p)),
    "polynomial": (models.polynomial(3), [1.0, -2.0, 0.5, 0.1], lambda x, *c: np.polynomial.polynomial.polyval(x, c)),
    "line": (models.line(), [2.0, -1.0], shapes.linear),
    "constant_background": (models.constant_background(), [2.0], lambda x, c: c + 0 * x),
    "split_lorentzian": (models.split_lorentzian(), [2.0, 3.0, 0.8, 0.4],
                         _height(shapes.split_lorentzian, "sigma", "sigma_r")),
    "pseudo_voigt": (models.pseudo_voigt(), [2.0, 3.0, 0.8, 0.3],
                     lambda x, a, m, s, f: a * ((1 - f) * _height(shapes.gaussian, "sigma")(
                         x, 1, m, s / np.sqrt(2 * np.log(2))) + f * _height(shapes.lorentzian, "sigma")(x, 1, m, s))),
    "moffat": (models.moffat(), [2.0, 3.0, 0.8, 1.7], shapes.moffat),
    "pearson4": (models.pearson4(), [2.0, 3.0, 0.8, 1.7, 0.6], _height(shapes.pearson4, "sigma", "expon", "skew")),
    "pearson7": (models.pearson7(), [2.0, 3.0, 0.8, 1.7],
                 lambda x, a, m, s, e: a * (1 + ((x - m) / s) ** 2 * (2 ** (1 / e) - 1)) ** -e),
    "students_t": (models.students_t(), [2.0, 3.0, 0.8, 2.5],
                   lambda x, a, m, s, nu: a * stats.t.pdf((x - m) / s, nu) / stats.t.pdf(0, nu)),
    "breit_wigner": (models.breit_wigner(), [2.0, 3.0, 0.8, 1.2], shapes.breit_wigner),
    "lognormal": (models.lognormal(), [2.0, 3.0, 0.4],
                  lambda x, a, m, s: a * x * stats.lognorm.pdf(x, s, scale=m) * s * np.sqrt(2 * np.pi)),
    "exponential_gaussian": (models.exponential_gaussian(), [2.0, 3.0, 0.3, 1.4], _emg),
    "skewed_gaussian": (models.skewed_gaussian(), [2.0, 3.0, 0.8, 1.5],
                        lambda x, a, m, s, g: a * shapes.skewed_gaussian(x, np.sqrt(2 * np.pi) * s, m, s, g)),
    "skewed_voigt": (models.skewed_voigt(), [2.0, 3.0, 0.8, 0.4, 1.5], shapes.skewed_voigt),
    "doniach": (models.doniach(), [2.0, 3.0, 0.8, 0.2],
                lambda x, a, m, s, g: a * s ** (1 - g) * shapes.doniach(x, 1.0, m, s, g)),
    "damped_oscillator": (models.damped_oscillator(), [2.0, 3.0, 0.2], shapes.damped_oscillator),
    "damped_harmonic_oscillator": (models.damped_harmonic_oscillator(), [2.0, 3.0, 0.8, 1.3], shapes.dho),
    "gaussian_2d": (models.gaussian_2d(), [2.0, 3.0, 4.0, 0.8, 1.5],
                    lambda x, a, m, n, s, t: 2 * np.pi * s * t * shapes.gaussian2d(x[0], x[1], a, m, n, s, t)),
    "michaelis_menten": (models.michaelis_menten(), [2.0, 3.0], lambda x, v, k: v * x / (k + x)),
    "hill": (models.hill(), [2.0, 3.0, 1.6], lambda x, a, k, n: a * x**n / (k**n + x**n)),
    "logistic_4pl": (models.logistic_4pl(), [0.3, 2.0, 3.0, 1.6],
                     lambda x, b, t, e, s: b + (t - b) / (1 + (e / x) ** s)),
    "logistic_5pl": (models.logistic_5pl(), [0.3, 2.0, 3.0, 1.6, 0.7],
                     lambda x, b, t, e, s, g: t + (b - t) / (1 + (x / e) ** s) ** g),
    "gompertz": (models.gompertz(), [2.0, 3.0, 1.1], lambda x, a, m, r: a * stats.gumbel_r.cdf(x, m, 1 / r)),
    "weibull": (models.weibull(), [2.0, 3.0, 1.6], lambda x, a, k, s: a * stats.weibull_min.cdf(x, s, scale=k)),
    "stretched_exponential": (models.stretched_exponential(), [2.0, 3.0, 0.7, 0.4],
                              lambda x, a, t, b, c: a * np.exp(-((x / t) ** b)) + c),
    "double_exponential": (models.double_exponential(), [2.0, 2.5, 1.0, 0.3, 0.4],
                           lambda x, a, r, b, s, c: a * np.exp(-r * x) + b * np.exp(-s * x) + c),
    "decay_chain": (models.decay_chain(), [2.0, 1.1, 0.4],
                    lambda x, a, k, m: a * k / (m - k) * (np.exp(-k * x) - np.exp(-m * x))),
    "arrhenius": (models.arrhenius(), [2.0, 12.0], lambda x, a, e: a * np.exp(-e / (8.314462618 * x))),
    "step": (models.step(), [2.0, 3.0, 0.8], _step("erf")),
    "rectangle": (models.rectangle(), [2.0, 2.0, 0.3, 4.0, 0.6],
                  lambda x, *t: shapes.rectangle(x, *t, form="erf")),
    "sine": (models.sine(), [2.0, 0.8, 0.5], lambda x, a, f, p: shapes.sine(x, a, 2 * np.pi * f, p)),
    "fermi_dirac": (models.fermi_dirac(), [2.0, 3.0, 0.4],
                    lambda x, a, m, k: a * shapes.thermal_distribution(x, 1.0, m, k, form="fermi")),
    "bose_einstein": (models.bose_einstein(), [2.0, -0.5, 0.9],
                      lambda x, a, m, k: a * shapes.thermal_distribution(x, 1.0, m, k, form="bose")),
    "maxwell_boltzmann": (models.maxwell_boltzmann(), [2.0, 1.5],
                          lambda x, a, k: shapes.thermal_distribution(x, 1 / a, 0.0, k, form="maxwell")),
    "quadratic": (models.quadratic(), [2.0, -1.0, 0.5], shapes.parabolic),
    "spline": (models.spline(KNOTS), [1.0, 2.0, 0.5, 0.0, 1.0, 2.0, 1.0], lambda x, *s: CubicSpline(KNOTS, s)(x)),
}  # fmt: skip
"""Each ready-made model with parameters and an independent implementation (lmfit's, SciPy's or the formula)."""


def between(low: float, high: float) -> Callable[[Any], float]:
    return lambda rng: float(np.exp(rng.uniform(np.log(low), np.log(high))))


def uniform(low: float, high: float) -> Callable[[Any], float]:
    return lambda rng: float(rng.uniform(low, high))


def signed(low: float, high: float) -> Callable[[Any], float]:
    return lambda rng: float(rng.choice([-1, 1]) * rng.uniform(low, high))


_H, _C, _S, _N = signed(1, 5), uniform(1.5, 8.5), between(0.15, 2), uniform(0.2, 0.8)
# Parameters drawn at random, on x from 0 to 10.
DRAWS: dict[str, list[Callable[[Any], float]]] = {
    "exponential": [_H, between(0.15, 3), uniform(-3, 3)],
    "gaussian": [_H, uniform(1, 9), between(0.1, 2.5)],
    "lorentzian": [_H, uniform(1, 9), between(0.1, 2)],
    "voigt": [signed(3, 10), uniform(2, 8), _N, _N],
    "power_law": [_H, uniform(-2, 3)],
    "logistic": [signed(2, 5), uniform(2, 8), between(0.7, 8), uniform(-3, 3)],
    "damped_sine": [uniform(1, 5), uniform(0.02, 0.6), between(0.2, 5), uniform(0, 6.28)],
    "polynomial": [uniform(-2, 2)] * 4,
    "line": [uniform(-2, 2)] * 2,
    "constant_background": [uniform(-2, 2)],
    "split_lorentzian": [_H, _C, between(0.2, 1.5), between(0.2, 1.5)],
    "pseudo_voigt": [_H, _C, between(0.2, 1.5), uniform(0, 1)],
    "moffat": [_H, _C, between(0.2, 1.5), between(0.8, 4)],
    "pearson4": [_H, _C, between(0.2, 1), between(0.8, 3), uniform(-2, 2)],
    "pearson7": [_H, _C, between(0.2, 1.5), between(0.8, 4)],
    "students_t": [_H, _C, between(0.2, 1), between(1, 8)],
    "breit_wigner": [uniform(1, 5), _C, between(0.3, 2), signed(0.3, 4)],
    "lognormal": [_H, uniform(1, 6), between(0.1, 0.8)],
    "exponential_gaussian": [signed(2, 8), uniform(1.5, 6), uniform(0.1, 0.6), between(0.4, 4)],
    "skewed_gaussian": [_H, _C, between(0.3, 2), signed(0.3, 5)],
    "skewed_voigt": [signed(3, 10), uniform(2, 8), _N, _N, signed(0.3, 4)],
    "doniach": [_H, _C, between(0.2, 1), uniform(0.02, 0.4)],
    "damped_oscillator": [_H, uniform(1.5, 8), between(0.02, 0.3)],
    "damped_harmonic_oscillator": [signed(2, 8), uniform(1.5, 8), between(0.2, 1), between(0.5, 5)],
    "gaussian_2d": [_H, _C, _C, between(0.5, 3), between(0.5, 3)],
    "michaelis_menten": [uniform(1, 5), between(0.3, 8)],
    "hill": [uniform(1, 5), between(1, 7), between(0.7, 5)],
    "logistic_4pl": [uniform(-1, 1), uniform(2, 5), between(1, 7), signed(1, 5)],
    "logistic_5pl": [uniform(-1, 1), uniform(2, 5), between(1, 7), uniform(1.2, 5), between(0.4, 2.5)],
    "gompertz": [_H, uniform(1, 7), between(0.5, 4)],
    "weibull": [_H, between(1, 6), between(0.7, 5)],
    "stretched_exponential": [_H, between(0.5, 5), uniform(0.4, 2), uniform(-2, 2)],
    "double_exponential": [uniform(1, 5), between(2, 6), uniform(1, 5), between(0.2, 0.8), uniform(-2, 2)],
    "decay_chain": [uniform(1, 5), between(0.5, 3), between(0.1, 0.45)],
    "arrhenius": [_H, between(5, 100)],
    "step": [_H, uniform(2, 8), between(0.1, 2)],
    "rectangle": [_H, uniform(1.5, 4), between(0.1, 0.5), uniform(6, 8.5), between(0.1, 0.5)],
    "sine": [uniform(1, 5), between(0.1, 8), uniform(0, 6.28)],
    "fermi_dirac": [_H, uniform(2, 8), between(0.1, 1.5)],
    "bose_einstein": [_H, uniform(-2, -0.2), between(0.5, 4)],
    "maxwell_boltzmann": [_H, between(0.4, 8)],
    "quadratic": [uniform(-2, 2)] * 3,
    "spline": [uniform(-2, 2)] * len(KNOTS),
}
SUMS: dict[str, tuple[Any, list[Callable[[Any], float]]]] = {
    "peak on a line": (
        models.gaussian() + models.line(), [_H, uniform(1, 9), between(0.1, 1.5), uniform(-1, 1), uniform(-3, 3)]),
    "two peaks on a line": (
        models.gaussian() + models.gaussian() + models.line(),
        [uniform(2, 5), uniform(1, 4), uniform(0.2, 0.6), uniform(2, 5), uniform(6, 9), uniform(0.2, 0.6),
         uniform(-0.3, 0.3), uniform(-3, 3)]),
    "a peak on a decay": (
        models.exponential() + models.gaussian(),
        [uniform(2, 5), uniform(0.3, 1), uniform(-1, 1), uniform(2, 5), uniform(3, 8), uniform(0.2, 0.6)]),
    "oscillation about a level": (
        models.damped_sine() + models.constant_background(),
        [uniform(1, 5), uniform(0.02, 0.6), between(0.2, 5), uniform(0, 6.28), uniform(-5, 5)]),
    "a period": (
        formula("c + a*cos(2*pi*(x - t0)/P)"), [uniform(-5, 5), uniform(1, 5), uniform(0, 1), between(0.2, 8)]),
    "a period and its half": (
        formula("c + a*sin(2*pi*x/P + p) + b*sin(4*pi*x/P + q)"),
        [uniform(-5, 5), uniform(1, 5), between(0.4, 6), uniform(0, 6.28), uniform(0.3, 1), uniform(0, 6.28)]),
    "a spot at an angle": (
        formula("c + a*exp(-(((x - m)*cos(q) + (y - n)*sin(q))/s)**2 - (((y - n)*cos(q) - (x - m)*sin(q))/t)**2)",
                ("x", "y")),
        [uniform(-2, 2), uniform(1, 5), uniform(2, 8), uniform(0, 3.14), uniform(2, 8), uniform(1, 3),
         uniform(0.4, 0.9)]),
    "a plane wave": (
        formula("c + a*sin(u*x + v*y + p)", ("x", "y")),
        [uniform(-2, 2), uniform(1, 5), signed(0.5, 10), uniform(0.5, 10), uniform(0, 6.28)]),
    "doses over decades": (
        models.logistic_4pl(), [uniform(-1, 1), uniform(2, 5), between(0.01, 10), signed(0.7, 3)]),
    "doses over decades, by logarithms": (
        formula("low + (high - low)/(1 + exp(-k*(log(x) - m)))"),
        [uniform(-1, 1), uniform(2, 5), signed(0.7, 3), uniform(-4.6, 2.3)]),
    "a decay over decades": (models.exponential(), [_H, between(0.1, 100), uniform(-3, 3)]),
}  # fmt: skip
DECADES = ("doses over decades", "doses over decades, by logarithms", "a decay over decades")
"""Curves of x from 0.001 to 100, spaced by logarithms."""
PLANES = ("gaussian_2d", "a spot at an angle", "a plane wave")
"""Curves of two variables."""


MOVABLE = ("gaussian", "lorentzian", "voigt", "logistic", "split_lorentzian", "pseudo_voigt", "moffat", "pearson4",
           "pearson7", "students_t", "breit_wigner", "exponential_gaussian", "skewed_gaussian", "skewed_voigt",
           "doniach", "gaussian_2d", "gompertz", "step", "rectangle", "sine", "fermi_dirac", "bose_einstein", "line",
           "quadratic", "peak on a line", "two peaks on a line", "a period", "a period and its half",
           "a spot at an angle", "a plane wave")  # fmt: skip
"""Curves that remain of their kind if x starts elsewhere."""


def case(name: str, seed: int, units: bool = False) -> tuple[Any, Any, Any, Any]:
    """Model, x, y, and the curve without noise: 100 to 5000 points, evenly or randomly spaced.

    With ``units``, x and y are scaled by factors from 1e-3 to 1e3, and where the kind of curve permits it, x begins up
    to five ranges from zero.
    """
    rng = np.random.default_rng(1000 + seed)
    model, draw = SUMS[name] if name in SUMS else (CURVES[name][0], DRAWS[name])
    n = int(rng.choice([100, 300, 1000, 5000]))
    x = np.sort(rng.uniform(0, 10, n)) if seed % 2 else np.linspace(0, 10, n)
    if name in ("power_law", "arrhenius", "logistic_4pl"):
        x = x + 0.3
    if name in PLANES:
        x = rng.uniform(0, 10, (2, n))
    if name in DECADES:
        x = 10.0 ** (0.5 * x - 3.0)
    clean = model(x, *(f(rng) for f in draw))
    y = clean + (0.05 * clean.std() + 0.02) * rng.standard_normal(n)
    if units and name != "spline":  # whose knots are given
        begin, length, height = uniform(-60, 50)(rng), between(1e-3, 1e3)(rng), between(1e-3, 1e3)(rng)
        x = length * (x + begin if name in MOVABLE else x)
        y, clean = height * y, height * clean
    return model, x, y, clean


def found(name: str, seed: int, units: bool = False) -> bool:
    """Whether Levenberg-Marquardt from the guess ends as low as the truth."""
    model, x, y, clean = case(name, seed, units)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        theta = leastsq(
            lambda t: np.nan_to_num(model(x, *t) - y, nan=1e100), model.guess(x, y), maxfev=2000,
            Dfun=lambda t: np.nan_to_num(model.jacobian(x, *t)),
        )[0]  # fmt: skip
        return bool(np.sum((model(x, *theta) - y) ** 2) <= 1.001 * np.sum((clean - y) ** 2))


def main(names: list[str], rounds: int = 1000) -> None:
    if names and names[0].isdigit():
        rounds, names = int(names[0]), names[1:]
    for name in names or [*DRAWS, *SUMS]:
        start = time.perf_counter()
        misses = [seed for seed in range(rounds) if not found(name, seed)]
        took = (time.perf_counter() - start) / rounds
        print(f"{name:28} {100 - 100 * len(misses) / rounds:6.1f} %  {1e3 * took:6.1f} ms  {misses[:6]}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
