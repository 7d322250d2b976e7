"""Seconds that this process has spent on compiling, which are no part of the times shown to people."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

_seconds = 0.0
_depth = 0


def seconds() -> float:
    """Seconds spent on compiling so far, in this process."""
    return _seconds


@contextmanager
def compiling() -> Iterator[None]:
    """Count the time within; compilation within compilation is counted once."""
    global _seconds, _depth
    began, _depth = time.perf_counter(), _depth + 1
    try:
        yield
    finally:
        _depth -= 1
        if not _depth:
            _seconds += time.perf_counter() - began
