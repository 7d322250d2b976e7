r"""The reduction of bundle adjustment: a track's block, with its point eliminated, onto the cameras.

A block is one point's track: observations ``start[j] : start[j + 1]``, each in some image. Its cost, as a
function of the cameras alone, is

    f_j(theta) = min_X sum_m s^2/2 rho(||r_m(theta, X)||^2 / s^2)

(`problm.vision.bundle.points`); the loss acts on each observation, not on the track. At the inner minimum the gradient
with respect to the cameras is ``J_c' W r`` (the envelope theorem), and the Gauss-Newton matrix is the Schur complement
``J_c' W J_c - E V^-1 E'``, ``E = J_c' W J_X``, ``V = J_X' W J_X``. The gradient is reduced in the same way, ``J_c' W r
- E V^-1 J_X' W r``, which cancels the error of the inner solve to first order.

Images of a track may share columns (intrinsics) or be the same twice: terms of a pair of observations are
therefore scattered by the tangent number of each column: a matrix M takes the pairs a > b and half of (a, a),
and the sum is ``M + M'``.

Columns of an image: 3 rotation (``R <- exp([w]) R, t <- exp([w]) t + v``: everything in the camera's own frame, so
nothing depends on the origin of the world), 3 translation v, PLACES intrinsics (`problm.vision.bundle.camera_models`).
"""

from __future__ import annotations

import numpy as np

from ...jit import types
from ...jit.njit import njit
from ...kernels.robust import rho
from ...manifolds import multiply, rotation_exp
from .camera_models import PLACES
from .points import OPTIONS, WORK, _basis, _factor, _project, carried, solve_point, workspace
from .projection import COLUMNS, NUMBER, coefficient_columns, coefficients

_f8, _i8 = types.float64, types.int64


@njit(
    types.void(
        _f8[:, ::1], _f8[:, ::1], _i8[::1], _i8[::1], _f8[:, ::1], _i8[::1], _i8, _i8, _f8[:, ::1], _f8[:, ::1],
        _i8[::1], _i8, _i8, _i8, _f8, _f8[::1], _f8[::1],
    ),
    **OPTIONS,
)  # fmt: skip
def costs_chunk(  # type: ignore[no-untyped-def]
    before, cams, start, image, xy, rows, lo, hi, base, trial, stamp, now, here, code, s2, reached, costs
):
    """Costs of the points rows[lo:hi] (natural numbers if ``rows`` is empty), each solved from ``base``.

    The solutions go to ``trial``, stamped ``now``; those stamped ``here``, the number of the current point theta,
    first become the base: they are the solutions there. Where the cost is well above the one ``reached`` (points,)
    with the cameras ``before``, the solve is repeated from the base moved with its nearest camera: a point near a
    camera may otherwise fall into another minimum.
    """
    work, other = workspace(), np.empty(4)
    for k in range(lo, hi):
        j = rows[k] if rows.shape[0] > 0 else k
        if stamp[j] == here:
            base[j] = trial[j]
        trial[j] = base[j]
        stamp[j] = now
        cost = solve_point(cams, image, xy, start[j], start[j + 1], trial[j], code, s2, work)
        if cost > 1.5 * reached[j]:
            carried(before, cams, image, start[j], start[j + 1], base[j], other)
            again = solve_point(cams, image, xy, start[j], start[j + 1], other, code, s2, work)
            if again < cost:
                cost = again
                trial[j] = other
        costs[k - lo] = cost


