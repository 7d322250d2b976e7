r"""Minimal solvers, compiled: five points for E, seven for F, four for H.

Each takes a sample of matches, rows (x1, y1, x2, y2) in calibrated or unit-size coordinates, writes its solutions
to ``out`` as rows of nine numbers and returns how many there are.

*Seven points*: the null space of the seven equations x2'F x1 = 0 is F = x X + W; det F = 0 is a cubic in x.

*Five points* (Nister, PAMI 2004): the null space of the five equations is E = x X + y Y + z Z + W. The ten cubic
conditions of an essential matrix, det E = 0 and 2 E E'E - tr(E E') E = 0, are a 10 x 20 matrix over the monomials

    x3 y3 x2y xy2 x2z x2 y2z y2 xyz xy | xz2 xz x yz2 yz y z3 z2 z 1

After elimination of the first ten, the rows of x2z and x2, y2z and y2, xyz and xy give three equations that are
linear in (x, y, 1) with polynomials in z as coefficients; their determinant has degree 10. Its real roots are
isolated by a Sturm chain and give x and y.

*Four points*: the null vector of eight equations; a sample with three points on a line is refused.
"""

from __future__ import annotations

import numpy as np

from ...jit import types
from ...linalg.polynomial import real_roots
from ...manifolds import compiled, internal

_f8, _i8 = types.float64, types.int64

# Where the product of two linear forms in (x, y, z, 1) goes among the quadratic monomials
# x2 xy xz x y2 yz y z2 z 1, and of a quadratic and a linear one among the cubic monomials of the docstring.
_LINEAR_PAIR = np.array([[0, 1, 2, 3], [1, 4, 5, 6], [2, 5, 7, 8], [3, 6, 8, 9]])
_QUADRATIC_LINEAR = np.array(
    [
        [0, 2, 4, 5],
        [2, 3, 8, 9],
        [4, 8, 10, 11],
        [5, 9, 11, 12],
        [3, 1, 6, 7],
        [8, 6, 13, 14],
        [9, 7, 14, 15],
        [10, 13, 16, 17],
        [11, 14, 17, 18],
        [12, 15, 18, 19],
    ]
)
_SYMMETRIC = np.array([[0, 1, 2], [1, 3, 4], [2, 4, 5]])  # where the upper triangle of a (3, 3) matrix is kept


@compiled(_f8[:, ::1](_f8[:, ::1]))
def null_space(A):  # type: ignore[no-untyped-def]
    """Orthonormal basis, (9 - m, 9), of the null space of A (m, 9), m < 9 rows of full rank; A is overwritten.

    Householder: the reflections that make A lower triangular take the last axes to the null space.
    """
    m = A.shape[0]
    N = np.zeros((9 - m, 9))
    scale = np.empty(m)
    for k in range(m):
        norm = 0.0
        for j in range(k, 9):
            norm += A[k, j] * A[k, j]
        norm = np.sqrt(norm)
        if A[k, k] > 0.0:
            norm = -norm
        # v = row - norm e_k, |v|^2 / 2 = norm^2 - norm row_k
        half = norm * norm - norm * A[k, k]
        A[k, k] -= norm
        scale[k] = 1.0 / half if half > 0.0 else 0.0
        for i in range(k + 1, m):
            dot = 0.0
            for j in range(k, 9):
                dot += A[k, j] * A[i, j]
            dot *= scale[k]
            for j in range(k, 9):
                A[i, j] -= dot * A[k, j]
    for i in range(9 - m):
        N[i, m + i] = 1.0
        for k in range(m - 1, -1, -1):
            dot = 0.0
            for j in range(k, 9):
                dot += A[k, j] * N[i, j]
            dot *= scale[k]
            for j in range(k, 9):
                N[i, j] -= dot * A[k, j]
    return N


@internal
def _epipolar_rows(x, A):  # type: ignore[no-untyped-def]
    """Equations x2'F x1 = 0, one row of nine per match."""
    for i in range(A.shape[0]):
        a, b, c, d = x[i, 0], x[i, 1], x[i, 2], x[i, 3]
        A[i, 0], A[i, 1], A[i, 2] = c * a, c * b, c
        A[i, 3], A[i, 4], A[i, 5] = d * a, d * b, d
        A[i, 6], A[i, 7], A[i, 8] = a, b, 1.0


