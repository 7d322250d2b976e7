"""Bundle adjustment by variable projection: LM, ProBLM and its variants, and Ceres, on real data.

    OMP_NUM_THREADS=1 python bench/bundle.py --data DIR [--repeats 5] [--only views growth ...] [-o bench/results]

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
import json
import os
import pathlib
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from problm.acceptance import Holdout, Paper, RelaxedPaper
from problm.separable import separable_fit
from problm.vision.bundle import affine_bundle_adjustment, bundle_adjustment
from problm.vision.reconstruction import Reconstruction, read_bal, read_colmap, write_colmap

Array = NDArray[np.float64]
LM = "LM"
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


def castle(data: pathlib.Path, count: int, points: int | None = None) -> tuple[Array, tuple[Array, Array], Array]:
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
    """All methods from all starts, interleaved; seconds and passes to 1.01 F* and to each one's own stop."""
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
    """A callback that notes the CPU time of every iteration."""

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


def views(data: pathlib.Path, repeats: int) -> dict[str, Any]:
    out = {}
    for count, points in ((3, None), (5, 212)):
        seen, cameras, X = castle(data, count, points)
        depths = affine_bundle_adjustment(seen, cameras, X).depths
        fit = affine_fit(seen, depths, [off(cameras, s) for s in range(12)])
        out[f"{count} views, {seen.shape[1]} points"] = race(fit, 12, repeats, METHODS)
    return out


def growth(data: pathlib.Path, repeats: int) -> dict[str, Any]:
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


def perspective(data: pathlib.Path, repeats: int) -> dict[str, Any]:
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


def bal(data: pathlib.Path, repeats: int) -> dict[str, Any]:
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
        rows += _ceres_python(which) if name[1] == "a" else _ceres_colmap(which, repeats)
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


def _ceres_python(model: Reconstruction) -> list[dict[str, Any]]:
    """BAL's objective as a Python cost function: the same cost as ours to the last digit."""
    try:
        import pyceres
    except ImportError:
        return []
    from numba import njit

    @njit
    def project(cam, X, xy, r, by_cam, by_point, jacobian):  # type: ignore[no-untyped-def]
        w = cam[:3]
        square = w @ w
        angle = np.sqrt(square)
        s = np.sin(angle) / angle if angle > 1e-10 else 1.0
        c = (1.0 - np.cos(angle)) / square if angle > 1e-10 else 0.5
        e = (1.0 - s) / square if angle > 1e-5 else 1.0 / 6.0
        K = np.array([[0.0, -w[2], w[1]], [w[2], 0.0, -w[0]], [-w[1], w[0], 0.0]])
        K2 = K @ K
        R = np.eye(3) + s * K + c * K2
        turned = R @ X
        x = turned + cam[3:6]
        u, v = x[0] / x[2], x[1] / x[2]
        q = u * u + v * v
        f, k1, k2 = cam[6], cam[7], cam[8]
        radial, slope = 1.0 + q * (k1 + q * k2), k1 + 2.0 * q * k2
        r[0], r[1] = f * radial * u - xy[0], f * radial * v - xy[1]
        if jacobian:
            D = f * np.array(
                [[radial + 2 * u * u * slope, 2 * u * v * slope], [2 * u * v * slope, radial + 2 * v * v * slope]]
            )
            P = D @ np.array([[1.0 / x[2], 0.0, -u / x[2]], [0.0, 1.0 / x[2], -v / x[2]]])
            skew = np.array([[0.0, -turned[2], turned[1]], [turned[2], 0.0, -turned[0]], [-turned[1], turned[0], 0.0]])
            A, B = -P @ (skew @ (np.eye(3) + c * K + e * K2)), P @ R
            for i in range(2):
                a = u if i == 0 else v
                for k in range(3):
                    by_cam[9 * i + k], by_cam[9 * i + 3 + k], by_point[3 * i + k] = A[i, k], P[i, k], B[i, k]
                by_cam[9 * i + 6], by_cam[9 * i + 7], by_cam[9 * i + 8] = radial * a, f * q * a, f * q * q * a

    spare, spare3 = np.zeros(18), np.zeros(6)

    class Cost(pyceres.CostFunction):  # type: ignore[misc]
        def __init__(self, xy: Array) -> None:
            pyceres.CostFunction.__init__(self)
            self.set_num_residuals(2)
            self.set_parameter_block_sizes([9, 3])
            self.xy = xy

        def Evaluate(self, parameters: Any, residuals: Any, jacobians: Any) -> bool:
            if jacobians is None:
                project(parameters[0], parameters[1], self.xy, residuals, spare, spare3, False)
            else:
                by_cam = spare if jacobians[0] is None else jacobians[0]
                by_point = spare3 if jacobians[1] is None else jacobians[1]
                project(parameters[0], parameters[1], self.xy, residuals, by_cam, by_point, True)
            return True

    turns = Rotation.from_matrix(model.rotations).as_rotvec()
    cams = [
        np.array([*turns[i], *model.translations[i], *np.array(model.intrinsics[i].params)[[0, 3, 4]]])
        for i in range(len(turns))
    ]
    points = [p.copy() for p in model.points]
    problem, kept = pyceres.Problem(), []
    for m, j in enumerate(np.repeat(np.arange(len(points)), model.track_lengths)):
        kept.append(Cost(model.xy[m]))
        problem.add_residual_block(kept[-1], None, [cams[model.image[m]], points[j]])
    row = _run_ceres(problem, "DENSE_SCHUR", 100)
    inside = row.pop("evaluation")
    row["solver"] = "Ceres, DENSE_SCHUR, cost in Python"
    row["note"] = f"{inside:.1%} of it in the Python cost function"
    return [row]


