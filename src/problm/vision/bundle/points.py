r"""The inner solve of bundle adjustment: the optimal point of a track for given cameras.

The cost of a track is ``f(X) = sum_m s^2/2 rho(||r_m(X)||^2 / s^2)`` over its observations. Points are homogeneous unit
4-vectors: a point of little parallax whose optimum is at infinity, or beyond, is then not special, whereas Euclidean
coordinates would converge very slowly. The projection does not depend on the length of X, so ``J_X X = 0``, and steps
live in the three dimensions orthogonal to X (basis B, a Householder reflection).

Gauss-Newton with ``(B'HB + mu diag) u = -B'g``, mu = 0 while the cost falls. With a robust loss H first takes in the
loss's own curvature, ``rho' J'J + 2 rho'' / s^2 J'r r'J``, without which a track with an outlier converges slowly, and
where that is not positive definite the usual ``rho' J'J``. The solve ends where the promised decrease ``g'H^-1 g / 2``
is below 1e-12 of the cost. The result depends on the start by no more than that (within one valley), which is below
every tolerance of the solver, so any warm start is valid.
"""

from __future__ import annotations

import numpy as np

from ...jit import types
from ...jit.njit import njit
from ...kernels.evaluator import FASTMATH
from ...kernels.robust import curvature, rho
from .projection import NUMBER, coefficients, distorted

_f8, _i8 = types.float64, types.int64
INNER_TOL = 1e-12
INNER_STEPS = 100
WORK = types.Tuple(
    (_f8[::1], _f8[:, ::1], _f8[::1], _f8[::1], _f8[:, ::1], _f8[::1], _f8[:, ::1], _f8[:, ::1], _f8[::1])
)
"""What `workspace` makes."""

OPTIONS = {"nogil": True, "error_model": "numpy", "fastmath": FASTMATH}


@njit(WORK(), **OPTIONS)
def workspace():  # type: ignore[no-untyped-def]
    """Arrays that `solve_point` works in, allocated once per chunk because that is slow."""
    return (
        np.empty(2), np.empty((2, 2)), np.empty(24), np.empty(24), np.empty((4, 3)), np.empty(3), np.empty((3, 3)),
        np.empty((3, 3)), np.empty(4),
    )  # fmt: skip


@njit(types.UniTuple(_f8, 2)(_f8[:, ::1], _i8, _f8, _f8, _f8[::1], _f8[:, ::1]), inline="always", **OPTIONS)
def _project(cams, i, u, v, scratch, D):  # type: ignore[no-untyped-def]
    """Distorted pixel of the normalised (u, v); D (2, 2) its derivative; scratch: u', v' before the focal length."""
    (a, b), (au, av, bu, bv) = distorted(cams[i, NUMBER], u, v, coefficients(cams, i))
    D[0, 0] = cams[i, 12] * au
    D[0, 1] = cams[i, 12] * av
    D[1, 0] = cams[i, 13] * bu
    D[1, 1] = cams[i, 13] * bv
    scratch[0] = a
    scratch[1] = b
    return cams[i, 12] * a + cams[i, 14], cams[i, 13] * b + cams[i, 15]


