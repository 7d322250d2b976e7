"""The first call of every entry point in a fresh process, beside SciPy, PoseLib, OpenCV and jaxopt; sizes of installs.

    python -m bench.studies.first_calls                    # some minutes
    python -m bench.studies.first_calls --warm             # seconds: only with code compiled ahead of time

Each case runs in processes of its own that load prepared data, import what they need and call once, then again. *whole
process* is everything from the start of Python to its end, *import* the package alone, *first call* the call with all
imports and loading of code that it causes. CPU seconds are given beside seconds of the clock, which other work on the
machine lengthens. *Nothing compiled* is a process with an empty cache and without the library. *Before* is the same
with the sources of an earlier revision: the last one that compiled on demand only. Writes
``bench/results/first_calls.md`` and ``first_calls.json``.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from packaging.requirements import Requirement

from ..harness import record
from ..harness.summary import markdown_table

ROOT = Path(__file__).parents[2]
PROGRAM = "from problm.cli import main; import sys; sys.argv[0] = 'problm'; main()"
BEFORE = "de99531~1"
"""The last revision that compiled on demand only."""
DECAY = "def decay(x, a, b, c):\n    return a*np.exp(-b*x) + c\n"
CASES: dict[str, tuple[str, str, str]] = {
    # name: package, preparation, call
    "NumPy function, 200 rows": ("problm", DECAY, "problm.curve_fit(decay, d['x'][:200], d['y'][:200], [1, 1, 0])"),
    "formula, 1000 rows": ("problm", "", "problm.curve_fit(problm.formula('a*exp(-b*x) + c'), d['x'], d['y'])"),
    "SciPy: curve_fit, 200 rows": (
        "scipy.optimize", DECAY, "scipy.optimize.curve_fit(decay, d['x'][:200], d['y'][:200], [1, 1, 0])",
    ),
    "jaxopt: Levenberg-Marquardt, 200 rows": (
        "jaxopt",
        "import jax\njax.config.update('jax_enable_x64', True)\n"
        "def residuals(p, x, y):\n    return p[0] * jax.numpy.exp(-p[1] * x) + p[2] - y\n",
        "jaxopt.LevenbergMarquardt(residuals).run(np.array([1.0, 1.0, 0.0]), d['x'][:200], d['y'][:200])"
        ".params.block_until_ready()",
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
        "problm", "model = problm.read_bal(folder + '/model.txt')\n",
        "problm.bundle_adjustment(model)",
    ),
    "calibration, 10 views": ("problm", "", "problm.calibrate_camera(d['board'], list(d['views']), (640, 480))"),
    "registration, 2000 points": ("problm", "", "problm.register(d['source'], d['target'])"),
    "track, one frame": ("problm", "", "problm.Tracker(d['image1'], 'affine').update(d['image2'])"),
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
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "", **settings}
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


def sizes() -> dict[str, float]:
    """MB that installs take in this environment, with everything that they need."""
    wanted = ["scipy", "poselib", "opencv-python-headless", "jaxopt", "problm", "problm[all]"]
    return {name: size for name in wanted if (size := installed(name)) is not None}


def installed(requirement: str) -> float | None:
    """MB of a distribution and of what it requires; None if it is not here."""
    found: dict[str, int] = {}
    todo = [Requirement(requirement)]
    seen = set()
    while todo:
        wanted = todo.pop()
        for extra in {"", *wanted.extras}:
            if (wanted.name.lower(), extra) in seen:
                continue
            seen.add((wanted.name.lower(), extra))
            try:
                distribution = metadata.distribution(wanted.name)
            except metadata.PackageNotFoundError:
                if wanted.name == Requirement(requirement).name:
                    return None
                continue
            found[wanted.name.lower()] = size_of(distribution)
            needs = [Requirement(text) for text in distribution.requires or []]
            todo += [n for n in needs if n.marker is None or n.marker.evaluate({"extra": extra})]
    return sum(found.values()) / 1e6


def size_of(distribution: metadata.Distribution) -> int:
    """Bytes of the files of a distribution; of this one, which is used in place, those of the package."""
    if distribution.name == "problm":
        paths = [*(ROOT / "src" / "problm").rglob("*")]
        paths = [p for p in paths if not p.parent.name.endswith(".objects")]
    else:
        paths = [Path(str(file.locate())) for file in distribution.files or []]
    return sum(path.stat().st_size for path in paths if path.is_file())


def earlier(revision: str, programs: dict[str, list[str]], folder: Path, repeats: int) -> dict[str, Any]:
    """First and later processes with the sources of a revision; cases that it does not know are left out."""
    packed = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, capture_output=True, check=True).stdout
    found = {}
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(place, filter="data")
        for k, (name, words) in enumerate(programs.items()):
            settings = {"PYTHONPATH": f"{place}/src", "NUMBA_CACHE_DIR": f"{place}/cache{k}", "PROBLM_COMPILED": "0"}
            try:
                cold = measure(words, folder, settings)
                found[name] = {"cold": cold, "warm": least([measure(words, folder, settings) for _ in range(repeats)])}
            except RuntimeError:
                continue
    return found


def told(run: dict[str, Any] | None, key: str) -> str:
    return f"{run[key][0]:.3f} / {run[key][1]:.3f}" if run and key in run else ""


def describe(found: dict[str, Any], repeats: int) -> list[str]:
    columns = ["case", "whole process", "import", "first call", "second call"]
    rows = [[name, *(told(r, k) for k in ("whole", "import", "first", "second"))] for name, r in found["warm"].items()]
    text = [
        "# The first call",
        f"CPU seconds / seconds of the clock, the least of {repeats} processes each; BLAS with one thread. Preparing "
        "the data is not included, reading them is part of the whole process.",
        "**With code compiled ahead of time** (a wheel, or after `problm warmup`):",
        markdown_table(columns, rows),
    ]
    if found["cold"]:
        columns = ["whole process of", "the first call, nothing compiled", "a later one", "before: the first call",
                   "before: a later one"]  # fmt: skip
        rows = []
        for name, cold in found["cold"].items():
            old = found["before"].get(name, {})
            runs = (cold, found["warm"][name], old.get("cold"), old.get("warm"))
            rows.append([name, *(told(run, "whole") for run in runs)])
        text += [
            "**Without a library, and before there was one** (one process for each first call; *later* processes have "
            f"the library, or before it, at {found['revision']}, Numba's cache):",
            markdown_table(columns, rows),
        ]
    text += [
        "**Sizes of installs** in this environment, with all that they need and their byte code:",
        markdown_table(["install", "MB"], [[name, f"{size:.0f}"] for name, size in found["sizes"].items()]),
    ]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="processes per case (default: %(default)s)")
    parser.add_argument("--warm", action="store_true", help="only with code compiled ahead of time")
    parser.add_argument("--before", default=BEFORE, help="revision to compare with (default: %(default)s)")
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    arguments = parser.parse_args()
    began = time.perf_counter()
    found: dict[str, Any] = {"cold": {}, "before": {}, "revision": arguments.before, "sizes": sizes()}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare(folder)
        cases = {n: script(n, folder) for n, (package, *_) in CASES.items() if find_spec(package.partition(".")[0])}
        programs = {n: [sys.executable, "-c", text] for n, text in cases.items()}
        programs |= {n: [sys.executable, "-c", PROGRAM, *words] for n, words in COMMANDS.items()}
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in programs}
        for words in programs.values():
            measure(words, folder, {})  # writes byte code
        for _ in range(arguments.repeats):  # in turn, so that all of them meet the same load
            for name, words in programs.items():
                runs[name].append(measure(words, folder, {}))
        found["warm"] = {name: least(each) for name, each in runs.items()}
        if not arguments.warm:
            ours = {n: w for n, w in programs.items() if n in COMMANDS or CASES[n][0] == "problm"}
            for name, words in ours.items():
                with tempfile.TemporaryDirectory() as empty:
                    settings = {"NUMBA_CACHE_DIR": empty, "PROBLM_COMPILED": "0"}
                    found["cold"][name] = measure(words, folder, settings)
            found["before"] = earlier(arguments.before, ours, folder, arguments.repeats)
    known = record.about(seconds=time.perf_counter() - began)
    record.write(arguments.output, "first_calls", describe(found, arguments.repeats), found, known)


if __name__ == "__main__":
    main()
