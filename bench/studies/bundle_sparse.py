"""Bundle adjustment of 8 to 1,000 cameras against Ceres (SPARSE_SCHUR), on one thread.

    OMP_NUM_THREADS=1 python -m bench.studies.bundle_sparse --data DIR [--only NAME ...] [-o bench/results]

BAL's Ladybug of 49 cameras, which is real, and simulated scenes (`bench.data.bundle_scenes`) with other seeds than
those on which the constants of the damping were chosen. Ceres has BAL's own cost in C++ (`bench.peers.ceres_bal`), 9
parameters per camera, the same start and the relative tolerance 1e-8; both stop after at most 100 iterations. Seconds
are CPU seconds, setting up included, of one run each. ``seconds to Ceres's cost`` is when our cost fell below the final
one of Ceres.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from problm import Reconstruction, bundle_adjustment, read_bal

from ..data.bundle_scenes import photos, street
from ..harness import record
from ..peers import ceres_bal

SEED = 100
ITERATIONS = 100
SCENES: dict[str, Callable[[], Reconstruction]] = {
    "photos 8": lambda: photos(8, SEED, group=8),
    "street 24": lambda: street(24, SEED),
    "photos 60": lambda: photos(60, SEED),
    "street 90": lambda: street(90, SEED, per_image=100),
    "loop 180": lambda: street(180, SEED, loop=True, per_image=60),
    "photos 200": lambda: photos(200, SEED, per_image=50),
    "street 400": lambda: street(400, SEED, per_image=40),
    "photos 500": lambda: photos(500, SEED, per_image=30),
    "street 900": lambda: street(900, SEED, per_image=30),
    "loop 1700": lambda: street(1701, SEED, loop=True, per_image=25),
}


def compare(model: Reconstruction) -> dict[str, Any]:
    """One run of Ceres and one of ours."""
    peer = ceres_bal.solve(model, iterations=ITERATIONS)
    marks: list[float] = []
    began = time.process_time()
    fit = bundle_adjustment(model, threads=1, max_iter=ITERATIONS, callback=lambda _: marks.append(time.process_time()))
    seconds = time.process_time() - began
    below = [m - began for m, c in zip(marks, fit.result.history.cost, strict=False) if c <= peer.cost]
    pattern = fit.problem.pattern
    return {
        "cameras": len(model.rotations), "points": len(model.points), "observations": len(model.xy),
        "covisible pairs": None if pattern is None else len(pattern.row) / (len(pattern.sizes) ** 2 / 2),
        "start cost": peer.start, "Ceres cost": peer.cost, "our cost": fit.cost,
        "Ceres seconds": peer.seconds, "our seconds": seconds,
        "seconds to Ceres's cost": below[0] if below else None,
        "Ceres iterations": peer.iterations, "our iterations": fit.result.nit,
        "Ceres converged": peer.status == 0, "we converged": fit.result.success,
        "points behind": int(fit.behind.sum()),
    }  # fmt: skip


def describe(rows: dict[str, dict[str, Any]]) -> list[str]:
    table = [
        "| scene | observations | cost, Ceres | cost, ours | s, Ceres | s, ours | s to Ceres's cost "
        "| iterations, Ceres | iterations, ours | points behind |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, r in rows.items():
        reached = r["seconds to Ceres's cost"]
        reached = "never" if reached is None else f"{reached:.2f}"
        cells = [
            name, r["observations"],
            f"{r['Ceres cost']:.6g}{'' if r['Ceres converged'] else '*'}",
            f"{r['our cost']:.6g}{'' if r['we converged'] else '*'}",
            f"{r['Ceres seconds']:.2f}", f"{r['our seconds']:.2f}", reached,
            r["Ceres iterations"], r["our iterations"], r["points behind"],
        ]  # fmt: skip
        table.append("| " + " | ".join(map(str, cells)) + " |")
    lower = sum(r["our cost"] <= r["Ceres cost"] * (1 + 1e-6) for r in rows.values())
    faster = sum(r["our seconds"] <= r["Ceres seconds"] for r in rows.values())
    ratios = [r["Ceres seconds"] / r["our seconds"] for r in rows.values()]
    return [
        "# Sparse bundle adjustment against Ceres",
        "One thread, CPU seconds of one run each; at most 100 iterations, relative tolerance 1e-8. Cost: half the sum "
        "of squares, the same function for both. `*`: stopped before convergence. `street`, `loop` and `photos` are "
        "simulated. Points behind: points of ours that end behind a camera.",
        "\n".join(table),
        f"Cost not above Ceres's: {lower} of {len(rows)}. Not slower to our own stop: {faster} of {len(rows)}; "
        f"Ceres takes {np.median(ratios):.2g} times as long in the median, least {min(ratios):.2g}.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("PROBLM_DATA"))
    parser.add_argument("--only", nargs="+", choices=["BAL 49", *SCENES])
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    arguments = parser.parse_args()
    if os.environ.get("OMP_NUM_THREADS") != "1":
        parser.error("set OMP_NUM_THREADS=1: CPU seconds of several BLAS threads would be added up")
    scenes = dict(SCENES)
    if arguments.data:
        scenes["BAL 49"] = lambda: read_bal(Path(arguments.data) / "bal" / "problem-49-7776-pre.txt")
    for few in (False, True):  # compile before the clock runs
        bundle_adjustment(street(60 if few else 24, 0, per_image=30), threads=1, max_iter=5)
    began = time.perf_counter()
    rows: dict[str, Any] = {} if arguments.only is None else record.read(arguments.output, "bundle_sparse") or {}
    for name in arguments.only or sorted(scenes, key=lambda n: int(n.split()[-1])):
        rows[name] = compare(scenes[name]())
        print(name, rows[name], flush=True)
        rows = dict(sorted(rows.items(), key=lambda row: row[1]["cameras"]))
        known = record.about(seconds=time.perf_counter() - began, seed=SEED, packages=())
        record.write(arguments.output, "bundle_sparse", describe(rows), rows, known)


if __name__ == "__main__":
    main()