@njit(
    _f8(_f8[:, ::1], _i8[::1], _f8[:, ::1], _i8, _i8, _f8[::1], _i8, _f8, _f8[::1], _f8[:, ::1], _f8[::1]),
    **OPTIONS,
)
def _point_pass(cams, image, xy, lo, hi, X, code, s2, scratch, D, sums):  # type: ignore[no-untyped-def]
    """Cost of a track at X; sums: gradient (4) and lower triangle of the matrix (10) with respect to X.

    With a loss, ten more: the lower triangle of the loss's own curvature, to be added.
    """
    for k in range(24):
        sums[k] = 0.0
    X0, X1, X2, X3 = X[0], X[1], X[2], X[3]
    total = 0.0
    for m in range(lo, hi):
        i = image[m]
        x = cams[i, 0] * X0 + cams[i, 1] * X1 + cams[i, 2] * X2 + cams[i, 9] * X3
        y = cams[i, 3] * X0 + cams[i, 4] * X1 + cams[i, 5] * X2 + cams[i, 10] * X3
        z = cams[i, 6] * X0 + cams[i, 7] * X1 + cams[i, 8] * X2 + cams[i, 11] * X3
        iz = 1.0 / z
        u, v = x * iz, y * iz
        a, b = _project(cams, i, u, v, scratch, D)
        r0, r1 = a - xy[m, 0], b - xy[m, 1]
        square = r0 * r0 + r1 * r1
        w = 1.0
        if code == 0:
            total += 0.5 * square
        else:
            value, w = rho(code, square / s2)
            total += 0.5 * s2 * value
        a0, a1 = D[0, 0] * iz, D[0, 1] * iz
        b0, b1 = D[1, 0] * iz, D[1, 1] * iz
        a2, b2 = -(a0 * u + a1 * v), -(b0 * u + b1 * v)
        p0 = a0 * cams[i, 0] + a1 * cams[i, 3] + a2 * cams[i, 6]
        p1 = a0 * cams[i, 1] + a1 * cams[i, 4] + a2 * cams[i, 7]
        p2 = a0 * cams[i, 2] + a1 * cams[i, 5] + a2 * cams[i, 8]
        p3 = a0 * cams[i, 9] + a1 * cams[i, 10] + a2 * cams[i, 11]
        q0 = b0 * cams[i, 0] + b1 * cams[i, 3] + b2 * cams[i, 6]
        q1 = b0 * cams[i, 1] + b1 * cams[i, 4] + b2 * cams[i, 7]
        q2 = b0 * cams[i, 2] + b1 * cams[i, 5] + b2 * cams[i, 8]
        q3 = b0 * cams[i, 9] + b1 * cams[i, 10] + b2 * cams[i, 11]
        if code != 0:
            c = 2.0 * curvature(code, square / s2) / s2
            s0, s1, s_2, s3 = p0 * r0 + q0 * r1, p1 * r0 + q1 * r1, p2 * r0 + q2 * r1, p3 * r0 + q3 * r1
            sums[14] += c * s0 * s0
            sums[15] += c * s1 * s0
            sums[16] += c * s1 * s1
            sums[17] += c * s_2 * s0
            sums[18] += c * s_2 * s1
            sums[19] += c * s_2 * s_2
            sums[20] += c * s3 * s0
            sums[21] += c * s3 * s1
            sums[22] += c * s3 * s_2
            sums[23] += c * s3 * s3
        r0 *= w
        r1 *= w
        sums[0] += p0 * r0 + q0 * r1
        sums[1] += p1 * r0 + q1 * r1
        sums[2] += p2 * r0 + q2 * r1
        sums[3] += p3 * r0 + q3 * r1
        if code != 0:
            root = np.sqrt(w)
            p0, p1, p2, p3 = p0 * root, p1 * root, p2 * root, p3 * root
            q0, q1, q2, q3 = q0 * root, q1 * root, q2 * root, q3 * root
        sums[4] += p0 * p0 + q0 * q0
        sums[5] += p1 * p0 + q1 * q0
        sums[6] += p1 * p1 + q1 * q1
        sums[7] += p2 * p0 + q2 * q0
        sums[8] += p2 * p1 + q2 * q1
        sums[9] += p2 * p2 + q2 * q2
        sums[10] += p3 * p0 + q3 * q0
        sums[11] += p3 * p1 + q3 * q1
        sums[12] += p3 * p2 + q3 * q2
        sums[13] += p3 * p3 + q3 * q3
    return total


@njit(types.void(_f8[::1], _f8[:, ::1]), **OPTIONS)
def _basis(X, B):  # type: ignore[no-untyped-def]
    """Orthonormal basis B (4, 3) of what is orthogonal to the unit vector X (4,)."""
    sign = 1.0 if X[3] >= 0.0 else -1.0
    last = X[3] + sign
    factor = 1.0 / (1.0 + abs(X[3]))
    for j in range(3):
        for i in range(3):
            B[i, j] = -factor * X[i] * X[j]
        B[3, j] = -factor * last * X[j]
        B[j, j] += 1.0


