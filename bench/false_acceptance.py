"""How often a step that raises the cost passes the acceptance test, for rows that lie in order or in clusters.

    python bench/false_acceptance.py --runs 200

Levenberg-Marquardt runs to convergence on a fixed batch of 500 rows of a file, so that its last steps truly raise the
cost over all rows as often as they lower it; each is put to the hold-out test with delta = 0.1, and judged by the true
change. ``runs`` is the number of random orders. The last column counts rows as if they had been drawn one by one, which
is what a test that did not know about chunks would do.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from problm.acceptance import Holdout, Step
from problm.batch import Batch
from problm.chunked import ChunkedProblem
from problm.losses import Loss
from problm.rows import FunctionRows
from problm.sources import Sliced, even_ends
from problm.system import Space, System

ROWS, CHUNK = 50_000, 500


def model(t: Any, x: Any, y: Any) -> Any:
    return t[0] * np.exp(-t[1] * x) + t[2] - y


def derivative(t: Any, x: Any, y: Any) -> Any:
    e = np.exp(-t[1] * x)
    return np.stack([e, -t[0] * x * e, np.ones_like(x)], axis=1)


def data(kind: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 5, ROWS)
    if kind == "sorted":
        x = np.sort(x)
    y = 2.0 * np.exp(-0.7 * x) + 0.3 + 0.1 * rng.standard_normal(ROWS)
    if kind == "clustered":
        y += np.repeat(0.3 * rng.standard_normal(ROWS // CHUNK), CHUNK)
    return x, y


def steps(problem: Any, truth: Any, seed: int, naive: bool) -> list[tuple[bool, float]]:
    """(passed the test, true change) of every step."""
    rng = np.random.default_rng(seed)
    policy = Holdout(delta=0.1)
    if naive:
        problem.moments = lambda values, lo, hi: values
    batch = Batch(problem, np.array([1.0, 1.0, 0.0]) + 0.3 * rng.standard_normal(3), 500)
    found = []
    for _ in range(8):
        system = System(batch.linearize(True), batch.theta, Space(3), lambda diagonal: None)
        step, predicted, _ = system.step(1e-4)
        if not predicted > 1e-14 or not batch.trial(batch.theta + step) < 0:
            break
        verdict = policy.judge(Step(batch, step, lambda: rng))
        change = truth.cost(batch.trial_point) - truth.cost(batch.theta)
        found.append((verdict.accept and verdict.grow_to == 0, change))
        batch.accept()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args().runs
    rows = FunctionRows(model, derivative, 3, Loss.named("linear"))
    print(f"{'rows':10s} {'read in':8s} {'false acceptance':>18s} {'power':>6s} {'counting rows':>18s}")
    for kind in ("shuffled", "sorted", "clustered"):
        x, y = data(kind)
        truth = rows.problem((x, y))
        for reading in ("runs", "chunks"):
            told = []
            for naive in (False, True):
                found: list[tuple[bool, float]] = []
                for seed in range(runs):
                    source = Sliced([x, y])
                    if reading == "chunks":
                        source.fine, source.ends = False, even_ends(ROWS, CHUNK)
                    problem = ChunkedProblem(rows, source, rng=seed, max_memory="20MB")
                    found += steps(problem, truth, seed, naive)
                rose = [passed for passed, change in found if change > 0]
                fell = [passed for passed, change in found if change < 0]
                told.append((sum(rose), len(rose), float(np.mean(fell))))
            (bad, of, power), (naive_bad, naive_of, _) = told
            print(
                f"{kind:10s} {reading:8s} {bad:5d}/{of:3d} = {bad / of:5.3f} {power:6.2f} "
                f"{naive_bad:6d}/{naive_of:3d} = {naive_bad / naive_of:5.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
