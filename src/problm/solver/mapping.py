"""Results as SciPy's `OptimizeResult`: a mapping of SciPy's fields, and an instance of that class.

Deriving from `scipy.optimize.OptimizeResult` would import `scipy.optimize`, which takes longer than most fits. Only
code that has imported it can ask ``isinstance(result, OptimizeResult)``, and Python then reads ``__class__`` of the
object. Once `scipy.optimize` is imported, that is a class derived from both. ``type(result)`` does not change.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, MutableMapping
from functools import lru_cache
from typing import Any

FIELDS = ("x", "cost", "fun", "jac", "grad", "optimality", "active_mask", "nfev", "njev", "status", "message",
          "success")  # fmt: skip
"""Fields of SciPy's least_squares, in its order."""


class ScipysResult(MutableMapping[str, Any]):
    """SciPy's fields by key as well as by attribute, and anything else that the user adds."""

    __eq__ = object.__eq__  # fields are arrays, and those computed on access are new objects each time
    __hash__ = None  # type: ignore[assignment]  # as in SciPy

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        theirs = getattr(sys.modules.get("scipy.optimize"), "OptimizeResult", None)
        return type(self) if theirs is None else _both(type(self), theirs)

    def own(self) -> tuple[str, ...]:
        """Names that the user added."""
        known = type(self).__dataclass_fields__  # type: ignore[attr-defined]
        return tuple(name for name in self.__dict__ if name not in known)

    def __iter__(self) -> Iterator[str]:
        return iter((*FIELDS, *self.own()))

    def __len__(self) -> int:
        return len(FIELDS) + len(self.own())

    def __contains__(self, name: object) -> bool:
        return name in FIELDS or name in self.own()

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        return getattr(self, name)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __delitem__(self, name: str) -> None:
        if name in FIELDS:
            raise TypeError(f"{name!r} is part of every result and cannot be deleted")
        if name not in self:
            raise KeyError(name)
        delattr(self, name)


@lru_cache(maxsize=16)
def _both(ours: type, theirs: type) -> type:
    """A class derived from both, whose constructor makes objects of ours."""

    def make(cls: type, *args: Any, **kwargs: Any) -> Any:
        return ours(*args, **kwargs)

    return type(ours)(ours.__name__, (ours, theirs), {"__new__": make, "__module__": ours.__module__})
