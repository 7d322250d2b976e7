"""A progress bar with the remaining time."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_PERIOD = 0.2
_WIDTH = 24


class Progress:
    """Progress over several experiments: one line in place on a terminal, elsewhere one line per tenth.

    The remaining time of the running experiment follows from its pace, that of the others from their expected times,
    corrected by the errors of these so far.
    """

    def __init__(self, expected: dict[str, float], stream: TextIO | None = None) -> None:
        self.expected = dict(expected)
        self.stream = stream or sys.stderr
        self.name, self.total, self.done, self.fresh = "", 0, 0, 0
        self._began = self._shown = 0.0
        self._tenth = -1
        self._spent = self._foreseen = 0.0

    def begin(self, name: str, total: int, done: int, expected: float) -> None:
        """An experiment starts with ``done`` of its ``total`` runs already in the journal."""
        self.finish()
        self.expected.setdefault(name, expected)
        self.name, self.total, self.done, self.fresh = name, total, done, 0
        self._began, self._tenth = time.monotonic(), -1
        self._show(force=True)

    def step(self) -> None:
        self.done += 1
        self.fresh += 1
        self._show()

    def finish(self) -> None:
        """The running experiment is over."""
        if not self.name:
            return
        share = self.fresh / max(self.total, 1)
        self._spent += time.monotonic() - self._began
        self._foreseen += share * self.expected.pop(self.name, 0.0)
        self._show(force=True, last=True)
        self.name = ""

    def seconds_left(self) -> float:
        """Estimate over all experiments; nan while nothing is known."""
        elapsed = time.monotonic() - self._began
        missing = self.total - self.done
        mine = self.expected.get(self.name, 0.0)
        if self.fresh:
            left = elapsed / self.fresh * missing
            pace = (self._spent + elapsed) / max(self._foreseen + self.fresh / max(self.total, 1) * mine, 1e-9)
        else:
            pace = self._spent / self._foreseen if self._foreseen > 0 else 1.0
            left = pace * mine * missing / max(self.total, 1)
        return left + pace * sum(v for k, v in self.expected.items() if k != self.name)

    def _show(self, *, force: bool = False, last: bool = False) -> None:
        now = time.monotonic()
        tty = self.stream.isatty()
        tenth = 10 * self.done // max(self.total, 1)
        if not (last or force or (now - self._shown >= _PERIOD if tty else tenth > self._tenth)):
            return
        if not tty and tenth == self._tenth:
            return
        self._shown, self._tenth = now, tenth
        filled = _WIDTH * self.done // max(self.total, 1)
        bar = "#" * filled + "." * (_WIDTH - filled)
        text = f"{self.name:<18}[{bar}] {self.done}/{self.total}, about {clock(self.seconds_left())} left"
        self.stream.write(("\r" + text.ljust(90) + ("\n" if last else "")) if tty else text + "\n")
        self.stream.flush()


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    if not seconds >= 0:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
