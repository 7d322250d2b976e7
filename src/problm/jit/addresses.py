"""Calls of compiled functions by address, and the signatures of two of them.

Callers are compiled once for all functions of a signature and cached on disk. Unboxing a first-class Numba function
argument would cost 70 us per call (measured); an address costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from . import types
from .njit import Function, address_in, intrinsic

_f8, _i8 = types.float64, types.int64


@lru_cache(maxsize=256)
def _addresses(compiled: Any) -> dict[int, int]:
    """Addresses found by `address_of`, by the identity of the signature: all are constants, and hashing takes 15 us."""
    return {}


def address_of(compiled: Any, signature: Any) -> int:
    """Machine address of a compiled function. Keep a reference to the function while the address is in use."""
    known = _addresses(compiled)
    if id(signature) not in known:
        ours = isinstance(compiled, Function)  # else a user's function, compiled by Numba itself
        known[id(signature)] = compiled.address(signature) if ours else address_in(compiled, signature)
    return known[id(signature)]


def caller(target: Any) -> Callable[..., Any]:
    """Code of an intrinsic ``(address, *arguments)`` that calls a compiled function with the signature ``target``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        from numba.core import cgutils

        returned, expected = target.return_type.numba, target.numba.args
        kind = context.call_conv.get_function_type(returned, expected)
        pointer = builder.inttoptr(args[0], kind.as_pointer())
        status, result = context.call_conv.call_function(builder, pointer, returned, expected, args[1:])
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        return context.get_dummy_value() if target.return_type == types.void else result

    return codegen


ENCODE = _f8[::1](_f8[::1], _f8[:, ::1], _f8[:, ::1])
"""``(theta, A1, A2) -> point``: encodes a point of a manifold, with two matrices of the problem."""
MOVE = _f8[::1](_f8[::1], _f8[::1])
"""``(theta, delta) -> theta``: a retraction."""


@intrinsic
def call_encode(typing: Any, at: Any, theta: Any, A1: Any, A2: Any) -> Any:
    return ENCODE.return_type(_i8, *ENCODE.args), caller(ENCODE)


@intrinsic
def call_move(typing: Any, at: Any, theta: Any, delta: Any) -> Any:
    return MOVE.return_type(_i8, *MOVE.args), caller(MOVE)
