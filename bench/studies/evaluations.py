"""Number of evaluations of each method, in units of N residuals; a Jacobian counts as three.

    python -m bench.studies.evaluations [--sizes 100000 1000000] [--seeds 5] [--starts 1] [--workers 2]

For every problem, size and method: the units spent until the cost over all residuals stays within 1.01 F* and within
(1 + 1e-6) F*, and until the method's own stop; medians over the starts from which the method found the best minimum.
The cost over all residuals is computed outside the counting, alike for all methods. F* is the best cost that any
method found from any start of the same seed, which also makes the data. All methods have the default tolerances. The
seeds were fixed before the first run.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import problm
from problm.solver.policies.paper_tests import Paper, RelaxedPaper

from ..data.problems import Made, damped_sine, double_gaussian, essential, exponential
from ..harness import record
from ..harness.summary import markdown_table

METHODS: dict[str, dict[str, Any]] = {
    "LM, lambda I, x10": {"acceptance": "full", "damping": "tenfold"},
    "LM, trust region": {"acceptance": "full"},
    "Eq. 13, alpha .9": {"acceptance": Paper()},
    "Eq. 13, alpha 0": {"acceptance": Paper(alpha=0.0)},
    "Eq. 18 corrected, alpha .9": {"acceptance": RelaxedPaper()},
    "Eq. 18 corrected, alpha 0": {"acceptance": RelaxedPaper(alpha=0.0)},
    "Eq. 18 printed": {"acceptance": RelaxedPaper(printed=True)},
    "default": {},
}
PROBLEMS = {"exponential": exponential, "dblgauss": double_gaussian, "sine": damped_sine, "essential": essential}
JACOBIAN = 3.0
SEED = 7300
"""The first of the seeds."""


def run(made: Made, start: Any, method: dict[str, Any], seed: int) -> dict[str, Any]:
    """One solve: units and cost over all residuals after every iteration."""
    manifold = made.manifold
    fit = problm.least_squares(
        made.fun, start, jac=made.jac, data=made.data, manifold=manifold, rng=seed, keep_path=True, **method
    )
    history = fit.history
    units = [r + JACOBIAN * j for r, j in zip(history.residual_passes, history.jacobian_passes, strict=True)]
    costs: list[float] = []
    last = None
    for point in history.path:
        costs.append(costs[-1] if point is last else full_cost(made, point))
        last = point
    total = fit.residual_passes + JACOBIAN * fit.jacobian_passes
    rises = sum(
        b > a * (1 + 1e-12)
        for a, b, d, k in zip(costs, costs[1:], history.decision[1:], history.batch_size, strict=False)
        if d.startswith("accept") and k < fit.n
    )
    taken = sum(d.startswith("accept") and k < fit.n for d, k in zip(history.decision, history.batch_size, strict=True))
    return {"units": units, "costs": costs, "total": total, "final": fit.cost, "status": int(fit.status),
            "rises": rises, "taken": taken}  # fmt: skip


def full_cost(made: Made, point: Any) -> float:
    total = 0.0
    n = len(made.data[0])
    for lo in range(0, n, 65536):
        r = made.fun(point, *(a[lo : lo + 65536] for a in made.data))
        total += 0.5 * float(r @ r)
    return total


def reached(run: dict[str, Any], level: float) -> float:
    """Units at the last crossing of a level of the cost."""
    above = [i for i, c in enumerate(run["costs"]) if c > level]
    if not above:
        return float(run["units"][0])
    if above[-1] + 1 >= len(run["costs"]):
        return float("inf")
    return float(run["units"][above[-1] + 1])


def runs_of(name: str, n: int, seed: int, starts: int) -> list[dict[str, Any]]:
    """All methods on one problem: what each needed from every start, and whether it found the best minimum."""
    made = PROBLEMS[name](n, seed, starts=starts)
    found = []
    for method, options in METHODS.items():
        for i, start in enumerate(made.starts):
            found.append({"method": method, "seed": seed, **run(made, start, options, seed + i)})
    best = min(r["final"] for r in found)
    return [
        {
            "method": r["method"], "seed": seed, "found": r["final"] <= best * (1 + 1e-3),
            "c101": reached(r, 1.01 * best), "c1e-6": reached(r, (1 + 1e-6) * best),
            **{key: r[key] for key in ("total", "rises", "taken", "status")},
        }
        for r in found
    ]  # fmt: skip


def table(sizes: list[int], seeds: int, starts: int, workers: int) -> list[dict[str, Any]]:
    """One row per problem, size and method; counts do not depend on the clock, so seeds run beside each other."""
    rows = []
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for name, n in [(name, n) for name in PROBLEMS for n in sizes]:
            jobs = [pool.submit(runs_of, name, n, SEED + 10 * k, starts) for k in range(seeds)]
            runs = [r for job in jobs for r in job.result()]
            for method in METHODS:
                mine = [r for r in runs if r["method"] == method]
                rows.append({"problem": name, "n": n, "method": method, **summary(mine)})
                print(rows[-1], flush=True)
    return rows


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over the runs that found the best minimum, and the least and greatest median of a seed."""
    good = [r for r in runs if r["found"]]
    found: dict[str, Any] = {"found": f"{len(good)}/{len(runs)}"}
    for key in ("c101", "c1e-6", "total"):
        seeds = [median([r[key] for r in good if r["seed"] == seed]) for seed in dict.fromkeys(r["seed"] for r in good)]
        found[key] = median([r[key] for r in good])
        found[f"{key} of seeds"] = [min(seeds), max(seeds)] if seeds else []
    return found | {
        "rises": sum(r["rises"] for r in runs), "taken": sum(r["taken"] for r in runs),
        "unsuccessful": sum(r["status"] <= 0 for r in runs),
    }  # fmt: skip


