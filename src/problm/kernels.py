r"""Compiled passes over the rows: one generic kernel for every model.

A model supplies one small compiled function, the *fill*, which evaluates residuals and derivatives of a block of
at most 128 rows; the kernels here do the rest: they load columns (float32, float64 or integers, any stride,
read in place), call the fill, apply the loss and accumulate

    cost, g = sum w J^T r, H = sum w J^T J and, for a batch, sum (w J^T r)(w J^T r)^T

by products of rows of the block (`problm.gram`), which stays in the L1 cache. The fill is called through its
address, once a block, so that these kernels are compiled a single time for all models and cached on disk; a
first-class Numba function argument would cost 70 us a call to unbox (measured), the address costs nothing.

A fill has the signature ``FILL`` and this contract::

    @fill_function
    def my_fill(theta, rows, m, program, constants, jacobian, out):
        # theta (q,) the point; rows (columns, 128) this block's data as float64; m <= 128 rows are valid;
        # program, constants: int64 and float64 arrays of the model's own (addresses of images, a tape, ...);
        # out (p * (1 + d), 128): write residual c of row i to out[c, i] and, if jacobian != 0,
        # its derivative by tangent parameter a to out[p + c * d + a, i].

Sums are accumulated block by block within a chunk of 32,768 rows and pairwise over chunks. Chunks are cut at
fixed places whatever the number of threads, so the bits do not depend on it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from . import vecmath as vm
from .gram import add_products
from .jit import njit
from .losses import USER_CODE, Loss
from .normal import Normal

Array = NDArray[np.float64]

BLOCK = 128
CHUNK = 32768

_f8, _i8 = types.float64, types.int64
FILL = types.void(_f8[::1], _f8[:, ::1], _i8, _i8[::1], _f8[::1], _i8, _f8[:, ::1])
RHO = types.UniTuple(_f8, 2)(_f8)
# Reassociation lets the column dot products use vector registers; NaN and infinity keep their meaning.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}
_NO_INT = np.empty(0, dtype=np.int64)
_NO_FLOAT = np.empty(0)


def fill_function(function: Callable[..., None]) -> Any:
    """Compile a fill with the signature that the kernels call, cached on disk."""
    return njit(FILL, nogil=True, error_model="numpy", fastmath=FASTMATH)(function)


@lru_cache(maxsize=256)
def address_of(compiled: Any, signature: Any = FILL) -> int:
    """Machine address of a compiled function. Keep a reference to the function while the address is in use."""
    result = compiled.get_compile_result(signature)
    return int(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))


def _caller(target: Any) -> Callable[..., Any]:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.call_conv.get_function_type(target.return_type, target.args)
        pointer = builder.inttoptr(args[0], kind.as_pointer())
        status, result = context.call_conv.call_function(builder, pointer, target.return_type, target.args, args[1:])
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        return context.get_dummy_value() if target.return_type == types.void else result

    return codegen


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def _call_fill(typing: Any, at: Any, theta: Any, rows: Any, m: Any, prog: Any, const: Any, jac: Any, out: Any) -> Any:
    return types.void(_i8, *FILL.args), _caller(FILL)


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def _call_rho(typing: Any, at: Any, z: Any) -> Any:
    return RHO.return_type(_i8, _f8), _caller(RHO)


def _loader(kind: Any) -> Any:
    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def load(typing: Any, at: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], context.get_value_type(kind).as_pointer())
            return builder.load(pointer, align=1)

        return kind(_i8), codegen

    return load


def _reader(kind: Any) -> Any:
    """As `_loader`, for item i of a contiguous array: such a loop is vectorised."""

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def read(typing: Any, at: Any, i: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], context.get_value_type(kind).as_pointer())
            return builder.load(builder.gep(pointer, [args[1]]), align=1)

        return kind(_i8, _i8), codegen

    return read


_read_f8, _read_f4 = _reader(_f8), _reader(types.float32)
_load_f8, _load_f4 = _loader(_f8), _loader(types.float32)
_load_i8, _load_i4 = _loader(_i8), _loader(types.int32)
_load_u1, _load_u2 = _loader(types.uint8), _loader(types.uint16)
_CODES = {"f8": 0, "f4": 1, "i8": 2, "i4": 3, "u1": 4, "u2": 5}
ROW_NUMBER = np.array([[0, 1, 6]], dtype=np.int64)
"""Descriptor of a column that holds its own row number: costs no memory."""


def describe(columns: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Address, stride and type of each scalar column, shape (columns, 3); an (N, k) array counts as k columns."""
    rows = []
    for column in columns:
        if column.ndim > 2:
            raise ValueError(f"data: a column must have 1 or 2 dimensions, got the shape {column.shape}")
        code = _CODES[column.dtype.str[1:]]
        width = 1 if column.ndim == 1 else column.shape[1]
        step = 0 if column.ndim == 1 else column.strides[1]
        start = column.__array_interface__["data"][0]
        rows += [(start + j * step, column.strides[0], code) for j in range(width)]
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def loadable(column: NDArray[Any]) -> NDArray[Any]:
    """The column itself if the kernels read its type in place, else a float64 copy."""
    native = column.dtype.str[1:] in _CODES and column.dtype.isnative
    return column if native else column.astype(np.float64)


