"""Results as JSON: a long-lived format for any language; loading it runs no code.

Numbers keep all their digits (`problm.report.serialize`). The problem itself (the user's data and functions) is not
saved, nor is the path of ``keep_path``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..report.serialize import array, count, number, plain, point
from ..support.files import open_regular, refuse_holes, write_atomically
from ..support.memory import as_bytes
from ..support.version import __version__

FORMAT = "problm.result"
VERSION = 1
MAX_BYTES = 1 << 28
_TEXT_TO_MEMORY = 40
"""Largest number of bytes in memory per byte of JSON; ``[],`` is the worst case."""
_NUMBERS = ("cost", "optimality", "cosine", "residual_passes", "jacobian_passes", "seconds")
_COUNTS = ("n", "batch_size", "nfev", "njev", "residuals_per_block")


def to_dict(result: Any) -> dict[str, Any]:
    """A `problm.Result` as numbers, text, lists and dicts only; `problm.Result.from_dict` is the inverse."""
    if not isinstance(result.hessian, np.ndarray):
        raise ValueError(
            "a result of many parameters, whose hessian is sparse, is not saved as JSON: pickle it, or save x"
        )
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
        "absolute": bool(result.absolute),
        "row_wise": result.row_wise,
        "f_scale": result.f_scale,
        "left": plain(result.left),
        "grad": plain(result.grad),
        "hessian": plain(result.hessian),
        "covariance_root": plain(result.covariance_root),
        "robust_covariance": plain(result._sandwich()),
        "distance": plain(float(result.distance)),
        "certificate": result.certificate,
        "active_mask": plain(result.active_mask),
        "fixed": plain(result.fixed),
        "history": plain(result.history.as_dict()),
    }


def fields_of(data: Mapping[str, Any], statuses: Collection[str]) -> dict[str, Any]:
    """Fields of the result that `to_dict` saved: ``status`` as its name, ``history`` as its columns."""
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise ValueError(f"this is not a saved result: 'format' must be {FORMAT!r}")
    version = data.get("version")
    if version != VERSION:
        raise ValueError(f"the result was saved in version {version!r} of the format; this ProBLM reads {VERSION}")
    try:
        return _fields(data, statuses)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"the saved result is damaged: {what}") from None


def _fields(data: Mapping[str, Any], statuses: Collection[str]) -> dict[str, Any]:
    if data["status"] not in statuses:
        raise ValueError(f"unknown status {data['status']!r}")
    grad = array(data["grad"], 1, "grad")
    d = len(grad)
    hessian = array(data["hessian"], 2, "hessian")
    if hessian.shape != (d, d):
        raise ValueError(f"hessian has shape {hessian.shape}, expected ({d}, {d})")
    root, robust, fixed = data["covariance_root"], data.get("robust_covariance"), data["fixed"]
    names = tuple(str(name) for name in data["names"])
    if names and len(names) != d:
        raise ValueError(f"{len(names)} names for {d} parameters")
    saved = data["history"]
    history: dict[str, list[Any]] = {
        "seconds": [number(v) for v in saved["seconds"]],
        "batch_size": [count(v) for v in saved["batch_size"]],
        "cost": [number(v) for v in saved["cost"]],
        "damping": [number(v) for v in saved["damping"]],
        "decision": [str(v) for v in saved["decision"]],
        "residual_passes": [number(v) for v in saved["residual_passes"]],
        "jacobian_passes": [number(v) for v in saved["jacobian_passes"]],
    }
    if len({len(column) for column in history.values()}) != 1:
        raise ValueError("the columns of history differ in length")
    return {
        "x": point(data["x"]),
        "status": data["status"],
        "message": str(data["message"]),
        "grad": grad,
        "hessian": hessian,
        "singular": bool(data["singular"]),
        "history": history,
        "active_mask": _signs(_sized(data["active_mask"], d, 1, "active_mask")),
        "covariance_root": None if root is None else _sized(root, d, 2, "covariance_root"),
        "robust_covariance": None if robust is None else _sized(robust, d, 2, "robust_covariance"),
        "distance": number(data.get("distance", "NaN")),
        "certificate": str(data.get("certificate", "none")),
        "fixed": None if fixed is None else _sized([int(v) for v in fixed], d, 1, "fixed").astype(bool),
        "names": names,
        "absolute": bool(data.get("absolute", False)),
        "row_wise": None if data.get("row_wise") is None else bool(data["row_wise"]),
        "f_scale": None if data.get("f_scale") is None else number(data["f_scale"]),
        "left": np.nan if data.get("left") is None else number(data["left"]),
        **{name: number(data[name]) for name in _NUMBERS},
        **{name: count(data[name]) for name in _COUNTS},
    }


def _sized(values: Any, d: int, ndim: int, name: str) -> NDArray[np.float64]:
    """An array from a file with a row for each of d parameters."""
    found = array(values, ndim, name)
    if len(found) != d or (name == "robust_covariance" and found.shape != (d, d)):
        raise ValueError(f"{name} has shape {found.shape} for {d} parameters")
    return found


def _signs(mask: NDArray[np.float64]) -> NDArray[np.int64]:
    """`Result.active_mask` from a file: -1, 0 or 1 for each parameter."""
    if not np.all(np.isin(mask, (-1, 0, 1))):
        raise ValueError("active_mask must hold only -1, 0 and 1")
    return mask.astype(np.int64)


def save(result: Any, path: str | os.PathLike[str]) -> None:
    """Write a result as JSON atomically."""
    write_atomically(path, json.dumps(to_dict(result), indent=1, allow_nan=False) + "\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file from any source; raise ValueError for anything else.

    The file is not trusted, and its claims (such as a certified fit) are only as good as its author. Memory is limited
    to `_TEXT_TO_MEMORY` times the size of the text.
    """
    limit = min(MAX_BYTES, as_bytes(None) // _TEXT_TO_MEMORY)
    with open_regular(path) as file:
        refuse_holes(file, path)
        text = file.read(limit + 1)
    if len(text) > limit:
        raise ValueError(f"{os.fspath(path)} is too large: at most {limit:,} bytes are read as a result")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
