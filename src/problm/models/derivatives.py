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

from .expression import Expression, constant, exp, make, parameter, sqrt, where
from .node import topological

_ZERO, _ONE = constant(0.0), constant(1.0)
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


def derivatives(outputs: Sequence[Expression], n_parameters: int) -> list[list[Expression]]:
    """Derivative of each output with respect to each parameter, by reverse accumulation."""
    return [_reverse(f, n_parameters) for f in outputs]


def _reverse(output: Expression, n_parameters: int) -> list[Expression]:
    adjoint = {output.serial: _ONE}
    for node in reversed(topological([output])):
        a = adjoint.get(node.serial)
        if a is None or not node.args or not node.parametric or node.op not in PARTIALS:
            continue
        for child, partial in zip(node.args, PARTIALS[node.op](node, *node.args), strict=True):
            if child.parametric and partial is not _ZERO:
                term = a * partial
                adjoint[child.serial] = adjoint.get(child.serial, _ZERO) + term
    return [adjoint.get(parameter(i).serial, _ZERO) for i in range(n_parameters)]
