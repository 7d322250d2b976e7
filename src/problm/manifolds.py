r"""Manifolds: curved parameter spaces, and how a tangent step moves a point.

The solver only calls ``retract(theta, delta)``: the point reached from ``theta`` by the tangent vector ``delta``, which
has one entry per degree of freedom. A point is a flat float64 array that may hold more numbers than that (a rotation
holds 9, its tangent space has 3), so there are no singularities: no gimbal lock, no pole of a sphere, no vanishing
scale. The spaces here are

==================  ====================  =========  =====================================================
space               point                 dimension  retraction
==================  ====================  =========  =====================================================
`euclidean` (n)     (n,)                  n          theta + delta
`ROTATION`          R, 9 row by row       3          exp([w]) R
`sphere` (n)        unit vector, (n,)     n - 1      great circle along B delta
`ESSENTIAL`         R, t: 12              5          rotation x sphere; E = [t] R
`FUNDAMENTAL`       U, V, M: 22           7          two directions x sphere(4); F = U_2 M V_2'
`product` (a, b..)  concatenated          sum        each its own
==================  ====================  =========  =====================================================

The tangent basis B(x) of the sphere at x is the Householder reflection that takes the last axis to x, without its
last column (which is x). It is orthonormal, and there is no search for an axis to drop.

The fundamental matrix of rank 2 and norm 1 is written ``F = U_2 M V_2'`` with ``U_2, V_2`` the first two columns
of rotations (their third columns are the two epipoles) and a 2 x 2 block M with unit Frobenius norm. U and V move
by rotations about their first two axes only (M already covers rotations about the third), M moves on the unit sphere
of 4 dimensions: 2 + 2 + 3 = 7 parameters. The more usual form with M = diag(s1, s2) loses a direction where s1 = s2,
that is, at every essential matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .jit import types
from .jit.njit import njit
from .jit.njit import part as compiled_part
from .jit.types import Signature

_f8 = types.float64

Array = NDArray[np.float64]


def compiled(*signature: Signature) -> Any:
    """Compile for these types (also ahead of time), and for other types on demand."""
    return njit(*signature, any_types=True, nogil=True, error_model="numpy")


def internal(function: Callable[..., Any]) -> Any:
    """Like `compiled`, for compiled callers only."""
    return compiled_part(nogil=True, error_model="numpy", fastmath=False)(function)  # not the caller's options


@compiled(_f8[:, ::1](_f8[::1]))
def rotation_exp(w):  # type: ignore[no-untyped-def]
    """Rotation by the angle ``|w|`` (radians) about ``w`` (3,), as a (3, 3) matrix: Rodrigues' formula."""
    x, y, z = w[0], w[1], w[2]
    a2 = x * x + y * y + z * z
    if a2 > 1e-8:
        a = np.sqrt(a2)
        s, c = np.sin(a) / a, (1.0 - np.cos(a)) / a2
    else:  # The next terms are below 1e-17.
        s, c = 1.0 - a2 / 6.0, 0.5 - a2 / 24.0
    R = np.empty((3, 3))
    R[0, 0] = 1.0 - c * (y * y + z * z)
    R[0, 1] = c * x * y - s * z
    R[0, 2] = c * x * z + s * y
    R[1, 0] = c * x * y + s * z
    R[1, 1] = 1.0 - c * (x * x + z * z)
    R[1, 2] = c * y * z - s * x
    R[2, 0] = c * x * z - s * y
    R[2, 1] = c * y * z + s * x
    R[2, 2] = 1.0 - c * (x * x + y * y)
    return R


@internal
def multiply(A, B):  # type: ignore[no-untyped-def]
    """Product of two (3, 3) matrices; for so few numbers a loop is faster than a library call."""
    C = np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            C[i, j] = A[i, 0] * B[0, j] + A[i, 1] * B[1, j] + A[i, 2] * B[2, j]
    return C


@internal
def _straighten(R):  # type: ignore[no-untyped-def]
    """One Newton step towards the nearest rotation, R (3 I - R'R) / 2: keeps rounding errors from accumulating."""
    G = np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            G[i, j] = -0.5 * (R[0, i] * R[0, j] + R[1, i] * R[1, j] + R[2, i] * R[2, j])
        G[i, i] += 1.5
    return multiply(R, G)


@compiled(_f8[::1](_f8[::1], _f8[::1]))
def rotate(theta, delta):  # type: ignore[no-untyped-def]
    """``exp([delta]) R`` for a rotation given row by row, (9,)."""
    return _straighten(multiply(rotation_exp(delta), theta.reshape(3, 3))).reshape(9)


