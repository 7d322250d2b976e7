"""JAX functions as expressions: the program that JAX records, read equation by equation.

A residual function of elementwise operations, small products and sums is the same thing as a formula, and the compiled
kernels run it several times as fast as XLA: residuals, derivatives and sums are one pass, and one call takes many
steps. `record` asks JAX for the function's program (``jax.make_jaxpr``, which compiles nothing) and repeats it with
`Expression` nodes.

The program is repeated for two rows with different variables. If the second row's result is the first one's with the
other variables, a row depends on itself only. The program for all rows must be the same, apart from the number of rows
in its shapes, so that nothing hangs on that number. Whatever else a program contains raises `TraceError`, and the
function runs in JAX (`problm.problems.backends`): loops of unknown length, indices from the data, single precision. If
a part has a rule for its derivative, the caller compares derivatives as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..expression import TraceError, as_expression, constant, make, parameter
from ..functions import FUNCTIONS, UFUNCS
from .rows import ROWS, RecordedRows, Values, independent_rows, nodes, variables

_MOST = 20_000
"""Largest number of nodes in an array, and of equations that are read."""
_Params = dict[str, Any]
_OWN_DERIVATIVE = "custom_jvp_call"
"""A function with a rule for its derivative, such as ``softplus``."""


def record(fun: Callable[..., Any], dim: int, columns: Sequence[Values], jax: Any) -> RecordedRows:
    """The residuals of a row of ``fun(theta, *rows)``.

    Parameters
    ----------
    fun
        Residuals (k,) or (k, p) of k rows, in operations of JAX.
    dim
        Number of parameters.
    columns
        The data, of which only number of rows, shapes and types are used.
    jax
        The library.

    Raises
    ------
    TraceError
        If the function cannot be recorded, or its rows depend on each other.
    """
    n = len(columns[0])
    if n <= ROWS or any(c.ndim > 2 or c.dtype.kind not in "fiu" or c.dtype.itemsize > 8 for c in columns):
        raise TraceError("too few rows, or columns that kernels do not read as JAX does")

    def program(rows: int) -> Any:
        shapes = [jax.ShapeDtypeStruct((rows, *c.shape[1:]), c.dtype) for c in columns]
        try:
            return jax.make_jaxpr(fun)(jax.ShapeDtypeStruct((dim,), np.float64), *shapes)
        except Exception as error:
            raise TraceError(f"{type(error).__name__}: {error}") from error

    small = program(ROWS)
    shapes = [a.shape for a in small.out_avals]
    if len(shapes) != 1 or len(shapes[0]) not in (1, 2) or shapes[0][0] != ROWS:
        raise TraceError("the function does not return one array of residuals")
    if not _Comparison(ROWS, n).alike(small, program(n)):
        raise TraceError("the function depends on the number of rows")
    theta = np.array([parameter(a) for a in range(dim)], dtype=object)
    rows = variables([c.shape[1:] for c in columns])
    reader = _Reader()
    (found,) = reader.run(small.jaxpr, small.consts, [theta, *rows])
    return RecordedRows(independent_rows(found, sum(c.size for c in rows) // ROWS), reader.own_derivatives)


class _Comparison:
    """Whether two programs are the same, apart from the number of rows in shapes: ``few`` in one, ``many`` in the
    other."""

    def __init__(self, few: int, many: int) -> None:
        self._sizes = few, many
        self._same: dict[Any, Any] = {}
        """Variables of the second program, by those of the first."""

    def alike(self, a: Any, b: Any) -> bool:
        if hasattr(a, "consts"):  # a closed program
            pairs = list(zip(a.consts, b.consts, strict=False))
            if len(a.consts) != len(b.consts) or not all(np.array_equal(u, v) for u, v in pairs):
                return False
            return self.alike(a.jaxpr, b.jaxpr)
        if len(a.eqns) != len(b.eqns) or len(a.invars) != len(b.invars) or len(a.outvars) != len(b.outvars):
            return False
        self._same.update(zip([*a.constvars, *a.invars], [*b.constvars, *b.invars], strict=True))
        return all(map(self._equation, a.eqns, b.eqns)) and all(map(self._input, a.outvars, b.outvars))

    def _equation(self, a: Any, b: Any) -> bool:
        if a.primitive is not b.primitive or len(a.invars) != len(b.invars) or len(a.outvars) != len(b.outvars):
            return False
        self._same.update(zip(a.outvars, b.outvars, strict=True))
        if a.primitive.name == _OWN_DERIVATIVE:  # the rest are functions, which are made for each call
            same = self._parameter(a.params["call_jaxpr"], b.params["call_jaxpr"])
        else:
            same = self._parameter(a.params, b.params)
        return same and all(map(self._input, a.invars, b.invars))

    def _input(self, a: Any, b: Any) -> bool:
        if hasattr(a, "val") or hasattr(b, "val"):  # numbers in the program
            return hasattr(a, "val") and hasattr(b, "val") and np.array_equal(a.val, b.val, equal_nan=True)
        return self._same.get(a) is b

    def _parameter(self, a: Any, b: Any) -> bool:
        if type(a) is not type(b):
            return False
        if isinstance(a, dict):
            return a.keys() == b.keys() and all(self._parameter(a[key], b[key]) for key in a)
        if isinstance(a, tuple | list):
            return len(a) == len(b) and all(map(self._parameter, a, b))
        if hasattr(a, "eqns"):
            return self.alike(a, b)
        return a is b or (type(a) is int and (a, b) == self._sizes) or bool(a == b)


class _Reader:
    """Repeats programs with nodes."""

    def __init__(self) -> None:
        self._left = _MOST
        self.own_derivatives = False

    def run(self, program: Any, constants: Sequence[Any], inputs: Sequence[Values]) -> list[Values]:
        """The results of a program."""
        known: dict[Any, Values] = {}

        def value(of: Any) -> Values:
            return _constant(of.val) if hasattr(of, "val") else known[of]

        known.update(zip(program.constvars, map(_constant, constants), strict=True))
        known.update(zip(program.invars, inputs, strict=True))
        for equation in program.eqns:
            found = self._equation(equation, [value(v) for v in equation.invars])
            known.update(zip(equation.outvars, found, strict=True))
        return [value(v) for v in program.outvars]

    def _equation(self, equation: Any, inputs: list[Values]) -> list[Values]:
        name, params = equation.primitive.name, equation.params
        self._left -= 1 + sum(int(np.prod(v.aval.shape)) for v in equation.outvars)
        if self._left < 0:
            raise TraceError("the program is long")
        self.own_derivatives |= name == _OWN_DERIVATIVE
        if name in ("jit", "pjit", "closed_call", _OWN_DERIVATIVE):
            inner = params.get("jaxpr") or params["call_jaxpr"]
            return self.run(inner.jaxpr, inner.consts, inputs)
        if name == "scan":
            return self._scan(params, inputs)
        if name == "split":
            edges = np.cumsum(params["sizes"])[:-1]
            return list(np.split(inputs[0], edges, axis=params["axis"]))
        kind = equation.outvars[0].aval.dtype
        if name == "convert_element_type":
            return [_converted(inputs[0], equation.invars[0].aval.dtype, kind)]
        if name in _MOVES:
            return [_MOVES[name](inputs, params, equation.outvars[0].aval.shape)]
        if name in ("gather", "dynamic_slice"):
            return [_taken(equation, *inputs)]
        if name not in _ELEMENTWISE and name not in _SUMS:
            raise TraceError(f"{name} is not recorded")
        known = all(v.dtype != object for v in inputs)
        if kind not in (np.float64, np.bool_) or (kind == np.bool_ and known and name in _INTEGERS):
            return [_of_known(name, inputs, kind)]
        if kind == np.float64 and any(v.aval.dtype == np.float32 for v in equation.invars):
            raise TraceError("single precision is not recorded")
        if name in _SUMS:
            return [_SUMS[name](*map(nodes, inputs), params)]
        return [_elementwise(_ELEMENTWISE[name](params), inputs)]

    def _scan(self, params: _Params, inputs: list[Values]) -> list[Values]:
        """A loop of known length."""
        inner, fixed, carried = params["jaxpr"], params["num_consts"], params["num_carry"]
        constants, carry, series = inputs[:fixed], inputs[fixed : fixed + carried], inputs[fixed + carried :]
        steps = list(range(params["length"]))
        made: dict[int, list[Values]] = {}
        for k in reversed(steps) if params["reverse"] else steps:
            found = self.run(inner.jaxpr, inner.consts, [*constants, *carry, *(s[k] for s in map(_array, series))])
            carry, made[k] = found[:carried], found[carried:]
        if not steps:
            raise TraceError("a loop without steps")
        return [*carry, *(np.stack([made[k][j] for k in steps]) for j in range(len(made[0])))]


def _array(value: Any) -> Values:
    """An array, also of what NumPy returns for a single node."""
    if isinstance(value, np.ndarray):
        return value
    made = np.empty((), dtype=object)
    made[()] = value
    return made


def _constant(value: Any) -> Values:
    """A number or array of the program: nodes, or integers, truth values and short floats as they are."""
    array = np.asarray(value)
    if array.size > _MOST or array.dtype.kind not in "fiub":
        raise TraceError(f"a constant of type {array.dtype} and size {array.size} is not recorded")
    return nodes(array) if array.dtype == np.float64 else array


def _elementwise(apply: Callable[..., Any], inputs: list[Values]) -> Values:
    return _array(np.frompyfunc(apply, len(inputs), 1)(*map(nodes, inputs)))


def _converted(value: Values, before: Any, after: Any) -> Values:
    """A value in another type: nodes have double precision, whole numbers and truth values are exact in it."""
    if value.dtype != object:
        return nodes(value.astype(after)) if after == np.float64 else value.astype(after)
    if before == after or (after == np.float64 and before.kind in "fiub"):
        return value
    raise TraceError(f"a conversion from {before} to {after} is not recorded")


def _of_known(name: str, inputs: list[Values], kind: Any) -> Values:
    """An operation on numbers that the program itself contains; exactly rounded, as everywhere."""
    if name not in _INTEGERS or any(v.dtype == object for v in inputs):
        raise TraceError(f"{name} of type {kind} is not recorded")
    return np.asarray(_INTEGERS[name](*inputs), dtype=kind)


def _taken(equation: Any, value: Values, *indices: Values) -> Values:
    """Entries at indices that are known. JAX itself takes them from the entries' numbers."""
    if any(v.dtype == object for v in indices):
        raise TraceError("indices from the data are not recorded")
    numbers = equation.primitive.bind(np.arange(value.size).reshape(value.shape), *indices, **equation.params)
    chosen = np.asarray(numbers)
    if chosen.size and not (chosen.min() >= 0 and chosen.max() < value.size):
        raise TraceError("an index is out of bounds")
    return _array(value.reshape(-1)[chosen])