@internal
def _essential_conditions(N, M):  # type: ignore[no-untyped-def]
    """The 10 x 20 matrix of cubic conditions on E = x N_0 + y N_1 + z N_2 + N_3."""
    G = np.zeros((6, 10))  # E E', upper triangle: rows 00 01 02 11 12 22
    row = 0
    for i in range(3):
        for j in range(i, 3):
            for k in range(3):
                for u in range(4):
                    for v in range(4):
                        G[row, _LINEAR_PAIR[u, v]] += N[u, 3 * i + k] * N[v, 3 * j + k]
            row += 1
    for q in range(10):
        half_trace = 0.5 * (G[0, q] + G[3, q] + G[5, q])
        G[0, q] -= half_trace
        G[3, q] -= half_trace
        G[5, q] -= half_trace
    for i in range(10):
        for q in range(20):
            M[i, q] = 0.0
    for i in range(3):  # (E E' - tr/2) E = 0
        for j in range(3):
            for k in range(3):
                g = _SYMMETRIC[i, k]
                for q in range(10):
                    for v in range(4):
                        M[3 * i + j, _QUADRATIC_LINEAR[q, v]] += G[g, q] * N[v, 3 * k + j]
    for j in range(3):  # det E, along its first row
        k, m = (j + 1) % 3, (j + 2) % 3
        minor = np.zeros(10)
        for u in range(4):
            for v in range(4):
                minor[_LINEAR_PAIR[u, v]] += N[u, 3 + k] * N[v, 6 + m] - N[u, 3 + m] * N[v, 6 + k]
        for q in range(10):
            for v in range(4):
                M[9, _QUADRATIC_LINEAR[q, v]] += minor[q] * N[v, j]


@internal
def _eliminate(M):  # type: ignore[no-untyped-def]
    """Gauss-Jordan with row pivots on the first ten columns; only rows 4 to 9 are reduced in full."""
    for k in range(10):
        pivot = k
        for i in range(k + 1, 10):
            if abs(M[i, k]) > abs(M[pivot, k]):
                pivot = i
        if M[pivot, k] == 0.0:
            return False
        if pivot != k:
            for j in range(k, 20):
                M[k, j], M[pivot, j] = M[pivot, j], M[k, j]
        inv = 1.0 / M[k, k]
        for j in range(k, 20):
            M[k, j] *= inv
        for i in range(k + 1, 10):
            f = M[i, k]
            for j in range(k + 1, 20):
                M[i, j] -= f * M[k, j]
    for k in range(9, 4, -1):
        for i in range(4, k):
            f = M[i, k]
            for j in range(10, 20):
                M[i, j] -= f * M[k, j]
    return True


@internal
def _multiply_add(a, da, b, db, sign, out):  # type: ignore[no-untyped-def]
    """out += sign a b for polynomials of degrees da, db."""
    for i in range(da + 1):
        for j in range(db + 1):
            out[i + j] += sign * a[i] * b[j]


@compiled(_i8(_f8[:, ::1], _f8[:, ::1]))
def five_point(x, out):  # type: ignore[no-untyped-def]
    """Essential matrices of five matches ``x`` (5, 4), into ``out`` (10, 9), norm 1; returns their number."""
    A = np.empty((5, 9))
    _epipolar_rows(x, A)
    N = null_space(A)
    M = np.empty((10, 20))
    _essential_conditions(N, M)
    if not _eliminate(M):
        return 0
    # Row pairs (x2z, x2), (y2z, y2), (xyz, xy): first minus z times second. Coefficients ascending in z.
    B = np.zeros((3, 3, 5))
    for r in range(3):
        e, f = 4 + 2 * r, 5 + 2 * r
        for part in range(2):
            c = 10 + 3 * part
            B[r, part, 0] = M[e, c + 2]
            B[r, part, 1] = M[e, c + 1] - M[f, c + 2]
            B[r, part, 2] = M[e, c] - M[f, c + 1]
            B[r, part, 3] = -M[f, c]
        B[r, 2, 0] = M[e, 19]
        B[r, 2, 1] = M[e, 18] - M[f, 19]
        B[r, 2, 2] = M[e, 17] - M[f, 18]
        B[r, 2, 3] = M[e, 16] - M[f, 17]
        B[r, 2, 4] = -M[f, 16]
    det = np.zeros(11)
    for j in range(3):
        k, m = (j + 1) % 3, (j + 2) % 3
        dk, dm = (4 if k == 2 else 3), (4 if m == 2 else 3)
        minor = np.zeros(8)
        _multiply_add(B[1, k], dk, B[2, m], dm, 1.0, minor)
        _multiply_add(B[1, m], dm, B[2, k], dk, -1.0, minor)
        _multiply_add(minor, dk + dm, B[0, j], 4 if j == 2 else 3, 1.0, det)
    roots = np.empty(10)
    found = real_roots(det, roots)
    b = np.empty((3, 3))
    count = 0
    for s in range(found):
        z = roots[s]
        for r in range(3):
            for part in range(3):
                b[r, part] = (((B[r, part, 4] * z + B[r, part, 3]) * z + B[r, part, 2]) * z + B[r, part, 1]) * z + B[
                    r, part, 0
                ]
        # (x, y, 1) is orthogonal to the rows: the largest cross product of two of them.
        best, x0, y0, w0 = 0.0, 0.0, 0.0, 0.0
        for i in range(3):
            p, q = i, (i + 1) % 3
            cx = b[p, 1] * b[q, 2] - b[p, 2] * b[q, 1]
            cy = b[p, 2] * b[q, 0] - b[p, 0] * b[q, 2]
            cw = b[p, 0] * b[q, 1] - b[p, 1] * b[q, 0]
            if abs(cw) > best:
                best, x0, y0, w0 = abs(cw), cx, cy, cw
        if best == 0.0:
            continue
        x0, y0 = x0 / w0, y0 / w0
        # N is orthonormal, so this is the norm of E.
        norm = 1.0 / np.sqrt(x0 * x0 + y0 * y0 + z * z + 1.0)
        for j in range(9):
            out[count, j] = (x0 * N[0, j] + y0 * N[1, j] + z * N[2, j] + N[3, j]) * norm
        count += 1
    return count