@compiled(_f8[:, ::1](_f8[::1]))
def tangent_basis(x):  # type: ignore[no-untyped-def]
    """Orthonormal basis, (n, n - 1), of the vectors orthogonal to the unit vector ``x`` (n,)."""
    n = x.shape[0]
    # Reflect along v = x + sign e_n, the sign that avoids cancellation: it takes e_n to -sign x.
    sign = 1.0 if x[n - 1] >= 0.0 else -1.0
    last = x[n - 1] + sign
    factor = 1.0 / (1.0 + abs(x[n - 1]))  # 2 / |v|^2
    B = np.empty((n, n - 1))
    for j in range(n - 1):
        for i in range(n - 1):
            B[i, j] = -factor * x[i] * x[j]
        B[n - 1, j] = -factor * last * x[j]
        B[j, j] += 1.0
    return B


@compiled(_f8[::1](_f8[::1], _f8[::1]))
def walk_sphere(x, delta):  # type: ignore[no-untyped-def]
    """Move the unit vector ``x`` (n,) along the great circle of ``B(x) delta`` by the angle ``|delta|``."""
    n = x.shape[0]
    B = tangent_basis(x)
    a2 = 0.0
    for j in range(n - 1):
        a2 += delta[j] * delta[j]
    a = np.sqrt(a2)
    c, s = np.cos(a), (np.sin(a) / a if a > 1e-8 else 1.0)
    y = np.empty(n)
    norm = 0.0
    for i in range(n):
        y[i] = c * x[i]
        for j in range(n - 1):
            y[i] += s * B[i, j] * delta[j]
        norm += y[i] * y[i]
    for i in range(n):
        y[i] /= np.sqrt(norm)
    return y


@compiled(_f8[::1](_f8[::1], _f8[::1]))
def move_essential(theta, delta):  # type: ignore[no-untyped-def]
    """Move (R, t), (12,), by a rotation vector (3) and a tangent of the direction t (2)."""
    out = np.empty(12)
    R, t = rotate(theta[:9], delta[:3]), walk_sphere(theta[9:12], delta[3:5])
    for i in range(12):
        out[i] = R[i] if i < 9 else t[i - 9]
    return out


@compiled(_f8[::1](_f8[::1], _f8[::1]))
def move_fundamental(theta, delta):  # type: ignore[no-untyped-def]
    """Move (U, V, M), (22,), by 2 + 2 + 3 parameters."""
    out = np.empty(22)
    w = np.zeros(3)
    for part in range(2):
        w[0], w[1] = delta[2 * part], delta[2 * part + 1]
        # Multiply on the right, to rotate about the axes of U itself: the third axis then moves at the full rate.
        turned = _straighten(multiply(theta[9 * part : 9 * part + 9].reshape(3, 3), rotation_exp(w)))
        for j in range(9):
            out[9 * part + j] = turned[j // 3, j % 3]
    M = walk_sphere(theta[18:22], delta[4:7])
    for j in range(4):
        out[18 + j] = M[j]
    return out


@dataclass(frozen=True)
class Manifold:
    """A space of points of ``size`` numbers with ``dim`` degrees of freedom.

    Examples
    --------
    >>> space = product(sphere(3), euclidean(2))
    >>> space.size, space.dim
    (5, 4)
    >>> space.retract(np.array([0.0, 0.0, 1.0, 5.0, 6.0]), np.array([0.0, np.pi / 2, 1.0, 1.0])).round(3)
    array([0., 1., 0., 6., 7.])
    """

    name: str
    size: int
    dim: int
    retract: Callable[[Array, Array], Array]
    """``(theta (size,), delta (dim,)) -> theta (size,)``."""


def euclidean(n: int) -> Manifold:
    """Flat space of n dimensions."""
    return Manifold(f"euclidean({n})", n, n, lambda theta, delta: theta + delta)


def sphere(n: int) -> Manifold:
    """Unit vectors of n >= 2 numbers."""
    if n < 2:
        raise ValueError(f"sphere: n must be at least 2, got {n}")
    return Manifold(f"sphere({n})", n, n - 1, walk_sphere)


ROTATION = Manifold("rotation", 9, 3, rotate)
ESSENTIAL = Manifold("essential", 12, 5, move_essential)
FUNDAMENTAL = Manifold("fundamental", 22, 7, move_fundamental)


def product(*parts: Manifold) -> Manifold:
    """Product of several spaces: points are concatenated, and each part is moved by its own part of the step."""
    if not parts:
        raise ValueError("product: give at least one manifold")
    sizes = np.cumsum([0] + [p.size for p in parts])
    dims = np.cumsum([0] + [p.dim for p in parts])

    def retract(theta: Array, delta: Array) -> Array:
        out = np.empty_like(theta)
        for k, part in enumerate(parts):
            point, step = theta[sizes[k] : sizes[k + 1]], delta[dims[k] : dims[k + 1]]
            out[sizes[k] : sizes[k + 1]] = part.retract(point, step)
        return out

    return Manifold(" x ".join(p.name for p in parts), int(sizes[-1]), int(dims[-1]), retract)


def skew(v: ArrayLike) -> Array:
    """The matrix [v] with ``[v] x = v cross x``, (3, 3)."""
    x, y, z = np.asarray(v, dtype=np.float64)
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])