def _broadcast(inputs: list[Values], params: _Params, shape: tuple[int, ...]) -> Values:
    value = inputs[0]
    spread = [1] * len(shape)
    for axis, size in zip(params["broadcast_dimensions"], value.shape, strict=True):
        spread[axis] = size
    return np.broadcast_to(value.reshape(spread), shape)


def _slice(inputs: list[Values], params: _Params, shape: tuple[int, ...]) -> Values:
    steps = params["strides"] or [1] * len(shape)
    bounds = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
    return inputs[0][tuple(slice(*bound) for bound in bounds)]


def _iota(_: list[Values], params: _Params, shape: tuple[int, ...]) -> Values:
    spread = [-1 if a == params["dimension"] else 1 for a in range(len(shape))]
    counted = np.broadcast_to(np.arange(shape[params["dimension"]]).reshape(spread), shape)
    return _constant(counted.astype(params["dtype"]))


def _product(a: Values, b: Values, params: _Params) -> Values:
    """``dot_general``: axes of both by letters."""
    (over_a, over_b), (along_a, along_b) = params["dimension_numbers"]
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    of_a, of_b = [next(letters) for _ in range(a.ndim)], [next(letters) for _ in range(b.ndim)]
    for i, j in [*zip(over_a, over_b, strict=True), *zip(along_a, along_b, strict=True)]:
        of_b[j] = of_a[i]
    left = [x for i, x in enumerate(of_a) if i not in (*over_a, *along_a)]
    right = [x for j, x in enumerate(of_b) if j not in (*over_b, *along_b)]
    out = "".join([*(of_a[i] for i in along_a), *left, *right])
    return _array(np.einsum(f"{''.join(of_a)},{''.join(of_b)}->{out}", a, b))


