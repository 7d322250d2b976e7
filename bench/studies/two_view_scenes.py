"""Robust poses, fundamental matrices and homographies on many kinds of scenes, against PoseLib and OpenCV's USAC.

    OMP_NUM_THREADS=1 python -m bench.studies.two_view_scenes [--data DIR] [--only E F H] [--methods ours peers]
                                                              [--half 1] [--count 20] [-o bench/results]

`two_view_kinds` makes the scenes, in two halves: our settings were chosen on half 0, and the published figures come
from half 1. Every method gets the same matches; peers at each of their thresholds, ours with ``threshold="auto"`` and
several seeds. Errors: the larger of both angles of a pose in degrees; the median distance of true correspondences
from their epipolar lines in pixels for F; the mean distance of the image's corners in pixels for H. AUC is the area
under the share of scenes below an error. *Moved*: share of the scenes whose error changes by more than a tenth with
the seed. No answer counts as an infinite error. CPU time, one thread.

Methods may be measured one after another: what was measured before is kept.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import problm

from ..harness import record
from ..harness.summary import markdown_table
from .two_view_kinds import PLANES, REAL, REAL_PLANES, SIMULATED, Scene, scenes

Array = NDArray[np.float64]
Method = Callable[[Scene, int], Any]
LIMITS = (1, 3, 5, 10)
KINDS = {"E": (*SIMULATED, *REAL), "F": ("facade, cut", "forward", "few", "strecha"), "H": (*PLANES, *REAL_PLANES)}
NAMES = {"E": "Essential matrix", "F": "Fundamental matrix", "H": "Homography"}
SEEDS = 2


def camera(K: Array) -> dict[str, Any]:
    return {
        "model": "PINHOLE", "width": int(2 * K[0, 2]), "height": int(2 * K[1, 2]),
        "params": [K[0, 0], K[1, 1], K[0, 2], K[1, 2]],
    }  # fmt: skip


def our_pose(s: Scene, seed: int) -> Any:
    pose = problm.essential_matrix(s.x1, s.x2, s.K1, s.K2, rng=seed)
    return (pose.R, pose.t) if pose.status in ("ok", "not converged") else None


def poselib_pose(threshold: float) -> Method:
    def estimate(s: Scene, seed: int) -> Any:
        import poselib

        settings = {"max_epipolar_error": threshold, "seed": seed}
        pose, _ = poselib.estimate_relative_pose(s.x1, s.x2, camera(s.K1), camera(s.K2), settings, {})
        return np.array(pose.R), np.array(pose.t)

    return estimate


def usac_pose(threshold: float) -> Method:
    def estimate(s: Scene, seed: int) -> Any:
        import cv2

        focal = 0.5 * (s.K1[0, 0] + s.K2[0, 0])
        a, b = ((x - K[:2, 2]) / K[[0, 1], [0, 1]] for x, K in ((s.x1, s.K1), (s.x2, s.K2)))
        K = np.diag([focal, focal, 1.0])
        E, mask = cv2.findEssentialMat(focal * a, focal * b, K, method=cv2.USAC_MAGSAC, prob=0.999, threshold=threshold)
        if E is None or E.shape[0] < 3:
            return None
        _, R, t, _ = cv2.recoverPose(E[:3], a, b, np.eye(3), mask=mask)
        return R, t[:, 0]

    return estimate


def our_matrix(which: str) -> Method:
    def estimate(s: Scene, seed: int) -> Any:
        fit: Any = (problm.fundamental_matrix if which == "F" else problm.homography)(s.x1, s.x2, rng=seed)
        return None if fit.status == "no consensus" else fit.matrix

    return estimate


def poselib_matrix(which: str, threshold: float) -> Method:
    def estimate(s: Scene, seed: int) -> Any:
        import poselib

        if which == "F":
            found = poselib.estimate_fundamental(s.x1, s.x2, {"max_epipolar_error": threshold, "seed": seed}, {})
        else:
            found = poselib.estimate_homography(s.x1, s.x2, {"max_reproj_error": threshold, "seed": seed}, {})
        return np.array(found[0])

    return estimate


def usac_matrix(which: str, threshold: float) -> Method:
    def estimate(s: Scene, seed: int) -> Any:
        import cv2

        if which == "F":
            return cv2.findFundamentalMat(s.x1, s.x2, cv2.USAC_MAGSAC, threshold, 0.999, 10_000)[0]
        return cv2.findHomography(s.x1, s.x2, cv2.USAC_MAGSAC, threshold, maxIters=10_000, confidence=0.999)[0]

    return estimate


def methods(which: str) -> dict[str, Method]:
    """Ours first, then the peers at their thresholds."""
    if which == "E":
        found: dict[str, Method] = {"ours, auto": our_pose}
        found |= {f"PoseLib, {cut:g} px": poselib_pose(cut) for cut in (0.5, 1.0, 2.0)}
        return found | {f"USAC_MAGSAC, {cut:g} px": usac_pose(cut) for cut in (1.0,)}
    found = {"ours, auto": our_matrix(which)}
    found |= {f"PoseLib, {cut:g} px": poselib_matrix(which, cut) for cut in (1.0, 2.0)}
    return found | {f"USAC_MAGSAC, {cut:g} px": usac_matrix(which, cut) for cut in (1.0,)}


def error(which: str, answer: Any, s: Scene) -> float:
    """Error of an answer; infinite if there is none."""
    if answer is None or not all(np.isfinite(part).all() for part in answer):
        return float("inf")
    if which == "E":
        turn = 2.0 * np.arcsin(min(float(np.linalg.norm(answer[0] - s.R)) / np.sqrt(8.0), 1.0))
        u = answer[1] / np.linalg.norm(answer[1])
        shift = 2.0 * np.arctan2(np.linalg.norm(u - s.t), np.linalg.norm(u + s.t))
        return float(np.degrees(max(turn, shift)))
    if which == "F":
        if np.shape(answer) != (3, 3):
            return float("inf")
        one = np.ones((len(s.exact), 1))
        a, b = np.hstack([s.exact[:, :2], one]), np.hstack([s.exact[:, 2:], one])
        lines, back = a @ answer.T, b @ answer
        away = np.abs((b * lines).sum(axis=1))
        both = away / np.hypot(lines[:, 0], lines[:, 1]) + away / np.hypot(back[:, 0], back[:, 1])
        return float(np.median(0.5 * both))
    assert s.H is not None
    width, height = s.size
    corners = np.array([[0.0, 0.0, 1.0], [width, 0.0, 1.0], [width, height, 1.0], [0.0, height, 1.0]])
    p, q = corners @ answer.T, corners @ s.H.T
    return float(np.linalg.norm(p[:, :2] / p[:, 2:] - q[:, :2] / q[:, 2:], axis=1).mean())


def measure(
    which: str, kind: str, name: str, method: Method, half: int, count: int, data: str | None
) -> dict[str, Any]:
    """Errors (scenes x seeds) and milliseconds of a method on a kind of scene."""
    seeds = SEEDS if name.startswith("ours") else 1
    errors, times = [], []
    for s in scenes(kind, half, count, data):
        found = []
        for seed in range(seeds):
            began = time.process_time()
            answer = method(s, seed)
            times.append(1e3 * (time.process_time() - began))
            found.append(min(error(which, answer, s), 1e3))
        errors.append(found)
    e = np.array(errors)
    low = e.min(axis=1)
    return {
        "which": which, "kind": kind, "method": name, "scenes": len(e), "errors": e.tolist(),
        "auc": [float(np.mean(np.maximum(0.0, 1.0 - e / limit))) for limit in LIMITS],
        "moved": float(np.mean(np.ptp(e, axis=1) > 0.1 * low)) if seeds > 1 else None,
        "median ms": float(np.median(times)), "mean ms": float(np.mean(times)),
    }  # fmt: skip


def per_scene(row: dict[str, Any]) -> Array:
    """(limits, scenes) what each scene adds to the AUC of a method, the mean over the seeds."""
    e = np.array(row["errors"])
    scores: Array = np.array([np.maximum(0.0, 1.0 - e / limit).mean(axis=1) for limit in LIMITS])
    return scores


def ahead(mine: dict[str, Any], rivals: list[dict[str, Any]]) -> str:
    """How far the AUC is above that of the best rival at each limit, with its standard error over the scenes."""
    parts = []
    for k in range(len(LIMITS)):
        rival = max(rivals, key=lambda row: float(row["auc"][k]))
        difference = per_scene(mine)[k] - per_scene(rival)[k]
        error = np.std(difference, ddof=1) / np.sqrt(len(difference))
        parts.append(f"{difference.mean():+.3f} ± {error:.3f}")
    return " / ".join(parts)


def table(rows: list[dict[str, Any]]) -> str:
    """One line per method and kind; ours with how far its AUC is above the best peer's."""
    cells = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        here = [row for row in rows if row["kind"] == kind]
        rivals = [row for row in here if not row["method"].startswith("ours")]
        for row in here:
            mine = row["method"].startswith("ours")
            moved = "" if row["moved"] is None else f"{row['moved']:.0%}"
            cells.append([
                f"{kind} ({row['scenes']})" if mine else "", row["method"], *(f"{a:.3f}" for a in row["auc"]),
                ahead(row, rivals) if mine and rivals else "", moved, f"{row['median ms']:.1f}",
                f"{row['mean ms']:.1f}",
            ])  # fmt: skip
    head = ["kind (scenes)", "method", *(f"AUC {k}" for k in LIMITS), "ahead of the best peer", "moved"]
    return markdown_table([*head, "median ms", "mean ms"], cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("PROBLM_DATA") or None)
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--methods", nargs="+", choices=("ours", "peers"), default=["ours", "peers"])
    parser.add_argument("--half", type=int, choices=(0, 1), default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    arguments = parser.parse_args()
    began = time.perf_counter()
    rows = record.read(arguments.output, "two_view_scenes") or []
    for which in arguments.only:
        for kind in KINDS[which]:
            if kind not in (SIMULATED | PLANES) and arguments.data is None:
                continue
            for name, method in methods(which).items():
                if ("ours" if name.startswith("ours") else "peers") not in arguments.methods:
                    continue
                if not any(row["which"] == which for row in rows):
                    method(next(scenes(kind, arguments.half, 1, arguments.data)), 0)  # first use is not timed
                row = measure(which, kind, name, method, arguments.half, arguments.count, arguments.data)
                rows = [r for r in rows if (r["which"], r["kind"], r["method"]) != (which, kind, name)] + [row]
                print(which, kind, name, np.round(row["auc"], 3), f"{row['median ms']:.1f} ms", flush=True)
            write(arguments, rows, began)


def write(arguments: argparse.Namespace, rows: list[dict[str, Any]], began: float) -> None:
    order = {name: k for which in KINDS for k, name in enumerate(methods(which))}
    rows = sorted(rows, key=lambda r: (KINDS[r["which"]].index(r["kind"]), order[r["method"]]))
    text = [
        "# Two-view estimation by kind of scene",
        "Settings of ours were chosen on one half of the scenes of each kind; these figures are from the other half. "
        "AUC of the error: degrees for poses (the larger of both angles), pixels from the epipolar line for F, pixels "
        "of the corners for H. *Ahead*: of the best peer at each limit, with the standard error of the mean over the "
        "scenes, which are few. *Moved*: scenes whose error changes by more than a tenth with the seed. CPU time of "
        "one thread.",
    ]
    for which in KINDS:
        here = [row for row in rows if row["which"] == which]
        if here:
            text += [f"## {NAMES[which]}", table(here)]
    known = record.about(seconds=time.perf_counter() - began, packages=("poselib", "opencv-python-headless"))
    record.write(arguments.output, "two_view_scenes", text, rows, known, quiet=True)


if __name__ == "__main__":
    main()
