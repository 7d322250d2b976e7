r"""A register machine that evaluates any model, compiled once.

Compiling a model of the user's with Numba takes a second or more, each time in each process. Instead one fill
function, cached on disk, *interprets* a short program; an instruction works on a whole block of 128 rows, so
that the cost of decoding it (a few ns) is spread over them, and each instruction is a loop that the compiler
has vectorised. `problm.assembler` writes the programs.

A program has two parts, the residuals and then the derivatives, which are left out when only costs are wanted.
Before the rows come scalar instructions: whatever does not depend on the data is computed once a block.

Registers are *slots* of 128 numbers. A slot is a number ``4 * index + space`` in one of three spaces: the
columns of the data (0), the rows of the kernel's output (1) and the machine's own memory (2), which is on the
stack. Results go straight to the output wherever possible. Layout of ``program``::

    scalar instructions, of them for the residuals, vector instructions, of them for the residuals,
    constants, scalars in all, vector registers, 0,
    then 5 numbers a scalar instruction: op, target, a, b, c
    then 8 numbers a vector instruction: op, target, a, b, c, s, t, u   (a, b, c slots; s, t, u scalars)

The scalars are the constants, theta and the results of the scalar instructions, in this order.

Blocks are always computed in full: loops of a fixed length need no remainders. Where a block has fewer rows
its last one is repeated.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from . import vecmath as vm
from .faddeeva import w as _w
from .fills import BLOCK, FASTMATH, fill_function
from .jit import njit
from .simd import elementwise, multiply, multiply_add

Array = NDArray[np.float64]

HEADER = 8
SCALAR_WIDTH = 5
VECTOR_WIDTH = 8
STACK = 40 * BLOCK
"""Numbers of the machine's memory on the stack (40 kB); larger programs use the heap."""

# Vector instructions of their own. x, y, z are the vectors at a, b, c; s, t, u scalars.
FILL, LIN1, LIN2, PROD, MADD, RECIPROCAL, POWER, SINCOS, W, WHERE, EXP_PROD = range(11)
# FILL s; LIN1 s x + u; LIN2 s x + u + t y; PROD s x y + u; MADD s x y + (t z + u); RECIPROCAL t / (s x + u)
# EXP_PROD exp(s x y + u); POWER (s x + u)**t; SINCOS of s x + u, cosine to c; W(x, y), imaginary part to c;
# WHERE x: y, z
_FIRST = 11
UNARY = (
    "exp", "expm1", "log", "log1p", "log_or_zero", "sqrt", "abs", "sign", "floor", "tanh", "arctan", "erf", "erfc",
    "sin", "cos", "sinh", "cosh", "arcsin", "arccos", "arcsinh", "arccosh", "arctanh",
)  # fmt: skip
"""Functions of ``s x + u``, as vector and as scalar instructions."""
BINARY = ("minimum", "maximum", "lt", "le", "eq", "pow", "arctan2", "hypot")
"""Functions of x and y."""
CODES = {name: _FIRST + k for k, name in enumerate(UNARY + BINARY)}
_ARITHMETIC = ("add", "sub", "mul", "div", "neg", "where", "w_real", "w_imag", "tan")
SCALAR_CODES = CODES | {name: _FIRST + len(CODES) + k for k, name in enumerate(_ARITHMETIC)}

(EXP, EXPM1, LOG, LOG1P, LOG_OR_ZERO, SQRT, ABS, SIGN, FLOOR, TANH, ARCTAN, ERF, ERFC, SIN, COS,
 SINH, COSH, ARCSIN, ARCCOS, ARCSINH, ARCCOSH, ARCTANH,
 MINIMUM, MAXIMUM, LT, LE, EQ, POW, ARCTAN2, HYPOT,
 ADD, SUB, MUL, DIV, NEG, S_WHERE, W_REAL, W_IMAG, TAN) = SCALAR_CODES.values()  # fmt: skip

