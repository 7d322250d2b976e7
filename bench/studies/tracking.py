"""`problm.Tracker` against OpenCV's ECC on videos with a known warp, made of a real photograph.

    OMP_NUM_THREADS=1 python -m bench.studies.tracking --data DIR [--frames 150] [--seed 7300]

A camera of 640 x 480 pixels moves over a photograph: shifts, turns, zooms, tilts; noise of three grey levels in every
frame. In the second video the light changes, too. The template is the first frame. ECC (`findTransformECC`, homography,
its default filter, at most 50 iterations, start at the frame before) compares with the same template, on all pixels.
Error: mean distance of the corners from the truth, in pixels. CPU time of one frame, on one thread.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..data import stand_ins
from ..harness import record
from ..harness.run import single_thread
from ..harness.summary import markdown_table
from .alignment_pairs import Array, Picture, corner_error, grey, halved, mapped, noisy

SEED = 7300
SHAPE = (480, 640)
NOISE = 3.0


def photograph(data: str | None) -> Picture:
    """At least 640 x 480 pixels and a margin."""
    if data is None:
        return stand_ins.image_pair(0, 960, 1280).image1
    return halved(grey(next(Path(data, "adelaidemrf").glob("johnssonaA.*"))))


def warp(phase: float) -> Array:
    """Template to frame, at a phase of the camera's motion from 0 to 2 pi; the identity at 0."""
    centre = np.array([[1.0, 0.0, -SHAPE[1] / 2], [0.0, 1.0, -SHAPE[0] / 2], [0.0, 0.0, 1.0]])
    turn, zoom = 0.1 * np.sin(2 * phase), 1.0 + 0.08 * np.sin(3 * phase)
    c, s = zoom * np.cos(turn), zoom * np.sin(turn)
    about = np.array([
        [c, -s, 25.0 * np.sin(phase)], [s, c, 18.0 * np.sin(2 * phase)],
        [1e-4 * np.sin(phase), 1e-4 * np.sin(2 * phase), 1.0],
    ])  # fmt: skip
    return np.asarray(np.linalg.inv(centre) @ about @ centre)


def video(picture: Picture, frames: int, light: float, seed: int) -> Iterator[tuple[Picture, Array]]:
    """Frames and the warps from the first one; gain changes by the share ``light``."""
    from scipy.ndimage import map_coordinates, spline_filter

    rng = np.random.default_rng(seed)
    smooth = spline_filter(picture.astype(float), 3)
    h, w = SHAPE
    y, x = np.mgrid[0:h, 0:w]
    at = np.column_stack([x.ravel(), y.ravel()]).astype(float)
    corner = (np.array(picture.shape[::-1]) - np.array([w, h])) / 2.0
    for k in range(frames):
        phase = 2.0 * np.pi * k / frames
        matrix = warp(phase)
        source = mapped(np.linalg.inv(matrix), at) + corner
        values = map_coordinates(smooth, source[:, ::-1].T, order=3, prefilter=False, mode="mirror").reshape(h, w)
        yield noisy((1.0 + light * np.sin(phase)) * values, NOISE, rng), matrix


def ours(template: Picture) -> Callable[[Picture], Array]:
    import problm

    tracker = problm.Tracker(template)
    return lambda frame: tracker.update(frame).matrix


def ecc(template: Picture) -> Callable[[Picture], Array]:
    import cv2

    cv2.setNumThreads(1)
    state = np.eye(3, dtype=np.float32)

    def update(frame: Picture) -> Array:
        nonlocal state
        try:
            found = cv2.findTransformECC(template, frame, state.copy(), cv2.MOTION_HOMOGRAPHY, (3, 50, 1e-4), None, 5)
            state = found[1]
        except cv2.error:
            pass  # it raises where it does not converge
        return np.asarray(state, dtype=float)

    return update


def main() -> None:
    single_thread()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("PROBLM_DATA") or None)
    parser.add_argument("--frames", type=int, default=150)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    options = parser.parse_args()
    began = time.perf_counter()
    picture = photograph(options.data)
    rows: list[dict[str, Any]] = []
    for name, light in (("motion", 0.0), ("motion and light", 0.15)):
        frames = list(video(picture, options.frames, light, options.seed))
        for method, make in (("problm.Tracker", ours), ("OpenCV ECC", ecc)):
            update = make(frames[0][0])
            update(frames[0][0])  # prepares the template, and loads compiled code
            errors, seconds = [], []
            for frame, truth in frames[1:]:
                start = time.process_time()
                matrix = update(frame)
                seconds.append(time.process_time() - start)
                errors.append(corner_error(matrix, truth, SHAPE))
            rows.append({
                "video": name, "method": method, "frames": len(errors),
                "error, px": float(np.median(errors)), "largest error, px": float(np.max(errors)),
                "error of the last tenth, px": float(np.mean(errors[-len(errors) // 10 :])),
                "ms per frame": 1e3 * float(np.median(seconds)),
                "frames per second": len(seconds) / float(np.sum(seconds)),
            })  # fmt: skip
            print(rows[-1], flush=True)
    text = [
        "# Tracking a template",
        "Videos of 640 x 480 pixels, made of a photograph, with known warps; homography, CPU time on one thread. "
        "Error: mean distance of the corners from the truth, median and largest over the frames, and the mean over the "
        "last tenth.",
        markdown_table(list(rows[0]), [list(r.values()) for r in rows]),
    ]
    known = record.about(seconds=time.perf_counter() - began, seed=options.seed, packages=("opencv-python-headless",))
    record.write(options.output, "tracking", text, rows, known)


if __name__ == "__main__":
    main()
