r"""A register machine that evaluates any model, compiled once.

Compiling a user's model with Numba takes a second or more, in every process. Instead one evaluator function, cached on
disk, *interprets* a short program. An instruction works on a whole block of 128 rows, so that the cost of decoding it
(a few ns) is spread over them, and each instruction is a loop that the compiler has vectorised.
`problm.models.assembler` writes the programs.

Arithmetic and the exponential are part of the machine. Other functions would treble the time to compile it, and few
models need more than one or two. Their instructions carry the address of a function (`problm.kernels.tape_functions`)
that is compiled when a program first needs it.

A program has two parts: the residuals and then the derivatives, which are skipped if only costs are needed. Scalar
instructions come before the rows: everything that does not depend on the data is computed once per block.

Registers are *slots* of 128 numbers. A slot is a number ``4 * index + space`` in one of three spaces: the
columns of the data (0), the rows of the kernel's output (1) and the machine's own memory (2), which is on the
stack. Results are written directly to the output if possible. Layout of ``program``::

    number of scalar instructions, those for residuals, number of vector instructions, those for residuals,
    number of constants, number of scalars, number of vector registers, 0,
    then 6 numbers per scalar instruction: op, target, a, b, c, address
    then 9 numbers per vector instruction: op, target, a, b, c, s, t, u, address   (a, b, c slots; s, t, u scalars)

The scalars are the constants, theta and the results of the scalar instructions, in this order.

Blocks are always computed in full: loops of a fixed length need no remainders. If a block has fewer rows, its last row
is repeated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jit import elementary as vm
from ..jit import types
from ..jit.addresses import caller
from ..jit.llvm import ir
from ..jit.njit import intrinsic, part
from ..jit.vectors import elementwise, multiply, multiply_add, standard
from .evaluator import BLOCK, evaluator

Array = NDArray[np.float64]

HEADER = 8
SCALAR_WIDTH = 6
VECTOR_WIDTH = 9
STACK = 40 * BLOCK
"""Size of the machine's memory on the stack, in numbers (40 kB); larger programs use the heap."""

# Vector instructions of the machine itself. x, y, z are the vectors at a, b, c; s, t, u are scalars.
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

OWN = {FILL, LIN1, LIN2, PROD, MADD, RECIPROCAL, SQRT, ABS, WHERE, EXP, EXP_PROD}

_f8, _i8 = types.float64, types.int64


@intrinsic
def get(typing: Any, at: Any, i: Any) -> Any:
    """Read number i at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        base = builder.inttoptr(args[0], ir.DoubleType().as_pointer())
        return builder.load(builder.gep(base, [args[1]]), align=8)

    return _f8(_i8, _i8), codegen


@intrinsic
def put(typing: Any, at: Any, i: Any, value: Any) -> Any:
    """Write number i at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        base = builder.inttoptr(args[0], ir.DoubleType().as_pointer())
        builder.store(args[2], builder.gep(base, [args[1]]), align=8)
        return context.get_dummy_value()

    return types.void(_i8, _i8, _f8), codegen


