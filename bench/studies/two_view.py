"""Two-view geometry against PoseLib and OpenCV: refinement, robust pose, and where robust estimation breaks.

    python -m bench.studies.two_view [--data DIR] [--only refine simulated strecha shares time] [--share 0.8 0.6 ..]
                             [--quick] [-o bench/results]

refine
    Essential matrix, squared Sampson errors, starts off by 0.2 rad and 0.3 rad: the whole call, to the certificate,
    against PoseLib's `refine_relative_pose` (loss TRIVIAL). The time to 1.01 F* is, for both, that of the shortest
    run, by the number of iterations, that ends within it: the whole call. ``accuracy=0.01`` is the call that stops
    there by itself, with how often it did.
simulated, strecha
    Putative matches to a pose: simulated pairs of 5000 matches with 20 to 80 % inliers and, with ``--data``, the 32
    pairs of ``strecha``, twice in other orders. Peers get their best of several thresholds, and on simulated
    pairs the true one; ours estimates it. AUC of the larger of both angular errors, at 1, 5 and 10 degrees.
shares
    Success (both errors below 5 degrees), with Wilson's 95 % intervals, and time against the share of inliers, down to
    where it breaks. PoseLib with the fewest iterations that it may end after, where that is its fastest setting.
time
    Success against a time limit, at 40, 20 and 13 % inliers.

Everybody on one thread, by CPU time, which other work on the machine disturbs least; methods take turns on the same
data. Writes two_view.json and two_view.md; parts, and shares, may be measured one at a time, the rest is kept. About
four minutes for refinement and poses, as long for the time limits, a quarter of an hour for the shares.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data import sources
from ..harness import record
from ..harness.run import cpu_clock, single_thread
from .two_view_report import describe

Array = NDArray[np.float64]
Pose = tuple[Array, Array] | None
Estimator = Callable[[Array, Array, Array, int], Pose]
TARGETS = {2_000: 1.5, 20_000: 4.0, 200_000: 6.0}
"""Target speed-up over PoseLib to the certificate, by number of matches."""


RUNS, MORE = 40, 60
"""Pairs by share of inliers, where success is counted; and from 10 % on more of them for ours alone, so that the
interval of a success in all runs lies above 95 %."""


def cpu(call: Callable[[], Any]) -> tuple[Any, float]:
    """Result and CPU seconds; the garbage collector is disabled, and not called before: it would empty the caches."""
    gc.disable()
    try:
        began = time.process_time()
        value = call()
        return value, time.process_time() - began
    finally:
        gc.enable()


def pose_error(pose: Pose, R: Array, t: Array) -> float:
    """The larger of rotation and direction error in degrees; the sign of t counts. 180 if there is no pose."""
    if pose is None or not (np.isfinite(pose[0]).all() and np.isfinite(pose[1]).all()):
        return 180.0
    turn = 2.0 * np.arcsin(min(np.linalg.norm(pose[0] - R) / np.sqrt(8.0), 1.0))
    u, v = pose[1] / np.linalg.norm(pose[1]), t / np.linalg.norm(t)
    shift = 2.0 * np.arctan2(np.linalg.norm(u - v), np.linalg.norm(u + v))
    return float(np.degrees(max(turn, shift)))


def area_under_curve(errors: list[float], limit: float) -> float:
    """Area under the share of errors below x, for x up to the limit, relative to a perfect score."""
    return float(np.mean(np.maximum(0.0, 1.0 - np.array(errors) / limit)))


# --- the estimators -----------------------------------------------------------------------------------------------


def ours(**options: Any) -> Estimator:
    def estimate(x1: Array, x2: Array, K: Array, seed: int) -> Pose:
        import problm

        pose = problm.essential_matrix(x1, x2, K, rng=seed, **options)
        return (pose.R, pose.t) if pose.status in ("ok", "not converged") else None

    return estimate


def camera(K: Array) -> dict[str, Any]:
    return {
        "model": "PINHOLE", "width": int(2 * K[0, 2]), "height": int(2 * K[1, 2]),
        "params": [K[0, 0], K[1, 1], K[0, 2], K[1, 2]],
    }  # fmt: skip


def poselib_ransac(threshold: float, **options: Any) -> Estimator:
    def estimate(x1: Array, x2: Array, K: Array, seed: int) -> Pose:
        import poselib

        settings = {"max_epipolar_error": threshold, "seed": seed, **options}
        pose, _ = poselib.estimate_relative_pose(x1, x2, camera(K), camera(K), settings, {})
        return np.array(pose.R), np.array(pose.t)

    return estimate


def opencv(flag: str, threshold: float) -> Estimator:
    def estimate(x1: Array, x2: Array, K: Array, seed: int) -> Pose:
        import cv2

        cv2.setNumThreads(1)
        cv2.setRNGSeed(seed)
        E, mask = cv2.findEssentialMat(x1, x2, K, method=getattr(cv2, flag), prob=0.999, threshold=threshold)
        if E is None or E.shape[0] < 3:
            return None
        _, R, t, _ = cv2.recoverPose(E[:3], x1, x2, K, mask=mask)
        return R, t[:, 0]

    return estimate


def installed(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


def peers(thresholds: tuple[float, ...]) -> dict[str, Estimator]:
    found: dict[str, Estimator] = {}
    for cut in thresholds:
        if installed("poselib"):
            found[f"PoseLib LO-RANSAC, {cut:g} px"] = poselib_ransac(cut)
            if cut == thresholds[len(thresholds) // 2]:
                few = {"min_iterations": 100, "success_prob": 0.999}
                found[f"PoseLib LO-RANSAC, {cut:g} px, at least 100 iterations"] = poselib_ransac(cut, **few)
        if installed("cv2"):
            found[f"OpenCV MAGSAC++, {cut:g} px"] = opencv("USAC_MAGSAC", cut)
    return found


# --- the parts ----------------------------------------------------------------------------------------------------


def refine(quick: bool) -> dict[str, Any]:
    """Refinement from a start, to the certificate and to 1.01 F*."""
    import problm
    from problm.manifolds import rotation_exp, walk_sphere
    from problm.vision.two_view.simulate import two_views

    rows = []
    for n, target in TARGETS.items():
        times: dict[str, list[float]] = defaultdict(list)
        excess: list[float] = []
        above: list[float] = []
        for start in range(3 if quick else 12 if n < 200_000 else 6):
            views = two_views(n, seed=start)
            rng = np.random.default_rng(start)
            w, d = rng.normal(size=3), rng.normal(size=2)
            R0 = rotation_exp(0.2 * w / np.linalg.norm(w)) @ views.R
            t0 = walk_sphere(views.t, 0.3 * d / np.linalg.norm(d))

            def call(R0: Array = R0, t0: Array = t0, views: Any = views, **options: Any) -> Any:
                return problm.essential_matrix(views.x1, views.x2, views.K, initial=(R0, t0), robust=False, **options)

            calls: dict[str, Callable[[], Any]] = {
                "ours": call,
                "ours, plain LM": lambda call=call: call(acceptance="full"),
                "ours, hold-out": lambda call=call: call(acceptance="holdout"),
            }
            if installed("poselib"):
                calls["PoseLib"] = lambda R0=R0, t0=t0, views=views: poselib_refine(views, R0, t0)
            best: dict[str, float] = {}
            for repeat in range(15 if n < 20_000 else 5):
                for name, f in list(calls.items())[:: -1 if repeat % 2 else 1]:
                    value, seconds = cpu(f)
                    best[name] = min(best.get(name, np.inf), seconds)
                    if name == "ours":
                        cost = value.result.cost
                        assert value.result.success
                        assert value.result.certified
                    elif name == "PoseLib" and repeat == 0:
                        excess.append(poselib_cost(value, views) / cost - 1.0)
            for name, seconds in best.items():
                times[name].append(seconds)

            full = call().result.problem
            costs = {
                "ours": lambda pose, full=full: full.cost(pose.result.x),
                "PoseLib": lambda found, views=views: poselib_cost(found, views),
            }
            runs = {
                "ours": lambda k, call=call: call(max_iter=k, acceptance="holdout"),
                "PoseLib": lambda k, R0=R0, t0=t0, views=views: poselib_refine(views, R0, t0, k),
            }
            for name in ("ours", "PoseLib") if installed("poselib") else ("ours",):
                times[f"{name} to 1.01 F*"].append(time_to(runs[name], costs[name], cost))
            stops = [cpu(lambda call=call: call(accuracy=0.01)) for _ in range(5)]
            times["ours, accuracy=0.01"].append(min(seconds for _, seconds in stops))
            above.append(costs["ours"](stops[0][0]) / cost - 1.0)
        medians = {name: float(np.median(values)) for name, values in times.items()}
        row: dict[str, Any] = {"n": n, "starts": len(times["ours"]), "seconds": medians}
        row |= {"accuracy=0.01: within": sum(a <= 0.01 for a in above), "of": len(above)}
        if "PoseLib" in medians:
            row |= {
                "ratio": medians["PoseLib"] / medians["ours"], "target": target,
                "ratio to 1.01 F*": medians["PoseLib to 1.01 F*"] / medians["ours to 1.01 F*"],
                "largest relative difference of the cost": float(np.abs(excess).max()),
            }  # fmt: skip
        rows.append(row)
        progress(f"refine N = {n}: {json.dumps(row)}")
    return {"rows": rows}


def poselib_refine(views: Any, R0: Array, t0: Array, iterations: int = 100) -> Any:
    import poselib

    pose = poselib.CameraPose()
    pose.R, pose.t = R0, t0
    settings = {"loss_type": "TRIVIAL", "max_iterations": iterations}
    return poselib.refine_relative_pose(views.x1, views.x2, pose, camera(views.K), camera(views.K), settings)


def poselib_cost(found: Any, views: Any) -> float:
    """Cost of the result of `poselib_refine`, in our units."""
    return float(0.5 * found[1]["cost"] * views.K[0, 0] ** 2)


def time_to(run: Callable[[int], Any], cost: Callable[[Any], float], lowest: float) -> float:
    """CPU seconds, smallest of five, of the shortest ``run(iterations)`` that ends within 1 % of the lowest cost."""
    for iterations in range(1, 100):
        if cost(run(iterations)) <= 1.01 * lowest:
            return min(cpu(lambda k=iterations: run(k))[1] for _ in range(5))
    return float("nan")


def simulated_pairs(shares: tuple[float, ...], count: int, first: int) -> Iterator[tuple[str, Any]]:
    from problm.vision.two_view.simulate import two_views

    for share in shares:
        for k in range(count):
            yield f"{share:.0%}", two_views(5000, inliers=share, seed=first + k)


def measure(
    methods: dict[str, Estimator], pairs: Iterator[tuple[str, Any]], seeds: int = 1
) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """(error, seconds) of every run, by method and group."""
    runs: dict[str, dict[str, list[tuple[float, float]]]] = {name: defaultdict(list) for name in methods}
    warm = True
    for group, m in pairs:
        x1, x2 = np.ascontiguousarray(m.x1), np.ascontiguousarray(m.x2)
        for seed in range(seeds):
            for name, method in methods.items():
                if warm:
                    method(x1, x2, m.K, seed)  # compiling and first use of memory are not timed
                pose, seconds = cpu(lambda f=method, a=x1, b=x2, K=m.K, s=seed: f(a, b, K, s))
                runs[name][group].append((pose_error(pose, m.R, m.t), seconds))
            warm = False
        progress(f"{group}: " + ", ".join(f"{n} {runs[n][group][-1][0]:.2f}" for n in methods))
    return runs


def accuracy(runs: dict[str, dict[str, list[tuple[float, float]]]]) -> list[dict[str, Any]]:
    rows = []
    for name, groups in runs.items():
        both = [pair for values in groups.values() for pair in values]
        errors, seconds = [e for e, _ in both], [s for _, s in both]
        rows.append({
            "method": name, "runs": len(both), "median error": float(np.median(errors)),
            **{f"AUC {k}": area_under_curve(errors, k) for k in (1, 5, 10)},
            "median ms": 1e3 * float(np.median(seconds)), "mean ms": 1e3 * float(np.mean(seconds)),
        })  # fmt: skip
    return rows


MINE = {"ours": ours(), "ours, no RANSAC": ours(starts="random")}


def simulated(quick: bool) -> dict[str, Any]:
    """Robust pose on simulated pairs: accuracy and time."""
    pairs = simulated_pairs((0.2, 0.4, 0.6, 0.8), 2 if quick else 12, 1000)
    return {"rows": accuracy(measure(MINE | only_default(peers((1.5,))), pairs))}


def strecha(quick: bool, data: str | None) -> dict[str, Any]:
    """Robust pose on real pairs with ground truth: accuracy and time."""
    if data is None:
        raise SystemExit("strecha needs --data")
    names = sources.strecha_pairs(data)[:: 8 if quick else 1]
    pairs = ((name, sources.strecha(data, name, order)) for order in range(1 if quick else 2) for name in names)
    return {"rows": accuracy(measure(MINE | peers((0.5, 1.0, 2.0)), pairs))}


SHARES = (0.8, 0.6, 0.4, 0.3, 0.2, 0.13, 0.1, 0.07)


def shares(quick: bool, values: tuple[float, ...], before: list[dict[str, Any]]) -> dict[str, Any]:
    """Success and time against the share of inliers; rows of other shares are kept."""
    few = {name: f for name, f in peers((1.5,)).items() if "OpenCV" in name or "iterations" in name}
    first = 2 if quick else RUNS
    runs = measure(MINE | few, simulated_pairs(values, first, 2000))
    many = tuple(share for share in values if share >= 0.1)
    more = measure(MINE, simulated_pairs(many, 1 if quick else MORE, 2000 + first))
    for name, groups in more.items():
        for group, results in groups.items():
            runs[name][group] += results
    rows = success_rows(runs)
    names = [f"{share:.0%}" for share in SHARES]
    kept = [row for row in before if row["share"] not in {r["share"] for r in rows} and row["share"] in names]
    return {"rows": sorted(rows + kept, key=lambda row: names.index(row["share"]))}


def only_default(found: dict[str, Estimator]) -> dict[str, Estimator]:
    return {name: f for name, f in found.items() if "iterations" not in name}


def wilson(successes: int, runs: int) -> tuple[float, float]:
    """95 % interval of a probability by Wilson's formula, which also holds if every run succeeded."""
    z = 1.959964
    centre, spread = successes + z * z / 2, z * np.sqrt(successes * (1 - successes / runs) + z * z / 4)
    return float(max(centre - spread, 0.0) / (runs + z * z)), float(min((centre + spread) / (runs + z * z), 1.0))


