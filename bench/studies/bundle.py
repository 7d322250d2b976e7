"""Bundle adjustment by variable projection: LM, ProBLM and its variants, and Ceres, on real data.

    OMP_NUM_THREADS=1 python -m bench.studies.bundle --data DIR [--repeats 5] [--only views growth ...] [-o
    bench/results]

views
    ``colmap_sceaux_castle``, weak perspective: the last three adjacent views with all their common points, and the last
    five with 212 of theirs, as in the paper's supplement; starts off by 0.1 rad and 0.5 units.
growth
    The three views tiled to 10^5 and 10^6 points with noise of the size of the residuals, starts off by 0.02 rad and
    0.2 units (further off, half of all runs end in the reversed scene): time to 1.01 F*.
perspective
    The same three views with the full perspective model, tiled to 10^5 points.
bal
    BAL 49-7776 against Ceres through pyceres, one thread. (a) BAL's own objective, as a cost function in Python
    (compiled with Numba; the time that Ceres spends in it is given apart, because a C++ cost would not need it);
    (b) COLMAP's C++ cost, which counts observations behind a camera as zero, so on the points that begin in front;
    (c) the same without the few points that pass through infinity in (a), which Euclidean coordinates cannot do.
separable
    10^5 decay curves that share two rates.

Every start has its own random order of the points too: with one for all, a lucky or unlucky first batch would show
up as a property of the method.

Times are CPU seconds of one thread, which other work on the machine disturbs least; medians
over repeats that are interleaved. The cost over all residuals is
computed from the path afterwards, outside the clock. Writes bundle.json, bundle.md and, with Matplotlib, bundle.svg.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from problm import Reconstruction, read_bal, read_colmap
from problm.api.separable_fit import separable_fit
from problm.solver.policies.acceptance import Holdout
from problm.solver.policies.paper_tests import Paper, RelaxedPaper
from problm.vision.bundle.adjust import affine_bundle_adjustment, bundle_adjustment

from ..harness import record
from ..peers import ceres_bundle
from .bundle_report import LM, describe, plot

Array = NDArray[np.float64]
STARTS = 6
METHODS: dict[str, dict[str, Any]] = {
    LM: {"acceptance": "full"},
    "LM, lambda I, x10": {"acceptance": "full", "damping": "tenfold"},
    "ProBLM (hold-out)": {"acceptance": Holdout()},
    "Eq. 13, alpha .9": {"acceptance": Paper()},
    "Eq. 13, alpha 0": {"acceptance": Paper(alpha=0.0)},
    "Eq. 18 corrected, alpha .9": {"acceptance": RelaxedPaper()},
    "Eq. 18 corrected, alpha 0": {"acceptance": RelaxedPaper(alpha=0.0)},
}
Fit = Callable[[int, dict[str, Any]], Any]


def castle(data: Path, count: int, points: int | None = None) -> tuple[Array, tuple[Array, Array], Array]:
    """Undistorted observations (C, P, 2), cameras and points of the last ``count`` views."""
    model = read_colmap(data / "colmap_sceaux_castle")
    views = np.argsort(model.names)[-count:]
    xy, which = model.common(views.tolist())
    if points is not None:
        chosen = np.random.default_rng(0).choice(len(which), points, replace=False)
        xy, which = xy[:, chosen], which[chosen]
    seen = np.stack([model.intrinsics[model.camera[v]].normalise(xy[i]) for i, v in enumerate(views)])
    return seen, (model.rotations[views], model.translations[views]), model.points[which]


def off(cameras: tuple[Array, Array], seed: int, angle: float = 0.1, shift: float = 0.5) -> tuple[Array, Array]:
    """The cameras turned and moved at random."""
    rng = np.random.default_rng(seed)
    R, t = cameras
    turn = Rotation.from_rotvec(angle * rng.normal(size=(len(R), 3))).as_matrix()
    return turn @ R, t + shift * rng.normal(size=t.shape)


def race(fit: Fit, starts: int, repeats: int, methods: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Run all methods from all starts, interleaved; seconds and passes to 1.01 F* and to the stop of each method."""
    runs: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for name, method in methods.items():
        fit(0, method)  # compiles, touches memory
        runs.update({(name, s): [] for s in range(starts)})
    for repeat in range(repeats):
        for start in range(starts):
            for name in list(methods)[repeat % 2 :: 1] + list(methods)[: repeat % 2]:
                gc.collect()
                gc.disable()
                clock = Clock()
                found = fit(start, {**methods[name], "keep_path": True, "callback": clock})
                gc.enable()
                runs[name, start].append(trace(found, clock, first=repeat == 0))
    best = {s: min(runs[name, s][0]["final"] for name in methods) for s in range(starts)}
    overall = min(best.values())
    rows = []
    for name in methods:
        arrived, stop, passes, minima = [], [], [], 0
        for s in range(starts):
            first = runs[name, s][0]
            if first["final"] > overall * (1 + 1e-3):
                continue
            minima += 1
            at = next(i for i in range(len(first["costs"])) if max(first["costs"][i:]) <= 1.01 * overall)
            arrived.append(statistics.median(r["seconds"][at] for r in runs[name, s]))
            stop.append(statistics.median(r["total"] for r in runs[name, s]))
            passes.append(first["passes"][at])
        rows.append(
            {
                "method": name,
                "found": f"{minima}/{starts}",
                "ms to 1.01 F*": 1e3 * statistics.median(arrived) if arrived else None,
                "passes to 1.01 F*": statistics.median(passes) if passes else None,
                "ms to its stop": 1e3 * statistics.median(stop) if stop else None,
            }
        )
    curves = {name: {k: runs[name, 0][0][k] for k in ("seconds", "costs")} for name in methods}
    return {"F*": overall, "rows": rows, "curves": curves}


