r"""Minimal solvers, compiled: three points for the pose, five for pose and focal length.

*Three points.* The rays y_i (unit vectors) see points at the distances d_i, with ``d_i^2 + d_j^2 - 2 y_i.y_j d_i d_j =
|X_i - X_j|^2``. Two combinations of the three equations have no constant term: two conics in (d_1 : d_2 : d_3), which
meet in up to four points.

*Five points, focal length unknown.* A point is seen in the direction (u, v) from the principal point whatever the
focal length is: ``v (r_1.X + t_1) = u (r_2.X + t_2)`` (Tsai 1987). Five such equations leave three of the eight numbers
(r_1, t_1, r_2, t_2); ``r_1.r_2 = 0`` and ``|r_1| = |r_2|`` are two conics in these three. The focal length and t_3 then
follow from linear equations. Points in a plane are no exception.

*Two conics* (Richter-Gebert, Perspectives on Projective Geometry, 11.4): a combination ``P + g Q`` with ``det = 0``, a
cubic in g, is a pair of lines; each of them meets a conic in two points.
"""

from __future__ import annotations

import numpy as np

from ...jit import types
from ...manifolds import compiled, internal
from ..two_view.minimal import null_space

_f8, _i8 = types.float64, types.int64


@internal
def _adjugate(M, out):  # type: ignore[no-untyped-def]
    """Adjugate of a symmetric (3, 3) matrix."""
    for i in range(3):
        for j in range(3):
            a, b, c, d = (i + 1) % 3, (i + 2) % 3, (j + 1) % 3, (j + 2) % 3
            out[i, j] = M[a, c] * M[b, d] - M[a, d] * M[b, c]


@internal
def _cubic_roots(p, roots):  # type: ignore[no-untyped-def]
    """Real roots of the cubic with ascending coefficients p (4,), into ``roots`` (3,); returns their number.

    Closed form (Cardano, Vieta) and two steps of Newton's method: a fifth of the time of a Sturm chain.
    """
    if abs(p[3]) <= 1e-14 * (abs(p[0]) + abs(p[1]) + abs(p[2])):
        return 0
    a, b, c = p[2] / (3.0 * p[3]), p[1] / p[3], p[0] / p[3]
    q, r = a * a - b / 3.0, a * (a * a - 0.5 * b) + 0.5 * c  # y = x + a: y^3 - 3 q y + 2 r = 0
    count = 1
    if r * r < q * q * q:
        count = 3
        root = np.sqrt(q)
        angle = np.arccos(min(max(r / (q * root), -1.0), 1.0)) / 3.0
        for k in range(3):
            roots[k] = -2.0 * root * np.cos(angle + 2.0943951023931953 * k) - a
    else:
        s = np.cbrt(abs(r) + np.sqrt(r * r - q * q * q))
        s = -s if r > 0.0 else s
        roots[0] = s + (q / s if s != 0.0 else 0.0) - a
    for k in range(count):
        for _ in range(2):
            x = roots[k]
            slope = (3.0 * x + 6.0 * a) * x + b
            if slope != 0.0:
                roots[k] = x - (((x + 3.0 * a) * x + b) * x + c) / slope
    return count


@internal
def _line_pair(P, Q, lines):  # type: ignore[no-untyped-def]
    """Write a pair of real lines (2, 3) through the common points of the conics P and Q; False if there is none."""
    A, B, D, p = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3)), np.zeros(4)
    _adjugate(P, A)
    _adjugate(Q, B)
    for i in range(3):
        p[0] += P[0, i] * A[0, i]
        p[3] += Q[0, i] * B[0, i]
        for j in range(3):
            p[1] += A[i, j] * Q[i, j]
            p[2] += B[i, j] * P[i, j]
    roots = np.empty(3)
    best, g = 0.0, np.nan
    for k in range(_cubic_roots(p, roots)):
        size = 0.0
        for i in range(3):
            for j in range(3):
                D[i, j] = P[i, j] + roots[k] * Q[i, j]
                size += D[i, j] * D[i, j]
        _adjugate(D, A)
        # D = l m' + m l' has the adjugate -(l x m)(l x m)': its trace is negative if the lines are real.
        trace = -(A[0, 0] + A[1, 1] + A[2, 2]) / size
        if trace > best:
            best, g = trace, roots[k]
    if not best > 0.0:
        return False
    for i in range(3):
        for j in range(3):
            D[i, j] = P[i, j] + g * Q[i, j]
    _adjugate(D, A)
    at = 0
    for i in range(1, 3):
        if A[i, i] < A[at, at]:
            at = i
    root = np.sqrt(-A[at, at])
    x, y, z = A[0, at] / root, A[1, at] / root, A[2, at] / root
    # D + [l x m] = 2 m l'
    D[0, 1] -= z
    D[0, 2] += y
    D[1, 0] += z
    D[1, 2] -= x
    D[2, 0] -= y
    D[2, 1] += x
    row, column, most = 0, 0, 0.0
    for i in range(3):
        for j in range(3):
            if abs(D[i, j]) > most:
                row, column, most = i, j, abs(D[i, j])
    for j in range(3):
        lines[0, j], lines[1, j] = D[row, j], D[j, column]
    return True


