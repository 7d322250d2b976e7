"""Checks of the content of a checkpoint for type, shape and range, before any of it is used.

A state that was tampered with fails here with a clear error, and not in the middle of a solve or in compiled code.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from ...linalg.normal import Normal
from ..run import Run

PASSES = {"linearize": Normal, "cost": float}
"""Kinds of passes in a journal, and the types of their results."""


def check(run: Run, state: dict[str, Any]) -> None:
    """Refuse a state that no run of this kind can have, by a TypeError or whatever its wrong shape raises."""
    batch, n, dim = state["batch"], run.problem.n, run.problem.dim
    size, known, (lo, hi), counters = batch["size"], batch["known"], batch["held"], batch["counters"]
    trail = state["trail"]
    sound = (
        all(type(v) is int and v >= 0 for v in [size, known, lo, hi, *counters])
        and 1 <= size <= n and known <= n and lo <= hi <= n and len(counters) == 4
        and _like(batch["theta"], run.start)
        and (batch["normal"] is None or _found(batch["normal"], Normal, n, dim))
        and (trail is None or (len(trail) == 2 and all(_is_vector(v, dim) for v in trail)))
        and len(state["fall"]) == 2 and all(map(_is_number, state["fall"]))
        and _is_number(state["seconds"]) and 0.0 <= state["seconds"] < math.inf
        and (state["probe"] is None or _is_number(state["probe"]))
        and _is_history(state["history"], run)
        and _is_journal(state["journal"], run)
    )  # fmt: skip
    if not sound:
        raise TypeError("numbers out of range")


def check_memory(run: Run, target: Any, values: dict[str, Any]) -> None:
    """Refuse values that do not have the declared types of the fields of a policy, damping rule or similar."""
    for field in dataclasses.fields(target):
        if field.name in values and not _is_declared(values[field.name], str(field.type), run):
            raise TypeError(f"{field.name} must be {field.type}")


def _is_declared(value: Any, kind: str, run: Run) -> bool:
    if value is None:
        return "None" in kind or "Any" in kind
    if isinstance(value, np.ndarray):
        # As long as the diagonal of the Hessian, or one number per block of a batch.
        here = run.problem.dim if "None" in kind else len(value)
        return "Any" in kind or ("Array" in kind and _is_vector(value, here) and len(value) <= run.problem.n + here)
    if isinstance(value, (bool, int, float)):
        kinds = {bool: ("bool",), int: ("int", "float"), float: ("float",)}[type(value)]
        return "Any" in kind or any(k in kind for k in kinds)
    return "Any" in kind and _like(value, run.start)


def _is_history(columns: dict[str, list[Any]], run: Run) -> bool:
    """Whether columns have the same length and the declared types; the path may be empty."""
    kinds = {"list[int]": int, "list[float]": float, "list[str]": str}
    lengths = set()
    for field in dataclasses.fields(run.history):
        column = columns[field.name]
        if not isinstance(column, list):
            return False
        if field.name != "path":
            lengths.add(len(column))
            if not all(type(v) is kinds[str(field.type)] for v in column):
                return False
        elif not all(_like(point, run.start) for point in column):
            return False
    return len(lengths) == 1


def _is_journal(journal: dict[str, Any], run: Run) -> bool:
    n, dim, passing = run.problem.n, run.problem.dim, journal["pass"]
    ended = all(
        _like(e["theta"], run.start) and e["kind"] in PASSES and _found(e["found"], PASSES[e["kind"]], n, dim)
        for e in journal["ended"]
    )
    return ended and isinstance(journal["ended"], list) and (
        passing is None
        or (
            _like(passing["theta"], run.start) and passing["kind"] in PASSES
            and type(passing["groups"]) is int and 0 <= passing["groups"] <= n
            and (passing["groups"] == 0 or _sums(passing["sums"], PASSES[passing["kind"]], n, dim))
        )
    )  # fmt: skip


def _found(value: Any, kind: type, n: int, dim: int) -> bool:
    """Whether this is a result of a pass of this kind."""
    if kind is float:
        return type(value) is float
    return isinstance(value, Normal) and 0 <= value.count <= n and len(value.gradient) == dim


def _sums(value: Any, kind: type, n: int, dim: int) -> bool:
    """Whether these are sums in one of the forms that problems record.

    The forms are a sum of all rows so far, one sum per group, or sums with their levels in a tree.
    """
    if isinstance(value, np.ndarray):  # cost, gradient and the lower triangle of the Hessian, one after the other
        return kind is Normal and _is_vector(value, 1 + dim + dim * (dim + 1) // 2)
    if isinstance(value, list):
        return all(_sums(v, kind, n, dim) for v in value)
    if isinstance(value, tuple):
        return len(value) == 2 and type(value[0]) is int and 0 <= value[0] < 64 and _sums(value[1], kind, n, dim)
    return _found(value, kind, n, dim)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_vector(value: Any, size: int) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float64 and value.shape == (size,)


def _like(a: Any, b: Any) -> bool:
    """Whether a point has the shape of another."""
    if isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and a.shape == b.shape and a.dtype == b.dtype
    if isinstance(b, dict):
        return isinstance(a, dict) and a.keys() == b.keys() and all(_like(a[k], b[k]) for k in b)
    if isinstance(b, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(_like, a, b))
    return type(a) is type(b)
