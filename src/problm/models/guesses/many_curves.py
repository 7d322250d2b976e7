"""Many curves of one model at once: first guesses, and a kernel with a point per curve.

First guesses: for each shape of a grid the linear parameters span a space that is the same for all curves with a common
x. With an orthonormal basis Q of it, the remaining sum of squares of a curve y is ``|y|^2 - |Q^T y|^2``: one matrix
product for all curves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .. import expression as ex
from ..derivatives import derivatives
from ..model import Model
from .first_guess import Guessable, Search, anatomy, combinations
from .guess import in_order
from .parameter_roles import Shape, candidates_of, cycles_as

if TYPE_CHECKING:
    from ...kernels.kernel import Kernel

Array = NDArray[np.float64]
_AT_ONCE = 100_000
"""Numbers of a block of the table of curves and shapes: what a cache holds."""
_POOLED = 32
"""Most points of a curve in the search for its shape."""
_TYPICAL = 64
"""About as many curves are enough for a typical one."""


def grid_guesses(model: Guessable, x: Array, y: Array, weights: Array | None = None) -> Array:
    """Starts for each curve.

    Parameters
    ----------
    model
        A model of one variable, with an expression.
    x : (n,)
    y : (B, n)
    weights : (B, n), optional
        Factors of the residuals, 0 for missing points.

    Returns
    -------
    (B, d) array
    """
    body, d = model.body, len(model.parameters)
    assert body is not None
    parts = anatomy(body, d, 1)
    linear, roles = parts.linear, parts.roles
    filled = y if weights is None else _without_gaps(x, y, weights)
    typical = np.median(filled[:: 1 + len(filled) // _TYPICAL], axis=0)
    search = Search(model, parts, [x], np.zeros(len(x)))
    base = np.ones(d)
    base[linear] = 0.0
    points = base[None, :]
    if roles:
        candidates = {i: _candidates(role, x, typical) for i, role in roles.items()}
        points = combinations(sorted(roles), candidates, base)
        if len(points) < np.prod([len(c) for c in candidates.values()]):  # a random choice may miss the valley
            points = np.concatenate([model_guess(model, x, typical, linear)[None, :], points])
    waves = any(role.is_wave for role in roles.values())
    pooled = _pooling(x, len(x) if waves else _POOLED)
    if weights is not None:
        pooled *= np.sqrt(np.einsum("bn,bn->n", weights, weights) / len(weights))
    terms, fixed_part = _pooled_terms(search, points, set(roles), pooled)
    targets = filled @ pooled.T
    good = np.isfinite(terms).all(axis=(1, 2)) & np.isfinite(fixed_part).all(axis=1)
    if not good.any():
        raise ValueError("no first guess was found at which the model is defined for all data: give p0")
    if not good.all():
        points, terms, fixed_part = points[good], terms[good], fixed_part[good]
    bases = _orthonormal(terms)
    different = _different(points, bases, fixed_part)
    points, terms, bases, fixed_part = (v[different] for v in (points, terms, bases, fixed_part))
    best = _lowest(bases, fixed_part, targets)
    theta = points[best]
    theta[:, linear] = _coefficients(bases, terms, targets - fixed_part[best], best)
    return in_order(model, x, theta)


def _pooling(x: Array, most: int) -> Array:
    """(m, n) matrix that adds neighbouring points; m is at most ``most``.

    Curve and terms are added alike, so the linear parameters remain right; noise counts less.
    """
    n = len(x)
    pooled = np.zeros((min(n, most), n))
    pooled[np.arange(n) * len(pooled) // n, np.argsort(x, kind="stable")] = 1.0
    return pooled


def _pooled_terms(search: Search, points: Array, roles: set[int], pooled: Array) -> tuple[Array, Array]:
    """Terms, shape (shapes, k, m), and what is not linear (shapes, m), by blocks of shapes that a cache holds."""
    step = max(1, _AT_ONCE // (4 * pooled.shape[1]))
    terms, fixed_part = [], []
    with np.errstate(invalid="ignore"):  # what is not finite makes sums that are not
        for i in range(0, len(points), step):
            G, rest, _ = search.matrices(points[i : i + step], roles)
            terms.append((G.reshape(-1, G.shape[2]) @ pooled.T).reshape(*G.shape[:2], -1))
            fixed_part.append(-rest @ pooled.T)
    return np.concatenate(terms), np.concatenate(fixed_part)


def _orthonormal(terms: Array) -> Array:
    """Bases, shape (shapes, k, m), of the spaces that the terms span: Gram and Schmidt for all shapes at once."""
    basis = np.empty_like(terms)
    for j in range(terms.shape[1]):
        v = terms[:, j]
        size = np.sqrt(np.einsum("cm,cm->c", v, v))
        for _ in range(2):  # twice is enough
            for i in range(j):
                v = v - np.einsum("cm,cm->c", basis[:, i], v)[:, None] * basis[:, i]
        left = np.sqrt(np.einsum("cm,cm->c", v, v))
        new = left > 1e-10 * size
        basis[:, j] = v * np.divide(1.0, left, out=np.zeros_like(left), where=new)[:, None]
    return basis


def _different(points: Array, bases: Array, fixed_part: Array) -> NDArray[np.int64]:
    """Shapes without those that span the same curves as another one: of twins, the one with fewer negative numbers.

    Two shapes are the same if they explain as much of random curves, to nine digits.
    """
    trial = np.random.default_rng(4).standard_normal((3, bases.shape[2]))
    explained = np.einsum("ckt->ct", (bases @ trial.T) ** 2) / np.einsum("tm,tm->t", trial, trial)
    mark = explained @ [1.0, np.sqrt(2.0), np.sqrt(3.0)] + fixed_part @ trial[0]
    order = np.argsort((points < 0.0).sum(axis=1), kind="stable")
    _, first = np.unique(mark[order].round(9), return_index=True)
    return np.sort(order[first])


def _coefficients(bases: Array, terms: Array, targets: Array, best: NDArray[np.int64]) -> Array:
    """(B, k) factors of the terms of each curve's shape, by back substitution; 0 for a term that others explain."""
    used, where = np.unique(best, return_inverse=True)
    triangle = np.einsum("cim,cjm->cij", bases[used], terms[used])[where]
    found: Array = np.einsum("bim,bm->bi", bases[best], targets)
    for i in range(found.shape[1] - 1, -1, -1):
        found[:, i] -= np.einsum("bj,bj->b", triangle[:, i, i + 1 :], found[:, i + 1 :])
        pivot = triangle[:, i, i]
        found[:, i] = np.divide(found[:, i], pivot, out=np.zeros(len(found)), where=pivot > 0.0)
    return found


