"""Functions that look beyond their own row: a batch of rows must not change the answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.optimize
from tests.helpers.beyond_rows import BEYOND, T

import problm

from ...harness.summary import markdown_table

TITLE = "Functions beyond their own row"
TEXT = (
    "Kinds of functions whose value in a row depends on others (the first row, sums, ranks, convolutions, closures), "
    "30,000 rows, several noises each: how often `curve_fit` gives SciPy's parameters, to 0.01 standard errors."
)


def run(count: int, seed: int) -> list[dict[str, Any]]:
    each = max(count // len(BEYOND), 1)
    right, wrong = 0, []
    for name, f in BEYOND.items():
        for s in range(seed, seed + each):
            rng = np.random.default_rng([13, s])
            truth = rng.uniform(0.5, 2.0, 2)
            y = f(T, *truth) + 0.05 * rng.standard_normal(T.size)
            start = truth * rng.uniform(0.7, 1.3, 2)
            ours, _ = problm.curve_fit(f, T, y, start)
            theirs, covariance = scipy.optimize.curve_fit(f, T, y, start)
            same = bool((np.abs(ours - theirs) <= 0.01 * np.sqrt(covariance.diagonal())).all())
            right += same
            if not same:
                wrong.append(f"{name}, seed {s}")
    return [{"kinds": len(BEYOND), "count": each * len(BEYOND), "right": right, "examples": wrong[:20]}]


def table(rows: list[dict[str, Any]]) -> str:
    columns = ("kinds", "count", "right")
    return markdown_table(["kinds", "fits", "SciPy's answer"], [[str(r[c]) for c in columns] for r in rows])
