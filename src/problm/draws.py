"""Simple random samples of row numbers, ascending: the same rows as NumPy's, in half the time.

``Generator.choice(n, m, replace=False, shuffle=False)`` draws few of many by Floyd's algorithm: for j = n - m, ...,
n - 1 a number of 0..j, and j itself where that was drawn before. Here the numbers drawn are bits of a mask, from which
they come out ascending, so nothing has to be hashed or sorted. The random numbers are those of the generator's own
`bit generator <https://numpy.org/doc/stable/reference/random/c-api.html>`_, called from compiled code, and made the
same use of (Lemire's method): a test compares the samples, and where the generators are left.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from .columns import load_i8
from .jit import njit

Index = NDArray[np.int64]
_i8, _u4, _u8 = types.int64, types.uint32, types.uint64
_MOST = 2**20
"""Numbers whose mask stays in the cache."""
_THIN = 4096
"""Numbers for each one drawn, at which looking through the mask takes as long as sorting would."""
_STATE, _NEXT_UINT32 = 0, 16
"""Places in NumPy's ``bitgen_t``: the state, ``next_uint64``, ``next_uint32``, ..., all of 8 bytes."""
_address_of = ctypes.pythonapi.PyCapsule_GetPointer
_address_of.restype = ctypes.c_void_p
_address_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


def draw_sorted(rng: np.random.Generator, free: int, m: int) -> Index:
    """A simple random sample of ``m`` of the numbers 0..free-1, ascending."""
    if m == free:
        return np.arange(free, dtype=np.int64)
    shuffled = free > 10_000 and m > free // 20  # where NumPy shuffles instead
    if shuffled or free > min(_MOST, _THIN * m) or ctypes.sizeof(ctypes.c_void_p) != 8:
        chosen: Index = rng.choice(free, m, replace=False, shuffle=False)
        chosen.sort()
        return chosen
    chosen = np.empty(m, dtype=np.int64)
    source = rng.bit_generator
    with source.lock:
        floyd(_address_of(source.capsule, b"BitGenerator"), free, chosen)
    return chosen


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def _next_uint32(typing: Any, function: Any, state: Any) -> Any:
    """Call the C function ``uint32_t next_uint32(void *state)`` at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.IntType(32), [pointer])
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), [builder.inttoptr(args[1], pointer)])

    return _u4(_i8, _i8), codegen


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def _lowest_bit(typing: Any, word: Any) -> Any:
    """Number of the lowest bit that is set; one is."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(1))

    return _i8(_u8), codegen


@njit(types.void(_i8, _i8, _i8[::1]), nogil=True)
def floyd(generator, free, out):  # type: ignore[no-untyped-def]
    """Fill ``out`` with different numbers of 0..free-1, ascending; generator: the address of its ``bitgen_t``."""
    state, function = load_i8(generator + _STATE), load_i8(generator + _NEXT_UINT32)
    words = np.zeros((free + 63) // 64, dtype=np.uint64)
    one, half, low = np.uint64(1), np.uint64(32), np.uint64(0xFFFFFFFF)
    for j in range(free - len(out), free):
        span = np.uint64(j + 1)
        product = np.uint64(_next_uint32(function, state)) * span
        if product & low < span:
            least = (low - np.uint64(j)) % span
            while product & low < least:
                product = np.uint64(_next_uint32(function, state)) * span
        drawn = np.int64(product >> half)
        bit = one << np.uint64(drawn & 63)
        if words[drawn >> 6] & bit:
            words[j >> 6] |= one << np.uint64(j & 63)
        else:
            words[drawn >> 6] |= bit
    at = 0
    for w in range(len(words)):
        word = words[w]
        while word:
            out[at] = 64 * w + _lowest_bit(word)
            at += 1
            word &= word - one
