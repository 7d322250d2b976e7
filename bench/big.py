"""Fits of files that do not fit into memory: write them, fit them, measure.

    python bench/big.py write DIR --rows 1e9      # x.npy and y.npy, 16 bytes a row; fewer rows if the disk is short
    python bench/big.py run DIR --max-memory 800MB

``run`` reports: seconds and bytes read until the cost over all rows is within 1.001 of its minimum, seconds and passes
until the certificate, peak memory of the process, and the rate at which ``dd`` reads the same file, all in one run and
with the page cache emptied of the file before each. Bytes are those that the process caused to be read from storage
(/proc/self/io, Linux).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

TRUTH = (2.0, 0.7, 0.3)
NOISE = 0.1
START = (1.0, 1.0, 0.0)
FORMULA = "a*exp(-b*x) + c"
_STEP = 5_000_000


def write(folder: Path, rows: int, seed: int = 0) -> None:
    """Two columns of ``rows`` numbers, written piece by piece; half of the free disk at most."""
    folder.mkdir(parents=True, exist_ok=True)
    most = shutil.disk_usage(folder).free // 2 // 16
    if rows > most:
        print(f"the disk has room for {most:.3g} rows only: writing these instead of {rows:.3g}")
        rows = most
    began = time.perf_counter()
    header = {"descr": "<f8", "fortran_order": False, "shape": (rows,)}
    with open(folder / "x.npy", "wb") as fx, open(folder / "y.npy", "wb") as fy:
        for file in (fx, fy):
            np.lib.format.write_array_header_1_0(file, header)
        for lo in range(0, rows, _STEP):
            rng = np.random.default_rng([seed, lo])
            count = min(_STEP, rows - lo)
            x = rng.uniform(0.0, 5.0, count)
            y = TRUTH[0] * np.exp(-TRUTH[1] * x) + TRUTH[2] + NOISE * rng.standard_normal(count)
            x.tofile(fx)
            y.tofile(fy)
    print(f"wrote {rows} rows, {16 * rows / 1e9:.1f} GB, in {time.perf_counter() - began:.0f} s")


def run(folder: Path, max_memory: str, threads: int | None, warm: bool) -> dict[str, object]:
    """Fit, and measure; one JSON object."""
    import problm
    from problm.curves import fit

    paths = (folder / "x.npy", folder / "y.npy")
    size = sum(p.stat().st_size for p in paths)
    model = problm.formula(FORMULA)
    # Compiled code is loaded before the clock starts: a user's second fit. The first takes what `start` says.
    began = time.perf_counter()
    tiny = np.linspace(0, 5, 1000)
    problm.curve_fit(model, tiny, model(tiny, *TRUTH) + 0.01 * np.sin(40 * tiny), START)
    start = time.perf_counter() - began

    rate = None if warm else _dd(paths)
    if not warm:
        _forget(paths)
    path: list[tuple[float, int, np.ndarray]] = []
    bytes_before = _bytes_read()
    began = time.perf_counter()

    def note(state: problm.result.State) -> None:
        path.append((time.perf_counter() - began, _bytes_read() - bytes_before, np.array(state.x)))

    result = fit(model, *paths, START, max_memory=max_memory, threads=threads, callback=note)
    seconds = time.perf_counter() - began
    total = _bytes_read() - bytes_before
    # When was the true cost within 1.001 of the minimum? Near it the cost is the quadratic model, exact enough here.
    reached = next(i for i, (_, _, x) in enumerate(path) if _excess(result, x) <= 1e-3)
    report = {
        "rows": result.n,
        "gigabytes": round(size / 1e9, 2),
        "max_memory": max_memory,
        "start_seconds": round(start, 2),
        "x": result.x.tolist(),
        "status": result.status.name,
        "batch_sizes": sorted(set(result.history.batch_size)),
        "seconds_to_1.001": round(path[reached][0], 3),
        "share_read_to_1.001": path[reached][1] / size,
        "seconds": round(seconds, 2),
        "passes": round(result.jacobian_passes, 3),
        "share_read": round(total / size, 3),
        "rate_of_passes_GBps": round(_last_pass(result, size) / 1e9, 2),
        "rate_of_dd_GBps": rate,
        "peak_memory_MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "threads": threads or len(os.sched_getaffinity(0)),
    }
    print(json.dumps(report, indent=1))
    return report


def _excess(result: object, x: np.ndarray) -> float:
    step = x - result.x  # type: ignore[attr-defined]
    return float(0.5 * step @ result.hessian @ step / result.cost)  # type: ignore[attr-defined]


def _last_pass(result: object, size: int) -> float:
    """Bytes a second of the passes over everything."""
    h = result.history  # type: ignore[attr-defined]
    first = h.batch_size.index(result.n)  # type: ignore[attr-defined]
    passes = h.jacobian_passes[-1] - h.jacobian_passes[first]
    return float(round(passes) * size / (h.seconds[-1] - h.seconds[first]))


def _bytes_read() -> int:
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    raise OSError("the kernel does not count bytes read")


def _forget(paths: tuple[Path, ...]) -> None:
    """Take the files out of the page cache."""
    os.sync()
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def _dd(paths: tuple[Path, ...]) -> float:
    """Gigabytes a second of reading the files with dd."""
    _forget(paths)
    began = time.perf_counter()
    for path in paths:
        subprocess.run(["dd", f"if={path}", "of=/dev/null", "bs=8M", "status=none"], check=True)
    rate = sum(p.stat().st_size for p in paths) / (time.perf_counter() - began) / 1e9
    return round(rate, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("write")
    one.add_argument("folder", type=Path)
    one.add_argument("--rows", type=float, default=1e9)
    one = commands.add_parser("run")
    one.add_argument("folder", type=Path)
    one.add_argument("--max-memory", default="800MB")
    one.add_argument("--threads", type=int)
    one.add_argument("--warm", action="store_true", help="leave the files in the page cache")
    options = parser.parse_args()
    if options.command == "write":
        write(options.folder, int(options.rows))
    else:
        run(options.folder, options.max_memory, options.threads, options.warm)


if __name__ == "__main__":
    sys.exit(main())
