"""A line of progress on the terminal."""

from __future__ import annotations

import math
import shutil
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from .shown import ShownState

Callback = Callable[[ShownState], object]
_PERIOD = 0.1


class Remaining:
    """An estimate of the remaining time, from the times of iterations.

    An iteration over K rows takes a fixed time and a time per row. Their ratio is told by iterations over different
    batches: with small ones alone, the fixed time times all rows would be announced. At the end about `PASSES`
    iterations over all rows remain.
    """

    PASSES = 2.5
    LEAST = 1.0
    """Seconds before anything is announced."""

    def __init__(self) -> None:
        self._last = 0.0
        self._times: dict[int, list[float]] = {}

    def add(self, state: ShownState) -> None:
        """Record an iteration."""
        self._times.setdefault(state.batch_size, []).append(max(state.seconds - self._last, 0.0))
        self._last = state.seconds

    def seconds(self, state: ShownState) -> float:
        """Remaining seconds; NaN in the first second, and as long as batches tell nothing about all rows."""
        if state.seconds < self.LEAST:
            return math.nan
        n = state.n
        done = self._times.get(n, [])
        sizes = sorted(k for k in self._times if k < n)
        if not sizes:
            return max(done) * max(1.0, self.PASSES - len(done)) if done else math.nan
        largest = sizes[-1]
        if not done and largest < n / 1000 and len(sizes) < 3:
            return math.nan
        whole = statistics.median(self._times[largest])
        smaller = [k for k in sizes if k <= largest / 2]
        part = statistics.median(self._times[smaller[-1]]) if smaller else 0.0
        per_row = (whole - part) / (largest - (smaller[-1] if smaller else 0))
        # An iteration that only enlarges the batch is short, so the longest counts.
        each = max([n * max(per_row, 0.2 * whole / largest), *done]) if len(done) < 2 else max(done)
        return each * max(1.0, self.PASSES - len(done))


class Reading:
    """Passes over rows that are read from files: rate, and the time until the last pass ends."""

    RECENT = 5.0
    """Seconds over which the rate is measured: the first pass may be slower than those from the file cache."""

    def __init__(self) -> None:
        self.passes = 0
        """Number of passes begun."""
        self._done = math.inf
        self._before = math.nan
        """Rate of the pass before."""
        self._marks: deque[tuple[float, int]] = deque()
        """Times of the present pass, and the bytes read until then."""

    def add(self, now: float, done: int) -> None:
        """Record that ``done`` bytes of a pass have been read."""
        if done <= self._done:
            self.passes += 1
            self._before = self.rate
            self._marks.clear()
        self._done = done
        self._marks.append((now, done))
        while len(self._marks) > 2 and now - self._marks[1][0] > self.RECENT:
            self._marks.popleft()

    @property
    def rate(self) -> float:
        """Bytes per second; NaN before the second piece of the first pass."""
        if len(self._marks) < 2 or self._marks[-1][0] == self._marks[0][0]:
            return self._before
        (began, first), (now, done) = self._marks[0], self._marks[-1]
        return (done - first) / (now - began)

    def seconds(self, total: int) -> float:
        """Remaining seconds of this pass and of those that usually follow (`Remaining.PASSES` in all)."""
        left = total - self._done + total * max(0.0, Remaining.PASSES - self.passes)
        return left / self.rate


class ProgressLine:
    """Writes one line in place on a terminal or in a notebook, and nothing into a pipe."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        # Notebooks show a line that returns to its beginning as a terminal does.
        self.terminal = self.stream.isatty() or (stream is None and "ipykernel" in sys.modules)
        self.shown = -_PERIOD
        self.width = 0
        self.remaining = Remaining()
        self.pass_over_files = Reading()
        self.began = time.perf_counter()

    def reading(self, done: int, total: int) -> None:
        """Show how far a pass over files has come: ``done`` of ``total`` bytes."""
        now = time.perf_counter()
        files = self.pass_over_files
        files.add(now, done)
        if not self.terminal or now - self.shown < _PERIOD or not files.rate > 0.0:
            return
        self.shown = now
        left = f", about {files.seconds(total):.0f} s left" if now - self.began > Remaining.LEAST else ""
        self.show(
            f"problm {now - self.began:6.1f} s  pass {files.passes}: {_size(done)} of {_size(total)}, "
            f"{_size(files.rate)}/s{left}"
        )

    def __call__(self, state: ShownState) -> None:
        now = time.perf_counter()
        self.remaining.add(state)
        if not self.terminal or now - self.shown < _PERIOD:
            return
        self.shown = now
        seconds = self.remaining.seconds(state)
        left = f", about {seconds:.1f} s left" if seconds > 0.1 else ""
        self.show(
            f"problm {state.seconds:6.1f} s  batch {state.batch_size:,} of {state.n:,}  "
            f"cost {state.cost:.6g}{left}  {state.decision}"
        )

    def show(self, text: str) -> None:
        """Replace the last text by this one."""
        # A line that wraps could not be erased.
        text = text[: shutil.get_terminal_size().columns - 1]
        self._write(text.ljust(self.width))
        self.width = len(text)

    def close(self) -> None:
        """Erase the line."""
        if self.width:
            self._write(" " * self.width + "\r")
            self.width = 0

    def _write(self, text: str) -> None:
        self.stream.write("\r" + text)
        self.stream.flush()


def print_iteration(state: ShownState) -> None:
    """Print a row of the table of iterations, and its head before the first one."""
    if state.iteration == 1:
        print(f"{'iteration':>9}  {'seconds':>8}  {'batch':>14}  {'cost':>13}  {'damping':>9}  decision")
    print(
        f"{state.iteration:9d}  {state.seconds:8.3f}  {state.batch_size:14,d}  {state.cost:13.6e}  "
        f"{state.damping:9.2e}  {state.decision}"
    )


def _size(count: float) -> str:
    """Bytes in a unit that people read."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count / 1e3:.3g} kB"


@contextmanager
def showing(callback: Callback | None, progress: bool | Callback, watched: Any = None) -> Iterator[Callback | None]:
    """Show progress before calling the user's callback; the line is always erased at the end.

    ``watched`` is a problem whose passes are shown as well (`problm.solver.problem.Problem.watch`).
    """
    if not progress:
        yield callback
        return
    line = ProgressLine()
    show: Callback = progress if callable(progress) else line
    if watched is not None:
        watched.watch = getattr(show, "reading", None)

    def both(state: ShownState) -> object:
        show(state)
        return callback(state) if callback is not None else None

    try:
        yield both
    finally:
        line.close()
