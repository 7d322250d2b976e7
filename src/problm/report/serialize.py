"""Results as JSON: readable in twenty years, by any language, and without running anything when loaded.

Numbers keep all their digits. JSON has no infinities, so they and NaN are written as the strings ``"Infinity"``,
``"-Infinity"`` and ``"NaN"``, which are read back where a number is expected. The problem itself (the user's data and
functions) is not saved, nor is the path of ``keep_path``.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import __version__
from ..solver.result import History, Result, Status
from ..support.files import write_atomically

FORMAT = "problm.result"
VERSION = 1
MAX_BYTES = 1 << 28
_NOT_FINITE = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
_NUMBERS = ("cost", "optimality", "cosine", "residual_passes", "jacobian_passes", "seconds")
_COUNTS = ("n", "batch_size", "nfev", "njev", "residuals_per_block")


def plain(value: Any) -> Any:
    """Anything made of numbers, text, arrays, containers and dataclasses as what JSON holds.

    Examples
    --------
    >>> plain({"a": np.arange(2), "b": (1.5, np.inf)})
    {'a': [0, 1], 'b': [1.5, 'Infinity']}
    """
    if value is None or isinstance(value, str | bool | np.bool_):
        return bool(value) if isinstance(value, np.bool_) else value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        number = float(value)
        return number if math.isfinite(number) else json.dumps(number)
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON; convert it to arrays or numbers first")


def to_dict(result: Result) -> dict[str, Any]:
    """A result as numbers, text, lists and dicts only; `from_dict` is its inverse."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "problm": __version__,
        "success": bool(result.success),
        "status": result.status.name,
        "message": result.message,
        "names": list(result.names),
        "x": plain(result.x),
        "standard_errors": plain(result.standard_errors),
        **{name: plain(float(getattr(result, name))) for name in _NUMBERS},
        **{name: int(getattr(result, name)) for name in _COUNTS},
        "certified": bool(result.certified),
        "singular": bool(result.singular),
        "grad": plain(result.grad),
        "hessian": plain(result.hessian),
        "covariance_root": plain(result.covariance_root),
        "active_mask": plain(result.active_mask),
        "fixed": plain(result.fixed),
        "history": plain(result.history.as_dict()),
    }


def from_dict(data: Mapping[str, Any]) -> Result:
    """The result that `to_dict` was given, without its problem: ``fun`` and the residuals' plot are not there."""
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise ValueError(f"this is not a saved result: 'format' must be {FORMAT!r}")
    version = data.get("version")
    if version != VERSION:
        raise ValueError(f"the result was saved in version {version!r} of the format; this ProBLM reads {VERSION}")
    try:
        return _result(data)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"the saved result is damaged: {what}") from None


def _result(data: Mapping[str, Any]) -> Result:
    grad = _array(data["grad"], 1, "grad")
    d = len(grad)
    hessian = _array(data["hessian"], 2, "hessian")
    if hessian.shape != (d, d):
        raise ValueError(f"hessian has shape {hessian.shape}, expected ({d}, {d})")
    root = data["covariance_root"]
    names = tuple(str(name) for name in data["names"])
    if names and len(names) != d:
        raise ValueError(f"{len(names)} names for {d} parameters")
    saved = data["history"]
    history = History(
        seconds=[_number(v) for v in saved["seconds"]],
        batch_size=[int(v) for v in saved["batch_size"]],
        cost=[_number(v) for v in saved["cost"]],
        damping=[_number(v) for v in saved["damping"]],
        decision=[str(v) for v in saved["decision"]],
        residual_passes=[_number(v) for v in saved["residual_passes"]],
        jacobian_passes=[_number(v) for v in saved["jacobian_passes"]],
    )
    if len({len(column) for column in history.as_dict().values()}) != 1:
        raise ValueError("the columns of history differ in length")
    numbers: dict[str, Any] = {name: _number(data[name]) for name in _NUMBERS}
    counts: dict[str, Any] = {name: int(data[name]) for name in _COUNTS}
    return Result(
        x=_point(data["x"]),
        status=Status[data["status"]],
        message=str(data["message"]),
        grad=grad,
        hessian=hessian,
        singular=bool(data["singular"]),
        history=history,
        active_mask=_array(data["active_mask"], 1, "active_mask").astype(np.int64),
        covariance_root=None if root is None else _array(root, 2, "covariance_root"),
        fixed=None if data["fixed"] is None else _array([int(v) for v in data["fixed"]], 1, "fixed").astype(bool),
        names=names,
        **numbers,
        **counts,
    )


def save(result: Result, path: str | os.PathLike[str]) -> None:
    """Write a result as JSON, whole or not at all."""
    write_atomically(path, json.dumps(to_dict(result), indent=1, allow_nan=False) + "\n")


def load(path: str | os.PathLike[str]) -> Result:
    """Read a result that `save` wrote."""
    path = Path(path)
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise ValueError(f"{path} has {size:,} bytes, and at most {MAX_BYTES:,} are read as a result")
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    return from_dict(data)


def _number(value: Any) -> float:
    if isinstance(value, str):
        if value not in _NOT_FINITE:
            raise ValueError(f"{value[:40]!r} is not a number")
        return _NOT_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"a number was expected, got {type(value).__name__}")
    return float(value)


def _array(value: Any, ndim: int, name: str) -> NDArray[np.float64]:
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list")
    array: NDArray[np.float64] = np.array(_numbers(value), dtype=np.float64)
    if array.ndim != ndim and array.size:
        raise ValueError(f"{name} must have {ndim} dimensions, got {array.ndim}")
    return array.reshape((0,) * ndim) if array.size == 0 else array


def _numbers(value: Any) -> Any:
    return [_numbers(v) for v in value] if isinstance(value, list) else _number(value)


def _point(value: Any) -> Any:
    """A point: an array where it is one, else containers of arrays."""
    if isinstance(value, Mapping):
        return {k: _point(v) for k, v in value.items()}
    if isinstance(value, list):
        return np.array(_numbers(value), dtype=np.float64)
    return value
