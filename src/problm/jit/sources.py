"""Digests of the sources of compiled code: the files of all functions that it calls, and the constants that it reads.

Numba's own cache checks one file only. Here a function is followed through all names in its code, including intrinsics
and the functions that emit their instructions, so that a change in any of those files is noticed. Dates of files and
the location of the package do not matter.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

OPTIONS = "compiled_with"
"""Attribute of a Python function that says how it is compiled."""
_WRAPPED = ("py_func", "_defn", "__wrapped__")  # attributes of compiled functions, intrinsics, decorated functions


@lru_cache(maxsize=4096)
def digest(function: FunctionType) -> str:
    """Digest of a function and the sources of everything that it calls: 64 hexadecimal digits."""
    files: set[str] = set()
    constants: set[str] = set()
    waiting, seen = [function], {function}
    while waiting:
        used = _used(waiting.pop())
        files |= used[0]
        constants |= used[1]
        waiting += (f for f in used[2] if f not in seen)
        seen |= used[2]
    parts = [text(function.__code__), *sorted(content(file) for file in files), *sorted(constants)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@lru_cache(maxsize=1024)
def content(file: str) -> str:
    """Digest of a file, read once per process."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


@lru_cache(maxsize=4096)
def _used(function: FunctionType) -> tuple[frozenset[str], frozenset[str], frozenset[FunctionType]]:
    """Files, constants and functions that a function uses directly."""
    files, constants, functions = {inspect.getfile(function)}, {str(getattr(function, OPTIONS, ""))}, set()
    for name, value in _named(function):
        value = next((getattr(value, w) for w in _WRAPPED if hasattr(value, w)), value)
        home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(home, str) and _ours(home, function):
            if isinstance(value, FunctionType):
                functions.add(value)
                if name in function.__code__.co_freevars and value is not function:
                    constants.add(f"{name} = {digest(value)}")  # the files do not show which function a closure holds
            else:
                files.add(str(sys.modules[home].__file__))
        elif not isinstance(value, ModuleType):
            constants.add(f"{name} = {text(value)}")
    return frozenset(files), frozenset(constants), frozenset(functions)


def _named(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Names in a function's code with their values; for a module, also all functions in it."""
    known = function.__globals__
    for name in _names(function.__code__) & known.keys():
        yield name, known[name]
        if isinstance(known[name], ModuleType) and _ours(known[name].__name__, function):
            yield from (
                (n, v) for n, v in vars(known[name]).items() if hasattr(v, "py_func") or isinstance(v, FunctionType)
            )
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # defined later by the enclosing function
            yield name, cell.cell_contents


def _names(code: CodeType) -> set[str]:
    return set(code.co_names).union(*(_names(c) for c in code.co_consts if isinstance(c, CodeType)))


def text(value: Any) -> str:
    """A text for a value that is the same in every process; the type if there is none."""
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(text, value)))}}}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(text, value))})"
    if isinstance(value, dict):
        return text([(key, value[key]) for key in sorted(value, key=text)])
    if isinstance(value, CodeType):  # without file name and line numbers
        return text([value.co_code, value.co_consts, value.co_names, value.co_varnames, value.co_freevars])
    if hasattr(value, "tobytes"):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    words = repr(value)
    return str(type(value)) if " at 0x" in words else words


def _ours(module: str, function: FunctionType) -> bool:
    """Whether a module is part of this package, or of the package of the function."""
    return module.partition(".")[0] in (__name__.partition(".")[0], function.__module__.partition(".")[0])
