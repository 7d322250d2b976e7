r"""Compiled passes of affine bundle adjustment: all blocks share one projector.

With ``A`` (2C, 3) the first two rows of all rotations, ``T`` (2C,) the first two translations and ``w_j = 1 /
depth_j`` the track of point j is ``m_j = A x_j + T w_j + noise`` with ``x_j = X_j w_j``. Eliminating x_j leaves

    r_j = P y_j,  y_j = T w_j - m_j,  P = I - A A^+,        x_j = -A^+ y_j

so P is the same for all blocks and a block costs two products with the thin Q of A = QR. Derivatives (Golub and
Pereyra, exact) with respect to a parameter with ``dA`` and ``dT``:

    dr_j = P dA x_j - (A^+)' dA' r_j + P dT w_j

The first two terms are orthogonal to each other, because P (A^+)' = 0, so J'J is a sum of three parts, and both
it and the gradient ``r' dA x + r' dT w`` are *linear in second moments* of (x_j, r_j, w_j) over the blocks:

    sum x x' (3, 3), sum x w (3), sum w w, sum r r' (2C, 2C), sum r x' (2C, 3), sum r w (2C)

The pass accumulates these (weighted if there is a loss): 55 numbers for three views instead of a Jacobian
of 6 x 9 for each point. Kaufman's shortcut drops the second term of dr, that is sum r r'.

With the plain squared loss these moments say more: they determine the sums at *every* other point. From theta to
theta + Delta the residuals become

    r -> P z,  x -> x - A^+ z,  z = r + dA x + dT w           (P and A at the new point)

which is linear in (x, w, r), so the new moments are ``L M L'``, and no row is read. Nothing is lost to rounding while
the parts of z are not much larger than what is left of them; `carry` returns that ratio.
"""

from __future__ import annotations

import numpy as np

from ...jit import types
from ...jit.njit import njit
from ...kernels.columns import load_rows
from ...kernels.evaluator import BLOCK, FASTMATH
from ...kernels.passes import add_row_products
from ...kernels.robust import block_costs
from ...manifolds import rotate

_f8, _i8 = types.float64, types.int64
OPTIONS = {"nogil": True, "error_model": "numpy", "fastmath": FASTMATH}


def moment_count(C: int) -> int:
    """Numbers that `linearize_chunk` accumulates: cost, then the lower triangle of the moments of (x, w, r)."""
    k = 2 * C + 4
    return 1 + k * (k + 1) // 2


