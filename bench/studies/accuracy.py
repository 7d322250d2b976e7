"""How often ``accuracy=`` is kept: curves, robust curves, poses near and far from the truth, bundles and images.

    OMP_NUM_THREADS=1 python -m bench.studies.accuracy [--data DIR] [--scenes 40]

A solve with ``accuracy=a`` ends on a batch once the cost over all rows is within the factor 1 + a of its minimum with
probability 0.9. The last column tells what the runs of a row show about that: the upper limit of the share of misses,
of a one-sided 95 % interval (Clopper and Pearson). The minimum is that which Levenberg-Marquardt on all rows reaches
from the point that was returned. Starts far from the truth lead to plateaus and to minima with large residuals, where
Gauss-Newton's model is poor.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation
from scipy.stats import beta

import problm
from problm.api.curve_fit import fit
from problm.solver.loop import solve
from problm.vision.bundle.camera_models import Intrinsics
from problm.vision.bundle.reconstruction import Reconstruction

from ..data import stand_ins
from ..data.instances import FORMULAS, poses_near
from ..harness import record
from ..harness.summary import markdown_table
from .like_for_like import CURVES, pairs

SEED = 8300
ACCURACIES = (0.1, 0.01, 0.001)
Call = Callable[..., Any]


def curves(scenes: int) -> Iterator[tuple[str, list[Call]]]:
    for name, make in CURVES.items():
        for loss in ("linear", "cauchy"):
            calls = []
            for k in range(scenes):
                made, model = make(100_000, SEED + k, starts=1), problm.formula(FORMULAS[name])
                calls.append(
                    lambda d=made.data, s=made.starts[0], m=model, q=loss, **o: fit(m, *d, s, threads=1, loss=q, **o)
                )
            yield f"curve: {name}, {loss} loss, N = 100,000", calls


def poses(scenes: int) -> Iterator[tuple[str, list[Call]]]:
    for n in (20_000, 200_000):
        for where, turn, shift in (("near", 0.2, 0.3), ("far", 0.8, 1.5), ("anywhere", 3.0, 3.0)):
            calls = []
            for k in range(scenes):
                views = stand_ins.matches(SEED + k, n)
                for start in poses_near(np.random.default_rng(SEED + k), views.R, views.t, 2, turn, shift):
                    initial = start[:9].reshape(3, 3), start[9:]
                    calls.append(
                        lambda v=views, i=initial, **o: (
                            problm.essential_matrix(v.x1, v.x2, v.K, robust=False, initial=i, **o).result
                        )
                    )
            yield f"pose from a start {where}, N = {n:,}", calls


def bundles(scenes: int) -> Iterator[tuple[str, list[Call]]]:
    for n in (10_000, 100_000):
        made = [stand_ins.tracks(SEED + k, 5, n) for k in range(max(scenes // 2, 1))]
        yield (
            f"affine bundle, 5 views, N = {n:,}",
            [
                lambda t=t, **o: (
                    problm.affine_bundle_adjustment(
                        t.observations, (t.rotations, t.translations), depths=t.depths, threads=1, **o
                    ).result
                )
                for t in made
            ],
        )


def perspective(scenes: int) -> Iterator[tuple[str, list[Call]]]:
    """Cameras on an arc, whose focal length and distortion are free, too."""
    calls = []
    for k in range(scenes):
        rng = np.random.default_rng(SEED + k)
        points = rng.uniform(-1, 1, (100_000, 3))
        turns = Rotation.from_rotvec(np.outer(np.linspace(-0.5, 0.5, 5), [0, 1, 0]))
        shifts = np.column_stack([0.2 * rng.standard_normal((5, 2)), rng.uniform(5, 7, 5)])
        camera = Intrinsics("SIMPLE_RADIAL", (800.0, 0.0, 0.0, -0.05))
        seen = np.stack([camera.project(points @ r.T + t) for r, t in zip(turns.as_matrix(), shifts, strict=True)])
        start = Reconstruction.from_arrays(
            (Rotation.from_rotvec(0.02 * rng.standard_normal((5, 3))) * turns).as_matrix(),
            shifts + 0.05 * rng.standard_normal((5, 3)),
            camera,
            points + 0.02 * rng.standard_normal(points.shape),
            seen + 0.5 * rng.standard_normal(seen.shape),
        )
        calls.append(lambda m=start, **o: problm.bundle_adjustment(m, threads=1, **o).result)
    yield "perspective bundle, 5 views, N = 100,000", calls


def images(data: str | None) -> Iterator[tuple[str, list[Call]]]:
    calls = [call for _, _, calls in pairs(data) for call in calls]
    if calls:
        yield "align, real pairs", calls


def excess(call: Call, accuracy: float) -> dict[str, Any]:
    """How far a solve ended above the minimum over all rows, relative to it, and where."""
    result = call(accuracy=accuracy)
    cost = result.problem.cost(result.x)
    best = solve(result.problem, result.x, acceptance="full")
    return {
        "excess": cost / min(best.cost, cost) - 1.0,
        "share": result.batch_size / result.n,
        "status": result.status.name,
    }


def most(missed: int, runs: int) -> float:
    """Upper limit of the probability to miss, at 95 % confidence."""
    return 1.0 if missed == runs else float(beta.ppf(0.95, missed + 1, runs - missed))


def total(rows: list[dict[str, Any]], kind: str) -> list[str]:
    """Sums over all rows of problems whose name begins like this, of the solves that ended on a batch."""
    ended = [(r["accuracy"], f) for r in rows if r["problem"].startswith(kind) for f in r["runs"]]
    ended = [(a, f) for a, f in ended if f["status"] == "ACCURACY"]
    missed = sum(f["excess"] > a for a, f in ended)
    return [kind, str(len(ended)), str(missed), f"{100 * most(missed, len(ended)):.1f} %" if ended else ""]


def describe(rows: list[dict[str, Any]]) -> list[str]:
    cells = []
    for row in rows:
        ratios = sorted(f["excess"] / row["accuracy"] for f in row["runs"])
        ended = [f for f in row["runs"] if f["status"] == "ACCURACY"]
        missed = sum(r > 1.0 for r in ratios)
        cells.append([
            row["problem"], f"{row['accuracy']:g}", f"{missed} of {len(ratios)}",
            f"{ratios[len(ratios) // 2]:.2f}", f"{ratios[-1]:.2f}", f"{len(ended)}",
            f"{100 * np.median([f['share'] for f in ended]):.2g} %" if ended else "",
            f"{100 * most(missed, len(ratios)):.1f} %",
        ])  # fmt: skip
    return [
        "# Whether accuracy= is kept",
        "*Missed*: solves that ended above the accuracy asked for, of all; one in ten is allowed. *Median* and "
        "*largest* excess over the minimum, in units of the accuracy. *On a batch*: solves that ended there, the "
        "others on all rows; *share* of the rows that the batch held, median. *At most*: upper limit of the share of "
        "misses, at 95 % confidence.",
        markdown_table(["problem", "accuracy", "missed", "median", "largest", "on a batch", "share", "at most"], cells),
        "All accuracies together, only solves that ended on a batch:",
        markdown_table(
            ["problems", "ended on a batch", "missed", "at most"],
            [total(rows, kind) for kind in ("curve", "pose", "affine", "perspective", "align")],
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("PROBLM_DATA") or None)
    parser.add_argument("--scenes", type=int, default=40)
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    arguments = parser.parse_args()
    began, rows = time.perf_counter(), []
    count = arguments.scenes
    few, half = max(count // 4, 1), max(count // 2, 1)
    parts = curves(count), poses(half), bundles(2 * few), images(arguments.data), perspective(few)
    for name, calls in chain.from_iterable(parts):
        for accuracy in ACCURACIES:
            found = [excess(call, accuracy) for call in calls]
            rows.append({"problem": name, "accuracy": accuracy, "runs": found})
            late = sum(f["excess"] > accuracy for f in found)
            print(f"{name}, accuracy={accuracy:g}: {late} of {len(found)} missed", flush=True)
        known = record.about(seconds=time.perf_counter() - began, seed=SEED)
        record.write(arguments.output, "accuracy", describe(rows), rows, known, quiet=True)


if __name__ == "__main__":
    main()
