"""The user's functions run as the user's code does, whatever state our own arithmetic needs."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from functools import partial
from sys import getrefcount
from types import CodeType
from typing import Any

import numpy as np
from numpy.typing import NDArray

_IN_CONTEXT = int(np.__version__.partition(".")[0]) >= 2
"""Whether NumPy keeps its error state in a context variable: entering a context takes a tenth of a microsecond."""


def as_called(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, to be run with the context variables and NumPy's error state of the present caller.

    A solve ignores overflow in its own sums, as a step that leads there is refused. What the function of the user's
    does about it is the user's choice. Not for calls from several threads at the same time.

    Examples
    --------
    >>> with np.errstate(over="raise"):
    ...     f = as_called(np.exp)
    >>> with np.errstate(all="ignore"):
    ...     f(1000.0)
    Traceback (most recent call last):
    FloatingPointError: overflow encountered in exp
    """
    if _IN_CONTEXT:
        return partial(contextvars.copy_context().run, function)
    state: Any = np.geterr()

    def run(*args: Any) -> Any:
        with np.errstate(**state):
            return function(*args)

    return run


UNDEFINED = (ArithmeticError, np.linalg.LinAlgError, ValueError, RuntimeWarning)
"""What functions raise where they are not defined: division by zero, overflow, a singular matrix, a domain error; or a
warning of these, where warnings are errors."""


def undefined(error: Exception, *shape: int) -> NDArray[np.float64]:
    """NaN in place of the values of a function that raised one of `UNDEFINED`; other errors are raised again.

    A step that leads there is refused like any other without finite residuals.
    """
    if isinstance(error, ValueError) and not isinstance(error, np.linalg.LinAlgError) and str(error) != _DOMAIN:
        raise error
    return np.full(shape, np.nan)


_DOMAIN = "math domain error"  # of the functions of the module math


def names_in(code: CodeType) -> Iterator[str]:
    """Names of globals and attributes in the code of a function and of the functions nested in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def _references(call: Callable[[], Any]) -> int:
    r = call()
    return getrefcount(r)


OURS = _references(lambda: np.empty(1))
"""Reference count of an array that only the caller of a function holds; it depends on the version of Python."""
