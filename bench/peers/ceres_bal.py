"""Ceres on a bundle with BAL's cost in C++, if a compiler and Ceres's headers are installed (``libceres-dev``).

The cost is that of Ceres's own example `bundle_adjuster`, so the objective is ours to the last digit, also for points
behind a camera; COLMAP's cost counts those as zero.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from problm import Reconstruction

SOURCE = Path(__file__).with_suffix(".cc")


@dataclass(frozen=True)
class CeresRun:
    """One solve of Ceres, on one thread."""

    start: float
    cost: float
    seconds: float
    """CPU seconds, setting up included, reading the file not."""
    iterations: int
    """Successful and failed steps."""
    curve: list[tuple[float, float]]
    """CPU seconds and cost after every iteration."""
    points: NDArray[np.float64]
    status: int


@cache
def program() -> Path | None:
    """The compiled program; None if it cannot be built here."""
    if shutil.which("g++") is None or not Path("/usr/include/ceres/ceres.h").exists():
        return None
    path = Path(tempfile.mkdtemp()) / "ceres_bal"
    command = [
        "g++",
        "-O3",
        "-march=native",
        "-I/usr/include/eigen3",
        str(SOURCE),
        "-o",
        str(path),
        "-lceres",
        "-lglog",
    ]
    subprocess.run(command, check=True, capture_output=True)
    return path


def solve(
    model: Reconstruction,
    solver: str = "SPARSE_SCHUR",
    *,
    ftol: float = 1e-8,
    iterations: int = 300,
    huber: float = 0.0,
) -> CeresRun:
    """Adjust a reconstruction of RADIAL cameras with principal point 0, one per image: 9 parameters per image."""
    path = program()
    if path is None:
        raise RuntimeError("Ceres is not installed: apt-get install g++ libceres-dev libopenblas0-pthread")
    C, P, M = len(model.rotations), len(model.points), len(model.xy)
    rows = np.empty(M, dtype=[("camera", np.int64), ("point", np.int64), ("xy", np.float64, 2)])
    rows["camera"], rows["xy"] = model.image, model.xy
    rows["point"] = np.repeat(np.arange(P), model.track_lengths)
    params = np.array([model.intrinsics[k].params for k in model.camera])[:, [0, 3, 4]]
    cameras = np.hstack([Rotation.from_matrix(model.rotations).as_rotvec(), model.translations, params])
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "in", Path(folder) / "out"
        with open(given, "wb") as file:
            for part in (np.array([C, P, M]), rows, cameras, model.points):
                file.write(np.ascontiguousarray(part).tobytes())
        said = subprocess.run(
            [str(path), solver, str(ftol), str(iterations), str(huber), str(given), str(found)],
            check=True, capture_output=True, text=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        ).stdout  # fmt: skip
        points = np.fromfile(found)[9 * C :].reshape(P, 3)
    lines = [line.split() for line in said.splitlines()]
    curve = [(float(line[3]), float(line[2])) for line in lines if line[0] == "iteration"]
    start, cost, seconds, good, bad, status = map(float, next(line for line in lines if line[0] == "done")[1:])
    return CeresRun(start, cost, seconds, int(good + bad), curve, points, int(status))
