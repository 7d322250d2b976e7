"""Checkpoints: a killed solve resumes from its last one and ends with the same bits.

The state of a solve between two iterations is small: the point, the batch size, the sums at that point if they are
known, the memories of damping, growth and termination, counters, the history, and the positions where the random order
was cut. The order itself is replayed: the state of the random generator is kept for every cut. Costs of single rows are
not stored but computed again by the same calls, which keeps the file small. A state is only taken where that gives the
same bits: after an accepted step or on all residuals. Full passes since then, finished or in progress, are in the
journal (`problm.solver.journal`), so that a checkpoint can be written in the middle of a pass.

A checkpoint belongs to its problem: the fingerprint of all rows, the start, the relevant options, bounds and versions
must be the same, and the cost at its point must be reproduced. Everything else in it is checked for type and range. A
solve with a checkpoint writes no other file than the one that the caller named.
"""

from __future__ import annotations

import copy
import dataclasses
import errno
import os
import time
from typing import Any, TypeVar

import numpy as np

from ...support.files import write_atomically
from ...support.version import __version__
from ..journal import Journal, same
from ..run import Run
from .checks import check, check_memory
from .file import pack, unpack

FORMAT = "problm.checkpoint"
VERSION = 5
R = TypeVar("R", bound=Run)
_PARTS = ("damping", "growth", "termination", "policy", "information")
"""Parts of a run that have a memory."""
_OPTIONS = ("ftol", "xtol", "gtol", "initial_batch", "max_batch", "accuracy", "confidence", "nan_policy")
"""Options that decide where a solve ends; limits of time and iterations may change from one run to the next."""
_DAMAGE = (KeyError, TypeError, AttributeError, IndexError, OverflowError)
"""Errors that a damaged state raises when it is used."""


class Checkpoint:
    """The checkpoint of a solve: a path, and how often to write it.

    Parameters
    ----------
    path : path of the file.
    every : smallest number of seconds between two writes; 0 writes after every accepted step and group of a pass.
    """

    def __init__(self, path: str | os.PathLike[str], every: float) -> None:
        self.path, self.every = os.fspath(path), every
        self._last = time.perf_counter()
        self._state: dict[str, Any] | None = None
        self._solve: dict[str, Any] = {}
        self._run: Run | None = None
        self._journal = Journal(self._write_if_due)

    def note(self, run: Run) -> None:
        """Take the state of a run between two iterations; write it if that is due before the end of the next pass."""
        run.batch.journal = self._journal
        if run.batch.resumable:
            self._run, self._state = run, _state_of(run, self._solve)
            self._journal.begin()
            self._write_if_due(run.batch.seconds(run.batch.size))

    def _write_if_due(self, ahead: float = 0.0) -> None:
        if self._state is not None and time.perf_counter() + ahead - self._last >= self.every:
            if "probe" not in self._state:
                assert self._run is not None
                self._state["probe"] = _probe(self._run, self._state["batch"]["theta"])
            write_atomically(self.path, pack({**self._state, "journal": self._journal.state()}))
            self._last = time.perf_counter()

    def load(self) -> dict[str, Any] | None:
        """Return the state on disk, None if there is none; raise OSError early if the file cannot be written."""
        if not os.path.exists(self.path):
            folder = os.path.dirname(self.path) or "."
            if not os.path.isdir(folder):
                raise FileNotFoundError(errno.ENOENT, "the folder of the checkpoint does not exist", folder)
            if not os.access(folder, os.W_OK):
                raise PermissionError(errno.EACCES, "no checkpoint can be written to the folder", folder)
            return None
        try:
            state = unpack(self.path)
        except (ValueError, KeyError, OSError) as error:
            raise self._not_one() from error
        if state.get("format") != FORMAT or state.get("version") != VERSION:
            raise ValueError(f"checkpoint={self.path!r} was written by another version: move it away to start anew")
        return state

    def resumed(self, run: R) -> R:
        """Return the run, resumed from the checkpoint on disk if there is one."""
        state = self.load()
        self._solve = _fingerprint(run)
        if state is not None:
            try:
                if state["restarted"]:
                    run = run.again()
                self.restore(run, state)
            except (ValueError, *_DAMAGE) as error:
                if isinstance(error, ValueError) and self.path in str(error):
                    raise
                raise self._not_one() from error
        run.problem.keep_journal(self._journal)
        return run

    def restore(self, run: Run, state: dict[str, Any]) -> None:
        """Restore the state in a run that has not begun."""
        self._compare(state["solve"])
        check(run, state)
        order = run.problem.random_order()
        if order is not None and state["order"] is not None:
            order.restore(state["order"])
        if state["refined"]:
            run.refined = run.problem.refine_derivatives()
        run.keep_all_directions = bool(state["keep_all_directions"])
        for part in _PARTS:
            target, values = getattr(run, part), state["memory"][part]
            if values.keys() != _memory(target).keys():
                raise ValueError(f"checkpoint={self.path!r} was written by another version: move it away to start anew")
            check_memory(run, target, values)
            for name, value in values.items():
                setattr(target, name, value)
        run.batch.restore(state["batch"])
        if state["trail"] is not None:
            run.last = (run.batch.theta, *state["trail"])
        for field in dataclasses.fields(run.history):
            getattr(run.history, field.name)[:] = state["history"][field.name]
        run.fall = state["fall"]
        run.began = time.perf_counter() - state["seconds"]
        if state["rng"] is not None:
            run.generator().bit_generator.state = state["rng"]
        if self._vouched(run, state):
            self._journal.restore(state["journal"])

    def _compare(self, found: dict[str, Any]) -> None:
        """Refuse the checkpoint of another solve. Files may have been moved, so their rows are left to `_vouched`."""
        for name, value in self._solve.items():
            if name not in ("rows", "files") and not same(found.get(name), value):
                raise ValueError(
                    f"checkpoint={self.path!r} belongs to another solve: its {name} is {_short(found.get(name))}, here "
                    f"it is {_short(value)}; move it away to start anew"
                )
        if not same(found.get("rows"), self._solve.get("rows")):
            raise ValueError(f"checkpoint={self.path!r} was written for other data; move it away to start anew")

    def _vouched(self, run: Run, state: dict[str, Any]) -> bool:
        """Whether all rows are known to be those of the sums; raise ValueError if they are not.

        The cost at the point must be reproduced: for the first batch, and for all rows if nothing else shows that they
        are the same, or if there was no smaller batch to show that the model is.
        """
        theta, probe = state["batch"]["theta"], state["probe"]
        now = _probe(run, theta)
        self._compare_costs(probe, now, "the first rows")
        files = self._solve.get("files")
        known = "rows" in self._solve or (files is not None and same(state["solve"].get("files"), files))
        if known and now is not None:
            return True
        history = state["history"]
        told = history["decision"] and history["batch_size"][-1] == run.problem.n and run.batch.full
        if told and "grow" not in history["decision"][-1]:
            self._compare_costs(history["cost"][-1], run.problem.cost(theta), "all rows")
            return True
        if not known and run.batch.full:
            run.batch.move(theta)  # compute unverified sums again
        return known

    def _compare_costs(self, then: float | None, now: float | None, whose: str) -> None:
        if then is not None and now is not None and not np.isclose(now, then, rtol=1e-8, equal_nan=True):
            raise ValueError(
                f"checkpoint={self.path!r}: the data or the residual function changed since it was written "
                f"(cost of {whose} {then!r} then, {now!r} now); move it away to start anew"
            )

    def _not_one(self) -> ValueError:
        return ValueError(f"checkpoint={self.path!r} is not a checkpoint: move it away to start anew")


