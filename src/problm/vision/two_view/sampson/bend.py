"""Second derivatives of the matrices E and F along their retractions, as nine numbers each, row by row."""

from __future__ import annotations

import numpy as np

from ....jit import types
from ....manifolds import compiled, internal, multiply, tangent_basis
from ..kernels import cross_product, fold

_f8 = types.float64


@compiled(_f8[:, ::1](_f8[::1], _f8[:, ::1], _f8[:, ::1]))
def bend_essential(theta, A1, A2):  # type: ignore[no-untyped-def]
    """Second derivatives (15, 9) of F = A2' [t] R A1 along `manifolds.move_essential`: those of exp([w]) R are
    ``([a][b] + [b][a]) R / 2``, and a great circle bends towards -t."""
    R, t = theta[:9].reshape(3, 3), theta[9:12]
    B = tangent_basis(t)
    axis, out, made = np.zeros(3), np.empty((15, 9)), np.empty(9)
    row = 0
    for a in range(5):
        for b in range(a + 1):
            X = np.zeros((3, 3))
            if a < 3:  # [a][b] = b a' - (a'b) 1
                for j in range(3):
                    X[a, j] += 0.5 * R[b, j]
                    X[b, j] += 0.5 * R[a, j]
                    if a == b:
                        for i in range(3):
                            X[i, j] -= R[i, j]
                X = cross_product(t, X)
            elif b < 3:
                axis[b] = 1.0
                X = cross_product(axis, R)
                axis[b] = 0.0
                X = cross_product(np.array([B[0, a - 3], B[1, a - 3], B[2, a - 3]]), X)
            elif a == b:
                X = cross_product(np.array([-t[0], -t[1], -t[2]]), R)
            fold(A2, X, A1, made, 0)
            for j in range(9):
                out[row, j] = made[j]
            row += 1
    return out


@internal
def transposed(X):  # type: ignore[no-untyped-def]
    """X' of a (3, 3) matrix."""
    Y = np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            Y[j, i] = X[i, j]
    return Y


@compiled(_f8[:, ::1](_f8[::1], _f8[:, ::1], _f8[:, ::1]))
def bend_fundamental(theta, A1, A2):  # type: ignore[no-untyped-def]
    """Second derivatives (28, 9) of F = A2' U exp([v]) M exp([w])' V' A1 along `manifolds.move_fundamental`."""
    U, B = theta[:9].reshape(3, 3), tangent_basis(theta[18:22])
    turns = np.zeros((2, 3, 3))  # [e_0] and [e_1]
    turns[0, 1, 2], turns[0, 2, 1] = -1.0, 1.0
    turns[1, 0, 2], turns[1, 2, 0] = 1.0, -1.0
    middle = np.zeros((4, 3, 3))  # M and its tangents
    for i in range(4):
        middle[0, i // 2, i % 2] = theta[18 + i]
        for k in range(3):
            middle[1 + k, i // 2, i % 2] = B[i, k]
    V = transposed(theta[9:18].reshape(3, 3))
    out, made = np.empty((28, 9)), np.empty(9)
    row = 0
    for a in range(7):
        for b in range(a + 1):
            X = np.zeros((3, 3))
            if a < 4 and b // 2 == a // 2:
                first, other = multiply(turns[a % 2], turns[b % 2]), multiply(turns[b % 2], turns[a % 2])
                for i in range(3):
                    for j in range(3):
                        X[i, j] = 0.5 * (first[i, j] + other[i, j])
                X = multiply(X, middle[0]) if a < 2 else multiply(middle[0], X)
            elif b < 4:
                X = middle[a - 3] if a > 3 else middle[0]
                X = multiply(turns[b], X) if b < 2 else multiply(X, transposed(turns[b - 2]))
                if a < 4:
                    X = multiply(X, transposed(turns[a - 2]))
            elif a == b:
                for i in range(2):
                    for j in range(2):
                        X[i, j] = -middle[0, i, j]
            fold(A2, multiply(U, multiply(X, V)), A1, made, 0)
            for j in range(9):
                out[row, j] = made[j]
            row += 1
    return out
