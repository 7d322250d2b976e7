"""How often a step that raises the cost passes the acceptance test, for files with sorted or clustered rows.

    python -m bench.studies.false_acceptance [--runs 200] [-o bench/results]

Part 1: Levenberg-Marquardt runs to convergence on fixed batches of 500 and of 2000 rows of a file of 50,000, so that
its last steps truly raise the cost over all rows as often as they lower it; each is put to the hold-out test with
delta = 0.1, and judged by the true change. ``runs`` is the number of random orders. The last columns count rows as if
they had been drawn one by one, which is what a test that did not know about chunks would do.

Part 2: the same files on disk, ``.npy`` and Parquet, are fitted through the front door ``runs`` times within 1 MB of
memory, each time with another random order, and the answers compared with SciPy's on all rows.

Writes ``false_acceptance.md`` and ``.json``. Nothing is timed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize

import problm
from problm.data.columns import Sliced, even_ends
from problm.linalg.quadratic import QuadraticModel
from problm.linalg.space import Space
from problm.losses import Loss
from problm.problems.out_of_core import ChunkedProblem
from problm.problems.rows import FunctionModel
from problm.solver.batch import Batch
from problm.solver.policies.acceptance import Holdout, Step

from ..harness import record
from ..harness.summary import markdown_table
from ..paper.calibration import upper_limit

ROWS, CHUNK = 50_000, 500
BATCHES = (500, 2000)
DELTA = 0.1
SEED = 0
START = np.array([1.0, 1.0, 0.0])
KINDS = ("shuffled", "sorted", "clustered")


def model(t: Any, x: Any, y: Any) -> Any:
    return t[0] * np.exp(-t[1] * x) + t[2] - y


def derivative(t: Any, x: Any, y: Any = None) -> Any:
    e = np.exp(-t[1] * x)
    return np.stack([e, -t[0] * x * e, np.ones_like(x)], axis=1)


def data(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows in random order, sorted by x, or with a common error of the rows of a chunk."""
    rng = np.random.default_rng(SEED)
    x = rng.uniform(0, 5, ROWS)
    if kind == "sorted":
        x = np.sort(x)
    y = 2.0 * np.exp(-0.7 * x) + 0.3 + 0.1 * rng.standard_normal(ROWS)
    if kind == "clustered":
        y += np.repeat(0.3 * rng.standard_normal(ROWS // CHUNK), CHUNK)
    return x, y


def steps(problem: Any, truth: Any, seed: int, size: int, naive: bool) -> list[tuple[bool, float]]:
    """(passed the test, true change) of every step."""
    rng = np.random.default_rng(seed)
    policy = Holdout(delta=DELTA)
    if naive:
        problem.moments = lambda values, lo, hi: values
    batch = Batch(problem, START + 0.3 * rng.standard_normal(3), size)
    found = []
    for _ in range(8):
        system = QuadraticModel(batch.linearize(True), batch.theta, Space(3), lambda diagonal: None)
        step, predicted, _ = system.step(1e-4)
        if not predicted > 1e-14 or not batch.trial(batch.theta + step) < 0:
            break
        verdict = policy.judge(Step(batch, step, lambda: rng))
        change = truth.cost(batch.trial_point) - truth.cost(batch.theta)
        found.append((verdict.accept and verdict.grow_to == 0, change))
        batch.accept()
    return found


def judged(kind: str, reading: str, naive: bool, runs: int) -> dict[str, Any]:
    """False acceptance and power over all runs."""
    rows = FunctionModel(model, derivative, 3, Loss.named("linear"))
    x, y = data(kind)
    truth = rows.problem((x, y))
    found: list[tuple[bool, float]] = []
    for size in BATCHES:
        for seed in range(runs):
            source = Sliced([x, y])
            if reading == "chunks":
                source.fine, source.ends = False, even_ends(ROWS, CHUNK)
            problem = ChunkedProblem(rows, source, rng=seed, max_memory="20MB")
            found += steps(problem, truth, seed, size, naive)
    rose = [passed for passed, change in found if change > 0]
    fell = [passed for passed, change in found if change < 0]
    return {
        "passed": sum(rose), "rose": len(rose), "rate": sum(rose) / len(rose),
        "limit": upper_limit(sum(rose), len(rose)), "power": float(np.mean(fell)),
    }  # fmt: skip


def answers(kind: str, stored: str, folder: Path, runs: int) -> dict[str, Any]:
    """Largest distance of the answers of ``runs`` random orders to SciPy's."""
    x, y = data(kind)
    reference = scipy.optimize.least_squares(
        model, START, args=(x, y), jac=derivative, ftol=1e-15, xtol=1e-15, gtol=1e-15
    ).x
    given: Any = (folder / f"{kind}-x.npy", folder / f"{kind}-y.npy")
    if stored == "npy":
        for path, column in zip(given, (x, y), strict=True):
            np.save(path, column)
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        given = folder / f"{kind}.parquet"
        pq.write_table(pa.table({"x": x, "y": y}), given, row_group_size=CHUNK)
    formula = problm.formula("y ~ a*exp(-b*x) + c")
    fits = [problm.least_squares(formula, START, data=given, max_memory="1MB", rng=seed) for seed in range(runs)]
    errors = np.sqrt(np.diag(fits[0].covariance))
    return {
        "certified": sum(fit.certified for fit in fits),
        "runs": runs,
        "relative": max(float(np.abs(fit.x / reference - 1.0).max()) for fit in fits),
        "in standard errors": max(float(np.abs((fit.x - reference) / errors).max()) for fit in fits),
        "least passes": min(fit.jacobian_passes for fit in fits),
        "most passes": max(fit.jacobian_passes for fit in fits),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    options = parser.parse_args()
    began = time.perf_counter()
    tests: dict[str, Any] = {}
    table = []
    for kind in KINDS:
        for reading in ("runs", "chunks"):
            ours, naive = (judged(kind, reading, n, options.runs) for n in (False, True))
            tests[f"{kind}, {reading}"] = {"by chunks": ours, "by rows": naive}
            table.append([
                kind, reading, f"{ours['passed']}/{ours['rose']}", ours["rate"], ours["limit"], ours["power"],
                f"{naive['passed']}/{naive['rose']}", naive["rate"],
            ])  # fmt: skip
            print(*table[-1], flush=True)
    fits: dict[str, Any] = {}
    shown = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            for stored in ("npy", "parquet"):
                fits[f"{kind}, {stored}"] = f = answers(kind, stored, Path(folder), options.runs)
                passes = f"{f['least passes']:.2f} to {f['most passes']:.2f}"
                shown.append(
                    [kind, stored, f"{f['certified']}/{f['runs']}", f["relative"], f["in standard errors"], passes]
                )
                print(*shown[-1], flush=True)
    worst = max(t["by chunks"]["rate"] for t in tests.values())
    unaware = max(t["by rows"]["rate"] for t in tests.values())
    far = max(f["in standard errors"] for f in fits.values())
    text = [
        "# Files in order and in clusters: false acceptance and answers",
        f"A step that raised the cost passed the test in at most {worst:.1%} of the cases in which it rose (delta = "
        f"{DELTA:.0%}: {record.verdict(worst <= DELTA)}); a test that counts rows instead of chunks lets up to "
        f"{unaware:.1%} pass. Every answer is SciPy's, to {far:.2g} standard errors.",
        f"## The test, {options.runs} random orders, batches of {' and '.join(map(str, BATCHES))} of {ROWS:,} rows",
        markdown_table(
            ["rows", "read in", "passed/rose", "false acceptance", "95 % limit", "power", "passed/rose, rows counted",
             "false acceptance, rows counted"],
            table,
        ),
        f"In *runs*: neighbouring rows, as from `.npy` files. In *chunks*: {CHUNK} rows, as from row groups. "
        "*Clustered*: the rows of a chunk have an error in common, three times as large as that of a row.",
        f"## The answers, {options.runs} random orders, within 1 MB of memory",
        markdown_table(
            ["rows", "file", "certified", "largest relative difference to SciPy", "in standard errors", "passes"], shown
        ),
    ]  # fmt: skip
    record.write(
        options.output, "false_acceptance", text, {"delta": DELTA, "tests": tests, "answers": fits},
        record.about(seed=SEED, seconds=time.perf_counter() - began, packages=("pyarrow",)),
    )  # fmt: skip


if __name__ == "__main__":
    main()
