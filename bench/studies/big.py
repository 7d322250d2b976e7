"""A fit of a file that does not fit into memory: write it, fit it, measure, delete it.

    python -m bench.studies.big [--rows 1e9] [--folder DIR] [--max-memory 800MB] [-o bench/results]

Two columns of double precision are written, 16 bytes a row; fewer rows, and said so, if they would take more than half
of the free disk. A fresh process then fits them:

- to the certificate, ``--passes`` times: seconds, passes over the file, their rate beside that of ``dd`` reading the
  same files just before, peak memory of the process;
- to 1.001 F*, ``--repeats`` times with other random orders: seconds and bytes from the call on.

The page cache is emptied of the files before each run and before each ``dd``. Bytes are those that the process caused
to be read from storage (/proc/self/io, Linux). Compiled code is loaded before the clock starts: a user's second fit.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ..harness import record
from ..harness.summary import markdown_table

TRUTH = (2.0, 0.7, 0.3)
NOISE = 0.1
START = (1.0, 1.0, 0.0)
FORMULA = "a*exp(-b*x) + c"
LEVEL = 1e-3
SEED = 0
_STEP = 5_000_000


def write(folder: Path, rows: int) -> int:
    """Write two columns of ``rows`` numbers piece by piece, at most half of the free disk; return the row count."""
    most = shutil.disk_usage(folder).free // 2 // 16
    if rows > most:
        print(f"the disk has room for {most:.3g} rows only: writing these instead of {rows:.3g}")
        rows = most
    header = {"descr": "<f8", "fortran_order": False, "shape": (rows,)}
    with open(folder / "x.npy", "wb") as fx, open(folder / "y.npy", "wb") as fy:
        for file in (fx, fy):
            np.lib.format.write_array_header_1_0(file, header)
        for lo in range(0, rows, _STEP):
            rng = np.random.default_rng([SEED, lo])
            count = min(_STEP, rows - lo)
            x = rng.uniform(0.0, 5.0, count)
            y = TRUTH[0] * np.exp(-TRUTH[1] * x) + TRUTH[2] + NOISE * rng.standard_normal(count)
            x.tofile(fx)
            y.tofile(fy)
    return rows


def measure(folder: Path, max_memory: str, passes: int, repeats: int) -> dict[str, Any]:
    """All fits, in this process."""
    import problm
    from problm.api.curve_fit import fit

    paths = (folder / "x.npy", folder / "y.npy")
    size = sum(p.stat().st_size for p in paths)
    model = problm.formula(FORMULA)
    tiny = np.linspace(0, 5, 1000)
    began = time.perf_counter()
    problm.curve_fit(model, tiny, model(tiny, *TRUTH) + 0.01 * np.sin(40 * tiny), START)
    start = time.perf_counter() - began

    full, result = [], None
    for seed in range(passes):
        dd = _dd(paths)
        _forget(paths)
        before, began = _bytes_read(), time.perf_counter()
        result = fit(model, *paths, START, max_memory=max_memory, rng=seed)
        seconds = time.perf_counter() - began
        streamed, streaming = _passes_over_all(result)
        full.append({
            "seconds": seconds,
            "status": result.status.name,
            "x": result.x.tolist(),
            "batch sizes": sorted(set(result.history.batch_size)),
            "passes over everything": streamed,
            "bytes from storage, in files": (_bytes_read() - before) / size,
            "GB/s of the passes": streamed * size / streaming / 1e9,
            "GB/s of dd": dd,
        })  # fmt: skip
    assert result is not None

    def excess(x: np.ndarray) -> float:
        # Near the minimum the cost is the quadratic model, exact enough to tell 1.001.
        step = x - result.x
        return float(0.5 * step @ result.hessian @ step / result.cost)

    early = []
    for seed in range(repeats):
        _forget(paths)
        before, began = _bytes_read(), time.perf_counter()

        def there(state: Any) -> bool:
            return excess(np.asarray(state.x)) <= LEVEL

        stopped = fit(model, *paths, START, max_memory=max_memory, rng=seed, callback=there)
        seconds = time.perf_counter() - began
        assert excess(stopped.x) <= LEVEL
        early.append({
            "seconds": seconds,
            "share": (_bytes_read() - before) / size,
            "batch": stopped.history.batch_size[-1],
        })  # fmt: skip
    return {
        "rows": result.n,
        "gigabytes": size / 1e9,
        "max_memory": max_memory,
        "seconds of the first call, which loads compiled code": start,
        "to the certificate": full,
        "to 1.001 F*": early,
        "peak memory MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "threads": len(os.sched_getaffinity(0)),
    }


def _passes_over_all(result: Any) -> tuple[int, float]:
    """Passes over the whole file, and their seconds."""
    h = result.history
    first = h.batch_size.index(result.n)  # the record of the growth; all later ones are on all rows
    return round(h.jacobian_passes[-1] - h.jacobian_passes[first]), h.seconds[-1] - h.seconds[first]


def _bytes_read() -> int:
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    raise OSError("the kernel does not count bytes read")


def _forget(paths: tuple[Path, ...]) -> None:
    """Remove the files from the page cache."""
    os.sync()
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def _dd(paths: tuple[Path, ...]) -> float:
    """Gigabytes per second when reading the files with dd."""
    _forget(paths)
    began = time.perf_counter()
    for path in paths:
        subprocess.run(["dd", f"if={path}", "of=/dev/null", "bs=8M", "status=none"], check=True)
    return sum(p.stat().st_size for p in paths) / (time.perf_counter() - began) / 1e9


def describe(found: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Paragraphs, and the numbers with targets."""
    full, early = found["to the certificate"], found["to 1.001 F*"]
    seconds, share = (record.spread([e[k] for e in early]) for k in ("seconds", "share"))
    total = record.spread([f["seconds"] for f in full])
    ratio = record.spread([f["GB/s of the passes"] / f["GB/s of dd"] for f in full])
    rate, dd = (record.spread([f[k] for f in full]) for k in ("GB/s of the passes", "GB/s of dd"))
    memory = found["peak memory MB"]
    passes = sorted({f["passes over everything"] for f in full})
    rows = [
        ["time to 1.001 F*", record.told(seconds, "s"), "under 5 s", record.verdict(seconds["greatest"] < 5.0)],
        [
            "bytes read until then",
            f"{share['median']:.2%} ({share['least']:.2%} to {share['greatest']:.2%})",
            "under 1 % of the file",
            record.verdict(share["greatest"] < 0.01),
        ],
        ["time to the certificate", record.told(total, "s"), "", ""],
        [
            "passes over everything",
            " or ".join(map(str, passes)),
            "one or two",
            record.verdict(max(passes) <= 2),
        ],
        ["rate of the passes", record.told(rate, "GB/s"), "", ""],
        ["rate of dd", record.told(dd, "GB/s"), "", ""],
        ["their ratio", record.told(ratio), "close to 1", record.verdict(ratio["median"] >= 0.8)],
        ["peak memory", f"{memory:.0f} MB", "under 1 GB", record.verdict(memory < 1000)],
    ]
    stored = ", ".join(f"{f['bytes from storage, in files']:.2f}" for f in full)
    text = [
        "# A fit of a file larger than memory",
        f"`{FORMULA}`, {found['rows']:,} rows, {found['gigabytes']:.1f} GB in two `.npy` files, max_memory "
        f"{found['max_memory']}, {found['threads']} threads. Median (least to greatest) of {len(early)} runs to "
        f"1.001 F* and {len(full)} to the certificate; the files were not in the page cache when a run began.",
        markdown_table(["", "measured", "target", ""], rows),
        f"Storage delivered {stored} times the file in the runs to the certificate; the rest of the second pass came "
        "from the page cache, as far as the machine's memory holds the file.",
    ]
    return text, {"seconds to 1.001": seconds, "share to 1.001": share, "ratio to dd": ratio}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e9)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where to put the files")
    parser.add_argument("--max-memory", default="800MB")
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    options = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="problm-big-", dir=options.folder) as made:
        folder = Path(made)
        rows = write(folder, int(options.rows))
        writing = time.perf_counter() - began
        print(f"wrote {rows} rows, {16 * rows / 1e9:.1f} GB, in {writing:.0f} s", flush=True)
        # A separate process, so that its peak memory is that of the fits.
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            found = pool.submit(measure, folder, options.max_memory, options.passes, options.repeats).result()
    text, targets = describe(found)
    if rows < int(options.rows):
        text.insert(1, f"Reduced from {options.rows:.3g} rows, for which the disk had no room.")
    record.write(
        options.output, "big", text, {**found, **targets, "seconds of writing": writing},
        record.about(seed=SEED, seconds=time.perf_counter() - began),
    )  # fmt: skip


if __name__ == "__main__":
    main()
