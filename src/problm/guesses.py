r"""First guesses of the parameters, from the data and the formula.

A good start lies in the valley of the best fit. It is found by looking at the formula as

    f(x; c, u) = g_0(x; u) + sum over k of c_k g_k(x; u),

with *linear* parameters c, found symbolically, and the *shape* parameters u. For given u the best c follow from
linear least squares, so only u is searched. What kind of quantity each u is (a position on the x axis, a width, a rate,
a frequency, a phase, an exponent) shows in where it stands in the formula: ``x - u`` is a position, ``(...) / u`` a
width, ``u * x`` a rate or, inside a sine, a frequency. Each kind has a list of candidates made from the data;
frequencies come from the peaks of a Fourier transform. Shape parameters that never stand in the same term are
searched one term after the other, the term that explains most first, the linear parameters of all terms found so far
being fitted anew for each candidate: so sums of peaks on a background are peeled peak by peak. The peeling is repeated
with each kind of term first, then each term is searched anew with the others in place, and terms of the same kind of
shape (a Gaussian, a Lorentzian) exchange their places, where that is better. A few steps of Levenberg-Marquardt
(SciPy's) on the reduced data end the search.

All of this sees at most `SAMPLE` points: a random sample, then medians of up to `BINS` bins, or `FEW` points of it
where there are oscillations, which bins would average out, or several variables.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from . import expression as ex
from .differentiate import derivatives
from .expression import Expression

if TYPE_CHECKING:
    from .fitmodel import Model

Array = NDArray[np.float64]

SAMPLE = 32_768
BINS = 300
FEW = 800
_COMBINATIONS = 1_000
_POLISHED = 3
_WIDTHS = (1 / 300, 1 / 100, 1 / 40, 1 / 16, 1 / 7, 1 / 3, 1.0, 3.0)


@dataclass(frozen=True)
class _Shape:
    """The role of a shape parameter and, for a frequency, ``d argument / dx`` when it is 1."""

    role: str
    slope: float = 1.0
    column: int = 0


def start(model: Model, x: Any, y: Any) -> Array:
    """A start for the model's parameters.

    Parameters
    ----------
    model
        With an expression.
    x
        (N,) for one variable; (k, N) or (N, k) for several.
    y
        (N,)

    Returns
    -------
    (d,) array
    """
    body, d = model.body, len(model.parameters)
    assert body is not None
    columns, values = _finite(x, y, len(model.variables))
    by = derivatives([body], d)[0]
    linear = _linear(by, d)
    shape = [i for i in range(d) if i not in linear]
    roles = {i: _role(body, i) for i in shape}
    waves = any(r.role == "frequency" for r in roles.values())
    few, target = _reduced(columns, values, waves)
    candidates = {i: _candidates(roles[i], few, columns, values) for i in shape}
    search = _Search(model, body, by, linear, few, target)
    return search.run(_groups(by, body, linear, shape), roles, candidates)


def _finite(x: Any, y: Any, k: int) -> tuple[list[Array], Array]:
    """At most SAMPLE finite points, in ascending order of the first variable."""
    target = np.asarray(y).ravel()
    if isinstance(x, tuple | list) and k > 1 and len(x) == k:
        parts = [np.asarray(v).ravel() for v in x]
    else:
        whole = np.asarray(x)
        if whole.ndim == 2:
            parts = list(whole) if whole.shape[0] == k and whole.shape[1] == len(target) else list(whole.T)
        else:
            parts = [whole.ravel()]
    if len(parts) != k or any(len(p) != len(target) for p in parts):
        raise ValueError(f"guess: x must hold {k} value(s) for each of the {len(target)} points of y")
    if len(target) > SAMPLE:
        chosen = np.random.default_rng(0).integers(0, len(target), SAMPLE)
        parts, target = [p[chosen] for p in parts], target[chosen]
    columns = [np.asarray(p, dtype=np.float64) for p in parts]
    values = np.asarray(target, dtype=np.float64)
    good = np.isfinite(values) & np.logical_and.reduce([np.isfinite(c) for c in columns])
    order = np.flatnonzero(good)[np.argsort(columns[0][good], kind="stable")]
    if not len(order):
        raise ValueError("guess: there are no finite points")
    return [c[order] for c in columns], values[order]


def _reduced(columns: list[Array], values: Array, waves: bool) -> tuple[list[Array], Array]:
    n = len(values)
    if n <= BINS:
        return columns, values
    if waves or len(columns) > 1:
        chosen = np.sort(np.random.default_rng(1).choice(n, min(n, FEW), replace=False))
        return [c[chosen] for c in columns], values[chosen]
    # Bins of equal counts: means of x, medians of y, which an outlier does not move.
    bins = min(BINS, n // 3)
    size = n // bins
    cut = bins * size
    return [columns[0][:cut].reshape(bins, size).mean(axis=1)], np.median(values[:cut].reshape(bins, size), axis=1)


def _parameters_of(e: Expression) -> set[int]:
    return {int(n.value) for n in ex.topological([e]) if n.op == "parameter"}


def _linear(by: list[Expression], d: int) -> list[int]:
    """Parameters in which the model is jointly linear, greedily."""
    depends = [_parameters_of(g) for g in by]
    chosen: list[int] = []
    for i in range(d):
        if i not in depends[i] and not any(i in depends[j] or j in depends[i] for j in chosen):
            chosen.append(i)
    return chosen


def _groups(by: list[Expression], body: Expression, linear: list[int], shape: list[int]) -> list[list[int]]:
    """Shape parameters that stand together in a term."""
    rest = ex.substitute(body, {i: ex.constant(0.0) if i in linear else ex.parameter(i) for i in range(len(by))})
    sets = [s for s in ([_parameters_of(by[k]) for k in linear] + [_parameters_of(rest)]) if s]
    groups: list[set[int]] = [{i} for i in shape]
    for together in sets:
        joined = [g for g in groups if g & together]
        if joined:
            groups = [g for g in groups if not g & together] + [set().union(*joined)]
    return [sorted(g) for g in groups]


def _role(body: Expression, index: int) -> _Shape:
    """What kind of quantity a parameter is, from how it meets the data."""
    nodes = ex.topological([body])
    above: dict[int, list[Expression]] = {}
    for node in nodes:
        for a in node.args:
            above.setdefault(a.serial, []).append(node)
    node = ex.parameter(index)
    inverse = False
    while True:
        parents = above.get(node.serial, [])
        if not parents:
            return _Shape("other")
        parent = parents[0]
        if parent.op == "div" and parent.args[1] is node:
            inverse = not inverse
        if parent.rowwise:
            break
        node = parent
    others = [a for a in parent.args if a is not node and a.rowwise]
    columns = [int(n.value) for o in others for n in ex.topological([o]) if n.op == "variable"]
    column = columns[0] if columns else 0
    wave = _next_function(parent, above) in ("sin", "cos", "tan")
    if parent.op in ("add", "sub"):
        if wave and not _product_of_shift(parent, above):
            return _Shape("phase")
        ahead = (parent.op == "sub") == (parent.args[1] is node)
        return _Shape("position" if ahead or parent.op == "sub" else "minus position", column=column)
    if parent.op == "pow":
        return _Shape("exponent" if parent.args[1] is node else "other")
    if parent.op in ("mul", "div"):
        if wave and not inverse:
            return _Shape("frequency", _slope(parent, above, index), column)
        return _Shape("width" if inverse else "rate", column=column)
    return _Shape("width" if parent.op in ("w_real", "w_imag") else "other", column=column)


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
    """``d argument / dx`` of the wave around a node, all parameters being 1 and the others 0."""
    while above[node.serial][0].op not in ("sin", "cos", "tan"):
        node = above[node.serial][0]
    theta = np.zeros(1 + max([index, *_parameters_of(node)]))
    theta[index] = 1.0
    wide = 1 + max(int(n.value) for n in ex.topological([node]) if n.op == "variable")
    ends = [ex.evaluate([node], theta.tolist(), [x] * wide)[0] for x in (0.0, 1.0)]
    slope = abs(float(ends[1] - ends[0]))
    return slope if np.isfinite(slope) and slope > 0.0 else 1.0


def _candidates(shape: _Shape, few: list[Array], columns: list[Array], values: Array) -> Array:
    x = few[min(shape.column, len(few) - 1)]
    span = float(x.max() - x.min()) or abs(float(x[0])) or 1.0
    widths = span * np.array(_WIDTHS)
    if shape.role in ("position", "minus position"):
        places = np.quantile(x, np.linspace(0.01, 0.99, 31)) if len(x) > 31 else np.unique(x)
        return places if shape.role == "position" else np.concatenate([-places, widths])
    if shape.role == "width":
        return widths
    if shape.role == "rate":
        return np.concatenate([1.0 / widths, -1.0 / widths])
    if shape.role == "frequency":
        cycles = _frequencies(columns[min(shape.column, len(columns) - 1)], values)
        return np.asarray(cycles * (2.0 * np.pi / shape.slope), dtype=np.float64)
    if shape.role == "phase":
        return np.linspace(0.0, 0.75 * np.pi, 4)  # the other half of the circle is a change of sign
    if shape.role == "exponent":
        return np.array([-4.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0])
    return np.array([1.0, 0.1, 10.0, 0.01, 100.0, -1.0, -0.1, -10.0])


def _frequencies(x: Array, y: Array) -> Array:
    """The strongest frequencies, in cycles for a unit of x, and their neighbours."""
    span = float(x[-1] - x[0])
    if span <= 0.0:
        return np.ones(1)
    cells = int(min(1 << 15, max(16, len(x))))
    place = np.minimum(((x - x[0]) * (cells / span)).astype(np.int64), cells - 1)
    count = np.bincount(place, minlength=cells)
    level = np.median(y)
    signal = np.bincount(place, weights=y - level, minlength=cells) / np.maximum(count, 1)
    power = np.abs(np.fft.rfft(signal, 4 * cells))[1:]
    frequency = np.arange(1, len(power) + 1) / (4.0 * span)
    # Half a cycle over the whole range cannot be told from a trend.
    power = np.where(frequency * span >= 0.4, power, 0.0)
    found: list[float] = []
    for _ in range(4):
        top = int(np.argmax(power))
        found += [frequency[top] + k * 0.12 / span for k in range(-2, 3)]
        power[max(0, top - 6) : top + 7] = 0.0
    return np.array([f for f in found if f > 0.0])


class _Search:
    """The search over shape parameters, on the reduced data."""

    def __init__(
        self,
        model: Model,
        body: Expression,
        by: list[Expression],
        linear: list[int],
        few: list[Array],
        target: Array,
    ) -> None:
        self.model, self.body, self.by, self.linear, self.few, self.target = model, body, by, linear, few, target
        self.d = len(by)
        self.depends = [_parameters_of(g) for g in by]

    def run(self, groups: list[list[int]], roles: dict[int, _Shape], candidates: dict[int, Array]) -> Array:
        """The best start found."""
        everything = {i for g in groups for i in g}
        kinds = {tuple(roles[i].role for i in g): k for k, g in reversed(list(enumerate(groups)))}
        starts: list[Array] = []
        for first in [None, *kinds.values()] if len(kinds) > 1 else [None]:
            starts += self._peel(groups, candidates, first)
        solved = [self._with_linear(theta, everything) for theta in starts]
        if len(groups) > 1:
            solved.sort(key=self._cost)
            swept = [self._sweep(theta, groups, candidates) for theta in _distinct(solved, sorted(everything))[:2]]
            solved += [
                self._with_linear(other, everything) for t in swept for other in (t, *_exchanges(t, groups, roles))
            ]
        solved.sort(key=self._cost)
        ends = [self._descend(t, list(range(self.d))) for t in _distinct(solved, sorted(everything))[:_POLISHED]]
        ends += [
            self._descend(self._with_linear(t, everything), list(range(self.d)))
            for t in _exchanges(min(ends, key=self._cost), groups, roles)
        ]
        best: Array = min((*ends, solved[0]), key=self._cost)
        for i, shape in roles.items():
            upright = best.copy()
            upright[i] = abs(best[i])
            if shape.role == "width" and self._cost(upright) <= self._cost(best) * (1.0 + 1e-12):
                best = upright  # a width that only occurs squared
        return best

    def _sweep(self, theta: Array, groups: list[list[int]], candidates: dict[int, Array]) -> Array:
        """Each group searched anew, the others staying: the first ones were placed when others were missing."""
        everything = {i for g in groups for i in g}
        for group in groups:
            tried = np.concatenate([theta[None, :], _combinations(group, candidates, theta)])
            theta = tried[int(np.argmin(self._costs(tried, everything)))]
        return theta

    def _peel(self, groups: list[list[int]], candidates: dict[int, Array], first: int | None) -> list[Array]:
        """Groups of shape parameters placed one after the other; several points for the last."""
        theta = np.ones(self.d)
        theta[self.linear] = 0.0
        left = list(groups)
        placed: set[int] = set()
        points = theta[None, :]
        while left:
            trials = []
            for group in left if first is None or placed else [groups[first]]:
                tried = _combinations(group, candidates, theta)
                cost = self._costs(tried, placed | set(group))
                order = np.argsort(cost)[:_POLISHED]
                trials.append((float(cost[order[0]]), group, tried[order]))
            _, group, points = min(trials, key=lambda t: t[0])
            placed |= set(group)
            left.remove(group)
            if left:
                theta = self._with_linear(points[0], placed)
                theta = self._descend(theta, sorted(placed | set(self._active(placed))), steps=8)
        return list(points)

    def _active(self, placed: set[int]) -> list[int]:
        """Linear parameters whose term needs no shape parameter that is not placed yet."""
        return [k for k in self.linear if self.depends[k] <= placed]

    def _matrices(self, points: Array, placed: set[int]) -> tuple[Array, Array, list[int]]:
        """``g_k`` (points, k, n) and ``y - g_0`` (points, n)."""
        active = self._active(placed)
        # What is the same for all points is evaluated once.
        same = (points == points[0]).all(axis=0)
        theta = [points[:1, i, None] if same[i] else points[:, i, None] for i in range(self.d)]
        for k in self.linear:
            theta[k] = np.zeros((1, 1))
        rows = [c[None, :] for c in self.few]
        shape = (len(points), len(self.target))
        found = ex.evaluate([self.by[k] for k in active] + [self.body], theta, rows)
        wide = [np.broadcast_to(np.asarray(v, dtype=np.float64), shape) for v in found]
        G = np.stack(wide[:-1], axis=1) if active else np.zeros((shape[0], 0, shape[1]))
        return G, self.target - wide[-1], active

    def _solve(self, points: Array, placed: set[int]) -> tuple[Array, Array, list[int]]:
        G, rest, active = self._matrices(points, placed)
        finite = np.asarray(np.isfinite(G).all(axis=(1, 2)) & np.isfinite(rest).all(axis=1))
        G, rest = np.where(finite[:, None, None], G, 0.0), np.where(finite[:, None], rest, 0.0)
        size = np.sqrt(np.einsum("pkn,pkn->pk", G, G))
        G = G / np.where(size > 0.0, size, 1.0)[:, :, None]
        normal = np.einsum("pkn,pln->pkl", G, G) + 1e-10 * np.eye(len(active))
        c = np.linalg.solve(normal, np.einsum("pkn,pn->pk", G, rest)[:, :, None])[:, :, 0]
        error = rest - np.einsum("pk,pkn->pn", c, G)
        cost = np.where(finite, np.einsum("pn,pn->p", error, error), np.inf)
        return cost, c / np.where(size > 0.0, size, 1.0), active

    def _costs(self, points: Array, placed: set[int]) -> Array:
        step = max(1, 2_000_000 // (len(self.target) * (len(self.linear) + 1)))
        parts = [self._solve(points[i : i + step], placed)[0] for i in range(0, len(points), step)]
        return np.concatenate(parts)

    def _with_linear(self, point: Array, placed: set[int]) -> Array:
        _, c, active = self._solve(point[None, :], placed)
        theta = point.copy()
        theta[active] = c[0]
        return theta

    def _residuals(self, theta: Array) -> Array:
        r = np.asarray(self.model(tuple(self.few) if len(self.few) > 1 else self.few[0], *theta)) - self.target
        return np.where(np.isfinite(r), r, 1e150)

    def _cost(self, theta: Array) -> float:
        r = self._residuals(theta)
        cost = float(r @ r)
        return cost if np.isfinite(cost) and np.isfinite(theta).all() else np.inf

    def _descend(self, theta: Array, free: list[int], steps: int = 30) -> Array:
        """A few steps on some of the parameters."""
        if len(self.target) < len(free):
            return theta
        x = tuple(self.few) if len(self.few) > 1 else self.few[0]

        def point(part: Array) -> Array:
            moved = theta.copy()
            moved[free] = part
            return moved

        def jacobian(part: Array) -> Array:
            J = self.model.jacobian(x, *point(part))[:, free]
            return np.where(np.isfinite(J), J, 0.0)

        def residuals(part: Array) -> Array:
            return self._residuals(point(part))

        with np.errstate(all="ignore"):
            found = optimize.leastsq(
                residuals, theta[free], Dfun=jacobian, ftol=1e-4, xtol=1e-4, gtol=1e-10, maxfev=steps, full_output=True
            )
        return point(found[0])


def _distinct(points: list[Array], shape: list[int]) -> list[Array]:
    """The points without those whose shape parameters are nearly those of an earlier one."""
    kept: list[Array] = []
    for point in points:
        if not any(np.allclose(point[shape], other[shape], rtol=0.02) for other in kept):
            kept.append(point)
    return kept


def _exchanges(theta: Array, groups: list[list[int]], roles: dict[int, _Shape]) -> list[Array]:
    """The point with the shapes of groups of the same roles exchanged, up to four of them."""
    kinds: dict[tuple[str, ...], list[list[int]]] = {}
    for group in groups:
        kinds.setdefault(tuple(roles[i].role for i in group), []).append(group)
    points = []
    for alike in kinds.values():
        if 2 <= len(alike) <= 4:
            for order in list(itertools.permutations(alike))[1:]:
                point = theta.copy()
                for to, source in zip(alike, order, strict=True):
                    point[to] = theta[source]
                points.append(point)
    return points


def _combinations(group: list[int], candidates: dict[int, Array], theta: Array) -> Array:
    """Points with all combinations of the group's candidates, or a random choice of them."""
    lists = [candidates[i] for i in group]
    total = int(np.prod([len(c) for c in lists]))
    if total <= _COMBINATIONS:
        chosen = np.array(list(itertools.product(*lists)))
    else:
        rng = np.random.default_rng(2)
        chosen = np.stack([c[rng.integers(0, len(c), _COMBINATIONS)] for c in lists], axis=1)
    points = np.repeat(theta[None, :], len(chosen), axis=0)
    points[:, group] = chosen
    return points