@njit(types.void(_i8[:, ::1], _i8, _i8, _f8[:, ::1]), nogil=True)
def _load(columns, lo, m, out):  # type: ignore[no-untyped-def]
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


@njit(nogil=True, error_model="numpy", inline="never")
def _rho(code, user, z):  # type: ignore[no-untyped-def]
    """Value and weight of the loss; the formulas of `problm.losses`, checked against them by test."""
    if code == 1:
        root = np.sqrt(max(z, 1.0))
        return (z if z <= 1.0 else 2.0 * root - 1.0), 1.0 / root
    if code == 2:
        root = np.sqrt(1.0 + z)
        return (2.0 * z / (1.0 + root) if z < 1.0 else 2.0 * (root - 1.0)), 1.0 / root
    if code == 3:
        return np.log1p(z), 1.0 / (1.0 + z)
    if code == 4:
        return np.arctan(z), 1.0 / (1.0 + z * z)
    if code == 5:
        q = 1.0 / (1.0 + z)
        return (z * q if z < 1.0 else 1.0 - q), q * q
    if code == 6:
        return -np.expm1(-z), np.exp(-z)
    if code == 7:
        if z > 1.0:
            return 1.0 / 3.0, 0.0
        q = 1.0 - z
        return (z * (1.0 - z * (1.0 - z / 3.0)) if z < 0.5 else (1.0 - q * q * q) / 3.0), q * q
    if code == 8:
        if z > 1.0:
            return 0.5, 0.0
        return z * (1.0 - 0.5 * z), 1.0 - z
    if code == USER_CODE:
        return _call_rho(user, z)
    return z, 1.0


