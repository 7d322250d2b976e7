"""Checkpoint files: a ``.npz`` of plain arrays, and numbers as JSON, which keeps all digits of a float.

A file is not trusted. Nothing in it can run code, its memory is limited by its own size, and its content is checked on
restoring (`problm.solver.checkpoint.state`).
"""

from __future__ import annotations

import io
import json
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...linalg.normal import Normal
from ...support.npy import load_arrays

_ARRAY, _TUPLE, _NORMAL = "#array", "#tuple", "#normal"


def pack(state: dict[str, Any]) -> bytes:
    """Return the content of the file."""
    arrays: dict[str, NDArray[Any]] = {}
    text = json.dumps(encode(state, arrays))
    file = io.BytesIO()
    np.savez(file, state=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def unpack(path: str) -> dict[str, Any]:
    """Return the state in a file; raise ValueError or KeyError if there is none."""
    arrays = load_arrays(path, max_bytes=os.path.getsize(path))
    try:
        state = decode(json.loads(arrays["state"].tobytes().decode()), arrays)
    except (RecursionError, TypeError, AttributeError) as error:
        raise ValueError(f"no state: {error}") from None
    if not isinstance(state, dict):
        raise ValueError("no state")
    return state


def encode(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """Encode a value for JSON; arrays are collected by name."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {_ARRAY: name}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Normal):
        return {_NORMAL: encode(value.as_dict(), arrays)}
    if isinstance(value, tuple):
        return {_TUPLE: [encode(v, arrays) for v in value]}
    if isinstance(value, list):
        return [encode(v, arrays) for v in value]
    if isinstance(value, dict):
        return {str(name): encode(v, arrays) for name, v in value.items()}
    raise TypeError(
        f"checkpoint: a {type(value).__name__} cannot be saved; points must be arrays, or tuples, lists, dicts of them"
    )


def decode(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """Inverse of `encode`."""
    if isinstance(value, dict):
        if _ARRAY in value:
            return arrays[value[_ARRAY]]
        if _TUPLE in value:
            return tuple(decode(v, arrays) for v in value[_TUPLE])
        if _NORMAL in value:
            return _sound(_normal(decode(value[_NORMAL], arrays)))
        return {name: decode(v, arrays) for name, v in value.items()}
    if isinstance(value, list):
        return [decode(v, arrays) for v in value]
    return value


def _normal(sums: dict[str, Any]) -> Normal:
    """Restore sums with their kind of factorisation; the compiled one is imported only if needed."""
    compiled: Any = None
    if sums["compiled"]:
        from ...linalg.cholesky_compiled import CompiledCholesky

        compiled = CompiledCholesky
    return Normal.from_dict(sums, compiled)


def _sound(normal: Normal) -> Normal:
    """Sums whose shapes and types belong together."""
    d = np.shape(normal.gradient)
    arrays = {"gradient": d, "hessian": (*d, *d), "outer": (*d, *d)}
    for name, shape in arrays.items():
        array = getattr(normal, name)
        if not (name == "outer" and array is None) and (np.shape(array) != shape or array.dtype != np.float64):
            raise ValueError("sums of the wrong shape")
    numbers = [(normal.count, int), (normal.cost, float)]
    if normal.clusters is not None:
        units, squares, cross = normal.clusters.units, normal.clusters.squares, normal.clusters.cross
        numbers += [(units, int), (squares, float)]
        if np.shape(cross) != d or cross.dtype != np.float64:
            raise ValueError("sums of the wrong shape")
    if len(d) != 1 or not all(type(value) is kind for value, kind in numbers):
        raise ValueError("sums of the wrong shape")
    return normal
