r"""The reduction of bundle adjustment onto a block-sparse matrix (`problm.linalg.blocks`).

A *node* is a set of columns that always occur together: the pose of an image with the intrinsics that only this image
has, or the intrinsics that several images share. The derivatives E of a track are first added up by node, so that
shared intrinsics and an image that occurs twice in a track need no case of their own; every pair of nodes of the track
then gets ``-E_a' E_b``.
"""

from __future__ import annotations

import numpy as np

from ...jit import types
from ...jit.njit import njit
from .kernels import reduce_track
from .points import OPTIONS, solve_point, workspace
from .projection import COLUMNS

_f8, _i8, _u1 = types.float64, types.int64, types.boolean


@njit(types.void(_i8[::1], _i8[::1], _i8[:, ::1], _u1[:, ::1]), **OPTIONS)
def covisible(start, image, node, seen):  # type: ignore[no-untyped-def]
    """Mark the pairs (a, b), a >= b, of nodes that have a track in common."""
    for j in range(start.shape[0] - 1):
        for m in range(start[j], start[j + 1]):
            for p in range(start[j], m + 1):
                for s in range(2):
                    a = node[image[m], s]
                    for t in range(2):
                        b = node[image[p], t]
                        if a >= 0 and b >= 0:
                            seen[max(a, b), min(a, b)] = True


@njit(_i8(_i8[::1], _i8, _i8, _i8), **OPTIONS)
def _find(column, lo, hi, wanted):  # type: ignore[no-untyped-def]
    """The place of a number in the ascending column[lo:hi], which holds it."""
    while hi - lo > 1:
        middle = (lo + hi) // 2
        if column[middle] <= wanted:
            lo = middle
        else:
            hi = middle
    return lo


@njit(types.void(_f8[::1], _i8, _f8[:, ::1], _i8, _i8, _f8[:, ::1], _i8, _i8, _i8, _f8), **OPTIONS)
def _add_block(values, at, A, a0, rows, B, b0, columns, depth, sign):  # type: ignore[no-untyped-def]
    """Add sign A'B to a block, with A = A[:depth, a0 : a0 + rows] and B alike; depth is 2 or 3."""
    for i in range(rows):
        x, y = sign * A[0, a0 + i], sign * A[1, a0 + i]
        z = sign * A[2, a0 + i] if depth == 3 else 0.0
        row = values[at + i * columns : at + (i + 1) * columns]
        if depth == 3:
            for k in range(columns):
                row[k] += x * B[0, b0 + k] + y * B[1, b0 + k] + z * B[2, b0 + k]
        else:
            for k in range(columns):
                row[k] += x * B[0, b0 + k] + y * B[1, b0 + k]