@njit(nogil=True, error_model="numpy")
def _block_rho(code, user, m, z, weight):  # type: ignore[no-untyped-def]
    """`_rho` of a block, value over argument, in loops without branches or calls, which are vectorised.

    Measured, ns a row: welsch 2.9, cauchy 2.3, huber 1.3; calling `_rho` for each row 17, 11 and 4.6.
    """
    if code == 1:
        for i in range(m):
            root = np.sqrt(vm.select(z[i] < 1.0, 1.0, z[i]))
            z[i] = vm.select(z[i] <= 1.0, z[i], 2.0 * root - 1.0)
            weight[i] = 1.0 / root
    elif code == 2:
        for i in range(m):
            root = np.sqrt(1.0 + z[i])
            z[i] = vm.select(z[i] < 1.0, 2.0 * z[i] / (1.0 + root), 2.0 * (root - 1.0))
            weight[i] = 1.0 / root
    elif code == 3:
        for i in range(m):
            weight[i] = 1.0 / (1.0 + z[i])
            z[i] = vm.log1p(z[i])
    elif code == 4:
        for i in range(m):
            weight[i] = 1.0 / (1.0 + z[i] * z[i])
            z[i] = vm.arctan(z[i])
    elif code == 5:
        for i in range(m):
            q = 1.0 / (1.0 + z[i])
            z[i] = vm.select(z[i] < 1.0, z[i] * q, 1.0 - q)
            weight[i] = q * q
    elif code == 6:
        for i in range(m):
            weight[i] = vm.exp(-z[i])
            z[i] = -vm.expm1(-z[i])
    elif code == 7:
        for i in range(m):
            x = vm.select(z[i] > 1.0, 1.0, z[i])
            q = 1.0 - x
            z[i] = vm.select(x < 0.5, x * (1.0 - x * (1.0 - x / 3.0)), (1.0 - q * q * q) / 3.0)
            weight[i] = q * q
    elif code == 8:
        for i in range(m):
            x = vm.select(z[i] > 1.0, 1.0, z[i])
            z[i] = x * (1.0 - 0.5 * x)
            weight[i] = 1.0 - x
    else:
        for i in range(m):
            z[i], weight[i] = _rho(code, user, z[i])


@njit(
    _f8(_f8[:, ::1], _i8, _i8, _i8, _i8, _f8, _f8[::1], _f8[::1]),
    nogil=True,
    error_model="numpy",
    fastmath=FASTMATH,
)
def _block_costs(out, m, p, code, user, scale, cost, weight):  # type: ignore[no-untyped-def]
    """Costs and weights of a block of rows; returns the sum of the costs."""
    total = 0.0
    if code == 0 and p == 1:
        for i in range(m):
            cost[i] = 0.5 * out[0, i] * out[0, i]
            weight[i] = 1.0
            total += cost[i]
        return total
    for i in range(m):
        cost[i] = out[0, i] * out[0, i]
    for c in range(1, p):
        for i in range(m):
            cost[i] += out[c, i] * out[c, i]
    if code == 0:
        for i in range(m):
            cost[i] *= 0.5
            weight[i] = 1.0
    else:
        s2 = scale * scale
        for i in range(m):
            cost[i] /= s2
        _block_rho(code, user, m, cost, weight)
        for i in range(m):
            cost[i] *= 0.5 * s2
    for i in range(m):
        total += cost[i]
    return total


@njit(
    types.void(_f8[:, ::1], _i8, _i8, _i8, _i8, _i8, _f8[::1]),
    nogil=True,
    error_model="numpy",
    fastmath=FASTMATH,
)
def _add_products(a, first, d, m, right, at, sums):  # type: ignore[no-untyped-def]
    """Add the lower triangle of ``A B^T`` to ``sums[at:]``, A and B being d rows of ``a`` from first and right."""
    whole = m // 4
    if whole > 0:
        # Cast: NumPy's addresses are unsigned, and Numba makes a float of unsigned and signed together.
        start, row = np.int64(a.ctypes.data), 8 * BLOCK
        add_products(start + row * first, start + row * right, d, whole, np.int64(sums.ctypes.data) + 8 * at)
    for i in range(4 * whole, m):
        j = at
        for x in range(d):
            for y in range(x + 1):
                sums[j] += a[first + x, i] * a[right + y, i]
                j += 1


_CHUNK_ARGS = (_i8, _f8[::1], _i8[:, ::1], _i8, _i8, _i8[::1], _f8[::1], _i8, _i8, _i8, _i8, _f8)