@njit(
    types.void(_f8[:, ::1], _i8, _f8, _f8, _f8, _f8, _f8, _i8[::1], _f8[:, ::1], _f8[::1], _f8[:, ::1]),
    **OPTIONS,
)
def _camera_columns(cams, i, x, y, z, w, root, local, D, scratch, J):  # type: ignore[no-untyped-def]
    """Weighted derivative J (2, columns) of a pixel in the image's free columns, numbered by ``local`` (COLUMNS,)."""
    iz = 1.0 / z
    u, v = x * iz, y * iz
    a0, a1 = D[0, 0] * iz * root, D[0, 1] * iz * root
    b0, b1 = D[1, 0] * iz * root, D[1, 1] * iz * root
    a2, b2 = -(a0 * u + a1 * v), -(b0 * u + b1 * v)
    if local[0] >= 0:  # -J_x [x]: (J_x column by e_k cross x)
        c = local[0]
        J[0, c] = a2 * y - a1 * z
        J[1, c] = b2 * y - b1 * z
        J[0, c + 1] = a0 * z - a2 * x
        J[1, c + 1] = b0 * z - b2 * x
        J[0, c + 2] = a1 * x - a0 * y
        J[1, c + 2] = b1 * x - b0 * y
        J[0, c + 3] = a0 * w
        J[1, c + 3] = b0 * w
        J[0, c + 4] = a1 * w
        J[1, c + 4] = b1 * w
        J[0, c + 5] = a2 * w
        J[1, c + 5] = b2 * w
    if local[6] >= 0:
        if local[6] == local[7]:
            J[0, local[6]] = scratch[0] * root
            J[1, local[6]] = scratch[1] * root
        else:
            J[0, local[6]] = scratch[0] * root
            J[1, local[6]] = 0.0
            J[0, local[7]] = 0.0
            J[1, local[7]] = scratch[1] * root
    if local[8] >= 0:
        J[0, local[8]] = root
        J[1, local[8]] = 0.0
        J[0, local[9]] = 0.0
        J[1, local[9]] = root
    coefficient_columns(cams[i, NUMBER], u, v, coefficients(cams, i), cams[i, 12] * root, cams[i, 13] * root, local, J)


@njit(
    types.boolean(
        _f8[:, ::1], _i8[::1], _f8[:, ::1], _i8, _i8, _f8[::1], _i8, _f8, _i8[:, ::1], _i8[::1], WORK, _f8[::1],
        _f8[:, ::1], _f8[:, :, ::1], _f8[:, :, ::1],
    ),
    **OPTIONS,
)  # fmt: skip
def reduce_track(cams, image, xy, first, last, X, code, s2, local, width, work, y, r, J, E):  # type: ignore[no-untyped-def]
    """Derivatives of the track first:last at its point X, with the point eliminated; False if X is not determined.

    Weighted residuals r (n, 2), their derivatives J (n, 2, COLUMNS) in the free columns of each image, and, with
    ``V = L L'``, ``E = L^-1 J_X' J`` (n, 3, COLUMNS) and ``y = L^-1 J_X' r`` (3,).
    """
    scratch, D, B, g, V, L = work[0], work[1], work[4], work[5], work[6], work[7]
    _basis(X, B)
    for a in range(3):
        g[a] = 0.0
        for b in range(3):
            V[a, b] = 0.0
    w = X[3]
    for m in range(first, last):
        o = m - first
        cam = cams[image[m]]
        x = cam[0] * X[0] + cam[1] * X[1] + cam[2] * X[2] + cam[9] * w
        yy = cam[3] * X[0] + cam[4] * X[1] + cam[5] * X[2] + cam[10] * w
        z = cam[6] * X[0] + cam[7] * X[1] + cam[8] * X[2] + cam[11] * w
        iz = 1.0 / z
        u, v = x * iz, yy * iz
        p0, p1 = _project(cams, image[m], u, v, scratch, D)
        r[o, 0], r[o, 1] = p0 - xy[m, 0], p1 - xy[m, 1]
        root = 1.0
        if code != 0:
            root = np.sqrt(rho(code, (r[o, 0] * r[o, 0] + r[o, 1] * r[o, 1]) / s2)[1])
            r[o, 0] *= root
            r[o, 1] *= root
        _camera_columns(cams, image[m], x, yy, z, w, root, local[image[m]], D, scratch, J[o])
        n = width[image[m]]
        for a in range(3):
            for c in range(n):
                E[o, a, c] = 0.0
        for i in range(2):
            a0, a1 = D[i, 0] * iz * root, D[i, 1] * iz * root
            a2 = -(a0 * u + a1 * v)
            q0 = a0 * cam[0] + a1 * cam[3] + a2 * cam[6]
            q1 = a0 * cam[1] + a1 * cam[4] + a2 * cam[7]
            q2 = a0 * cam[2] + a1 * cam[5] + a2 * cam[8]
            q3 = a0 * cam[9] + a1 * cam[10] + a2 * cam[11]
            P0 = q0 * B[0, 0] + q1 * B[1, 0] + q2 * B[2, 0] + q3 * B[3, 0]
            P1 = q0 * B[0, 1] + q1 * B[1, 1] + q2 * B[2, 1] + q3 * B[3, 1]
            P2 = q0 * B[0, 2] + q1 * B[1, 2] + q2 * B[2, 2] + q3 * B[3, 2]
            g[0] += P0 * r[o, i]
            g[1] += P1 * r[o, i]
            g[2] += P2 * r[o, i]
            V[0, 0] += P0 * P0
            V[1, 0] += P1 * P0
            V[1, 1] += P1 * P1
            V[2, 0] += P2 * P0
            V[2, 1] += P2 * P1
            V[2, 2] += P2 * P2
            for c in range(n):
                E[o, 0, c] += J[o, i, c] * P0
                E[o, 1, c] += J[o, i, c] * P1
                E[o, 2, c] += J[o, i, c] * P2
    mu = 0.0
    while not _factor(V, mu, L):
        # The track does not determine its point in this direction: damping removes it.
        mu = max(10.0 * mu, 1e-12)
        if mu > 1.0:
            return False
    y[0] = g[0] * L[0, 0]
    y[1] = (g[1] - L[1, 0] * y[0]) * L[1, 1]
    y[2] = (g[2] - L[2, 0] * y[0] - L[2, 1] * y[1]) * L[2, 2]
    for o in range(last - first):
        for c in range(width[image[first + o]]):
            e0 = E[o, 0, c] * L[0, 0]
            e1 = (E[o, 1, c] - L[1, 0] * e0) * L[1, 1]
            E[o, 0, c], E[o, 1, c] = e0, e1
            E[o, 2, c] = (E[o, 2, c] - L[2, 0] * e0 - L[2, 1] * e1) * L[2, 2]
    return True