@njit(
    _f8(
        _f8[:, ::1], _i8[::1], _i8[::1], _f8[:, ::1], _i8, _i8, _f8[:, ::1], _f8[:, ::1], _i8[::1], _i8, _i8, _f8,
        _i8[:, ::1], _i8[::1], _i8, _i8[:, ::1], _i8[::1], _i8[::1], _i8[::1], _i8[::1], _i8[::1], _f8[::1],
        _f8[::1], _f8[::1], _f8[::1],
    ),
    **OPTIONS,
)  # fmt: skip
def linearize_blocks(  # type: ignore[no-untyped-def]
    cams, start, image, xy, lo, hi, base, trial, stamp, now, code, s2, local, width, longest, node, split, offset,
    first, column, at, reached, costs, gradient, values,
):  # fmt: skip
    """Add the reduced gradient and matrix of the points lo:hi; returns their cost.

    ``node`` (images, 2): nodes of an image's columns before and from ``split`` (images,) on, -1 for none; ``offset``
    (nodes + 1,): first column of each in the tangent space; ``first``, ``column``, ``at``: the blocks.
    """
    work = workspace()
    y, r = np.empty(3), np.empty((longest, 2))
    J, E = np.empty((longest, 2, COLUMNS)), np.empty((longest, 3, COLUMNS))
    total = np.empty((2 * longest, 3, COLUMNS))
    mine = np.empty(2 * longest, dtype=np.int64)
    slot = np.full(offset.shape[0] - 1, -1, dtype=np.int64)
    sum_cost = 0.0
    for j in range(lo, hi):
        begin, end = start[j], start[j + 1]
        if stamp[j] == now:
            base[j] = trial[j]
        cost = solve_point(cams, image, xy, begin, end, base[j], code, s2, work)
        sum_cost += cost
        reached[j] = cost
        if costs.shape[0] > 0:
            costs[j - lo] = cost
        if not reduce_track(cams, image, xy, begin, end, base[j], code, s2, local, width, work, y, r, J, E):
            continue
        count = 0
        for o in range(end - begin):
            i = image[begin + o]
            for part in range(2):
                a = node[i, part]
                if a < 0:
                    continue
                from_, to = (0, split[i]) if part == 0 else (split[i], width[i])
                if slot[a] < 0:
                    slot[a] = count
                    mine[count] = a
                    for k in range(3):
                        for c in range(to - from_):
                            total[count, k, c] = 0.0
                    count += 1
                sums = total[slot[a]]
                for c in range(from_, to):
                    part_of_gradient = J[o, 0, c] * r[o, 0] + J[o, 1, c] * r[o, 1]
                    part_of_gradient -= E[o, 0, c] * y[0] + E[o, 1, c] * y[1] + E[o, 2, c] * y[2]
                    gradient[offset[a] + c - from_] += part_of_gradient
                    for k in range(3):
                        sums[k, c - from_] += E[o, k, c]
                n = to - from_
                _add_block(values, at[first[a + 1] - 1], J[o], from_, n, J[o], from_, n, 2, 1.0)
            if node[i, 0] >= 0 and node[i, 1] >= 0:  # shared intrinsics are numbered after the poses
                b, a = node[i, 0], node[i, 1]
                place = at[_find(column, first[a], first[a + 1], b)]
                _add_block(values, place, J[o], split[i], width[i] - split[i], J[o], 0, split[i], 2, 1.0)
        for p in range(1, count):  # ascending nodes
            a, q = mine[p], p
            while q > 0 and mine[q - 1] > a:
                mine[q] = mine[q - 1]
                q -= 1
            mine[q] = a
        for p in range(count):
            a = mine[p]
            A, rows, place = total[slot[a]], offset[a + 1] - offset[a], first[a]
            for q in range(p + 1):
                b = mine[q]
                place = _find(column, place, first[a + 1], b)
                _add_block(values, at[place], A, 0, rows, total[slot[b]], 0, offset[b + 1] - offset[b], 3, -1.0)
        for p in range(count):
            slot[mine[p]] = -1
    return sum_cost


@njit(
    types.void(
        _f8[:, ::1], _i8[::1], _i8[::1], _f8[:, ::1], _f8[:, ::1], _i8, _f8, _i8[:, ::1], _i8[::1], _i8[:, ::1], _i8,
        _f8[::1], _f8[::1], _f8[::1], _f8, _f8[::1],
    ),
    **OPTIONS,
)  # fmt: skip
def missing_gains(  # type: ignore[no-untyped-def]
    cams, start, image, xy, base, code, s2, local, width, tangent, longest, step, reached, tried, most, missing
):
    """Add to ``missing`` (images,) what a step gained less than predicted, divided among the images of each track.

    The model of a track is ``|r + J s|^2 / 2`` at its minimum over the point. Costs went from ``reached`` to ``tried``
    (points,); of no track more than ``most`` is counted.
    """
    work = workspace()
    y, r, q = np.empty(3), np.empty((longest, 2)), np.empty(3)
    J, E = np.empty((longest, 2, COLUMNS)), np.empty((longest, 3, COLUMNS))
    for j in range(start.shape[0] - 1):
        first, last = start[j], start[j + 1]
        if not reduce_track(cams, image, xy, first, last, base[j], code, s2, local, width, work, y, r, J, E):
            continue
        model = 0.0
        for k in range(3):
            q[k] = y[k]
            model += 0.5 * y[k] * y[k]
        for o in range(last - first):
            i = image[first + o]
            a, b = 0.0, 0.0
            for c in range(width[i]):
                s = step[tangent[i, c]]
                a += J[o, 0, c] * s
                b += J[o, 1, c] * s
                for k in range(3):
                    q[k] += E[o, k, c] * s
            model += a * (r[o, 0] + 0.5 * a) + b * (r[o, 1] + 0.5 * b)
        model -= 0.5 * (q[0] * q[0] + q[1] * q[1] + q[2] * q[2])
        part = tried[j] - reached[j] - model
        part = (part if part < most else most) / (last - first)
        for m in range(first, last):
            missing[image[m]] += part
