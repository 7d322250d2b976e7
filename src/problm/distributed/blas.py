"""One BLAS thread per call: sums of NumPy functions have other last digits with two threads than with one.

Workers differ in their numbers of cores, and a call is one of many that run side by side. The limit needs threadpoolctl
(part of ``problm[big]``); without it sums have the same bits only where BLAS has the same number of threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
_lock = threading.Lock()
_running = 0
_limit: Any = None


def one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Limit BLAS while this function runs, in any number of threads at once."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        _enter()
        try:
            return function(*args, **kwargs)
        finally:
            _leave()

    return limited


def _enter() -> None:
    global _running, _limit
    with _lock:
        _running += 1
        if _running == 1 and (libraries := _libraries()) is not None:
            _limit = libraries.limit(limits=1)


def _leave() -> None:
    global _running, _limit
    with _lock:
        _running -= 1
        if _running == 0 and _limit is not None:
            _limit.restore_original_limits()
            _limit = None


@cache
def _libraries() -> Any:
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController().select(user_api="blas")
