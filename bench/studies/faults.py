"""Faults at random moments, many times, and what came of each.

    python -m bench.studies.faults                         # all of them, some minutes on a quiet machine
    python -m bench.studies.faults kill interrupt --count 20

A process that has everything loaded forks; the child solves a problem whose passes over everything take seconds (its
function sleeps: what is tried is time, not arithmetic) and keeps a checkpoint. *kill*: the child is killed at a random
moment, the next one goes on from the checkpoint, and so on until one ends; its bits are compared with those of a solve
that nobody disturbed, and at every kill the age of what is on disk is noted: the work that is lost. *interrupt*: SIGINT
at a random moment; the child must come back with the best point so far, or say that there is none yet, and the file of
its result must be whole. The other kinds are described in `bench.studies.fault_kinds`. Writes
``bench/results/faults.md`` and ``faults.json``; parts that are not run are kept as they were measured.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import problm

from ..harness import record
from ..harness.summary import markdown_table
from .fault_kinds import at_once, changing_files, full_disk, workers_lost
from .load import small

ROWS = 300_000
EVERY = 0.1
NAP = 0.002


def decay(theta: Any, x: Any, y: Any) -> Any:
    time.sleep(NAP)
    return theta[0] * np.exp(-theta[1] * x) + theta[2] - y


def make_data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 4.0, ROWS)
    return x, 2.5 * np.exp(-1.3 * x) + 0.5 + 0.1 * rng.standard_normal(ROWS)


def solve(data: tuple[Any, Any], **options: Any) -> Any:
    return problm.least_squares(decay, [1.0, 0.2, 0.0], data=data, **options)


def forked(work: Callable[[], None]) -> int:
    """Start a child that does some work and ends with code 0, or 1 after an exception; return its process id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def bits(fit: Any) -> str:
    return f"{fit.x.tobytes().hex()} {fit.cost!r} {fit.nit} {fit.status.name}"


def kills(count: int, data: tuple[Any, Any], folder: Path, rng: random.Random) -> dict[str, Any]:
    """Kill solves until ``count`` kills are done; surviving solves are compared with an undisturbed one."""
    began = time.monotonic()
    expected = bits(solve(data))
    took = time.monotonic() - began
    path, answer = folder / "solve.npz", folder / "answer"
    ages: list[float] = []
    ended, wrong, early = 0, 0, 0

    def work() -> None:
        answer.write_text(bits(solve(data, checkpoint=path, checkpoint_every=EVERY)))

    while len(ages) + early < count or ended == 0:
        child = forked(work)
        time.sleep(rng.uniform(0.02, 0.5) * took)
        os.kill(child, signal.SIGKILL)
        killed_at = time.time()
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            if path.exists():
                ages.append(killed_at - path.stat().st_mtime)
            else:
                early += 1
            continue
        ended += 1
        wrong += os.waitstatus_to_exitcode(status) != 0 or answer.read_text() != expected
        answer.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    return {
        "kills": len(ages) + early, "before the first checkpoint": early, "solves ended": ended, "wrong": wrong,
        "undisturbed seconds": took, "lost median": statistics.median(ages or [0.0]),
        "lost most": max(ages, default=0.0),
    }  # fmt: skip


def interrupts(count: int, data: tuple[Any, Any], folder: Path, rng: random.Random) -> dict[str, Any]:
    """Send SIGINT at random moments of ``count`` solves; return the outcomes."""
    began = time.monotonic()
    solve(data)
    took = time.monotonic() - began
    file, told = folder / "result.json", folder / "told"
    outcomes: Counter[str] = Counter()

    def work() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            fit = solve(data)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            fit.save(file)
            told.write_text("best point" if fit.status.name == "INTERRUPTED" else "ended before")
        except KeyboardInterrupt:
            told.write_text("nothing known yet")

    for _ in range(count):
        child = forked(work)
        time.sleep(rng.uniform(0.0, 1.1) * took)
        os.kill(child, signal.SIGINT)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) not in (0, -signal.SIGINT):
            outcomes["wrong"] += 1
            continue
        outcome = told.read_text() if told.exists() else "before its first line"
        if outcome in ("best point", "ended before"):
            saved = json.loads(file.read_text())
            if not (np.isfinite(saved["x"]).all() and np.isfinite(saved["cost"])):
                outcome = "wrong"
        outcomes[outcome] += 1
        for path in (told, file):
            path.unlink(missing_ok=True)
    return {"interrupts": count, "undisturbed seconds": took, **outcomes}


TITLES = {
    "kill": "kill -9", "interrupt": "Control-C", "disk": "Disk full", "files": "Files changed, cut short or replaced",
    "threads": "Threads", "processes": "Processes", "workers": "Workers of a cluster killed",
    "memory": "Memory over many solves",
}  # fmt: skip
COUNTS = {
    "kill": 100,
    "interrupt": 200,
    "disk": 50,
    "files": 60,
    "threads": 120,
    "processes": 60,
    "workers": 5,
    "memory": 1_000_000,
}


def measure(part: str, count: int, folder: Path, rng: random.Random) -> dict[str, Any]:
    """Try one kind of fault."""
    if part == "kill":
        return kills(count, make_data(), folder, rng)
    if part == "interrupt":
        return interrupts(count, make_data(), folder, rng)
    if part == "disk":
        return full_disk(count, folder, rng)
    if part == "files":
        return changing_files(count, folder, rng)
    if part == "workers":
        return workers_lost(count, rng)
    if part == "memory":
        return memory(small(count))
    return at_once(part, 8, count)


def memory(found: dict[str, Any]) -> dict[str, Any]:
    """Resident memory from `bench.studies.load.small`: formulas, every tenth a NumPy function."""
    before, *later = found["memory_MB"]
    return {"solves": found["count"], "wrong": found["failed"], "MB before": before, "MB after": max(later)}


def page(found: dict[str, dict[str, Any]]) -> list[str]:
    text = ["# Faults at random moments"]
    for name, values in found.items():
        rows = [[key, f"{value:.3g}" if isinstance(value, float) else str(value)] for key, value in values.items()]
        text.append(f"**{TITLES[name]}**" + (f", `checkpoint_every={EVERY}`" if name == "kill" else ""))
        text.append(markdown_table(["what", "measured"], rows))
    return text


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.studies.faults", description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(TITLES)}; all if not given")
    parser.add_argument("--count", type=int, help="of faults of each kind (default: 5 to 200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=record.RESULTS)
    options = parser.parse_args()
    if unknown := [p for p in options.parts if p not in TITLES]:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(TITLES)}")
    began, rng = time.perf_counter(), random.Random(options.seed)  # noqa: S311
    for part in options.parts or TITLES:
        with tempfile.TemporaryDirectory() as scratch:
            measured = measure(part, options.count or COUNTS[part], Path(scratch), rng)
        print(part, measured, flush=True)
        kept = {
            name: values for name, values in (record.read(options.output, "faults") or {}).items() if name in TITLES
        }
        found = {name: (kept | {part: measured})[name] for name in TITLES if name in kept or name == part}
        known = record.about(seconds=time.perf_counter() - began, seed=options.seed)
        record.write(options.output, "faults", page(found), found, known)
    return int(any(values.get("wrong", 0) for values in found.values()))


if __name__ == "__main__":
    sys.exit(main())
