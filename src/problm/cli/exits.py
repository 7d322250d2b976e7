"""Exit codes, and how errors become them: a sentence on stderr, a traceback only with ``--debug``."""

from __future__ import annotations

import _thread
import atexit
import functools
import logging
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from ..support.printable import printable

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

DONE = 0
NOT_CONVERGED = 1
BAD_INPUT = 2
MISSING = 3
BUG = 4
DOUBTFUL = 5
INTERRUPTED = 130
TERMINATED = 143


class Bad(Exception):
    """Raised for input that a command cannot work with; the message is for the user."""


# Errors caused by the input or the machine; anything else that reaches `guarded` is a bug.
_EXPECTED = (Bad, ValueError, TypeError, OSError, MemoryError, OverflowError)


class Stopped(KeyboardInterrupt):
    """A signal that ends the program.

    It is a separate class, because Python remembers that a plain KeyboardInterrupt passed through `exec` (which imports
    of dataclasses use) and then ends the process by SIGINT, even if the exception was handled.
    """


_signals: list[int] = []
"""Signals received while the program ran."""
_AGAIN = 0.01  # seconds to leave code in which an exception cannot be raised


def _stop(number: int, frame: FrameType | None) -> None:
    _signals.append(number)
    raise Stopped


def _resend(number: int, sent: _thread.LockType) -> None:
    time.sleep(_AGAIN)
    try:
        if hasattr(signal, "pthread_kill"):
            signal.pthread_kill(threading.main_thread().ident or 0, number)
        else:
            signal.raise_signal(number)
    finally:
        sent.release()


@contextmanager
def terminable() -> Iterator[None]:
    """Treat SIGTERM, which schedulers and containers send before they kill a process, like Control-C: the best point is
    written.

    Python swallows exceptions in finalizers and in callbacks of the garbage collector and of C; a signal that arrives
    there is sent again. Imports of extensions print the exception and raise ImportError instead; see `guarded`.
    """

    def uncaught(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        if not issubclass(kind, Stopped):
            shown(kind, error, where)

    def unraisable(what: UnraisableHookArgs) -> None:
        if issubclass(what.exc_type, Stopped):
            # Not threading.Thread, whose lock the interrupted code may hold.
            waiting.append(_thread.allocate_lock())
            waiting[-1].acquire()
            _thread.start_new_thread(_resend, (_signals[-1], waiting[-1]))
        else:
            hook(what)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _signals.clear()
    waiting: list[_thread.LockType] = []
    kept = (None, signal.SIG_IGN)  # handlers that are not Python's, and signals that a shell told us to ignore
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(s) not in kept}
    hook, shown = sys.unraisablehook, sys.excepthook
    try:
        sys.unraisablehook, sys.excepthook = unraisable, uncaught
        for number in before:
            signal.signal(number, _stop)
        yield
    finally:
        with suppress(Stopped):  # no signal may be raised later, when the interpreter shuts down
            for sent in waiting:
                sent.acquire(timeout=1.0)
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook, sys.excepthook = hook, shown
        # While the interpreter shuts down nothing can handle an interrupt, and nothing is left to stop.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def interruption() -> int:
    """The exit code of a command that a signal ended."""
    return TERMINATED if signal.SIGTERM in _signals else INTERRUPTED


def interrupted(code: object = None) -> bool:
    """Whether a signal is the cause of an exit code or an error.

    Typer has its own codes for a signal before a command, and imports of extensions end in an ImportError.
    """
    return bool(_signals) and code in (None, NOT_CONVERGED, MISSING, INTERRUPTED)


def complain(message: str) -> None:
    """Print one error on stderr, without control characters that a hostile file name could contain."""
    print(f"problm: {printable(message)}", file=sys.stderr)


@contextmanager
def delivered() -> Iterator[None]:
    """Write what stdout still holds when the program ends; if that fails, say why and end by ``BAD_INPUT``.

    The interpreter does it after everything else, and can then only say that it ignored an exception. A command that
    has failed has said why, so that nothing is added.
    """
    code: object = None
    try:
        try:
            yield
        except SystemExit as leaving:
            code = leaving.code
            if sys.stdout is not None:
                sys.stdout.flush()
            raise
    except OSError as error:
        _discard_output()
        if code not in (None, DONE, NOT_CONVERGED, DOUBTFUL):
            raise SystemExit(code) from None
        if not isinstance(error, BrokenPipeError):
            complain(_sentence(error))
        raise SystemExit(BAD_INPUT) from None


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def leave(code: int) -> NoReturn:
    """End the command with an exit code."""
    import typer

    raise typer.Exit(code)


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command so that errors become a sentence and an exit code. Its keyword ``debug`` shows the traceback."""
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
            # The reader of the output has ended (``problm fit ... | head``).
            _discard_output()
            leave(BAD_INPUT)
        except Exception as error:
            if kwargs.get("debug"):
                traceback.print_exc()
            if interrupted():
                complain("interrupted")
                leave(interruption())
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
    # Functions name their arguments; on the command line these are options.
    return (
        re.sub(r"\bpass (\w+)=True\b", lambda m: f"give --{m[1].replace('_', '-')}", str(error)) or type(error).__name__
    )
