r"""Gram matrices: the lower triangle of A B^T for the rows of a block, in vector registers.

A block's Jacobian is d rows of 128 numbers, and J^T J takes d (d + 1) / 2 dot products of them. Computed one by one,
each multiplication loads two numbers, and loading dominates the time. Here up to four rows on either side form a
*tile*: its products are accumulated in parallel in vector registers, and each loaded number is used in three or four of
them. With 3 x 3 tiles AVX2 reaches 80 % of its peak (d = 9: 2.3 ns per row; one by one 5.4; measured on one core).

Numba cannot be told to keep an array of accumulators in registers, so the tiles are written as LLVM instructions on
vectors of four numbers; LLVM splits them if registers are shorter. Rows are split into groups of three and four (or one
or two if d + 1 is less): any larger number is a sum of those.
"""

from __future__ import annotations

from typing import Any

from . import types
from .addresses import caller
from .llvm import ir
from .njit import intrinsic, njit

BLOCK = 128
_LANES = 4
_f8, _i8 = types.float64, types.int64


def _tile(rows: int, columns: int, diagonal: bool) -> Any:
    """``(left, right, n, sums, x, y)``: add products of rows at two addresses to a packed lower triangle.

    ``left`` and ``right`` are the addresses of rows x... and y..., ``n`` the number of vectors in a row, ``sums`` the
    address of the triangle. A diagonal tile leaves out the products above the diagonal.
    """
    pairs = [(r, c) for r in range(rows) for c in range(columns) if not diagonal or c <= r]

    @intrinsic
    def tile(typing: Any, left: Any, right: Any, n: Any, sums: Any, x: Any, y: Any) -> Any:
        def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
            left, right, n, sums, x, y = args
            double, i64 = ir.DoubleType(), ir.IntType(64)
            vector = ir.VectorType(double, _LANES)
            flags = ("contract",)

            def address(start: Any, k: int, kind: Any) -> Any:
                return b.inttoptr(b.add(start, i64(8 * BLOCK * k)), kind.as_pointer())

            lefts = [address(left, r, vector) for r in range(rows)]
            rights = lefts if diagonal and left is right else [address(right, c, vector) for c in range(columns)]
            before, body, after = b.block, b.append_basic_block("tile"), b.append_basic_block("sums")
            b.branch(body)
            b.position_at_end(body)
            i = b.phi(i64)
            i.add_incoming(i64(0), before)
            totals = []
            for _ in pairs:
                total = b.phi(vector)
                total.add_incoming(ir.Constant(vector, [0.0] * _LANES), before)
                totals.append(total)
            p = [b.load(b.gep(row, [i]), align=8) for row in lefts]
            q = [b.load(b.gep(row, [i]), align=8) for row in rights]
            added = [
                b.fadd(total, b.fmul(p[r], q[c], flags=flags), flags=flags)
                for (r, c), total in zip(pairs, totals, strict=True)
            ]
            following = b.add(i, i64(1))
            i.add_incoming(following, body)
            for total, value in zip(totals, added, strict=True):
                total.add_incoming(value, body)
            b.cbranch(b.icmp_signed("<", following, n), body, after)
            b.position_at_end(after)
            base = b.inttoptr(sums, double.as_pointer())
            halves = [ir.Constant(ir.VectorType(ir.IntType(32), 2), k) for k in ([0, 1], [2, 3])]
            for (r, c), value in zip(pairs, added, strict=True):
                low, high = (b.shuffle_vector(value, ir.Constant(vector, ir.Undefined), h) for h in halves)
                half = b.fadd(low, high)
                both = [b.extract_element(half, ir.IntType(32)(k)) for k in (0, 1)]
                row = b.add(x, i64(r))
                start = b.lshr(b.mul(row, b.add(row, i64(1))), i64(1))
                place = b.gep(base, [b.add(start, b.add(y, i64(c)))])
                b.store(b.fadd(b.load(place, align=8), b.fadd(*both)), place, align=8)
            return context.get_dummy_value()

        return types.void(_i8, _i8, _i8, _i8, _i8, _i8), codegen

    return tile


_corner1, _corner2, _corner3, _corner4 = (_tile(k, k, True) for k in (1, 2, 3, 4))
_tile23, _tile33, _tile32, _tile42 = (_tile(r, c, False) for r, c in ((2, 3), (3, 3), (3, 2), (4, 2)))


PRODUCTS = types.void(_i8, _i8, _i8, _i8, _i8)


@njit(PRODUCTS, nogil=True, error_model="numpy")
def add_products(left, right, d, n, sums):  # type: ignore[no-untyped-def]
    """Add the lower triangle of ``A B^T`` over ``4 n`` numbers to the packed triangle at the address ``sums``.

    ``left`` and ``right`` are the addresses of the d rows of A and B, which are 128 numbers apart.
    """
    row = 8 * BLOCK
    # d = 4 fours + 3 threes (+ a last group of 1 or 2 for d = 1, 2 and 5); the fours come first.
    fours = d % 3 if d >= 6 or d == 4 else 0
    x = 0
    while x < d:
        size = 4 if x < 4 * fours else min(3, d - x)
        y = 0
        while y < x:
            width = 4 if y < 4 * fours else 3
            a, b = left + row * x, right + row * y
            if size == 4:
                _tile42(a, b, n, sums, x, y)
                _tile42(a, b + 2 * row, n, sums, x, y + 2)
            elif size == 2:
                _tile23(a, b, n, sums, x, y)
            elif width == 4:
                _tile32(a, b, n, sums, x, y)
                _tile32(a, b + 2 * row, n, sums, x, y + 2)
            else:
                _tile33(a, b, n, sums, x, y)
            y += width
        a, b = left + row * x, right + row * x
        if size == 4:
            _corner4(a, b, n, sums, x, x)
        elif size == 3:
            _corner3(a, b, n, sums, x, x)
        elif size == 2:
            _corner2(a, b, n, sums, x, x)
        else:
            _corner1(a, b, n, sums, x, x)
        x += size


@intrinsic
def call_products(typing: Any, at: Any, left: Any, right: Any, d: Any, n: Any, sums: Any) -> Any:
    """Call `add_products` by address: linked into its callers, it would be compiled again with each of them."""
    return PRODUCTS.return_type(_i8, *PRODUCTS.args), caller(PRODUCTS)