@compiled(_i8(_f8[:, ::1], _f8[:, ::1], _f8[:, ::1]))
def meet_conics(P, Q, out):  # type: ignore[no-untyped-def]
    """Common points of the conics x'P x = 0 and x'Q x = 0, homogeneous, into ``out`` (4, 3); returns their number."""
    lines = np.empty((2, 3))
    if not _line_pair(P, Q, lines):
        return 0
    count = 0
    for n in range(2):
        e = 0
        for j in range(1, 3):
            if abs(lines[n, j]) > abs(lines[n, e]):
                e = j
        if lines[n, e] == 0.0:
            continue
        j, k = (e + 1) % 3, (e + 2) % 3
        b, c = -lines[n, j] / lines[n, e], -lines[n, k] / lines[n, e]  # x_e = b x_j + c x_k
        aa = ab = bb = size = 0.0
        for conic in range(2):  # on the line both are multiples of one form: take the larger
            M = P if conic == 0 else Q
            xx = M[j, j] + 2.0 * b * M[e, j] + b * b * M[e, e]
            xy = M[j, k] + b * M[e, k] + c * M[e, j] + b * c * M[e, e]
            yy = M[k, k] + 2.0 * c * M[e, k] + c * c * M[e, e]
            if abs(xx) + abs(xy) + abs(yy) > size:
                aa, ab, bb, size = xx, xy, yy, abs(xx) + abs(xy) + abs(yy)
        inside = ab * ab - aa * bb
        if inside < 0.0:
            if inside < -1e-12 * size * size:
                continue
            inside = 0.0
        q = -(ab + np.sqrt(inside)) if ab >= 0.0 else -(ab - np.sqrt(inside))
        for sign in range(2):
            xj, xk = (q, aa) if sign == 0 else (bb, q)
            out[count, j], out[count, k], out[count, e] = xj, xk, b * xj + c * xk
            count += 1
    return count


@internal
def _solve3(a, b, c, r):  # type: ignore[no-untyped-def]
    """Solve the linear equations with the rows a, b, c and the right side r, by cofactors, in place of r."""
    x0, x1, x2 = b[1] * c[2] - b[2] * c[1], b[2] * c[0] - b[0] * c[2], b[0] * c[1] - b[1] * c[0]
    det = a[0] * x0 + a[1] * x1 + a[2] * x2
    if det == 0.0:
        return
    y0, y1, y2 = c[1] * a[2] - c[2] * a[1], c[2] * a[0] - c[0] * a[2], c[0] * a[1] - c[1] * a[0]
    z0, z1, z2 = a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]
    p, q, s = r[0], r[1], r[2]
    r[0] = (p * x0 + q * y0 + s * z0) / det
    r[1] = (p * x1 + q * y1 + s * z1) / det
    r[2] = (p * x2 + q * y2 + s * z2) / det


@internal
def _improve(d, c01, c02, c12, a01, a02, a12):  # type: ignore[no-untyped-def]
    """Two Newton steps on the three equations of the distances d (3,)."""
    r, a, b, c = np.empty(3), np.zeros(3), np.zeros(3), np.zeros(3)
    for _ in range(2):
        r[0] = d[0] * d[0] + d[1] * d[1] - 2.0 * c01 * d[0] * d[1] - a01
        r[1] = d[0] * d[0] + d[2] * d[2] - 2.0 * c02 * d[0] * d[2] - a02
        r[2] = d[1] * d[1] + d[2] * d[2] - 2.0 * c12 * d[1] * d[2] - a12
        a[0], a[1] = 2.0 * (d[0] - c01 * d[1]), 2.0 * (d[1] - c01 * d[0])
        b[0], b[2] = 2.0 * (d[0] - c02 * d[2]), 2.0 * (d[2] - c02 * d[0])
        c[1], c[2] = 2.0 * (d[1] - c12 * d[2]), 2.0 * (d[2] - c12 * d[1])
        _solve3(a, b, c, r)
        for j in range(3):
            d[j] -= r[j]


