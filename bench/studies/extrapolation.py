"""Savings by extrapolated steps: passes over all rows to the certificate, with and without them.

    PROBLM_DATA=... python -m bench.studies.extrapolation [--seeds 5] [-o bench/results]

Robust fits of two curves, as NumPy functions, with a fifth of outliers, 20,000 points, and the problems of NIST's StRD
from both starts, all at the default settings. A trial over all rows and a linearisation count one pass each. Counts do
not depend on the machine; rows whose two solves end in different minima (costs that differ by more than 1e-8) are left
out, and counted.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import problm
from problm.api.curve_fit import fit
from problm.linalg import quadratic as system

from ..harness import record
from ..harness.summary import markdown_table

LOSSES = ("linear", "huber", "soft_l1", "cauchy", "geman_mcclure", "welsch", "tukey")
CURVES: dict[str, tuple[str, tuple[float, float], list[float], list[float]]] = {
    "exponential": ("a*exp(-b*x) + c", (0.0, 5.0), [2.5, 1.3, 0.5], [1.0, 0.5, 0.0]),
    "double Gaussian + line": (
        "a1*exp(-((x - m1)/w1)**2/2) + a2*exp(-((x - m2)/w2)**2/2) + k*x + c", (-5.0, 5.0),
        [3.0, 1.0, 0.7, 2.0, -1.5, 0.9, 0.1, 0.5], [2.0, 0.5, 1.0, 1.0, -1.0, 1.0, 0.0, 0.0],
    ),
}  # fmt: skip
"""Formula, range of x, truth and start, the parameters in the order in which they appear."""

Solve = Callable[[], problm.Result]


def robust(seeds: int, n: int = 20_000) -> Iterator[tuple[str, Solve]]:
    """Curves with noise of 0.2 and a fifth of the points displaced by the height of the curve."""
    for name, (text, span, truth, start) in CURVES.items():
        model = problm.formula(text)
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            x = rng.uniform(*span, n)
            y = model(x, *truth) + 0.2 * rng.standard_normal(n)
            y += np.where(rng.random(n) < 0.2, rng.normal(0.0, 3.0, n), 0.0)
            for loss in LOSSES:
                options: dict[str, Any] = {"loss": loss, "f_scale": 0.6, "rng": seed, "threads": 1}
                yield (
                    f"{name}, {loss}",
                    lambda x=x, y=y, f=model.__call__, start=start, o=options: fit(f, x, y, start, **o),
                )


def certified(data: Path) -> Iterator[tuple[str, Solve]]:
    """NIST's problems, with exact derivatives."""
    from tests.helpers import nist

    for name in nist.MODELS:
        case = nist.read(data / "nist_strd", name)
        for start in case.starts:
            yield f"NIST, {case.difficulty}", lambda c=case, s=start: fit(c.model, c.x, c.y, s, jac=c.jacobian)


def both(solve: Solve) -> tuple[problm.Result, problm.Result]:
    """With extrapolated steps, and without."""
    near = system.NEAR
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        extrapolated = solve()
        try:
            system.NEAR = 0.0
            plain = solve()
        finally:
            system.NEAR = near
    return extrapolated, plain


def measure(cases: Iterator[tuple[str, Solve]]) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {}
    for name, solve in cases:
        row = found.setdefault(name, {"with": [], "without": [], "apart": []})
        with_, without = both(solve)
        if not (with_.success and without.success and np.isclose(with_.cost, without.cost, rtol=1e-8)):
            row["apart"].append(with_.cost / without.cost - 1.0)
            continue
        for key, result in (("with", with_), ("without", without)):
            row[key].append(result.residual_passes + result.jacobian_passes)
        print(f"{name}: {row['with'][-1]:.1f} passes with, {row['without'][-1]:.1f} without", flush=True)
    return found


def describe(found: dict[str, dict[str, list[float]]]) -> list[str]:
    rows = []
    for name, row in found.items():
        ratios = [a / b for a, b in zip(row["with"], row["without"], strict=True)]
        if ratios:
            rows.append([
                name, f"{median(row['without']):.1f}", f"{median(row['with']):.1f}",
                f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})", len(ratios), len(row["apart"]),
            ])  # fmt: skip
        else:
            rows.append([name, None, None, None, 0, len(row["apart"])])
    head = ["fits", "passes without", "with", "ratio (least–largest)", "solves", "other minima"]
    return [
        "# Extrapolated steps",
        "Medians of passes over all rows to the certificate, trials and linearisations.",
        markdown_table(head, rows),
    ]


def main() -> int:
    p = argparse.ArgumentParser(
        prog="python -m bench.studies.extrapolation", description=(__doc__ or "").split("\n")[0]
    )
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    options = p.parse_args()
    began = time.perf_counter()
    found = measure(robust(options.seeds))
    data = os.environ.get("PROBLM_DATA")
    if data:
        found |= measure(certified(Path(data)))
    else:
        print("NIST's problems are left out: PROBLM_DATA is not set", file=sys.stderr)
    record.write(
        options.output, "extrapolation", describe(found), found, record.about(seconds=time.perf_counter() - began)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