def _state_of(run: Run, solve: dict[str, Any]) -> dict[str, Any]:
    order = run.problem.random_order()
    return {
        "format": FORMAT,
        "version": VERSION,
        "solve": solve,
        "restarted": run.restarted,
        "refined": run.refined,
        "keep_all_directions": run.keep_all_directions,
        "trail": run.last[1:] if run.last is not None and run.last[0] is run.batch.theta else None,
        "order": None if order is None else order.state(),
        "memory": {part: copy.deepcopy(_memory(getattr(run, part))) for part in _PARTS},
        "batch": run.batch.state(),
        "history": {f.name: list(getattr(run.history, f.name)) for f in dataclasses.fields(run.history)},
        "fall": run.fall,
        "seconds": time.perf_counter() - run.began,
        "rng": None if run.rng is None else run.rng.bit_generator.state,
    }


def _fingerprint(run: Run) -> dict[str, Any]:
    """Identity of this solve, before its first step."""
    problem, space, options = run.problem, run.space, run.options
    return {
        "problem": type(problem).__name__,
        "n": problem.n,
        "dim": problem.dim,
        "start": run.start,
        "components": problem.components,
        "acceptance": _settings(run.policy),
        "damping": _settings(run.damping),
        "options": {name: getattr(options, name) for name in _OPTIONS},
        "seed": options.rng if isinstance(options.rng, int) else None,
        "bounds": [space.lower, space.upper, space.fixed, space.x_scale],
        "versions": {"problm": __version__, "numpy": np.__version__},
        **problem.fingerprint(),
    }


def _settings(part: Any) -> dict[str, Any]:
    """Name and settings of a policy or damping rule."""
    values = {f.name: getattr(part, f.name) for f in dataclasses.fields(part) if not f.name.startswith("_")}
    kept = (bool, int, float, str, type(None), np.ndarray, list, tuple)
    return {"type": type(part).__name__} | {name: v for name, v in values.items() if isinstance(v, kept)}


def _probe(run: Run, theta: Any) -> float | None:
    """Mean cost of the first batch at a point, to check that rows and model are the same."""
    order = run.problem.random_order()
    if order is None or run.first >= run.problem.n or order.drawn < run.first:
        return None
    return float(np.mean(run.problem.costs(theta, 0, run.first)))


def _memory(part: Any) -> dict[str, Any]:
    """Memory of a policy, damping rule or similar: its numbers, and all private attributes."""
    if not dataclasses.is_dataclass(part):
        raise TypeError(f"checkpoint: {type(part).__name__} must be a dataclass for its state to be saved")
    values = {f.name: getattr(part, f.name) for f in dataclasses.fields(part)}
    scalars = (bool, int, float, type(None))
    return {name: value for name, value in values.items() if name.startswith("_") or isinstance(value, scalars)}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."