def model_guess(model: Guessable, x: Array, typical: Array, linear: list[int]) -> Array:
    """The shape of the typical curve, found by the search for a single curve."""
    from .first_guess import start

    theta = start(model, x, typical)
    theta[linear] = 0.0
    return theta


def _candidates(role: Shape, x: Array, typical: Array) -> Array:
    if role.is_wave:  # curves may have different frequencies
        return cycles_as(role, np.arange(0.5, 0.5 * len(x), 0.25) / (float(np.ptp(x)) or 1.0))
    return candidates_of(role, [x], [x], typical)


def _lowest(bases: Array, fixed_part: Array, targets: Array) -> NDArray[np.int64]:
    """(B,) the best shape for each curve; single precision is enough to choose one."""
    shapes, k, _ = bases.shape
    single = np.ascontiguousarray(bases.transpose(1, 2, 0), dtype=np.float32)
    offset = bool(fixed_part.any())
    inner = np.einsum("ckm,cm->kc", bases, fixed_part) if offset else np.zeros((k, shapes))
    step = max(1, _AT_ONCE // shapes)
    inside, gain = np.empty((2, step, shapes), dtype=np.float32)
    best = np.empty(len(targets), dtype=np.int64)
    for i in range(0, len(targets), step):
        some = targets[i : i + step].astype(np.float32)
        part, total = inside[: len(some)], gain[: len(some)]
        total[:] = 2.0 * (some @ fixed_part.T) - np.einsum("cm,cm->c", fixed_part, fixed_part) if offset else 0.0
        for basis, along in zip(single, inner, strict=True):
            np.matmul(some, basis, out=part)
            if offset:
                part -= along
            part *= part
            total += part
        best[i : i + step] = total.argmax(axis=1)
    return best


def _without_gaps(x: Array, y: Array, weights: Array) -> Array:
    """The curves with missing points interpolated between their neighbours."""
    filled = y.copy()
    order = np.argsort(x)
    for b in np.flatnonzero((weights == 0.0).any(axis=1)):
        there = order[weights[b, order] > 0.0]
        if len(there):
            filled[b] = np.interp(x, x[there], y[b, there])
    return filled


def lanes_kernel(model: Model, common: bool, weighted: bool) -> Kernel:
    """Kernel of the residual ``(f(x) - y) w`` whose parameters are columns of the data.

    A block of rows then holds the same point of many curves, each with its own parameters (`problm.kernels.lanes`).
    Its theta is x if that is common to all curves; its columns are x otherwise, y, w if weighted, and the parameters.
    """
    from ...kernels import tape
    from ...kernels.kernel import Kernel
    from ..assembler import assemble

    key = ("lanes", common, weighted)
    if key not in model._made:
        assert model.body is not None
        d = len(model.parameters)
        first = (not common) + 1 + weighted
        y = ex.variable(1)  # x is 0; both move below
        residual = model.body - y
        by = derivatives([model.body], d, guarded=True)[0]
        everything = [residual, *by]
        if weighted:
            everything = [e * ex.variable(2) for e in everything]
        places = {i: ex.variable(first + i) for i in range(d)}
        columns = {0: ex.parameter(0), 1: ex.variable(0), 2: ex.variable(1)} if common else {}
        moved = [ex.substitute(e, places, columns) for e in everything]
        program = assemble(moved[:1], [moved[1:]], int(common))
        model._made[key] = Kernel(tape.run, d, 1, program.code, program.constants)
    kernel: Kernel = model._made[key]
    return kernel
