"""Many curves of one model at once: first guesses, and a kernel with a point per curve.

First guesses: for each shape of a grid the linear parameters span a space that is the same for all curves with a common
x. With an orthonormal basis Q of it, the remaining sum of squares of a curve y is ``|y|^2 - |Q^T y|^2``: one matrix
product for all curves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from . import expression as ex
from .derivatives import derivatives
from .first_guess import Guessable, Search, anatomy, combinations
from .model import Model
from .parameter_roles import Shape, candidates_of, cycles_as

if TYPE_CHECKING:
    from ..kernels.kernel import Kernel

Array = NDArray[np.float64]
_AT_ONCE = 500_000


def grid_guesses(model: Guessable, x: Array, y: Array, weights: Array) -> Array:
    """Starts for each curve.

    Parameters
    ----------
    model
        A model of one variable, with an expression.
    x : (n,)
    y : (B, n)
    weights : (B, n)
        Factors of the residuals, 0 for missing points.

    Returns
    -------
    (B, d) array
    """
    body, d = model.body, len(model.parameters)
    assert body is not None
    parts = anatomy(body, d, 1)
    linear, roles = parts.linear, parts.roles
    filled = _without_gaps(x, y, weights)
    common = np.sqrt(np.mean(weights * weights, axis=0))
    typical = np.median(filled[:: 1 + len(filled) // 1_000], axis=0)
    search = Search(model, parts, [x], np.zeros(len(x)))
    base = np.ones(d)
    base[linear] = 0.0
    points = base[None, :]
    if roles:
        candidates = {i: _candidates(role, x, typical) for i, role in roles.items()}
        points = combinations(sorted(roles), candidates, base)
        if len(points) < np.prod([len(c) for c in candidates.values()]):  # a random choice may miss the valley
            points = np.concatenate([model_guess(model, x, typical, linear)[None, :], points])
    G, rest, _ = search.matrices(points, set(roles))
    good = np.isfinite(G).all(axis=(1, 2)) & np.isfinite(rest).all(axis=1)
    points, G, fixed_part = points[good], G[good] * common, -rest[good] * common
    targets = filled * common
    if G.shape[1]:
        Q = np.linalg.qr(G.transpose(0, 2, 1) + 1e-300)[0]
    else:
        Q = np.zeros((len(points), len(x), 0))
    best = _lowest(Q, fixed_part, targets)
    theta = points[best]
    for c in np.unique(best):
        rows = np.flatnonzero(best == c)
        if linear:
            theta[rows[:, None], np.array(linear)] = (targets[rows] - fixed_part[c]) @ np.linalg.pinv(G[c])
    return theta


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


def _lowest(Q: Array, fixed_part: Array, targets: Array) -> NDArray[np.int64]:
    """(B,) the best shape for each curve; single precision is enough to choose one."""
    shapes, _, k = Q.shape
    bases = [np.ascontiguousarray(Q[:, :, j].T, dtype=np.float32) for j in range(k)]
    size = np.einsum("cn,cn->c", fixed_part, fixed_part)
    step = max(1, _AT_ONCE // shapes)
    best = []
    for i in range(0, len(targets), step):
        some = targets[i : i + step].astype(np.float32)
        left = np.zeros((len(some), shapes), dtype=np.float32)
        if size.any():
            left += size - 2.0 * (some @ fixed_part.T)
        for j, basis in enumerate(bases):
            inside = some @ basis
            if size.any():
                inside -= np.einsum("cn,cn->c", Q[:, :, j], fixed_part)
            inside *= inside
            left -= inside
        best.append(np.argmin(left, axis=1))
    return np.concatenate(best)


def _without_gaps(x: Array, y: Array, weights: Array) -> Array:
    """The curves with missing points interpolated between their neighbours."""
    filled = y.copy()
    order = np.argsort(x)
    for b in np.flatnonzero((weights == 0.0).any(axis=1)):
        there = order[weights[b, order] > 0.0]
        if len(there):
            filled[b] = np.interp(x, x[there], y[b, there])
    return filled


def packed_kernel(model: Model) -> Kernel:
    """Kernel of the residual ``(f(x) - y) / sigma`` whose parameters are columns of the data after x..., y and sigma.

    A block of rows may then hold several curves, each at its own point (`problm.kernels.many_fits`).
    """
    from ..kernels import tape
    from ..kernels.kernel import Kernel
    from .assembler import assemble

    if "packed" not in model._made:
        assert model.body is not None
        k, d = len(model.variables), len(model.parameters)
        residual = (model.body - ex.variable(k)) / ex.variable(k + 1)
        columns = {i: ex.variable(k + 2 + i) for i in range(d)}
        by = [ex.substitute(g, columns) for g in derivatives([residual], d)[0]]
        program = assemble([ex.substitute(residual, columns)], [by], 0)
        model._made["packed"] = Kernel(tape.run, d, 1, program.code, program.constants)
    kernel: Kernel = model._made["packed"]
    return kernel