def _folded(op: str) -> Callable[[Values, _Params], Values]:
    def apply(value: Values, params: _Params) -> Values:
        for axis in sorted(params["axes"], reverse=True):
            parts = list(np.moveaxis(value, axis, 0))
            if not parts:
                raise TraceError(f"{op} over nothing")
            value = _array(parts[0])
            for part in parts[1:]:
                value = _elementwise(lambda x, y: make(op, x, y), [value, _array(part)])
        return value

    return apply


def _same(apply: Callable[..., Any]) -> Callable[[_Params], Callable[..., Any]]:
    return lambda params: apply


def _selected(which: Any, *cases: Any) -> Any:
    if len(cases) != 2:
        raise TraceError("a selection among more than two is not recorded")
    return FUNCTIONS["where"](which, cases[1], cases[0])


_NAMES = {
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "max": "maximum", "min": "minimum",
    "pow": "power", "neg": "negative", "abs": "absolute", "sign": "sign", "floor": "floor", "ceil": "ceil",
    "sqrt": "sqrt", "cbrt": "cbrt", "square": "square", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log",
    "log1p": "log1p", "sin": "sin", "cos": "cos", "tan": "tan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
    "atan2": "arctan2", "erf": "erf", "erfc": "erfc", "logistic": "expit", "lt": "less", "le": "less_equal",
    "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal", "and": "logical_and",
    "or": "logical_or", "not": "logical_not",
}  # fmt: skip
_ELEMENTWISE: dict[str, Callable[[_Params], Callable[..., Any]]] = {
    **{name: _same(UFUNCS[ufunc]) for name, ufunc in _NAMES.items()},
    "rsqrt": _same(lambda x: 1.0 / make("sqrt", x)),
    "integer_pow": lambda params: lambda x: make("pow", x, constant(params["y"])),
    "clamp": _same(lambda low, x, high: FUNCTIONS["clip"](x, low, high)),
    "select_n": _same(_selected),
    "copy": _same(as_expression),
}
_INTEGERS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "neg": np.negative,
    "select_n": lambda which, no, yes: np.where(which, yes, no), "copy": np.copy,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
}  # fmt: skip
_SUMS: dict[str, Callable[..., Values]] = {
    "reduce_sum": _folded("add"),
    "reduce_prod": _folded("mul"),
    "reduce_max": _folded("maximum"),
    "reduce_min": _folded("minimum"),
    "dot_general": _product,
}
_MOVES: dict[str, Callable[[list[Values], _Params, tuple[int, ...]], Values]] = {
    "broadcast_in_dim": _broadcast,
    "reshape": lambda inputs, params, shape: inputs[0].reshape(shape),
    "squeeze": lambda inputs, params, shape: inputs[0].reshape(shape),
    "expand_dims": lambda inputs, params, shape: inputs[0].reshape(shape),
    "transpose": lambda inputs, params, shape: inputs[0].transpose(params["permutation"]),
    "rev": lambda inputs, params, shape: np.flip(inputs[0], params["dimensions"]),
    "concatenate": lambda inputs, params, shape: np.concatenate(inputs, axis=params["dimension"]),
    "stack": lambda inputs, params, shape: np.stack(inputs, axis=params["axis"]),
    "slice": _slice,
    "iota": _iota,
}
