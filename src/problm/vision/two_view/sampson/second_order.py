r"""Second derivatives of the Sampson error: exact sums of ``r d2r`` for E and F.

Let ``r = n s`` with n = x2' F x1 and s = 1 / |(l0, l1, m0, m1)| (`problm.vision.two_view.kernels`). For two tangent
directions a and b, with n_a = x2' F_a x1, l_a = F_a x1, m_a = F_a' x2 and P_a = s^2 (l . l_a + m . m_a), the sums over
the first two entries of l and m,

    r_a = s n_a - r P_a
    r_ab = -(r_a P_b + r_b P_a) + r P_a P_b - r s^2 (l_a . l_b + m_a . m_b) + dr/dF . F_ab ,

so that the second derivatives of the cost are

    r_a r_b + r r_ab = U_a U_b - (r s)^2 (l_a . l_b + m_a . m_b) + r dr/dF . F_ab ,   U_a = r_a - r P_a .

The second term needs the *moments*, the sums of ``(r s)^2`` times the products of x1 and of x2 with themselves; the
third one the sum of ``r dr/dF``, which is that of ``r s x2 x1'`` less products of F with the moments: 20 numbers for
all directions. F_ab is the second derivative of the matrix along the retraction: the *bend* of the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....jit import types
from ....jit.addresses import ENCODE, MOVE, address_of, call_encode, call_move
from ....jit.njit import njit
from ....kernels.evaluator import BLOCK, FASTMATH
from ....kernels.passes import add_row_products_by, call_load, tool, tools
from ....kernels.second_order import SecondOrder
from ....support.products import combine

Array = NDArray[np.float64]
_f8, _i8 = types.float64, types.int64
_MOMENTS = 11
"""Products of x1 and of x2 with themselves, whose last entries are one and have their product in common."""
_X1 = np.array([[3, 4, 1], [4, 5, 2], [1, 2, 0]])
_X2 = np.array([[8, 9, 6], [9, 10, 7], [6, 7, 0]])
"""Places of the entries of the two symmetric matrices among them."""
_UNIT = np.eye(3)
_STEP = 1e-5


@njit(
    types.void(_f8[::1], _i8[:, ::1], _i8[::1], _i8, _i8, _i8, _f8[:, ::1]),
    nogil=True, error_model="numpy", fastmath=FASTMATH,
)  # fmt: skip
def sampson_runs(theta, columns, starts, length, n, tools, sums):  # type: ignore[no-untyped-def]
    """Add cost, gradient, lower triangles of the products of r_a and of U_a, the nine sums of ``r s x2 x1'``, and the
    moments to the rows of ``sums``. A run ends at row n at the latest."""
    f0, f1, f2, f3, f4, f5 = theta[0], theta[1], theta[2], theta[3], theta[4], theta[5]
    f6, f7, f8 = theta[6], theta[7], theta[8]
    dim = theta.shape[0] // 9 - 1
    rows, known, out = np.empty((4, BLOCK)), np.empty((9, BLOCK)), np.empty((1 + 2 * dim, BLOCK))
    triangle = dim * (dim + 1) // 2
    products = np.empty((dim + 1) * (dim + 2) // 2)
    load, add, start = tool(tools, 0), tool(tools, 1), np.int64(out.ctypes.data)
    by_u = 1 + dim + triangle
    rest = by_u + triangle
    for u in range(len(starts)):
        for i in range(len(products)):
            products[i] = 0.0
        pos, hi = starts[u], min(starts[u] + length, n)
        while pos < hi:
            m = min(BLOCK, hi - pos)
            call_load(load, columns, pos, m, rows)
            for i in range(m):
                a, b, c, d = rows[0, i], rows[1, i], rows[2, i], rows[3, i]
                l0, l1, l2 = f0 * a + f1 * b + f2, f3 * a + f4 * b + f5, f6 * a + f7 * b + f8
                m0, m1 = f0 * c + f3 * d + f6, f1 * c + f4 * d + f7
                s = 1.0 / np.sqrt(l0 * l0 + l1 * l1 + m0 * m0 + m1 * m1)
                r = (c * l0 + d * l1 + l2) * s
                q = r * s * s
                out[0, i] = r
                known[0, i], known[1, i], known[2, i], known[3, i] = q * l0, q * l1, q * m0, q * m1
                known[4, i], known[5, i], known[6, i] = s, s * c, s * d
                known[7, i], known[8, i] = r * s, r * q
            for k in range(dim):
                at = 9 + 9 * k
                d0, d1, d2, d3, d4 = theta[at], theta[at + 1], theta[at + 2], theta[at + 3], theta[at + 4]
                d5, d6, d7, d8 = theta[at + 5], theta[at + 6], theta[at + 7], theta[at + 8]
                for i in range(m):
                    a, b, c, d = rows[0, i], rows[1, i], rows[2, i], rows[3, i]
                    l0, l1, l2 = d0 * a + d1 * b + d2, d3 * a + d4 * b + d5, d6 * a + d7 * b + d8
                    m0, m1 = d0 * c + d3 * d + d6, d1 * c + d4 * d + d7
                    p = known[0, i] * l0 + known[1, i] * l1 + known[2, i] * m0 + known[3, i] * m1
                    r = known[5, i] * l0 + known[6, i] * l1 + known[4, i] * l2 - p
                    out[1 + k, i] = r
                    out[1 + dim + k, i] = r - p
            add_row_products_by(add, start, 0, dim + 1, m, 0, out, products, 0)
            add_row_products_by(add, start, 1 + dim, dim, m, 1 + dim, out, sums[u], by_u)
            for x in range(2):  # (rs) x2 x1'
                first, other, one = 0.0, 0.0, 0.0
                for i in range(m):
                    weight = known[7, i] * rows[2 + x, i]
                    first += weight * rows[0, i]
                    other += weight * rows[1, i]
                    one += weight
                at = rest + 3 * x
                sums[u, at] += first
                sums[u, at + 1] += other
                sums[u, at + 2] += one
            first, other, one, total = 0.0, 0.0, 0.0, 0.0
            for i in range(m):
                first += known[7, i] * rows[0, i]
                other += known[7, i] * rows[1, i]
                one += known[7, i]
                total += known[8, i]
            sums[u, rest + 6] += first
            sums[u, rest + 7] += other
            sums[u, rest + 8] += one
            sums[u, rest + 9] += total
            for x in range(2):  # (rs)^2 x1 x1' and (rs)^2 x2 x2'
                first, other, square, both, last = 0.0, 0.0, 0.0, 0.0, 0.0
                for i in range(m):
                    a, b = known[8, i] * rows[2 * x, i], known[8, i] * rows[2 * x + 1, i]
                    first += a
                    other += b
                    square += a * rows[2 * x, i]
                    both += a * rows[2 * x + 1, i]
                    last += b * rows[2 * x + 1, i]
                at = rest + 10 + 5 * x
                sums[u, at] += first
                sums[u, at + 1] += other
                sums[u, at + 2] += square
                sums[u, at + 3] += both
                sums[u, at + 4] += last
            pos += m
        sums[u, 0] += 0.5 * products[0]
        at = 1
        for a in range(dim):
            sums[u, 1 + a] += products[at]
            for b in range(a + 1):
                sums[u, 1 + dim + a * (a + 1) // 2 + b] += products[at + 1 + b]
            at += a + 2


@njit(_f8[:, ::1](_i8, _i8, _f8[::1], _f8[::1]), nogil=True, error_model="numpy")
def _by_differences(encode, move, theta, delta):  # type: ignore[no-untyped-def]
    """Derivatives (d, 9) of the matrix at the end of a step, by differences."""
    d, unit = len(delta), np.zeros((3, 3))
    for i in range(3):
        unit[i, i] = 1.0
    step, out = np.empty(d), np.empty((d, 9))
    for a in range(d):
        step[a] = delta[a]
    for a in range(d):
        step[a] = delta[a] + _STEP
        ahead = call_encode(encode, call_move(move, theta, step), unit, unit)
        step[a] = delta[a] - _STEP
        behind = call_encode(encode, call_move(move, theta, step), unit, unit)
        step[a] = delta[a]
        for j in range(9):
            out[a, j] = (ahead[j] - behind[j]) / (2.0 * _STEP)
    return out


@dataclass(frozen=True)
class SampsonSecondOrder(SecondOrder):
    """Second derivatives of the Sampson error of a model in a frame."""

    encode: Any
    """``(theta, A1, A2) -> [F, F_1, ..., F_d]``, nine numbers each."""
    move: Any
    """The retraction."""
    bend: Any
    """``(theta, A1, A2) -> (d (d + 1) / 2, 9)``: the second derivatives of F, in the order of a packed triangle."""
    frame: tuple[Array, Array]
    """A1 and A2."""

    @classmethod
    def of(cls, dim: int, encode: Any, move: Any, bend: Any, frame: tuple[Array, Array]) -> SampsonSecondOrder:
        return cls(dim, dim * (dim + 1) // 2 + 9 + _MOMENTS, encode, move, bend, frame)

    def accumulate(
        self, theta: Array, columns: NDArray[np.int64], starts: NDArray[np.int64], length: int, n: int, sums: Array
    ) -> None:
        sampson_runs(self.encode(theta, *self.frame), columns, starts, length, n, tools(False), sums)

    def carried(self, theta: Array, step: Array) -> Array:
        # By the matrix without frames, which is well scaled: points may turn in ways that do not change it.
        ends = _by_differences(address_of(self.encode, ENCODE), address_of(self.move, MOVE), theta, step)
        tangents = self.encode(self.move(theta, step), _UNIT, _UNIT)[9:].reshape(self.dim, 9)
        made: Array = np.linalg.solve(tangents @ tangents.T, tangents @ ends.T)
        return made

    def triangles(self, theta: Array, sums: Array) -> Array:
        d, point = self.dim, self.encode(theta, *self.frame)
        F, tangents = point[:9].reshape(3, 3), point[9:].reshape(d, 3, 3)
        size = d * (d + 1) // 2
        at = 1 + d + 2 * size
        by_x1, by_x2 = (sums[:, at + 9 :][:, entries] for entries in (_X1, _X2))
        slopes = sums[:, at : at + 9].reshape(-1, 3, 3).copy()
        slopes[:, :2] -= F[:2] @ by_x1
        slopes[:, :, :2] -= by_x2 @ F[:, :2]
        a, b = np.tril_indices(d)
        by_l = np.einsum("kij,kil->kjl", tangents[a, :2], tangents[b, :2])
        by_m = np.einsum("kji,kli->kjl", tangents[a, :, :2], tangents[b, :, :2])
        weights = np.concatenate([self.bend(theta, *self.frame), *(-x.reshape(size, 9) for x in (by_l, by_m))], axis=1)
        products = np.concatenate([x.reshape(-1, 9) for x in (slopes, by_x1, by_x2)], axis=1)
        made: Array = sums[:, 1 + d + size : at] - sums[:, 1 + d : 1 + d + size]
        return made + combine(weights, products.T).T
