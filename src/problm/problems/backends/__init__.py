"""Residual functions written with JAX or PyTorch: exact derivatives, on any device.

`detect` finds the library that a function is written with; `backend_model` makes the model that the solver runs.
Neither library is imported unless a function uses it or ``backend=`` names it.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from ...losses import Loss
from ...support.caller import names_in
from ...support.suggest import suggest
from ..rows import RowModel

BACKENDS = ("numpy", "jax", "torch")
_PACKAGES = {"jax": "jax", "jaxlib": "jax", "torch": "torch"}


def detect(function: Any) -> str:
    """``"jax"`` or ``"torch"`` if the function's code refers to one of them, else ``"numpy"``.

    Global names and closures of the function and of the functions nested in it are examined.

    Examples
    --------
    >>> detect(lambda t, x: t[0] * x)
    'numpy'
    """
    if not any(package in sys.modules for package in _PACKAGES):
        return "numpy"
    for value in _referred(function, set()):
        found = _PACKAGES.get(_package(value))
        if found is not None:
            return found
    return "numpy"


def backend_model(
    backend: str | None,
    fun: Callable[..., Any],
    dim: int,
    loss: Loss,
    manifold: Any = None,
    written_in: Callable[..., Any] | None = None,
    read: Callable[..., Any] | None = None,
    threads: int | None = None,
) -> RowModel | None:
    """The row model of a function for the given or detected backend (in it or in ``written_in``); None for NumPy.

    ``read`` turns a JAX function into a compiled model, which takes ``threads``, or raises
    (`problm.models.programs.jax_program.record`).
    """
    if backend is not None and backend not in BACKENDS:
        raise ValueError(
            f"backend={backend!r} is not known{suggest(backend, BACKENDS)}; choose one of {', '.join(BACKENDS)}"
        )
    name = backend or detect(fun if written_in is None else written_in)
    if name == "numpy":
        return None
    prepare: Any
    record = None
    if name == "jax":
        from .jax_backend import prepare
        from .snapshot import as_it_is_now

        fun = as_it_is_now(fun)
        if read is not None and manifold is None:
            from .recorded import recorded

            record = functools.partial(recorded, read, threads)
    else:
        from .torch_backend import prepare
    from .device import DeviceModel

    return DeviceModel(prepare, fun, dim, loss, None if manifold is None else manifold.retract, record)


def _package(value: Any) -> str:
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(type(value), "__module__", "")
    if not isinstance(value, types.ModuleType) and str(name).partition(".")[0] not in _PACKAGES:
        name = getattr(value, "__module__", None) or ""
    return str(name).partition(".")[0]


def _referred(function: Any, seen: set[int]) -> Iterator[Any]:
    """The function and the objects that its code refers to by globals and closures; user functions are followed."""
    if id(function) in seen or len(seen) > 200:
        return
    seen.add(id(function))
    yield function
    if isinstance(function, functools.partial):
        yield from _referred(function.func, seen)
        return
    inner = getattr(function, "__wrapped__", None)
    if inner is not None:
        yield from _referred(inner, seen)
    if not isinstance(function, types.FunctionType):
        method = getattr(function, "__func__", None) or getattr(type(function), "__call__", None)  # noqa: B004
        if isinstance(method, types.FunctionType):
            yield from _referred(method, seen)
        return
    values = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
    names = set(names_in(function.__code__))
    values += [function.__globals__[name] for name in names if name in function.__globals__]
    for value in values:
        yield value
        if isinstance(value, types.FunctionType | functools.partial) and _package(value) not in _PACKAGES:
            yield from _referred(value, seen)


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