def _ceres_colmap(model: Reconstruction, repeats: int) -> list[dict[str, Any]]:
    """COLMAP's bundle adjuster: C++ costs, with and without its fixing of the gauge."""
    try:
        import pyceres
        import pycolmap
    except ImportError:
        return []
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        write_colmap(model, folder)
        for solver in ("DENSE_SCHUR", "SPARSE_SCHUR"):
            for fixed in (False, True):
                runs = []
                for _ in range(max(1, repeats // 2)):
                    rec = pycolmap.Reconstruction(folder)
                    config = pycolmap.BundleAdjustmentConfig()
                    for image in rec.images:
                        config.add_image(image)
                    if fixed:
                        config.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
                    options = pycolmap.BundleAdjustmentOptions()
                    options.ceres.auto_select_solver_type = False
                    options.ceres.solver_options.linear_solver_type = getattr(pyceres.LinearSolverType, solver)
                    adjuster = pycolmap.create_default_ceres_bundle_adjuster(options, config, rec)
                    runs.append(_run_ceres(adjuster.problem, solver, 200))
                row = sorted(runs, key=lambda r: r["seconds"])[len(runs) // 2]
                inside = row.pop("evaluation")
                row["solver"] = f"Ceres, {solver}, COLMAP's C++ cost{', two cameras fixed' if fixed else ''}"
                row["note"] = f"{inside:.0%} of it in cost functions"
                rows.append(row)
    return rows


def _run_ceres(problem: Any, solver: str, iterations: int) -> dict[str, Any]:
    import pyceres

    curve: list[tuple[float, float]] = []

    class Note(pyceres.IterationCallback):  # type: ignore[misc]
        def __call__(self, summary: Any) -> Any:
            curve.append((time.process_time() - began, summary.cost))
            return pyceres.CallbackReturnType.SOLVER_CONTINUE

    note = Note()
    options = pyceres.SolverOptions()
    options.linear_solver_type = getattr(pyceres.LinearSolverType, solver)
    options.num_threads = 1
    options.max_num_iterations = iterations
    # The default, 1e-6, ends on the valley's floor; ours is asked for 1e-8 too.
    options.function_tolerance = 1e-8
    options.gradient_tolerance = 1e-12
    options.parameter_tolerance = 1e-12
    options.callbacks = [note]
    summary = pyceres.SolverSummary()
    wall = time.perf_counter()
    began = time.process_time()
    pyceres.solve(options, problem, summary)
    wall = time.perf_counter() - wall
    evaluation = summary.residual_evaluation_time_in_seconds + summary.jacobian_evaluation_time_in_seconds
    return {
        "iterations": len(curve) - 1,
        "start cost": summary.initial_cost,
        "final cost": summary.final_cost,
        "seconds": time.process_time() - began,
        "evaluation": evaluation / wall,
        "curve": ([s for s, _ in curve], [c for _, c in curve]),
    }


def separable(_: pathlib.Path, repeats: int) -> dict[str, Any]:
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


def table(rows: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(k for row in rows for k in row))

    def show(value: Any) -> str:
        if value is None:
            return "-"
        return f"{value:.6g}" if isinstance(value, float) else str(value)

    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(show(row.get(k)) for k in names) + " |" for row in rows]
    return "\n".join(lines)


def markdown(report: dict[str, Any]) -> str:
    lines = ["# Bundle adjustment and separable fits", "", f"{report['machine']}. One thread.", ""]
    for part, cases in report["parts"].items():
        lines += [f"## {part}", ""]
        for case, value in cases.items():
            if not isinstance(value, dict):
                lines += [f"{case}: {value}", ""]
                continue
            lines += [
                f"### {case}" + (f", F* = {value['F*']:.8g}" if "F*" in value else ""),
                "",
                table(value["rows"]),
                "",
            ]
            ratio = speedup(value["rows"])
            if ratio is not None:
                lines += [f"LM over ProBLM to 1.01 F*: {ratio:.1f}.", ""]
    return "\n".join(lines)


def speedup(rows: list[dict[str, Any]]) -> float | None:
    times = {r.get("method"): r.get("ms to 1.01 F*") for r in rows}
    if times.get(LM) and times.get("ProBLM (hold-out)"):
        return float(times[LM] / times["ProBLM (hold-out)"])
    return None


def plot(report: dict[str, Any], folder: pathlib.Path) -> None:
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        return
    cases = [(c, v) for p in report["parts"].values() for c, v in p.items() if isinstance(v, dict) and "curves" in v]
    if not cases:
        return
    figure, axes = plt.subplots(1, len(cases), figsize=(5 * len(cases), 4), squeeze=False)
    for axis, (case, value) in zip(axes[0], cases, strict=True):
        for name, curve in value["curves"].items():
            axis.plot(1e3 * np.array(curve["seconds"]), np.array(curve["costs"]) / value["F*"], label=name)
        axis.set(title=case, xlabel="ms", ylabel="cost / F*", xscale="log", yscale="log")
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(folder / "bundle.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("PROBLM_DATA"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("bench/results"))
    arguments = parser.parse_args()
    if not arguments.data:
        parser.error("say where the data is: --data DIR, or the environment variable PROBLM_DATA")
    if os.environ.get("OMP_NUM_THREADS") != "1":
        parser.error("set OMP_NUM_THREADS=1: CPU seconds of several BLAS threads would be added up")
    arguments.output.mkdir(parents=True, exist_ok=True)
    file = arguments.output / "bundle.json"
    report: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"parts": {}}
    report["machine"] = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    for part in arguments.only:
        print(part, flush=True)
        report["parts"][part] = PARTS[part](pathlib.Path(arguments.data), arguments.repeats)
        for name, text in (("bundle.json", json.dumps(report, indent=1)), ("bundle.md", markdown(report))):
            temporary = arguments.output / f".{name}.part"
            temporary.write_text(text)
            temporary.replace(arguments.output / name)
    plot(report, arguments.output)
    print(markdown(report))


if __name__ == "__main__":
    main()
