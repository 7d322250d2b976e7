"""Curves from starts that are absurdly far off, with and without robust losses: most lead to a plateau, or to infinity.

``make(seed)`` gives a `Fit`: one of `CURVES`, few or many points, noise from none to as large as the signal, outliers
where the loss is robust, and a start between near and of any size and sign.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tests.helpers.zoo import Fit

# name: (function of theta and x, a typical theta, range of x)
CURVES: dict[str, tuple[Callable[[Any, Any], Any], tuple[float, ...], tuple[float, float]]] = {
    "logistic": (lambda t, x: t[0] / (1 + np.exp(-(x - t[1]) * t[2])), (5.0, 1.5, 1.3), (-4, 8)),
    "logistic4": (lambda t, x: t[3] + (t[0] - t[3]) / (1 + np.exp(-(x - t[1]) * t[2])), (5.0, 1.5, 1.3, 0.5), (-4, 8)),
    "power pole": (lambda t, x: t[0] * (x + t[1]) ** t[2], (1.5, 1.0, -1.2), (0, 8)),
    "power": (lambda t, x: t[0] * (x + t[1]) ** t[2], (1.5, 0.5, 0.7), (0.0, 8)),
    "arctan": (lambda t, x: np.arctan(t[0] * (x - t[1])), (2.0, 3.0), (0, 8)),
    "arctan3": (lambda t, x: t[2] * np.arctan(t[0] * (x - t[1])), (2.0, 3.0, 1.5), (0, 8)),
    "peak": (lambda t, x: t[0] * np.exp(-(((x - t[1]) / t[2]) ** 2)), (3.0, 4.0, 1.0), (0, 8)),
    "peakc": (lambda t, x: t[0] * np.exp(-(((x - t[1]) / t[2]) ** 2)) + t[3], (3.0, 4.0, 1.0, 0.5), (0, 8)),
    "lorentz": (lambda t, x: t[0] / (1 + ((x - t[1]) / t[2]) ** 2) + t[3], (3.0, 4.0, 0.7, 0.5), (0, 8)),
    "decay": (lambda t, x: t[0] * np.exp(-t[1] * x) + t[2], (3.0, 0.8, 0.5), (0, 5)),
    "hill": (lambda t, x: t[0] * x ** t[2] / (t[1] ** t[2] + x ** t[2]), (3.0, 2.0, 2.0), (0.1, 8)),
    "mm": (lambda t, x: t[0] * x / (t[1] + x), (3.0, 2.0), (0.0, 8)),
    "mm3": (lambda t, x: t[0] * x / (t[1] + x) + t[2], (3.0, 2.0, 0.4), (0.0, 8)),
    "tanh": (lambda t, x: t[0] + t[1] * np.tanh(t[2] * (x - t[3])), (0.5, 1.0, 1.3, 4.0), (0, 8)),
    "log": (lambda t, x: t[0] * np.log1p(t[1] ** 2 * x) + t[2], (1.0, 1.5, 0.3), (0, 8)),
    "sine": (lambda t, x: t[0] * np.sin(t[1] * x + t[2]), (2.0, 1.3, 0.4), (0, 8)),
    "rational": (lambda t, x: (t[0] + t[1] * x) / (1 + t[2] * x), (1.0, 2.0, 0.6), (0, 6)),
    "gompertz": (lambda t, x: t[0] * np.exp(-t[1] * np.exp(-t[2] * x)), (3.0, 4.0, 0.9), (0, 8)),
    "stretched": (lambda t, x: t[0] * np.exp(-((x / np.sqrt(t[1] * t[1])) ** t[2])), (3.0, 2.0, 0.8), (0.02, 8)),
    "root": (lambda t, x: t[0] / np.sqrt(1 + ((x - t[1]) * t[2]) ** 2), (3.0, 4.0, 1.5), (0, 8)),
    "softplus": (lambda t, x: t[0] * np.log1p(np.exp(t[1] * (x - t[2]))), (1.0, 2.0, 3.0), (0, 6)),
    "inv": (lambda t, x: t[0] + t[1] / (x - t[2]), (1.0, 2.0, -0.5), (0, 6)),
    "expexp": (lambda t, x: t[0] * (np.exp(-t[1] * x) - np.exp(-t[2] * x)), (3.0, 0.3, 1.5), (0, 10)),
    "cosh": (lambda t, x: t[0] / np.cosh((x - t[1]) / t[2]), (3.0, 4.0, 1.0), (0, 8)),
}
LOSSES = ("linear",) * 3 + ("cauchy",) * 2 + ("soft_l1", "huber", "arctan", "welsch", "geman_mcclure", "tukey")
STARTS = ("wild", "far", "off", "big")


def make(seed: int) -> Fit:
    """The problem with this seed: the same in every process."""
    rng = np.random.default_rng([77, seed])
    name = list(CURVES)[rng.integers(len(CURVES))]
    curve, typical, (low, high) = CURVES[name]
    d = len(typical)
    truth = np.array(typical) * rng.uniform(0.5, 1.7, d)
    n = int(rng.choice([d + 1, 12, 40, 150, 600]))
    x = np.sort(rng.uniform(low, high, n))
    level = float(rng.choice([1e-6, 0.02, 0.2, 1.0]))
    signal = curve(truth, x)
    sigma = level * max(float(np.std(signal)), 0.05)
    y = signal + sigma * rng.standard_normal(n)
    loss = str(rng.choice(LOSSES))
    bad = rng.random(n) < rng.choice([0, 0.1, 0.3])
    y = y + bad * rng.normal(0, 8, n) * (loss != "linear")
    kind = str(rng.choice(STARTS))
    start = {
        "wild": lambda: rng.choice([-1, 1], d) * 10 ** rng.uniform(-2, 3, d),
        "far": lambda: truth * 10 ** rng.uniform(-1, 1, d),
        "off": lambda: truth * rng.uniform(0.3, 2.5, d),
        "big": lambda: truth + rng.normal(0, 10, d),
    }[kind]()
    scale = sigma * float(rng.choice([0.3, 1, 3]))
    text = f"{name} {seed}: N = {n}, noise {level:g}, {loss}, {kind}"
    fit = Fit(text, lambda t, x, y: curve(t, x) - y, start, (x, y), solution=truth, scale=sigma, loss=loss,
              f_scale=scale)  # fmt: skip
    if rng.random() < 0.5:
        return replace(fit, jac=lambda theta, *rows: replace(fit, data=rows).jacobian(theta))
    return fit