@intrinsic
def _stack(typing: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        with builder.goto_entry_block():  # cgutils.alloca_once would fill it with zeros, which takes 600 ns
            memory = builder.alloca(ir.ArrayType(ir.DoubleType(), STACK))
            memory.align = 64  # a vector across two cache lines takes twice the time
        return builder.ptrtoint(memory, ir.IntType(64))

    return _i8(), codegen


_fill = elementwise(0, lambda b, _, s: s[0])
_lin1 = elementwise(1, lambda b, v, s: multiply_add(b, s[0], v[0], s[2]))
_lin2 = elementwise(2, lambda b, v, s: multiply_add(b, s[1], v[1], multiply_add(b, s[0], v[0], s[2])))
_prod = elementwise(2, lambda b, v, s: multiply_add(b, multiply(b, s[0], v[0]), v[1], s[2]))
_madd = elementwise(
    3, lambda b, v, s: multiply_add(b, multiply(b, s[0], v[0]), v[1], multiply_add(b, s[1], v[2], s[2]))
)
_reciprocal = elementwise(1, lambda b, v, s: b.fdiv(s[1], multiply_add(b, s[0], v[0], s[2])))
_sqrt = elementwise(1, lambda b, v, s: standard(b, "llvm.sqrt", multiply_add(b, s[0], v[0], s[2])))
_abs = elementwise(1, lambda b, v, s: standard(b, "llvm.fabs", multiply_add(b, s[0], v[0], s[2])))
_where = elementwise(3, lambda b, v, s: b.select(b.fcmp_unordered("!=", v[0], v[0].type(None)), v[1], v[2]))

VECTOR = types.void(_i8, _i8, _i8, _i8, _i8, _f8, _f8, _f8)
"""Signature of the functions of `problm.kernels.tape_functions`: op, addresses of result, x, y and z, then s, t, u."""
SCALAR = _f8(_i8, _f8, _f8, _f8)
"""Signature of their scalar versions: op, x, y, z."""


@intrinsic
def _call_vector(typing: Any, at: Any, op: Any, to: Any, a: Any, b: Any, c: Any, s: Any, t: Any, u: Any) -> Any:
    return VECTOR.return_type(_i8, *VECTOR.args), caller(VECTOR)


@intrinsic
def _call_scalar(typing: Any, at: Any, op: Any, x: Any, y: Any, z: Any) -> Any:
    return SCALAR.return_type(_i8, *SCALAR.args), caller(SCALAR)


@part(forceinline=True)
def _address(slot, columns, outputs, registers):  # type: ignore[no-untyped-def]
    space = slot & 3
    base = columns if space == 0 else (outputs if space == 1 else registers)
    return base + (slot >> 2) * (8 * BLOCK)


@evaluator
def run(theta, rows, m, program, constants, jacobian, out):  # type: ignore[no-untyped-def]
    """The evaluator: compute residuals and, if requested, derivatives of a block of rows.

    Its instructions are written out in this one function, because Numba optimises a function again for each level of
    calls above it.
    """
    for column in range(rows.shape[0]):
        for i in range(m, BLOCK):
            rows[column, i] = rows[column, m - 1]
    needed = program[5] + BLOCK * program[6]
    heap = np.empty(needed) if needed > STACK else constants
    # Addresses are cast: NumPy's are unsigned, and Numba converts a mix of unsigned and signed to float.
    memory = np.int64(heap.ctypes.data) if needed > STACK else _stack()
    n_constants = program[4]
    for i in range(n_constants):
        put(memory, i, constants[i])
    for i in range(theta.shape[0]):
        put(memory, n_constants + i, theta[i])
    at = HEADER
    for _ in range(program[0] if jacobian else program[1]):
        op = program[at]
        x = get(memory, program[at + 2])
        y = get(memory, program[at + 3])
        if op == ADD:
            x += y
        elif op == SUB:
            x -= y
        elif op == MUL:
            x *= y
        elif op == DIV:
            x /= y
        elif op == NEG:
            x = -x
        else:
            x = _call_scalar(program[at + 5], op, x, y, get(memory, program[at + 4]))
        put(memory, program[at + 1], x)
        at += SCALAR_WIDTH
    at = HEADER + SCALAR_WIDTH * program[0]
    columns, outputs, registers = np.int64(rows.ctypes.data), np.int64(out.ctypes.data), memory + 8 * program[5]
    for _ in range(program[2] if jacobian else program[3]):
        op = program[at]
        to = _address(program[at + 1], columns, outputs, registers)
        a = _address(program[at + 2], columns, outputs, registers)
        b = _address(program[at + 3], columns, outputs, registers)
        c = _address(program[at + 4], columns, outputs, registers)
        s = get(memory, program[at + 5])
        t = get(memory, program[at + 6])
        u = get(memory, program[at + 7])
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
            _reciprocal(to, a, b, c, s, t, u)
        elif op == SQRT:
            _sqrt(to, a, b, c, s, t, u)
        elif op == ABS:
            _abs(to, a, b, c, s, t, u)
        elif op == WHERE:
            _where(to, a, b, c, s, t, u)
        elif op == EXP:
            for i in range(BLOCK):
                put(to, i, vm.exp(s * get(a, i) + u))
        elif op == EXP_PROD:
            for i in range(BLOCK):
                put(to, i, vm.exp(s * get(a, i) * get(b, i) + u))
        else:
            _call_vector(program[at - 1], op, to, a, b, c, s, t, u)
    if needed > STACK:
        heap[0] = 0.0  # keeps the memory alive up to here
