"""The first call of every entry point in a fresh process, beside SciPy, PoseLib and OpenCV.

    python -m bench.studies.first_calls                    # with code compiled ahead of time
    python -m bench.studies.first_calls --cold formula     # and some entry points that compile everything

Each case runs in processes of its own that load prepared data, import what they need and call once, then again. *whole
process* is everything from the start of Python to its end, *import* the package alone, *first call* the call with all
imports and loading of code that it causes. CPU seconds are given beside seconds of the clock, which other work on the
machine lengthens. With ``--cold`` the cases named there run once more with an empty cache and without the library.
Writes ``bench/results/first_calls.md`` and ``first_calls.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ..harness import record
from ..harness.summary import markdown_table

ROOT = Path(__file__).parents[2]
PROGRAM = "from problm.cli import main; import sys; sys.argv[0] = 'problm'; main()"
DECAY = "def decay(x, a, b, c):\n    return a*np.exp(-b*x) + c\n"
CASES: dict[str, tuple[str, str, str]] = {
    # name: package, preparation, call
    "NumPy function, 200 rows": ("problm", DECAY, "problm.curve_fit(decay, d['x'][:200], d['y'][:200], [1, 1, 0])"),
    "formula, 1000 rows": ("problm", "", "problm.curve_fit(problm.formula('a*exp(-b*x) + c'), d['x'], d['y'])"),
    "SciPy: curve_fit, 200 rows": (
        "scipy.optimize", DECAY, "scipy.optimize.curve_fit(decay, d['x'][:200], d['y'][:200], [1, 1, 0])",
    ),
    "essential matrix, 500 matches": ("problm", "", "problm.essential_matrix(d['x1'], d['x2'], d['K'])"),
    "PoseLib: relative pose, 500 matches": (
        "poselib", "c = {'model': 'PINHOLE', 'width': 640, 'height': 480, 'params': d['pinhole'].tolist()}\n",
        "poselib.estimate_relative_pose(d['x1'], d['x2'], c, c, {'max_epipolar_error': 2.0}, {})",
    ),
    "homography, 500 matches": ("problm", "", "problm.homography(d['h1'], d['h2'])"),
    "OpenCV: homography, 500 matches": ("cv2", "", "cv2.findHomography(d['h1'], d['h2'], cv2.USAC_MAGSAC, 2.0)"),
    "absolute pose, 500 matches": ("problm", "", "problm.absolute_pose(d['seen'], d['points'], d['Ka'])"),
    "alignment, 160 x 120": ("problm", "", "problm.align(d['image1'], d['image2'], 'affine')"),
    "bundle, 4 cameras, 40 points": (
        "problm", "from problm.vision.bundle.bal import read_bal\nmodel = read_bal(folder + '/model.txt')\n",
        "problm.bundle_adjustment(model)",
    ),
    "calibration, 10 views": ("problm", "", "problm.calibrate_camera(d['board'], list(d['views']), (640, 480))"),
    "registration, 2000 points": ("problm", "", "problm.register(d['source'], d['target'])"),
    "RGB-D, one pair": ("problm", "", "problm.align_rgbd(d['g1'], d['z1'], d['g2'], d['Kz'])"),
}  # fmt: skip
COMMANDS = {
    "`problm --version`": ["--version"],
    "`problm fit`, 1000 rows": ["fit", "table.csv", "--model", "y ~ a*exp(-b*x) + c", "--no-output"],
    "`problm fit`, 1000 rows, with report": ["fit", "table.csv", "--model", "y ~ a*exp(-b*x) + c"],
}


def prepare(folder: Path) -> None:
    """Write the data of all cases."""
    from problm.vision.absolute_pose.simulate import one_view
    from problm.vision.bundle.bal import write_bal
    from problm.vision.bundle.camera_models import Intrinsics
    from problm.vision.bundle.reconstruction import Reconstruction
    from problm.vision.calibration.simulate import board_views
    from problm.vision.registration.simulate import two_clouds
    from problm.vision.rgbd.simulate import two_frames
    from problm.vision.two_view.simulate import two_views

    rng = np.random.default_rng(0)
    x = rng.uniform(0, 4, 1000)
    y = 2.5 * np.exp(-1.3 * x) + 0.5 + 0.1 * rng.standard_normal(x.size)
    np.savetxt(folder / "table.csv", np.c_[x, y], delimiter=",", header="x,y", comments="")
    pair, view, board = two_views(500, inliers=0.7, seed=1), one_view(500, inliers=0.7, seed=1), board_views(10, seed=1)
    clouds, frames = two_clouds(2000, overlap=0.9, seed=1), two_frames(angle=2.0, shift=0.03, seed=1)
    h1 = rng.uniform(0, 600, (500, 2))
    h2 = 1.02 * h1 + [5.0, -3.0] + 0.5 * rng.standard_normal(h1.shape)
    h2[:150] = rng.uniform(0, 600, (150, 2))
    rows, columns = np.mgrid[:120, :160]
    images = [128 + 50 * np.sin((columns - s) / 6) + 40 * np.cos(rows / 8 + (columns - s) / 25) for s in (0.0, 2.3)]
    points = rng.uniform(-1, 1, (40, 3))
    camera = Intrinsics("SIMPLE_RADIAL", (800.0, 0.0, 0.0, -0.05))
    shifts = np.c_[np.linspace(-1, 1, 4), np.zeros(4), np.full(4, 6.0)]
    seen = np.stack([camera.project(points + s) for s in shifts]) + 0.3 * rng.standard_normal((4, 40, 2))
    turns = np.tile(np.eye(3), (4, 1, 1))
    start = Reconstruction.from_arrays(turns, shifts, camera, points + rng.normal(0, 0.02, points.shape), seen)
    write_bal(start, folder / "model.txt")
    np.savez(
        folder / "data.npz", x=x, y=y, x1=pair.x1, x2=pair.x2, K=pair.K, h1=h1, h2=h2,
        pinhole=pair.K[[0, 1, 0, 1], [0, 1, 2, 2]], seen=view.points2d, points=view.points3d, Ka=view.K,
        image1=images[0], image2=images[1], board=np.asarray(board.object_points[0]),
        views=np.stack(board.image_points), source=clouds.source, target=clouds.target, g1=frames.image1,
        z1=frames.depth1, g2=frames.image2, Kz=frames.K,
    )  # fmt: skip


def script(case: str, folder: Path) -> str:
    """The program of a case: imports, one call, another; times as JSON on standard output."""
    package, before, call = CASES[case]
    return f"""
