"""Dense alignment against plain LM, ground truth and OpenCV.

    python -m bench.studies.alignment [--data DIR] [--only lm truth starts recovery] [--quick] [-o bench/results]

lm
    The pairs of the paper, squared differences of grey values as there (no blur, no gain): plain Levenberg-Marquardt
    on the full resolution against progressive batches on the full resolution and against `align` as it is, from the
    identity and from near the dominant plane. Time to 1.01 of the lowest cost that any of them reached, and to 1.01 of
    LM's own, medians of three below 0.4 megapixels. Real data only.
truth
    ``oxford_affine`` against its homographies: error of the corners in pixels. Real data only.
starts
    Starts whose corners are off by more and more: success (corners within 1.5 pixels of the truth), error and time,
    side by side with OpenCV's `findTransformECC` on a pyramid as deep as ours and with its
    `findTransformECCMultiScale`.
recovery
    Warped photographs with noise, blur, occlusion and changes of light: error of the corners as each grows.

Everybody on one thread, by CPU time, which other work on the machine disturbs least; methods take turns on the same
data. Writes alignment.json, alignment.md and alignment_recovery.svg.
"""

from __future__ import annotations

import argparse
import bisect
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ..data import sources
from ..harness import record
from ..harness.run import cpu_clock, single_thread
from ..harness.summary import markdown_table
from .alignment_pairs import (
    OXFORD,
    WARPED,
    Array,
    Picture,
    corner_error,
    grey,
    known_pairs,
    moved,
    noisy,
    oxford_matrix,
    pictures,
    warped,
)
from .alignment_report import describe, draw_recovery

Aligner = Callable[[Picture, Picture, Array], Array]
SUCCESS = 1.5
"""Largest mean error of the corners, in pixels, of a successful alignment."""


# --- the aligners -------------------------------------------------------------------------------------------------


def ours(**options: Any) -> Aligner:
    def run(first: Picture, second: Picture, start: Array) -> Array:
        import problm

        return np.asarray(problm.align(first, second, initial=start, threads=1, **options).matrix)

    return run


def ecc(first: Picture, second: Picture, start: Array) -> Array:
    """`findTransformECC` on a pyramid down to 24 pixels, with its default filter and up to 100 iterations per level."""
    import cv2

    levels = max(1, 1 + int(np.log2(min(*first.shape, *second.shape) / 24)))
    pyramid = [(first, second)]
    while len(pyramid) < levels:
        pyramid.append((cv2.pyrDown(pyramid[-1][0]), cv2.pyrDown(pyramid[-1][1])))
    up = np.diag([2.0, 2.0, 1.0])  # pyrDown keeps every second pixel: x of a level is 2x of the finer one
    down = np.linalg.inv(up)
    matrix = start
    for _ in range(levels - 1):
        matrix = down @ matrix @ up
    for level in range(levels - 1, -1, -1):
        try:
            found = cv2.findTransformECC(
                *pyramid[level], matrix.astype(np.float32), cv2.MOTION_HOMOGRAPHY, (3, 100, 1e-6), None, 5
            )
            matrix = np.asarray(found[1], dtype=float)
        except cv2.error:
            pass  # it raises if it does not converge; the finer levels continue from here
        if level:
            matrix = up @ matrix @ down
    return matrix


def ecc_multiscale(first: Picture, second: Picture, start: Array) -> Array:
    import cv2

    parameters = cv2.ECCParameters()
    parameters.motionType = cv2.MOTION_HOMOGRAPHY
    try:
        return np.asarray(cv2.findTransformECCMultiScale(first, second, start.astype(np.float32), parameters)[1], float)
    except cv2.error:
        return start


def peers() -> dict[str, Aligner]:
    found: dict[str, Aligner] = {"problm.align": ours()}
    try:
        import cv2
    except ImportError:
        return found
    cv2.setNumThreads(1)
    found["OpenCV ECC"] = ecc
    if hasattr(cv2, "findTransformECCMultiScale"):
        found["OpenCV ECC MultiScale"] = ecc_multiscale
    return found


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    value = call()
    return value, time.process_time() - began


# --- the experiments ----------------------------------------------------------------------------------------------


def lm(quick: bool, data: str | None) -> dict[str, Any]:
    assert data is not None
    names = ("hartley",) if quick else (*sources.PAPER_PAIRS, *sources.MORE_PAIRS, "johnssona")
    rows = []
    for name in names:
        for where in ("near the plane", "identity"):
            rows += _lm_pair(data, name, where, quick)
            print(markdown_table(list(rows[-1]), [list(r.values()) for r in rows[-3:]]), flush=True)
    return {"rows": rows}


