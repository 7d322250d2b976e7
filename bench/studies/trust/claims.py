"""Claims of success, counted: each solver on the same problems, every success polished by SciPy.

See `tests.helpers.polish` for the judge. Seeds are those that `bench.studies.trust.__main__` states.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from tests.helpers import zoo
from tests.helpers.polish import judged

from ...harness.summary import markdown_table

COLUMNS = ("right", "honest failure", "false success", "crash", "worse minimum")
_WORDS = {"right": "right", "honest": "honest failure", "false": "false success", "crash": "crash"}
_SCIPYS = ("linear", "huber", "soft_l1", "cauchy", "arctan")
Solved = Callable[[], zoo.Outcome]


def count(kind: str, problems: Iterable[tuple[zoo.Fit, Solved]]) -> list[dict[str, Any]]:
    """One record for each solver: ours, given with each problem, and SciPy's where they can take it."""
    tallies: dict[str, Counter[str]] = {}
    seconds: Counter[str] = Counter()
    examples: dict[str, list[str]] = {}
    for fit, ours in problems:
        solvers: dict[str, Solved] = {"ProBLM": ours}
        if fit.loss == "linear" and not np.isfinite(np.concatenate([np.ravel(b) for b in fit.bounds])).any():
            solvers["SciPy lm"] = lambda fit=fit: zoo.scipy_lm(fit)
        if fit.loss in _SCIPYS:
            solvers["SciPy trf"] = lambda fit=fit: zoo.scipy_trf(fit)
        costs = {}
        for name, solver in solvers.items():
            outcome = solver()
            verdict, found = judged(fit, outcome)
            tally = tallies.setdefault(name, Counter())
            tally[_WORDS[verdict]] += 1
            tally["count"] += 1
            seconds[name] += outcome.seconds
            if verdict in ("false", "crash"):
                told = f"{found.distance:.2g} standard errors" if found is not None else outcome.message
                examples.setdefault(name, []).append(f"{fit.name}: {told}")
            if outcome.x is not None and np.isfinite(outcome.x).all():
                costs[name] = fit.cost(outcome.x)
        for name, cost in costs.items():
            tallies[name]["worse minimum"] += not cost <= 1.0001 * min(costs.values()) + 1e-12
    return [
        {"kind": kind, "solver": name, "count": tally["count"], "seconds": round(seconds[name], 3)}
        | {column: tally[column] for column in COLUMNS}
        | {"examples": examples.get(name, [])[:20]}
        for name, tally in tallies.items()
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """Rows of a part, and their sums by solver where there are several kinds."""
    kinds = {r["kind"] for r in rows}
    sums = []
    for solver in dict.fromkeys(r["solver"] for r in rows):
        own = [r for r in rows if r["solver"] == solver]
        sums.append({"kind": "all", "solver": solver} | {c: sum(r[c] for r in own) for c in ("count", *COLUMNS)})
    shown = [*rows, *sums] if len(kinds) > 1 else rows
    cells = [
        [r["kind"] if r["solver"] == "ProBLM" else "", r["solver"], str(r["count"]), *(str(r[c]) for c in COLUMNS)]
        for r in shown
    ]
    return markdown_table(["class", "solver", "problems", *COLUMNS], cells)


def timed(call: Callable[[], list[dict[str, Any]]], name: str) -> list[dict[str, Any]]:
    """Rows of one kind, with a line of progress."""
    began = time.perf_counter()
    rows = call()
    print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    return rows
