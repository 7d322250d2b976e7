"""Checkpoints: a solve that was killed goes on from its last one, and ends with the same bits.

What a solve knows between two iterations is little: the point, the size of the batch, the sums at that point where they
are known, the memories of damping, growth and termination, counters and the history; and where the random order was
cut. The order itself is replayed: with every cut the state of the random generator is kept from which it was drawn.
Costs of single rows are not stored but computed again by the same calls, so the file stays small: a checkpoint is only
taken where that gives the same bits, after an accepted step or on all residuals.

The file is a ``.npz`` of plain arrays: numbers in JSON (which keeps all digits of a float) and arrays beside it.
Nothing in it can run code, and it is replaced atomically.
"""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
import time
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..support.files import write_atomically
from ..support.npy import load_arrays
from .run import Run

FORMAT = "problm.checkpoint"
VERSION = 4
R = TypeVar("R", bound=Run)
_ARRAY = "#array"
_TUPLE = "#tuple"


class Checkpoint:
    """The checkpoint of a solve: a path, and how often to write it.

    Parameters
    ----------
    path : where to keep it.
    every : seconds between two writes at least; 0 writes after every accepted step.
    """

    def __init__(self, path: str | os.PathLike[str], every: float) -> None:
        self.path, self.every = os.fspath(path), every
        self._last = time.perf_counter()

    def note(self, run: Run) -> None:
        """Write a checkpoint if one is due and the batch can be brought back to the same bits."""
        if run.batch.resumable and time.perf_counter() - self._last >= self.every:
            write_atomically(self.path, _pack(_state_of(run)))
            self._last = time.perf_counter()

    def load(self) -> dict[str, Any] | None:
        """The state on disk, None if there is none; an OSError now rather than later if none can be written."""
        if not os.path.exists(self.path):
            folder = os.path.dirname(self.path) or "."
            if not os.path.isdir(folder):
                raise FileNotFoundError(errno.ENOENT, "there is no folder for the checkpoint", folder)
            if not os.access(folder, os.W_OK):
                raise PermissionError(errno.EACCES, "no checkpoint can be written to the folder", folder)
            return None
        try:
            state = _unpack(self.path)
        except (ValueError, KeyError, OSError) as error:
            raise ValueError(f"checkpoint={self.path!r} is not a checkpoint: move it away to start anew") from error
        if state.get("format") != FORMAT or state.get("version") != VERSION:
            raise ValueError(f"checkpoint={self.path!r} was written by another version: move it away to start anew")
        return state

    def resumed(self, run: R) -> R:
        """The run, or one that goes on where the checkpoint on disk was taken."""
        state = self.load()
        if state is not None:
            if state["restarted"]:
                run = run.again()
            self.restore(run, state)
        return run

    def restore(self, run: Run, state: dict[str, Any]) -> None:
        """Put a run that has not begun where the state was taken."""
        found, here = state["solve"], _fingerprint(run)
        for name, value in here.items():
            if not _same(found.get(name), value):
                raise ValueError(
                    f"checkpoint={self.path!r} belongs to another solve: its {name} is {found.get(name)!r}, here it is "
                    f"{value!r}; move it away to start anew"
                )
        order = run.problem.random_order()
        if order is not None and state["order"] is not None:
            order.restore(state["order"])
        if state["refined"]:
            run.refined = run.problem.refine_derivatives()
        run.keep_all_directions = state["keep_all_directions"]
        for part, values in state["memory"].items():
            target = getattr(run, part)
            for name, value in values.items():
                if not hasattr(target, name):
                    raise ValueError(
                        f"checkpoint={self.path!r} was written by another version: move it away to start anew"
                    )
                setattr(target, name, value)
        run.batch.restore(state["batch"])
        if state["trail"] is not None:
            run.last = (run.batch.theta, *state["trail"])
        for name, values in state["history"].items():
            getattr(run.history, name)[:] = values
        run.first_costs = state["first_costs"]
        run.began = time.perf_counter() - state["seconds"]
        if state["rng"] is not None:
            run.generator().bit_generator.state = state["rng"]
        self._check_data(run, state["probe"])

    def _check_data(self, run: Run, probe: float | None) -> None:
        now = _probe(run)
        if probe is not None and now is not None and not np.isclose(now, probe, rtol=1e-9, equal_nan=True):
            raise ValueError(
                f"checkpoint={self.path!r}: the data or the residual function changed since it was written "
                f"(cost of the first rows {probe!r} then, {now!r} now); move it away to start anew"
            )


