"""`problm.align_rgbd` against OpenCV's RGB-D odometry on rendered views with a known motion.

    OMP_NUM_THREADS=1 python -m bench.studies.rgbd [--pairs 12] [--seed 7400]

Views of 320 x 240 pixels of a textured relief two units away, with noise of 0.01 in the image (contrast 0.15) and 0.002
in depth, and 5 % of the pixels without depth. OpenCV's `cv2.Odometry` gets the same numbers: RGB (light only, as
`align_rgbd` without `depth2`) and RGB_DEPTH (light and depth, as with `depth2`), with its own defaults except for the
camera matrix and the limits of depth (0.1 to 10) and motion (1, and 45 degrees). Images are rounded to 8 bits for both.
CPU time on one thread, with everything but the covariance of `align_rgbd`, which is computed on request and which
OpenCV does not have.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from problm.manifolds import rotation_log
from problm.vision.rgbd.align_rgbd import align_rgbd
from problm.vision.rgbd.simulate import Frames, two_frames

from ..harness import record
from ..harness.run import single_thread
from ..harness.summary import markdown_table

SEED = 7400
Motion = tuple[np.ndarray, np.ndarray, bool]
SIZE = (320, 240)
CASES: dict[str, dict[str, Any]] = {
    "1 degree, 0.02": {"angle": 1.0, "shift": 0.02},
    "3 degrees, 0.05": {"angle": 3.0, "shift": 0.05},
    "6 degrees, 0.1": {"angle": 6.0, "shift": 0.1},
    "10 degrees, 0.2": {"angle": 10.0, "shift": 0.2},
    "3 degrees, light changed": {"angle": 3.0, "shift": 0.05, "gain": 1.2, "bias": -0.05},
    "3 degrees, 20 % covered": {"angle": 3.0, "shift": 0.05, "occluder": 0.2},
    "3 degrees, a plane": {"angle": 3.0, "shift": 0.05, "relief": 0.0},
    "3 degrees, noise 0.05": {"angle": 3.0, "shift": 0.05, "noise": 0.05},
}


def bytes_of(image: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(np.rint(255.0 * image), 0, 255).astype(np.uint8))


def ours(with_depth: bool) -> Callable[[Frames], Motion]:
    def run(frames: Frames) -> Motion:
        found = align_rgbd(
            bytes_of(frames.image1), frames.depth1, bytes_of(frames.image2), frames.K,
            frames.depth2 if with_depth else None, threads=1,
        )  # fmt: skip
        return found.R, found.t, found.success

    return run


def opencv(kind: str) -> Callable[[Frames], Motion]:
    import cv2

    cv2.setNumThreads(1)
    settings = cv2.OdometrySettings()
    settings.setMinDepth(0.1)
    settings.setMaxDepth(10.0)
    settings.setMaxTranslation(1.0)  # its default of 0.15 would refuse the longest motion
    settings.setMaxRotation(45.0)

    def run(frames: Frames) -> Motion:
        settings.setCameraMatrix(frames.K.astype(np.float32))
        odometry = cv2.Odometry(getattr(cv2, f"OdometryType_{kind}"), settings, cv2.OdometryAlgoType_COMMON)
        depths = [np.where(d > 0.0, d, np.nan).astype(np.float32) for d in (frames.depth1, frames.depth2)]
        images = [np.repeat(bytes_of(i)[:, :, None], 3, axis=2) for i in (frames.image1, frames.image2)]
        try:
            success, Rt = odometry.compute(depths[0], images[0], depths[1], images[1])
        except cv2.error:
            return np.eye(3), np.zeros(3), False
        if not success or Rt is None or not np.isfinite(Rt).all():
            return np.eye(3), np.zeros(3), False
        return Rt[:3, :3], Rt[:3, 3], True

    return run


def compare(methods: dict[str, Callable[[Frames], Motion]], pairs: int, seed: int) -> list[dict[str, Any]]:
    rows = []
    for number, (case, settings) in enumerate(CASES.items()):
        drawn = [two_frames(*SIZE, **settings, seed=seed + 100 * number + k) for k in range(pairs)]
        for name, method in methods.items():
            seconds, turns, shifts, said = [], [], [], 0
            for frames in drawn:
                began = time.process_time()
                R, t, success = method(frames)
                seconds.append(time.process_time() - began)
                turns.append(float(np.degrees(np.linalg.norm(rotation_log(R @ frames.R.T)))))
                shifts.append(1e3 * float(np.linalg.norm(t - frames.t)))
                said += success
            rows.append({
                "motion": case, "method": name, "CPU ms": 1e3 * float(np.median(seconds)),
                "error, degrees": float(np.median(turns)), "worst": max(turns),
                "error of t, 1/1000": float(np.median(shifts)), "worst of t": max(shifts), "ok": f"{said} of {pairs}",
            })  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def calibration(pairs: int, seed: int) -> list[dict[str, Any]]:
    """z values of the errors by the covariance that `align_rgbd` returns."""
    cases = {
        "3 degrees": {}, "20 % covered": {"occluder": 0.2}, "noise 0.05": {"noise": 0.05},
        "depth noise 0.02": {"depth_noise": 0.02},
    }  # fmt: skip
    rows = []
    for number, (case, settings) in enumerate(cases.items()):
        for with_depth in (False, True):
            values = []
            for k in range(pairs):
                frames = two_frames(160, 120, **settings, seed=seed + 5000 + 100 * number + k)
                depth2 = frames.depth2 if with_depth else None
                found = align_rgbd(frames.image1, frames.depth1, frames.image2, frames.K, depth2, threads=1)
                if found.success:
                    off = np.concatenate([rotation_log(found.R @ frames.R.T), found.t - frames.t])
                    values.append(np.linalg.solve(np.linalg.cholesky(found.covariance), off))
            z = np.array(values)
            rows.append({
                "views": case, "depth2": "yes" if with_depth else "no", "ok": f"{len(z)} of {pairs}",
                "rms of z": float(np.sqrt((z**2).mean())), "within 1.96": float((np.abs(z) < 1.96).mean()),
            })  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    return markdown_table(list(rows[0]), [list(r.values()) for r in rows])


def main() -> None:
    single_thread()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", default="", help="methods with this in their names; keep the other rows as they are")
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    options = parser.parse_args()
    began = time.perf_counter()
    methods = {
        "problm.align_rgbd": ours(False), "OpenCV RGB": opencv("RGB"),
        "problm.align_rgbd, depth2": ours(True), "OpenCV RGB_DEPTH": opencv("RGB_DEPTH"),
    }  # fmt: skip
    before = record.read(options.output, "rgbd") if options.only else None
    chosen = {name: method for name, method in methods.items() if options.only in name}
    for method in chosen.values():
        method(two_frames(64, 48, seed=options.seed - 1))  # loads compiled code
    rows = compare(chosen, options.pairs, options.seed)
    if before is not None:
        new = {(row["motion"], row["method"]): row for row in rows}
        rows = [new.get((row["motion"], row["method"]), row) for row in before["compare"]]
    z = calibration(2 * options.pairs, options.seed) if before is None else before["calibration"]
    found = {"compare": rows, "calibration": z}
    text = [
        "# RGB-D odometry",
        f"Rendered views of {SIZE[0]} x {SIZE[1]} pixels of a textured relief two units away, noise of 0.01 in the "
        f"image (contrast 0.15) and 0.002 in depth; {options.pairs} pairs per row, medians and worst. "
        "`cv2.Odometry` has its defaults, except for the camera matrix and wide limits of depth and motion. *ok*: what "
        "the method itself says. CPU time on one thread, without the covariance.",
        table(found["compare"]),
        f"Errors of `align_rgbd` divided by their standard errors, whitened (160 x 120 pixels, {2 * options.pairs} "
        "pairs):",
        table(found["calibration"]),
    ]
    known = record.about(seconds=time.perf_counter() - began, seed=options.seed, packages=("opencv-python-headless",))
    record.write(options.output, "rgbd", text, found, known)


if __name__ == "__main__":
    main()
