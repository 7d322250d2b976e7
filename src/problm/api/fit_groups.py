"""Global fits: one model for several groups of data, with shared parameters and parameters per group."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..inference.fit import Fit
from ..models import expression as ex
from ..models.model import Model
from ..support.suggest import suggest
from .arguments import numbers
from .fit import fit
from .table_columns import columns_of, complete

Array = NDArray[np.float64]
_MOST = 60
"""Largest number of groups: every row evaluates the curves of all groups."""


def fit_groups(
    model: Any,
    x: Any,
    y: Any = None,
    groups: Any = None,
    *,
    shared: Sequence[str] = (),
    sigma: Any = None,
    p0: Any = None,
    **options: Any,
) -> Fit:
    """Fit several groups of data together.

    Parameters
    ----------
    model : str or model
        A formula or a ready-made model of one variable.
    x, y : (N,) array_like
        Or a table in place of x, as for `problm.fit`, with the columns that the formula names.
    groups : (N,) array_like, or the name of a column
        The group of each point: numbers or names, at most 60 different ones.
    shared : sequence of str
        Parameters that all groups share. The others are fitted per group, and are called ``name_group``.
    sigma : number, (N,) array_like, or the name of a column
        Standard deviations of y.
    p0 : mapping, optional
        Start values by parameter name (``name_group``, or ``name`` for all groups); by default guessed for each group.
    **options
        Options of `problm.fit`: absolute_sigma, bounds and fixed by name as p0, ties, loss, ...

    Returns
    -------
    `Fit`
        A fit whose variables are x and the number of the group among the sorted groups: ``fit.predict((x, k))``.

    Examples
    --------
    >>> import numpy as np, problm
    >>> rng = np.random.default_rng(0)
    >>> x, group = np.tile(np.linspace(0, 5, 50), 3), np.repeat(["a", "b", "c"], 50)
    >>> height = {"a": 1.0, "b": 2.0, "c": 4.0}
    >>> y = np.array([height[g] for g in group]) * np.exp(-0.7 * x) + 0.02 * rng.standard_normal(150)
    >>> fit = problm.fit_groups("y ~ h*exp(-k*x)", x, y, group, shared=["k"])
    >>> print(fit.params["k"])
    k = 0.6988 ± 0.0022
    >>> print(fit.params["h_c"])
    h_c = 3.9964 ± 0.0092
    """
    if groups is None:
        raise TypeError("groups is needed: the group of each point, or the name of a column of the table")
    given = {"groups": groups, "sigma": sigma}
    model, x, y, (groups, sigma) = columns_of(model, x, y, given, labels=("groups",))
    if not isinstance(model, Model) or model.body is None or len(model.variables) != 1:
        raise TypeError("fit_groups needs a formula or a ready-made model of one variable")
    x, y, sigma = numbers("x", x), numbers("y", y), None if sigma is None else numbers("sigma", sigma)
    names, codes = np.unique(complete("groups", groups), return_inverse=True)
    if x.ndim != 1 or x.shape != y.shape or codes.shape != y.shape:
        raise ValueError(f"x, y and groups must have the same length, got {x.shape}, {y.shape} and {codes.shape}")
    if len(names) > _MOST:
        raise ValueError(f"groups: {len(names)} groups given, at most {_MOST} can be fitted together; see fit_many")
    for name in shared:
        if name not in model.parameters:
            raise ValueError(f"shared: the model has no parameter {name!r}{suggest(name, model.parameters)}")
    own = [n for n in model.parameters if n not in shared]
    joint = joined(model, [_label(n) for n in names.tolist()], list(shared), own)
    robust = options.get("loss", "linear") != "linear"
    start = _starts(model, x, y, codes, joint, list(shared), own, robust)
    for argument in ("bounds", "fixed"):
        if isinstance(options.get(argument), Mapping):
            options[argument] = _in_all_groups(argument, options[argument], joint, own)
    given = _in_all_groups("p0", p0 or {}, joint, own)
    return fit(joint, np.stack([x, codes.astype(np.float64)]), y, sigma=sigma, p0={**start, **given}, **options)


def _in_all_groups(argument: str, given: Any, joint: Model, own: Sequence[str]) -> dict[str, Any]:
    """Values by the names of the joint model; a name of the group's model stands for that parameter of every group."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{argument} must be a mapping from names of parameters, got {type(given).__name__}")
    found = {}
    for name, value in given.items():
        each = [n for n in joint.parameters if name in own and n.startswith(f"{name}_")]
        if not each and name not in joint.parameters:
            known = [*own, *joint.parameters]
            raise ValueError(f"{argument}: there is no parameter {name!r}{suggest(name, known)}")
        found.update(dict.fromkeys(each or [name], value))
    return {**found, **{name: value for name, value in given.items() if name in joint.parameters}}


def joined(model: Model, labels: Sequence[str], shared: Sequence[str], own: Sequence[str]) -> Model:
    """The model of two variables, x and the number of the group."""
    assert model.body is not None
    names = [*shared, *(f"{n}_{label}" for label in labels for n in own)]
    if len(set(names)) != len(names):
        raise ValueError("groups: some groups lead to the same parameter name; rename them")
    bodies = []
    for k in range(len(labels)):
        places = {model.parameters.index(n): ex.parameter(i) for i, n in enumerate(shared)}
        first = len(shared) + k * len(own)
        places |= {model.parameters.index(n): ex.parameter(first + i) for i, n in enumerate(own)}
        bodies.append(ex.substitute(model.body, places))
    total = bodies[-1]
    for k in range(len(labels) - 2, -1, -1):
        total = ex.where(ex.variable(1) < k + 0.5, bodies[k], total)
    return Model.from_expression(total, names, (model.variables[0], "group"), model.response)


def _starts(
    model: Model,
    x: Array,
    y: Array,
    codes: NDArray[Any],
    joint: Model,
    shared: list[str],
    own: list[str],
    robust: bool,
) -> dict[str, float]:
    """Guesses for each group by itself; their median for shared parameters."""
    guesses = np.array([model.guess(x[codes == k], y[codes == k], robust) for k in range(int(codes.max()) + 1)])
    values = [float(np.median(guesses[:, model.parameters.index(n)])) for n in shared]
    values += [float(guess[model.parameters.index(n)]) for guess in guesses for n in own]
    return dict(zip(joint.parameters, values, strict=True))


def _label(name: Any) -> str:
    """A group's name as part of a parameter's name."""
    text = f"{name:g}" if isinstance(name, float) else str(name)
    return re.sub(r"\W", "_", text)
