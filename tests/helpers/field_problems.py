"""Random problems from more fields than `tests.helpers.wild_problems`: compartments, line shapes, poles, geometry.

``make(family, seed)`` gives a `Wild`. Besides what varies there, starts are near, off, far, or the formula's own guess,
and data may be in single precision.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import problm
from tests.helpers.wild_problems import Family, Rng, Values, Wild, grid, made, u

STARTS = ("near", "off", "far", "guess")
_TWO = "sqrt((k+m+n)**2-4*k*n)"
_FAST, _SLOW = f"((k+m+n+{_TWO})/2)", f"((k+m+n-{_TWO})/2)"
"""Rates of two compartments with elimination k and exchange m, n."""


def _log(*ranges: tuple[float, float]):
    """Values between 10 to these powers."""
    return lambda rng: [10 ** rng.uniform(*r) for r in ranges]


def _plane(rng: Rng, t: np.ndarray, n: int) -> Sequence[np.ndarray]:
    x, y = rng.uniform(-2, 2, n), rng.uniform(-2, 2, n)
    return x, y, t[2] * np.sqrt(1 + t[0] ** 2 + t[1] ** 2) - t[0] * x - t[1] * y


def _line(rng: Rng, t: np.ndarray, n: int) -> Sequence[np.ndarray]:
    z = rng.uniform(-3, 3, n)
    return t[0] + t[1] * z, t[2] + t[3] * z, z


def _anchors(rng: Rng, n: int) -> Sequence[np.ndarray]:
    """Some anchors, often nearly on a line, each with many measured ranges."""
    k = int(rng.integers(3, 9))
    flat = 10 ** rng.uniform(-2, 0)
    which = rng.integers(k, size=n)
    return rng.uniform(-10, 10, k)[which], flat * rng.uniform(-10, 10, k)[which]


def _two_doses(rng: Rng, n: int) -> Sequence[np.ndarray]:
    return 10 ** rng.uniform(-1, 1.5, n), rng.choice([0.0, 0.5, 2.0, 8.0], n)


def _decade_weights(rng: Rng, n: int) -> Sequence[np.ndarray]:
    return rng.uniform(0.1, 5, n), 10 ** rng.uniform(-rng.uniform(0, 6), 0, n)


def _rates(rng: Rng) -> Values:
    k = rng.uniform(0.3, 1)
    return 1.0, k, rng.uniform(0.5, 2), k * rng.uniform(1.02, 2), rng.uniform(0.5, 2), k * rng.uniform(2, 4)


FAMILIES: dict[str, Family] = {
    "oral dose": Family("d*k/(k-l)*(exp(-l*x)-exp(-k*x))*0.1/v", u((1, 5), (0.9, 3), (0.1, 0.7), (0.3, 3)),
                        grid(0, 12)),
    "oral dose, late": Family("a*(exp(-l*max(x-t,0))-exp(-k*max(x-t,0)))",
                              u((1, 5), (0.1, 0.5), (0.2, 2), (0.8, 3)), grid(0, 12)),
    "two compartments": Family(
        f"d*(({_FAST}-n)*exp(-{_FAST}*x)+(n-{_SLOW})*exp(-{_SLOW}*x))/{_TWO}",
        u((1, 5), (0.2, 1), (0.1, 1), (0.1, 0.8)), grid(0, 15)),
    "steady infusion": Family("r/c*(1-exp(-c/v*x))", u((1, 5), (0.3, 2), (1, 9)), grid(0, 12)),
    "sigmoid Emax": Family("b+m*x**h/(c**h+x**h)", u((0, 1), (1, 4), (0.6, 6), (0.5, 6)), grid(0.02, 12)),
    "log dose": Family("b+(t-b)/(1+10**((l-x)*h))", u((0, 0.3), (1, 3), (-7, -5), (0.5, 2)), grid(-9, -4), spread=0.2),
    "five parameters": Family("d+(a-d)/(1+(x/c)**b)**g", u((1, 3), (-0.2, 0.2), (0.5, 5), (0.8, 3), (0.4, 2)),
                              grid(0.02, 20), spread=0.3),
    "competitive inhibition": Family("v*x/(k*(1+y/i)+x)", u((1, 5), (0.3, 5), (0.2, 5)), _two_doses, ("x", "y")),
    "cooperative": Family("v*(x/k)*(1+x/k)/(l+(1+x/k)**2)", u((1, 5), (0.3, 3), (1, 60)), grid(0.01, 15)),
    "three rates": Family("a*exp(-k*x)+b*exp(-l*x)+c*exp(-m*x)", _rates, grid(0, 8), spread=0.2,
                          noise=(1e-6, 1e-4, 0.01)),
    "log rates": Family("exp(a-exp(k)*x)+exp(b-exp(l)*x)", u((0, 1), (-2, -0.5), (-1, 1), (0, 1.5)), grid(0, 8),
                        spread=0.4),
    "softplus": Family("log(exp(a)+exp(b+c*x))", u((-1, 1), (-4, 0), (0.5, 2)), grid(0, 8)),
    "Fano": Family("h*(q+(x-m)/w)**2/(1+((x-m)/w)**2)+c", u((0.5, 2), (-3, 3), (4, 6), (0.2, 1), (0, 1)), grid(0, 10),
                   spread=0.2),
    "Lorentz, phase": Family("(a*(x-m)/w+b)/(1+((x-m)/w)**2)+c+d*x",
                             u((-2, 2), (4, 6), (0.2, 1), (-2, 2), (0, 1), (-0.1, 0.1)), grid(0, 10), spread=0.15),
    "pseudo-Voigt": Family("a*(s/(1+((x-m)/w)**2)+(1-s)*exp(-0.6931*((x-m)/w)**2))+c",
                           u((1, 3), (0.1, 0.9), (4, 6), (0.3, 1.5), (0, 1)), grid(0, 10), spread=0.2),
    "resonance": Family("f/sqrt((w*w-x*x)**2+(g*x)**2)", u((1, 3), (2, 4), (0.05, 1)), grid(0.1, 6), spread=0.2),
    "Fabry-Perot": Family("a/(1+f*sin(d*x+p)**2)", u((1, 3), (1, 30), (1, 2), (0, 1)), grid(0, 6), spread=0.05),
    "pole": Family("(a+b*x)/(x-c)+d", lambda r: (r.uniform(-2, 2), r.uniform(-1, 1), r.uniform(-3, 6), 0.0), grid(0, 4),
                   spread=0.3),
    "pole outside": Family("a/(c-x)**b", lambda r: (r.uniform(0.5, 2), r.uniform(4.01, 6), r.uniform(0.5, 2.5)),
                           grid(0, 4), spread=0.1),
    "Pade": Family("(a+b*x+c*x*x)/(1+d*x)", u((0.5, 2), (-1, 1), (-1, 1), (0.05, 2)), grid(0, 6)),
    "power, shifted": Family("a*(x+c)**b", lambda r: (r.uniform(0.5, 3), 10 ** r.uniform(-2, 0.5), r.uniform(-2.5, 2)),
                             grid(0.02, 8), spread=0.3),
    "cutoff power": Family("a*x**(-g)*exp(-x/t)", u((1, 5), (0.3, 3), (0.5, 5)), grid(0.1, 10)),
    "arctan edge": Family("b+c*x+a*arctan((x-m)/w)", u((0, 1), (-0.1, 0.1), (0.5, 2), (3, 7), (0.05, 1.5)),
                          grid(0, 10)),
    "tanh edge": Family("b+a*tanh((x-m)/w)", u((0, 1), (0.5, 2), (3, 7), (0.05, 1.5)), grid(0, 10)),
    "erf edges": Family("b+a*(erf((x-m)/w)-erf((x-n)/w))", u((0, 1), (0.5, 2), (2, 4), (0.1, 1), (6, 8)), grid(0, 10),
                        spread=0.2),
    "two segments": Family("max(a+b*x,c+d*x)", u((2, 4), (-1, -0.2), (-2, 0), (0.2, 1)), grid(0, 8), spread=0.3),
    "bent line": Family("a+b*x+c*sqrt((x-k)**2+s*s)", u((-1, 1), (-1, 1), (0.3, 2), (2, 8), (0.01, 1)), grid(0, 10),
                        spread=0.3),
    "rectified": Family("a*abs(sin(w*x+p))+c", u((1, 3), (0.8, 2), (0.2, 1.2), (-1, 1)), grid(0, 8), spread=0.05),
    "two phases": Family("a*sin(w*x+p)+b*cos(w*x)", u((1, 3), (1, 2), (-3, 3), (-1, 1)), grid(0, 8), spread=0.05),
    "polariser": Family("a*cos(x-p)**2+c", u((1, 3), (-3, 3), (0, 1)), grid(0, 6), spread=1.0),
    "order n": Family("a*(1+(n-1)*k*a**(n-1)*x)**(-1/(n-1))", u((1, 3), (1.2, 3), (0.1, 1)), grid(0, 8), spread=0.3),
    "drag": Family("v*v/g*log((exp(g*x/v)+exp(-g*x/v))/2)", u((5, 30), (5, 15)), grid(0, 6)),
    "epidemic": Family("k/(1+(k-p)/p*exp(-r*k*x))", u((2, 9), (0.01, 0.3), (0.05, 0.3)), grid(0, 12), spread=0.3),
    "scales only": Family("a*b*x/(c*b+x)", u((0.5, 2), (0.5, 2), (0.5, 3)), grid(0.05, 9)),
    "ratio": Family("a*b*exp(-c/b*x)", u((0.5, 2), (0.5, 2), (0.3, 1)), grid(0, 6)),
    "plane": Family("(a*x+b*y+z)/sqrt(1+a*a+b*b)-c", u((-2, 2), (-2, 2), (-1, 1)), grid(0, 1), ("x", "y", "z"),
                    noise=(1e-4, 0.01, 0.3), implicit=_plane),
    "line in space": Family("sqrt((x-p-u*z)**2+(y-q-v*z)**2)", u((-1, 1), (-2, 2), (-1, 1), (-2, 2)), grid(0, 1),
                            ("x", "y", "z"), noise=(1e-3, 0.03, 0.3), implicit=_line),
    "ranges": Family("sqrt((x-a)**2+(y-b)**2)", u((-8, 8), (-8, 8)), _anchors, ("x", "y"), noise=(1e-3, 0.03, 0.3)),
    "ranges, clock": Family("sqrt((x-a)**2+(y-b)**2)+t", u((-8, 8), (-8, 8), (-3, 3)), _anchors, ("x", "y"),
                            noise=(1e-3, 0.03, 0.3)),
    "Weibull density": Family("a*k/s*(x/s)**(k-1)*exp(-(x/s)**k)", u((1, 4), (0.7, 5), (1, 4)), grid(0.02, 9),
                              spread=0.4),
    "Gumbel": Family("a/s*exp(-(x-m)/s-exp(-(x-m)/s))", u((1, 4), (0.3, 2), (2, 6)), grid(0, 12), spread=0.3),
    "log-normal": Family("a/x*exp(-(log(x)-m)**2/(2*s*s))", u((1, 4), (0, 1.5), (0.15, 1)), grid(0.05, 15), spread=0.3),
    "gamma variate": Family("a*max(x-t,1e-9)**k*exp(-max(x-t,0)/b)", u((0.5, 2), (1, 3), (1.5, 3), (0.5, 2)),
                            grid(0, 15), spread=0.2),
    "Morse": Family("d*(1-exp(-a*(x-r)))**2-c", u((1, 5), (0.8, 2), (1, 2), (0, 3)), grid(0.7, 6), spread=0.2),
    "Lennard-Jones": Family("4*d*((s/x)**12-(s/x)**6)", u((0.5, 2), (1, 1.5)), grid(1, 4), spread=0.1),
    "diode": Family("i*(exp(x/(n*0.02585))-1)", lambda r: (10 ** r.uniform(-12, -8), r.uniform(1, 2)), grid(0, 0.7),
                    spread=0.1),
    "thermistor": Family("1/(a+b*log(x)+c*log(x)**3)", u((1e-3, 1.6e-3), (2e-4, 3e-4), (5e-8, 2e-7)), grid(200, 4e4),
                         spread=0.1, noise=(1e-6, 1e-4, 0.01)),
    "BET": Family("a*c*x/((1-x)*(1+(c-1)*x))", lambda r: (r.uniform(0.5, 3), 10 ** r.uniform(0.3, 2.5)),
                  grid(0.02, 0.8)),
    "van Genuchten": Family("r+(s-r)/(1+(a*x)**n)**(1-1/n)", u((0.02, 0.1), (0.3, 0.5), (0.5, 5), (1.2, 3)),
                            grid(0.01, 20), spread=0.2),
    "Redlich": Family("a*x/(1+b*x**g)", u((1, 5), (0.2, 3), (0.4, 1)), grid(0.02, 20)),
    "pulse": Family("a*(1-exp(-x/r))**p*exp(-x/f)", u((1, 5), (0.2, 1), (1, 3), (1, 5)), grid(0, 12), spread=0.3),
    "transit": Family("c-d*(tanh((x-m+w)/s)-tanh((x-m-w)/s))", u((1, 2), (0.05, 0.5), (4, 6), (1, 2), (0.05, 0.5)),
                      grid(0, 10), spread=0.1),
    "weighted power": Family("w*(a*x**b+c)", u((0.5, 3), (-1.5, 2), (-1, 1)), _decade_weights, ("x", "w")),
    "low pass": Family("a/sqrt(1+(6.2832*x*t)**2)", _log((-1, 1), (-5, -3)), grid(10, 1e5)),
}  # fmt: skip


def make(family: str, seed: int) -> Wild:
    """The problem of this family with this seed: the same in every process."""
    rng = np.random.default_rng([list(FAMILIES).index(family), 17, seed])
    it, kind = FAMILIES[family], str(rng.choice(STARTS))

    def start(rng: Rng, truth: np.ndarray) -> np.ndarray:
        d = len(truth)
        if kind == "far":
            return truth * 10 ** rng.uniform(-0.7, 0.7, d) + 0.3 * rng.standard_normal(d) * (np.abs(truth) > 1e-3)
        off = it.spread * (0.1 if kind == "near" else 1.0)
        return truth * (1 + off * rng.uniform(-1, 1, d)) + 0.1 * off * rng.uniform(-1, 1, d) * (truth == 0)

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wild = made(replace(it, start=start), f"{family} {seed}, {kind}", rng)
        single, fit = rng.random() < 0.1, wild.fit
        if single:
            fit = replace(fit, data=tuple(c.astype(np.float32) for c in fit.data))
        if single and wild.how == "formula":  # which is evaluated in double precision

            def fun(theta: Any, *rows: np.ndarray, own: Any = fit.fun) -> Any:
                return own(theta, *(c.astype(float) for c in rows))

            fit = replace(fit, fun=fun)
        if kind == "guess":
            fit = replace(fit, x0=_guess(wild))
        return replace(wild, fit=replace(fit, name=fit.name + ", float32" * single))


def _guess(wild: Wild) -> np.ndarray:
    """The formula's own start, within the bounds; the other one if it finds none."""
    fit = wild.fit
    model = problm.formula(wild.text, variables=wild.variables)
    x = fit.data[0] if len(wild.variables) == 1 else np.stack(fit.data[:-1])
    try:
        found = np.asarray(model.guess(x, fit.data[-1]), dtype=float)
    except ValueError:
        return fit.x0
    lower, upper = fit.bounds
    size = 0.01 * np.abs(fit.solution) + 1e-300
    found = np.clip(found, np.asarray(lower) + size, np.asarray(upper) - size)
    return found if np.isfinite(found).all() and np.isfinite(fit.cost(found)) else fit.x0
