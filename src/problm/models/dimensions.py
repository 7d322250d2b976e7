"""Units of parameters: which power of the units of the variables and of the response each has.

Both sides of a sum have the same units, the argument of an exponential or of a sine has none, products multiply units.
This makes linear equations for the powers. They tell a decay rate from a ratio of two widths even where both occur in
the same places of the formula, so that values to try can be chosen in the units of the data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .node import Node, topological

Array = NDArray[np.float64]
_ALIKE = ("add", "sub", "minimum", "maximum", "hypot")
_COMPARED = ("lt", "le", "eq", "arctan2")
_KEPT = ("neg", "abs", "floor")
_NEAR = 1e-9


def parameter_units(body: Node, d: int, variables: int) -> Array:
    """Powers of the units of the variables and of the response, (d, variables + 1); NaN where they do not follow.

    Examples
    --------
    >>> from .formula import formula
    >>> parameter_units(formula("y ~ a*exp(-(x - m)**2/(2*s**2)) + b*x").body, 4, 1)  # a, m, s, b
    array([[ 0.,  1.],
           [ 1.,  0.],
           [ 1.,  0.],
           [-1.,  1.]])
    """
    # Numbers in a sum usually have no units (1 + u**2), but may have (x - 3): then the first equations contradict. So
    # they do if a rotation mixes the variables, which must then have the same units.
    for alike in (False, True) if variables > 1 else (False,):
        for numbers_have_units in (False, True):
            found = _solved(_equations(body, d, variables, numbers_have_units, alike), d)
            if found is not None:
                return found
    return np.full((d, variables + 1), np.nan)


def _equations(body: Node, d: int, variables: int, numbers_have_units: bool, alike: bool) -> tuple[Array, int]:
    """Rows that must vanish, and the number of unknowns: the first columns are factors of unknown powers, the last
    ``variables + 1`` known powers."""
    nodes = topological([body])
    unknowns = d + sum(n.op == "pow" for n in nodes)
    width, extra = unknowns + variables + 1, d
    units: dict[int, Array] = {}
    equations: list[Array] = []
    for node in nodes:
        args = [units[a.serial] for a in node.args]
        value = np.zeros(width)
        if node.op == "parameter":
            value[int(node.value)] = 1.0
        elif node.op == "variable":
            value[unknowns + (0 if alike else int(node.value))] = 1.0
        elif node.op == "mul":
            value = args[0] + args[1]
        elif node.op == "div":
            value = args[0] - args[1]
        elif node.op == "sqrt":
            value = 0.5 * args[0]
        elif node.op in _KEPT:
            value = args[0]
        elif node.op == "pow":
            if node.args[1].op == "constant":
                value = node.args[1].value * args[0]
            else:
                equations.append(args[1])
                value[extra] = 1.0
                extra += 1
        elif node.op in (*_ALIKE, *_COMPARED, "where"):
            told = [
                u
                for a, u in list(zip(node.args, args, strict=True))[node.op == "where" :]
                if a.op != "constant" or not (numbers_have_units or a.value == 0.0)
            ]
            equations += [u - told[0] for u in told[1:]]
            value = told[0] if told and node.op not in _COMPARED else value
        elif node.op != "constant":
            equations += args
        units[node.serial] = value
    answer = units[body.serial].copy()
    answer[-1] -= 1.0
    return np.array([*equations, answer]), unknowns


def _solved(system: tuple[Array, int], d: int) -> Array | None:
    """The powers; None if the equations contradict each other."""
    rows, unknowns = system
    A, b = rows[:, :unknowns], -rows[:, unknowns:]
    left, sizes, right = np.linalg.svd(A)
    rank = int((sizes > _NEAR * max(1.0, float(sizes.max(initial=0.0)))).sum())
    powers = right[:rank].T @ ((left[:, :rank].T @ b) / sizes[:rank, None])
    if np.abs(A @ powers - b).max(initial=0.0) > 1e-6:
        return None
    free = np.abs(right[rank:, :d]).max(axis=0, initial=0.0) > 1e-6
    return np.where(free[:, None], np.nan, np.round(powers[:d], 6) + 0.0)
