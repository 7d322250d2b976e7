"""Single instructions that Numba does not provide: floats as bits, and selection without branches."""

from __future__ import annotations

from typing import Any

from . import types
from .njit import intrinsic

_f8, _i8 = types.float64, types.int64


@intrinsic
def bits_of(typing: Any, x: Any) -> Any:
    """The bits of a float."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(_i8.numba))

    return _i8(_f8), codegen


@intrinsic
def number_of(typing: Any, x: Any) -> Any:
    """The float with these bits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(_f8.numba))

    return _f8(_i8), codegen


@intrinsic
def shift_right(typing: Any, x: Any, n: Any) -> Any:
    """Logical shift to the right: AVX2 has no arithmetic shift of 64-bit integers."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.lshr(*args)

    return _i8(_i8, _i8), codegen


@intrinsic
def fma(typing: Any, x: Any, y: Any, z: Any) -> Any:
    """``x * y + z`` with one rounding."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return _f8(_f8, _f8, _f8), codegen


@intrinsic
def select(typing: Any, condition: Any, yes: Any, no: Any) -> Any:
    """``yes if condition else no``; both are evaluated, because a branch would prevent vectorisation."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(*args)

    return _f8(types.boolean, _f8, _f8), codegen
