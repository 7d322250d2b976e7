"""The library of code compiled ahead of time, which is used without Numba and LLVM.

`problm.jit.build` puts the machine code of all compiled functions into a shared library, for this machine (``problm
warmup``) or for several kinds of processors (wheels). A library is used if the processor supports it and its checksum
is correct (`problm.jit.seal`). A function of it is used if the digest of its sources (`problm.jit.sources`) matches the
present sources. Numba compiles everything else on demand, as if there were no library.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import logging
import os
import platform
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from .folder import folder, refuse_strangers
from .seal import check_seal
from .sources import digest

log = logging.getLogger("problm")
MODULE = "problm_compiled"
SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]
SHIPPED = Path(__file__).parent / "compiled"
"""Folder of the libraries in a wheel."""
TARGETS = {
    "x86-64-v4": ("AVX2", "FMA3", "AVX512F", "AVX512CD", "AVX512_SKX"),
    "x86-64-v3": ("AVX2", "FMA3"),
    "x86-64-v2": ("SSE42", "POPCNT"),
    "generic": ("ASIMD",),
}
"""Processors that wheels have code for, best first: LLVM's name, and the required features by NumPy's names. The last
one is for ARM."""


class Code(NamedTuple):
    """Code of one function: its entries in the library's table, and the address for each signature."""

    first: int
    digest: str
    addresses: dict[str, int]


def entry(function: FunctionType, otherwise: Callable[..., Any]) -> Callable[..., Any] | None:
    """The compiled entry of a function, or None; calls with arguments of other types go to ``otherwise``."""
    found = code(function)
    if found is None:
        return None
    made: Callable[..., Any] = loaded().entry(found.first, len(found.addresses), otherwise)
    return made


def address(function: FunctionType, signature: str) -> int | None:
    """Address of a function's code for a signature, or None."""
    found = code(function)
    return None if found is None else found.addresses.get(signature)


def name_of(function: FunctionType) -> str:
    """The name of a function in the library."""
    return f"{function.__module__}.{function.__qualname__}"


def code(function: FunctionType) -> Code | None:
    """The code of a function, or None if there is none for its present sources."""
    found = table().get(name_of(function))
    return found if found is not None and found.digest == digest(function) else None


def forget() -> None:
    """Forget the loaded library, so that a new one is found."""
    loaded.cache_clear()
    table.cache_clear()


@lru_cache(maxsize=1)
def table() -> dict[str, Code]:
    """The functions of the library, by name; without those whose lines are not adjacent, as an entry reads them."""
    library = loaded()
    return {} if library is None else by_name(library.table())


def by_name(lines: Iterable[tuple[str, str, str, int]]) -> dict[str, Code]:
    """Functions from the lines of a table: name, digest, signature and address."""
    found: dict[str, Code] = {}
    scattered = set()
    for k, (name, made_of, signature, at) in enumerate(lines):
        code = found.setdefault(name, Code(k, made_of, {}))
        if code.first + len(code.addresses) != k:
            scattered.add(name)
        code.addresses[signature] = at
    return {name: code for name, code in found.items() if name not in scattered}


@lru_cache(maxsize=1)
def loaded() -> Any:
    """The library for this machine, or None."""
    if os.environ.get("PROBLM_COMPILED", "1") == "0" or os.environ.get("NUMBA_DISABLE_JIT", "0") != "0":
        return None
    for path in candidates():
        try:
            refuse_strangers(path)
            check_seal(path)
            loader = importlib.machinery.ExtensionFileLoader(MODULE, str(path))
            spec = importlib.util.spec_from_file_location(MODULE, path, loader=loader)
            assert spec is not None
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
            return module
        except (ImportError, OSError, ValueError) as error:
            log.warning("problm: %s cannot be loaded (%s): compiling instead.", path, error)
    return None


def candidates() -> list[Path]:
    """Libraries that this processor can run, best first: its own, then those of the wheel."""
    if os.environ.get("NUMBA_CPU_NAME"):
        return []
    has = features()
    fitting = [SHIPPED / file_name(name) for name, needs in TARGETS.items() if has.issuperset(needs)]
    return [path for path in (folder() / file_name(this_machine()), *fitting) if path.is_file()]


def file_name(target: str) -> str:
    """The name of the library for a kind of processor."""
    return f"{MODULE}-{target}{SUFFIX}"


def this_machine() -> str:
    """A name for processors with the same features as this one."""
    return f"{platform.machine()}-{hashlib.sha256(' '.join(sorted(features())).encode()).hexdigest()[:12]}"


def features() -> set[str]:
    """Features of the processor, according to NumPy."""
    room = "_core" if int(np.__version__.partition(".")[0]) > 1 else "core"
    known = importlib.import_module(f"numpy.{room}._multiarray_umath").__cpu_features__
    return {name for name, there in known.items() if there}
