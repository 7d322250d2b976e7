r"""Compiled residuals of two-view geometry: Sampson error of E and F, transfer and Sampson error of H.

**Units.** A model is kept in well-conditioned coordinates (calibrated rays, or coordinates scaled to unit size) but its
residual is always measured in the coordinates the matches came in, normally pixels: the *encoders* fold the two 3 x 3
coordinate changes into the matrix, ``F = A2' E A1`` with ``A = K^-1`` (``H = A2^-1 G A1``), and into its derivatives
with respect to the tangent parameters. So no match is ever copied or rescaled, errors and thresholds are exact pixels
for any focal length, and one evaluator serves E (5 parameters) and F (7), reading their number off the length of the
encoded point.

**Sampson error** of ``x2' F x1 = 0`` for x1 = (a, b, 1), x2 = (c, d, 1), with l = F x1 and m = F' x2:

    r = x2'F x1 * s,  s = 1 / sqrt(l0^2 + l1^2 + m0^2 + m1^2)

It is the first-order distance of (a, b, c, d) from the quadric x2'F x1 = 0. Its derivative with respect to the entries
of F is

    dr / dF_ij = s (x2_i x1_j - r s w_ij),  w_ij = l_i x1_j [i < 2] + m_j x2_i [j < 2]

evaluated once per match; every tangent direction dF then costs a dot product of nine. The point is encoded as
``[F, dF_1, ..., dF_d]``, nine numbers each, row by row.

**Homography**, x2 ~ H x1: *symmetric transfer* has four residuals, H x1 - x2 and H^-1 x2 - x1, encoded as
``[H, dH_1 .. dH_d, H^-1, d(H^-1)_1 .. ]``. *Sampson* has two: with ``e = (c w - u, d w - v)``, (u, v, w) = H
x1, and its 2 x 4 derivative J with respect to (a, b, c, d), the squared distance is ``e' (J J')^-1 e``; the residual is
``L^-1 e`` with the Cholesky factor ``L L' = J J'``, whose norm is that distance and which is smooth where e = 0.
"""

from __future__ import annotations

import numpy as np

from ...jit import types
from ...kernels.kernel import BLOCK, evaluator
from ...manifolds import compiled, internal, multiply, tangent_basis

_f8 = types.float64


