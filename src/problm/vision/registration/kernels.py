r"""Compiled residuals of registration, and the bookkeeping of nearest neighbours.

A point of the parameters is ``(R, t)`` row by row, (12,), or ``(R, t, log c)``, (13,). A source point s goes to
``p = a + t`` with ``a = c R s``; q is the target point nearest to p and n the normal there. The steps are
``R <- exp([w]) R``, ``t <- t + v`` and ``log c <- log c + l``, so

    point to point   r = p - q,     dr = [w] a + v + a l
    point to plane   r = n.(p - q), dr = w.(a x n) + v.n + l a.n

with q and n held: they are the nearest ones at p, and for point to point the derivative of the distance to the nearest
point is exactly that with the nearest point held. A row without a target point within reach has a fixed residual.

A neighbour found before is kept for as long as it is certainly the nearest one: if the point has moved by m since, all
other target points are at least ``d2 - m`` away, d2 being the distance of the second nearest one then.
"""

from __future__ import annotations

import numpy as np

from ...jit import types
from ...kernels.kernel import evaluator
from ...manifolds import compiled, internal

_f8, _i8 = types.float64, types.int64
MATCHED = 7
"""Numbers per row that describe its match: target point, normal, and 1 if it is within reach."""


@evaluator
def plane_evaluator(theta, rows, m, program, constants, jacobian, out):  # type: ignore[no-untyped-def]
    """Point to plane (module docstring); rows: source point, target point, normal, flag; constants: residual without
    a target point."""
    similar = theta.shape[0] > 12
    c = np.exp(theta[12]) if similar else 1.0
    for i in range(m):
        x, y, z = rows[0, i], rows[1, i], rows[2, i]
        a0 = c * (theta[0] * x + theta[1] * y + theta[2] * z)
        a1 = c * (theta[3] * x + theta[4] * y + theta[5] * z)
        a2 = c * (theta[6] * x + theta[7] * y + theta[8] * z)
        n0, n1, n2, flag = rows[6, i], rows[7, i], rows[8, i], rows[9, i]
        r = n0 * (a0 + theta[9] - rows[3, i]) + n1 * (a1 + theta[10] - rows[4, i]) + n2 * (a2 + theta[11] - rows[5, i])
        out[0, i] = r if flag > 0.0 else constants[0]
        if jacobian != 0:
            n0, n1, n2 = flag * n0, flag * n1, flag * n2
            out[1, i] = a1 * n2 - a2 * n1
            out[2, i] = a2 * n0 - a0 * n2
            out[3, i] = a0 * n1 - a1 * n0
            out[4, i], out[5, i], out[6, i] = n0, n1, n2
            if similar:
                out[7, i] = a0 * n0 + a1 * n1 + a2 * n2


@evaluator
def point_evaluator(theta, rows, m, program, constants, jacobian, out):  # type: ignore[no-untyped-def]
    """Point to point (module docstring); rows and constants as for `plane_evaluator`, without using the normal."""
    similar = theta.shape[0] > 12
    c = np.exp(theta[12]) if similar else 1.0
    d = 7 if similar else 6
    for i in range(m):
        x, y, z = rows[0, i], rows[1, i], rows[2, i]
        a0 = c * (theta[0] * x + theta[1] * y + theta[2] * z)
        a1 = c * (theta[3] * x + theta[4] * y + theta[5] * z)
        a2 = c * (theta[6] * x + theta[7] * y + theta[8] * z)
        flag = rows[9, i]
        if flag > 0.0:
            out[0, i] = a0 + theta[9] - rows[3, i]
            out[1, i] = a1 + theta[10] - rows[4, i]
            out[2, i] = a2 + theta[11] - rows[5, i]
        else:
            out[0, i], out[1, i], out[2, i] = constants[0], 0.0, 0.0
        if jacobian != 0:
            for k in range(3, 3 + 3 * d):
                out[k, i] = 0.0
            out[4, i], out[5, i] = flag * a2, -flag * a1
            out[3 + d, i], out[5 + d, i] = -flag * a2, flag * a0
            out[3 + 2 * d, i], out[4 + 2 * d, i] = flag * a1, -flag * a0
            out[6, i], out[7 + d, i], out[8 + 2 * d, i] = flag, flag, flag
            if similar:
                out[9, i], out[9 + d, i], out[9 + 2 * d, i] = flag * a0, flag * a1, flag * a2


