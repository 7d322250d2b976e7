"""Signals that few rows carry: one line in 10^5 or 10^6 channels, the default against plain LM on all rows."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import problm
from problm.api.curve_fit import fit

from ...harness.summary import markdown_table

TITLE = "Rare signals"
TEXT = (
    "One line on a sloping ground in 10⁵ (three quarters) or 10⁶ channels, between 10 % and 0.002 % of them wide, from "
    "starts up to 0.6 half widths off: how often the default ends above the minimum of plain LM, and LM above it."
)


def make(seed: int) -> tuple[np.ndarray, np.ndarray, list[float], float]:
    """Columns x and y, the start, and the share of the rows that carry the line."""
    rng = np.random.default_rng([7, seed])
    n = 1_000_000 if rng.random() < 0.25 else 100_000
    share = float(10 ** rng.uniform(np.log10(2e-5), -1))
    x = np.linspace(0, 1, n) if rng.random() < 0.7 else rng.random(n)
    width, centre = share / 4, rng.uniform(0.2, 0.8)
    height = 10 ** rng.uniform(1.3, 2.5) / np.sqrt(n * share / 2)  # in units of the noise; of all rows 20 to 300
    y = height * np.exp(-0.5 * ((x - centre) / width) ** 2) + rng.uniform(-2, 2) + rng.uniform(-2, 2) * x
    y += rng.standard_normal(n)
    off = rng.choice([-1, 1]) * rng.uniform(0.2, 0.6) * share / 2
    return x, y, [height * rng.uniform(0.5, 1.5), centre + off, width * 10 ** rng.uniform(-0.15, 0.15), 0, 0], share


def run(count: int, seed: int) -> list[dict[str, Any]]:
    line = problm.formula("a*exp(-0.5*((x-m)/s)**2) + b + c*x")
    found = {"count": count, "default above": 0, "LM above": 0, "examples": []}
    seconds = [0.0, 0.0]
    for s in range(seed, seed + count):
        x, y, start, share = make(s)
        costs = []
        for i, how in enumerate(({}, {"acceptance": "full"})):
            began = time.process_time()
            costs.append(fit(line, x, y, start, **how))
            seconds[i] += time.process_time() - began
        ours, full = costs
        slack = 1e-9 * full.cost + 1e-3
        if ours.cost > full.cost + slack:
            found["default above"] += 1
            found["examples"].append(f"seed {s}, N = {len(x)}, share {share:.1e}: {ours.message}")
        found["LM above"] += full.cost > ours.cost + slack
    return [found | {"seconds": round(seconds[0], 2), "seconds of LM": round(seconds[1], 2)}]


def table(rows: list[dict[str, Any]]) -> str:
    columns = ("count", "default above", "LM above", "seconds", "seconds of LM")
    return markdown_table(
        ["problems", "default above LM", "LM above the default", "CPU s, default", "CPU s, LM"],
        [[str(r[c]) for c in columns] for r in rows],
    )