def _lm_pair(data: str, name: str, where: str, quick: bool) -> list[dict[str, Any]]:
    import problm

    files = [next(Path(data, "adelaidemrf").glob(f"{name}{side}.*")) for side in "AB"]
    first, second = (grey(f) for f in files)
    start = np.eye(3)
    if where != "identity":
        small = "johnssonb" if name == "johnssona" else name
        shape = (1023, 1364) if name == "johnssona" else first.shape
        start = sources.plane_start(data, small, 0.01, 2020, shape)
        factor = first.shape[1] / shape[1]
        scale = np.array([[factor, 0.0, (factor - 1) / 2], [0.0, factor, (factor - 1) / 2], [0.0, 0.0, 1.0]])
        start = scale @ start @ np.linalg.inv(scale)
    common: dict[str, Any] = {
        "initial": start, "blur": 0.0, "photometric": False, "threads": 1, "keep_path": True, "max_iter": 200,
        "max_time": 5.0 if quick else 30.0,
    }  # fmt: skip
    probe = problm.align(first, second, **{**common, "levels": 1, "max_iter": 1, "keep_path": False})
    common["outside"] = probe.levels[0].result.problem.outside
    ways: dict[str, dict[str, Any]] = {
        "LM": {"levels": 1, "acceptance": "full", "secant": False},
        "batches": {"levels": 1, "acceptance": "holdout", "initial_batch": 1000},
        "align": {},
    }
    runs: dict[str, list[tuple[Any, float]]] = {way: [] for way in ways}
    for _ in range(3 if first.size < 400_000 and not quick else 1):  # short ones in turns, or chance decides
        for way, options in ways.items():
            with cpu_clock():
                runs[way].append(timed(lambda options=options: problm.align(first, second, **common, **options)))
    ends = {way: mine[0][0] for way, mine in runs.items()}
    lowest, own = min(found.cost for found in ends.values()), ends["LM"].cost
    reach = {
        way: [median(first_within(found, 1.01 * f, seconds - found.result.seconds) for found, seconds in mine)
              for f in (lowest, own)]
        for way, mine in runs.items()
    }  # fmt: skip
    return [
        {
            "pair": name,
            "pixels": found.result.n,
            "start": where,
            "method": way,
            "final cost / lowest": found.cost / lowest,
            "s to 1.01 lowest": reach[way][0],
            "s to 1.01 of LM's": reach[way][1],
            "LM's over it": reach["LM"][1] / reach[way][1],
            "s in all": median(seconds for _, seconds in runs[way]),
            "status": found.result.status.name,
        }
        for way, found in ends.items()
    ]


def first_within(found: Any, level: float, ahead: float) -> float:
    """Time when the cost over all pixels of the finest level, begun after ``ahead`` seconds, was first <= ``level``.

    The path begins with what the level before found, if there is one; the costs fall along it.
    """
    history, problem = found.result.history, found.problem
    path, seconds = list(history.path), [ahead + s for s in history.seconds]
    if len(found.levels) > 1:
        path.insert(0, problem.point(found.levels[-2].matrix, found.gain, found.bias))
        seconds.insert(0, ahead)
    first = bisect.bisect_left(path, True, key=lambda theta: problem.cost(theta) <= level)
    return seconds[first] if first < len(path) else float("inf")


def truth(quick: bool, data: str | None) -> dict[str, Any]:
    import problm

    assert data is not None
    rows = []
    for name, k in OXFORD[:1] if quick else OXFORD:
        folder = Path(data, "oxford_affine", name)
        first, second = folder / "img1.png", folder / f"img{k}.png"
        matrix = oxford_matrix(folder / f"H1to{k}p.xml")
        start = "features" if name in ("graf", "boat") else None
        if not rows:
            problm.align(first, second, threads=1)  # the first call of a process loads the compiled code
        found, seconds = timed(lambda s=start, a=first, b=second: problm.align(a, b, initial=s, threads=1))
        rows.append(
            {
                "pair": f"{name} 1-{k}",
                "start": found.start,
                "corner error, px": corner_error(found.matrix, matrix, found.problem.image1.shape),
                "correlation": found.ncc,
                "gain": found.gain,
                "bias": found.bias,
                "s with reading": seconds,
                "success": found.success,
            }
        )
    return {"rows": rows}


