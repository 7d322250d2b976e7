r"""Models as one compiled function of a block of rows, called through its address.

A *fill* evaluates residuals and derivatives of at most 128 rows. It has the signature ``FILL`` and this contract::

    @fill_function
    def my_fill(theta, rows, m, program, constants, jacobian, out):
        # theta (q,) the point; rows (columns, 128) this block's data as float64; m <= 128 rows are valid;
        # program, constants: int64 and float64 arrays of the model's own (addresses of images, a tape, ...);
        # out (p * (1 + d), 128): write residual c of row i to out[c, i] and, if jacobian != 0,
        # its derivative by tangent parameter a to out[p + c * d + a, i].

The passes (`problm.kernels.passes`) call it through its address, once a block, so that they are compiled a single time
for all models and cached on disk; a first-class Numba function argument would cost 70 us a call to unbox (measured),
the address costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .njit import njit

BLOCK = 128

_f8, _i8 = types.float64, types.int64
FILL = types.void(_f8[::1], _f8[:, ::1], _i8, _i8[::1], _f8[::1], _i8, _f8[:, ::1])
# Reassociation lets the column dot products use vector registers; NaN and infinity keep their meaning.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}


def fill_function(function: Callable[..., None]) -> Any:
    """Compile a fill with the signature that the kernels call, cached on disk."""
    return njit(FILL, nogil=True, error_model="numpy", fastmath=FASTMATH)(function)


def lazy_fill_function(function: Callable[..., None]) -> Any:
    """As `fill_function`, compiled when its address is first asked for: for models that most users do not need."""
    return njit(nogil=True, error_model="numpy", fastmath=FASTMATH)(function)


@lru_cache(maxsize=256)
def _addresses(compiled: Any) -> dict[int, int]:
    """What `address_of` has found, by the signature's identity: all are constants, and hashing one takes 15 us."""
    return {}


def address_of(compiled: Any, signature: Any = FILL) -> int:
    """Machine address of a compiled function. Keep a reference to the function while the address is in use."""
    known = _addresses(compiled)
    if id(signature) not in known:
        result = compiled.get_compile_result(signature)
        known[id(signature)] = int(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))
    return known[id(signature)]


def caller(target: Any) -> Callable[..., Any]:
    """Code of an intrinsic ``(address, *arguments)`` that calls a compiled function of the signature ``target``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.call_conv.get_function_type(target.return_type, target.args)
        pointer = builder.inttoptr(args[0], kind.as_pointer())
        status, result = context.call_conv.call_function(builder, pointer, target.return_type, target.args, args[1:])
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        return context.get_dummy_value() if target.return_type == types.void else result

    return codegen


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def call_fill(typing: Any, at: Any, theta: Any, rows: Any, m: Any, prog: Any, const: Any, jac: Any, out: Any) -> Any:
    return types.void(_i8, *FILL.args), caller(FILL)


ENCODE = _f8[::1](_f8[::1], _f8[:, ::1], _f8[:, ::1])
"""``(theta, A1, A2) -> point``: what a fill reads of a point of a manifold, with two matrices of the problem's own."""
MOVE = _f8[::1](_f8[::1], _f8[::1])
"""``(theta, delta) -> theta``: a retraction."""


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def call_encode(typing: Any, at: Any, theta: Any, A1: Any, A2: Any) -> Any:
    return ENCODE.return_type(_i8, *ENCODE.args), caller(ENCODE)


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def call_move(typing: Any, at: Any, theta: Any, delta: Any) -> Any:
    return MOVE.return_type(_i8, *MOVE.args), caller(MOVE)