@njit(
    _f8(
        _f8[:, ::1], _i8[::1], _i8[::1], _f8[:, ::1], _i8[::1], _i8, _i8, _f8[:, ::1], _f8[:, ::1], _i8[::1], _i8,
        _i8, _f8, _i8[:, ::1], _i8[::1], _i8[:, ::1], _i8, _i8, _f8[::1], _f8[::1], _f8[::1], _f8[:, ::1],
        _f8[:, ::1],
    ),
    **OPTIONS,
)  # fmt: skip
def linearize_chunk(  # type: ignore[no-untyped-def]
    cams, start, image, xy, rows, lo, hi, base, trial, stamp, now, code, s2, local, width, tangent, longest, outer,
    reached, costs, gradient, half, products,
):  # fmt: skip
    """Add the reduced gradient, matrix and outer products of the points rows[lo:hi]; returns their cost.

    The cost of each is kept in ``reached`` (points,).

    ``local`` (images, COLUMNS): place of each possible column among the image's own, -1 if it is not free; ``width``
    (images,): how many are free; ``tangent`` (images, COLUMNS): their numbers in the tangent space.
    """
    d = gradient.shape[0]
    work = workspace()
    y, r = np.empty(3), np.empty((longest, 2))
    J, E = np.empty((longest, 2, COLUMNS)), np.empty((longest, 3, COLUMNS))
    mine, seen = np.zeros(d), np.zeros(d, dtype=np.bool_)
    touched = np.empty(longest * COLUMNS, dtype=np.int64)
    sum_cost = 0.0
    for k in range(lo, hi):
        j = rows[k] if rows.shape[0] > 0 else k
        first, last = start[j], start[j + 1]
        if stamp[j] == now:
            base[j] = trial[j]
        cost = solve_point(cams, image, xy, first, last, base[j], code, s2, work)
        sum_cost += cost
        reached[j] = cost
        if costs.shape[0] > 0:
            costs[k - lo] = cost
        if not reduce_track(cams, image, xy, first, last, base[j], code, s2, local, width, work, y, r, J, E):
            continue
        count = 0
        for o in range(last - first):
            i = image[first + o]
            n = width[i]
            for c in range(n):
                e0, e1, e2 = E[o, 0, c], E[o, 1, c], E[o, 2, c]
                t = tangent[i, c]
                part = J[o, 0, c] * r[o, 0] + J[o, 1, c] * r[o, 1] - (e0 * y[0] + e1 * y[1] + e2 * y[2])
                gradient[t] += part
                if outer:
                    if not seen[t]:
                        seen[t] = True
                        touched[count] = t
                        count += 1
                    mine[t] += part
                for b in range(c + 1):
                    s = J[o, 0, c] * J[o, 0, b] + J[o, 1, c] * J[o, 1, b]
                    s -= e0 * E[o, 0, b] + e1 * E[o, 1, b] + e2 * E[o, 2, b]
                    half[t, tangent[i, b]] += 0.5 * s if b == c else s
            for p in range(o):
                h = image[first + p]
                for c in range(n):
                    e0, e1, e2 = E[o, 0, c], E[o, 1, c], E[o, 2, c]
                    row = half[tangent[i, c]]
                    for b in range(width[h]):
                        row[tangent[h, b]] -= e0 * E[p, 0, b] + e1 * E[p, 1, b] + e2 * E[p, 2, b]
        if outer:
            for a in range(count):
                t = touched[a]
                for b in range(count):
                    products[t, touched[b]] += mine[t] * mine[touched[b]]
            for a in range(count):
                mine[touched[a]] = 0.0
                seen[touched[a]] = False
    return sum_cost


