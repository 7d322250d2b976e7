r"""Expressions as shared graphs.

An `Expression` is a node of a directed acyclic graph: a constant, a parameter, a variable (a column of the data)
or an operation on other nodes. Nodes are *hash-consed*: making the same node twice gives the same object, so
that common subexpressions are shared by construction, also between a model and its derivatives
(`problm.models.derivatives`). Constants are folded and simple identities applied as nodes are made.

SymPy could do this too, but importing it takes longer than a whole fit (0.3 to 0.5 s), and its general simplification
even longer; the few rules below suffice for a fit.

Expressions overload Python's operators and NumPy's functions (`problm.models.functions`), which is how
`problm.models.tracing` records a Python function: it calls the function with nodes.

Examples
--------
>>> a, b, x = parameter(0), parameter(1), variable(0)
>>> f = a * exp(-b * x)
>>> from problm.models.node import to_text
>>> to_text(f, ["a", "b"], ["x"])
'a * exp(-b * x)'
>>> exp(-b * x) is f.args[1]
True
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from .node import Node, topological

Array = NDArray[np.float64]

FUNCTIONS: dict[str, Callable[..., Expression]] = {}
"""Functions of formulas, by name; filled by `problm.models.functions`."""
UFUNCS: dict[str, Callable[..., Any]] = {}
"""What NumPy's universal functions become, by name; filled by `problm.models.functions`."""


class TraceError(Exception):
    """The function uses a traced value in a way that an expression cannot record."""