@njit(
    types.void(*_CHUNK_ARGS, _i8, _f8[::1], _f8[::1]),
    nogil=True,
    error_model="numpy",
    fastmath=FASTMATH,
)
def _linearize_chunk(  # type: ignore[no-untyped-def]
    fill, theta, columns, lo, hi, program, constants, d, p, code, user, scale, outer, costs, sums
):
    """Add cost, gradient, lower triangles of H and of the outer products of rows [lo, hi) to ``sums``."""
    rows = np.empty((columns.shape[0], BLOCK))
    # Behind the fill's own rows: residual and Jacobian of one component, weighted (1 + d), the blocks' gradients (d)
    # and, for several components, a copy of the residuals (p).
    out = np.empty((p * (1 + d) + 1 + 2 * d + p, BLOCK))
    scaled, grad, kept = p * (1 + d), (p + 1) * (1 + d), (p + 1) * (1 + d) + d
    cost = np.empty(BLOCK)
    weight = np.empty(BLOCK)
    triangle = d * (d + 1) // 2
    # The products of [r, J] with itself: the gradient in its first column, behind it H.
    products = np.zeros((d + 1) * (d + 2) // 2)
    pos = lo
    while pos < hi:
        m = min(BLOCK, hi - pos)
        _load(columns, pos, m, rows)
        _call_fill(fill, theta, rows, m, program, constants, 1, out)
        sums[0] += _block_costs(out, m, p, code, user, scale, cost, weight)
        if costs.shape[0] > 0:
            for i in range(m):
                costs[pos - lo + i] = cost[i]
        if p > 1:
            for c in range(p):
                for i in range(m):
                    out[kept + c, i] = out[c, i]
        for c in range(p):
            # A component's residual goes before its derivatives, where nothing is needed any more.
            first = p + c * d - 1
            if p > 1:
                for i in range(m):
                    out[first, i] = out[kept + c, i]
            left = first
            if code != 0:
                left = scaled
                for a in range(d + 1):
                    for i in range(m):
                        out[scaled + a, i] = weight[i] * out[first + a, i]
            _add_products(out, left, d + 1, m, first, 0, products)
            if outer:
                for a in range(d):
                    if c == 0:
                        for i in range(m):
                            out[grad + a, i] = out[left + 1 + a, i] * out[first, i]
                    else:
                        for i in range(m):
                            out[grad + a, i] += out[left + 1 + a, i] * out[first, i]
        if outer:
            _add_products(out, grad, d, m, grad, 1 + d + triangle, sums)
        pos += m
    at = 1
    for a in range(d):
        sums[1 + a] += products[at]
        for b in range(a + 1):
            sums[1 + d + a * (a + 1) // 2 + b] += products[at + 1 + b]
        at += a + 2


@njit(
    types.void(*_CHUNK_ARGS, _f8[::1], _f8[::1]),
    nogil=True,
    error_model="numpy",
    fastmath=FASTMATH,
)
def _costs_chunk(  # type: ignore[no-untyped-def]
    fill, theta, columns, lo, hi, program, constants, d, p, code, user, scale, costs, sums
):
    """Write the costs of rows [lo, hi), if wanted, and add their sum to ``sums[0]``."""
    rows = np.empty((columns.shape[0], BLOCK))
    out = np.empty((p * (1 + d), BLOCK))
    cost = np.empty(BLOCK)
    weight = np.empty(BLOCK)
    pos = lo
    while pos < hi:
        m = min(BLOCK, hi - pos)
        _load(columns, pos, m, rows)
        _call_fill(fill, theta, rows, m, program, constants, 0, out)
        sums[0] += _block_costs(out, m, p, code, user, scale, cost, weight)
        if costs.shape[0] > 0:
            for i in range(m):
                costs[pos - lo + i] = cost[i]
        pos += m


@njit(types.void(*_CHUNK_ARGS[:9], _i8, _f8[:, ::1]), nogil=True, error_model="numpy")
def _rows_chunk(fill, theta, columns, lo, hi, program, constants, d, p, jacobian, values):  # type: ignore[no-untyped-def]
    """Write what the fill computes for rows [lo, hi) to ``values``: (hi - lo, p), or with derivatives p (1 + d)."""
    rows = np.empty((columns.shape[0], BLOCK))
    out = np.empty((p * (1 + d), BLOCK))
    pos = lo
    while pos < hi:
        m = min(BLOCK, hi - pos)
        _load(columns, pos, m, rows)
        _call_fill(fill, theta, rows, m, program, constants, jacobian, out)
        for i in range(m):
            for c in range(values.shape[1]):
                values[pos - lo + i, c] = out[c, i]
        pos += m


def available_threads() -> int:
    """Cores that this process may use, or fewer where OMP_NUM_THREADS or NUMBA_NUM_THREADS say so."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        text = os.environ.get(name, "")
        if text.isdigit() and int(text) > 0:
            cores = min(cores, int(text))
    return cores


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=max(8, available_threads()), thread_name_prefix="problm")


@lru_cache(maxsize=64)
def _places(d: int) -> NDArray[np.intp]:
    """Where each entry of a symmetric (d, d) matrix lies in its packed lower triangle."""
    x, y = np.indices((d, d))
    row, column = np.maximum(x, y), np.minimum(x, y)
    return row * (row + 1) // 2 + column


def _square(lower: Array, d: int) -> Array:
    return lower[_places(d)]


@dataclass(frozen=True)
class Kernel:
    """A fill with the data of its own: everything but the rows and the point."""

    fill: Any
    """The compiled fill function."""
    dim: int
    """Tangent parameters d."""
    components: int = 1
    """Residuals p in a block."""
    program: NDArray[np.int64] = field(default_factory=lambda: _NO_INT)
    constants: Array = field(default_factory=lambda: _NO_FLOAT)
    keep: tuple[Any, ...] = ()
    """Objects whose memory ``program`` points to."""
    loss: Loss = field(default_factory=lambda: Loss.named("linear"))
    threads: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "_address", address_of(self.fill))
        compiled = _compile_rho(self.loss) if self.loss.code == USER_CODE else None
        object.__setattr__(self, "_rho", compiled)
        object.__setattr__(self, "_rho_address", 0 if compiled is None else address_of(compiled, RHO))

    def linearize(
        self, theta: Array, columns: NDArray[np.int64], n: int, *, outer: bool, costs: Array | None
    ) -> Normal:
        """Sums over the first ``n`` rows of the described columns."""
        d = self.dim
        triangle = d * (d + 1) // 2
        width = 1 + d + triangle * (2 if outer else 1)

        def chunk(lo: int, hi: int) -> Array:
            sums = np.zeros(width)
            part = _NO_FLOAT if costs is None else costs[lo:hi]
            _linearize_chunk(*self._arguments(theta, columns, lo, hi), int(outer), part, sums)
            return sums

        sums = self._reduce(chunk, n, width)
        hessian = _square(sums[1 + d : 1 + d + triangle], d)
        products = _square(sums[1 + d + triangle :], d) if outer else None
        return Normal(n, float(sums[0]), sums[1 : 1 + d].copy(), hessian, products)

    def costs(self, theta: Array, columns: NDArray[np.int64], n: int) -> Array:
        """Costs of the first ``n`` rows."""
        costs = np.empty(n)

        def chunk(lo: int, hi: int) -> Array:
            sums = np.zeros(1)
            _costs_chunk(*self._arguments(theta, columns, lo, hi), costs[lo:hi], sums)
            return sums

        self._reduce(chunk, n, 1)
        return costs

    def cost(self, theta: Array, columns: NDArray[np.int64], n: int) -> float:
        """Sum of the costs of the first ``n`` rows."""

        def chunk(lo: int, hi: int) -> Array:
            sums = np.zeros(1)
            _costs_chunk(*self._arguments(theta, columns, lo, hi), _NO_FLOAT, sums)
            return sums

        return float(self._reduce(chunk, n, 1)[0])

    def residuals(self, theta: Array, columns: NDArray[np.int64], n: int) -> Array:
        """Residuals of the first ``n`` rows, shape (n, p)."""
        residuals = np.empty((n, self.components))

        def chunk(lo: int, hi: int) -> Array:
            _rows_chunk(*self._arguments(theta, columns, lo, hi)[:9], 0, residuals[lo:hi])
            return _NO_FLOAT

        self._reduce(chunk, n, 0)
        return residuals

    def jacobian(self, theta: Array, columns: NDArray[np.int64], n: int) -> Array:
        """Derivatives of the residuals of the first ``n`` rows, shape (n, p, d)."""
        d, p = self.dim, self.components
        values = np.empty((n, p * (1 + d)))

        def chunk(lo: int, hi: int) -> Array:
            _rows_chunk(*self._arguments(theta, columns, lo, hi)[:9], 1, values[lo:hi])
            return _NO_FLOAT

        self._reduce(chunk, n, 0)
        return values[:, p:].reshape(n, p, d)

    def factor(self, theta: Array, columns: NDArray[np.int64], n: int) -> Array:
        """Triangular factor of the weighted [J r] of the first ``n`` rows, (d + 1, d + 1): a QR over chunks."""
        d, p = self.dim, self.components
        triangle: Any = np.zeros((0, d + 1))
        for lo in range(0, n, CHUNK):
            hi = min(lo + CHUNK, n)
            values = np.empty((hi - lo, p * (1 + d)))
            _rows_chunk(*self._arguments(theta, columns, lo, hi)[:9], 1, values)
            residuals = values[:, :p]
            weight = self.loss.cost_and_weight(np.einsum("kp,kp->k", residuals, residuals))[1]
            both = np.concatenate([values[:, p:].reshape(-1, p, d), residuals[:, :, None]], axis=2)
            both *= np.sqrt(weight)[:, None, None]
            triangle = np.linalg.qr(np.vstack([triangle, both.reshape(-1, d + 1)]), mode="r")
        return np.asarray(triangle)

    def _arguments(self, theta: Array, columns: NDArray[np.int64], lo: int, hi: int) -> tuple[Any, ...]:
        return (
            self._address,  # type: ignore[attr-defined]
            theta,
            columns,
            lo,
            hi,
            self.program,
            self.constants,
            self.dim,
            self.components,
            self.loss.code,
            self._rho_address,  # type: ignore[attr-defined]
            self.loss.scale,
        )

    def _reduce(self, chunk: Callable[[int, int], Array], n: int, width: int) -> Array:
        if n <= CHUNK:
            return chunk(0, n)
        starts = range(0, n, CHUNK)
        if self.threads <= 1:
            parts = [chunk(lo, min(lo + CHUNK, n)) for lo in starts]
        else:
            parts = _in_threads(chunk, n, self.threads)
        while len(parts) > 1:  # pairwise: the error grows with the logarithm of the number of chunks
            pairs = [parts[i] + parts[i + 1] for i in range(0, len(parts) - 1, 2)]
            parts = pairs + parts[len(parts) & ~1 :]
        return parts[0]


def _in_threads(chunk: Callable[[int, int], Array], n: int, threads: int) -> list[Array]:
    """Chunks dealt out in runs, one to a thread; the list is in the order of the rows."""
    count = -(-n // CHUNK)
    threads = min(threads, count)
    cuts = [count * t // threads for t in range(threads + 1)]

    def run(first: int, last: int) -> list[Array]:
        return [chunk(k * CHUNK, min((k + 1) * CHUNK, n)) for k in range(first, last)]

    jobs = [_pool(os.getpid()).submit(run, a, b) for a, b in pairwise(cuts[1:])]
    parts = run(cuts[0], cuts[1])
    for job in jobs:
        parts += job.result()
    return parts


def _compile_rho(loss: Loss) -> Any:
    """Compile a user's loss for one value; it must be simple enough for Numba."""
    raise TypeError(
        f"loss={loss.name!r}: a loss of your own cannot be used inside a compiled model; "
        "pass the model as a NumPy function, or choose a built-in loss"
    )
