"""Results of full passes since the last state of a checkpoint.

A pass over very many residuals is too expensive to lose. Iterations are deterministic: after a crash the last one is
repeated from its beginning, but finished passes are answered from the journal, and the interrupted pass continues from
its last note. Problems note their passes group by group: the sums over the groups of rows so far, in any form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ..linalg.normal import Normal

Theta = Any
Found = TypeVar("Found", Normal, float)


class Journal:
    """Passes since the last state.

    Parameters
    ----------
    write : called when there is something new; writes it if a write is due.
    """

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write
        self._ended: list[dict[str, Any]] = []
        self._pass: dict[str, Any] | None = None
        self._replayed: list[dict[str, Any]] = []
        self._left: dict[str, Any] | None = None

    def begin(self) -> None:
        """Forget all passes after a new state was taken; passes to be replayed are kept."""
        self._ended, self._pass = [], None

    def run(self, kind: str, theta: Theta, compute: Callable[[], Found]) -> Found:
        """Return the sums of a pass at a point, computed or from the journal."""
        if self._replayed and _is(self._replayed[0], kind, theta):
            known = self._replayed.pop(0)
            self._ended.append(known)
            found: Found = known["found"]
            return found
        self._replayed = []
        if self._left is not None and not _is(self._left, kind, theta):
            self._left = None
        self._pass = {"kind": kind, "theta": theta, "groups": 0, "sums": None}
        try:
            value = compute()
        finally:
            under_way, self._pass, self._left = self._pass, None, None
        self._ended.append({"kind": kind, "theta": under_way["theta"], "found": value})
        self._write()
        return value

    def resume(self, form: str) -> tuple[int, Any]:
        """Groups of the present pass that are done, and their sums; (0, None) outside of one and at its beginning.

        ``form`` is how the problem notes sums: ``"sum"`` of all groups so far, a list of ``"groups"``, or a list of
        ``"levels"``, pairs (level, sum of 2^level groups) with descending levels. Sums in another form are ignored.
        """
        if self._pass is None or self._left is None or not _has_form(form, self._left["groups"], self._left["sums"]):
            return 0, None
        return self._left["groups"], self._left["sums"]

    def note(self, groups: int, sums: Any) -> None:
        """Note the number of finished groups of the present pass. ``sums`` must not be changed afterwards."""
        if self._pass is not None:
            self._pass["groups"], self._pass["sums"] = groups, sums
            self._write()

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"ended": list(self._ended), "pass": None if self._pass is None else dict(self._pass)}

    def restore(self, state: dict[str, Any]) -> None:
        """Replay the passes of `state`."""
        self._replayed, self._left = list(state["ended"]), state["pass"]


def _is(noted: dict[str, Any], kind: str, theta: Theta) -> bool:
    return bool(noted["kind"] == kind and same(noted["theta"], theta))


def _has_form(form: str, groups: int, sums: Any) -> bool:
    if form == "sum":
        return groups > 0 and not isinstance(sums, (list, tuple))
    if not isinstance(sums, list) or any(isinstance(s, tuple) != (form == "levels") for s in sums):
        return False
    if form == "groups":
        return len(sums) == groups
    levels = [level for level, _ in sums]
    return sum(1 << level for level in levels) == groups and levels == sorted(set(levels), reverse=True)


def same(a: Any, b: Any) -> bool:
    """Whether two nested values of arrays, numbers and text are equal; NaN equals NaN."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        exact = isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape
        return exact and a.tobytes() == b.tobytes()
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return bool(a == b) or (a != a and b != b)
