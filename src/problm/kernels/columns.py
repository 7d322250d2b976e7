"""Reading columns of data in compiled code: in place, by address, stride and type.

A column of float64, float32 or integers with any stride is described by three numbers; `load_rows` converts a block of
rows to float64.
"""

from __future__ import annotations

from typing import Any

from ..jit import types
from ..jit.njit import intrinsic, njit

_f8, _i8 = types.float64, types.int64


def _loader(kind: Any) -> Any:
    @intrinsic
    def load(typing: Any, at: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], context.get_value_type(kind.numba).as_pointer())
            return builder.load(pointer, align=1)

        return kind(_i8), codegen

    return load


def _reader(kind: Any) -> Any:
    """Like `_loader`, for item i of a contiguous array, whose loop is vectorised."""

    @intrinsic
    def read(typing: Any, at: Any, i: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], context.get_value_type(kind.numba).as_pointer())
            return builder.load(builder.gep(pointer, [args[1]]), align=1)

        return kind(_i8, _i8), codegen

    return read


_read_f8, _read_f4 = _reader(_f8), _reader(types.float32)
_load_f8, _load_f4 = _loader(_f8), _loader(types.float32)
_load_i8, _load_i4 = _loader(_i8), _loader(types.int32)
_load_u1, _load_u2 = _loader(types.uint8), _loader(types.uint16)


@njit(types.void(_i8[:, ::1], _i8, _i8, _f8[:, ::1]), nogil=True)
def load_rows(columns, lo, m, out):  # type: ignore[no-untyped-def]
    for c in range(columns.shape[0]):
        step, code = columns[c, 1], columns[c, 2]
        at = columns[c, 0] + lo * step
        if code == 0 and step == 8:
            for i in range(m):
                out[c, i] = _read_f8(at, i)
        elif code == 0:
            for i in range(m):
                out[c, i] = _load_f8(at + step * i)
        elif code == 1 and step == 4:
            for i in range(m):
                out[c, i] = _read_f4(at, i)
        elif code == 1:
            for i in range(m):
                out[c, i] = _load_f4(at + step * i)
        elif code == 2:
            for i in range(m):
                out[c, i] = _load_i8(at + step * i)
        elif code == 3:
            for i in range(m):
                out[c, i] = _load_i4(at + step * i)
        elif code == 4:
            for i in range(m):
                out[c, i] = _load_u1(at + step * i)
        elif code == 5:
            for i in range(m):
                out[c, i] = _load_u2(at + step * i)
        else:
            for i in range(m):
                out[c, i] = lo + i
