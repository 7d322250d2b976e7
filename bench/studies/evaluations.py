"""Number of evaluations of each method, in units of N residuals; a Jacobian counts as three.

    python -m bench.studies.evaluations [--sizes 100000 1000000] [--starts 8] [--seed 100] [-o bench/results]

For every problem, size and method: the units spent until the cost over all residuals stays within 1.01 F* and within
(1 + 1e-6) F*, and until the method's own stop; medians over the starts from which the method found the best minimum.
The cost over all residuals is computed outside the counting, alike for all methods. F* is the best cost that any
method found from any start. All methods stop alike: when a Gauss-Newton step promises less than 1e-8 of the cost (gtol
1e-4), over all residuals.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import problm
from problm.solver.policies.acceptance import Holdout
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
    "default (hold-out)": {"acceptance": Holdout()},
    "hold-out, empirical Bernstein": {"acceptance": Holdout(bound="empirical-bernstein")},
    "hold-out, Hoeffding-Serfling": {"acceptance": Holdout(bound="hoeffding-serfling")},
}
PROBLEMS = {"exponential": exponential, "dblgauss": double_gaussian, "sine": damped_sine, "essential": essential}
JACOBIAN = 3.0


def run(made: Made, start: Any, method: dict[str, Any], seed: int) -> dict[str, Any]:
    """One solve: units and cost over all residuals after every iteration."""
    manifold = made.manifold
    fit = problm.least_squares(
        made.fun, start, jac=made.jac, data=made.data, manifold=manifold, rng=seed, gtol=1e-4, keep_path=True, **method
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


def table(sizes: list[int], starts: int, seed: int) -> list[dict[str, Any]]:
    rows = []
    for name, make in PROBLEMS.items():
        for n in sizes:
            made = make(n, seed, starts=starts)
            records = {m: [run(made, s, o, seed + i) for i, s in enumerate(made.starts)] for m, o in METHODS.items()}
            best = min(r["final"] for runs in records.values() for r in runs)
            for method, runs in records.items():
                good = [r for r in runs if r["final"] <= best * (1 + 1e-3)]
                rows.append(
                    {
                        "problem": name,
                        "n": n,
                        "method": method,
                        "found": f"{len(good)}/{len(runs)}",
                        "c101": median([reached(r, 1.01 * best) for r in good]),
                        "c1e-6": median([reached(r, (1 + 1e-6) * best) for r in good]),
                        "total": median([r["total"] for r in good]),
                        "rises": sum(r["rises"] for r in runs),
                        "taken": sum(r["taken"] for r in runs),
                        "unsuccessful": sum(r["status"] <= 0 for r in runs),
                    }
                )
                print(rows[-1], flush=True)
    return rows


def median(values: list[float]) -> float:
    return float(np.median(values)) if values else float("nan")


def describe(rows: list[dict[str, Any]], starts: int) -> list[str]:
    parts = [
        "# Evaluations to a cost, in units of N (residual 1, Jacobian 3)",
        f"{starts} starts. Columns: to 1.01 F* / to (1 + 1e-6) F* / to the method's own stop; starts that found the "
        "best minimum; accepted steps on a batch that raised the full cost.",
    ]
    for name, n in dict.fromkeys((r["problem"], r["n"]) for r in rows):
        cells = [
            [r["method"], f"{r['c101']:.3g}", f"{r['c1e-6']:.3g}", f"{r['total']:.3g}", r["found"],
             f"{r['rises']}/{r['taken']}"]
            for r in rows
            if r["problem"] == name and r["n"] == n
        ]  # fmt: skip
        parts += [
            f"## {name}, N = {n:,}",
            markdown_table(["method", "1.01 F*", "(1+1e-6) F*", "stop", "found", "raised"], cells),
        ]
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--starts", type=int, default=8)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--only", nargs="+", choices=list(PROBLEMS))
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    options = parser.parse_args()
    for name in list(PROBLEMS):
        if options.only and name not in options.only:
            del PROBLEMS[name]
    began = time.perf_counter()
    rows = table(options.sizes, options.starts, options.seed)
    known = record.about(seed=options.seed, seconds=time.perf_counter() - began)
    record.write(options.output, "evaluations", describe(rows, options.starts), rows, known)


if __name__ == "__main__":
    main()
