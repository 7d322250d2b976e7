"""The default against our own Levenberg-Marquardt, everything else equal: kernels, tolerances, starts, pyramid, seeds.

    OPENBLAS_NUM_THREADS=1 python -m bench.studies.like_for_like [--data DIR] [--largest 1000000]

CPU time on one thread of the whole call, to the end that each of them declares; the two take turns, in turn as the
first, and the least of eight calls or more counts for each: of as many as take 0.4 s. A ratio above one means that
batches pay.
Medians are over the starts or pairs of a row, which are fixed beforehand by the seed.

Where a solve is one run of the loop (curves, refined poses, bundles), another call of each notes the CPU time of every
iteration, and the cost over all rows is computed afterwards at every point on the way: times to within 1 % and 1e-6 of
the lower of the two ends.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import problm
from problm.api.curve_fit import fit

from ..data import problems, sources, stand_ins
from ..data.instances import FORMULAS, poses_near
from ..harness import record
from ..harness.summary import markdown_table
from .like_for_like_threads import measured

SEED = 20261
"""Nobody looked at these starts and scenes before. Sizes of samples and batches were chosen with seeds 1 to 50."""
REPEATS, MOST_REPEATS, LEAST_SECONDS = 8, 200, 0.4
"""Calls of each of the two: a call of a millisecond is repeated until the least time no longer depends on chance, and a
long one often enough that other work on the machine, which slows passes over large arrays by half, misses one of them.
"""
Call = Callable[..., Any]
ROBUST: dict[str, Any] = {"loss": "cauchy", "f_scale": 0.5}
"""A robust loss and its scale, 1.7 times the noise."""
CURVES = {
    "exponential": problems.exponential,
    "double Gaussian + line": problems.double_gaussian,
    "damped sine, heavy tails": problems.damped_sine,
}
ONE_LOOP = ("curve", "robust curve", "essential matrix, refined", "affine")


def curves(sizes: list[int]) -> Iterator[tuple[str, int, list[Call]]]:
    for name, make in CURVES.items():
        for n in sizes:
            made = make(n, SEED, starts=5)
            model = problm.formula(FORMULAS[name])
            yield (
                f"curve: {name}", n,
                [lambda m=model, d=made.data, s=s, **o: fit(m, *d, s, threads=1, **o) for s in made.starts],
            )  # fmt: skip
            yield (
                f"robust curve: {name}, {ROBUST['loss']} loss", n,
                [lambda m=model, d=made.data, s=s, **o: fit(m, *d, s, threads=1, **ROBUST, **o) for s in made.starts],
            )  # fmt: skip


def poses(sizes: list[int]) -> Iterator[tuple[str, int, list[Call]]]:
    for n in sizes:
        views = stand_ins.matches(SEED, n)
        starts = poses_near(np.random.default_rng(SEED), views.R, views.t, 5, 0.2, 0.3)

        def refine(start: Any, views: Any = views, **options: Any) -> Any:
            initial = start[:9].reshape(3, 3), start[9:]
            return problm.essential_matrix(views.x1, views.x2, views.K, robust=False, initial=initial, **options).result

        yield "essential matrix, refined", n, [lambda s=s, r=refine, **o: r(s, **o) for s in starts]
    for n in sizes:
        mixed = [stand_ins.matches(SEED + k, n, inliers=0.6) for k in range(3)]
        yield (
            "essential matrix, robust", n,
            [lambda v=v, **o: problm.essential_matrix(v.x1, v.x2, v.K, **o).result for v in mixed],
        )  # fmt: skip


def bundles(sizes: list[int]) -> Iterator[tuple[str, int, list[Call]]]:
    for loss, n in itertools.product(("linear", "huber"), sizes):
        made = [stand_ins.tracks(SEED + k, 5, n) for k in range(3)]
        yield (
            f"affine bundle, 5 views, {loss} loss", n,
            [
                lambda t=t, loss=loss, **o: problm.affine_bundle_adjustment(
                    t.observations, (t.rotations, t.translations), depths=t.depths, threads=1, loss=loss, f_scale=1e-3,
                    **o,
                ).result
                for t in made
            ],
        )  # fmt: skip


def pairs(data: str | None) -> Iterator[tuple[str, int, list[Call]]]:
    if not data:
        return
    for name in (*sources.PAPER_PAIRS, *sources.MORE_PAIRS):
        first, second = sources.adelaide_images(data, name, 300_000)
        yield (
            f"align: {name}", first.size,
            [lambda a=first, b=second, **o: problm.align(a, b, threads=1, **o).result],
        )  # fmt: skip


def way(call: Call, **options: Any) -> tuple[list[float], list[float]]:
    """CPU time at the end of each iteration, and the cost over all rows there."""
    clock: list[float] = []
    began = time.process_time()
    result = call(keep_path=True, callback=lambda state: clock.append(time.process_time() - began), **options)
    known: dict[int, float] = {}
    for theta in result.history.path:
        if id(theta) not in known:
            known[id(theta)] = result.problem.cost(theta)
    return clock, [known[id(theta)] for theta in result.history.path]


def reached(clock: list[float], costs: list[float], level: float) -> float:
    """When the cost was at the level for good."""
    above = [k for k, cost in enumerate(costs) if not cost <= level]
    after = above[-1] + 1 if above else 0
    return clock[after] if after < len(clock) else math.inf


def on_the_way(call: Call) -> dict[str, float]:
    """Ratios of the times to 1 % and to 1e-6, and how far the default ends above LM."""
    ours, lm = way(call), way(call, acceptance="full")
    best = min(ours[1][-1], lm[1][-1])
    ratios = {
        name: reached(*lm, best * (1.0 + level)) / reached(*ours, best * (1.0 + level))
        for name, level in (("to 1 %", 1e-2), ("to 1e-6", 1e-6))
    }
    return {**ratios, "above": ours[1][-1] / lm[1][-1] - 1.0}


def timed(call: Call, **options: Any) -> tuple[float, Any]:
    began = time.process_time()
    result = call(**options)
    return time.process_time() - began, result


def measure(call: Call) -> dict[str, Any]:
    """Seconds of both, their ratio, passes, how far the default ends above LM, and whether it ends at the same bits, as
    where it uses all rows from the start: the ratio is then one but for noise."""
    options: dict[str, dict[str, Any]] = {"ours": {}, "lm": {"acceptance": "full"}}
    times: dict[str, list[float]] = {"ours": [], "lm": []}
    results: dict[str, Any] = {}
    while len(times["lm"]) < REPEATS or (len(times["lm"]) < MOST_REPEATS and sum(times["lm"]) < LEAST_SECONDS):
        for name in sorted(times, reverse=len(times["lm"]) % 2 == 0):
            seconds, results[name] = timed(call, **options[name])
            times[name].append(seconds)
    best, ours, lm = {name: min(found) for name, found in times.items()}, results["ours"], results["lm"]
    return {
        **best, "ratio": best["lm"] / best["ours"], "passes": ours.jacobian_passes, "lm passes": lm.jacobian_passes,
        "above": lm.problem.cost(ours.x) / lm.problem.cost(lm.x) - 1.0, "success": bool(ours.success),
        "same": bool(np.array_equal(ours.x, lm.x)),
    }  # fmt: skip


def middle(runs: list[dict[str, Any]], name: str) -> str:
    """Median of a ratio over the runs, where it was measured."""
    return f"{median(r[name] for r in runs):.3g}" if name in runs[0] else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("PROBLM_DATA") or None)
    parser.add_argument("--largest", type=int, default=10_000_000)
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    arguments = parser.parse_args()
    began = time.perf_counter()
    sizes = [n for n in (10_000, 100_000, 1_000_000, 10_000_000) if n <= arguments.largest]
    small = [n for n in (20_000, 200_000, 1_000_000) if n <= arguments.largest]
    rows = []
    cases = [*curves(sizes[:-1] if len(sizes) > 3 else sizes), *poses(small), *bundles([10_000, 100_000])]
    for name, n, calls in [*cases, *pairs(arguments.data), *(curves(sizes[3:]) if len(sizes) > 3 else ())]:
        found = [measure(call) for call in calls]
        if name.startswith(ONE_LOOP):
            found = [{**f, **on_the_way(call)} for f, call in zip(found, calls, strict=True)]
        ratios = [f["ratio"] for f in found]
        row = {"problem": name, "n": n, "ratio": record.spread(ratios), "runs": found}
        rows.append(row)
        print(f"{name}, N = {n:,}: {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)
    cells = [
        [
            r["problem"], f"{r['n']:,}", *(middle(r["runs"], level) for level in ("to 1 %", "to 1e-6")),
            record.told(r["ratio"]),
            f"{1e3 * median(f['ours'] for f in r['runs']):.3g}", f"{median(f['passes'] for f in r['runs']):.2f}",
            f"{median(f['lm passes'] for f in r['runs']):.2f}",
            "same steps" if all(f["same"] for f in r["runs"]) else f"{max(f['above'] for f in r['runs']):.1e}",
        ]
        for r in rows
    ]  # fmt: skip
    speedups = measured(sizes[2:], SEED, REPEATS)
    parallel = [
        [
            r["problem"].removeprefix("threads: "), f"{r['n']:,}", record.told(r["ratio"]),
            f"{1e3 * median(f['all'] for f in r['runs']):.3g}",
            "yes" if all(f["same"] for f in r["runs"]) else "**no**",
        ]
        for r in speedups
    ]  # fmt: skip
    text = [
        "# Like for like: the default against our own LM",
        "CPU time of the whole call on one thread, everything else equal: time of LM over time of the default, median "
        "(least to greatest) over starts, scenes or the pair itself, until the cost is within 1 % or 1e-6 of its "
        "minimum for good, and to the end that each declares. *ms*: of the default, to the end. Passes linearise all "
        "rows once; one with second derivatives, which curves end with, takes 1.04 to 1.13 times as long. *Above*: the "
        "largest relative excess of the default's cost over LM's, for robust poses by the inliers and the loss that LM "
        "ended with; below zero it ended lower. *Same steps*: batches would not pay, and both end at the same "
        "bits by the same steps; the ratio is noise of the clock, but for image pairs: a search that begins again "
        "without a pyramid tries samples of the pixels, and may come to nothing.",
        markdown_table(["problem", "N", "to 1 %", "to 1e-6", "to the end", "ms", "passes", "LM's", "above"], cells),
        "## Threads",
        f"Wall time of the default on one thread over that on all {speedups[0]['threads']} cores, which it uses unless "
        "`threads` says otherwise, in a process of its own: median (least to greatest) over the starts. *ms*: on all "
        "cores. Both compete with whatever else runs."
        if speedups
        else "Not measured: the machine has one core.",
        *([markdown_table(["problem", "N", "speed-up", "ms", "same bits"], parallel)] if speedups else []),
    ]
    record.write(
        arguments.output,
        "like_for_like",
        text,
        rows + speedups,
        record.about(seconds=time.perf_counter() - began, seed=SEED),
    )


if __name__ == "__main__":
    main()