@compiled(types.void(_f8[::1], _f8[:, ::1], _f8[:, ::1]))
def transform(theta, points, out):  # type: ignore[no-untyped-def]
    """Write ``c R s + t`` of points (k, 3) to ``out`` (k, 3)."""
    c = np.exp(theta[12]) if theta.shape[0] > 12 else 1.0
    for i in range(points.shape[0]):
        x, y, z = points[i, 0], points[i, 1], points[i, 2]
        for j in range(3):
            out[i, j] = c * (theta[3 * j] * x + theta[3 * j + 1] * y + theta[3 * j + 2] * z) + theta[9 + j]


@compiled(
    types.void(
        _f8[:, ::1], _i8[::1], _f8[:, ::1], _i8[::1], _f8[:, ::1], _f8[::1], _f8, types.boolean[::1],
    )
)  # fmt: skip
def find_stale(points, rows, target, nearest, asked, second, gate, stale):  # type: ignore[no-untyped-def]
    """Which of the points (k, 3), of these rows, need a new search (module docstring).

    ``nearest`` (N,): target point of each row, -1 if none was within reach; ``asked`` (N, 3): where the row's point was
    then; ``second`` (N,): distance of the second nearest one, or the reach. Beyond ``gate`` it does not matter which.
    """
    for i in range(points.shape[0]):
        row = rows[i]
        moved, distance = 0.0, 0.0
        for j in range(3):
            step = points[i, j] - asked[row, j]
            moved += step * step
        near = nearest[row]
        if near >= 0:
            for j in range(3):
                step = points[i, j] - target[near, j]
                distance += step * step
            distance = min(np.sqrt(distance), gate)
        else:
            distance = gate
        stale[i] = not (distance <= second[row] - np.sqrt(moved))


@compiled(types.void(_f8[:, ::1], _i8[::1], _f8[:, ::1], _f8[:, ::1], _i8[::1], _f8, _f8, _f8[:, ::1]))
def gather_matches(points, rows, target, normals, nearest, gate, side, out):  # type: ignore[no-untyped-def]
    """Write target point, normal and flag of the match of every point (k, 3) to ``out`` (k, 7).

    A match is at most ``gate`` away, and at most ``side`` along the plane: beyond, the point lies off the border.
    """
    for i in range(points.shape[0]):
        near = nearest[rows[i]]
        square, up = np.inf, 0.0
        if near >= 0:
            square = 0.0
            for j in range(3):
                step = points[i, j] - target[near, j]
                square += step * step
                up += step * normals[near, j]
        inside = square <= gate * gate and square - up * up <= side * side
        for j in range(3):
            out[i, j] = target[near, j] if inside else 0.0
            out[i, 3 + j] = normals[near, j] if inside else 0.0
        out[i, 6] = 1.0 if inside else 0.0


@internal
def _smallest(A):  # type: ignore[no-untyped-def]
    """Unit eigenvector of the smallest eigenvalue of a symmetric (3, 3) matrix, by Jacobi rotations."""
    V = np.eye(3)
    for _ in range(12):
        off = abs(A[0, 1]) + abs(A[0, 2]) + abs(A[1, 2])
        if off <= 1e-14 * (abs(A[0, 0]) + abs(A[1, 1]) + abs(A[2, 2])):
            break
        for p in range(2):
            for q in range(p + 1, 3):
                if A[p, q] == 0.0:
                    continue
                h = 0.5 * (A[q, q] - A[p, p]) / A[p, q]
                t = (1.0 if h >= 0.0 else -1.0) / (abs(h) + np.sqrt(h * h + 1.0))
                c = 1.0 / np.sqrt(t * t + 1.0)
                s = t * c
                for k in range(3):
                    u, v = A[k, p], A[k, q]
                    A[k, p], A[k, q] = c * u - s * v, s * u + c * v
                for k in range(3):
                    u, v = A[p, k], A[q, k]
                    A[p, k], A[q, k] = c * u - s * v, s * u + c * v
                    u, v = V[k, p], V[k, q]
                    V[k, p], V[k, q] = c * u - s * v, s * u + c * v
    best = 0
    for k in range(1, 3):
        if A[k, k] < A[best, best]:
            best = k
    return V[:, best]


