"""Tries a target with Hypothesis until a time has passed, with limits of time and memory for every case."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from .targets import TARGETS, Bug, Target

CASE_SECONDS = 20.0
"""CPU seconds of a case: a parser that takes longer over a few hundred bytes hangs."""
WAITING_SECONDS = 300.0
"""Seconds after which it waits for something that never comes; a loaded machine is no bug."""
MEMORY = 4 << 30
"""Bytes of address space beyond what the process has already: a parser that wants more gets a MemoryError."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Raises `Bug` in a case that does not end."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def late(number: int, frame: FrameType | None) -> None:
        raise Bug(f"no end after {CASE_SECONDS} s of computing, or {WAITING_SECONDS} s in all")

    clocks = ((signal.ITIMER_PROF, signal.SIGPROF, CASE_SECONDS), (signal.ITIMER_REAL, signal.SIGALRM, WAITING_SECONDS))
    before = [signal.signal(number, late) for _, number, _ in clocks]
    try:
        for clock, _, seconds in clocks:
            signal.setitimer(clock, seconds)
        yield
    finally:
        for (clock, number, _), handler in zip(clocks, before, strict=True):
            signal.setitimer(clock, 0.0)
            signal.signal(number, handler)


def limit_memory() -> None:
    """For the whole process: only where it does nothing but fuzz."""
    try:
        import resource
    except ImportError:
        return
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))


def tries(target: Target, examples: int, number: int) -> int:
    """Try that many cases; raises what the first bad one raised, after making it small. Returns the number tried."""
    count = 0
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "case"

        @seed(number)
        @settings(
            max_examples=examples, deadline=None, database=None, phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck), print_blob=False,
        )  # fmt: skip
        @given(target.cases())
        def run(case: Any) -> None:
            nonlocal count
            count += 1
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            with limited():
                target.run(case, folder)

        run()
    return count


def fuzz(name: str, seconds: float, number: int = 0) -> int:
    """Try a target for some time. Returns how many cases were tried; raises at the first bug."""
    target, count, began = TARGETS[name], 0, time.monotonic()
    while time.monotonic() - began < seconds:
        count += tries(target, 200, number)
        number += 1
        print(f"\r{name}: {count:,} cases, {time.monotonic() - began:.0f} s", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return count