def starts(quick: bool, data: str | None) -> dict[str, Any]:
    pairs = known_pairs(data, quick)
    methods = peers()
    runs: list[tuple[float, str, str, float, float]] = []
    for sigma in (5.0, 20.0) if quick else (5.0, 10.0, 20.0, 40.0, 60.0):
        for index, (name, first, second, matrix) in enumerate(pairs):
            for seed in range(2 if quick else 3):
                start = moved(matrix, first.shape, sigma, np.random.default_rng([int(sigma), index, seed]))
                for method, aligner in methods.items():
                    found, cpu = timed(lambda a=aligner, f=first, s=second, at=start: a(f, s, at))
                    runs.append((sigma, name, method, corner_error(found, matrix, first.shape), cpu))
    rows = [_start_row({"offset, px": sigma, "method": m}, [r for r in runs if r[0] == sigma and r[2] == m])
            for sigma in dict.fromkeys(r[0] for r in runs) for m in methods]  # fmt: skip
    each = [_start_row({"pair": name, "method": m}, [r for r in runs if r[1] == name and r[2] == m])
            for name, *_ in pairs for m in methods]  # fmt: skip
    return {"rows": rows, "pairs": each}


def _start_row(head: dict[str, Any], runs: list[tuple[float, str, str, float, float]]) -> dict[str, Any]:
    """Success, and error where found and time as medians over the pairs of medians over the starts."""
    per_pair = [[r for r in runs if r[1] == name] for name in dict.fromkeys(r[1] for r in runs)]
    errors = [np.median([r[3] for r in mine if r[3] < SUCCESS] or [np.nan]) for mine in per_pair]
    return {
        **head,
        "runs": len(runs),
        "success": float(np.mean([r[3] < SUCCESS for r in runs])),
        "error where found, px": float(np.nanmedian(errors)),
        "s": float(np.median([np.median([r[4] for r in mine]) for mine in per_pair])),
    }


def _occluded(values: Array, share: float, rng: np.random.Generator) -> Array:
    h, w = values.shape
    side = np.sqrt(share)
    y, x = (int(rng.uniform(0.0, (1.0 - side) * n)) for n in (h, w))
    hidden = values.copy()
    hidden[y : y + int(side * h), x : x + int(side * w)] = rng.uniform(0.0, 255.0)
    return hidden


def recovery(quick: bool, data: str | None) -> dict[str, Any]:
    from scipy.ndimage import gaussian_filter

    changes: dict[str, tuple[tuple[float, ...], Callable[[Array, float, np.random.Generator], Array]]] = {
        "noise, grey levels": ((0.0, 5.0, 10.0, 20.0, 40.0), lambda v, s, rng: v + rng.normal(0.0, s, v.shape)),
        "blur of image 2, px": ((0.0, 1.0, 2.0, 4.0), lambda v, s, rng: gaussian_filter(v, s) if s else v),
        "occluded share": ((0.0, 0.1, 0.2, 0.3, 0.4), _occluded),
        "gain of image 2": ((1.0, 0.8, 0.6, 0.4, 0.25), lambda v, s, rng: s * v),
    }
    methods = peers() | {"problm.align, tukey": ours(loss="tukey")}
    sources_ = pictures(data, 1 if quick else len(WARPED))
    rows = []
    for change, (amounts, apply) in changes.items():
        for amount in amounts[:2] if quick else amounts:
            errors: dict[str, list[float]] = {m: [] for m in methods}
            for index, picture in enumerate(sources_):
                for seed in range(1 if quick else 2):
                    rng = np.random.default_rng([index, seed, int(100 * amount)])
                    second, matrix = warped(picture, 8.0, rng)
                    first = noisy(picture.astype(float), 2.0, rng)
                    changed = noisy(apply(second, amount, rng), 2.0, rng)
                    for method, aligner in methods.items():
                        errors[method].append(corner_error(aligner(first, changed, np.eye(3)), matrix, picture.shape))
            rows += [
                {
                    "change": change,
                    "amount": amount,
                    "method": method,
                    "median error, px": float(np.median(e)),
                    "success": float(np.mean(np.array(e) < SUCCESS)),
                }
                for method, e in errors.items()
            ]
    return {"rows": rows}


def main() -> int:
    single_thread()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the real data sets")
    parser.add_argument("--only", nargs="+", choices=("lm", "truth", "starts", "recovery"))
    parser.add_argument("--quick", action="store_true", help="few runs: a check that it works")
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    options = parser.parse_args()
    found: dict[str, Any] = {} if options.quick else record.read(options.output, "alignment") or {}
    began = time.perf_counter()
    parts: dict[str, Callable[[bool, str | None], dict[str, Any]]] = {
        "lm": lm, "truth": truth, "starts": starts, "recovery": recovery
    }  # fmt: skip
    for name in options.only or [name for name in parts if options.data or name in ("starts", "recovery")]:
        if options.data is None and name in ("lm", "truth"):
            parser.error(f"{name} needs --data")
        found[name] = parts[name](options.quick, options.data)
        known = record.about(seconds=time.perf_counter() - began, packages=("opencv-python-headless",))
        record.write(options.output, "alignment", describe(found), found, known)
        if name == "recovery":
            draw_recovery(found[name]["rows"], options.output / "alignment_recovery.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
