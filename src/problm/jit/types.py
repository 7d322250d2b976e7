"""Types of compiled functions, written as in Numba but without loading it.

``float64[:, ::1]`` is a contiguous array, ``void(float64[::1], int64)`` a signature. Each has a short text, which
identifies code compiled ahead of time and serves to check arguments, and knows Numba's own type.

>>> void(float64[:, ::1], int64)
v:A2dCwl
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Type:
    """A type. Indexing it gives an array type, calling it a signature with this type as the result."""

    code: str
    """Text of the type: a letter for a scalar; ``A``, dimensions, item, layout and ``w`` or ``r`` (read only) for an
    array; the items in brackets for a tuple."""

    def __getitem__(self, layout: Any) -> Type:
        axes = layout if isinstance(layout, tuple) else (layout,)
        return Array(self, len(axes), "C" if axes[-1].step == 1 else "A")

    def __call__(self, *args: Type) -> Signature:
        return Signature(self, args)

    def __repr__(self) -> str:
        return self.code

    @cached_property
    def numba(self) -> Any:
        """Numba's type."""
        from numba import types

        if self.code[0] == "A":
            item = Type(self.code[2])
            return types.Array(item.numba, int(self.code[1]), self.code[3], readonly=self.code[4] == "r")
        if self.code[0] == "(":
            return types.Tuple([item.numba for item in _items(self.code[1:-1])])
        return getattr(types, _NAMES[self.code])


@dataclass(frozen=True)
class Signature:
    """Types of a function's result and arguments."""

    return_type: Type
    args: tuple[Type, ...]

    @cached_property
    def code(self) -> str:
        """Its text."""
        return f"{self.return_type.code}:{''.join(t.code for t in self.args)}"

    def __repr__(self) -> str:
        return self.code

    @cached_property
    def numba(self) -> Any:
        """Numba's signature."""
        return self.return_type.numba(*(t.numba for t in self.args))


def Array(item: Type, ndim: int, layout: str, readonly: bool = False) -> Type:
    """Type of an array of ``ndim`` dimensions; the layout is C (contiguous, by rows) or A (any)."""
    return Type(f"A{ndim}{item.code}{layout}{'r' if readonly else 'w'}")


def Tuple(items: Any) -> Type:
    """Type of a tuple of these types."""
    return Type(f"({''.join(t.code for t in items)})")


def UniTuple(item: Type, count: int) -> Type:
    """Type of a tuple of ``count`` items of one type."""
    return Tuple([item] * count)


def signature(code: str) -> Signature:
    """The signature with this text."""
    result, _, args = code.partition(":")
    return Signature(Type(result), tuple(_items(args)))


def _items(codes: str) -> list[Type]:
    items, at = [], 0
    while at < len(codes):
        end = at + 1
        if codes[at] == "A":
            end = at + 5
        elif codes[at] == "(":
            while codes[at:end].count("(") > codes[at:end].count(")"):
                end += 1
        items.append(Type(codes[at:end]))
        at = end
    return items


_NAMES = {
    "v": "void", "?": "boolean", "d": "float64", "f": "float32", "l": "int64", "i": "int32", "B": "uint8",
    "H": "uint16", "Q": "uint64",
}  # fmt: skip
void, boolean, float64, float32, int64, int32, uint8, uint16, uint64 = map(Type, _NAMES)
