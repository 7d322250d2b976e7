"""Sums, products and convolutions of models that are expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from . import expression as ex
from .expression import Expression
from .node import topological


class Combinable(Protocol):
    """What this module reads from a model, which is a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def parameters(self) -> tuple[str, ...]: ...
    @property
    def variables(self) -> tuple[str, ...]: ...
    @property
    def response(self) -> str | None: ...
    @property
    def body(self) -> Expression | None: ...
    @property
    def terms(self) -> tuple[Any, ...]: ...


M = TypeVar("M", bound=Combinable)


def add(left: M, right: M | float) -> M:
    """The sum of models, with its list of terms; a number is added to the last term."""
    if isinstance(right, float | int):
        number, terms = float(right), _terms(left)
        return _sum([*terms[:-1], _changed(terms[-1], lambda body: body + number)])
    _check(left, right)
    return _sum([*_terms(left), *_terms(right)])


def scale(model: M, factor: float) -> M:
    """A model times a number, term by term."""
    return _sum([_changed(term, lambda body: body * factor if factor != -1.0 else -body) for term in _terms(model)])


def multiply(left: M, right: M, op: str = "mul") -> M:
    """The product (or quotient) of two models; names that occur in both get the suffixes _1 and _2."""
    _check(left, right)
    (first, second), names = _side_by_side([left, right])
    body = ex.make(op, first, second)
    return replace(left, parameters=names, body=body, terms=(), kind="", _made={})


def convolve(model: M, shifts: Sequence[float], weights: Sequence[float]) -> M:
    """The model convolved with an instrument's response: ``sum over j of weights[j] * model(x - shifts[j])``."""
    at, heights = np.asarray(shifts, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    if at.shape != heights.shape or at.ndim != 1 or not 1 <= len(at) <= 200:
        raise ValueError("convolve: shifts and weights must have the same length, 1 to 200")
    if model.body is None or len(model.variables) != 1:
        raise TypeError("only formulas and ready-made models of one variable can be convolved")
    total = ex.constant(0.0)
    for shift, weight in zip(at.tolist(), heights.tolist(), strict=True):
        total = total + weight * shifted(model.body, shift)
    return replace(model, body=total, terms=(), kind="", _made={})


def shifted(body: Expression, shift: Any, which: int = 0) -> Expression:
    """The expression with a variable less ``shift``, a number or an expression."""
    return ex.substitute(body, {}, {which: ex.variable(which) - shift})


def _terms(model: M) -> tuple[M, ...]:
    return model.terms or (model,)


def _changed(term: M, change: Callable[[Expression], Expression]) -> M:
    if term.body is None:
        raise TypeError("only formulas and ready-made models can be combined; write it inside the function")
    return replace(term, body=change(term.body), terms=(), _made={})


def _check(left: Combinable, right: Combinable) -> None:
    if left.body is None or right.body is None:
        raise TypeError("only formulas and ready-made models can be combined; write it inside the function")
    if left.variables != right.variables and not (_constant(left) or _constant(right)):
        raise ValueError(f"models of different variables, {left.variables} and {right.variables}, cannot be combined")


def _constant(model: Combinable) -> bool:
    """Whether a model is the same everywhere, so that it can be added to one of any variables."""
    return model.body is not None and not any(node.op == "variable" for node in topological([model.body]))


def _sum(terms: Sequence[M]) -> M:
    if len(terms) == 1:
        return terms[0]
    bodies, names = _side_by_side(terms)
    total = ex.constant(0.0)
    for body in bodies:
        total = total + body
    response = next((t.response for t in terms if t.response), None)
    variables = max((t.variables for t in terms if not _constant(t)), key=len, default=terms[0].variables)
    return replace(
        terms[0], parameters=names, variables=variables, response=response, body=total, terms=tuple(terms), kind="",
        _made={},
    )  # fmt: skip


def _side_by_side(terms: Sequence[Combinable]) -> tuple[list[Expression], tuple[str, ...]]:
    """The bodies with separate parameters, and their names; a name that occurs twice gets the number of its term."""
    counts = {n: sum(n in t.parameters for t in terms) for t in terms for n in t.parameters}
    bodies: list[Expression] = []
    names: list[str] = []
    for k, term in enumerate(terms, 1):
        assert term.body is not None
        places = {i: ex.parameter(len(names) + i) for i in range(len(term.parameters))}
        bodies.append(ex.substitute(term.body, places))
        names += [f"{n}_{k}" if counts[n] > 1 else n for n in term.parameters]
    return bodies, tuple(names)
