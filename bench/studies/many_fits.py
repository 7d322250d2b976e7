"""Many small fits at once: `problm.fit_many` beside a loop over SciPy's `curve_fit`.

    python -m bench.studies.many_fits [--seeds 5] [--first 80000]

Dose-response curves, decays and peaks: 384 (a plate) and 10,000 with 11 and 60 points, 1,000 with 200 points. Ours
finds its own starts; SciPy gets the usual ones from the extremes of the data, and its loop is timed on 200 of the
curves. Both on one thread, in CPU seconds, in turn; the best of three. *away* is the largest distance of a parameter
from the minimum (ten steps of Gauss and Newton further), in standard errors. Writes ``many_fits.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize

import problm

from ..harness import record
from ..harness.summary import markdown_table

WANTED = 20.0
SIZES = ((11, 384), (11, 10_000), (60, 384), (60, 10_000), (200, 1_000))
Drawn = tuple[str, Callable[..., Any], Any, Any, Callable[..., Any]]


def dose_response(rng: np.random.Generator, n: int, count: int) -> Drawn:
    x = np.geomspace(1e-3, 1e2, n)
    half, slope = 10.0 ** rng.uniform(-1.5, 1.0, (count, 1)), rng.uniform(0.8, 2.0, (count, 1))
    y = 5.0 + 90.0 / (1.0 + (half / x) ** slope) + 2.0 * rng.standard_normal((count, n))
    return (
        "y ~ low + (high - low)/(1 + exp(-k*(log(x) - m)))",
        lambda x, low, high, k, m: low + (high - low) / (1.0 + np.exp(-k * (np.log(x) - m))),
        x, y, lambda x, w: [w.min(), w.max(), 1.0, 0.0],
    )  # fmt: skip


def decay(rng: np.random.Generator, n: int, count: int) -> Drawn:
    x = np.linspace(0.0, 5.0, n)
    y = rng.uniform(2, 5, (count, 1)) * np.exp(-rng.uniform(0.5, 2, (count, 1)) * x)
    return (
        "y ~ a*exp(-b*x)", lambda x, a, b: a * np.exp(-b * x),
        x, y + 0.05 * rng.standard_normal((count, n)), lambda x, w: [w.max(), 1.0],
    )  # fmt: skip


def peak(rng: np.random.Generator, n: int, count: int) -> Drawn:
    x = np.linspace(0.0, 10.0, n)
    u = (x - rng.uniform(2, 8, (count, 1))) / rng.uniform(0.6, 2.0, (count, 1))
    y = rng.uniform(1, 5, (count, 1)) * np.exp(-0.5 * u * u) + rng.uniform(-1, 1, (count, 1))
    return (
        "y ~ a*exp(-(x - m)**2/(2*s**2)) + c",
        lambda x, a, m, s, c: a * np.exp(-((x - m) ** 2) / (2.0 * s**2)) + c,
        x, y + 0.1 * rng.standard_normal((count, n)), lambda x, w: [np.ptp(w), x[w.argmax()], 1.0, w.min()],
    )  # fmt: skip


CURVES = {"dose-response": dose_response, "decay": decay, "peak": peak}


def measure(name: str, n: int, count: int, seed: int) -> dict[str, Any]:
    text, function, x, y, start = CURVES[name](np.random.default_rng(seed), n, count)
    some = y[:200]
    problm.fit_many(text, x, y[:10], threads=1)
    ours, theirs, lost = [], [], 0
    for _ in range(3):
        began = time.process_time()
        fits = problm.fit_many(text, x, y, threads=1)
        ours.append(time.process_time() - began)
        began, lost = time.process_time(), 0
        for w in some:
            try:
                optimize.curve_fit(function, x, w, start(x, w), maxfev=5000)
            except RuntimeError:
                lost += 1
        theirs.append((time.process_time() - began) * count / len(some))
    return {
        "curves": name, "points": n, "count": count, "seed": seed, "ratio": min(theirs) / min(ours),
        "us": 1e6 * min(ours) / count, "scipy_us": 1e6 * min(theirs) / count,
        "converged": float(fits.success.mean()), "scipy_lost": lost / len(some), "away": away(text, x, some, fits),
    }  # fmt: skip


def away(text: str, x: Any, y: Any, fits: Any) -> float:
    """The largest distance of the first fits from the minimum, in standard errors."""
    model = problm.formula(text)
    largest = 0.0
    for w, theta, error, good in zip(y, fits.values, fits.errors, fits.success, strict=False):
        if good and np.isfinite(error).all():
            at = theta.copy()
            for _ in range(10):
                at = at - np.linalg.lstsq(model.jacobian(x, *at) * error, model(x, *at) - w)[0] * error
            if np.sum((model(x, *at) - w) ** 2) <= np.sum((model(x, *theta) - w) ** 2) * (1.0 + 1e-9):
                largest = max(largest, float(np.abs((at - theta) / error).max()))
    return largest


def describe(rows: list[dict[str, Any]]) -> list[str]:
    table, low = [], []
    for name in CURVES:
        for n, count in SIZES:
            same = [r for r in rows if (r["curves"], r["points"], r["count"]) == (name, n, count)]
            ratios = [r["ratio"] for r in same]
            if min(ratios) < WANTED:
                low.append(f"{name} of {n} points, {count:,} of them")
            table.append([
                name, n, f"{count:,}", f"{np.median([r['us'] for r in same]):.1f}",
                f"{np.median([r['scipy_us'] for r in same]):.0f}", f"{np.median(ratios):.0f} ({min(ratios):.0f})",
                f"{100 * min(r['converged'] for r in same):.1f} %", f"{100 * max(r['scipy_lost'] for r in same):.1f} %",
                f"{max(r['away'] for r in same):.0e}",
            ])  # fmt: skip
    seeds = sorted({r["seed"] for r in rows})
    return [
        "# Many small fits",
        f"`problm.fit_many` beside a loop over SciPy's `curve_fit`, one thread; seeds {seeds[0]} to {seeds[-1]}. "
        "Medians of CPU us per fit; ratio: median (lowest); converged: lowest share; lost: largest share in which "
        "SciPy raised; away: largest distance from the minimum in standard errors. A ratio below "
        f"{WANTED:.0f}: {'; '.join(low) or 'none'}.",
        markdown_table(
            ["curves", "points", "number", "us", "SciPy us", "ratio", "converged", "SciPy lost", "away"], table
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=80_000)
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    options = parser.parse_args()
    began = time.perf_counter()
    rows = []
    for name in CURVES:
        for n, count in SIZES:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                rows += [measure(name, n, count, options.first + k) for k in range(options.seeds)]
            print(name, n, count, *(f"{r['ratio']:.0f}" for r in rows[-options.seeds :]), flush=True)
    record.write(
        options.output, "many_fits", describe(rows), rows,
        record.about(seed=options.first, seconds=time.perf_counter() - began),
    )  # fmt: skip


if __name__ == "__main__":
    main()
