"""`problm.register` against small_gicp on simulated clouds with a known motion.

    OMP_NUM_THREADS=1 python -m bench.studies.registration [--most 1000000] [--seed 9100]

`--thorough` compares with small_gicp on all points at every size, too, which takes minutes, and with more starts.

Surfaces of about two units, two independent samples of each with noise of 0.005, turned by 10 degrees and shifted by
0.1. small_gicp gets the largest distance of a match (0.2) and, where it thins the clouds, the width of the cells
(0.05); `register` gets the clouds only. CPU time on one thread, with everything: trees, planes, the motion, and the
checks of `register`; its covariance, which small_gicp does not have, is computed on request and not included.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from problm.manifolds import rotation_log
from problm.vision.registration.register import register
from problm.vision.registration.simulate import Clouds, two_clouds

from ..harness import record
from ..harness.run import single_thread
from ..harness.summary import markdown_table

SEED = 9100
Motion = tuple[np.ndarray, np.ndarray]
ANGLES = (10, 30, 60, 180)
WHOLE = "small_gicp, all points"


def ours(initial: str | None) -> Callable[[Clouds], Motion]:
    def run(clouds: Clouds) -> Motion:
        found = register(clouds.source, clouds.target, initial=initial)
        return found.R, found.t

    return run


def gicp(cell: float, kind: str = "GICP") -> Callable[[Clouds], Motion]:
    import small_gicp

    def run(clouds: Clouds) -> Motion:
        found = small_gicp.align(
            clouds.target, clouds.source, registration_type=kind, downsampling_resolution=cell,
            max_correspondence_distance=0.2, num_threads=1, max_iterations=50,
        )  # fmt: skip
        M = np.asarray(found.T_target_source)
        return M[:3, :3], M[:3, 3]

    return run


def error(found: Motion, clouds: Clouds) -> tuple[float, float]:
    """Degrees, and units of length."""
    turn = float(np.degrees(np.linalg.norm(rotation_log(found[0] @ clouds.R.T))))
    return turn, float(np.linalg.norm(found[1] - clouds.t))


def sizes(methods: dict[str, Callable[[Clouds], Motion]], most: int, seed: int, thorough: bool) -> list[dict[str, Any]]:
    rows = []
    for n, repeats in ((10_000, 5), (100_000, 3), (1_000_000, 1)):
        for shape in ("blob", "room"):
            for overlap in (1.0, 0.6):
                if n > most:
                    continue
                drawn = [two_clouds(n, shape=shape, overlap=overlap, seed=seed + k) for k in range(repeats)]
                for name, method in methods.items():
                    if name == WHOLE and n > 10_000 and not thorough:
                        continue
                    seconds, errors = [], []
                    for clouds in drawn:
                        began = time.process_time()
                        found = method(clouds)
                        seconds.append(time.process_time() - began)
                        errors.append(error(found, clouds))
                    turn, shift = np.median(errors, axis=0)
                    rows.append({
                        "points": n, "surface": shape, "overlap": overlap, "method": name,
                        "CPU s": float(np.median(seconds)), "error, degrees": float(turn), "error of t": float(shift),
                        "worst, degrees": float(np.max(errors, axis=0)[0]),
                    })  # fmt: skip
                    print(rows[-1], flush=True)
    return rows


def reach(methods: dict[str, Callable[[Clouds], Motion]], seed: int, repeats: int) -> list[dict[str, Any]]:
    """Share of motions found to a degree, by the angle of the start."""
    rows = []
    for overlap in (1.0, 0.6):
        for name, method in methods.items():
            row: dict[str, Any] = {"overlap": overlap, "method": name}
            for angle in ANGLES:
                found = 0
                for k in range(repeats):
                    shape = ("blob", "room")[k % 2]
                    clouds = two_clouds(5000, shape=shape, overlap=overlap, angle=angle, seed=seed + 500 + k)
                    found += error(method(clouds), clouds)[0] < 1.0
                row[f"{angle} degrees"] = f"{found} of {repeats}"
            rows.append(row)
            print(row, flush=True)
    return rows


def calibration(seed: int, repeats: int) -> list[dict[str, Any]]:
    """z values of the errors by the covariance that `register` returns."""
    rows = []
    for shape in ("blob", "room"):
        for overlap in (1.0, 0.6):
            values, ok = [], 0
            for k in range(repeats):
                clouds = two_clouds(5000, shape=shape, overlap=overlap, seed=seed + 1000 + k)
                found = register(clouds.source, clouds.target)
                if found.success:
                    ok += 1
                    parameters = np.concatenate([rotation_log(found.R @ clouds.R.T), found.t - clouds.t])
                    values.append(np.linalg.solve(np.linalg.cholesky(found.covariance), parameters))
            z = np.array(values)
            rows.append({
                "surface": shape, "overlap": overlap, "ok": f"{ok} of {repeats}",
                "rms of z": float(np.sqrt((z**2).mean())), "within 1.96": float((np.abs(z) < 1.96).mean()),
            })  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    return markdown_table(list(rows[0]), [list(r.values()) for r in rows])


def main() -> None:
    single_thread()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--thorough", action="store_true")
    parser.add_argument("--only", choices=("sizes", "reach", "calibration"), help="keep the other parts as they are")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    options = parser.parse_args()
    began = time.perf_counter()
    mine = {"problm.register": ours(None)}
    peers = {"small_gicp, cells of 0.05": gicp(0.05), WHOLE: gicp(1e-4)}
    for method in (*mine.values(), *peers.values()):
        method(two_clouds(2000, seed=options.seed))  # loads compiled code
    anywhere = mine | {'problm.register, initial="auto"': ours("auto")} | {k: peers[k] for k in list(peers)[:1]}
    pairs = 20 if options.thorough else 6
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "sizes": lambda: sizes(mine | peers, options.most, options.seed, options.thorough),
        "reach": lambda: reach(anywhere, options.seed, pairs),
        "calibration": lambda: calibration(options.seed, options.repeats),
    }
    before = record.read(options.output, "registration") or {}
    found = {k: make() if options.only in (None, k) or k not in before else before[k] for k, make in parts.items()}
    text = [
        "# Registration of point clouds",
        "Simulated surfaces of about two units, two independent samples with noise of 0.005, turned by 10 degrees and "
        "shifted by 0.1; medians of 5, 3 and 1 pairs. small_gicp (GICP) is given the largest distance of a match, 0.2, "
        "and the width of the cells by which it thins the clouds; `register` is given nothing. CPU time on one thread, "
        "without the covariance.",
        table(found["sizes"]),
        "Motions found to a degree, by the angle between the clouds (5,000 points, half of the pairs of each surface):",
        table(found["reach"]),
        "Errors divided by their standard errors, whitened (5,000 points, pairs with the status ok):",
        table(found["calibration"]),
    ]
    known = record.about(seconds=time.perf_counter() - began, seed=options.seed, packages=("small_gicp", "scipy"))
    record.write(options.output, "registration", text, found, known)


if __name__ == "__main__":
    main()