@njit(_f8[::1](_f8[::1], _f8[::1], _i8[:, ::1], _i8[:, ::1], _i8[::1]), **OPTIONS)
def move_cameras(theta, delta, local, tangent, owner):  # type: ignore[no-untyped-def]
    """Retract: poses in the camera's own frame, intrinsics by addition.

    theta: (12 images + PLACES cameras); ``owner`` (images,): which camera's intrinsics an image has.
    """
    images = local.shape[0]
    out = theta.copy()
    step = np.empty(3)
    done = np.zeros(out.shape[0], dtype=np.int64)
    for i in range(images):
        if local[i, 0] >= 0:
            for k in range(3):
                step[k] = delta[tangent[i, local[i, 0] + k]]
            turn = rotation_exp(step)
            R = multiply(turn, theta[12 * i : 12 * i + 9].reshape(3, 3))
            # One Newton step to the nearest rotation keeps rounding errors from accumulating.
            G = -0.5 * multiply(R.T.copy(), R)
            for k in range(3):
                G[k, k] += 1.5
            R = multiply(R, G)
            for k in range(9):
                out[12 * i + k] = R[k // 3, k % 3]
            for k in range(3):
                s = delta[tangent[i, local[i, 0] + 3 + k]]
                for a in range(3):
                    s += turn[k, a] * theta[12 * i + 9 + a]
                out[12 * i + 9 + k] = s
        for place in range(PLACES):
            c = local[i, 6 + place]
            at = 12 * images + PLACES * owner[i] + place
            if c >= 0 and done[at] == 0:
                out[at] += delta[tangent[i, c]]
                done[at] = 1
    return out


@njit(types.void(types.Array(_f8, 2, "C", readonly=True), _i8[::1], _f8[:, ::1]), nogil=True, error_model="numpy")
def homogeneous(points, kept, out):  # type: ignore[no-untyped-def]
    """Points as homogeneous unit vectors (n, 4). In one pass: NumPy would need four."""
    for j in range(len(kept)):
        x, y, z = points[kept[j], 0], points[kept[j], 1], points[kept[j], 2]
        length = np.sqrt(x * x + y * y + z * z + 1.0)
        out[j, 0], out[j, 1], out[j, 2], out[j, 3] = x / length, y / length, z / length, 1.0 / length