@internal
def _frame(A, B, C, out):  # type: ignore[no-untyped-def]
    """Orthonormal columns, (3, 3), of the triangle ABC: along AB, in its plane, across; False if it has no area."""
    p0, p1, p2 = B[0] - A[0], B[1] - A[1], B[2] - A[2]
    q0, q1, q2 = C[0] - A[0], C[1] - A[1], C[2] - A[2]
    n0, n1, n2 = p1 * q2 - p2 * q1, p2 * q0 - p0 * q2, p0 * q1 - p1 * q0
    pp, nn = p0 * p0 + p1 * p1 + p2 * p2, n0 * n0 + n1 * n1 + n2 * n2
    if not nn > 1e-12 * pp * (q0 * q0 + q1 * q1 + q2 * q2):
        return False
    p, n = 1.0 / np.sqrt(pp), 1.0 / np.sqrt(nn)
    p0, p1, p2, n0, n1, n2 = p0 * p, p1 * p, p2 * p, n0 * n, n1 * n, n2 * n
    out[0, 0], out[1, 0], out[2, 0] = p0, p1, p2
    out[0, 1], out[1, 1], out[2, 1] = n1 * p2 - n2 * p1, n2 * p0 - n0 * p2, n0 * p1 - n1 * p0
    out[0, 2], out[1, 2], out[2, 2] = n0, n1, n2
    return True


@compiled(_i8(_f8[:, ::1], _f8[:, ::1], _f8[:, ::1]))
def three_point(rays, X, out):  # type: ignore[no-untyped-def]
    """Poses of three points X (3, 3) seen along rays (3, 2), (u, v, 1), into ``out`` (4, 13); returns their number.

    A row holds R row by row, t with ``z (u, v, 1) = R X + t``, and 0 for the logarithm of the focal length.
    """
    W, F = np.empty((3, 3)), np.empty((3, 3))
    if not _frame(X[0], X[1], X[2], W):
        return 0
    y = np.empty((3, 3))
    for i in range(3):
        norm = 1.0 / np.sqrt(rays[i, 0] * rays[i, 0] + rays[i, 1] * rays[i, 1] + 1.0)
        y[i, 0], y[i, 1], y[i, 2] = rays[i, 0] * norm, rays[i, 1] * norm, norm
    c01 = y[0, 0] * y[1, 0] + y[0, 1] * y[1, 1] + y[0, 2] * y[1, 2]
    c02 = y[0, 0] * y[2, 0] + y[0, 1] * y[2, 1] + y[0, 2] * y[2, 2]
    c12 = y[1, 0] * y[2, 0] + y[1, 1] * y[2, 1] + y[1, 2] * y[2, 2]
    a01 = (X[0, 0] - X[1, 0]) ** 2 + (X[0, 1] - X[1, 1]) ** 2 + (X[0, 2] - X[1, 2]) ** 2
    a02 = (X[0, 0] - X[2, 0]) ** 2 + (X[0, 1] - X[2, 1]) ** 2 + (X[0, 2] - X[2, 2]) ** 2
    a12 = (X[1, 0] - X[2, 0]) ** 2 + (X[1, 1] - X[2, 1]) ** 2 + (X[1, 2] - X[2, 2]) ** 2
    P, Q = np.zeros((3, 3)), np.zeros((3, 3))
    P[0, 0], P[1, 1], P[2, 2] = a12, a12 - a01, -a01
    P[0, 1] = P[1, 0] = -a12 * c01
    P[1, 2] = P[2, 1] = a01 * c12
    Q[0, 0], Q[1, 1], Q[2, 2] = a12, -a02, a12 - a02
    Q[0, 2] = Q[2, 0] = -a12 * c02
    Q[1, 2] = Q[2, 1] = a02 * c12
    common = np.empty((4, 3))
    count = 0
    for k in range(meet_conics(P, Q, common)):
        d = common[k]
        if d[0] < 0.0:
            d[0], d[1], d[2] = -d[0], -d[1], -d[2]
        if not (d[0] > 0.0 and d[1] > 0.0 and d[2] > 0.0):
            continue
        form = d[0] * d[0] + d[1] * d[1] - 2.0 * c01 * d[0] * d[1]
        form += d[0] * d[0] + d[2] * d[2] - 2.0 * c02 * d[0] * d[2]
        form += d[1] * d[1] + d[2] * d[2] - 2.0 * c12 * d[1] * d[2]
        size = np.sqrt((a01 + a02 + a12) / form)
        for j in range(3):
            d[j] *= size
        _improve(d, c01, c02, c12, a01, a02, a12)
        for i in range(3):
            for j in range(3):
                P[i, j] = d[i] * y[i, j]
        if not _frame(P[0], P[1], P[2], F):
            continue
        for i in range(3):
            out[count, 9 + i] = P[0, i]
            for j in range(3):
                out[count, 3 * i + j] = F[i, 0] * W[j, 0] + F[i, 1] * W[j, 1] + F[i, 2] * W[j, 2]
                out[count, 9 + i] -= out[count, 3 * i + j] * X[0, j]
        out[count, 12] = 0.0
        count += 1
    return count