import sys, time, json
import numpy as np
folder = {str(folder)!r}
d = dict(np.load(folder + "/data.npz"))
def now(): return time.process_time(), time.perf_counter()
marks = [now()]
import {package}
marks.append(now())
{before}
for _ in range(2):
    marks.append(now())
    {call}
    marks.append(now())
spent = [[b - a for a, b in zip(*pair)] for pair in zip(marks[:-1], marks[1:])]
print(json.dumps({{"import": spent[0], "first": spent[2], "second": spent[4], "numba": "numba" in sys.modules}}))
"""


def measure(words: list[str], folder: Path, settings: dict[str, str]) -> dict[str, Any]:
    """CPU seconds and seconds of one process, with what it says of itself."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **settings}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{words[-1][:300]}: {done.stderr[-2000:]}")
    whole = [after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall]
    said = json.loads(done.stdout) if done.stdout.startswith('{"import"') else {}
    return {"whole": whole, **said}


def least(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The least of each time: other work only ever adds to it."""
    times = [k for k in runs[0] if k != "numba"]
    return {k: np.min([r[k] for r in runs], axis=0).tolist() for k in times} | {"numba": runs[0].get("numba")}


def row(name: str, r: dict[str, Any]) -> list[str]:
    def told(key: str) -> str:
        return f"{r[key][0]:.3f} / {r[key][1]:.3f}" if key in r else ""

    return [name, told("whole"), told("import"), told("first"), told("second")]


def describe(found: dict[str, Any], repeats: int) -> list[str]:
    columns = ["case", "whole process", "import", "first call", "second call"]
    text = [
        "# The first call",
        f"CPU seconds / seconds of the clock, the least of {repeats} processes each; BLAS with one thread. Preparing "
        "the data is not included, reading them is part of the whole process.",
        "**With code compiled ahead of time** (a wheel, or after `problm warmup`):",
        markdown_table(columns, [row(name, r) for name, r in found["warm"].items()]),
    ]
    if found["cold"]:
        text += [
            "**Without it, and with an empty cache:** the first call compiles. One process each.",
            markdown_table(columns, [row(name, r) for name, r in found["cold"].items()]),
        ]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="processes per case (default: %(default)s)")
    parser.add_argument("--cold", nargs="*", default=[], metavar="CASE", help="cases by the beginning of their names")
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    arguments = parser.parse_args()
    began, found = time.perf_counter(), {"warm": {}, "cold": {}}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare(folder)
        cases = {n: script(n, folder) for n, (package, *_) in CASES.items() if find_spec(package.partition(".")[0])}
        programs = {n: [sys.executable, "-c", text] for n, text in cases.items()}
        programs |= {n: [sys.executable, "-c", PROGRAM, *words] for n, words in COMMANDS.items()}
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in programs}
        for _ in range(arguments.repeats):  # in turn, so that all of them meet the same load
            for name, words in programs.items():
                runs[name].append(measure(words, folder, {}))
        found["warm"] = {name: least(each) for name, each in runs.items()}
        for name, words in programs.items():
            if name.startswith(tuple(arguments.cold)):
                with tempfile.TemporaryDirectory() as empty:
                    settings = {"NUMBA_CACHE_DIR": empty, "PROBLM_COMPILED": "0"}
                    found["cold"][name] = measure(words, folder, settings)
    known = record.about(seconds=time.perf_counter() - began)
    record.write(arguments.output, "first_calls", describe(found, arguments.repeats), found, known)


if __name__ == "__main__":
    main()