def rotation_log(R: ArrayLike) -> Array:
    """Rotation vector (3,), of length at most pi, of a rotation matrix; accurate also near 0 and pi.

    Examples
    --------
    >>> rotation_log(rotation_exp(np.array([0.1, -0.2, 0.3]))).round(12)
    array([ 0.1, -0.2,  0.3])
    """
    x, y, z, w = quaternions_of(np.asarray(R)[None])[0].tolist()
    angle = 2.0 * math.atan2(math.sqrt(x * x + y * y + z * z), w)
    if angle > 1e-3:
        scale = angle / math.sin(angle / 2.0)
    else:
        scale = 2.0 + angle**2 / 12.0 + 7.0 * angle**4 / 2880.0
    return scale * np.array([x, y, z])


def rotations_by(vectors: Array) -> Array:
    """Rotations (n, 3, 3) by the lengths of vectors (n, 3), in radians, about them."""
    angle = _lengths(vectors)
    square = angle * angle
    with np.errstate(invalid="ignore"):  # 0 / 0, not used
        scale = np.where(angle > 1e-3, np.sin(angle / 2.0) / angle, 0.5 - square / 48.0 + square * square / 3840.0)
    return _rotations(np.column_stack([scale[:, None] * vectors, np.cos(angle / 2.0)]))


def rotations_of(quaternions: Array) -> Array:
    """Rotations (n, 3, 3) of quaternions x, y, z, w, (n, 4), of any length but zero."""
    return _rotations(quaternions / _lengths(quaternions)[:, None])


def _lengths(vectors: Array) -> Array:
    """Summed in the order of the entries, as by `scipy.spatial.transform`."""
    total = vectors[:, 0] * vectors[:, 0]
    for column in vectors.T[1:]:
        total = total + column * column
    return np.sqrt(total)


def _rotations(unit: Array) -> Array:
    x, y, z, w = unit.T
    xx, yy, zz, ww = x * x, y * y, z * z, w * w
    rows = [
        [xx - yy - zz + ww, 2.0 * (x * y - z * w), 2.0 * (x * z + y * w)],
        [2.0 * (x * y + z * w), -xx + yy - zz + ww, 2.0 * (y * z - x * w)],
        [2.0 * (x * z - y * w), 2.0 * (y * z + x * w), -xx - yy + zz + ww],
    ]
    return np.ascontiguousarray(np.moveaxis(np.array(rows), 2, 0))


def quaternions_of(rotations: ArrayLike) -> Array:
    """Unit quaternions x, y, z, w, (n, 4), with w >= 0, of rotations (n, 3, 3).

    Matrices that are not quite rotations are replaced by the nearest ones. The largest of the four entries, which is at
    least 1/2, is found first, and the others from it.

    Examples
    --------
    >>> quaternions_of([np.diag([-1.0, 1.0, -1.0])])
    array([[0., 1., 0., 0.]])
    """
    R = np.asarray(rotations, dtype=np.float64)
    if (np.linalg.det(R) <= 0.0).any():
        raise ValueError("a matrix with a determinant that is not positive is no rotation")
    off = ~np.isclose(R @ R.transpose(0, 2, 1), np.eye(3), atol=1e-12).all(axis=(1, 2))
    if off.any():
        R = R.copy()
        R[off] = [nearest_rotation(each) for each in R[off]]
    trace = R[:, 0, 0] + R[:, 1, 1] + R[:, 2, 2]
    largest = np.argmax(np.column_stack([R[:, 0, 0], R[:, 1, 1], R[:, 2, 2], trace]), axis=1)
    n, i, j, k = np.arange(len(R)), largest % 3, (largest + 1) % 3, (largest + 2) % 3
    found = np.empty((len(R), 4))
    found[n, i] = 1.0 - trace + 2.0 * R[n, i, i]
    found[n, j], found[n, k] = R[n, j, i] + R[n, i, j], R[n, k, i] + R[n, i, k]
    found[:, 3] = R[n, k, j] - R[n, j, k]
    turned = np.column_stack([R[:, 2, 1] - R[:, 1, 2], R[:, 0, 2] - R[:, 2, 0], R[:, 1, 0] - R[:, 0, 1], 1.0 + trace])
    found = np.where((largest == 3)[:, None], turned, found)
    found /= _lengths(found)[:, None]
    # The sign of the first of w, x, y, z that is not zero.
    order = found[:, [3, 0, 1, 2]]
    leading = order[n, np.argmax(order != 0.0, axis=1)]
    return np.where(leading[:, None] < 0.0, -found, found)


