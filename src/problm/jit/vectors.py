"""Short loops over a block, written directly as vector instructions.

When LLVM vectorises a loop over memory, it adds a test that the arrays do not overlap and a second, scalar loop. For
the shortest instructions of the tape that test takes as long as the work (measured: 0.20 against 0.11 ns per row). Here
the loop is emitted as operations on vectors of four numbers, four at a time; LLVM splits them if registers are shorter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import types
from .llvm import ir
from .njit import intrinsic

BLOCK = 128
_LANES = 4
_UNROLL = 4
_f8, _i8 = types.float64, types.int64
_FLAGS = ("contract",)

Emit = Callable[[Any, list[Any], list[Any]], Any]


def elementwise(inputs: int, emit: Emit) -> Any:
    """Make an intrinsic ``(to, a, b, c, s, t, u)`` that computes one result for each of 128 numbers.

    ``to``, ``a``, ``b`` and ``c`` are addresses; the first ``inputs`` of a, b, c are read. ``s``, ``t`` and ``u`` are
    numbers. ``emit(builder, vectors, scalars)`` returns the vector of results.
    """

    @intrinsic
    def loop(typing: Any, to: Any, a: Any, b: Any, c: Any, s: Any, t: Any, u: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            i64 = ir.IntType(64)
            vector = ir.VectorType(ir.DoubleType(), _LANES)
            target, *sources = (builder.inttoptr(p, vector.as_pointer()) for p in args[: 1 + inputs])
            scalars = [_spread(builder, vector, value) for value in args[4:]]
            before, body, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
            builder.branch(body)
            builder.position_at_end(body)
            i = builder.phi(i64)
            i.add_incoming(i64(0), before)
            places = [builder.add(i, i64(k)) for k in range(_UNROLL)]
            loaded = [[builder.load(builder.gep(p, [at]), align=8) for p in sources] for at in places]
            results = [emit(builder, vectors, scalars) for vectors in loaded]
            for at, result in zip(places, results, strict=True):
                builder.store(result, builder.gep(target, [at]), align=8)
            following = builder.add(i, i64(_UNROLL))
            i.add_incoming(following, body)
            builder.cbranch(builder.icmp_signed("<", following, i64(BLOCK // _LANES)), body, after)
            builder.position_at_end(after)
            return context.get_dummy_value()

        return types.void(_i8, _i8, _i8, _i8, _f8, _f8, _f8), codegen

    return loop


def _spread(builder: Any, vector: Any, value: Any) -> Any:
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [0] * _LANES)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), zeros)


def multiply_add(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """``x * y + z``, fused if the processor supports it."""
    return builder.fadd(builder.fmul(x, y, flags=_FLAGS), z, flags=_FLAGS)


def multiply(builder: Any, x: Any, y: Any) -> Any:
    """``x * y``, which may be fused with an addition."""
    return builder.fmul(x, y, flags=_FLAGS)


def standard(builder: Any, name: str, x: Any) -> Any:
    """One of LLVM's own functions of a vector, such as ``llvm.sqrt``."""
    kind = ir.FunctionType(x.type, [x.type])
    return builder.call(builder.module.declare_intrinsic(f"{name}.v{_LANES}f64", (), kind), [x])
