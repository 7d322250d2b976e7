"""Ties between parameters: some parameters of a model as expressions of others.

A tie is text, ``{"s2": "2*s1"}``, read by the parser of formulas. The fitted model has the expressions in place of the
tied parameters, so its derivatives stay exact, and it runs compiled like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..support.suggest import suggest
from . import expression as ex
from .derivatives import derivatives
from .expression import Expression
from .formula import formula
from .model import Model

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Ties:
    """A model's parameters as functions of the free ones.

    Examples
    --------
    >>> ties = Ties.read(("s1", "s2"), {"s2": "2*s1"})
    >>> ties.free, ties.full([3.0])
    (('s1',), array([3., 6.]))
    """

    names: tuple[str, ...]
    """All parameters of the model."""
    free: tuple[str, ...]
    """Parameters that are fitted."""
    expressions: tuple[Expression, ...]
    """Expression of each parameter of `names` in terms of the free parameters."""
    texts: Mapping[str, str]
    """The ties as given by the user."""

    @classmethod
    def read(cls, names: Sequence[str], ties: Mapping[str, str], extra: Sequence[str] = ()) -> Ties:
        """Read ties by name; ``extra`` are free parameters that only occur in ties."""
        known = (*names, *(n for n in extra if n not in names))
        bodies: dict[str, Model] = {}
        for name, text in ties.items():
            if name not in names:
                raise ValueError(f"ties: the model has no parameter {name!r}{suggest(name, names)}")
            bodies[name] = formula(str(text), variables=())
            for used in bodies[name].parameters:
                if used not in known:
                    raise ValueError(
                        f"ties: {used!r} in {name} = {text} is not a parameter{suggest(used, known)}; "
                        "a new one needs a start in p0"
                    )
        free = tuple(n for n in known if n not in bodies)
        if not free:
            raise ValueError("ties: all parameters are tied, so there is nothing to fit")
        made: dict[str, Expression] = {n: ex.parameter(i) for i, n in enumerate(free)}
        while len(made) < len(known):
            ready = [n for n in bodies if n not in made and all(u in made for u in bodies[n].parameters)]
            if not ready:
                raise ValueError(f"ties: {', '.join(n for n in bodies if n not in made)} are tied in a circle")
            for n in ready:
                body = bodies[n].body
                assert body is not None
                made[n] = ex.substitute(body, {i: made[u] for i, u in enumerate(bodies[n].parameters)})
        return cls(tuple(names), free, tuple(made[n] for n in names), dict(ties))

    def full(self, theta: Any) -> Array:
        """Values (len(names),) of all parameters for given free ones."""
        values = ex.evaluate(self.expressions, list(np.asarray(theta, dtype=np.float64)), [])
        return np.array(values, dtype=np.float64)

    def jacobian(self, theta: Any) -> Array:
        """(len(names), len(free)) derivatives of all parameters with respect to the free ones."""
        by = derivatives(list(self.expressions), len(self.free))
        point = list(np.asarray(theta, dtype=np.float64))
        return np.array([ex.evaluate(row, point, []) for row in by], dtype=np.float64)

    def apply(self, model: Any) -> Any:
        """The model, or function ``f(x, *parameters)``, as one of the free parameters."""
        if self.free == self.names:
            return model
        if isinstance(model, Model) and model.body is not None:
            body = ex.substitute(model.body, dict(enumerate(self.expressions)))
            return replace(model, parameters=self.free, body=body, terms=(), kind="", _made={})
        return lambda x, *theta: model(x, *self.full(theta))

    def apply_to_jacobian(self, jac: Callable[..., Any]) -> Callable[..., Any]:
        """Derivatives with respect to the free parameters, from those with respect to all of them."""
        if self.free == self.names:
            return jac
        return lambda x, *theta: np.asarray(jac(x, *self.full(theta))) @ self.jacobian(theta)
