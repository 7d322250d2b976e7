"""Random problems from families that `tests.helpers.random_problems` does not hold: what scientists fit, from text.

``make(family, seed)`` gives a `Wild`: one formula that is evaluated by NumPy (also at complex parameters, which gives
derivatives to all digits) and can be compiled by the package. Noise, numbers of rows, starts, bounds and losses vary
within each family.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import scipy.special

import problm
from tests.helpers import zoo
from tests.helpers.zoo import Fit, Outcome

Rng = np.random.Generator
Values = Sequence[float]
LOSSES = ("huber", "soft_l1", "cauchy", "arctan", "geman_mcclure", "welsch", "tukey")


@dataclass(frozen=True)
class Family:
    """A formula of variables and parameters; its target is 0 for ``implicit`` ones, which vanish on the data."""

    text: str
    truth: Callable[[Rng], Values]
    """Values of the parameters, in the order in which the text names them."""
    points: Callable[[Rng, int], Sequence[np.ndarray]]
    """Columns (n,) of the variables, in that order."""
    variables: tuple[str, ...] = ("x",)
    spread: float = 0.5
    """Starts lie off by up to this share of each parameter."""
    noise: Values = (1e-3, 0.03, 0.3)
    """Relative to the spread of the signal."""
    implicit: Callable[[Rng, np.ndarray, int], Sequence[np.ndarray]] | None = None
    """Columns for given parameters where the formula is the residual itself."""
    start: Callable[[Rng, np.ndarray], np.ndarray] | None = None


@dataclass(frozen=True)
class Wild:
    """A problem and how it is handed over: as a NumPy function, with its Jacobian, or as a formula."""

    fit: Fit
    how: str
    text: str
    variables: tuple[str, ...]
    parameters: tuple[str, ...]


def _abs(z: Any) -> Any:
    return np.where(np.real(z) < 0, -z, z)


NAMES: dict[str, Any] = {
    name: getattr(np, name) for name in ("exp", "log", "sqrt", "sin", "cos", "tan", "tanh", "arctan", "pi", "log1p")
} | {"abs": _abs, "max": lambda a, b: np.where(np.real(a) > np.real(b), a, b), "erf": scipy.special.erf}


def solved(wild: Wild) -> Outcome:
    """What the package makes of it."""
    if wild.how != "formula":
        return zoo.problm(wild.fit)
    return zoo.problm(replace(wild.fit, fun=problm.formula(wild.text, variables=wild.variables)))


@cache
def evaluated(text: str, variables: tuple[str, ...], parameters: tuple[str, ...]) -> Callable[..., Any]:
    """``(theta, *columns) -> (n,)``."""
    code = compile(text, "formula", "eval")

    def value(theta: Any, *columns: np.ndarray) -> Any:
        known = dict(zip(variables, columns, strict=True)) | dict(zip(parameters, theta, strict=True))
        with np.errstate(all="ignore"):
            return eval(code, {"__builtins__": {}}, NAMES | known) + 0.0 * columns[0]  # noqa: S307 - the table below

    return value


@cache
def parameters_of(text: str, variables: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n for n in compile(text, "f", "eval").co_names if n not in NAMES and n not in variables))


def grid(low: float, high: float) -> Callable[[Rng, int], Sequence[np.ndarray]]:
    """Points between two numbers: evenly, at random, or denser towards the lower end."""

    def points(rng: Rng, n: int) -> Sequence[np.ndarray]:
        kind = rng.integers(3)
        u = np.linspace(0, 1, n) if kind == 0 else rng.random(n) ** kind
        return (low + (high - low) * u,)

    return points


def scattered(rng: Rng, n: int) -> Sequence[np.ndarray]:
    return rng.uniform(-3, 3, n), rng.uniform(-3, 3, n)


def u(*ranges: tuple[float, float]) -> Callable[[Rng], Values]:
    return lambda rng: [rng.uniform(*r) for r in ranges]


def _arc(rng: Rng, t: np.ndarray, n: int) -> Sequence[np.ndarray]:
    angle = rng.uniform(0, rng.choice([0.3, 1.0, 2 * np.pi]), n) + rng.uniform(0, 6)
    return t[0] + t[2] * np.cos(angle), t[1] + t[2] * np.sin(angle)


def _ellipse(rng: Rng, t: np.ndarray, n: int) -> Sequence[np.ndarray]:
    angle = rng.uniform(0, rng.choice([1.5, 2 * np.pi]), n)
    return t[0] + t[1] * np.cos(angle), t[2] + t[3] * np.sin(angle)


def _cap(rng: Rng, t: np.ndarray, n: int) -> Sequence[np.ndarray]:
    v = rng.standard_normal((3, n)) + np.array([[0], [0], [rng.choice([0.0, 4.0])]])
    v *= t[3] / np.linalg.norm(v, axis=0)
    return t[0] + v[0], t[1] + v[1], t[2] + v[2]


def _leverage(rng: Rng, n: int) -> Sequence[np.ndarray]:
    x = rng.uniform(0, 2, n)
    x[rng.integers(n)] = 10 ** rng.uniform(1, 3)
    return (x,)


def _weighted(rng: Rng, n: int) -> Sequence[np.ndarray]:
    return rng.uniform(0, 5, n), 10 ** rng.uniform(-rng.uniform(0, 5), rng.uniform(0, 3), n)


def _nearly_equal(rng: Rng, n: int) -> Sequence[np.ndarray]:
    x = rng.standard_normal(n)
    return x, x + 10 ** rng.uniform(-7, -2) * rng.standard_normal(n)


def _decades(*typical: float) -> Callable[[Rng], Values]:
    return lambda rng: [t * 10 ** rng.uniform(-0.3, 0.3) for t in typical]


FAMILIES: dict[str, Family] = {
    "logistic growth": Family("K/(1+(K/P-1)*exp(-r*x))", u((1, 9), (0.01, 0.5), (0.3, 2)), grid(0, 10)),
    "substrate inhibition": Family("V*x/(k+x+x*x/i)", u((1, 5), (0.1, 3), (0.5, 20)), grid(0.01, 20)),
    "close rates": Family(
        "a*exp(-k*x)+b*exp(-l*x)", lambda r: (1.0, k := r.uniform(0.3, 2), r.uniform(0.3, 2), k * r.uniform(1.05, 1.6)),
        grid(0, 5), spread=0.3, noise=(1e-5, 1e-3, 0.03),
    ),
    "rational": Family("(a+b*x)/(1+c*x+d*x*x)", u((0.5, 2), (-1, 1), (-0.3, 1), (0.1, 1)), grid(-2, 4), spread=0.3),
    "Planck": Family("a*x**-5/(exp(b/x)-1)", u((1, 3), (1, 6)), grid(0.3, 5)),
    "Planck, SI": Family(
        "a*x**-5/(exp(b/x)-1)", lambda r: (10 ** r.uniform(-17, -15), 0.0144 / r.uniform(2500, 9000)), grid(3e-7, 4e-6)
    ),
    "circle": Family(
        "sqrt((x-a)**2+(y-b)**2)-r", u((-3, 3), (-3, 3), (0.5, 4)), grid(0, 1), ("x", "y"), noise=(1e-4, 0.01, 0.1),
        implicit=_arc,
    ),
    "ellipse": Family(
        "((x-a)/p)**2+((y-b)/q)**2-1", u((-3, 3), (0.5, 3), (-3, 3), (0.5, 3)), grid(0, 1), ("x", "y"), 0.3,
        noise=(1e-4, 0.01, 0.1), implicit=_ellipse,
    ),
    "sphere": Family(
        "sqrt((x-a)**2+(y-b)**2+(z-c)**2)-r", u((-3, 3), (-3, 3), (-3, 3), (0.5, 4)), grid(0, 1), ("x", "y", "z"),
        noise=(1e-4, 0.01, 0.1), implicit=_cap,
    ),
    "Unix time, decays": Family(
        "a*exp(-(x-1.7e9)/p)+b*exp(-(x-1.7e9)/q)+c", u((1, 3), (100, 300), (1, 3), (500, 2000), (0, 9)),
        grid(1.7e9, 1.7e9 + 4000),
    ),
    "Unix time, step": Family(
        "c+a/(1+exp(-(x-m)/w))", lambda r: (r.uniform(-5, 5), r.uniform(1, 5), 1.7e9 + r.uniform(1000, 3000),
                                           r.uniform(20, 300)), grid(1.7e9, 1.7e9 + 4000),
        start=lambda r, t: t * [1.3, 0.8, 1, 1.5] + np.array([0, 0, r.uniform(-200, 200), 0]),
    ),
    "Unix time, line": Family(
        "a+b*x+c*sin(x/80+p)", lambda r: (r.uniform(-5, 5), r.uniform(-1e-3, 1e-3), r.uniform(1, 2), r.uniform(-1, 1)),
        grid(1.7e9, 1.7e9 + 4000),
    ),
    "power with offset": Family(
        "a*(x-c)**b+d", lambda r: (r.uniform(0.5, 3), r.uniform(-2, 0.5), r.uniform(0.3, 2.5), r.uniform(-2, 2)),
        grid(1, 8), spread=0.3,
    ),
    "periodic": Family(
        "a*sin(2*pi*f*x+p)+c", u((0.5, 2), (0.5, 3), (-3, 3), (-1, 1)), grid(0, 10),
        start=lambda r, t: t + np.array([0.3, r.uniform(-0.03, 0.03), r.uniform(-0.5, 0.5), 0.5]),
    ),
    "hinge": Family("a+b*x+c*max(x-k,0)", u((-1, 1), (-1, 1), (-3, 3), (2, 8)), grid(0, 10)),
    "saturated": Family(
        "a*(1-exp(-b*x))+c", lambda r: (r.uniform(1, 3), 10 ** r.uniform(0, 2.5), r.uniform(-1, 1)), grid(0.05, 5)
    ),
    "rise only": Family(
        "a/(1+exp(-(x-m)/w))", lambda r: (r.uniform(1, 3), r.uniform(4, 15), r.uniform(0.5, 1.5)), grid(0, 5)
    ),
    "step only": Family("a+b*tanh(k*(x-m))", lambda r: (0.5, 1.0, 10 ** r.uniform(0.5, 3), r.uniform(3, 7)),
                        grid(0, 10), spread=0.2),
    "product": Family("a*b*exp(-c*x)", u((0.5, 2), (0.5, 2), (0.2, 2)), grid(0, 4)),
    "sum of rates": Family("a*exp(-(b+c)*x)+d", u((0.5, 2), (0.1, 1), (0.1, 1), (-1, 1)), grid(0, 4)),
    "2-D peak": Family(
        "a*exp(-((x-m)**2+(y-n)**2)/(2*s*s))+c", u((1, 3), (-1, 1), (-1, 1), (0.4, 1.5), (-1, 1)), scattered,
        ("x", "y"),
    ),
    "2-D peak, tilted": Family(
        "a*exp(-((x-m)**2/(2*s*s)-r*(x-m)*(y-n)/(s*t)+(y-n)**2/(2*t*t)))+c",
        u((1, 3), (-1, 1), (0.5, 1.5), (-0.7, 0.7), (-1, 1), (0.5, 1.5), (-1, 1)), scattered, ("x", "y"), 0.3,
    ),
    "weights": Family("w*(a*exp(-b*x)+c)", u((1, 3), (0.3, 2), (-1, 1)), _weighted, ("x", "w")),
    "leverage": Family("a+b*x/(1+c*x)", u((-1, 1), (0.5, 2), (0.001, 0.3)), _leverage),
    "nearly collinear": Family("a*x+b*y+exp(c*x)", u((-2, 2), (-2, 2), (-0.7, 0.7)), _nearly_equal, ("x", "y")),
    "scaled": Family("a*exp(-b*x)+c", _decades(1e12, 1e-9, 1e11), grid(0, 4e9)),
    "scaled, tiny": Family("a*exp(-b*x)+c", _decades(1e-12, 1e12, 1e-13), grid(0, 4e-12)),
    "Arrhenius": Family("a*exp(-b/(8.314*x))", lambda r: (10 ** r.uniform(5, 13), r.uniform(3e4, 9e4)), grid(280, 400),
                        spread=0.2),
    "Antoine": Family("a-b/(c+x)", u((7, 9), (1000, 2000), (180, 260)), grid(10, 120), spread=0.2,
                      noise=(1e-4, 1e-3, 0.03)),
    "Hill": Family("v*x**n/(k**n+x**n)", u((1, 3), (0.7, 5), (0.5, 4)), grid(0.05, 8)),
    "Gompertz": Family("a*exp(-b*exp(-c*x))", u((1, 5), (1, 8), (0.2, 1.5)), grid(0, 8)),
    "Weibull": Family("a*(1-exp(-(x/t)**k))", u((1, 4), (1, 4), (0.6, 4)), grid(0.05, 6)),
    "stretched": Family("a*exp(-(x/t)**b)+c", u((1, 3), (0.5, 3), (0.4, 1.5), (-1, 1)), grid(0.01, 8)),
    "Bateman": Family("a*k/(k-l)*(exp(-l*x)-exp(-k*x))", u((1, 3), (0.8, 3), (0.1, 0.7)), grid(0, 10), spread=0.4),
    "two Lorentzians": Family(
        "a/(1+((x-m)/s)**2)+b/(1+((x-n)/t)**2)+c",
        u((1, 3), (2, 4), (0.2, 0.8), (1, 3), (5, 8), (0.2, 0.8), (0, 1)), grid(0, 10), spread=0.15,
    ),
    "damped": Family("a*exp(-d*x)*sin(w*x+p)", u((1, 3), (0.05, 0.5), (1, 4), (-1, 1)), grid(0, 10), spread=0.1),
    "edge": Family("a+b*erf((x-m)/w)", u((-1, 1), (1, 3), (3, 7), (0.1, 2)), grid(0, 10), spread=0.3),
    "logarithm": Family("a*log1p(b*x)+c", lambda r: (r.uniform(0.5, 2), 10 ** r.uniform(-2, 3), 0.3), grid(0.01, 10)),
    "valley": Family("a*(x-b)*exp(-c*(x-b)**2)+d*x", u((1, 3), (3, 6), (0.1, 1), (-0.5, 0.5)), grid(0, 10)),
    "kinked": Family("a*abs(x-m)**p+c", u((0.5, 2), (3, 6), (1.1, 2.5), (-1, 1)), grid(0, 10), spread=0.2),
}  # fmt: skip


def make(family: str, seed: int) -> Wild:
    """The problem of this family with this seed: the same in every process."""
    rng = np.random.default_rng([list(FAMILIES).index(family), 16, seed])
    with np.errstate(all="ignore"):
        return made(FAMILIES[family], f"{family} {seed}", rng)


def made(it: Family, name: str, rng: Rng) -> Wild:
    """A problem of a family: noise, rows, start, bounds and loss by chance."""
    parameters = parameters_of(it.text, it.variables)
    value = evaluated(it.text, it.variables, parameters)
    truth = np.array(it.truth(rng), dtype=float)
    d = len(truth)
    n = int(
        rng.choice([d, d + 1, d + 5, 30, 200, 2000, 20_000, 100_000], p=[0.04, 0.06, 0.15, 0.2, 0.25, 0.2, 0.06, 0.04])
    )
    level = float(rng.choice([*it.noise, 0.0], p=[0.3, 0.3, 0.3, 0.1]))
    if it.implicit is not None:
        columns = [c + level * rng.standard_normal(n) for c in it.implicit(rng, truth, n)]
        target, sigma = np.zeros(n), level
    else:
        columns = list(it.points(rng, n))
        signal = value(truth, *columns)
        sigma = level * float(np.std(signal) or 1.0)
        heavy = rng.random() < 0.1
        target = signal + sigma * (rng.standard_t(2, n) if heavy else rng.standard_normal(n))
    if it.start is not None:
        start = it.start(rng, truth)
    else:
        start = truth * (1 + it.spread * rng.uniform(-1, 1, d)) + 0.1 * it.spread * rng.uniform(-1, 1, d) * (truth == 0)
    how = str(rng.choice(["numpy", "jacobian", "formula"]))

    def fun(theta: Any, *rows: np.ndarray) -> Any:
        return value(theta, *rows[:-1]) - rows[-1]

    fit = Fit(name, fun, np.asarray(start, float), (*columns, target), solution=truth, scale=sigma)
    fit = _spoiled(rng, fit)
    if how == "jacobian":
        fit = replace(fit, jac=lambda theta, *rows: replace(fit, data=rows).jacobian(theta))
    name = f"{name}: N = {n}, noise {level:g}, {fit.loss}, {how}"
    return Wild(replace(fit, name=name), how, it.text, it.variables, parameters)


def _spoiled(rng: Rng, fit: Fit) -> Fit:
    """Perhaps with a robust loss and outliers, or with bounds."""
    kind = rng.random()
    if kind < 0.2 and fit.scale > 0:
        loss = str(rng.choice(LOSSES))
        y = fit.data[-1] + fit.scale * np.where(rng.random(fit.n) < rng.uniform(0, 0.3), rng.normal(0, 20, fit.n), 0)
        scale = fit.scale * float(rng.choice([1.0, 2.0, 5.0]))
        return replace(fit, data=(*fit.data[:-1], y), loss=loss, f_scale=scale)
    if kind < 0.4:
        size = np.abs(fit.solution) * 0.3 + 1e-300
        lower = np.where(rng.random(len(size)) < 0.5, fit.solution + size * rng.uniform(-2, 0.5, len(size)), -np.inf)
        upper = np.where(rng.random(len(size)) < 0.3, fit.solution + size * rng.uniform(0.6, 3, len(size)), np.inf)
        inside = np.where(np.isfinite(lower) & (fit.x0 <= lower), lower + 0.01 * size, fit.x0)
        inside = np.where(np.isfinite(upper) & (inside >= upper), upper - 0.01 * size, inside)
        return replace(fit, x0=inside, bounds=(lower, upper))
    return fit