@compiled(_i8(_f8[:, ::1], _f8[:, ::1]))
def seven_point(x, out):  # type: ignore[no-untyped-def]
    """Fundamental matrices of seven matches ``x`` (7, 4), into ``out`` (3, 9), norm 1; returns their number."""
    A = np.empty((7, 9))
    _epipolar_rows(x, A)
    N = null_space(A)
    p = np.zeros(4)
    linear = np.empty((9, 2))
    for j in range(9):
        linear[j, 0], linear[j, 1] = N[1, j], N[0, j]
    for j in range(3):
        k, m = (j + 1) % 3, (j + 2) % 3
        minor = np.zeros(3)
        _multiply_add(linear[3 + k], 1, linear[6 + m], 1, 1.0, minor)
        _multiply_add(linear[3 + m], 1, linear[6 + k], 1, -1.0, minor)
        _multiply_add(minor, 2, linear[j], 1, 1.0, p)
    roots = np.empty(3)
    found = real_roots(p, roots)
    for s in range(found):
        norm = 1.0 / np.sqrt(roots[s] * roots[s] + 1.0)
        for j in range(9):
            out[s, j] = (roots[s] * N[0, j] + N[1, j]) * norm
    return found


@internal
def _turn(x, i, j, k, at):  # type: ignore[no-untyped-def]
    """Twice the signed area of the triangle of points i, j, k in columns at, at + 1."""
    ax, ay = x[j, at] - x[i, at], x[j, at + 1] - x[i, at + 1]
    bx, by = x[k, at] - x[i, at], x[k, at + 1] - x[i, at + 1]
    return ax * by - ay * bx


@compiled(_i8(_f8[:, ::1], _f8[:, ::1]))
def four_point(x, out):  # type: ignore[no-untyped-def]
    """Homography x2 ~ H x1 of four matches ``x`` (4, 4), into ``out`` (1, 9), norm 1; returns 1, or 0 if refused.

    Samples with three points near a line are refused, and those that mirror some triangles but not others, which no
    view of a plane from one side does.
    """
    flipped = 0
    for skip in range(4):
        i, j, k = (skip + 1) % 4, (skip + 2) % 4, (skip + 3) % 4
        first, second = _turn(x, i, j, k, 0), _turn(x, i, j, k, 2)
        if abs(first) < 1e-6 or abs(second) < 1e-6:
            return 0
        flipped += (first < 0.0) != (second < 0.0)
    if flipped != 0 and flipped != 4:
        return 0
    A = np.zeros((8, 9))
    for i in range(4):
        a, b, c, d = x[i, 0], x[i, 1], x[i, 2], x[i, 3]
        A[2 * i, 0], A[2 * i, 1], A[2 * i, 2] = a, b, 1.0
        A[2 * i, 6], A[2 * i, 7], A[2 * i, 8] = -c * a, -c * b, -c
        A[2 * i + 1, 3], A[2 * i + 1, 4], A[2 * i + 1, 5] = a, b, 1.0
        A[2 * i + 1, 6], A[2 * i + 1, 7], A[2 * i + 1, 8] = -d * a, -d * b, -d
    N = null_space(A)
    for j in range(9):
        out[0, j] = N[0, j]
    return 1