def success_rows(runs: dict[str, dict[str, list[tuple[float, float]]]]) -> list[dict[str, Any]]:
    rows = []
    for name, groups in runs.items():
        for group, values in groups.items():
            good = sum(e < 5.0 for e, _ in values)
            low, high = wilson(good, len(values))
            rows.append({
                "method": name, "share": group, "runs": len(values), "success": good / len(values),
                "interval": [low, high], "median ms": 1e3 * float(np.median([s for _, s in values])),
            })  # fmt: skip
    return rows


def limits(quick: bool) -> dict[str, Any]:
    """Success against a time limit in CPU seconds."""
    rows = []
    for budget in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5):
        methods = {
            "ours": ours(max_time=budget, max_starts=10**7),
            "ours, no RANSAC": ours(starts="random", max_time=budget, max_starts=10**7),
        }
        with cpu_clock():
            runs = measure(methods, simulated_pairs((0.4, 0.2, 0.13), 2 if quick else RUNS, 3000))
        rows += [{"limit ms": 1e3 * budget, **row} for row in success_rows(runs)]
    return {"rows": rows}


def progress(text: str) -> None:
    print(text[:150], file=sys.stderr, flush=True)


def main() -> int:
    single_thread()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the real data sets")
    parser.add_argument("--only", nargs="+", choices=("refine", "simulated", "strecha", "shares", "time"))
    parser.add_argument("--share", nargs="+", type=float, choices=SHARES, default=SHARES, help="of the part shares")
    parser.add_argument("--quick", action="store_true", help="few runs: a check that it works")
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    options = parser.parse_args()
    found: dict[str, Any] = {} if options.quick else record.read(options.output, "two_view") or {}
    began = time.perf_counter()
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "refine": lambda: refine(options.quick),
        "simulated": lambda: simulated(options.quick),
        "strecha": lambda: strecha(options.quick, options.data),
        "shares": lambda: shares(options.quick, tuple(options.share), found.get("shares", {}).get("rows", [])),
        "time": lambda: limits(options.quick),
    }
    for name in options.only or [name for name in parts if options.data or name != "strecha"]:
        found[name] = parts[name]()
        known = record.about(seconds=time.perf_counter() - began, packages=("opencv-python-headless", "poselib"))
        record.write(options.output, "two_view", describe(found), found, known)
    return 0


if __name__ == "__main__":
    sys.exit(main())
