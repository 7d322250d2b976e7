"""Random problems of sixteen classes: the claims of each solver, checked by independent derivatives over all residuals.

For every class of `tests/helpers/random_problems.py`: how often a solver succeeds *and is right*, how often it claims a
success that the check refutes, fails and says so, ends above the cost of its start, crashes, or returns what is not
finite.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from tests.helpers import random_problems, zoo

from problm.solver.result import Status

from ...harness.summary import markdown_table
from .claims import timed

TITLE = "Ordinary problems, and worse"
TEXT = (
    "*Right*: a success that an independent check of the gradient over all residuals confirms. *Worse minimum*: a cost "
    "1e-4 above the best of the three, whatever was claimed. *Runs away*: a failure that says so, where "
    "parameters run to infinity; SciPy calls that a success."
)
SOLVERS = {"ProBLM": zoo.problm, "SciPy lm": zoo.scipy_lm, "SciPy trf": zoo.scipy_trf}
KINDS = list(random_problems.KINDS)
COLUMNS = (
    "right",
    "runs away",
    "honest failure",
    "false success",
    "cost above the start's",
    "not finite",
    "crash",
    "worse minimum",
)


def judge(fit: zoo.Fit, outcome: zoo.Outcome) -> str:
    """The column that an outcome belongs to."""
    found = zoo.violations(fit, outcome)
    if not found:
        if getattr(outcome.result, "status", None) is Status.RUNS_AWAY:
            return "runs away"
        return "right" if outcome.success else "honest failure"
    first = found[0].split(":")[0]
    if first.startswith("not finite"):
        return "not finite"
    return {"crash": "crash", "cost above the start's": first}.get(first, "false success")


def run_class(kind: str, count: int, seed: int) -> list[dict[str, Any]]:
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
            if verdict not in ("right", "runs away", "honest failure"):
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


def counts(total: int) -> dict[str, int]:
    """Problems of each class. Large problems take as long as all the others together: 100 of them."""
    many = min(100, total // len(KINDS))
    others = [k for k in KINDS if k != "many_rows"]
    rest = total - many
    return {k: rest // len(others) + (i < rest % len(others)) for i, k in enumerate(others)} | {"many_rows": many}


def run(count: int, seed: int) -> list[dict[str, Any]]:
    rows = []
    for kind, number in counts(count).items():
        rows += timed(lambda kind=kind, number=number: run_class(kind, number, seed), kind)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    cells = [
        [
            r["kind"].replace("_", " ") if r["solver"] == "ProBLM" else "", r["solver"], str(r["count"]),
            *(str(r[c]) for c in COLUMNS), f"{1e3 * r['seconds'] / r['count']:.1f}",
        ]
        for r in rows
    ]  # fmt: skip
    for solver in SOLVERS:
        own = [r for r in rows if r["solver"] == solver]
        cells.append(["all", solver, *(str(sum(r[c] for r in own)) for c in ("count", *COLUMNS)), ""])
    return markdown_table(["class", "solver", "problems", *COLUMNS, "ms per problem"], cells)
