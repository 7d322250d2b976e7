"""Roles of the parameters of a formula, from their positions in it, and values to try for them.

*Linear* parameters multiply a term. Each of the others, the *shape* parameters, has a role: a position on the x axis, a
width, a rate, a frequency, a phase, an exponent; and each role has candidates that follow from the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from . import expression as ex
from .expression import Expression
from .node import topological

Array = NDArray[np.float64]
_WIDTHS = (1 / 300, 1 / 100, 1 / 40, 1 / 16, 1 / 7, 1 / 3, 1.0, 3.0)


@dataclass(frozen=True)
class Shape:
    """The role of a shape parameter and, for a frequency, ``d argument / dx`` when it is 1."""

    role: str
    slope: float = 1.0
    column: int = 0


def parameters_of(e: Expression) -> set[int]:
    return {int(n.value) for n in topological([e]) if n.op == "parameter"}


def linear_parameters(by: list[Expression], d: int) -> list[int]:
    """Parameters in which the model is jointly linear, greedily."""
    depends = [parameters_of(g) for g in by]
    chosen: list[int] = []
    for i in range(d):
        if i not in depends[i] and not any(i in depends[j] or j in depends[i] for j in chosen):
            chosen.append(i)
    return chosen


def shape_groups(by: list[Expression], body: Expression, linear: list[int], shape: list[int]) -> list[list[int]]:
    """Shape parameters that occur together in a term."""
    rest = ex.substitute(body, {i: ex.constant(0.0) if i in linear else ex.parameter(i) for i in range(len(by))})
    sets = [s for s in ([parameters_of(by[k]) for k in linear] + [parameters_of(rest)]) if s]
    groups: list[set[int]] = [{i} for i in shape]
    for together in sets:
        joined = [g for g in groups if g & together]
        if joined:
            groups = [g for g in groups if not g & together] + [set().union(*joined)]
    return [sorted(g) for g in groups]


def role_of(body: Expression, index: int) -> Shape:
    """The kind of quantity that a parameter is, from how it is combined with the data; the most specific one if there
    are several."""
    above: dict[int, list[Expression]] = {}
    for node in topological([body]):
        for a in node.args:
            above.setdefault(a.serial, []).append(node)
    shapes: list[Shape] = []
    # Walk up from the parameter to the nodes where it meets the data: (node, inverted, raised to a power).
    left = [(ex.parameter(index), False, False)]
    while left:
        node, inverse, power = left.pop()
        for parent in above.get(node.serial, []):
            inverted = inverse != (parent.op == "div" and parent.args[1] is node)
            if parent.rowwise:
                shapes.append(_meeting(parent, node, above, index, inverted, power))
            else:
                squared = parent.op == "mul" and parent.args[0] is parent.args[1]
                left.append((parent, inverted, power or squared or (parent.op == "pow" and parent.args[0] is node)))
    return min(shapes, key=lambda s: _SAYS_MOST.index(s.role), default=Shape("other"))


_SAYS_MOST = ("frequency", "phase", "position", "minus position", "exponent", "width", "rate", "shift", "other")


def _meeting(
    parent: Expression, node: Expression, above: dict[int, list[Expression]], index: int, inverse: bool, power: bool
) -> Shape:
    """The role of a parameter that meets the data in a node."""
    others = [a for a in parent.args if a is not node and a.rowwise]
    columns = [int(n.value) for o in others for n in topological([o]) if n.op == "variable"]
    column = columns[0] if columns else 0
    wave = _next_function(parent, above) in ("sin", "cos", "tan")
    # k*x, (x - m)/s and expressions of them have no units.
    pure = any(n.op in ("mul", "div") and n.rowwise and n.parametric for n in topological(others))
    if parent.op in ("add", "sub"):
        if wave and not _product_of_shift(parent, above):
            return Shape("phase")
        if power:  # x**2 + s**2
            return Shape("width", column=column)
        if pure:
            return Shape("shift", column=column)
        ahead = (parent.op == "sub") == (parent.args[1] is node)
        return Shape("position" if ahead or parent.op == "sub" else "minus position", column=column)
    if parent.op == "pow":
        return Shape("exponent" if parent.args[1] is node else "other")
    if parent.op in ("mul", "div"):
        if wave and not inverse:
            return Shape("frequency", _slope(parent, above, index), column)
        return Shape("other" if pure else "width" if inverse else "rate", column=column)
    return Shape("width" if parent.op in ("w_real", "w_imag") else "other", column=column)


def _next_function(node: Expression, above: dict[int, list[Expression]]) -> str:
    """The first function around a node, through sums and products."""
    while node.op in ("add", "sub", "mul", "div", "neg") and node.serial in above:
        node = above[node.serial][0]
    return node.op


def _product_of_shift(node: Expression, above: dict[int, list[Expression]]) -> bool:
    """Whether a sum is multiplied before it enters its function: ``sin(w * (x - u))``."""
    parents = above.get(node.serial, [])
    return bool(parents) and parents[0].op in ("mul", "div")


def _slope(node: Expression, above: dict[int, list[Expression]], index: int) -> float:
    """``d argument / dx`` of the wave around a node, with this parameter 1 and the others 0."""
    while above[node.serial][0].op not in ("sin", "cos", "tan"):
        node = above[node.serial][0]
    theta = np.zeros(1 + max([index, *parameters_of(node)]))
    theta[index] = 1.0
    wide = 1 + max(int(n.value) for n in topological([node]) if n.op == "variable")
    ends = [ex.evaluate([node], theta.tolist(), [x] * wide)[0] for x in (0.0, 1.0)]
    slope = abs(float(ends[1] - ends[0]))
    return slope if np.isfinite(slope) and slope > 0.0 else 1.0


def candidates_of(shape: Shape, few: list[Array], columns: list[Array], values: Array) -> Array:
    x = few[min(shape.column, len(few) - 1)]
    span = float(x.max() - x.min()) or abs(float(x[0])) or 1.0
    widths = span * np.array(_WIDTHS)
    if shape.role in ("position", "minus position"):
        places = np.quantile(x, np.linspace(0.01, 0.99, 31)) if len(x) > 31 else np.unique(x)
        if shape.role == "minus position":
            return np.concatenate([-places, widths])
        beyond = span * np.array([0.02, 0.05, 0.1, 0.2, 0.4])  # more distant ones cannot be distinguished
        return np.concatenate([x.min() - beyond[::-1], places, x.max() + beyond])
    if shape.role == "width":
        return widths
    if shape.role == "rate":
        return np.concatenate([1.0 / widths, -1.0 / widths])
    if shape.role == "frequency":
        cycles = _frequencies(columns[min(shape.column, len(columns) - 1)], values)
        return np.asarray(cycles * (2.0 * np.pi / shape.slope), dtype=np.float64)
    if shape.role == "phase":
        return np.linspace(0.0, 0.75 * np.pi, 4)  # the other half of the circle only changes the sign
    if shape.role == "shift":
        return np.array([-30.0, -10.0, -3.0, -1.0, -0.3, 0.3, 1.0, 3.0, 10.0, 30.0])
    if shape.role == "exponent":
        return np.array([-4.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0])
    return np.array([1.0, 0.1, 10.0, 0.01, 100.0, -1.0, -0.1, -10.0])


def _frequencies(x: Array, y: Array) -> Array:
    """The strongest frequencies, in cycles per unit of x, and their neighbours."""
    span = float(x[-1] - x[0])
    if span <= 0.0:
        return np.ones(1)
    # Put each point into a cell of a fine grid: the periodogram of uneven points, up to the width of a cell.
    cells = int(min(1 << 17, max(64, 16 * len(x))))
    place = np.minimum(((x - x[0]) * (cells / span)).astype(np.int64), cells - 1)
    signal = np.bincount(place, weights=y - np.median(y), minlength=cells)
    power = np.abs(np.fft.rfft(signal, 4 * cells))[1:]
    frequency = np.arange(1, len(power) + 1) / (4.0 * span)
    # Half a cycle over the whole range looks like a trend, and even points cannot tell a frequency from its alias.
    finest = 0.5 / max(float(np.quantile(np.diff(x), 0.1)), span / cells)
    power = np.where((frequency * span >= 0.4) & (frequency <= finest), power, 0.0)
    found: list[float] = []
    for _ in range(4):
        top = int(np.argmax(power))
        found += [frequency[top] + k * 0.12 / span for k in range(-2, 3)]
        power[max(0, top - 6) : top + 7] = 0.0
    return np.array([f for f in found if f > 0.0])