@compiled(types.void(_f8[:, ::1], _i8[::1], _i8[::1], _f8[:, ::1], _f8[:, ::1]))
def add_up(points, order, edges, means, moments):  # type: ignore[no-untyped-def]
    """Means (m, 3) and second moments about them, (m, 6), of groups of points that are consecutive in ``order``."""
    for g in range(edges.shape[0] - 1):
        count = edges[g + 1] - edges[g]
        for a in range(3):
            total = 0.0
            for i in range(edges[g], edges[g + 1]):
                total += points[order[i], a]
            means[g, a] = total / count
        at = 0
        for a in range(3):
            for b in range(a + 1):
                total = 0.0
                for i in range(edges[g], edges[g + 1]):
                    total += (points[order[i], a] - means[g, a]) * (points[order[i], b] - means[g, b])
                moments[g, at] = total
                at += 1


@compiled(types.void(_i8[::1], _i8, _i8, _f8, _i8[::1], _f8[:, ::1], _f8[:, ::1], _f8[:, ::1], _f8[:, ::1], _i8[::1]))
def fit_planes(keys, across, deep, width, counts, means, moments, places, normals, around):  # type: ignore[no-untyped-def]
    """Planes of cells: points (m, 3) on them and normals (m, 3), and how many points were used (m,).

    The normal is that of the points of the cell and its neighbours. The plane goes through the mean of the cell and of
    those neighbours that lie above or below it: a surface that passes along the border of two cells is one plane, not
    two.

    ``keys`` (m,) are the cells' numbers in ascending order: ``deep`` cells along z, and ``across`` in a layer of x.
    Neighbours along z follow each other, so nine places that move on with the cell find all 27.
    """
    m = keys.shape[0]
    starts = np.zeros(9, dtype=np.int64)
    A = np.empty((3, 3))
    near = (0.5 * width) ** 2
    for g in range(m):
        A[:] = 0.0
        total = 0
        for j in range(9):
            first = keys[g] + (j // 3 - 1) * across + (j % 3 - 1) * deep - 1
            while starts[j] < m and keys[starts[j]] < first:
                starts[j] += 1
            h = starts[j]
            while h < m and keys[h] <= first + 2:
                # Moments about the mean of the cell itself.
                x, y, z = means[h, 0] - means[g, 0], means[h, 1] - means[g, 1], means[h, 2] - means[g, 2]
                n = counts[h]
                A[0, 0] += moments[h, 0] + n * x * x
                A[1, 0] += moments[h, 1] + n * x * y
                A[1, 1] += moments[h, 2] + n * y * y
                A[2, 0] += moments[h, 3] + n * x * z
                A[2, 1] += moments[h, 4] + n * y * z
                A[2, 2] += moments[h, 5] + n * z * z
                total += n
                h += 1
        A[0, 1], A[0, 2], A[1, 2] = A[1, 0], A[2, 0], A[2, 1]
        around[g] = total
        normal = _smallest(A)
        height, stacked = 0.0, 0
        for j in range(9):
            last = keys[g] + (j // 3 - 1) * across + (j % 3 - 1) * deep + 1
            h = starts[j]
            while h < m and keys[h] <= last:
                x, y, z = means[h, 0] - means[g, 0], means[h, 1] - means[g, 1], means[h, 2] - means[g, 2]
                up = x * normal[0] + y * normal[1] + z * normal[2]
                if x * x + y * y + z * z - up * up <= near:
                    height += counts[h] * up
                    stacked += counts[h]
                h += 1
        for a in range(3):
            normals[g, a] = normal[a]
            places[g, a] = means[g, a] + normal[a] * height / stacked


@compiled(types.void(_f8[:, ::1], _f8[::1], _f8, _i8[::1]))
def cell_codes(points, corner, scale, codes):  # type: ignore[no-untyped-def]
    """Write the Morton code of every point (n, 3): neighbours in space get codes that are mostly near."""
    for i in range(points.shape[0]):
        code = 0
        for j in range(3):
            v = min(max(int((points[i, j] - corner[j]) * scale), 0), 1048575)
            v = (v | (v << 32)) & 0x1F00000000FFFF
            v = (v | (v << 16)) & 0x1F0000FF0000FF
            v = (v | (v << 8)) & 0x100F00F00F00F00F
            v = (v | (v << 4)) & 0x10C30C30C30C30C3
            v = (v | (v << 2)) & 0x1249249249249249
            code |= v << j
        codes[i] = code
