"""Roles of the parameters of a formula, from their positions in it, and values to try for them.

*Linear* parameters multiply a term. Each of the others, the *shape* parameters, has a role: a position on the x axis, a
width, a rate, a frequency or period, a phase or angle, an exponent; and each role has candidates that follow from the
data. Where the position in the formula says too little, the parameter's units decide (`problm.models.dimensions`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .. import expression as ex
from ..dimensions import parameter_units
from ..expression import Expression
from ..node import topological

Array = NDArray[np.float64]
_WIDTHS = (1 / 300, 1 / 100, 1 / 40, 1 / 16, 1 / 7, 1 / 3, 1.0, 3.0)


@dataclass(frozen=True)
class Shape:
    """The role of a shape parameter."""

    role: str
    slopes: tuple[float, ...] = (1.0,)
    """For a frequency or period: ``d argument / dx`` of the waves that it is in, when it is 1."""
    column: int = 0
    columns: tuple[int, ...] = ()
    """For a frequency or period: the variables that the wave depends on."""
    powers: tuple[float, ...] = ()
    """Powers of the units of the variables and of the response that the parameter has, if it is of no other kind."""
    data: Expression | None = None
    """The function of the data that a position, width or rate belongs to, such as ``log(x)``, unless a variable."""

    @property
    def is_wave(self) -> bool:
        return self.role in ("frequency", "period")


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


def roles_of(body: Expression, d: int, variables: int, shape: Iterable[int]) -> dict[int, Shape]:
    """The roles of the shape parameters."""
    units = parameter_units(body, d, variables)
    return {i: _with_units(role_of(body, i), units[i]) for i in shape}


def _with_units(shape: Shape, powers: Array) -> Shape:
    """The role in agreement with the units of the parameter, which are NaN if unknown."""
    if np.isnan(powers).any():
        return shape
    lengths = np.flatnonzero(powers)
    single = len(lengths) == 1 and lengths[0] < len(powers) - 1
    if shape.role in ("shift", "other", "width", "rate") and single and abs(powers[lengths[0]]) == 1.0:
        return Shape("width" if powers[lengths[0]] > 0.0 else "rate", column=int(lengths[0]))
    a_length = shape.is_wave or shape.role in ("width", "rate")
    if shape.role in ("shift", "other") or (a_length and not len(lengths)):
        return replace(shape, role="shift" if shape.role == "shift" else "other", powers=tuple(powers.tolist()))
    return shape


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
                if parent.op in _WAVES and parent.args[0] is node:
                    shapes.append(Shape("phase"))  # an angle
                    continue
                if parent.op == "pow" and parent.args[1] is node:  # k**n, to be compared with x**n
                    shapes.append(Shape("exponent"))
                    continue
                left.append(
                    (parent, inverted, power or _is_square(parent) or (parent.op == "pow" and parent.args[0] is node))
                )
    said = min(shapes, key=lambda s: _SAYS_MOST.index(s.role), default=Shape("other"))
    slopes = sorted({v for s in shapes for v in s.slopes if s.role == said.role})  # several for harmonics
    return replace(said, slopes=tuple(slopes)) if said.is_wave else said


def _is_square(node: Expression) -> bool:
    return node.op == "mul" and node.args[0] is node.args[1]


_WAVES = ("sin", "cos", "tan")
_LINEAR = ("add", "sub", "mul", "div", "neg")
_SAYS_MOST = ("frequency", "period", "phase", "position", "minus position", "exponent", "width", "rate", "shift",
              "other")  # fmt: skip


def _meeting(
    parent: Expression, node: Expression, above: dict[int, list[Expression]], index: int, inverse: bool, power: bool
) -> Shape:
    """The role of a parameter that meets the data in a node."""
    others = [a for a in parent.args if a is not node and a.rowwise]
    # A center in log(center) is compared with x, not with log(x).
    plain = all(n.op in ("parameter", "constant", *_LINEAR) for n in topological([node]))
    data = _data_in(others) if plain else None
    columns = [int(n.value) for o in others for n in topological([o]) if n.op == "variable"]
    column = columns[0] if columns else 0
    around = _next_function(parent, above)
    wave = around.op in _WAVES
    # k*x, (x - m)/s and expressions of them have no units.
    pure = any(n.op in ("mul", "div") and n.rowwise and n.parametric for n in topological(others))
    if parent.op in ("add", "sub"):
        if wave and not _product_of_shift(parent, above):
            return Shape("phase")
        if power:  # x**2 + s**2
            return Shape("width", column=column, data=data)
        if pure:
            return Shape("shift", column=column)
        ahead = (parent.op == "sub") == (parent.args[1] is node)
        return Shape("position" if ahead or parent.op == "sub" else "minus position", column=column, data=data)
    if parent.op == "pow":
        return Shape("exponent" if parent.args[1] is node else "other")
    if parent.op in ("mul", "div"):
        if wave:
            together = tuple(sorted({int(n.value) for n in topological([around]) if n.op == "variable"}))
            # cos(u)**2 is half a wave of twice the frequency.
            squared = any(n.op == "pow" or _is_square(n) for n in above.get(around.serial, []))
            slope = _slope(parent, above, index) * (2.0 if squared else 1.0)
            return Shape("period" if inverse else "frequency", (slope,), column, together)
        inverse = inverse != (parent.op == "div" and parent.args[0] is node)  # k/x
        return Shape("other" if pure else "width" if inverse else "rate", column=column, data=data)
    return Shape("width" if parent.op in ("w_real", "w_imag") else "other", column=column)


def _data_in(nodes: list[Expression]) -> Expression | None:
    """The only function of the data in sums and products with parameters; None for a variable or several functions."""
    found: dict[int, Expression] = {}
    left = list(nodes)
    while left:
        node = left.pop()
        if node.parametric and node.op in _LINEAR:
            left += [a for a in node.args if a.rowwise]
        else:
            found[node.serial] = node
    (only,) = found.values() if len(found) == 1 else (None,)
    return only if only is not None and not only.parametric and only.op != "variable" else None


def _next_function(node: Expression, above: dict[int, list[Expression]]) -> Expression:
    """The first function around a node, through sums and products."""
    while node.op in _LINEAR and node.serial in above:
        node = above[node.serial][0]
    return node


def _product_of_shift(node: Expression, above: dict[int, list[Expression]]) -> bool:
    """Whether a sum is multiplied before it enters its function: ``sin(w * (x - u))``."""
    parents = above.get(node.serial, [])
    return bool(parents) and parents[0].op in ("mul", "div")


def _slope(node: Expression, above: dict[int, list[Expression]], index: int) -> float:
    """``d argument / dx`` of the wave around a node, with this parameter 1 and the others 0."""
    while above[node.serial][0].op not in _WAVES:
        node = above[node.serial][0]
    theta = np.zeros(1 + max([index, *parameters_of(node)]))
    theta[index] = 1.0
    wide = 1 + max(int(n.value) for n in topological([node]) if n.op == "variable")
    ends = [ex.evaluate([node], theta.tolist(), [x] * wide)[0] for x in (0.0, 1.0)]
    slope = abs(float(ends[1] - ends[0]))
    return slope if np.isfinite(slope) and slope > 0.0 else 1.0


def candidates_of(shape: Shape, few: list[Array], columns: list[Array], values: Array) -> Array:
    x = _belonging(shape, few)
    span = float(x.max() - x.min()) or abs(float(x[0])) or 1.0
    widths = _lengths(x, span)
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
    if shape.is_wave:
        axes = shape.columns or (0,)
        cycles = frequencies([columns[c] for c in axes], values, axes.index(shape.column))
        return cycles_as(shape, cycles)
    if shape.role == "phase":
        return np.linspace(0.0, 0.75 * np.pi, 4)  # the other half of the circle only changes the sign
    if shape.role == "exponent":
        return np.array([-4.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0])
    spans = [float(np.ptp(v)) or 1.0 for v in (*few, values)]
    unit = float(np.prod([v**p for v, p in zip(spans, shape.powers, strict=True)])) if shape.powers else 1.0
    if shape.role == "shift":
        return unit * np.array([-30.0, -10.0, -3.0, -1.0, -0.3, 0.3, 1.0, 3.0, 10.0, 30.0])
    return unit * np.array([1.0, 0.1, 10.0, 0.01, 100.0, -1.0, -0.1, -10.0])


def _belonging(shape: Shape, few: list[Array]) -> Array:
    """The data to compare a parameter with: a variable, or a function of the variables where that is finite."""
    if shape.data is not None:
        made = np.ravel(ex.evaluate([shape.data], [], few)[0])
        made = made[np.isfinite(made)]
        if len(made):
            return made
    return few[min(shape.column, len(few) - 1)]


def _lengths(x: Array, span: float) -> Array:
    """Widths to try; for data over several decades, such as doses, also the data themselves."""
    widths = span * np.array(_WIDTHS)
    sizes = np.abs(x[x != 0.0])
    if len(sizes) and np.median(sizes) < span / 16.0:
        widths = np.unique(np.concatenate([widths, np.quantile(sizes, np.linspace(0.05, 0.85, 9))]))
    return widths


def cycles_as(shape: Shape, cycles: Array) -> Array:
    """Frequencies, in cycles per unit of the variable, as values of the parameter."""
    each = np.outer(2.0 * np.pi / np.array(shape.slopes), cycles).ravel()
    return np.divide(1.0, each, out=np.ones_like(each), where=each != 0.0) if shape.role == "period" else each


_CELLS = 1 << 17


def frequencies(axes: list[Array], y: Array, own: int) -> Array:
    """The strongest frequencies along the axis ``own``, in cycles per unit, and their neighbours.

    Each point is put into a cell of a fine grid over all axes: the periodogram of uneven points, up to the width of a
    cell.
    """
    k = len(axes)
    spans = [float(np.ptp(x)) for x in axes]
    if min(spans) <= 0.0:
        return np.ones(1)
    cells = int(min(_CELLS ** (1.0 / k), max(64, 16 * len(y))))
    scaled = [(x - x.min()) * (cells / s) for x, s in zip(axes, spans, strict=True)]
    flat = np.ravel_multi_index(tuple(np.minimum(p.astype(np.int64), cells - 1) for p in scaled), (cells,) * k)
    signal = np.bincount(flat, weights=y - np.median(y), minlength=cells**k).reshape((cells,) * k)
    finer = 4 if k == 1 else 2
    power = np.abs(np.fft.rfftn(signal, (finer * cells,) * k, range(k)))
    indices = [np.fft.fftfreq(finer * cells, 1.0 / (finer * cells))] * (k - 1) + [np.arange(power.shape[-1])]
    cycles = np.meshgrid(*(i / (finer * s) for i, s in zip(indices, spans, strict=True)), indexing="ij", sparse=True)
    # Half a cycle over the whole range looks like a trend, and even points cannot tell a frequency from its alias.
    far = sum((c * s) ** 2 for c, s in zip(cycles, spans, strict=True)) >= 0.4**2
    for c, x, s in zip(cycles, axes, spans, strict=True):
        far = far & (np.abs(c) <= 0.5 / max(float(np.quantile(_gaps(x), 0.1)), s / cells))
    power = np.where(far, power, 0.0)
    found: list[float] = []
    for _ in range(4):
        top = np.unravel_index(int(np.argmax(power)), power.shape)
        middle = float(np.broadcast_to(cycles[own], power.shape)[top])
        found += [middle + j * 0.12 / spans[own] for j in range(-2, 3)]
        power[tuple(slice(max(0, t - 6), t + 7) for t in top)] = 0.0
    return np.array([f for f in found if f > 0.0 or k > 1])


def _gaps(x: Array) -> Array:
    """Distances between neighbouring values; those of a single one are its size."""
    gaps = np.diff(np.unique(x))
    return gaps if len(gaps) else np.array([abs(float(x[0])) or 1.0])
