"""Formulas: text to a compiled model, without evaluating the text.

A small recursive-descent parser reads numbers, names, operators and known functions; there is no ``eval``, no attribute
access and no other call. The result is a `problm.models.expression.Expression`, so derivatives are exact, and it runs
on the tape, so nothing is compiled.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from ..support.suggest import suggest
from . import expression as ex
from .expression import Expression, constant
from .functions import FUNCTIONS
from .model import Model
from .model import model as model

MAX_LENGTH = 10_000
MAX_DEPTH = 100
MAX_TOKENS = 2_000

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*)"
    r"|(?P<sign>\*\*|<=|>=|==|!=|[-+*/^%(),<>~]))"
)
_CONSTANTS = {"pi": math.pi, "e": math.e}
_COMPARISONS: dict[str, Callable[[Any, Any], Expression]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}
_ARGUMENTS = {"arctan2": 2, "atan2": 2, "hypot": 2, "minimum": 2, "maximum": 2, "pow": 2, "mod": 2, "clip": 3,
              "where": 3, "voigt": 3, "min": -2, "max": -2}  # fmt: skip


class FormulaError(ValueError):
    """Raised for a formula that cannot be read; the message points at the position."""


@dataclass
class _Parser:
    text: str
    names: list[str] = field(default_factory=list)
    """Names of variables and parameters, in order of appearance; name k becomes parameter k at first."""
    tokens: list[tuple[str, str, int]] = field(default_factory=list)
    at: int = 0
    depth: int = 0

    def fail(self, message: str, place: int) -> NoReturn:
        start = max(0, place - 60)
        shown = self.text[start : place + 40].replace("\n", " ").replace("\t", " ")
        raise FormulaError(f"{message}\n  {shown}\n  {' ' * (place - start)}^")

    def scan(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError(f"formula must be text such as 'a*exp(-b*x) + c', got {type(self.text).__name__}")
        if len(self.text) > MAX_LENGTH:
            raise FormulaError(f"formula is {len(self.text)} characters long; at most {MAX_LENGTH} are read")
        place = 0
        while place < len(self.text.rstrip()):
            match = _TOKEN.match(self.text, place)
            if match is None:
                place += len(self.text[place:]) - len(self.text[place:].lstrip())
                self.fail(f"formula: {self.text[place]!r} has no meaning here", place)
            kind = str(match.lastgroup)
            self.tokens.append((kind, match.group(kind), match.start(kind)))
            place = match.end()
            if len(self.tokens) > MAX_TOKENS:
                self.fail(f"formula: more than {MAX_TOKENS} names, numbers and operators", place - 1)
        self.tokens.append(("end", "", len(self.text.rstrip())))

    def accept(self, *signs: str) -> str:
        kind, text, _ = self.tokens[self.at]
        if kind == "sign" and text in signs:
            self.at += 1
            return text
        return ""

    def expect(self, sign: str) -> None:
        if not self.accept(sign):
            kind, text, place = self.tokens[self.at]
            found = "the end" if kind == "end" else repr(text)
            hint = " (write * for a product)" if kind in ("name", "number") or text == "(" else ""
            self.fail(f"formula: expected {sign!r}, found {found}{hint}", place)

    def whole(self) -> tuple[str | None, Expression]:
        """``[response ~] expression``."""
        self.scan()
        response = None
        if len(self.tokens) > 2 and self.tokens[0][0] == "name" and self.tokens[1][1] == "~":
            response = self.tokens[0][1]
            self.at = 2
        result = self.comparison()
        kind, text, place = self.tokens[self.at]
        if kind != "end":
            hint = ": write * for a product" if kind in ("name", "number") or text == "(" else ""
            self.fail(f"formula: {text!r} is not expected here{hint}", place)
        return response, result

    def comparison(self) -> Expression:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"formula: nested more than {MAX_DEPTH} deep", self.tokens[self.at][2])
        left = self.sum()
        sign = self.accept(*_COMPARISONS)
        if sign:
            left = _COMPARISONS[sign](left, self.sum())
        self.depth -= 1
        return left

    def sum(self) -> Expression:
        left = self.product()
        while sign := self.accept("+", "-"):
            right = self.product()
            left = left + right if sign == "+" else left - right
        return left

    def product(self) -> Expression:
        left = self.unary()
        while sign := self.accept("*", "/", "%"):
            right = self.unary()
            left = left * right if sign == "*" else left / right if sign == "/" else left % right
        return left

    def unary(self) -> Expression:
        minus = False
        while sign := self.accept("-", "+"):
            minus ^= sign == "-"
        value = self.power()
        return -value if minus else value

    def power(self) -> Expression:
        base = self.atom()
        if not self.accept("**", "^"):
            return base
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"formula: nested more than {MAX_DEPTH} deep", self.tokens[self.at][2])
        exponent = self.unary()  # from the right: a**b**c is a**(b**c), and a**-b is allowed
        self.depth -= 1
        return base**exponent

    def atom(self) -> Expression:
        kind, text, place = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            return constant(float(text))
        if kind == "name":
            if self.accept("("):
                return self.call(text, place)
            if text in _CONSTANTS:
                return constant(_CONSTANTS[text])
            if text in FUNCTIONS:
                self.fail(f"formula: the function {text} needs an argument in parentheses", place)
            if text not in self.names:
                self.names.append(text)
            return ex.parameter(self.names.index(text))
        if text == "(":
            value = self.comparison()
            self.expect(")")
            return value
        found = "ends too early" if kind == "end" else f"has {text!r} where a number, a name or '(' is expected"
        return self.fail(f"formula {found}", place)

    def call(self, name: str, place: int) -> Expression:
        if name not in FUNCTIONS:
            hint = suggest(name, tuple(FUNCTIONS)) or ": write * for a product"
            self.fail(f"formula: there is no function {name!r}{hint}; there are {', '.join(sorted(FUNCTIONS))}", place)
        arguments = [self.comparison()]
        while self.accept(","):
            arguments.append(self.comparison())
        self.expect(")")
        wanted = _ARGUMENTS.get(name, 1)
        if len(arguments) != wanted and not (wanted < 0 and len(arguments) >= -wanted):
            needs = f"{abs(wanted)} argument{'s' * (abs(wanted) > 1)}{' or more' * (wanted < 0)}"
            self.fail(f"formula: {name} takes {needs}, got {len(arguments)}", place)
        return FUNCTIONS[name](*arguments)


def calculated(text: str, columns: Mapping[str, Any]) -> Any:
    """The value of an expression of columns, such as ``sqrt(I)``, as an array of float64.

    Examples
    --------
    >>> import numpy as np
    >>> calculated("sqrt(I + 1)", {"I": np.array([0.0, 8.0])})
    array([1., 3.])
    """
    parser = _Parser(text)
    response, body = parser.whole()
    if response is not None:
        raise FormulaError("formula: '~' has no meaning here")
    for name in parser.names:
        if name not in columns:
            raise FormulaError(f"formula: there is no column {name!r}{suggest(name, tuple(columns))}")
    values = [np.asarray(columns[name], dtype=np.float64) for name in parser.names]
    length = max((v.size for v in columns.values()), default=1)
    return np.ascontiguousarray(np.broadcast_to(ex.evaluate([body], values, [])[0], (length,)), dtype=np.float64)


def names_in(text: str) -> tuple[str, ...]:
    """The names of data and parameters in an expression, in their order."""
    parser = _Parser(text)
    parser.whole()
    return tuple(parser.names)


def _default_variables(names: Sequence[str], response: str | None) -> tuple[str, ...]:
    numbered = sorted((n for n in names if re.fullmatch(r"x_?\d+", n)), key=lambda n: int(n.lstrip("x_")))
    found, doubtful = numbered, []
    if "x" in names:  # x0 is then where something is: x - x0
        found, doubtful = ["x"], [n for n in numbered if n not in ("x0", "x_0")]
    elif "t" in names and set(numbered) <= {"x0", "x_0"}:  # x0 + v*t
        found = ["t"]
    if not found:
        raise FormulaError(
            f"formula: none of its names ({', '.join(names) or 'there are none'}) is x, x1, x2, ... or t; "
            "name the data, for example variables=('u',)"
        )
    doubtful += [n for n in ("y", "z") if n in names and n != response]
    if doubtful:
        raise FormulaError(
            f"formula: is {doubtful[0]!r} data or a parameter? Name the data: "
            f"variables={(*found, *doubtful)!r} or variables={tuple(found)!r}"
        )
    return tuple(found)


def formula(text: str, variables: Sequence[str] | str | None = None) -> Model:
    """Make a model with exact derivatives from a formula; nothing is compiled.

    Parameters
    ----------
    text : str
        For example ``"a*exp(-b*x) + c"``. Operators ``+ - * / % ** ^`` and comparisons, numbers, ``pi``, ``e``,
        functions (exp, log, sqrt, sin, tanh, erf, voigt, where(condition, yes, no), ...; a wrong name lists them). A
        response may be given on the left: ``"y ~ a*x + b"``.
    variables : sequence of str, optional
        Names of the data. By default x; or x1, x2, ...; or t. All other names are parameters, in the order in which
        they appear.

    Returns
    -------
    `Model`
        A model for `problm.curve_fit` and `problm.least_squares`, also callable as ``model(x, *parameters)``.

    Raises
    ------
    FormulaError
        A ValueError that shows where the formula cannot be read.

    Examples
    --------
    >>> decay = formula("y ~ a*exp(-b*x) + c")
    >>> decay
    Model(y ~ a * exp(-b * x) + c; parameters a, b, c; variable x)
    >>> decay([0.0, 1.0], 2.0, 0.5, 1.0).round(3)
    array([3.   , 2.213])
    >>> decay.jacobian([0.0, 1.0], 2.0, 0.5, 1.0).round(3)
    array([[ 1.   ,  0.   ,  1.   ],
           [ 0.607, -1.213,  1.   ]])
    """
    chosen = variables if variables is None or isinstance(variables, str) else tuple(variables)
    if all(isinstance(n, str) for n in (text, *(chosen or ()))):
        return _known(text, chosen)
    return _read(text, chosen)


def _read(text: str, variables: tuple[str, ...] | str | None) -> Model:
    parser = _Parser(text)
    response, body = parser.whole()
    names = parser.names
    if variables is None:
        chosen = _default_variables(names, response)
    else:
        chosen = (variables,) if isinstance(variables, str) else tuple(variables)
        wrong = [n for n in chosen if not isinstance(n, str) or not n.isidentifier()]
        if wrong or len(set(chosen)) != len(chosen):
            raise ValueError(f"variables must be different names, got {variables!r}")
        missing = [n for n in chosen if n not in names]
        if missing:
            raise FormulaError(f"formula: the variable {missing[0]!r} does not occur in it (names: {', '.join(names)})")
    parameters = tuple(n for n in names if n not in chosen)
    if not parameters:
        raise FormulaError(f"formula: {text.strip()!r} has no parameters to fit")
    places = {n: ex.variable(chosen.index(n)) if n in chosen else ex.parameter(parameters.index(n)) for n in names}
    if "d" in parameters and re.search(r"(?<![\w.])e(?!\w|\s*(\*\*|\^))", text):
        raise FormulaError("formula: e is Euler's number, but follows d here: give the parameter another name")
    body = ex.substitute(body, {k: places[n] for k, n in enumerate(names)})
    return Model.from_expression(body, parameters, chosen, response)


_known = lru_cache(maxsize=128)(_read)
"""The same formula gives the same model, which keeps its programs."""
