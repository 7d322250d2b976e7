"""A line of progress on the terminal."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from .shown import ShownState

Callback = Callable[[ShownState], object]
_PERIOD = 0.1


class ProgressLine:
    """Writes one line in place on a terminal, and nothing into a pipe."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.terminal = self.stream.isatty()
        self.shown = -_PERIOD
        self.width = 0

    def __call__(self, state: ShownState) -> None:
        now = time.perf_counter()
        if not self.terminal or now - self.shown < _PERIOD:
            return
        self.shown = now
        left = f", about {state.seconds_left:.1f} s left" if state.seconds_left > 0.1 else ""
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


@contextmanager
def showing(callback: Callback | None, progress: bool | Callback) -> Iterator[Callback | None]:
    """Show progress before calling the user's callback; the line is always erased at the end."""
    if not progress:
        yield callback
        return
    line = ProgressLine()
    show: Callback = progress if callable(progress) else line

    def both(state: ShownState) -> object:
        show(state)
        return callback(state) if callback is not None else None

    try:
        yield both
    finally:
        line.close()
