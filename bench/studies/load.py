"""Under load: memory over many solves and over a long one, and latencies for real-time use.

    python -m bench.studies.load                       # some ten minutes
    python -m bench.studies.load --full                # a million solves and an hour
    python -m bench.studies.load latency --calls 1000  # one part, smaller

*small*: fits of 500 rows in one process, one after the other, each with new data; every tenth is a NumPy function and
every hundredth a formula that was never read before. *long*: plain LM on 4 million rows of noise, which wanders down a
valley without an end; where a solve ends all the same, the next begins. *latency*: refinement of an essential matrix
from 2,000 matches, each call from another start. The resident memory is read at every tenth. Writes
``bench/results/load.md`` and ``load.json``.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import problm

from ..harness import record
from ..harness.summary import markdown_table

PARTS = ("small", "long", "latency")
ROWS = 500
MATCHES = 2000
SHARES = (50.0, 90.0, 99.0, 99.9)


def resident() -> float:
    """Resident memory of this process in MB; the peak if the system does not report the present value."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def decay(theta: Any, x: Any, y: Any) -> Any:
    return theta[0] * np.exp(-theta[1] * x) + theta[2] - y


def small(count: int) -> dict[str, Any]:
    """Many fits of few rows."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 4.0, ROWS)
    truth = 2.5 * np.exp(-1.3 * x) + 0.5
    model = problm.formula("a*exp(-b*x) + c")
    start, failed = [1.0, 1.0, 0.0], 0

    def solve(i: int) -> bool:
        y = truth + 0.1 * rng.standard_normal(ROWS)
        if i % 100 == 0:
            fresh = problm.formula(f"a*exp(-b*x) + c + 0*{i}")
            return bool(problm.least_squares(fresh, start, data=(x, y)).success)
        return bool(problm.least_squares(decay if i % 10 == 9 else model, start, data=(x, y)).success)

    for i in range(200):  # imports and caches
        solve(i)
    memory, began = [resident()], time.perf_counter()
    for tenth in range(10):
        for i in range(count * tenth // 10, count * (tenth + 1) // 10):
            failed += not solve(i)
        memory.append(resident())
        print(f"small: {count * (tenth + 1) // 10:,} solves, {memory[-1]:.1f} MB", flush=True)
    seconds = time.perf_counter() - began
    return {
        "part": "small", "count": count, "rows": ROWS, "failed": failed, "microseconds": 1e6 * seconds / count,
        "memory_MB": memory, "seconds": seconds,
    }  # fmt: skip


def long(minutes: float) -> dict[str, Any]:
    """A solve for a long time."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 1.0, 4_000_000)
    y = rng.standard_normal(x.size)
    model = problm.formula("a*sin(b*x) + c*cos(d*x) + g*tanh(f*x)")
    began, memory, iterations, solves = time.perf_counter(), [0.0], 0, 0

    def look(state: Any) -> bool:
        nonlocal iterations
        iterations += 1
        passed = (time.perf_counter() - began) / (60.0 * minutes)
        if iterations == 3:
            memory[0] = resident()
        if passed >= len(memory) / 10.0:
            memory.append(resident())
            print(f"long: {60.0 * minutes * passed:.0f} s, {iterations} iterations, {memory[-1]:.1f} MB", flush=True)
        return passed >= 1.0

    while time.perf_counter() - began < 60.0 * minutes:
        start = np.array([1.0, 40.0, 1.0, 55.0, 1.0, 3.0]) * rng.uniform(0.8, 1.2, 6)
        problm.least_squares(
            model, start, data=(x, y), method="lm", ftol=0.0, xtol=0.0, gtol=0.0, max_iter=10**9, callback=look
        )
        solves += 1
    return {
        "part": "long", "minutes": minutes, "rows": x.size, "solves": solves, "iterations": iterations,
        "memory_MB": memory, "seconds": time.perf_counter() - began,
    }  # fmt: skip


