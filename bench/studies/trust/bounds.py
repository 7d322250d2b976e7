"""One to three peaks with heights and widths of at least zero: who ends at the best minimum?"""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.helpers import zoo

import problm

from ...harness.summary import markdown_table

TITLE = "Bounds"
TEXT = (
    "Fits of one to three peaks with heights, widths and offset of at least zero, from starts that are off by a width: "
    "how often each ends at the lower of the two minima (to 1e-6), and how often it claims success above it."
)
FORMULAS = {k: " + ".join(f"a{i}*exp(-0.5*((x-m{i})/s{i})**2)" for i in range(k)) + " + b" for k in (1, 2, 3)}


def peaks(t: Any, x: np.ndarray, y: np.ndarray) -> Any:
    value = t[-1] + 0.0 * x
    for a, m, s in np.reshape(t[:-1], (-1, 3)):
        value = value + a * np.exp(-0.5 * ((x - m) / s) ** 2)
    return value - y


def make(seed: int) -> tuple[int, zoo.Fit]:
    rng = np.random.default_rng([11, seed])
    k, n = int(rng.integers(1, 4)), int(rng.choice([100, 300, 1000]))
    x = np.sort(rng.uniform(0, 10, n))
    truth = [v for _ in range(k) for v in (rng.uniform(0.5, 3), rng.uniform(1, 9), rng.uniform(0.2, 1))]
    truth.append(rng.uniform(0, 1))
    y = peaks(np.array(truth), x, 0.0) + rng.uniform(0.02, 0.3) * rng.standard_normal(n)
    start = [v for i in range(k) for v in (rng.uniform(0.3, 3), truth[3 * i + 1] + rng.normal(), rng.uniform(0.2, 1.5))]
    lower = np.array([0, -np.inf, 0] * k + [0.0])
    return k, zoo.Fit(f"{k} peaks, seed {seed}", peaks, np.array([*start, 0.5]), (x, y), bounds=(lower, np.inf))


def run(count: int, seed: int) -> list[dict[str, Any]]:
    models = {k: problm.formula(text) for k, text in FORMULAS.items()}
    tally = {name: {"best": 0, "claims above": 0, "failures": 0} for name in ("ProBLM", "SciPy trf")}
    for s in range(seed, seed + count):
        k, fit = make(s)
        ours = zoo.timed(
            lambda k=k, fit=fit: problm.least_squares(
                models[k], fit.x0, data=fit.data, bounds=fit.bounds, max_iter=2000
            )
        )
        theirs = zoo.scipy_trf(fit, max_nfev=2000)
        best = min(o.cost for o in (ours, theirs) if np.isfinite(o.cost)) * (1 + 1e-6)
        for name, outcome in (("ProBLM", ours), ("SciPy trf", theirs)):
            tally[name]["best"] += outcome.cost <= best
            tally[name]["claims above"] += outcome.success and not outcome.cost <= best
            tally[name]["failures"] += not outcome.success
    return [{"solver": name, "count": count} | found for name, found in tally.items()]


def table(rows: list[dict[str, Any]]) -> str:
    columns = ("count", "best", "claims above", "failures")
    return markdown_table(
        ["solver", "problems", "at the best minimum", "success above it", "failures that say so"],
        [[r["solver"], *(str(r[c]) for c in columns)] for r in rows],
    )
