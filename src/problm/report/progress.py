"""A line of progress on the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from ..result import State

Callback = Callable[[State], object]
_PERIOD = 0.1


class ProgressLine:
    """Writes one line in place on a terminal, and nothing into a pipe."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.shown = -_PERIOD
        self.width = 0

    def __call__(self, state: State) -> None:
        now = time.perf_counter()
        if not self.stream.isatty() or now - self.shown < _PERIOD:
            return
        self.shown = now
        left = f", about {state.seconds_left:.1f} s left" if state.seconds_left > 0.1 else ""
        text = (
            f"problm {state.seconds:6.1f} s  batch {state.batch_size:,} of {state.n:,}  "
            f"cost {state.cost:.6g}  {state.decision}{left}"
        )
        self.stream.write("\r" + text.ljust(self.width))
        self.stream.flush()
        self.width = len(text)

    def close(self) -> None:
        if self.width:
            self.stream.write("\r" + " " * self.width + "\r")
            self.stream.flush()
            self.width = 0


def with_progress(callback: Callback | None, progress: bool | Callback) -> Callback:
    """The user's callback with progress shown before it."""
    show: Any = progress if callable(progress) else ProgressLine()

    def both(state: State) -> object:
        show(state)
        return callback(state) if callback is not None else None

    return both
