"""Origins far away, units over 24 decades, and parameters that are mixed: the same fits, written differently."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tests.helpers import zoo

from . import claims

TITLE = "Origins, units and mixtures"
TEXT = (
    "Peaks, steps and decays with *x* at 10⁶ or 1.7·10⁹; with units of *x*, *y* and each parameter between 10⁻¹² and "
    "10¹²; and with parameters that are linear combinations of the usual ones (condition up to 100). Without Jacobians."
)
SHAPES: dict[str, tuple[Callable[[Any, Any], Any], tuple[float, ...]]] = {
    "peak": (lambda t, x: t[0] * np.exp(-0.5 * ((x - t[1]) / t[2]) ** 2) + t[3], (3.0, 47.0, 6.0, 1.0)),
    "step": (lambda t, x: t[0] / (1 + np.exp(-(x - t[1]) / t[2])) + t[3], (2.0, 55.0, 8.0, 1.0)),
    "decay": (lambda t, x: t[0] * np.exp(-(x - t[1]) / t[2]) + t[3], (2.0, 0.0, 30.0, 0.5)),
}
KINDS = ("origin", "units", "mixture")


def make(kind: str, seed: int) -> zoo.Fit:
    rng = np.random.default_rng([31, KINDS.index(kind), seed])
    name = str(rng.choice(list(SHAPES) if kind != "origin" else ["peak", "step"]))
    model, typical = SHAPES[name]
    truth = np.array(typical)
    n = int(rng.choice([30, 300, 3000, 30_000], p=[0.3, 0.4, 0.2, 0.1]))
    x = rng.uniform(0, 100, n)
    y = model(truth, x) + rng.choice([0.01, 0.1, 0.5]) * rng.standard_normal(n)
    start = truth * rng.uniform(0.85, 1.15, 4) + np.array([0, rng.uniform(-2, 2), 0, 0])
    if kind == "origin":
        origin = float(rng.choice([1e6, 1.7e9]))
        there = np.array([0, origin, 0, 0])
        fit = zoo.Fit(name, lambda t, x, y: model(t, x) - y, start + there, (x + origin, y))
    elif kind == "units":
        units, across, along = 10.0 ** rng.uniform(-12, 12, 4), *10.0 ** rng.uniform(-12, 12, 2)

        def fun(t: Any, x: np.ndarray, y: np.ndarray) -> Any:
            return along * model(np.asarray(t) / units, x / across) - y

        fit = zoo.Fit(name, fun, start * units, (x * across, y * along))
    else:
        u, _ = np.linalg.qr(rng.standard_normal((4, 4)))
        mix = u * 10.0 ** rng.uniform(-1, 1, 4)
        fit = zoo.Fit(name, lambda t, x, y: model(mix @ t, x) - y, np.linalg.solve(mix, start), (x, y))
    return fit


def run(count: int, seed: int) -> list[dict[str, Any]]:
    def problems(kind: str) -> Iterator[tuple[zoo.Fit, claims.Solved]]:
        for s in range(seed, seed + max(count // len(KINDS), 1)):
            fit = make(kind, s)
            yield fit, lambda fit=fit: zoo.problm(fit)

    rows = []
    for kind in KINDS:
        rows += claims.timed(lambda kind=kind: claims.count(kind, problems(kind)), kind)
    return rows
