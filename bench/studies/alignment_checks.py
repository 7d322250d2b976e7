"""Whether alignments deserve belief, and what samples gain at the full resolution.

    OMP_NUM_THREADS=1 python -m bench.studies.alignment_checks --data DIR [--only wrong right samples]

wrong
    Pairs that show different things: two scenes, a mirrored image, a negative. None may be called aligned. The limits
    in `problm.vision.alignment.doubt` were chosen on the photographs of ``adelaidemrf``; these pairs are of the other
    data sets.
right
    ``oxford_affine`` with its homographies, from no start at all: error of the corners, and whether it is believed.
samples
    The setting of the paper, like for like: the full resolution alone, no blur, a start near the dominant plane;
    `align` against our own LM, both with learned curvature. Times to LM's own end and to 1 % above it, pairs of at most
    400,000 pixels, two starts each.

CPU time on one thread.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ..data import sources
from ..harness import record
from ..harness.run import cpu_clock, single_thread
from ..harness.summary import markdown_table
from .alignment import first_within
from .alignment_pairs import HALF, Picture, corner_error, grey, halved, oxford_matrix

SEED = 2020
SCENES = ("graf", "boat", "bikes", "leuven", "ubc")
PAIRS = (("graf", 2), ("graf", 3), ("boat", 2), ("boat", 3), ("bikes", 2), ("leuven", 2), ("ubc", 2))
SMALL = ("hartley", "unionhouse", "oldclassicswing", "napiera", "library", "sene", "elderhalla")


def oxford(data: str, name: str, k: int) -> Picture:
    return halved(grey(Path(data, "oxford_affine", name, f"img{k}.png")))


def wrong_pairs(data: str) -> list[tuple[str, Picture, Picture]]:
    images = {name: oxford(data, name, 1) for name in SCENES}
    found = [(f"{a}, {b}", images[a], images[b]) for a in SCENES for b in SCENES if a < b]
    for name, image in images.items():
        found += [
            (f"{name}, mirrored", image, np.ascontiguousarray(image[:, ::-1])),
            (f"{name}, upside down and mirrored", image, np.ascontiguousarray(image[::-1])),
            (f"{name}, negative", image, 255 - image),
        ]
    return found


def wrong(data: str) -> list[dict[str, Any]]:
    import problm

    rows = []
    for name, first, second in wrong_pairs(data):
        began = time.process_time()
        found = problm.align(first, second, threads=1)
        seconds = time.process_time() - began
        rows.append({
            "pair": name, "correlation": found.ncc, "fine structure": found.detail, "overlap": found.overlap,
            "gain": found.gain, "called aligned": found.success, "s": seconds,
        })  # fmt: skip
    return rows


def right(data: str) -> list[dict[str, Any]]:
    import problm

    rows = []
    for name, k in PAIRS:
        matrix = np.linalg.inv(HALF) @ oxford_matrix(Path(data, "oxford_affine", name, f"H1to{k}p.xml")) @ HALF
        first, second = oxford(data, name, 1), oxford(data, name, k)
        began = time.process_time()
        found = problm.align(first, second, threads=1)
        seconds = time.process_time() - began
        rows.append({
            "pair": f"{name} 1-{k}", "start": found.start,
            "corner error, px": corner_error(found.matrix, matrix, first.shape),
            "correlation": found.ncc, "fine structure": found.detail, "parallax, px": found.parallax,
            "called aligned": found.success, "s": seconds,
        })  # fmt: skip
    return rows


def samples(data: str) -> list[dict[str, Any]]:
    import problm

    rows = []
    for name in SMALL:
        first, second = (grey(next(Path(data, "adelaidemrf").glob(f"{name}{side}.*"))) for side in "AB")
        for seed in (SEED, SEED + 1):
            common: dict[str, Any] = {
                "initial": sources.plane_start(data, name, 0.01, seed, first.shape), "blur": 0.0, "photometric": False,
                "threads": 1, "max_iter": 400, "levels": 1, "keep_path": True,
            }  # fmt: skip
            probe = problm.align(first, second, **{**common, "max_iter": 1})
            common["outside"] = probe.levels[0].result.problem.outside
            with cpu_clock():
                ours, mine = _timed(first, second, common)
                lm, theirs = _timed(first, second, {**common, "acceptance": "full"})
            times = [
                [first_within(found, level * lm.cost, seconds - found.result.seconds) for level in (1.01, 1.00001)]
                for found, seconds in ((ours, mine), (lm, theirs))
            ]
            rows.append({
                "pair": name, "seed": seed, "ours / LM's cost": ours.cost / lm.cost,
                "to 1 %": times[1][0] / times[0][0], "to LM's end": times[1][1] / times[0][1],
                "to its own end": theirs / mine, "passes": ours.result.jacobian_passes,
                "LM's passes": lm.result.jacobian_passes,
            })  # fmt: skip
    return rows


def _timed(first: Picture, second: Picture, options: dict[str, Any]) -> tuple[Any, float]:
    import problm

    began = time.process_time()
    found = problm.align(first, second, **options)
    return found, time.process_time() - began


def describe(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    text = ["# Alignments that deserve belief"]
    if "wrong" in found:
        called = sum(r["called aligned"] for r in found["wrong"])
        text += ["## Pairs of different things", f"{called} of {len(found['wrong'])} were called aligned."]
        text += [_table(found["wrong"])]
    if "right" in found:
        text += ["## Planes, from no start", _table(found["right"])]
    if "samples" in found:
        rows = found["samples"]
        names = ("to 1 %", "to LM's end", "to its own end")
        medians = ", ".join(f"{name} {median(r[name] for r in rows):.2f}" for name in names)
        text += [
            "## Samples at the full resolution",
            "LM's time over ours, no pyramid, both with learned curvature; 0 where we ended elsewhere, above it. "
            f"Medians: {medians}.",
            _table(rows),
        ]
    return text


def _table(rows: list[dict[str, Any]]) -> str:
    return markdown_table(list(rows[0]), [list(r.values()) for r in rows])


def main() -> None:
    single_thread()
    parts = {"wrong": wrong, "right": right, "samples": samples}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("PROBLM_DATA") or None)
    parser.add_argument("--only", nargs="+", choices=tuple(parts))
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    options = parser.parse_args()
    if options.data is None:
        parser.error("--data is needed: the folder of the real data sets")
    began = time.perf_counter()
    found: dict[str, Any] = (record.read(options.output, "alignment_checks") or {}) if options.only else {}
    for name in options.only or parts:
        found[name] = parts[name](options.data)
    known = record.about(seconds=time.perf_counter() - began, seed=SEED)
    record.write(options.output, "alignment_checks", describe(found), found, known)


if __name__ == "__main__":
    main()