def latency(calls: int) -> dict[str, Any]:
    """Refinements of an essential matrix, one call after the other, as for a video."""
    from problm.manifolds import rotation_exp
    from problm.vision.two_view.simulate import two_views

    views = two_views(MATCHES, seed=1)
    rng = np.random.default_rng(0)
    starts = []
    for _ in range(256):
        t = views.t + 0.05 * rng.standard_normal(3)
        starts.append((views.R @ rotation_exp(0.02 * rng.standard_normal(3)), t / np.linalg.norm(t)))

    def refine(i: int, robust: bool) -> bool:
        options: dict[str, Any] = {"robust": True, "threshold": 2.0} if robust else {"robust": False}
        found = problm.essential_matrix(views.x1, views.x2, views.K, initial=starts[i % len(starts)], **options)
        return bool(found.success)

    record: dict[str, Any] = {"part": "latency", "matches": MATCHES, "calls": calls}
    for name, robust in (("squared", False), ("robust", True)):
        for i in range(20):
            refine(i, robust)
        before, failed, times = resident(), 0, np.empty(calls)
        for i in range(calls):
            began = time.perf_counter()
            good = refine(i, robust)
            times[i] = time.perf_counter() - began
            failed += not good
        shares = {f"p{share:g}": float(v) for share, v in zip(SHARES, 1e3 * np.percentile(times, SHARES), strict=True)}
        record[name] = {**shares, "worst": 1e3 * float(times.max()), "failed": failed, "MB": resident() - before}
        print(f"latency, {name}: {record[name]}", flush=True)
    return record


def describe(found: dict[str, Any]) -> list[str]:
    text = ["# Under load"]
    for part in ("small", "long"):
        if part in found:
            r = found[part]
            memory = r["memory_MB"]
            told = (
                f"{r['count']:,} fits of {r['rows']} rows in one process: {r['microseconds']:.0f} us each, "
                f"{r['failed']} without success."
                if part == "small"
                else f"{r['seconds'] / 60:.1f} minutes of LM on {r['rows']:,} rows: {r['iterations']:,} iterations "
                f"in {r['solves']} solves."
            )
            text.append(f"**{told}** Resident memory at the start and after every tenth, MB:")
            tenths = [f"{10 * k} %" for k in range(len(memory))]
            text.append(markdown_table(tenths, [[f"{m:.1f}" for m in memory]]))
    if "latency" in found:
        r = found["latency"]
        names = [*(f"p{s:g}" for s in SHARES), "worst"]
        rows = [
            [kind, *(f"{r[kind][n]:.3f}" for n in names), r[kind]["failed"], f"{r[kind]['MB']:.1f}"]
            for kind in ("squared", "robust")
        ]
        text.append(f"**Refinement of an essential matrix, {r['matches']:,} matches, {r['calls']:,} calls.** ms:")
        text.append(markdown_table(["errors", *names, "failed", "MB more at the end"], rows))
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all if not given")
    parser.add_argument("--count", type=int, default=100_000, help="small solves (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=5.0, help="of the long solve (default: %(default)s)")
    parser.add_argument("--calls", type=int, default=10_000, help="refinements (default: %(default)s)")
    parser.add_argument("--full", action="store_true", help="a million small solves and an hour of the long one")
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    arguments = parser.parse_args()
    if unknown := [p for p in arguments.parts if p not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    count, minutes = (1_000_000, 60.0) if arguments.full else (arguments.count, arguments.minutes)
    runs: dict[str, Callable[[], dict[str, Any]]] = {
        "small": lambda: small(count), "long": lambda: long(minutes), "latency": lambda: latency(arguments.calls),
    }  # fmt: skip
    began = time.perf_counter()
    for part in arguments.parts or PARTS:
        measured = runs[part]()
        # Parts that are not run now are kept; others may have run at the same time.
        found = (record.read(arguments.output, "load") or {}) | {part: measured}
        known = record.about(seconds=time.perf_counter() - began)
        record.write(arguments.output, "load", describe(found), found, known)


if __name__ == "__main__":
    main()
