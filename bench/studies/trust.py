"""Ten thousand random problems: the claims of each solver, checked by independent derivatives over all residuals.

    python -m bench.studies.trust                    # all of them, about half an hour on one core
    python -m bench.studies.trust --count 1000 --kinds plain robust

For every class of `tests/helpers/random_problems.py`: how often a solver succeeds *and is right*, how often it claims a
success that the check refutes, fails and says so, ends above the cost of its start, crashes, or returns what is not
finite. Writes ``bench/results/trust.md`` and ``trust.json``; classes that are not run again stay as they were.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from tests.helpers import random_problems, zoo

from ..harness import record
from ..harness.summary import markdown_table

SOLVERS = {"ProBLM": zoo.problm, "SciPy lm": zoo.scipy_lm, "SciPy trf": zoo.scipy_trf}
KINDS = list(random_problems.KINDS)
COLUMNS = ("right", "honest failure", "false success", "cost above the start's", "not finite", "crash", "worse minimum")


def judge(fit: zoo.Fit, outcome: zoo.Outcome) -> str:
    """The column that an outcome belongs to."""
    found = zoo.violations(fit, outcome)
    if not found:
        return "right" if outcome.success else "honest failure"
    first = found[0].split(":")[0]
    if first.startswith("not finite"):
        return "not finite"
    return {"crash": "crash", "cost above the start's": first}.get(first, "false success")


def run(kind: str, count: int, seed: int) -> list[dict[str, Any]]:
    """One class: a record for each solver that supports it."""
    tallies: dict[str, Counter[str]] = {name: Counter() for name in SOLVERS}
    seconds = dict.fromkeys(SOLVERS, 0.0)
    examples: dict[str, list[str]] = {name: [] for name in SOLVERS}
    for i in range(count):
        fit = random_problems.make(kind, seed + i)
        costs = {}
        for name, solver in SOLVERS.items():
            if name == "SciPy lm" and (fit.loss != "linear" or kind == "bounded"):
                continue  # this solver has neither losses nor bounds
            outcome = solver(fit)
            seconds[name] += outcome.seconds
            verdict = judge(fit, outcome)
            tallies[name][verdict] += 1
            if verdict not in ("right", "honest failure"):
                examples[name].append(f"{fit.name}: {zoo.violations(fit, outcome)[0]}")
            if outcome.x is not None and np.isfinite(outcome.x).all():
                costs[name] = fit.cost(outcome.x)
        for name, cost in costs.items():
            tallies[name]["worse minimum"] += cost > 1.0001 * min(costs.values()) + 1e-12
    return [
        {"kind": kind, "solver": name, "count": count, "seconds": seconds[name], "examples": examples[name][:20]}
        | {column: tally[column] for column in COLUMNS}
        for name, tally in tallies.items()
        if tally
    ]


def describe(rows: list[dict[str, Any]]) -> list[str]:
    total = sum(r["count"] for r in rows if r["solver"] == "ProBLM")
    cells = [
        [
            r["kind"].replace("_", " ") if r["solver"] == "ProBLM" else "", r["solver"], *(str(r[c]) for c in COLUMNS),
            f"{1e3 * r['seconds'] / r['count']:.1f}",
        ]
        for r in rows
    ]  # fmt: skip
    return [
        f"# {total:,} random problems",
        "*Right*: a success that an independent check of the gradient over all residuals confirms. *Worse minimum*: a "
        "cost 1e-4 above the best of the three, whatever was claimed.",
        markdown_table(["class", "solver", *COLUMNS, "ms per problem"], cells),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="problems in all")
    parser.add_argument("--kinds", nargs="*", default=list(random_problems.KINDS), choices=random_problems.KINDS)
    parser.add_argument("--seed", type=int, default=1_000_000, help="of the first problem of each class")
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    arguments = parser.parse_args()
    # Large problems take as long as all the others together: 100 of them.
    many = min(100, arguments.count) if "many_rows" in arguments.kinds else 0
    others = [k for k in arguments.kinds if k != "many_rows"]
    rows: list[dict[str, Any]] = record.read(arguments.output, "trust") or []
    first = time.perf_counter()
    for place, kind in enumerate([*others, "many_rows"] if many else others):
        rest = arguments.count - many
        count = many if kind == "many_rows" else rest // len(others) + (place < rest % len(others))
        began = time.perf_counter()
        found = run(kind, count, arguments.seed)
        rows = sorted([r for r in rows if r["kind"] != kind] + found, key=lambda r: KINDS.index(r["kind"]))
        print(f"{kind}: {count} problems, {time.perf_counter() - began:.0f} s", flush=True)
        known = record.about(seed=arguments.seed, seconds=time.perf_counter() - first)
        record.write(arguments.output, "trust", describe(rows), rows, known)


if __name__ == "__main__":
    main()