class Clock:
    """A callback that records the CPU time of every iteration."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.began = time.process_time()

    def __call__(self, _: Any) -> None:
        self.seconds.append(time.process_time() - self.began)


def trace(found: Any, clock: Clock, first: bool) -> dict[str, Any]:
    """Seconds, and once for each start the cost over all blocks and the passes, after every iteration."""
    result, problem = found.result, found.problem
    history = result.history
    out: dict[str, Any] = {"seconds": clock.seconds, "total": clock.seconds[-1], "final": found.cost}
    if first:
        costs: list[float] = []
        last = None
        for theta in history.path:
            costs.append(costs[-1] if theta is last else problem.cost(theta))
            last = theta
        out["costs"] = costs
        out["passes"] = [r + 3 * j for r, j in zip(history.residual_passes, history.jacobian_passes, strict=True)]
    return out


def affine_fit(seen: Array, depths: Array, starts: list[tuple[Array, Array]]) -> Fit:
    return lambda start, method: affine_bundle_adjustment(
        seen, starts[start], depths=depths, threads=1, rng=start, **method
    )


def views(data: Path, repeats: int) -> dict[str, Any]:
    out = {}
    for count, points in ((3, None), (5, 212)):
        seen, cameras, X = castle(data, count, points)
        depths = affine_bundle_adjustment(seen, cameras, X).depths
        fit = affine_fit(seen, depths, [off(cameras, s) for s in range(12)])
        out[f"{count} views, {seen.shape[1]} points"] = race(fit, 12, repeats, METHODS)
    return out


def growth(data: Path, repeats: int) -> dict[str, Any]:
    seen, cameras, X = castle(data, 3)
    small = affine_bundle_adjustment(seen, cameras, X)
    out = {}
    for n, count in ((100_000, STARTS), (1_000_000, 2)):
        rng = np.random.default_rng(n)
        which = rng.integers(0, seen.shape[1], n)
        big = seen[:, which] + small.rmse / np.sqrt(2) * rng.normal(size=(3, n, 2))
        fit = affine_fit(big, small.depths[which], [off(cameras, s, 0.02, 0.2) for s in range(count)])
        methods = {k: METHODS[k] for k in (LM, "ProBLM (hold-out)", "Eq. 13, alpha 0", "Eq. 18 corrected, alpha 0")}
        out[f"3 views, {n:,} points"] = race(fit, count, max(1, repeats // (n // 100_000)), methods)
    return out


def perspective(data: Path, repeats: int) -> dict[str, Any]:
    model = read_colmap(data / "colmap_sceaux_castle")
    part = model.select(np.argsort(model.names)[-3:].tolist(), min_views=2)
    n = 100_000
    rng = np.random.default_rng(n)
    which = rng.integers(0, len(part.points), n)
    rows = np.concatenate([np.arange(part.start[j], part.start[j + 1]) for j in which])
    point = np.repeat(np.arange(n), part.track_lengths[which])
    xy = part.xy[rows] + 0.5 * rng.normal(size=(len(rows), 2))
    seen = np.column_stack([part.image[rows], point, xy])
    points = part.points[which] + 0.02 * rng.normal(size=(n, 3))
    camera = part.intrinsics[0]
    models = []
    for s in range(STARTS):
        R, t = off((part.rotations, part.translations), s, 0.01, 0.05)
        models.append(Reconstruction.from_arrays(R, t, camera, points, seen))
    methods = {k: METHODS[k] for k in (LM, "ProBLM (hold-out)")}

    def fit(start: int, method: dict[str, Any]) -> Any:
        return bundle_adjustment(models[start], threads=1, rng=start, **method)

    return {f"3 views, {n:,} points, shared SIMPLE_RADIAL camera free": race(fit, STARTS, repeats, methods)}


def bal(data: Path, repeats: int) -> dict[str, Any]:
    model = read_bal(data / "bal" / "problem-49-7776-pre.txt")
    point = np.repeat(np.arange(len(model.points)), model.track_lengths)
    behind = np.zeros(len(model.points), dtype=bool)
    behind[point[model.depths() <= 0]] = True
    ends = bundle_adjustment(model, threads=1).behind
    out: dict[str, Any] = {
        "points behind a camera": f"{int(behind.sum())} at the start, {int(ends.sum())} at our minimum of (a)"
    }
    cases = {
        "(a) all points": model,
        "(b) points that begin in front": _without(model, behind),
        "(c) points that begin and end in front": _without(model, behind | ends),
    }
    for name, which in cases.items():
        rows = [_ours(which, repeats)]
        rows += ceres_bundle.by_python_cost(which) if name[1] == "a" else ceres_bundle.by_colmap(which, repeats)
        reference = min(r["final cost"] for r in rows[1:]) if len(rows) > 1 else rows[0]["final cost"]
        for row in rows:
            level = next((s for s, c in zip(*row.pop("curve"), strict=True) if c <= 1.01 * reference), None)
            row["seconds to 1.01 x the best Ceres cost"] = level
        out[name] = {"rows": rows}
    return out


def _without(model: Reconstruction, points: NDArray[np.bool_]) -> Reconstruction:
    keep = ~points
    mine = np.repeat(keep, model.track_lengths)
    start = np.concatenate([[0], np.cumsum(model.track_lengths[keep])]).astype(np.int64)
    return replace(
        model,
        points=model.points[keep],
        start=start,
        image=model.image[mine],
        xy=model.xy[mine],
        point_ids=model.point_ids[keep],
        colors=model.colors[keep],
    )


def _ours(model: Reconstruction, repeats: int) -> dict[str, Any]:
    bundle_adjustment(model, threads=1)
    runs = []
    for _ in range(repeats):
        clock = Clock()
        fit = bundle_adjustment(model, threads=1, callback=clock)
        runs.append((time.process_time() - clock.began, clock.seconds))
    seconds, iterations = sorted(runs)[len(runs) // 2]
    return {
        "solver": "problm (default: one batch of all points)",
        "iterations": fit.result.nit,
        "start cost": fit.start_cost,
        "final cost": fit.cost,
        "seconds": seconds,
        "note": f"{int(fit.behind.sum())} points end behind a camera; seconds include setting up",
        "curve": (iterations, fit.result.history.cost),
    }


def separable(_: Path, repeats: int) -> dict[str, Any]:
    n, m = 100_000, 128
    rng = np.random.default_rng(0)
    x = np.linspace(0, 8, m)

    def decays(x: Array, rates: Array) -> Array:
        return np.stack([np.exp(-rates[0] * x), np.exp(-rates[1] * x), np.ones_like(x)], axis=-1)

    y = rng.uniform(0.5, 3, (n, 3)) @ decays(x, np.array([0.5, 2.0])).T
    y += 0.3 * rng.normal(size=y.shape)
    starts = [np.array([0.1, 1.0]), np.array([1.0, 5.0]), np.array([0.05, 0.5])]
    methods = {k: METHODS[k] for k in (LM, "ProBLM (hold-out)", "Eq. 18 corrected, alpha 0")}

    def fit(start: int, method: dict[str, Any]) -> Any:
        return separable_fit(decays, starts[start], x, y, threads=1, **method)

    return {f"{n:,} curves of {m} samples, two rates shared": race(fit, 3, repeats, methods)}


PARTS = {"views": views, "growth": growth, "perspective": perspective, "bal": bal, "separable": separable}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("PROBLM_DATA"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    arguments = parser.parse_args()
    if not arguments.data:
        parser.error("say where the data is: --data DIR, or the environment variable PROBLM_DATA")
    if os.environ.get("OMP_NUM_THREADS") != "1":
        parser.error("set OMP_NUM_THREADS=1: CPU seconds of several BLAS threads would be added up")
    began = time.perf_counter()
    parts: dict[str, Any] = record.read(arguments.output, "bundle") or {}
    for part in arguments.only:
        print(part, flush=True)
        parts[part] = PARTS[part](Path(arguments.data), arguments.repeats)
        known = record.about(seconds=time.perf_counter() - began, packages=("pyceres",))
        record.write(arguments.output, "bundle", describe(parts), parts, known)
    plot(parts, arguments.output)


if __name__ == "__main__":
    main()
