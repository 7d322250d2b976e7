"""Products of the rows of many small problems, added up problem by problem, as vector instructions.

Row x of a block holds derivative x of 128 problems. Computed one by one, each product loads three vectors and stores
one. Here up to three rows on either side form a tile, as in `problm.jit.gram`, and each loaded vector is used in up to
three products.
"""

from __future__ import annotations

from typing import Any

from . import types
from .llvm import ir
from .njit import intrinsic, part
from .vectors import BLOCK, multiply_add

_LANES = 4
_i8 = types.int64


def _tile(rows: int, columns: int, diagonal: bool) -> Any:
    """``(left, right, sums, x, y)``: add products of rows at two addresses to rows of a packed lower triangle.

    ``left`` and ``right`` are the addresses of rows x... and y..., ``sums`` that of the triangle. A diagonal tile
    leaves out the products above the diagonal.
    """
    pairs = [(r, c) for r in range(rows) for c in range(columns) if not diagonal or c <= r]

    @intrinsic
    def tile(typing: Any, left: Any, right: Any, sums: Any, x: Any, y: Any) -> Any:
        def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
            left, right, sums, x, y = args
            i64 = ir.IntType(64)
            vector = ir.VectorType(ir.DoubleType(), _LANES)

            def address(start: Any, k: Any) -> Any:
                return b.inttoptr(b.add(start, b.mul(i64(8 * BLOCK), k)), vector.as_pointer())

            lefts = [address(left, i64(r)) for r in range(rows)]
            rights = lefts if diagonal else [address(right, i64(c)) for c in range(columns)]
            places = []
            for r, c in pairs:
                row = b.add(x, i64(r))
                start = b.lshr(b.mul(row, b.add(row, i64(1))), i64(1))
                places.append(address(sums, b.add(start, b.add(y, i64(c)))))
            before, body, after = b.block, b.append_basic_block("tile"), b.append_basic_block("end")
            b.branch(body)
            b.position_at_end(body)
            i = b.phi(i64)
            i.add_incoming(i64(0), before)
            p = [b.load(b.gep(row, [i]), align=8) for row in lefts]
            q = p if diagonal else [b.load(b.gep(row, [i]), align=8) for row in rights]
            cells = [b.gep(place, [i]) for place in places]
            totals = [b.load(cell, align=8) for cell in cells]
            for (r, c), cell, total in zip(pairs, cells, totals, strict=True):
                b.store(multiply_add(b, p[r], q[c], total), cell, align=8)
            following = b.add(i, i64(1))
            i.add_incoming(following, body)
            b.cbranch(b.icmp_signed("<", following, i64(BLOCK // _LANES)), body, after)
            b.position_at_end(after)
            return context.get_dummy_value()

        return types.void(_i8, _i8, _i8, _i8, _i8), codegen

    return tile


_corner1, _corner2, _corner3 = (_tile(k, k, True) for k in (1, 2, 3))
_tile13, _tile23, _tile33 = (_tile(k, 3, False) for k in (1, 2, 3))


@part(nogil=True, error_model="numpy")
def add_lane_products(block, d, sums):  # type: ignore[no-untyped-def]
    """Add the products of each two of d rows to the rows of a packed lower triangle, given both addresses."""
    row = 8 * BLOCK
    for x in range(0, d, 3):
        left, size = block + row * x, min(3, d - x)
        for y in range(0, x, 3):
            right = block + row * y
            if size == 3:
                _tile33(left, right, sums, x, y)
            elif size == 2:
                _tile23(left, right, sums, x, y)
            else:
                _tile13(left, right, sums, x, y)
        if size == 3:
            _corner3(left, left, sums, x, x)
        elif size == 2:
            _corner2(left, left, sums, x, x)
        else:
            _corner1(left, left, sums, x, x)