@njit(types.void(_f8[::1], _f8[:, ::1], _f8[::1], _f8[:, ::1]), **OPTIONS)
def _project_tangent(sums, B, g, V):  # type: ignore[no-untyped-def]
    """Gradient g = B'g4 and matrix V = B'H4 B (3, 3) in the tangent space of X."""
    for j in range(3):
        g[j] = sums[0] * B[0, j] + sums[1] * B[1, j] + sums[2] * B[2, j] + sums[3] * B[3, j]
        # Column j of H4 B, from the lower triangle.
        b0, b1, b2, b3 = B[0, j], B[1, j], B[2, j], B[3, j]
        h0 = sums[4] * b0 + sums[5] * b1 + sums[7] * b2 + sums[10] * b3
        h1 = sums[5] * b0 + sums[6] * b1 + sums[8] * b2 + sums[11] * b3
        h2 = sums[7] * b0 + sums[8] * b1 + sums[9] * b2 + sums[12] * b3
        h3 = sums[10] * b0 + sums[11] * b1 + sums[12] * b2 + sums[13] * b3
        for i in range(j, 3):
            V[i, j] = B[0, i] * h0 + B[1, i] * h1 + B[2, i] * h2 + B[3, i] * h3


@njit(types.boolean(_f8[:, ::1], _f8, _f8[:, ::1]), **OPTIONS)
def _factor(V, mu, L):  # type: ignore[no-untyped-def]
    """Cholesky factor of V + mu diag(V), lower; False where a pivot vanishes. Its diagonal holds 1 / L_kk."""
    for i in range(3):
        for j in range(i + 1):
            s = V[i, j]
            if i == j:
                s *= 1.0 + mu
            for k in range(j):
                s -= L[i, k] * L[j, k]
            if i == j:
                if not s > 1e-14 * V[i, i]:
                    return False
                L[i, i] = 1.0 / np.sqrt(s)
            else:
                L[i, j] = s * L[j, j]
    return True


@njit(types.boolean(_f8[::1], _f8[:, ::1], _f8[::1], _f8[:, ::1], _i8, _f8[:, ::1]), **OPTIONS)
def _newton(sums, B, g, V, code, L):  # type: ignore[no-untyped-def]
    """Gradient and matrix in the tangent space; True if L is the factor with the loss's own curvature added."""
    if code != 0:
        for k in range(4, 14):
            sums[k] += sums[k + 10]
        _project_tangent(sums, B, g, V)
        for k in range(4, 14):
            sums[k] -= sums[k + 10]
        if _factor(V, 0.0, L):
            _project_tangent(sums, B, g, V)
            return True
    _project_tangent(sums, B, g, V)
    return False


@njit(
    _f8(_f8[:, ::1], _i8[::1], _f8[:, ::1], _i8, _i8, _f8[::1], _i8, _f8, WORK),
    **OPTIONS,
)
def solve_point(cams, image, xy, lo, hi, X, code, s2, work):  # type: ignore[no-untyped-def]
    """Move the unit vector X (4,) to the minimum of its track's cost, which is returned."""
    scratch, D, sums, other, B, g, V, L, new = work
    cost = _point_pass(cams, image, xy, lo, hi, X, code, s2, scratch, D, sums)
    if not cost < np.inf:
        return cost
    size = 0.0
    for m in range(lo, hi):
        size += xy[m, 0] * xy[m, 0] + xy[m, 1] * xy[m, 1]
    # Below this the residuals are rounding of the pixels themselves: (1e-11 of a pixel coordinate)^2.
    least = 1e-22 * size
    mu = 0.0
    _basis(X, B)
    curved = _newton(sums, B, g, V, code, L)
    for _ in range(INNER_STEPS):
        if not (curved and mu == 0.0) and not _factor(V, mu, L):
            if mu > 1e6:
                break
            mu = max(10.0 * mu, 1e-6)
            continue
        y0 = g[0] * L[0, 0]
        y1 = (g[1] - L[1, 0] * y0) * L[1, 1]
        y2 = (g[2] - L[2, 0] * y0 - L[2, 1] * y1) * L[2, 2]
        # A damped step promises little at any distance from the minimum: only an undamped one may end the solve.
        if mu == 0.0 and 0.5 * (y0 * y0 + y1 * y1 + y2 * y2) <= INNER_TOL * cost + least:
            break
        u2 = -y2 * L[2, 2]
        u1 = (-y1 - L[2, 1] * u2) * L[1, 1]
        u0 = (-y0 - L[1, 0] * u1 - L[2, 0] * u2) * L[0, 0]
        norm = 0.0
        for i in range(4):
            new[i] = X[i] + B[i, 0] * u0 + B[i, 1] * u1 + B[i, 2] * u2
            norm += new[i] * new[i]
        norm = 1.0 / np.sqrt(norm)
        for i in range(4):
            new[i] *= norm
        trial = _point_pass(cams, image, xy, lo, hi, new, code, s2, scratch, D, other)
        if trial < cost:
            stuck = mu == 0.0 and cost - trial <= 1e-15 * cost
            cost = trial
            for i in range(4):
                X[i] = new[i]
            for i in range(24):
                sums[i] = other[i]
            mu = 0.0 if mu < 1e-5 else 0.1 * mu
            _basis(X, B)
            curved = _newton(sums, B, g, V, code, L)
            if stuck:
                break
        else:
            if trial - cost <= 1e-14 * cost or mu > 1e8:
                break  # rounding: a step makes no difference
            mu = max(10.0 * mu, 1e-3)
    return cost


