"""Exit codes, and how errors become them: a sentence on stderr, a traceback only with ``--debug``."""

from __future__ import annotations

import functools
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

DONE = 0
NOT_CONVERGED = 1
BAD_INPUT = 2
MISSING = 3
BUG = 4
INTERRUPTED = 130
TERMINATED = 143


class Bad(Exception):
    """Input that a command cannot work with; the message is for the user."""


# Errors of the input's or the machine's making; anything else that reaches `guarded` is our own fault.
_EXPECTED = (Bad, ValueError, TypeError, OSError, MemoryError, OverflowError)


_ended_by: list[int] = []
"""Signals that came while the program ran."""


@contextmanager
def terminable() -> Iterator[None]:
    """Take SIGTERM, with which schedulers and containers announce the end, as Control-C: the best point is written."""

    def terminate(number: int, frame: FrameType | None) -> None:
        _ended_by.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _ended_by.clear()
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def interruption() -> int:
    """The exit code of a command that a signal ended."""
    return TERMINATED if _ended_by else INTERRUPTED


def complain(message: str) -> None:
    """One error on stderr, without control characters that a hostile file name could smuggle in."""
    clean = "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in message)
    print(f"problm: {clean}", file=sys.stderr)


def leave(code: int) -> NoReturn:
    """End the command with an exit code."""
    import typer

    raise typer.Exit(code)


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose errors end in a sentence and an exit code. Its keyword ``debug`` asks for the traceback."""
    import typer

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        if kwargs.get("quiet"):
            logging.getLogger("problm").setLevel(logging.ERROR)
        try:
            command(*args, **kwargs)
        except typer.Exit:
            raise
        except KeyboardInterrupt:
            complain("interrupted")
            leave(interruption())
        except BrokenPipeError:
            # The reader of our output has gone (``problm fit ... | head``): there is nobody left to tell.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            leave(BAD_INPUT)
        except Exception as error:
            if kwargs.get("debug"):
                traceback.print_exc()
            leave(_code(error))

    return run


def _code(error: Exception) -> int:
    if isinstance(error, ImportError):
        complain(str(error))
        return MISSING
    if isinstance(error, _EXPECTED):
        complain(_sentence(error))
        return BAD_INPUT
    complain(f"an error inside ProBLM, please report it ({type(error).__name__}: {error}); --debug shows where")
    return BUG


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename is not None else ""
        return f"{error.strerror}{where}"
    if isinstance(error, MemoryError):
        return f"not enough memory: {error}" if str(error) else "not enough memory"
    return str(error) or type(error).__name__