def nearest_rotation(A: ArrayLike) -> Array:
    """The rotation nearest to a (3, 3) matrix in the Frobenius norm."""
    U, _, Vt = np.linalg.svd(np.asarray(A, dtype=np.float64))
    U[:, 2] *= np.linalg.det(U @ Vt)
    R: Array = U @ Vt
    return R


@compiled(types.Tuple((_f8[:, ::1], _f8))(_f8[:, ::1]))
def as_rotation(A):  # type: ignore[no-untyped-def]
    """The rotation nearest to a nearly orthogonal (3, 3) matrix A, and the largest entry of the departure ``A'A - I``.

    Newton's iteration converges from a departure ``A'A - I`` below 1; a reflection reports a departure of 2.
    """
    departure = 0.0
    for i in range(3):
        for j in range(3):
            dot = A[0, i] * A[0, j] + A[1, i] * A[1, j] + A[2, i] * A[2, j] - (1.0 if i == j else 0.0)
            departure = max(departure, abs(dot)) if dot == dot else np.inf
    det = A[0, 0] * (A[1, 1] * A[2, 2] - A[1, 2] * A[2, 1])
    det += A[0, 1] * (A[1, 2] * A[2, 0] - A[1, 0] * A[2, 2])
    det += A[0, 2] * (A[1, 0] * A[2, 1] - A[1, 1] * A[2, 0])
    if det < 0.0:
        departure = max(departure, 2.0)
    return _straighten(_straighten(_straighten(A))), departure


@compiled(types.Tuple((_f8[::1], _f8, _f8))(_f8[:, ::1], _f8[::1]))
def as_pose(R, t):  # type: ignore[no-untyped-def]
    """Rotation nearest to R and unit vector along t, (12,), the departure of R (`as_rotation`), and the length of t."""
    out = np.empty(12)
    rotation, departure = as_rotation(R)
    length = np.sqrt(t[0] * t[0] + t[1] * t[1] + t[2] * t[2])
    for j in range(9):
        out[j] = rotation[j // 3, j % 3]
    for j in range(3):
        out[9 + j] = t[j] / length
    return out, departure, length


def essential_point(R: ArrayLike, t: ArrayLike) -> Array:
    """Point of `ESSENTIAL` for a rotation and a translation of any length."""
    direction = np.asarray(t, dtype=np.float64)
    return np.concatenate([nearest_rotation(R).ravel(), direction / np.linalg.norm(direction)])


def fundamental_point(F: ArrayLike) -> Array:
    """Point of `FUNDAMENTAL` for the rank-2 matrix nearest to F, up to scale."""
    U, s, Vt = np.linalg.svd(np.asarray(F, dtype=np.float64))
    V = Vt.T.copy()
    # Columns 0 and 1 carry F; the third may change its sign to make U and V rotations.
    U[:, 2] *= np.linalg.det(U)
    V[:, 2] *= np.linalg.det(V)
    s = s / np.hypot(s[0], s[1])
    return np.concatenate([U.ravel(), V.ravel(), [s[0], 0.0, 0.0, s[1]]])


def fundamental_from_point(theta: Array) -> Array:
    """The (3, 3) matrix of rank 2 and Frobenius norm 1 of a point of `FUNDAMENTAL`."""
    U, V, M = theta[:9].reshape(3, 3), theta[9:18].reshape(3, 3), theta[18:].reshape(2, 2)
    F: Array = U[:, :2] @ M @ V[:, :2].T
    return F
