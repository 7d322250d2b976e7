"""The 35 problems of More, Garbow and Hillstrom (ACM TOMS 7, 1981), from the published formulas.

f is the *sum* of squares, without the factor 1/2. Observations, standard starts and minima come from a file of facts
(``mgh/mgh_facts.json`` below the folder that PROBLM_DATA names), which is not part of the repository; starts of the
problems of variable dimension are formulas and are here. Minima are printed to about six digits; where the paper
reports further ones (local, or at infinity) a solver may end there too.

All functions take complex parameters.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

exp = np.exp


@dataclass(frozen=True)
class Problem:
    name: str
    fun: Callable[[Any], np.ndarray]
    """All residuals (m,) at a point (n,)."""
    x0: np.ndarray
    minima: tuple[float, ...]
    """Sums of squares at the known minima, best first, as printed."""


def stack(*values: Any) -> np.ndarray:
    return np.concatenate([np.atleast_1d(v) for v in values])


def rosenbrock(x):
    return stack(10 * (x[1] - x[0] ** 2), 1 - x[0])


def freudenstein_roth(x):
    return stack(-13 + x[0] + ((5 - x[1]) * x[1] - 2) * x[1], -29 + x[0] + ((x[1] + 1) * x[1] - 14) * x[1])


def powell_badly_scaled(x):
    return stack(1e4 * x[0] * x[1] - 1, exp(-x[0]) + exp(-x[1]) - 1.0001)


def brown_badly_scaled(x):
    return stack(x[0] - 1e6, x[1] - 2e-6, x[0] * x[1] - 2)


def beale(x):
    return np.array([1.5, 2.25, 2.625]) - x[0] * (1 - x[1] ** np.arange(1, 4))


def jennrich_sampson(x):
    i = np.arange(1, 11)
    return 2 + 2 * i - (exp(i * x[0]) + exp(i * x[1]))


def helical_valley(x):
    theta = np.arctan(x[1] / x[0]) / (2 * np.pi) + (0.5 if np.real(x[0]) < 0 else 0.0)
    return stack(10 * (x[2] - 10 * theta), 10 * (np.sqrt(x[0] ** 2 + x[1] ** 2) - 1), x[2])


def bard(x, y):
    u = np.arange(1, 16)
    v = 16 - u
    return y - (x[0] + u / (v * x[1] + np.minimum(u, v) * x[2]))


def gaussian(x, y):
    t = (8 - np.arange(1, 16)) / 2
    return x[0] * exp(-x[1] * (t - x[2]) ** 2 / 2) - y


def meyer(x, y):
    return x[0] * exp(x[1] / (45 + 5 * np.arange(1, 17) + x[2])) - y


def gulf(x):
    t = np.arange(1, 100) / 100
    u = 25 + (-50 * np.log(t)) ** (2 / 3) - x[1]
    return exp(-((u * np.sign(u.real)) ** x[2]) / x[0]) - t


def box(x):
    t = 0.1 * np.arange(1, 11)
    return exp(-t * x[0]) - exp(-t * x[1]) - x[2] * (exp(-t) - exp(-10 * t))


def powell_singular(x):
    return stack(x[0] + 10 * x[1], np.sqrt(5) * (x[2] - x[3]), (x[1] - 2 * x[2]) ** 2, np.sqrt(10) * (x[0] - x[3]) ** 2)


def wood(x):
    return stack(
        10 * (x[1] - x[0] ** 2),
        1 - x[0],
        np.sqrt(90) * (x[3] - x[2] ** 2),
        1 - x[2],
        np.sqrt(10) * (x[1] + x[3] - 2),
        (x[1] - x[3]) / np.sqrt(10),
    )


def kowalik_osborne(x, y, u):
    return y - x[0] * (u**2 + u * x[1]) / (u**2 + u * x[2] + x[3])


def brown_dennis(x):
    t = np.arange(1, 21) / 5
    return (x[0] + t * x[1] - exp(t)) ** 2 + (x[2] + x[3] * np.sin(t) - np.cos(t)) ** 2


def osborne_1(x, y):
    t = 10 * np.arange(33)
    return y - (x[0] + x[1] * exp(-t * x[3]) + x[2] * exp(-t * x[4]))


def biggs(x):
    t = 0.1 * np.arange(1, 14)
    y = exp(-t) - 5 * exp(-10 * t) + 3 * exp(-4 * t)
    return x[2] * exp(-t * x[0]) - x[3] * exp(-t * x[1]) + x[5] * exp(-t * x[4]) - y


def osborne_2(x, y):
    t = np.arange(65) / 10
    peaks = sum(x[1 + k] * exp(-((t - x[8 + k]) ** 2) * x[5 + k]) for k in range(3))
    return y - (x[0] * exp(-t * x[4]) + peaks)


def watson(x):
    n = len(x)
    powers = (np.arange(1, 30) / 29)[:, None] ** np.arange(n)
    slope = powers[:, : n - 1] @ (np.arange(1, n) * x[1:])
    return stack(slope - (powers @ x) ** 2 - 1, x[0], x[1] - x[0] ** 2 - 1)


def extended_rosenbrock(x):
    return stack(10 * (x[1::2] - x[::2] ** 2), 1 - x[::2])


def extended_powell(x):
    a, b, c, d = x.reshape(-1, 4).T
    return stack(a + 10 * b, np.sqrt(5) * (c - d), (b - 2 * c) ** 2, np.sqrt(10) * (a - d) ** 2)


def penalty_1(x):
    return stack(np.sqrt(1e-5) * (x - 1), np.sum(x**2) - 0.25)


def penalty_2(x):
    n = len(x)
    i = np.arange(2, n + 1)
    y = exp(i / 10) + exp((i - 1) / 10)
    return stack(
        x[0] - 0.2,
        np.sqrt(1e-5) * (exp(x[1:] / 10) + exp(x[:-1] / 10) - y),
        np.sqrt(1e-5) * (exp(x[1:] / 10) - exp(-0.1)),
        np.sum((n - np.arange(n)) * x**2) - 1,
    )


def variably_dimensioned(x):
    s = np.sum(np.arange(1, len(x) + 1) * (x - 1))
    return stack(x - 1, s, s**2)


def trigonometric(x):
    n = len(x)
    return n - np.sum(np.cos(x)) + np.arange(1, n + 1) * (1 - np.cos(x)) - np.sin(x)


def brown_almost_linear(x):
    return stack(x[:-1] + np.sum(x) - (len(x) + 1), np.prod(x) - 1)


def _grid(n):
    return np.arange(1, n + 1) / (n + 1)


def discrete_boundary_value(x):
    n = len(x)
    padded = stack(0.0, x, 0.0)
    return 2 * x - padded[:-2] - padded[2:] + (x + _grid(n) + 1) ** 3 / (2 * (n + 1) ** 2)


def discrete_integral_equation(x):
    n = len(x)
    t = _grid(n)
    cube = (x + t + 1) ** 3
    below = np.cumsum(t * cube)
    above = np.cumsum(((1 - t) * cube)[::-1])[::-1] - (1 - t) * cube
    return x + ((1 - t) * below + t * above) / (2 * (n + 1))


def broyden_tridiagonal(x):
    padded = stack(0.0, x, 0.0)
    return (3 - 2 * x) * x - padded[:-2] - 2 * padded[2:] + 1


def broyden_banded(x):
    n = len(x)
    g = x * (1 + x)
    near = [sum(g[j] for j in range(max(0, i - 5), min(n, i + 2)) if j != i) for i in range(n)]
    return x * (2 + 5 * x**2) + 1 - stack(*near)


def linear_full_rank(x, m=100):
    return stack(x, np.zeros(m - len(x))) - 2 / m * np.sum(x) - 1


def linear_rank_1(x, m=100):
    return np.arange(1, m + 1) * np.sum(np.arange(1, len(x) + 1) * x) - 1


def linear_rank_1_zeros(x, m=100):
    factor = np.arange(m)
    factor[-1] = 0  # the first and the last function are constant
    return factor * np.sum(np.arange(2, len(x)) * x[1:-1]) - 1


def chebyquad(x):
    n = len(x)
    shifted = 2 * x - 1
    before, now = np.ones_like(shifted), shifted
    values = []
    for i in range(1, n + 1):
        values.append(np.sum(now) / n + (1 / (i**2 - 1) if i % 2 == 0 else 0.0))
        before, now = now, 2 * shifted * now - before
    return stack(*values)


def problems(folder: str | Path) -> list[Problem]:
    """All 35, several of them in more than one dimension."""
    facts = json.loads((Path(folder) / "mgh_facts.json").read_text(encoding="utf-8"))

    def fixed(key, fun, *others, names=()):
        fact = facts[key]
        values = [np.array(fact[name]) for name in names]
        return Problem(key, lambda x: fun(x, *values), np.array(fact["x0"]), (fact["fmin"], *others))

    def variable(key, fun, x0, *minima):
        x0 = np.asarray(x0, dtype=float)
        return Problem(f"{key} {len(x0)}", fun, x0, minima or (facts[key]["fmin"],))

    def near_zero(n):
        return _grid(n) * (_grid(n) - 1)

    return [
        fixed("rosen", rosenbrock),
        fixed("freud_roth", freudenstein_roth, 48.9842),
        fixed("powell_bs", powell_badly_scaled),
        fixed("brown_bs", brown_badly_scaled),
        fixed("beale", beale),
        fixed("jenn_samp", jennrich_sampson),
        fixed("helical", helical_valley),
        fixed("bard", bard, 17.4286, names=["y"]),
        fixed("gauss", gaussian, names=["y"]),
        fixed("meyer", meyer, names=["y"]),
        fixed("gulf", gulf),
        fixed("box_3d", box),
        fixed("powell_s", powell_singular),
        fixed("wood", wood),
        fixed("kow_osb", kowalik_osborne, 1.02734e-3, names=["y", "u"]),
        fixed("brown_den", brown_dennis),
        fixed("osborne_1", osborne_1, names=["y"]),
        fixed("biggs_exp6", biggs, 5.65565e-3),
        fixed("osborne_2", osborne_2, names=["y"]),
        variable("watson", watson, np.zeros(6)),
        variable("watson", watson, np.zeros(9), 1.39976e-6),
        variable("watson", watson, np.zeros(12), 4.72238e-10),
        variable("ex_rosen", extended_rosenbrock, np.tile([-1.2, 1.0], 10)),
        variable("ex_powell", extended_powell, np.tile([3.0, -1.0, 0.0, 1.0], 5)),
        variable("penalty_1", penalty_1, np.arange(1, 5)),
        variable("penalty_1", penalty_1, np.arange(1, 11), 7.08765e-5),
        variable("penalty_2", penalty_2, np.full(4, 0.5)),
        variable("penalty_2", penalty_2, np.full(10, 0.5), 2.93660e-4),
        variable("var_dim", variably_dimensioned, 1 - np.arange(1, 11) / 10),
        variable("trigon", trigonometric, np.full(10, 0.1), 0.0, 2.79506e-5),
        variable("brown_al", brown_almost_linear, np.full(10, 0.5), 0.0, 1.0),
        variable("brown_al", brown_almost_linear, np.full(30, 0.5), 0.0, 1.0),
        variable("disc_bv", discrete_boundary_value, near_zero(10)),
        variable("disc_ie", discrete_integral_equation, near_zero(10)),
        variable("broyden_tri", broyden_tridiagonal, np.full(10, -1.0)),
        variable("broyden_band", broyden_banded, np.full(10, -1.0)),
        variable("linfun_fr", linear_full_rank, np.ones(4)),
        variable("linfun_r1", linear_rank_1, np.ones(5)),
        variable("linfun_r1z", linear_rank_1_zeros, np.ones(5)),
        variable("chebyquad", chebyquad, _grid(7), 0.0),
        variable("chebyquad", chebyquad, _grid(8)),
        variable("chebyquad", chebyquad, _grid(10), 4.77271e-3, 6.50395e-3),
    ]
