"""`problm.absolute_pose` and `problm.calibrate_camera` against PoseLib and OpenCV on simulated views.

    OMP_NUM_THREADS=1 python -m bench.studies.resection [--seed 8800] [--only pose|errors|calibration]

Poses: N pixels of points at depths of 4 to 10, 640 x 480 pixels, focal length 800, noise of 0.7 pixels, a share of
wrong matches. Peers are told the threshold, 3 standard deviations of the noise; ours is not. PoseLib:
`estimate_absolute_pose` with its defaults otherwise; OpenCV: `solvePnPRansac` with at most 1,000 iterations, and its
confidence of 0.99. Failure: more than 2 degrees off, or no pose. CPU time on one thread.

Calibration: a board of 9 x 6 corners, noise of 0.2 pixels, five coefficients. Error of the focal length in pixels, and
the rms of the residuals.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..harness import record
from ..harness.run import single_thread
from ..harness.summary import markdown_table

SEED = 8800
NOISE = 0.7
SIZES = ((20, 30), (200, 30), (2_000, 10), (20_000, 3), (1_000_000, 1))
OUTLIERS = (0.0, 0.3, 0.5, 0.7, 0.8)


def angle(R: Any, other: Any) -> float:
    return float(np.degrees(2.0 * np.arcsin(min(np.linalg.norm(R - other) / np.sqrt(8.0), 1.0))))


def ours(view: Any) -> Any:
    import problm

    pose = problm.absolute_pose(view.points2d, view.points3d, view.K)
    return pose.R if pose.success else None


def poselib_pose(view: Any) -> Any:
    import poselib

    camera = {"model": "PINHOLE", "width": 640, "height": 480, "params": [800.0, 800.0, 320.0, 240.0]}
    ransac = {"max_reproj_error": 3.0 * NOISE}
    return poselib.estimate_absolute_pose(view.points2d, view.points3d, camera, ransac, {})[0].R


def opencv_pose(view: Any) -> Any:
    import cv2

    cv2.setNumThreads(1)
    ok, rvec, _, _ = cv2.solvePnPRansac(
        view.points3d, view.points2d, view.K, None, reprojectionError=3.0 * NOISE, iterationsCount=1000
    )
    return cv2.Rodrigues(rvec)[0] if ok else None


def timed(method: Callable[[Any], Any], view: Any) -> tuple[float, float]:
    """Milliseconds, and degrees from the truth (180 without a pose)."""
    start = time.process_time()
    R = method(view)
    return 1e3 * (time.process_time() - start), 180.0 if R is None else angle(R, view.R)


def poses(seed: int) -> list[dict[str, Any]]:
    from problm.vision.absolute_pose.simulate import one_view

    methods = {"problm": ours, "PoseLib": poselib_pose, "OpenCV": opencv_pose}
    for method in methods.values():
        method(one_view(100, seed=seed - 1))  # loads compiled code
    ours(one_view(60_000, seed=seed - 1))  # and that of batches
    rows = []
    for n, repeats in SIZES:
        for share in OUTLIERS if n < 1_000_000 else (0.0, 0.5):
            views = [one_view(n, inliers=1.0 - share, noise=NOISE, seed=seed + k) for k in range(repeats)]
            row: dict[str, Any] = {"N": n, "outliers": share, "scenes": repeats}
            found = {name: [timed(method, view) for view in views] for name, method in methods.items()}
            for name, values in found.items():
                row[f"{name} ms"] = float(np.median([ms for ms, _ in values]))
            for name, values in found.items():
                row[f"{name} deg"] = float(np.median([deg for _, deg in values]))
            for name, values in found.items():
                row[f"{name} fails"] = int(np.sum([deg > 2.0 for _, deg in values]))
            rows.append(row)
            print(row, flush=True)
    return rows


def errors(seed: int) -> list[dict[str, Any]]:
    """Root mean square of z and coverage of 95 % intervals of rotation vector, t and focal length."""
    import problm
    from problm.manifolds import rotation_log
    from problm.vision.absolute_pose.simulate import one_view

    rows = []
    for n, share, focal in ((50, 0.0, False), (200, 0.3, False), (1000, 0.5, False), (300, 0.3, True)):
        z = []
        for k in range(150):
            view = one_view(n, inliers=1.0 - share, seed=seed + 5000 + k)
            pose = problm.absolute_pose(view.points2d, view.points3d, view.K, estimate_focal=focal)
            off = np.concatenate([
                rotation_log(view.R @ pose.R.T), view.t - pose.t, [800.0 - pose.focal] if focal else [],
            ])  # fmt: skip
            z.append(off / pose.standard_errors)
        flat = np.abs(np.array(z))
        rows.append({
            "N": n, "outliers": share, "focal length": "unknown" if focal else "known", "scenes": len(z),
            "z rms": float(np.sqrt(np.mean(flat**2))), "inside 95 %": float(np.mean(flat < 1.96)),
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def calibration(seed: int) -> list[dict[str, Any]]:
    import cv2

    import problm
    from problm.vision.calibration.simulate import board_views

    cv2.setNumThreads(1)
    rows = []
    problm.calibrate_camera(*_lists(board_views(4, seed=seed - 1)))
    for count in (6, 15, 40):
        ms: dict[str, list[float]] = {"problm": [], "OpenCV": []}
        off: dict[str, list[float]] = {"problm": [], "OpenCV": []}
        ratio, z = [], []
        for k in range(20):
            views = board_views(count, seed=seed + 100 * count + k)
            objects, images, size = _lists(views)
            start = time.process_time()
            found = problm.calibrate_camera(objects, images, size)
            middle = time.process_time()
            rms, K, *_ = cv2.calibrateCamera(
                [np.float32(X) for X in objects], [np.float32(x) for x in images], size, None, None
            )
            ms["problm"].append(1e3 * (middle - start))
            ms["OpenCV"].append(1e3 * (time.process_time() - middle))
            off["problm"].append(abs(found.K[0, 0] - 800.0))
            off["OpenCV"].append(abs(K[0, 0] - 800.0))
            ratio.append(found.rms / rms)
            spread = np.sqrt(np.diag(found.covariance))
            z.append((np.array(found.camera.params) - views.camera.params) / spread)
        rows.append({
            "views": count, "scenes": 20, **{f"{name} ms": float(np.median(v)) for name, v in ms.items()},
            **{f"{name} error of fx": float(np.median(v)) for name, v in off.items()},
            "largest rms / OpenCV's": float(np.max(ratio)), "z rms": float(np.sqrt(np.mean(np.square(z)))),
            "inside 95 %": float(np.mean(np.abs(z) < 1.96)),
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def _lists(views: Any) -> tuple[Any, Any, tuple[int, int]]:
    return views.object_points, views.image_points, (640, 480)


PARTS = {"pose": poses, "errors": errors, "calibration": calibration}
TITLES = {
    "pose": "## Poses with wrong matches\n\nCPU ms, degrees of rotation from the truth (medians), and failures.",
    "errors": "## Standard errors of poses\n\nRoot mean square of errors over standard errors, and the share within "
    "1.96 of them, over rotation vector, t and focal length.",
    "calibration": "## Calibration\n\nMedians over the scenes; the largest ratio of the rms of the residuals to "
    "OpenCV's.",
}


def main() -> None:
    single_thread()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", choices=tuple(PARTS))
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    options = parser.parse_args()
    began = time.perf_counter()
    data = dict(record.read(options.output, "resection") or {})
    for name, measure in PARTS.items():
        if options.only in (None, name):
            data[name] = measure(options.seed)
    text = [
        "# Absolute poses and calibration",
        "Simulated views; peers know the threshold of the errors, ours does not. CPU time on one thread.",
    ]
    for name in PARTS:
        if name in data:
            text += [TITLES[name], markdown_table(list(data[name][0]), [list(r.values()) for r in data[name]])]
    packages = ("poselib", "opencv-python-headless")
    known = record.about(seconds=time.perf_counter() - began, seed=options.seed, packages=packages)
    record.write(options.output, "resection", text, data, known)


if __name__ == "__main__":
    main()