def _state_of(run: Run) -> dict[str, Any]:
    order = run.problem.random_order()
    return {
        "format": FORMAT,
        "version": VERSION,
        "solve": _fingerprint(run),
        "restarted": run.restarted,
        "refined": run.refined,
        "keep_all_directions": run.keep_all_directions,
        "trail": run.last[1:] if run.last is not None and run.last[0] is run.batch.theta else None,
        "order": None if order is None else order.state(),
        "memory": {
            part: _memory(getattr(run, part)) for part in ("damping", "growth", "termination", "policy", "information")
        },
        "batch": run.batch.state(),
        "history": {f.name: list(getattr(run.history, f.name)) for f in dataclasses.fields(run.history)},
        "first_costs": run.first_costs,
        "seconds": time.perf_counter() - run.began,
        "rng": None if run.rng is None else run.rng.bit_generator.state,
        "probe": _probe(run),
    }


def _fingerprint(run: Run) -> dict[str, Any]:
    return {
        "n": run.problem.n,
        "dim": run.problem.dim,
        "start": run.start,
        "acceptance": type(run.policy).__name__,
        "damping": type(run.damping).__name__,
    }


def _probe(run: Run) -> float | None:
    """Mean cost of the first batch at the point: tells whether the data are the same."""
    order = run.problem.random_order()
    if order is None or run.first >= run.problem.n or order.drawn < run.first:
        return None
    return float(np.mean(run.problem.costs(run.batch.theta, 0, run.first)))


def _memory(part: Any) -> dict[str, Any]:
    """What a policy, damping rule or the like remembers: its numbers, and whatever has a private name."""
    if not dataclasses.is_dataclass(part):
        raise TypeError(f"checkpoint: {type(part).__name__} must be a dataclass for its state to be saved")
    values = {f.name: getattr(part, f.name) for f in dataclasses.fields(part)}
    scalars = (bool, int, float, type(None))
    return {name: value for name, value in values.items() if name.startswith("_") or isinstance(value, scalars)}


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def _pack(state: dict[str, Any]) -> bytes:
    arrays: dict[str, NDArray[Any]] = {}
    text = json.dumps(_encode(state, arrays))
    file = io.BytesIO()
    np.savez(file, state=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def _unpack(path: str) -> dict[str, Any]:
    arrays = load_arrays(path)
    state = _decode(json.loads(arrays["state"].tobytes().decode()), arrays)
    if not isinstance(state, dict):
        raise ValueError("no state")
    return state


def _encode(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {_ARRAY: name}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tuple):
        return {_TUPLE: [_encode(v, arrays) for v in value]}
    if isinstance(value, list):
        return [_encode(v, arrays) for v in value]
    if isinstance(value, dict):
        return {str(name): _encode(v, arrays) for name, v in value.items()}
    raise TypeError(
        f"checkpoint: a {type(value).__name__} cannot be saved; points must be arrays, or tuples, lists, dicts of them"
    )


def _decode(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    if isinstance(value, dict):
        if _ARRAY in value:
            return arrays[value[_ARRAY]]
        if _TUPLE in value:
            return tuple(_decode(v, arrays) for v in value[_TUPLE])
        return {name: _decode(v, arrays) for name, v in value.items()}
    if isinstance(value, list):
        return [_decode(v, arrays) for v in value]
    return value