def told(row: dict[str, Any], key: str) -> str:
    """A median with the spread over the seeds."""
    return f"{row[key]:.3g}" + (" ({:.3g} to {:.3g})".format(*row[f"{key} of seeds"]) if row[f"{key} of seeds"] else "")


def median(values: list[float]) -> float:
    return float(np.median(values)) if values else float("nan")


def describe(rows: list[dict[str, Any]], seeds: int, starts: int) -> list[str]:
    parts = [
        "# Evaluations to a cost, in units of N (residual 1, Jacobian 3)",
        f"Seeds {', '.join(str(SEED + 10 * k) for k in range(seeds))}, fixed beforehand, starts of each: {starts}; "
        "default tolerances for all methods. Columns: to 1.01 F* / to (1 + 1e-6) F* / to the method's own stop, "
        "medians (least "
        "to greatest median of a seed); starts that found the best minimum; accepted steps on a batch that raised the "
        "full cost; runs that ended without success (limit of iterations, or stalled).",
    ]
    for name, n in dict.fromkeys((r["problem"], r["n"]) for r in rows):
        cells = [
            [r["method"], told(r, "c101"), told(r, "c1e-6"), told(r, "total"), r["found"],
             f"{r['rises']}/{r['taken']}", str(r["unsuccessful"])]
            for r in rows
            if r["problem"] == name and r["n"] == n
        ]  # fmt: skip
        columns = ["method", "1.01 F*", "(1+1e-6) F*", "stop", "found", "raised", "without success"]
        parts += [f"## {name}, N = {n:,}", markdown_table(columns, cells)]
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--starts", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    options = parser.parse_args()
    began = time.perf_counter()
    rows = table(options.sizes, options.seeds, options.starts, options.workers)
    known = record.about(seed=SEED, seconds=time.perf_counter() - began)
    record.write(options.output, "evaluations", describe(rows, options.seeds, options.starts), rows, known)


if __name__ == "__main__":
    main()