@njit(types.void(_f8[::1], _f8[:, ::1], _f8[:, ::1], _f8[:, ::1]), **OPTIONS)
def frame(theta, Q, S, N):  # type: ignore[no-untyped-def]
    """Q (2C, 3) and N (2C, 2C - 3), orthonormal bases of the range of A and of its complement, S = -R_A^-1 (3, 3).

    Householder's QR: for matrices this small a call of LAPACK through NumPy takes ten times as long.
    """
    n = Q.shape[0]
    A, V = np.empty((n, 3)), np.zeros((3, n))
    for i in range(n):
        for j in range(3):
            A[i, j] = theta[9 * (i // 2) + 3 * (i % 2) + j]
    for k in range(3):
        norm = 0.0
        for i in range(k, n):
            norm += A[i, k] * A[i, k]
        alpha = -np.sqrt(norm) if A[k, k] >= 0.0 else np.sqrt(norm)
        size = 0.0
        for i in range(k, n):
            V[k, i] = A[i, k] - (alpha if i == k else 0.0)
            size += V[k, i] * V[k, i]
        size = np.sqrt(size) if size > 0.0 else 1.0
        for i in range(k, n):
            V[k, i] /= size
        for j in range(k, 3):
            s = 0.0
            for i in range(k, n):
                s += V[k, i] * A[i, j]
            for i in range(k, n):
                A[i, j] -= 2.0 * s * V[k, i]
    for column in range(n):
        for i in range(n):
            if column < 3:
                Q[i, column] = 1.0 if i == column else 0.0
            else:
                N[i, column - 3] = 1.0 if i == column else 0.0
        for k in range(2, -1, -1):
            s = 0.0
            for i in range(k, n):
                s += V[k, i] * (Q[i, column] if column < 3 else N[i, column - 3])
            for i in range(k, n):
                if column < 3:
                    Q[i, column] -= 2.0 * s * V[k, i]
                else:
                    N[i, column - 3] -= 2.0 * s * V[k, i]
    for j in range(3):  # S = -R^-1, upper triangular
        for i in range(3):
            S[i, j] = 0.0
        S[j, j] = -1.0 / A[j, j]
        for i in range(j - 1, -1, -1):
            s = 0.0
            for k in range(i + 1, j + 1):
                s += A[i, k] * S[k, j]
            S[i, j] = -s / A[i, i]


@njit(_f8[::1](_f8[::1], _f8[::1], _f8[:, ::1], _f8[:, ::1], _f8[:, ::1], _f8[:, ::1]), **OPTIONS)
def move(theta, delta, N, Q, S, other):  # type: ignore[no-untyped-def]
    """Retract: rotate every camera but the first, step T by N tau and project it onto the new range of P.

    Q, S and ``other`` take the `frame` of the new point.
    """
    n = N.shape[0]
    C = n // 2
    out = theta.copy()
    for c in range(1, C):
        out[9 * c : 9 * c + 9] = rotate(theta[9 * c : 9 * c + 9], delta[3 * (c - 1) : 3 * c])
    T = out[9 * C :]
    for i in range(n):
        for a in range(n - 3):
            T[i] += N[i, a] * delta[3 * (C - 1) + a]
    frame(out, Q, S, other)
    for a in range(3):
        s = 0.0
        for i in range(n):
            s += Q[i, a] * T[i]
        for i in range(n):
            T[i] -= s * Q[i, a]
    return out


@njit(_f8(_f8[:, ::1], _i8, _f8[:, ::1], _f8[:, ::1], _f8[::1], _i8, _f8, _f8[:, ::1], _f8[::1], _f8[::1]), **OPTIONS)
def _block(rows, m, Q, S, T, code, scale, u, cost, weight):  # type: ignore[no-untyped-def]
    """Residuals of a block of points; u (2C + 4, BLOCK): x (3), w, r (2C). Returns the sum of the costs.

    rows: the 2C observed coordinates and the depth. S (3, 3): -inverse of the triangular factor of A.
    """
    C2 = T.shape[0]
    r = u[4:]
    for i in range(m):
        u[3, i] = 1.0 / rows[C2, i]
    for k in range(C2):
        for i in range(m):
            r[k, i] = T[k] * u[3, i] - rows[k, i]
    for a in range(3):  # c = Q'y, in the place of x while r becomes y - Q c
        for i in range(m):
            u[a, i] = 0.0
        for k in range(C2):
            q = Q[k, a]
            for i in range(m):
                u[a, i] += q * r[k, i]
    for k in range(C2):
        q0, q1, q2 = Q[k, 0], Q[k, 1], Q[k, 2]
        for i in range(m):
            r[k, i] -= q0 * u[0, i] + q1 * u[1, i] + q2 * u[2, i]
    for i in range(m):
        c0, c1, c2 = u[0, i], u[1, i], u[2, i]
        u[0, i] = S[0, 0] * c0 + S[0, 1] * c1 + S[0, 2] * c2
        u[1, i] = S[1, 1] * c1 + S[1, 2] * c2
        u[2, i] = S[2, 2] * c2
    return block_costs(r, m, C2, code, scale, cost, weight)


_ARGS = (_i8[:, ::1], _i8, _i8, _f8[:, ::1], _f8[:, ::1], _f8[::1], _i8, _f8)


@njit(types.void(*_ARGS, _f8[::1], _f8[::1]), **OPTIONS)
def costs_chunk(columns, lo, hi, Q, S, T, code, scale, costs, total):  # type: ignore[no-untyped-def]
    """Costs of the points [lo, hi), if wanted, and their sum."""
    C2 = T.shape[0]
    rows, u = np.empty((C2 + 1, BLOCK)), np.empty((C2 + 4, BLOCK))
    cost, weight = np.empty(BLOCK), np.empty(BLOCK)
    at = lo
    while at < hi:
        m = min(BLOCK, hi - at)
        load_rows(columns, at, m, rows)
        total[0] += _block(rows, m, Q, S, T, code, scale, u, cost, weight)
        if costs.shape[0] > 0:
            for i in range(m):
                costs[at - lo + i] = cost[i]
        at += m


@njit(types.void(*_ARGS[:6], _f8[:, ::1], _f8[:, ::1], _f8[::1]), **OPTIONS)
def solution_chunk(columns, lo, hi, Q, S, T, points, residuals, squares):  # type: ignore[no-untyped-def]
    """Points (hi - lo, 3) of the tracks [lo, hi), residuals (hi - lo, 2C) if wanted, and their squared norms."""
    C2 = T.shape[0]
    rows, u = np.empty((C2 + 1, BLOCK)), np.empty((C2 + 4, BLOCK))
    cost, weight = np.empty(BLOCK), np.empty(BLOCK)
    at = lo
    while at < hi:
        m = min(BLOCK, hi - at)
        load_rows(columns, at, m, rows)
        _block(rows, m, Q, S, T, 0, 1.0, u, cost, weight)
        for i in range(m):
            squares[at - lo + i] = 2.0 * cost[i]
            for a in range(3):
                points[at - lo + i, a] = rows[C2, i] * u[a, i]
        if residuals.shape[0] > 0:
            for i in range(m):
                for k in range(C2):
                    residuals[at - lo + i, k] = u[4 + k, i]
        at += m


@njit(types.void(*_ARGS, _f8[:, ::1], _f8[:, ::1], _i8, _f8[::1], _f8[::1], _f8[::1]), **OPTIONS)
def linearize_chunk(  # type: ignore[no-untyped-def]
    columns, lo, hi, Q, S, T, code, scale, R, N, outer, costs, moments, products
):
    """Add the moments of the points [lo, hi), and for ``outer`` the products of their gradients.

    R (3C, 3): the rotations; N (2C, 2C - 3): basis of the range of P, in which steps of T are taken.
    """
    C2 = T.shape[0]
    C, f = C2 // 2, C2 - 3
    k = C2 + 4
    d = 3 * (C - 1) + f
    rows, u = np.empty((C2 + 1, BLOCK)), np.empty((2 * k, BLOCK))
    g = np.empty((d if outer else 0, BLOCK))
    cost, weight = np.empty(BLOCK), np.empty(BLOCK)
    at = lo
    while at < hi:
        m = min(BLOCK, hi - at)
        load_rows(columns, at, m, rows)
        moments[0] += _block(rows, m, Q, S, T, code, scale, u, cost, weight)
        if costs.shape[0] > 0:
            for i in range(m):
                costs[at - lo + i] = cost[i]
        if code == 0:
            add_row_products(u, 0, k, m, 0, 1, moments)
        else:
            for a in range(k):
                for i in range(m):
                    u[k + a, i] = weight[i] * u[a, i]
            add_row_products(u, k, k, m, 0, 1, moments)
        if outer:
            for c in range(1, C):
                b = 3 * (c - 1)
                r0, r1 = 4 + 2 * c, 5 + 2 * c
                for i in range(m):
                    x, y, z = u[0, i], u[1, i], u[2, i]
                    p0 = R[3 * c, 0] * x + R[3 * c, 1] * y + R[3 * c, 2] * z
                    p1 = R[3 * c + 1, 0] * x + R[3 * c + 1, 1] * y + R[3 * c + 1, 2] * z
                    p2 = R[3 * c + 2, 0] * x + R[3 * c + 2, 1] * y + R[3 * c + 2, 2] * z
                    s0, s1 = weight[i] * u[r0, i], weight[i] * u[r1, i]
                    g[b, i] = -s1 * p2
                    g[b + 1, i] = s0 * p2
                    g[b + 2, i] = s1 * p0 - s0 * p1
            for a in range(f):
                row = g[d - f + a]
                for i in range(m):
                    row[i] = 0.0
                for c in range(C2):
                    q = N[c, a]
                    for i in range(m):
                        row[i] += q * u[4 + c, i]
                for i in range(m):
                    row[i] *= weight[i] * u[3, i]
            add_row_products(g, 0, d, m, 0, 0, products)
        at += m


@njit(_f8[:, ::1](_f8[::1], _i8), **OPTIONS)
def _unpacked(moments, k):  # type: ignore[no-untyped-def]
    """The matrix (k, k) of moments of (x, w, r)."""
    M = np.empty((k, k))
    at = 1
    for a in range(k):
        for b in range(a + 1):
            M[a, b] = M[b, a] = moments[at]
            at += 1
    return M


@njit(_f8(_f8[::1], _f8[::1], _f8[::1], _f8[:, ::1], _f8[:, ::1], _f8[::1]), **OPTIONS)
def carry(moments, old, theta, Q, S, carried):  # type: ignore[no-untyped-def]
    """Moments of linear loss at ``theta``, with the frame Q and S, from those at ``old``.

    Returns the sum of squares of the parts of z relative to that of the new residuals: how much rounding is amplified.
    """
    C2 = Q.shape[0]
    k, turns = C2 + 4, 9 * (C2 // 2)
    Z, V, L = np.zeros((C2, k)), np.zeros((3, k)), np.zeros((k, k))
    M = _unpacked(moments, k)
    parts = 0.0
    for i in range(C2):
        for a in range(3):
            Z[i, a] = theta[9 * (i // 2) + 3 * (i % 2) + a] - old[9 * (i // 2) + 3 * (i % 2) + a]
        Z[i, 3] = theta[turns + i] - old[turns + i]
        Z[i, 4 + i] = 1.0
        parts += M[4 + i, 4 + i]
        for a in range(4):
            parts += Z[i, a] * Z[i, a] * M[a, a]
    for a in range(3):
        for i in range(C2):
            for b in range(k):
                V[a, b] += Q[i, a] * Z[i, b]
    for a in range(4):
        L[a, a] = 1.0
    for b in range(k):
        for a in range(3):
            for c in range(a, 3):
                L[a, b] += S[a, c] * V[c, b]
        for i in range(C2):
            L[4 + i, b] = Z[i, b] - (Q[i, 0] * V[0, b] + Q[i, 1] * V[1, b] + Q[i, 2] * V[2, b])
    at, squares = 1, 0.0
    row = np.empty(k)  # of L M
    for a in range(k):
        row[:] = 0.0
        for c in range(k):
            for b in range(k):
                row[b] += L[a, c] * M[c, b]
        for b in range(a + 1):
            s = 0.0
            for c in range(k):
                s += row[c] * L[b, c]
            carried[at] = s
            at += 1
        if a >= 4:
            squares += carried[at - 1]
    carried[0] = 0.5 * squares
    return parts / squares if squares > 0.0 else np.inf


@njit(types.void(_f8[::1], _f8[:, ::1], _f8[:, ::1], _f8[:, ::1], _f8[:, ::1], _i8, _f8[::1], _f8[:, ::1]), **OPTIONS)
def assemble(moments, R, Q, S, N, exact, gradient, hessian):  # type: ignore[no-untyped-def]
    """Gradient (d,) and J'J (d, d) from the moments: two for each free rotation and each step of T."""
    C = R.shape[0] // 3
    C2, f = 2 * C, 2 * C - 3
    k = C2 + 4
    M = _unpacked(moments, k)
    rotations = 3 * (C - 1)
    # D (2, 3) of each rotation parameter: the first two rows of [e_a] R.
    D = np.zeros((rotations, 2, 3))
    for c in range(1, C):
        for j in range(3):
            D[3 * (c - 1), 1, j] = -R[3 * c + 2, j]
            D[3 * (c - 1) + 1, 0, j] = R[3 * c + 2, j]
            D[3 * (c - 1) + 2, 0, j] = -R[3 * c + 1, j]
            D[3 * (c - 1) + 2, 1, j] = R[3 * c, j]
    P = np.eye(C2)
    for a in range(C2):
        for b in range(C2):
            P[a, b] -= Q[a, 0] * Q[b, 0] + Q[a, 1] * Q[b, 1] + Q[a, 2] * Q[b, 2]
    G = np.zeros((3, 3))  # (A'A)^-1 = A^+ (A^+)'
    for i in range(3):
        for j in range(3):
            for a in range(3):
                G[i, j] += S[i, a] * S[j, a]
    DM, DG = np.zeros((rotations, 2, 4)), np.zeros((rotations, 2, 3))
    for a in range(rotations):
        c = 4 + 2 * (a // 3 + 1)
        s = 0.0
        for h in range(2):
            for j in range(3):
                s += D[a, h, j] * M[c + h, j]
                for i in range(4):
                    DM[a, h, i] += D[a, h, j] * M[j, i]
                for i in range(3):
                    DG[a, h, i] += D[a, h, j] * G[j, i]
        gradient[a] = s
    for a in range(rotations):
        c = 2 * (a // 3 + 1)
        for b in range(a + 1):
            e = 2 * (b // 3 + 1)
            s = 0.0
            for h in range(2):
                for o in range(2):
                    first = second = 0.0
                    for i in range(3):
                        first += DM[a, h, i] * D[b, o, i]
                        second += DG[a, h, i] * D[b, o, i]
                    s += P[c + h, e + o] * first
                    if exact:
                        s += M[4 + c + h, 4 + e + o] * second
            hessian[a, b] = hessian[b, a] = s
        for b in range(f):  # (P dA x)'N w = N' dA (x w): P N = N
            s = N[c, b] * DM[a, 0, 3] + N[c + 1, b] * DM[a, 1, 3]
            hessian[a, rotations + b] = hessian[rotations + b, a] = s
    for b in range(f):
        s = 0.0
        for c in range(C2):
            s += N[c, b] * M[4 + c, 3]
        gradient[rotations + b] = s
        for a in range(f):
            hessian[rotations + a, rotations + b] = M[3, 3] if a == b else 0.0
