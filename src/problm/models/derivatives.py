r"""Exact derivatives of expressions, by reverse accumulation.

Every node v has an adjoint ``A_v = df/dv``, with ``A_f = 1`` and ``A_u = sum over the nodes v made from u of A_v
dv/du``; nodes are visited from the output backwards. One sweep gives the derivatives with respect to all parameters, as
expressions that share the model's nodes.

Examples
--------
>>> from problm.models.expression import exp, parameter, variable
>>> from problm.models.node import to_text
>>> a, b, x = parameter(0), parameter(1), variable(0)
>>> [to_text(g, ["a", "b"], ["x"]) for g in derivatives([a * exp(-b * x)], 2)[0]]
['exp(-b * x)', '-a * exp(-b * x) * x']
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import add, mul, neg, sub, truediv
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .expression import NUMPY, Expression, constant, exp, make, parameter, sqrt, where
from .node import topological

if TYPE_CHECKING:
    from ..kernels.second_order import SecondOrder

_ZERO, _ONE, _LARGE = constant(0.0), constant(1.0), constant(1e300)
_GROWING = {"exp", "expm1", "sinh", "cosh"}
"""Functions that overflow for arguments of ordinary size."""
Array = NDArray[np.float64]
_OPERATORS: dict[str, Any] = {"add": add, "sub": sub, "mul": mul, "div": truediv, "neg": neg}
_MOST_SECOND = 3
"""Largest number of first and second derivatives to evaluate, per parameter."""
_MOST_TERMS = 16
"""Largest number of terms of a product of sums that is multiplied out."""
Sum = dict[tuple[int, ...], Expression]
"""A sum of products: for the sorted serial numbers of the factors of each, the scalar in front."""
_TWO_OVER_ROOT_PI = constant(2.0 / math.sqrt(math.pi))


def _d_pow(f: Expression, x: Expression, y: Expression) -> tuple[Expression, ...]:
    by_x = y * make("pow", x, y - 1.0) if x.parametric else _ZERO
    return by_x, f * make("log_or_zero", x) if y.parametric else _ZERO


def _d_w(x: Expression, y: Expression) -> tuple[Expression, Expression]:
    # w'(z) = 2i/sqrt(pi) - 2 z w(z) with z = x + iy, w = K + iL: the real and imaginary parts of w'.
    k, l = make("w_real", x, y), make("w_imag", x, y)  # noqa: E741
    return 2.0 * (y * l - x * k), _TWO_OVER_ROOT_PI - 2.0 * (x * l + y * k)


# op: (node, *arguments) -> the derivatives with respect to the arguments. Steps (sign, floor, comparisons) have none.
PARTIALS: dict[str, Callable[..., tuple[Expression, ...]]] = {
    "add": lambda f, x, y: (_ONE, _ONE),
    "sub": lambda f, x, y: (_ONE, -_ONE),
    "mul": lambda f, x, y: (y, x),
    "div": lambda f, x, y: (1.0 / y, -(f / y)),
    "pow": _d_pow,
    "neg": lambda f, x: (-_ONE,),
    "abs": lambda f, x: (make("sign", x),),
    "sqrt": lambda f, x: (0.5 / f,),
    "exp": lambda f, x: (f,),
    "expm1": lambda f, x: (exp(x),),
    "log": lambda f, x: (1.0 / x,),
    "log_or_zero": lambda f, x: (where(x == 0.0, 0.0, 1.0 / x),),
    "log1p": lambda f, x: (1.0 / (1.0 + x),),
    "sin": lambda f, x: (make("cos", x),),
    "cos": lambda f, x: (-make("sin", x),),
    "tan": lambda f, x: (1.0 + f * f,),
    "sinh": lambda f, x: (make("cosh", x),),
    "cosh": lambda f, x: (make("sinh", x),),
    "tanh": lambda f, x: (1.0 - f * f,),
    "arcsin": lambda f, x: (1.0 / sqrt(1.0 - x * x),),
    "arccos": lambda f, x: (-1.0 / sqrt(1.0 - x * x),),
    "arctan": lambda f, x: (1.0 / (1.0 + x * x),),
    "arcsinh": lambda f, x: (1.0 / sqrt(x * x + 1.0),),
    "arccosh": lambda f, x: (1.0 / sqrt(x * x - 1.0),),
    "arctanh": lambda f, x: (1.0 / (1.0 - x * x),),
    "erf": lambda f, x: (_TWO_OVER_ROOT_PI * exp(-(x * x)),),
    "erfc": lambda f, x: (-(_TWO_OVER_ROOT_PI * exp(-(x * x))),),
    "minimum": lambda f, x, y: (x <= y, y < x),
    "maximum": lambda f, x, y: (y <= x, x < y),
    "arctan2": lambda f, y, x: (x / (x * x + y * y), -(y / (x * x + y * y))),
    "hypot": lambda f, x, y: (x / f, y / f),
    "where": lambda f, c, a, b: (_ZERO, where(c, 1.0, 0.0), where(c, 0.0, 1.0)),
    # w' = dw/dx = -i dw/dy: K_x = Re w', L_x = Im w', K_y = -Im w', L_y = Re w'.
    "w_real": lambda f, x, y: (_d_w(x, y)[0], -_d_w(x, y)[1]),
    "w_imag": lambda f, x, y: (_d_w(x, y)[1], _d_w(x, y)[0]),
}


def derivatives(outputs: Sequence[Expression], n_parameters: int, guarded: bool = False) -> list[list[Expression]]:
    """Derivative of each output with respect to each parameter, by reverse accumulation.

    With ``guarded``, derivatives are finite where the output is, although a part of it overflows (a steep logistic
    curve far from its centre).
    """
    return [_reverse(f, n_parameters, guarded) for f in outputs]


def second_order(
    residuals: Sequence[Expression], jacobian: Sequence[Sequence[Expression]], d: int
) -> Callable[[], SecondOrder | None]:
    """Makes the kernel with second derivatives when it is first called; it makes None if rows have several residuals or
    the second derivatives are much more work than the first.

    Second derivatives are sums of products. Their sums over the rows, times the residuals, are scalars times sums of
    these products, and most of the products are derivatives, too: only the others are evaluated.
    """

    @lru_cache(maxsize=1)
    def make() -> SecondOrder | None:
        from ..kernels import tape
        from ..kernels.second_order import FormulaSecondOrder
        from .assembler import assemble

        if len(residuals) > 1:
            return None
        outputs = list(jacobian[0])
        rows = derivatives(outputs, d)
        pairs = [(a, b) for a in range(d) for b in range(a + 1) if rows[a][b] is not _ZERO]
        products = _Products()
        known: dict[tuple[int, ...], tuple[int, Expression]] = {}
        for k, by in enumerate(outputs):
            if len(terms := products.expanded(by)) == 1:
                known[next(iter(terms))] = k, next(iter(terms.values()))
        found = []
        for k, (a, b) in enumerate(pairs):
            for product, scalar in sorted(products.expanded(rows[a][b]).items(), key=lambda item: len(item[0])):
                if product not in known:
                    known[product] = len(outputs), _appended(product, known, products.factors, outputs)
                source, unit = known[product]
                found.append((k, source, scalar / unit))
        if len(outputs) > _MOST_SECOND * d:
            return None
        program = assemble(residuals, [outputs], d)
        ratios = [ratio for *_, ratio in found]
        return FormulaSecondOrder(
            d, len(outputs) - d, program.code, program.constants, np.array(pairs, dtype=np.intp).reshape(-1, 2),
            np.array([place for *place, _ in found], dtype=np.intp).reshape(-1, 2), _computed(ratios), tape.run,
        )  # fmt: skip

    return make


def _computed(scalars: Sequence[Expression]) -> Callable[[Array], Array]:
    """The function of theta (d,) that computes expressions of the parameters, in an order that is found once."""
    order = topological(scalars)
    place = {e.serial: k for k, e in enumerate(order)}
    functions: dict[str, Any] = {**NUMPY, **_OPERATORS}
    steps: list[tuple[Expression, Any, list[int]]] = [
        (e, functions.get(e.op), [place[a.serial] for a in e.args]) for e in order
    ]
    wanted = [place[e.serial] for e in scalars]

    def values(theta: Array) -> Array:
        found: list[Any] = []
        for e, function, args in steps:
            if e.op == "constant":
                found.append(np.float64(e.value))
            elif e.op == "parameter":
                found.append(theta[int(e.value)])
            else:
                found.append(function(*(found[k] for k in args)))
        return np.array([found[k] for k in wanted], dtype=np.float64)

    return values


def _appended(
    product: tuple[int, ...],
    known: dict[tuple[int, ...], tuple[int, Expression]],
    factors: dict[int, Expression],
    outputs: list[Expression],
) -> Expression:
    """Append a product to the outputs, made from a known one if possible; return the scalar in front of it."""
    for k, factor in enumerate(product):
        if (rest := product[:k] + product[k + 1 :]) in known:
            source, scalar = known[rest]
            outputs.append(outputs[source] * factors[factor])
            return scalar
    made = _ONE
    for factor in product:
        made = made * factors[factor]
    outputs.append(made)
    return _ONE


class _Products:
    """Expressions as sums of products of factors."""

    def __init__(self) -> None:
        self.factors: dict[int, Expression] = {}
        """Factors by their serial numbers."""
        self._known: dict[int, Sum] = {}

    def expanded(self, e: Expression) -> Sum:
        """The expression as a sum of products."""
        if e.serial not in self._known:
            self._known[e.serial] = self._expand(e)
        return self._known[e.serial]

    def _expand(self, e: Expression) -> Sum:
        if not e.rowwise:
            return {(): e}
        if e.op in ("add", "sub"):
            left, right = map(self.expanded, e.args)
            return _sum([*left.items(), *((p, s if e.op == "add" else -s) for p, s in right.items())])
        if e.op == "neg":
            return {product: -scalar for product, scalar in self.expanded(e.args[0]).items()}
        if e.op == "div" and not e.args[1].rowwise:
            return {product: scalar / e.args[1] for product, scalar in self.expanded(e.args[0]).items()}
        if e.op in ("mul", "div"):
            left = self._as_factor(e.args[0])
            right = self._as_factor(e.args[1]) if e.op == "mul" else self._reciprocal(e.args[1])
            if len(left) * len(right) <= _MOST_TERMS:
                return _sum([(tuple(sorted(p + q)), s * t) for p, s in left.items() for q, t in right.items()])
        self.factors[e.serial] = e
        return {(e.serial,): _ONE}

    def _reciprocal(self, e: Expression) -> Sum:
        inverse = _ONE / e
        self.factors[inverse.serial] = inverse
        return {(inverse.serial,): _ONE}

    def _as_factor(self, e: Expression) -> Sum:
        """`expanded`, but a sum with a scalar, such as x - m, stays one factor: its powers would lose digits."""
        terms, scalar = self.expanded(e), _ONE
        if not e.rowwise or () not in terms:
            return terms
        while e.op == "neg" or (e.op == "div" and not e.args[1].rowwise):
            e, scalar = e.args[0], -scalar if e.op == "neg" else scalar / e.args[1]
        self.factors[e.serial] = e
        return {(e.serial,): scalar}


def _sum(terms: Sequence[tuple[tuple[int, ...], Expression]]) -> Sum:
    total: Sum = {}
    for product, scalar in terms:
        total[product] = total[product] + scalar if product in total else scalar
    return total


def _reverse(output: Expression, n_parameters: int, guarded: bool) -> list[Expression]:
    adjoint = {output.serial: _ONE}
    for node in reversed(topological([output])):
        a = adjoint.get(node.serial)
        if a is None or not node.args or not node.parametric or node.op not in PARTIALS:
            continue
        for child, partial in zip(node.args, PARTIALS[node.op](node, *node.args), strict=True):
            if child.parametric and partial is not _ZERO:
                term = a * (_finite(partial) if guarded and _saturates(a, node, partial) else partial)
                adjoint[child.serial] = adjoint.get(child.serial, _ZERO) + term
    return [adjoint.get(parameter(i).serial, _ZERO) for i in range(n_parameters)]


def _saturates(a: Expression, node: Expression, partial: Expression) -> bool:
    """Whether the adjoint vanishes where the node overflows, as that of ``exp(u)`` in ``1 / (1 + exp(u))``."""
    grows = any(e.op in _GROWING or (e.op == "pow" and e.args[1].op != "constant") for e in topological([partial]))
    return grows and any(e is node for e in topological([a]))


def _finite(partial: Expression) -> Expression:
    """The partial derivative without infinities: zero times it is zero, not NaN."""
    below = make("minimum", partial, _LARGE)
    return below if partial.op == "exp" else make("maximum", below, -_LARGE)