_f8, _i8 = types.float64, types.int64


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def _get(typing: Any, at: Any, i: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        base = builder.inttoptr(args[0], ir.DoubleType().as_pointer())
        return builder.load(builder.gep(base, [args[1]]), align=8)

    return _f8(_i8, _i8), codegen


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def _put(typing: Any, at: Any, i: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        base = builder.inttoptr(args[0], ir.DoubleType().as_pointer())
        builder.store(args[2], builder.gep(base, [args[1]]), align=8)
        return context.get_dummy_value()

    return types.void(_i8, _i8, _f8), codegen


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def _stack(typing: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        with builder.goto_entry_block():  # cgutils.alloca_once would fill it with zeros: 600 ns
            memory = builder.alloca(ir.ArrayType(ir.DoubleType(), STACK))
            memory.align = 64  # a vector that lies across two cache lines takes twice the time
        return builder.ptrtoint(memory, ir.IntType(64))

    return _i8(), codegen


_fill = elementwise(0, lambda b, _, s: s[0])
_lin1 = elementwise(1, lambda b, v, s: multiply_add(b, s[0], v[0], s[2]))
_lin2 = elementwise(2, lambda b, v, s: multiply_add(b, s[1], v[1], multiply_add(b, s[0], v[0], s[2])))
_prod = elementwise(2, lambda b, v, s: multiply_add(b, multiply(b, s[0], v[0]), v[1], s[2]))
_madd = elementwise(
    3, lambda b, v, s: multiply_add(b, multiply(b, s[0], v[0]), v[1], multiply_add(b, s[1], v[2], s[2]))
)


def _part(signature: Any) -> Any:
    """With a signature, so that it is compiled once: not anew for literal arguments."""
    return njit(signature, nogil=True, error_model="numpy", fastmath=FASTMATH)


@_part(_f8(_i8, _f8, _f8, _f8))
def _scalar(op, x, y, z):  # type: ignore[no-untyped-def]
    if op == ADD:
        return x + y
    if op == SUB:
        return x - y
    if op == MUL:
        return x * y
    if op == DIV:
        return x / y
    if op == NEG:
        return -x
    if op == EXP:
        return np.exp(x)
    if op == EXPM1:
        return np.expm1(x)
    if op == LOG:
        return np.log(x)
    if op == LOG1P:
        return np.log1p(x)
    if op == LOG_OR_ZERO:
        return 0.0 if x == 0.0 else np.log(x)
    if op == SQRT:
        return np.sqrt(x)
    if op == ABS:
        return abs(x)
    if op == SIGN:
        return np.sign(x)
    if op == FLOOR:
        return np.floor(x)
    if op == TANH:
        return np.tanh(x)
    if op == ARCTAN:
        return np.arctan(x)
    if op == ERF:
        return math.erf(x)
    if op == ERFC:
        return math.erfc(x)
    if op == SIN:
        return np.sin(x)
    if op == COS:
        return np.cos(x)
    if op == TAN:
        return np.tan(x)
    if op == SINH:
        return np.sinh(x)
    if op == COSH:
        return np.cosh(x)
    if op == ARCSIN:
        return np.arcsin(x)
    if op == ARCCOS:
        return np.arccos(x)
    if op == ARCSINH:
        return np.arcsinh(x)
    if op == ARCCOSH:
        return np.arccosh(x)
    if op == ARCTANH:
        return np.arctanh(x)
    if op == MINIMUM:
        return np.minimum(x, y)
    if op == MAXIMUM:
        return np.maximum(x, y)
    if op == LT:
        return 1.0 if x < y else 0.0
    if op == LE:
        return 1.0 if x <= y else 0.0
    if op == EQ:
        return 1.0 if x == y else 0.0
    if op == POW:
        return x**y
    if op == ARCTAN2:
        return np.arctan2(x, y)
    if op == HYPOT:
        return np.hypot(x, y)
    if op == S_WHERE:
        return y if x != 0.0 else z
    if op == W_REAL:
        return _w(x, y)[0]
    if op == W_IMAG:
        return _w(x, y)[1]
    return math.nan


@_part(types.void(_i8, _i8, _i8, _i8, _f8, _f8))
def _slow(op, to, a, b, s, u):  # type: ignore[no-untyped-def]
    """Functions left to the C library."""
    for i in range(BLOCK):
        _put(to, i, _scalar(op, s * _get(a, i) + u, _get(b, i), 0.0))


@_part(types.void(_i8, _i8, _i8, _f8, _f8))
def _mend(op, to, a, s, u):  # type: ignore[no-untyped-def]
    """Sines and cosines of arguments beyond the reach of `problm.vecmath`, by the C library."""
    beyond = 0
    for i in range(BLOCK):
        beyond += 0 if abs(s * _get(a, i) + u) <= vm.TRIG_LIMIT else 1
    if beyond > 0:
        for i in range(BLOCK):
            x = s * _get(a, i) + u
            if not abs(x) <= vm.TRIG_LIMIT:
                _put(to, i, np.sin(x) if op == SIN else np.cos(x))


@_part(types.void(_i8, _i8, _i8, _f8, _f8, _f8))
def _power(to, a, b, s, u, t):  # type: ignore[no-untyped-def]
    """``(s x + u)**(y + t)``, y being 0 where b is; what `vecmath.power` does not cover by the C library."""
    beyond = 0
    if b == 0:
        for i in range(BLOCK):
            x = s * _get(a, i) + u
            y = vm.power(x, t)
            _put(to, i, y)
            beyond += 0 if (x >= 2.3e-308) & (x <= 1.7e308) & (y > 1e-299) & (y < 1e299) else 1
    else:
        for i in range(BLOCK):
            x = _get(a, i)
            y = vm.power(x, _get(b, i))
            _put(to, i, y)
            beyond += 0 if (x >= 2.3e-308) & (x <= 1.7e308) & (y > 1e-299) & (y < 1e299) else 1
    if beyond > 0:
        for i in range(BLOCK):
            x = s * _get(a, i) + u
            y = _get(to, i)
            if not ((x >= 2.3e-308) & (x <= 1.7e308) & (y > 1e-299) & (y < 1e299)):
                _put(to, i, x ** (t if b == 0 else _get(b, i)))


@_part(types.void(_i8, _i8, _i8, _i8))
def _compare(op, to, a, b):  # type: ignore[no-untyped-def]
    if op == MINIMUM:
        for i in range(BLOCK):
            x, y = _get(a, i), _get(b, i)
            _put(to, i, x if (x < y) | (x != x) else y)
    elif op == MAXIMUM:
        for i in range(BLOCK):
            x, y = _get(a, i), _get(b, i)
            _put(to, i, x if (x > y) | (x != x) else y)
    elif op == LT:
        for i in range(BLOCK):
            _put(to, i, 1.0 if _get(a, i) < _get(b, i) else 0.0)
    elif op == LE:
        for i in range(BLOCK):
            _put(to, i, 1.0 if _get(a, i) <= _get(b, i) else 0.0)
    else:
        for i in range(BLOCK):
            _put(to, i, 1.0 if _get(a, i) == _get(b, i) else 0.0)


@_part(_i8(_i8, _i8, _i8, _i8))
def _address(slot, columns, outputs, registers):  # type: ignore[no-untyped-def]
    space = slot & 3
    base = columns if space == 0 else (outputs if space == 1 else registers)
    return base + (slot >> 2) * (8 * BLOCK)


@fill_function
def run(theta, rows, m, program, constants, jacobian, out):  # type: ignore[no-untyped-def]
    """The fill: residuals, and derivatives if wanted, of a block of rows.

    All instructions are written out in this one function: Numba optimises a function once more for each level of
    calls above it, which would double or treble the time to compile.
    """
    for column in range(rows.shape[0]):
        for i in range(m, BLOCK):
            rows[column, i] = rows[column, m - 1]
    needed = program[5] + BLOCK * program[6]
    heap = np.empty(needed) if needed > STACK else constants
    # Addresses are cast: NumPy's are unsigned, and Numba makes a float of unsigned and signed together.
    memory = np.int64(heap.ctypes.data) if needed > STACK else _stack()
    n_constants = program[4]
    for i in range(n_constants):
        _put(memory, i, constants[i])
    for i in range(theta.shape[0]):
        _put(memory, n_constants + i, theta[i])
    at = HEADER
    for _ in range(program[0] if jacobian else program[1]):
        x = _get(memory, program[at + 2])
        y = _get(memory, program[at + 3])
        z = _get(memory, program[at + 4])
        _put(memory, program[at + 1], _scalar(program[at], x, y, z))
        at += SCALAR_WIDTH
    at = HEADER + SCALAR_WIDTH * program[0]
    columns, outputs, registers = np.int64(rows.ctypes.data), np.int64(out.ctypes.data), memory + 8 * program[5]
    for _ in range(program[2] if jacobian else program[3]):
        op = program[at]
        to = _address(program[at + 1], columns, outputs, registers)
        a = _address(program[at + 2], columns, outputs, registers)
        b = _address(program[at + 3], columns, outputs, registers)
        c = _address(program[at + 4], columns, outputs, registers)
        s = _get(memory, program[at + 5])
        t = _get(memory, program[at + 6])
        u = _get(memory, program[at + 7])
        at += VECTOR_WIDTH
        if op == FILL:
            _fill(to, a, b, c, s, t, u)
        elif op == LIN1:
            _lin1(to, a, b, c, s, t, u)
        elif op == LIN2:
            _lin2(to, a, b, c, s, t, u)
        elif op == PROD:
            _prod(to, a, b, c, s, t, u)
        elif op == MADD:
            _madd(to, a, b, c, s, t, u)
        elif op == RECIPROCAL:
            for i in range(BLOCK):
                _put(to, i, t / (s * _get(a, i) + u))
        elif op == EXP:
            for i in range(BLOCK):
                _put(to, i, vm.exp(s * _get(a, i) + u))
        elif op == EXP_PROD:
            for i in range(BLOCK):
                _put(to, i, vm.exp(s * _get(a, i) * _get(b, i) + u))
        elif op == EXPM1:
            for i in range(BLOCK):
                _put(to, i, vm.expm1(s * _get(a, i) + u))
        elif op == LOG:
            for i in range(BLOCK):
                _put(to, i, vm.log(s * _get(a, i) + u))
        elif op == LOG_OR_ZERO:
            for i in range(BLOCK):
                x = s * _get(a, i) + u
                _put(to, i, vm.log(vm.select(x == 0.0, 1.0, x)))
        elif op == LOG1P:
            for i in range(BLOCK):
                _put(to, i, vm.log1p(s * _get(a, i) + u))
        elif op == SQRT:
            for i in range(BLOCK):
                _put(to, i, np.sqrt(s * _get(a, i) + u))
        elif op == ABS:
            for i in range(BLOCK):
                _put(to, i, abs(s * _get(a, i) + u))
        elif op == SIGN:
            for i in range(BLOCK):
                x = s * _get(a, i) + u
                _put(to, i, vm.select(x > 0.0, 1.0, vm.select(x < 0.0, -1.0, x)))
        elif op == FLOOR:
            for i in range(BLOCK):
                _put(to, i, np.floor(s * _get(a, i) + u))
        elif op == TANH:
            for i in range(BLOCK):
                _put(to, i, vm.tanh(s * _get(a, i) + u))
        elif op == ARCTAN:
            for i in range(BLOCK):
                _put(to, i, vm.arctan(s * _get(a, i) + u))
        elif op == ERF:
            for i in range(BLOCK):
                _put(to, i, vm.erf(s * _get(a, i) + u))
        elif op == ERFC:
            for i in range(BLOCK):
                _put(to, i, vm.erfc(s * _get(a, i) + u))
        elif op == SIN:
            for i in range(BLOCK):
                _put(to, i, vm.sin(s * _get(a, i) + u))
            _mend(SIN, to, a, s, u)
        elif op == COS:
            for i in range(BLOCK):
                _put(to, i, vm.cos(s * _get(a, i) + u))
            _mend(COS, to, a, s, u)
        elif op == SINCOS:
            for i in range(BLOCK):
                sine, cosine = vm.sincos(s * _get(a, i) + u)
                _put(to, i, sine)
                _put(c, i, cosine)
            _mend(SIN, to, a, s, u)
            _mend(COS, c, a, s, u)
        elif op == W:
            for i in range(BLOCK):
                real, imaginary = _w(_get(a, i), _get(b, i))
                _put(to, i, real)
                _put(c, i, imaginary)
        elif op == WHERE:
            for i in range(BLOCK):
                _put(to, i, vm.select(_get(a, i) != 0.0, _get(b, i), _get(c, i)))
        elif op == POWER:
            _power(to, a, 0, s, u, t)
        elif op == POW:
            _power(to, a, b, s, u, 0.0)
        elif MINIMUM <= op <= EQ:
            _compare(op, to, a, b)
        else:
            _slow(op, to, a, b, s, u)
    if needed > STACK:
        heap[0] = 0.0  # keeps the memory alive up to here
