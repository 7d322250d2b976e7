"""Expressions as lists that a file can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .expression import NUMPY, Expression, constant, make, parameter, variable
from .node import topological

MOST_NODES = 10_000
"""Largest number of nodes of an expression that is read."""


def to_nodes(e: Expression) -> list[list[Any]]:
    """The expression as a list of nodes, each ``[operation, number]`` or ``[operation, places of arguments...]``.

    Examples
    --------
    >>> to_nodes(parameter(0) * variable(0))
    [['parameter', 0], ['variable', 0], ['mul', 0, 1]]
    """
    order = topological([e])
    place = {node.serial: k for k, node in enumerate(order)}
    return [[n.op, *([place[a.serial] for a in n.args] if n.args else [n.value])] for n in order]


def from_nodes(nodes: Sequence[Sequence[Any]], parameters: int, variables: int) -> Expression:
    """Inverse of `to_nodes`; raise ValueError if the nodes are not an expression of so many names."""
    leaves = {"parameter": (parameter, parameters), "variable": (variable, variables)}
    made: list[Expression] = []
    if len(nodes) > MOST_NODES:
        raise ValueError(f"an expression of {len(nodes)} nodes; at most {MOST_NODES} are read")
    for op, *rest in nodes:
        if op == "constant" and len(rest) == 1 and type(rest[0]) in (int, float):
            made.append(constant(float(rest[0])))
        elif op in leaves and len(rest) == 1 and type(rest[0]) is int and 0 <= rest[0] < leaves[op][1]:
            made.append(leaves[op][0](rest[0]))
        elif op in NUMPY and all(isinstance(k, int) and 0 <= k < len(made) for k in rest):
            made.append(make(op, *(made[k] for k in rest)))
        else:
            raise ValueError(f"{op!r} with {rest!r} is not part of an expression")
    if not made:
        raise ValueError("an expression has at least one node")
    return made[-1]
