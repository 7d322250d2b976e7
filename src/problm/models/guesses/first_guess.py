r"""First guesses of the parameters, from the data and the formula.

A good start lies in the basin of the best fit. To find it, the formula is written as

    f(x; c, u) = g_0(x; u) + sum over k of c_k g_k(x; u),

with *linear* parameters c, found symbolically, and the *shape* parameters u. For given u the best c follow from linear
least squares, so only u is searched. The place of each u in the formula tells what kind of quantity it is (a position
on the x axis, a width, a rate, a frequency or period, a phase or angle, an exponent): ``x - u`` is a position, ``(...)
/ u`` a width, ``u * x`` a rate or, inside a sine, a frequency; where the place says too little, the parameter's units
do. Each kind has a list of candidates made from the data; frequencies come from the peaks of a periodogram. Shape
parameters that never occur in the same term are searched one term after the other, the term that explains most first;
the linear parameters of all terms found so far are refitted for each candidate. Sums of peaks on a background are thus
found peak by peak. This is repeated with each kind of term first. Then each term is searched again with the others in
place, and terms of the same kind (such as two Gaussians) are exchanged if that is better. A few steps of MINPACK's
Levenberg-Marquardt on the reduced data end the search.

The search uses at most `SAMPLE` points: a random sample, reduced to medians of up to `BINS` bins, or to `FEW` points if
there are oscillations, which bins would average out, or several variables.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...support.scipy_extensions import lmder
from .. import expression as ex
from ..derivatives import derivatives
from ..expression import Expression
from .parameter_roles import Shape, candidates_of, linear_parameters, parameters_of, roles_of, shape_groups

Array = NDArray[np.float64]

SAMPLE = 32_768
BINS = 300
FEW = 800
_COMBINATIONS = 3_000
_POLISHED = 4
_SIGNED = ("width", "rate", "exponent")
"""Roles whose positive value is meant where both signs give the same curves."""
_UNDEFINED = 1e150
"""Residual where the model is not defined."""


class Guessable(Protocol):
    """What a first guess needs from a model."""

    @property
    def body(self) -> Expression | None: ...
    @property
    def parameters(self) -> tuple[str, ...]: ...
    @property
    def variables(self) -> tuple[str, ...]: ...
    def __call__(self, x: Any, *parameters: float) -> Any: ...
    def jacobian(self, x: Any, *parameters: float) -> Array: ...


def start(model: Guessable, x: Any, y: Any) -> Array:
    """A start for the model's parameters.

    Parameters
    ----------
    model
        A model with an expression.
    x
        (N,) for one variable; (k, N) or (N, k) for several.
    y
        (N,)

    Returns
    -------
    (d,) array
    """
    search, groups, roles, candidates = _prepared(model, x, y)
    found = search.run(groups, roles, candidates)
    if not search.cost(found) < _UNDEFINED**2:
        raise ValueError(
            "no first guess was found at which the model is defined for all data: give a start of the parameters "
            "(p0, or --start on the command line)"
        )
    return found


def alternatives(model: Guessable, x: Any, y: Any, count: int = 6, trials: int = 2_000) -> list[Array]:
    """Starts other than `start`, best first: random shapes between the candidates, after a few steps each.

    If the terms of a model hide each other, or a period is mistaken for its half, the search term by term ends in a
    wrong minimum; drawing all shapes at once is another chance. Models without shape parameters have no alternatives.
    """
    search, _, roles, candidates = _prepared(model, x, y)
    if not roles:
        return []
    rng = np.random.default_rng(3)
    points = np.ones((trials, search.d))
    for i, shape in roles.items():
        values = candidates[i]
        if shape.is_wave:  # and its harmonics
            points[:, i] = rng.choice(np.outer([1.0, 0.5, 2.0, 1.0 / 3.0, 3.0], values).ravel(), trials)
        else:
            low = rng.integers(0, max(1, len(values) - 1), trials)
            share = rng.random(trials)
            points[:, i] = (1.0 - share) * values[low] + share * values[np.minimum(low + 1, len(values) - 1)]
    points[:, search.linear] = 0.0
    everything = set(roles)
    order = np.argsort(search.costs(points, everything), kind="stable")[: 3 * count]
    ends = [search.descend(search.with_linear(points[k], everything), list(range(search.d))) for k in order]
    return _distinct(sorted(ends, key=search.cost), sorted(everything))[:count]


@dataclass(frozen=True, eq=False)
class Anatomy:
    """What a formula tells about its parameters, whatever the data."""

    body: Expression
    by: list[Expression]
    """Derivatives with respect to the parameters."""
    depends: list[set[int]]
    """Parameters that each derivative depends on."""
    linear: list[int]
    roles: dict[int, Shape]
    """Roles of the shape parameters."""
    groups: list[list[int]]
    """Shape parameters that occur together."""


@lru_cache(maxsize=64)
def anatomy(body: Expression, d: int, variables: int) -> Anatomy:
    by = derivatives([body], d)[0]
    linear = linear_parameters(by, d)
    shape = [i for i in range(d) if i not in linear]
    roles = roles_of(body, d, variables, shape)
    return Anatomy(body, by, [parameters_of(g) for g in by], linear, roles, shape_groups(by, body, linear, shape))


def _prepared(model: Guessable, x: Any, y: Any) -> tuple[Search, list[list[int]], dict[int, Shape], dict[int, Array]]:
    """The search, groups of shape parameters, their roles and candidates."""
    body, d = model.body, len(model.parameters)
    assert body is not None
    columns, values = finite(x, y, len(model.variables))
    parts = anatomy(body, d, len(columns))
    few, target = _reduced(columns, values, any(r.is_wave for r in parts.roles.values()))
    candidates = {i: candidates_of(role, few, columns, values) for i, role in parts.roles.items()}
    return Search(model, parts, few, target), parts.groups, parts.roles, candidates


def finite(x: Any, y: Any, k: int) -> tuple[list[Array], Array]:
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


class Search:
    """The search over shape parameters, on the reduced data."""

    def __init__(self, model: Guessable, parts: Anatomy, few: list[Array], target: Array) -> None:
        self.model, self.few, self.target = model, few, target
        self.body, self.by, self.linear, self.depends = parts.body, parts.by, parts.linear, parts.depends
        self.d = len(parts.by)

    def run(self, groups: list[list[int]], roles: dict[int, Shape], candidates: dict[int, Array]) -> Array:
        """The best start found."""
        everything = {i for g in groups for i in g}
        kinds = {tuple(roles[i].role for i in g): k for k, g in reversed(list(enumerate(groups)))}
        starts: list[Array] = []
        for first in [None, *kinds.values()] if len(kinds) > 1 else [None]:
            starts += self._peel(groups, candidates, first)
        solved = [self.with_linear(theta, everything) for theta in starts]
        if len(groups) > 1:
            solved.sort(key=self.cost)
            swept = [self._sweep(theta, groups, candidates) for theta in _distinct(solved, sorted(everything))[:2]]
            solved += [
                self.with_linear(other, everything) for t in swept for other in (t, *_exchanges(t, groups, roles))
            ]
        solved.sort(key=self.cost)
        ends = [self.descend(t, list(range(self.d))) for t in _distinct(solved, sorted(everything))[:_POLISHED]]
        ends += [
            self.descend(self.with_linear(t, everything), list(range(self.d)))
            for t in _exchanges(min(ends, key=self.cost), groups, roles)
        ]
        best: Array = min((*ends, solved[0]), key=self.cost)
        for i, shape in roles.items():
            if shape.role in _SIGNED and best[i] < 0.0:
                upright = best.copy()
                upright[i] = -best[i]
                for other in (upright, self.with_linear(upright, everything)):
                    if self.cost(other) <= self.cost(best) * (1.0 + 1e-12):
                        best = other  # a sign that does not matter, or a curve written with its ends exchanged
                        break
        return best

    def _sweep(self, theta: Array, groups: list[list[int]], candidates: dict[int, Array]) -> Array:
        """Search each group again with the others fixed, because the first ones were placed without them."""
        everything = {i for g in groups for i in g}
        for group in groups:
            tried = np.concatenate([theta[None, :], combinations(group, candidates, theta)])
            theta = tried[int(np.argmin(self.costs(tried, everything)))]
        return theta

    def _peel(self, groups: list[list[int]], candidates: dict[int, Array], first: int | None) -> list[Array]:
        """Place groups of shape parameters one after the other; return several points for the last group."""
        theta = np.ones(self.d)
        theta[self.linear] = 0.0
        left = list(groups)
        placed: set[int] = set()
        points = theta[None, :]
        while left:
            trials = []
            for group in left if first is None or placed else [groups[first]]:
                tried = combinations(group, candidates, theta)
                cost = self.costs(tried, placed | set(group))
                order = _valleys(cost, [len(candidates[i]) for i in group])
                trials.append((float(cost[order[0]]), group, tried[order]))
            _, group, points = min(trials, key=lambda t: t[0])
            placed |= set(group)
            left.remove(group)
            if left:
                theta = self.with_linear(points[0], placed)
                theta = self.descend(theta, sorted(placed | set(self._active(placed))), steps=8)
        return list(points)

    def _active(self, placed: set[int]) -> list[int]:
        """Linear parameters whose terms depend only on placed shape parameters."""
        return [k for k in self.linear if self.depends[k] <= placed]

    def matrices(self, points: Array, placed: set[int]) -> tuple[Array, Array, list[int]]:
        """``g_k`` (points, k, n) and ``y - g_0`` (points, n)."""
        active = self._active(placed)
        # Terms that are the same for all points are evaluated once.
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
        G, rest, active = self.matrices(points, placed)
        finite = np.asarray(np.isfinite(G).all(axis=(1, 2)) & np.isfinite(rest).all(axis=1))
        G, rest = np.where(finite[:, None, None], G, 0.0), np.where(finite[:, None], rest, 0.0)
        size = np.sqrt(np.einsum("pkn,pkn->pk", G, G))
        G = G / np.where(size > 0.0, size, 1.0)[:, :, None]
        normal = np.einsum("pkn,pln->pkl", G, G) + 1e-10 * np.eye(len(active))
        c = np.linalg.solve(normal, np.einsum("pkn,pn->pk", G, rest)[:, :, None])[:, :, 0]
        error = rest - np.einsum("pk,pkn->pn", c, G)
        cost = np.where(finite, np.einsum("pn,pn->p", error, error), np.inf)
        return cost, c / np.where(size > 0.0, size, 1.0), active

    def costs(self, points: Array, placed: set[int]) -> Array:
        step = max(1, 2_000_000 // (len(self.target) * (len(self.linear) + 1)))
        parts = [self._solve(points[i : i + step], placed)[0] for i in range(0, len(points), step)]
        return np.concatenate(parts)

    def with_linear(self, point: Array, placed: set[int]) -> Array:
        _, c, active = self._solve(point[None, :], placed)
        theta = point.copy()
        theta[active] = c[0]
        return theta

    def _residuals(self, theta: Array) -> Array:
        r = np.asarray(self.model(tuple(self.few) if len(self.few) > 1 else self.few[0], *theta)) - self.target
        return np.where(np.isfinite(r), r, _UNDEFINED)

    def cost(self, theta: Array) -> float:
        r = self._residuals(theta)
        cost = float(r @ r)
        return cost if np.isfinite(cost) and np.isfinite(theta).all() else np.inf

    def descend(self, theta: Array, free: list[int], steps: int = 30) -> Array:
        """Take a few steps on some of the parameters."""
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
            return point(lmder(residuals, theta[free], jacobian, tolerance=1e-4, gtol=1e-10, calls=steps))


def _distinct(points: list[Array], shape: list[int]) -> list[Array]:
    """The points without near duplicates in their shape parameters."""
    kept: list[Array] = []
    for point in points:
        if not any(np.allclose(point[shape], other[shape], rtol=0.02) for other in kept):
            kept.append(point)
    return kept


def _exchanges(theta: Array, groups: list[list[int]], roles: dict[int, Shape]) -> list[Array]:
    """Up to four points in which the shapes of groups with the same roles are exchanged."""
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


def _next(values: Array, step: int) -> Array:
    """The neighbours along the first axis, the last ones their own."""
    return values[np.clip(np.arange(len(values)) + step, 0, len(values) - 1)]


def _valleys(cost: Array, sizes: list[int]) -> NDArray[np.int64]:
    """Indices of the lowest points, lowest first; on a whole grid those below their neighbours."""
    low = np.arange(len(cost))
    if len(cost) == np.prod(sizes):
        grid = cost.reshape(sizes)
        least = grid
        for axis in range(grid.ndim):
            along = np.moveaxis(least, axis, 0)
            least = np.moveaxis(np.minimum(along, np.minimum(_next(along, 1), _next(along, -1))), 0, axis)
        low = np.flatnonzero(grid <= least)
    order = low[np.argsort(cost[low], kind="stable")]
    _, first = np.unique(cost[order], return_index=True)  # a plateau, where a parameter does not matter, counts once
    return order[np.sort(first)[:_POLISHED]]


def combinations(group: list[int], candidates: dict[int, Array], theta: Array) -> Array:
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