@internal
def _depth_and_focal(rays, X, p, out):  # type: ignore[no-untyped-def]
    """Complete a pose from its first two rows p (r_1, t_1, r_2, t_2) of norm 1: t_3 and f by least squares."""
    r0, r1, r2 = p[1] * p[6] - p[2] * p[5], p[2] * p[4] - p[0] * p[6], p[0] * p[5] - p[1] * p[4]
    aa = ab = bb = ac = bc = 0.0
    for i in range(5):
        u, v = rays[i, 0], rays[i, 1]
        x = p[0] * X[i, 0] + p[1] * X[i, 1] + p[2] * X[i, 2] + p[3]
        y = p[4] * X[i, 0] + p[5] * X[i, 1] + p[6] * X[i, 2] + p[7]
        z = r0 * X[i, 0] + r1 * X[i, 1] + r2 * X[i, 2]
        a, b = u * x + v * y, -(u * u + v * v)  # f a + t_3 b = -b z
        aa, ab, bb, ac, bc = aa + a * a, ab + a * b, bb + b * b, ac - a * b * z, bc - b * b * z
    det = aa * bb - ab * ab
    if not det > 1e-14 * aa * bb:
        return False
    f, t = (bb * ac - ab * bc) / det, (aa * bc - ab * ac) / det
    if not f > 0.0:
        return False
    for i in range(5):
        if not r0 * X[i, 0] + r1 * X[i, 1] + r2 * X[i, 2] + t > 0.0:
            return False
    for j in range(3):
        out[j], out[3 + j] = p[j], p[4 + j]
    out[6], out[7], out[8] = r0, r1, r2
    out[9], out[10], out[11], out[12] = p[3], p[7], t, np.log(f)
    return True


@compiled(_i8(_f8[:, ::1], _f8[:, ::1], _f8[:, ::1]))
def five_point_focal(rays, X, out):  # type: ignore[no-untyped-def]
    """Poses and focal lengths of five points X (5, 3) seen at ``rays`` (5, 2), into ``out`` (4, 13).

    The rays are coordinates relative to the principal point, of any unit. A row holds R, t and ``log f`` in that unit:
    ``z (u, v, f) = f (R X + t)``. Returns the number of solutions.
    """
    A = np.zeros((6, 9))
    for i in range(5):
        u, v = rays[i, 0], rays[i, 1]
        for j in range(3):
            A[i, j], A[i, 4 + j] = v * X[i, j], -u * X[i, j]
        A[i, 3], A[i, 7] = v, -u
    A[5, 8] = 1.0
    N = null_space(A)
    P, Q = np.zeros((3, 3)), np.zeros((3, 3))
    for i in range(3):
        for j in range(3):
            for k in range(3):
                P[i, j] += 0.5 * (N[i, k] * N[j, 4 + k] + N[j, k] * N[i, 4 + k])
                Q[i, j] += N[i, k] * N[j, k] - N[i, 4 + k] * N[j, 4 + k]
    common, p = np.empty((4, 3)), np.empty(8)
    count = 0
    for k in range(meet_conics(P, Q, common)):
        norm = 0.0
        for j in range(8):
            p[j] = common[k, 0] * N[0, j] + common[k, 1] * N[1, j] + common[k, 2] * N[2, j]
        for j in range(3):
            norm += 0.5 * (p[j] * p[j] + p[4 + j] * p[4 + j])
        if not norm > 0.0:
            continue
        side = 0.0
        for i in range(5):
            x = p[0] * X[i, 0] + p[1] * X[i, 1] + p[2] * X[i, 2] + p[3]
            y = p[4] * X[i, 0] + p[5] * X[i, 1] + p[6] * X[i, 2] + p[7]
            side += rays[i, 0] * x + rays[i, 1] * y
        scale = (1.0 if side > 0.0 else -1.0) / np.sqrt(norm)
        for j in range(8):
            p[j] *= scale
        if _depth_and_focal(rays, X, p, out[count]):
            count += 1
    return count
