"""First guesses: in how many random cases Levenberg-Marquardt, started from the guess, finds the best fit.

    OMP_NUM_THREADS=1 python -m bench.studies.first_guesses [--cases 1000] [--first 70000] [--only NAME ...]

For each ready-made model, and for some sums and formulas of one and two variables: parameters drawn at random, 100 to
5000 points evenly or randomly spaced, noise of 5 % of the curve's spread, x and y in units that differ by factors of up
to a million, and x beginning up to five ranges from zero where the kind of curve permits it. A case is found if
MINPACK, started from `Model.guess`, ends at most 0.1 % above the sum of squares of the true parameters. Seeds are those
from ``--first`` on, divided among processes. A study in parts (``--skip-known``) keeps the parts that are not measured
again. Writes ``first_guesses.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tests.helpers.curves import DRAWS, SUMS, found

from ..harness import record
from ..harness.summary import markdown_table

ENOUGH = 0.95


_PART = 50
"""Cases that a process takes at a time."""


def part(name: str, first: int, cases: int) -> tuple[list[int], float]:
    """Seeds of the cases that were missed, and CPU seconds."""
    began = time.process_time()
    missed = [seed for seed in range(first, first + cases) if not found(name, seed, units=True)]
    return missed, time.process_time() - began


def measure(pool: Executor, name: str, first: int, cases: int) -> dict[str, Any]:
    starts = range(first, first + cases, _PART)
    parts = list(pool.map(part, [name] * len(starts), starts, [min(_PART, first + cases - s) for s in starts]))
    missed = [seed for seeds, _ in parts for seed in seeds]
    return {
        "model": name, "first": first, "cases": cases, "found": cases - len(missed), "missed": missed[:20],
        "milliseconds": 1e3 * sum(seconds for _, seconds in parts) / cases,
    }  # fmt: skip


def describe(rows: list[dict[str, Any]]) -> list[str]:
    low = [r["model"] for r in rows if r["found"] < ENOUGH * r["cases"]]
    seeds = sorted({(r["first"], r["cases"]) for r in rows})
    table = [[r["model"], f"{r['found']} of {r['cases']}", f"{r['milliseconds']:.0f}"] for r in rows]
    return [
        "# First guesses",
        "Cases in which MINPACK, started from the guess, finds the best fit (at most 0.1 % above the sum of squares "
        f"of the true parameters), in random units; seeds {', '.join(f'{a} to {a + n - 1}' for a, n in seeds)}. "
        f"*ms*: CPU time of drawing, guess and fit. Below {ENOUGH:.0%}: {', '.join(low) or 'none'}.",
        markdown_table(["model", "found", "ms"], table),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=70_000)
    parser.add_argument("--only", nargs="+", default=[*DRAWS, *SUMS])
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--skip-known", action="store_true", help="leave models that were measured with these seeds")
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    options = parser.parse_args()
    began = time.perf_counter()
    known = {r["model"]: r for r in record.read(options.output, "first_guesses") or []}
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        for name in options.only:
            last = known.get(name)
            if options.skip_known and last and (last["first"], last["cases"]) == (options.first, options.cases):
                continue
            known[name] = measure(pool, name, options.first, options.cases)
            rows = [known[n] for n in (*DRAWS, *SUMS) if n in known]
            record.write(
                options.output, "first_guesses", describe(rows), rows,
                record.about(seed=options.first, seconds=time.perf_counter() - began), quiet=True,
            )  # fmt: skip
            print(name, known[name]["found"], f"{known[name]['milliseconds']:.0f} ms", flush=True)


if __name__ == "__main__":
    main()
