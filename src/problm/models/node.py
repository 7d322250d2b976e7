"""Nodes of expressions: their content, their order, and their text with as few parentheses as possible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self, TypeVar


class Node:
    """A constant, a parameter, a variable or an operation on other nodes. Equal nodes are identical."""

    __slots__ = ("__weakref__", "args", "op", "parametric", "rowwise", "serial", "value")

    op: str
    args: tuple[Self, ...]
    value: float
    """Value of a constant, index of a parameter or variable, else 0."""
    serial: int
    rowwise: bool
    """Whether the node depends on the data, and so differs from row to row."""
    parametric: bool
    """Whether the node depends on a parameter."""

    def __repr__(self) -> str:
        return f"<expression {to_text(self)}>"


N = TypeVar("N", bound=Node)


def topological(roots: Iterable[N]) -> list[N]:
    """All nodes that the roots are made of, each after its arguments."""
    order: list[N] = []
    seen: set[int] = set()
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node.serial not in seen:
            seen.add(node.serial)
            stack.append((node, True))
            stack.extend((a, False) for a in reversed(node.args) if a.serial not in seen)
    return order


_INFIX = {"add": (" + ", 1), "sub": (" - ", 1), "mul": (" * ", 2), "div": (" / ", 2), "pow": (" ** ", 4),
          "lt": (" < ", 0), "le": (" <= ", 0), "eq": (" == ", 0)}  # fmt: skip


def to_text(e: Node, parameters: Sequence[str] = (), variables: Sequence[str] = ()) -> str:
    """The expression in Python's notation; names default to p0, p1, ... and x0, x1, ..."""
    made: dict[int, tuple[str, int]] = {}
    powers: dict[int, tuple[Node, int]] = {}  # whole powers are products of nodes

    def part(a: Node, least: int) -> str:
        text, strength = made[a.serial]
        return text if strength >= least else f"({text})"

    for node in topological([e]):
        index = int(node.value) if node.op in ("parameter", "variable") else 0
        if node.op == "constant":
            made[node.serial] = (
                repr(node.value) if node.value % 1.0 else f"{node.value:.15g}",
                5 if node.value >= 0 else 1,
            )
        elif node.op == "parameter":
            made[node.serial] = (parameters[index] if index < len(parameters) else f"p{index}", 5)
        elif node.op == "variable":
            made[node.serial] = (variables[index] if index < len(variables) else f"x{index}", 5)
        elif node.op == "neg":
            made[node.serial] = (f"-{part(node.args[0], 2)}", 1)
        elif (power := _power(node, powers)) is not None:
            powers[node.serial] = power
            made[node.serial] = (f"{part(power[0], 5)} ** {power[1]}", 4)
        elif node.op in _INFIX:
            sign, strength = _INFIX[node.op]
            left = part(node.args[0], strength + (node.op == "pow"))
            made[node.serial] = (f"{left}{sign}{part(node.args[1], strength + (node.op != 'pow'))}", strength)
        else:
            made[node.serial] = (f"{node.op}({', '.join(part(a, 0) for a in node.args)})", 5)
    return made[e.serial][0]


def _power(node: Node, known: dict[int, tuple[Node, int]]) -> tuple[Node, int] | None:
    """Base and whole exponent of a product of equal nodes."""
    if node.op != "mul":
        return None
    (left, m), (right, n) = (known.get(a.serial, (a, 1)) for a in node.args)
    return (left, m + n) if left is right else None