@njit(types.void(_f8[:, ::1], _f8[:, ::1], _i8[::1], _i8, _i8, _f8[::1], _f8[::1]), **OPTIONS)
def carried(before, cams, image, lo, hi, X, out):  # type: ignore[no-untyped-def]
    """The point X moved with the camera of its track that is nearest to it, when cameras go from ``before`` to
    ``cams``."""
    best, least = image[lo], np.inf
    for m in range(lo, hi):
        cam = before[image[m]]
        z = abs(cam[6] * X[0] + cam[7] * X[1] + cam[8] * X[2] + cam[11] * X[3])
        if z < least:
            best, least = image[m], z
    old, new = before[best], cams[best]
    x = old[0] * X[0] + old[1] * X[1] + old[2] * X[2] + (old[9] - new[9]) * X[3]
    y = old[3] * X[0] + old[4] * X[1] + old[5] * X[2] + (old[10] - new[10]) * X[3]
    z = old[6] * X[0] + old[7] * X[1] + old[8] * X[2] + (old[11] - new[11]) * X[3]
    for i in range(3):
        out[i] = new[i] * x + new[3 + i] * y + new[6 + i] * z
    out[3] = X[3]
    norm = 1.0 / np.sqrt(out[0] * out[0] + out[1] * out[1] + out[2] * out[2] + out[3] * out[3])
    for i in range(4):
        out[i] *= norm


@njit(types.void(_f8[:, ::1], _i8[::1], _i8[::1], _f8[:, ::1], _i8[::1], _f8[:, ::1], _f8[::1], _i8, _f8), **OPTIONS)
def retriangulate(cams, start, image, xy, rows, points, costs, code, s2):  # type: ignore[no-untyped-def]
    """Solve the tracks ``rows`` from other starts, and keep the best point of each, with its cost.

    Starts are on the rays of the first and the last observation (without distortion), at infinity and at 1, 4 and 16
    times the distance of these two cameras.
    """
    work, X = workspace(), np.empty(4)
    ray, centre, other = np.empty(3), np.empty(3), np.empty(3)
    for j in rows:
        lo, hi = start[j], start[j + 1]
        for end in range(2):
            m, far = (lo, hi - 1) if end == 0 else (hi - 1, lo)
            cam, opposite = cams[image[m]], cams[image[far]]
            u, v = (xy[m, 0] - cam[14]) / cam[12], (xy[m, 1] - cam[15]) / cam[13]
            base = 0.0
            for i in range(3):
                ray[i] = cam[i] * u + cam[3 + i] * v + cam[6 + i]
                centre[i] = -(cam[i] * cam[9] + cam[3 + i] * cam[10] + cam[6 + i] * cam[11])
                other[i] = -(
                    opposite[i] * opposite[9] + opposite[3 + i] * opposite[10] + opposite[6 + i] * opposite[11]
                )
                base += (centre[i] - other[i]) ** 2
            base = np.sqrt(base)
            for k in range(4):
                near = 0.0 if k == 0 or base == 0.0 else 1.0 / (base * 4.0 ** (k - 1))  # inverse depth
                norm = near * near
                for i in range(3):
                    X[i] = ray[i] + near * centre[i]
                    norm += X[i] * X[i]
                X[3] = near
                norm = 1.0 / np.sqrt(norm)
                for i in range(4):
                    X[i] *= norm
                cost = solve_point(cams, image, xy, lo, hi, X, code, s2, work)
                if cost < costs[j]:
                    costs[j] = cost
                    points[j] = X