class Expression(Node):
    """A node of the graph. Make nodes with operators and the functions of this module, never directly."""

    __slots__ = ()

    def __add__(self, other: Any) -> Expression:
        return _binary("add", self, other)

    def __radd__(self, other: Any) -> Expression:
        return _binary("add", other, self)

    def __sub__(self, other: Any) -> Expression:
        return _binary("sub", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return _binary("sub", other, self)

    def __mul__(self, other: Any) -> Expression:
        return _binary("mul", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return _binary("mul", other, self)

    def __truediv__(self, other: Any) -> Expression:
        return _binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return _binary("div", other, self)

    def __pow__(self, other: Any) -> Expression:
        return _binary("pow", self, other)

    def __rpow__(self, other: Any) -> Expression:
        return _binary("pow", other, self)

    def __mod__(self, other: Any) -> Expression:
        return mod(self, other)

    def __neg__(self) -> Expression:
        return make("neg", self)

    def __pos__(self) -> Expression:
        return self

    def __abs__(self) -> Expression:
        return make("abs", self)

    def __lt__(self, other: Any) -> Expression:
        return _binary("lt", self, other)

    def __le__(self, other: Any) -> Expression:
        return _binary("le", self, other)

    def __gt__(self, other: Any) -> Expression:
        return _binary("lt", other, self)

    def __ge__(self, other: Any) -> Expression:
        return _binary("le", other, self)

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return _binary("eq", self, other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return make("sub", constant(1.0), _binary("eq", self, other))

    def __and__(self, other: Any) -> Expression:
        return _binary("mul", self, other)

    def __or__(self, other: Any) -> Expression:
        return _binary("maximum", self, other)

    def __invert__(self) -> Expression:
        return make("sub", constant(1.0), self)

    def __hash__(self) -> int:
        return self.serial

    def __refuse(self, *_: object) -> NoReturn:
        raise TraceError("its value is needed as a number or a truth value (in an if, a loop or a call to float)")

    __bool__ = __float__ = __int__ = __index__ = __complex__ = __iter__ = __len__ = __refuse

    def __getattr__(self, name: str) -> Any:
        # For an object array NumPy calls a method of the elements: np.exp(array) calls element.exp().
        if name in FUNCTIONS:
            return lambda *rest: FUNCTIONS[name](self, *rest)
        raise AttributeError(name)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return _call_ufunc(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return _call_array_function(function, args, options)

    def __reduce__(self) -> tuple[Any, ...]:
        return _node, (self.op, self.args, self.value)  # unpickling recreates the node, shared with equal ones


_nodes: WeakValueDictionary[tuple[object, ...], Expression] = WeakValueDictionary()
_serials = itertools.count()


def _node(op: str, args: tuple[Expression, ...] = (), value: float = 0.0) -> Expression:
    key = (op, *(a.serial for a in args), value, math.copysign(1.0, value))
    found = _nodes.get(key)
    if found is None:
        found = object.__new__(Expression)
        found.op, found.args, found.value, found.serial = op, args, value, next(_serials)
        found.rowwise = op == "variable" or any(a.rowwise for a in args)
        found.parametric = op == "parameter" or any(a.parametric for a in args)
        _nodes[key] = found
    return found


def constant(value: float) -> Expression:
    """A number."""
    return _node("constant", (), float(value))


def parameter(index: int) -> Expression:
    """The parameter at an index of theta."""
    return _node("parameter", (), index)


def variable(index: int) -> Expression:
    """The column of the data at an index."""
    return _node("variable", (), index)


def as_expression(value: Any) -> Expression:
    """Return an expression unchanged; turn a number or a 0-d array into a constant."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, int | float | np.number | np.bool_) or (isinstance(value, np.ndarray) and value.ndim == 0):
        if np.iscomplexobj(value):
            raise TraceError("complex numbers are not recorded")
        return constant(float(value))
    raise TraceError(f"a {type(value).__name__} cannot be part of an expression")


def _binary(op: str, left: Any, right: Any) -> Expression:
    # A list, tuple or array: let NumPy spread the operation over its elements.
    if isinstance(left, np.ndarray | list | tuple) or isinstance(right, np.ndarray | list | tuple):
        return NotImplemented  # type: ignore[no-any-return]
    return make(op, as_expression(left), as_expression(right))


def _call_ufunc(ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    """The result of ``__array_ufunc__``: an expression, or an object array of expressions if an input is an array."""
    apply = UFUNCS.get(ufunc.__name__)
    if apply is None or method != "__call__" or options:
        raise TraceError(f"numpy's {ufunc.__name__} cannot be recorded")
    if not any(isinstance(v, np.ndarray) and v.ndim for v in inputs):
        return apply(*inputs)
    boxes = []
    for value in inputs:
        box = np.empty(np.shape(value) if isinstance(value, np.ndarray) else (), dtype=object)
        box[...] = value
        boxes.append(box)
    return np.frompyfunc(apply, len(inputs), 1)(*boxes)


def _call_array_function(function: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """The result of ``__array_function__``, for NumPy's functions that are not ufuncs."""
    name = getattr(function, "__name__", "?")
    if name in ("where", "clip") and len(args) == 3 and not options:
        return FUNCTIONS[name](*args)
    if name in ("real", "copy", "asarray") and len(args) == 1:
        return args[0]
    raise TraceError(f"numpy.{name} cannot be recorded")


def _select(condition: Array, yes: Array, no: Array) -> Array:
    return np.where(np.asarray(condition) != 0.0, yes, no)


def _special(name: str, *args: Any) -> Any:
    """Call a function of `scipy.special`, which takes longer to load than NumPy."""
    from scipy import special

    return getattr(special, name)(*args)


# How NumPy computes each operation: used to fold constants and as the reference in tests.
NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power,
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "floor": np.floor, "sqrt": np.sqrt,
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "arcsin": np.arcsin, "arccos": np.arccos, "arctan": np.arctan,
    "arcsinh": np.arcsinh, "arccosh": np.arccosh, "arctanh": np.arctanh,
    "erf": partial(_special, "erf"), "erfc": partial(_special, "erfc"),
    "w_real": lambda x, y: np.real(_special("wofz", x + 1j * np.asarray(y))),
    "w_imag": lambda x, y: np.imag(_special("wofz", x + 1j * np.asarray(y))),
    "minimum": np.minimum, "maximum": np.maximum, "arctan2": np.arctan2, "hypot": np.hypot,
    "lt": np.less, "le": np.less_equal, "eq": np.equal, "where": _select,
    # log x, but 0 at 0: d(x**y)/dy = x**y log x is 0 there for y > 0, not 0 * inf.
    "log_or_zero": lambda x: np.log(np.where(np.equal(x, 0.0), 1.0, x)),
}  # fmt: skip


def make(op: str, *args: Expression) -> Expression:
    """The node of an operation, simplified."""
    if all(a.op == "constant" for a in args):
        with np.errstate(all="ignore"):
            return constant(float(NUMPY[op](*(np.float64(a.value) for a in args))))
    rule = _SIMPLIFY.get(op)
    simple = rule(*args) if rule is not None else None
    return _node(op, args) if simple is None else simple


def _is(e: Expression, value: float) -> bool:
    return e.op == "constant" and e.value == value


def _simple_add(a: Expression, b: Expression) -> Expression | None:
    if _is(a, 0.0):
        return b
    if _is(b, 0.0):
        return a
    if a is b:
        return make("mul", constant(2.0), a)
    if b.op == "neg":
        return make("sub", a, b.args[0])
    if a.op == "neg":
        return make("sub", b, a.args[0])
    return None


def _simple_sub(a: Expression, b: Expression) -> Expression | None:
    if _is(b, 0.0):
        return a
    if _is(a, 0.0):
        return make("neg", b)
    if a is b:
        return constant(0.0)
    return make("add", a, b.args[0]) if b.op == "neg" else None


def _simple_mul(a: Expression, b: Expression) -> Expression | None:
    if _is(a, 0.0) or _is(b, 0.0):
        return constant(0.0)
    if _is(a, 1.0):
        return b
    if _is(b, 1.0):
        return a
    if _is(a, -1.0):
        return make("neg", b)
    if _is(b, -1.0):
        return make("neg", a)
    if a.op == "neg":
        return make("neg", make("mul", a.args[0], b))
    if b.op == "neg":
        return make("neg", make("mul", a, b.args[0]))
    if a.op == "constant" and b.op == "mul" and b.args[0].op == "constant":
        return make("mul", make("mul", a, b.args[0]), b.args[1])
    return None


def _simple_div(a: Expression, b: Expression) -> Expression | None:
    if _is(a, 0.0):
        return a
    if _is(b, 1.0):
        return a
    if _is(b, -1.0):
        return make("neg", a)
    return make("neg", make("div", a.args[0], b)) if a.op == "neg" else None


def _simple_pow(a: Expression, b: Expression) -> Expression | None:
    """Small integer and half-integer powers by multiplication and square root: up to 8 the error stays ~2 ulp."""
    if _is(a, 1.0):
        return a
    if b.op != "constant" or abs(b.value) > 8.0 or (2.0 * b.value) % 1.0 != 0.0:
        return None
    if b.value < 0.0:
        return make("div", constant(1.0), make("pow", a, constant(-b.value)))
    whole = int(b.value)
    if b.value != whole:
        root = make("sqrt", a)
        return root if whole == 0 else make("mul", make("pow", a, constant(whole)), root)
    result, square = None, a
    while whole:
        if whole & 1:
            result = square if result is None else make("mul", result, square)
        whole >>= 1
        square = make("mul", square, square) if whole else square
    return constant(1.0) if result is None else result


_SIMPLIFY: dict[str, Callable[..., Expression | None]] = {
    "add": _simple_add,
    "sub": _simple_sub,
    "mul": _simple_mul,
    "div": _simple_div,
    "pow": _simple_pow,
    "neg": lambda a: a.args[0] if a.op == "neg" else None,
    "abs": lambda a: a if a.op in ("abs", "exp", "sqrt") else make("abs", a.args[0]) if a.op == "neg" else None,
    "where": lambda c, a, b: (a if c.value else b) if c.op == "constant" else a if a is b else None,
}


def _unary(op: str) -> Callable[[Any], Expression]:
    return lambda x: make(op, as_expression(x))


exp, log, sqrt = _unary("exp"), _unary("log"), _unary("sqrt")


def mod(x: Any, y: Any) -> Expression:
    """``x - floor(x / y) * y``, Python's ``%``."""
    top, bottom = as_expression(x), as_expression(y)
    return top - make("floor", top / bottom) * bottom


def where(condition: Any, yes: Any, no: Any) -> Expression:
    """``yes`` in the rows where the condition holds, else ``no``."""
    return make("where", as_expression(condition), as_expression(yes), as_expression(no))


def evaluate(outputs: Sequence[Expression], theta: Sequence[Any], columns: Sequence[Any]) -> list[Any]:
    """Values computed by NumPy, one operation at a time: slow, and independent of the compiled tape.

    Parameters and columns may be numbers or arrays of any type of float; they are broadcast.
    """
    values: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        for e in topological(outputs):
            if e.op == "constant":
                values[e.serial] = np.float64(e.value)
            elif e.op == "parameter":
                values[e.serial] = theta[int(e.value)]
            elif e.op == "variable":
                values[e.serial] = columns[int(e.value)]
            else:
                values[e.serial] = NUMPY[e.op](*(values[a.serial] for a in e.args))
    return [values[e.serial] for e in outputs]


def substitute(e: Expression, parameters: dict[int, Expression], variables: Any = None) -> Expression:
    """The same expression with other nodes in place of some parameters and (another dict) variables."""
    places = {"parameter": parameters, "variable": variables or {}, "constant": {}}
    made: dict[int, Expression] = {}
    for node in topological([e]):
        if node.args:
            made[node.serial] = make(node.op, *(made[a.serial] for a in node.args))
        else:
            made[node.serial] = places[node.op].get(int(node.value) if places[node.op] else 0, node)
    return made[e.serial]
