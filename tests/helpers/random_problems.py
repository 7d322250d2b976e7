"""Random least-squares problems by class, from a seed: what a solver meets in the wild, and worse.

``make(kind, seed)`` gives a `zoo.Fit`. Dimensions run from 1 to 30, N from d to 10^6 (mostly small). The core is an
*index model* ``link(a_i . theta) - y_i`` with a random design a_i, or one of the usual curves; each class spoils it
in its own way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tests.helpers.zoo import Fit

# Value and derivative, smooth, and good for complex arguments.
LINKS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "identity": (lambda u: u, np.ones_like),
    "wave": (lambda u: u + 0.7 * np.sin(u), lambda u: 1 + 0.7 * np.cos(u)),
    "exp": (lambda u: np.exp(0.3 * u), lambda u: 0.3 * np.exp(0.3 * u)),
    "logistic": (lambda u: 4 / (1 + np.exp(-u)), lambda u: 4 * np.exp(-u) / (1 + np.exp(-u)) ** 2),
    "cubic": (lambda u: u + 0.1 * u**3, lambda u: 1 + 0.3 * u**2),
}

# name: (function of theta and x, a typical theta)
CURVES: dict[str, tuple[Callable[[Any, Any], Any], tuple[float, ...]]] = {
    "decay": (lambda t, x: t[0] * np.exp(-t[1] * x) + t[2], (2.0, 0.7, 0.3)),
    "two decays": (lambda t, x: t[0] * np.exp(-t[1] * x) + t[2] * np.exp(-t[3] * x), (2.0, 0.3, 1.0, 2.0)),
    "peak": (lambda t, x: t[0] * np.exp(-(((x - t[1]) / t[2]) ** 2)) + t[3], (3.0, 2.5, 0.8, 0.5)),
    "sine": (lambda t, x: t[0] * np.sin(t[1] * x + t[2]), (1.5, 1.2, 0.4)),
    "growth": (lambda t, x: t[0] / (1 + np.exp(t[1] - t[2] * x)), (4.0, 3.0, 1.5)),
    "power": (lambda t, x: t[0] * (x + 0.1) ** t[1], (1.3, 0.6)),
    "saturation": (lambda t, x: t[0] * x / (t[1] + x) + t[2], (3.0, 1.0, 0.2)),
}


def _sizes(rng: np.random.Generator) -> tuple[int, int]:
    d = int(rng.integers(1, 31)) if rng.random() < 0.3 else int(rng.integers(1, 7))
    n = int(np.exp(rng.uniform(np.log(d + 1), np.log(3000))))
    return max(n, d + 1), d


def index(rng: np.random.Generator, n: int, d: int, *, link: str | None = None, noise: float | None = None,
          design: np.ndarray | None = None) -> Fit:  # fmt: skip
    """An index model with its truth as ``solution``."""
    name = link or str(rng.choice(list(LINKS)))
    value, slope = LINKS[name]
    a = rng.standard_normal((n, d)) / np.sqrt(d) if design is None else design
    truth = rng.standard_normal(d) * 2
    level = float(rng.choice([1e-3, 0.1, 1.0])) if noise is None else noise
    y = value(a @ truth) + level * rng.standard_normal(n)
    start = truth + rng.standard_normal(d) * rng.choice([0.1, 1.0])

    def fun(t, a, y):
        return value(a @ t) - y

    def jac(t, a, y):
        return slope(a @ t)[:, None] * a

    return Fit(name, fun, start, (a, y), jac if rng.random() < 0.5 else None, solution=truth, scale=level)


def curve(rng: np.random.Generator, n: int, *, noise: float | None = None) -> Fit:
    name = str(rng.choice(list(CURVES)))
    model, typical = CURVES[name]
    truth = np.array(typical) * rng.uniform(0.6, 1.6, len(typical))
    x = np.sort(rng.uniform(0, 5, max(n, len(typical) + 1)))
    level = float(rng.choice([1e-3, 0.05, 0.3])) if noise is None else noise
    y = model(truth, x) + level * rng.standard_normal(len(x))
    start = truth * rng.uniform(0.6, 1.6, len(truth))
    return Fit(name, lambda t, x, y: model(t, x) - y, start, (x, y), solution=truth, scale=level)


def _either(rng: np.random.Generator, noise: float | None = None) -> Fit:
    n, d = _sizes(rng)
    return curve(rng, n, noise=noise) if rng.random() < 0.5 else index(rng, n, d, noise=noise)


def plain(rng):
    return _either(rng)


def square(rng):
    _, d = _sizes(rng)
    return index(rng, d, d)


def ill_conditioned(rng):
    n, d = _sizes(rng)
    d = max(d, 2)
    n = max(n, d + 1)
    u, _ = np.linalg.qr(rng.standard_normal((n, d)))
    v, _ = np.linalg.qr(rng.standard_normal((d, d)))
    values = np.logspace(0, -rng.uniform(4, 12), d)
    link = str(rng.choice(["identity", "wave", "cubic"]))
    return index(rng, n, d, link=link, design=np.sqrt(n) * (u * values) @ v.T)


def rank_deficient(rng):
    n, d = _sizes(rng)
    d = max(d, 2)
    n = max(n, d + 1)
    rank = int(rng.integers(1, d))
    return index(rng, n, d, design=rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d)) / np.sqrt(d * rank))


def zero_residual(rng):
    return _either(rng, noise=0.0)


def large_residual(rng):
    return _either(rng, noise=float(rng.choice([5.0, 30.0])))


def heavy_tails(rng):
    fit = _either(rng, noise=0.0)
    y = fit.data[-1] + 0.1 * rng.standard_cauchy(fit.n)
    return replace(fit, data=(*fit.data[:-1], y))


def robust(rng):
    fit = _either(rng, noise=0.05)
    y = fit.data[-1].copy()
    bad = rng.random(fit.n) < rng.uniform(0.02, 0.3)
    y[bad] += rng.uniform(-30, 30, int(bad.sum()))
    loss = str(rng.choice(["huber", "soft_l1", "cauchy", "arctan"]))
    return replace(fit, data=(*fit.data[:-1], y), loss=loss, f_scale=float(rng.choice([0.05, 0.2])))


def duplicated_rows(rng):
    fit = _either(rng)
    few = rng.integers(0, fit.n, max(len(fit.x0), fit.n // 10, 1))
    keep = np.repeat(few, int(rng.integers(2, 20)))
    return replace(fit, data=tuple(a[keep] for a in fit.data))


def constant_columns(rng):
    n, d = _sizes(rng)
    d = max(d, 2)
    n = max(n, d + 1)
    a = rng.standard_normal((n, d)) / np.sqrt(d)
    a[:, rng.integers(d)] = rng.choice([0.0, 1.0, 1e-9])
    a[:, rng.integers(d)] = 1.0
    return index(rng, n, d, design=a)


def float32(rng):
    fit = _either(rng)
    return replace(fit, data=tuple(a.astype(np.float32) for a in fit.data))


def bad_scaling(rng):
    n, d = _sizes(rng)
    units = 10.0 ** rng.uniform(-8, 8, d)
    fit = index(rng, n, d)
    a, y = fit.data
    jac = fit.jac
    return replace(fit, x0=fit.x0 * units, solution=fit.solution * units, data=(a / units, y), jac=jac, scale=fit.scale)


def at_the_optimum(rng):
    import scipy.optimize

    fit = _either(rng, noise=float(rng.choice([0.0, 0.1])))
    if fit.scale == 0.0:
        return replace(fit, x0=fit.solution)
    with np.errstate(all="ignore"):
        found = scipy.optimize.least_squares(
            lambda t: fit.residuals(t).ravel(), fit.solution, method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15
        )
    return replace(fit, x0=found.x)


def far_start(rng):
    fit = _either(rng)
    away = rng.standard_normal(len(fit.x0)) * 10.0 ** rng.uniform(0.5, 1.5)
    return replace(fit, x0=fit.solution * rng.uniform(0.1, 10, len(fit.x0)) + (away if fit.data[0].ndim == 2 else 0.0))


def bounded(rng):
    fit = _either(rng)
    width = np.abs(fit.solution) + 0.5
    lower = fit.solution - width * rng.uniform(-0.3, 2.0, len(width))
    upper = np.maximum(lower, fit.solution) + width * rng.uniform(0.1, 2.0, len(width))
    lower[rng.random(len(width)) < 0.3] = -np.inf
    upper[rng.random(len(width)) < 0.3] = np.inf
    inside = np.clip(
        fit.x0, np.where(np.isinf(lower), -1e9, lower + 1e-3), np.where(np.isinf(upper), 1e9, upper - 1e-3)
    )
    return replace(fit, x0=inside, bounds=(lower, upper))


def many_rows(rng):
    n = int(10 ** (rng.uniform(4.3, 5.3) if rng.random() < 0.9 else rng.uniform(5.3, 6)))
    if rng.random() < 0.6:
        return curve(rng, n)
    return index(rng, n, int(rng.integers(1, 7)))


KINDS: dict[str, Callable[[np.random.Generator], Fit]] = {
    f.__name__: f
    for f in (plain, square, ill_conditioned, rank_deficient, zero_residual, large_residual, heavy_tails, robust,
              duplicated_rows, constant_columns, float32, bad_scaling, at_the_optimum, far_start, bounded, many_rows)
}  # fmt: skip


def make(kind: str, seed: int) -> Fit:
    """The problem of this class with this seed: the same in every process."""
    rng = np.random.default_rng([list(KINDS).index(kind), seed])
    with np.errstate(all="ignore"):
        fit = KINDS[kind](rng)
    return replace(fit, name=f"{kind} {seed}: {fit.name}, N = {fit.n}, d = {len(fit.x0)}")