@evaluator
def sampson_evaluator(theta, rows, m, program, constants, jacobian, out):  # type: ignore[no-untyped-def]
    """Sampson error of F (module docstring); rows: x1, y1, x2, y2."""
    f0, f1, f2, f3, f4, f5 = theta[0], theta[1], theta[2], theta[3], theta[4], theta[5]
    f6, f7, f8 = theta[6], theta[7], theta[8]
    if jacobian == 0:
        for i in range(m):
            a, b, c, d = rows[0, i], rows[1, i], rows[2, i], rows[3, i]
            l0, l1, l2 = f0 * a + f1 * b + f2, f3 * a + f4 * b + f5, f6 * a + f7 * b + f8
            m0, m1 = f0 * c + f3 * d + f6, f1 * c + f4 * d + f7
            out[0, i] = (c * l0 + d * l1 + l2) / np.sqrt(l0 * l0 + l1 * l1 + m0 * m0 + m1 * m1)
        return
    # Through memory that stays in the L1 cache: 13 ns per match against 35 with the nine values in registers.
    G = np.empty((9, BLOCK))
    for i in range(m):
        a, b, c, d = rows[0, i], rows[1, i], rows[2, i], rows[3, i]
        l0, l1, l2 = f0 * a + f1 * b + f2, f3 * a + f4 * b + f5, f6 * a + f7 * b + f8
        m0, m1 = f0 * c + f3 * d + f6, f1 * c + f4 * d + f7
        s = 1.0 / np.sqrt(l0 * l0 + l1 * l1 + m0 * m0 + m1 * m1)
        r = (c * l0 + d * l1 + l2) * s
        q = r * s
        out[0, i] = r
        G[0, i] = s * (c * a - q * (l0 * a + m0 * c))
        G[1, i] = s * (c * b - q * (l0 * b + m1 * c))
        G[2, i] = s * (c - q * l0)
        G[3, i] = s * (d * a - q * (l1 * a + m0 * d))
        G[4, i] = s * (d * b - q * (l1 * b + m1 * d))
        G[5, i] = s * (d - q * l1)
        G[6, i] = s * (a - q * m0)
        G[7, i] = s * (b - q * m1)
        G[8, i] = s
    for k in range(theta.shape[0] // 9 - 1):
        at = 9 + 9 * k
        d0, d1, d2, d3, d4 = theta[at], theta[at + 1], theta[at + 2], theta[at + 3], theta[at + 4]
        d5, d6, d7, d8 = theta[at + 5], theta[at + 6], theta[at + 7], theta[at + 8]
        for i in range(m):
            first = d0 * G[0, i] + d1 * G[1, i] + d2 * G[2, i] + d3 * G[3, i] + d4 * G[4, i]
            out[1 + k, i] = first + d5 * G[5, i] + d6 * G[6, i] + d7 * G[7, i] + d8 * G[8, i]


@evaluator
def transfer_evaluator(theta, rows, m, program, constants, jacobian, out):  # type: ignore[no-untyped-def]
    """Symmetric transfer error of H: (H x1 - x2, H^-1 x2 - x1); rows: x1, y1, x2, y2."""
    half = theta.shape[0] // 2
    dim = half // 9 - 1
    P = np.empty((3, BLOCK))
    for way in range(2):
        h, u, v = way * half, 2 * way, 2 - 2 * way  # x from rows u, u + 1 to rows v, v + 1
        for i in range(m):
            x, y = rows[u, i], rows[u + 1, i]
            s = 1.0 / (theta[h + 6] * x + theta[h + 7] * y + theta[h + 8])
            P[0, i] = (theta[h] * x + theta[h + 1] * y + theta[h + 2]) * s
            P[1, i] = (theta[h + 3] * x + theta[h + 4] * y + theta[h + 5]) * s
            P[2, i] = s
            out[2 * way, i] = P[0, i] - rows[v, i]
            out[2 * way + 1, i] = P[1, i] - rows[v + 1, i]
        if jacobian == 0:
            continue
        for k in range(dim):
            at = h + 9 + 9 * k
            d0, d1, d2, d3, d4 = theta[at], theta[at + 1], theta[at + 2], theta[at + 3], theta[at + 4]
            d5, d6, d7, d8 = theta[at + 5], theta[at + 6], theta[at + 7], theta[at + 8]
            j0 = 4 + 2 * way * dim + k
            for i in range(m):
                x, y, s = rows[u, i], rows[u + 1, i], P[2, i]
                dw = d6 * x + d7 * y + d8
                out[j0, i] = (d0 * x + d1 * y + d2 - P[0, i] * dw) * s
                out[j0 + dim, i] = (d3 * x + d4 * y + d5 - P[1, i] * dw) * s


@evaluator
def homography_sampson_evaluator(theta, rows, m, program, constants, jacobian, out):  # type: ignore[no-untyped-def]
    """Sampson error of H (module docstring), two residuals; rows: x1, y1, x2, y2; theta as for `transfer_evaluator`."""
    h0, h1, h2, h3, h4, h5 = theta[0], theta[1], theta[2], theta[3], theta[4], theta[5]
    h6, h7, h8 = theta[6], theta[7], theta[8]
    dim = theta.shape[0] // 18 - 1
    for i in range(m):
        a, b, c, d = rows[0, i], rows[1, i], rows[2, i], rows[3, i]
        w = h6 * a + h7 * b + h8
        e0, e1 = c * w - (h0 * a + h1 * b + h2), d * w - (h3 * a + h4 * b + h5)
        p0, p1, q0, q1 = c * h6 - h0, c * h7 - h1, d * h6 - h3, d * h7 - h4
        L00 = np.sqrt(p0 * p0 + p1 * p1 + w * w)
        L10 = (p0 * q0 + p1 * q1) / L00
        L11 = np.sqrt(q0 * q0 + q1 * q1 + w * w - L10 * L10)
        out[0, i] = e0 / L00
        out[1, i] = (e1 - L10 * out[0, i]) / L11
    if jacobian == 0:
        return
    for k in range(dim):
        at = 9 + 9 * k
        d0, d1, d2, d3, d4 = theta[at], theta[at + 1], theta[at + 2], theta[at + 3], theta[at + 4]
        d5, d6, d7, d8 = theta[at + 5], theta[at + 6], theta[at + 7], theta[at + 8]
        for i in range(m):
            a, b, c, d = rows[0, i], rows[1, i], rows[2, i], rows[3, i]
            w = h6 * a + h7 * b + h8
            p0, p1, q0, q1 = c * h6 - h0, c * h7 - h1, d * h6 - h3, d * h7 - h4
            g00 = p0 * p0 + p1 * p1 + w * w
            g10 = p0 * q0 + p1 * q1
            L00 = np.sqrt(g00)
            L10 = g10 / L00
            L11 = np.sqrt(q0 * q0 + q1 * q1 + w * w - L10 * L10)
            dw = d6 * a + d7 * b + d8
            dp0, dp1, dq0, dq1 = c * d6 - d0, c * d7 - d1, d * d6 - d3, d * d7 - d4
            # Cholesky, differentiated: dL from half of d(J J').
            dL00 = (p0 * dp0 + p1 * dp1 + w * dw) / L00
            dL10 = (p0 * dq0 + p1 * dq1 + q0 * dp0 + q1 * dp1 - L10 * dL00) / L00
            dL11 = (q0 * dq0 + q1 * dq1 + w * dw - L10 * dL10) / L11
            r0, r1 = out[0, i], out[1, i]
            s0 = (c * dw - (d0 * a + d1 * b + d2) - dL00 * r0) / L00
            out[2 + k, i] = s0
            out[2 + dim + k, i] = (d * dw - (d3 * a + d4 * b + d5) - dL10 * r0 - L10 * s0 - dL11 * r1) / L11


@compiled(_f8[:, ::1](_f8[:, ::1], _f8[:, ::1], _f8[:, ::1]))
def transform_matches(x, A1, A2):  # type: ignore[no-untyped-def]
    """Matches (n, 4) with x1 moved by A1 and x2 by A2, both affine (3, 3)."""
    out = np.empty(x.shape)
    for i in range(x.shape[0]):
        a, b, c, d = x[i, 0], x[i, 1], x[i, 2], x[i, 3]
        out[i, 0] = A1[0, 0] * a + A1[0, 1] * b + A1[0, 2]
        out[i, 1] = A1[1, 0] * a + A1[1, 1] * b + A1[1, 2]
        out[i, 2] = A2[0, 0] * c + A2[0, 1] * d + A2[0, 2]
        out[i, 3] = A2[1, 0] * c + A2[1, 1] * d + A2[1, 2]
    return out


# Element by element: assigning to a slice makes Numba compile, in each of these functions, the error for shapes that
# do not agree, which takes seconds.


@internal
def put(X, out, at):  # type: ignore[no-untyped-def]
    """Write a (3, 3) matrix to ``out[at : at + 9]``."""
    for i in range(3):
        for j in range(3):
            out[at + 3 * i + j] = X[i, j]


@internal
def fold(A2, X, A1, out, at):  # type: ignore[no-untyped-def]
    """Write ``A2' X A1`` of (3, 3) matrices to ``out[at : at + 9]``."""
    Y = multiply(X, A1)
    for i in range(3):
        for j in range(3):
            out[at + 3 * i + j] = A2[0, i] * Y[0, j] + A2[1, i] * Y[1, j] + A2[2, i] * Y[2, j]


@compiled(_f8[:, ::1](_f8[::1], _f8[:, ::1]))
def cross_product(t, X):  # type: ignore[no-untyped-def]
    """``[t] X`` for t (3,) and X (3, 3)."""
    Y = np.empty((3, 3))
    for j in range(3):
        Y[0, j] = t[1] * X[2, j] - t[2] * X[1, j]
        Y[1, j] = t[2] * X[0, j] - t[0] * X[2, j]
        Y[2, j] = t[0] * X[1, j] - t[1] * X[0, j]
    return Y


@compiled(_f8[::1](_f8[::1], _f8[:, ::1], _f8[:, ::1]))
def encode_essential(theta, A1, A2):  # type: ignore[no-untyped-def]
    """``[F, dF]`` (54,) of a point (R, t) of `manifolds.ESSENTIAL`, F = A2' [t] R A1."""
    R, t = theta[:9].reshape(3, 3), theta[9:12]
    out = np.empty(54)
    fold(A2, cross_product(t, R), A1, out, 0)
    axis = np.zeros(3)
    for k in range(3):
        axis[k] = 1.0
        fold(A2, cross_product(t, cross_product(axis, R)), A1, out, 9 + 9 * k)
        axis[k] = 0.0
    B = tangent_basis(t)
    for k in range(2):
        for i in range(3):
            axis[i] = B[i, k]
        fold(A2, cross_product(axis, R), A1, out, 36 + 9 * k)
    return out


@compiled(_f8[::1](_f8[::1]))
def pose_from_angles(theta):  # type: ignore[no-untyped-def]
    """(R, t), (12,), of the angles (a, b, g, polar, azimuth): R = Rx(a) Ry(b) Rz(g), t in polar coordinates."""
    ca, sa, cb, sb = np.cos(theta[0]), np.sin(theta[0]), np.cos(theta[1]), np.sin(theta[1])
    cg, sg, cp, sp = np.cos(theta[2]), np.sin(theta[2]), np.cos(theta[3]), np.sin(theta[3])
    out = np.empty(12)
    out[0], out[1], out[2] = cb * cg, -cb * sg, sb
    out[3], out[4], out[5] = ca * sg + sa * sb * cg, ca * cg - sa * sb * sg, -sa * cb
    out[6], out[7], out[8] = sa * sg - ca * sb * cg, sa * cg + ca * sb * sg, ca * cb
    out[9], out[10], out[11] = sp * np.cos(theta[4]), sp * np.sin(theta[4]), cp
    return out


@compiled(_f8[::1](_f8[::1], _f8[::1]))
def add_angles(theta, delta):  # type: ignore[no-untyped-def]
    """Angles are a flat space."""
    out = np.empty(5)
    for j in range(5):
        out[j] = theta[j] + delta[j]
    return out


@compiled(_f8[::1](_f8[::1], _f8[:, ::1], _f8[:, ::1]))
def encode_angles(theta, A1, A2):  # type: ignore[no-untyped-def]
    """``[F, dF]`` (54,) of the paper's five angles (`pose_from_angles`): flat, with singularities."""
    pose = pose_from_angles(theta)
    R, t = pose[:9].reshape(3, 3), pose[9:12]
    out = np.empty(54)
    fold(A2, cross_product(t, R), A1, out, 0)
    ca, sa, cb, sb = np.cos(theta[0]), np.sin(theta[0]), np.cos(theta[1]), np.sin(theta[1])
    # Each angle turns R about one axis: x, then y as Rx moved it, then z as Rx Ry moved it (their third column).
    axes = np.array([[1.0, 0.0, 0.0], [0.0, ca, sa], [sb, -sa * cb, ca * cb]])
    for k in range(3):
        fold(A2, cross_product(t, cross_product(axes[k], R)), A1, out, 9 + 9 * k)
    cp, sp, cq, sq = np.cos(theta[3]), np.sin(theta[3]), np.cos(theta[4]), np.sin(theta[4])
    fold(A2, cross_product(np.array([cp * cq, cp * sq, -sp]), R), A1, out, 36)
    fold(A2, cross_product(np.array([-sp * sq, sp * cq, 0.0]), R), A1, out, 45)
    return out


@compiled(_f8[::1](_f8[::1], _f8[:, ::1], _f8[:, ::1]))
def encode_fundamental(theta, A1, A2):  # type: ignore[no-untyped-def]
    """``[F, dF]`` (72,) of a point (U, V, M) of `manifolds.FUNDAMENTAL`, F = A2' U_2 M V_2' A1."""
    U, V = theta[:9].reshape(3, 3), np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            V[j, i] = theta[9 + 3 * i + j]  # transposed
    out = np.empty(72)
    B = tangent_basis(theta[18:22])
    for k in range(8):
        X = np.zeros((3, 3))
        # The middle factor of F = U X V': the generator of the moved axes beside M, or a tangent of M itself.
        if k == 0 or k >= 5:
            for j in range(4):
                X[j // 2, j % 2] = theta[18 + j] if k == 0 else B[j, k - 5]
        elif k == 1:  # U [e_0]: e_2 <- e_1
            X[2, 0], X[2, 1] = theta[20], theta[21]
        elif k == 2:  # U [e_1]: e_2 <- -e_0
            X[2, 0], X[2, 1] = -theta[18], -theta[19]
        elif k == 3:
            X[0, 2], X[1, 2] = theta[19], theta[21]
        else:
            X[0, 2], X[1, 2] = -theta[18], -theta[20]
        fold(A2, multiply(U, multiply(X, V)), A1, out, 9 * k)
    return out


@internal
def inverse(X):  # type: ignore[no-untyped-def]
    """Inverse of a (3, 3) matrix by cofactors."""
    Y = np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            a, b, c, d = (j + 1) % 3, (j + 2) % 3, (i + 1) % 3, (i + 2) % 3
            Y[i, j] = X[a, c] * X[b, d] - X[a, d] * X[b, c]
    det = X[0, 0] * Y[0, 0] + X[0, 1] * Y[1, 0] + X[0, 2] * Y[2, 0]
    for i in range(3):
        for j in range(3):
            Y[i, j] /= det
    return Y


@internal
def _encode_map(G, dG, A1, B2):  # type: ignore[no-untyped-def]
    """``[H, dH, H^-1, d(H^-1)]`` of H = B2 G A1 and tangents dG (d, 9)."""
    d = dG.shape[0]
    half = 9 * (d + 1)
    out = np.empty(2 * half)
    H = multiply(B2, multiply(G, A1))
    I = inverse(H)  # noqa: E741
    put(H, out, 0)
    put(I, out, half)
    for k in range(d):
        X = multiply(B2, multiply(dG[k].reshape(3, 3), A1))
        put(X, out, 9 + 9 * k)
        Y = multiply(I, multiply(X, I))
        for j in range(9):
            out[half + 9 + 9 * k + j] = -Y[j // 3, j % 3]
    return out


@compiled(_f8[::1](_f8[::1], _f8[:, ::1], _f8[:, ::1]))
def encode_homography(theta, A1, B2):  # type: ignore[no-untyped-def]
    """Encoded point (162,) of a unit 9-vector G, H = B2 G A1: 8 tangent parameters on the sphere."""
    basis, rows = tangent_basis(theta), np.empty((8, 9))
    for k in range(8):
        for j in range(9):
            rows[k, j] = basis[j, k]
    return _encode_map(theta.reshape(3, 3), rows, A1, B2)


@compiled(_f8[::1](_f8[::1], _f8[:, ::1], _f8[:, ::1]))
def encode_rotation(theta, A1, B2):  # type: ignore[no-untyped-def]
    """Encoded point (72,) of the homography B2 R A1 of a camera that only rotates: 3 parameters, exp([w]) R."""
    R = theta.reshape(3, 3)
    dR = np.empty((3, 9))
    axis = np.zeros(3)
    for k in range(3):
        axis[k] = 1.0
        put(cross_product(axis, R), dR[k], 0)
        axis[k] = 0.0
    return _encode_map(R, dR, A1, B2)
