r"""Compiled variable projection for blocks with their own bases.

A block has the basis Phi (m, k), data y (m,) and ``Phi = Q R`` (modified Gram-Schmidt, done twice, which is as
orthogonal as Householder's). Its coefficients are ``c = R^-1 Q'y``, its residuals ``r = Phi c - y = -(I - QQ') y``, and
the exact derivative with respect to a shared parameter a is (Golub and Pereyra)

    dr_a = u_a - Q z_a,    u_a = (I - QQ') dPhi_a c,    z_a = R^-T dPhi_a' r

The two parts are orthogonal, so J'J = u'u + z'z, and the gradient is ``r' dPhi_a c``. Kaufman's approximation leaves
out z. A column of Phi that depends on earlier columns (to 1e-10) gets the coefficient 0.
"""

# mypy: allow-untyped-decorators

from __future__ import annotations

import numpy as np

from ..jit import types
from ..jit.njit import njit
from ..kernels.evaluator import FASTMATH
from ..kernels.robust import rho

_f8, _i8 = types.float64, types.int64
_options = {"nogil": True, "error_model": "numpy", "fastmath": FASTMATH}


@njit(types.void(_f8[:, ::1], _f8[:, ::1], _f8[:, ::1]), **_options)
def _gram_schmidt(phi, Q, R):  # type: ignore[no-untyped-def]
    """Factor phi (m, k) into Q (k, m), whose rows are orthonormal or zero, and R (k, k) with Phi = Q' R."""
    m, k = phi.shape
    for j in range(k):
        size = 0.0
        for i in range(m):
            Q[j, i] = phi[i, j]
            size += phi[i, j] * phi[i, j]
        for b in range(k):
            R[b, j] = 0.0
        for _ in range(2):
            for b in range(j):
                s = 0.0
                for i in range(m):
                    s += Q[b, i] * Q[j, i]
                R[b, j] += s
                for i in range(m):
                    Q[j, i] -= s * Q[b, i]
        left = 0.0
        for i in range(m):
            left += Q[j, i] * Q[j, i]
        if left > 1e-20 * size:
            R[j, j] = np.sqrt(left)
            for i in range(m):
                Q[j, i] /= R[j, j]
        else:
            R[j, j] = 0.0 if left == left else left  # NaN stays NaN
            for i in range(m):
                Q[j, i] = R[j, j]


@njit(_f8(_f8[:, ::1], _f8[::1], _f8[:, ::1], _f8[:, ::1], _f8[::1], _f8[::1]), **_options)
def _project(phi, y, Q, R, c, r):  # type: ignore[no-untyped-def]
    """Compute coefficients c (k,) and residuals r (m,) of one block; return the squared norm of r."""
    m, k = phi.shape
    _gram_schmidt(phi, Q, R)
    for i in range(m):
        r[i] = -y[i]
    for j in range(k):
        s = 0.0
        for i in range(m):
            s -= Q[j, i] * r[i]
        c[j] = s
        for i in range(m):
            r[i] += s * Q[j, i]
    for j in range(k - 1, -1, -1):
        s = c[j]
        for b in range(j + 1, k):
            s -= R[j, b] * c[b]
        c[j] = s / R[j, j] if R[j, j] != 0.0 else 0.0
    square = 0.0
    for i in range(m):
        square += r[i] * r[i]
    return square


@njit(_f8(_f8[:, :, ::1], _f8[:, ::1], _i8, _f8, _f8[::1], _f8[:, ::1]), **_options)
def block_costs(phi, y, code, s2, costs, coefficients):  # type: ignore[no-untyped-def]
    """Compute costs (b,) and, if requested, coefficients (b, k) of blocks with bases phi (b, m, k); return the sum of
    costs."""
    n, m, k = phi.shape
    Q, R, c, r = np.empty((k, m)), np.empty((k, k)), np.empty(k), np.empty(m)
    total = 0.0
    for b in range(n):
        square = _project(phi[b], y[b], Q, R, c, r)
        cost = 0.5 * square if code == 0 else 0.5 * s2 * rho(code, square / s2)[0]
        if costs.shape[0] > 0:
            costs[b] = cost
        if coefficients.shape[0] > 0:
            for j in range(k):
                coefficients[b, j] = c[j]
        total += cost
    return total


@njit(
    _f8(_f8[:, :, ::1], _f8[:, :, :, ::1], _f8[:, ::1], _i8, _f8, _i8, _i8, _f8[::1], _f8[::1], _f8[:, ::1],
        _f8[:, ::1]),
    **_options,
)  # fmt: skip
def block_sums(phi, slope, y, code, s2, exact, outer, costs, gradient, hessian, products):  # type: ignore[no-untyped-def]
    """Add gradient, J'J and outer products of blocks with slopes (d, b, m, k); return the sum of their costs."""
    n, m, k = phi.shape
    d = slope.shape[0]
    Q, R, c, r = np.empty((k, m)), np.empty((k, k)), np.empty(k), np.empty(m)
    u, z, g = np.empty((d, m)), np.zeros((d, k)), np.empty(d)
    total = 0.0
    for b in range(n):
        square = _project(phi[b], y[b], Q, R, c, r)
        weight, cost = 1.0, 0.5 * square
        if code != 0:
            value, weight = rho(code, square / s2)
            cost = 0.5 * s2 * value
        total += cost
        if costs.shape[0] > 0:
            costs[b] = cost
        for a in range(d):
            s = 0.0
            for i in range(m):
                t = 0.0
                for j in range(k):
                    t += slope[a, b, i, j] * c[j]
                u[a, i] = t
                s += t * r[i]
            g[a] = weight * s
            gradient[a] += g[a]
            for j in range(k):
                s = 0.0
                for i in range(m):
                    s += Q[j, i] * u[a, i]
                for i in range(m):
                    u[a, i] -= s * Q[j, i]
            if exact:
                for j in range(k):  # forward substitution with R'
                    s = 0.0
                    for i in range(m):
                        s += slope[a, b, i, j] * r[i]
                    for h in range(j):
                        s -= R[h, j] * z[a, h]
                    z[a, j] = s / R[j, j] if R[j, j] != 0.0 else 0.0
        for a in range(d):
            for h in range(a + 1):
                s = 0.0
                for i in range(m):
                    s += u[a, i] * u[h, i]
                for j in range(k):
                    s += z[a, j] * z[h, j]
                hessian[a, h] += weight * s
                if outer:
                    products[a, h] += g[a] * g[h]
    return total
