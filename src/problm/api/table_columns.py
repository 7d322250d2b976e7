"""Columns of tables as arguments of a fit: those that the model names, and others that the user names.

A table is a data frame of pandas or polars, a PyArrow table, a mapping of columns, or the path of a file for
`problm.read_columns`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.column_names import with_words
from ..data.named_columns import refuse_lazy
from ..data.sources import is_stored
from ..data.tables import column_names, read_columns, read_labels
from ..models.formula import formula
from ..models.model import Model
from ..support.array_kinds import refuse_units
from ..support.suggest import suggest
from . import arguments as inputs

Array = NDArray[Any]


def columns_of(
    model: Any, x: Any, y: Any, others: Mapping[str, Any], labels: Collection[str] = ()
) -> tuple[Any, Any, Any, list[Any]]:
    """The model, x, y and further arguments, from a table if one is given in place of x.

    Parameters
    ----------
    model : formula, model or function.
    x, y : arrays, or a table and None.
    others : further arguments by name; with a table, text names a column of it.
    labels : those of them whose columns may hold text.

    Examples
    --------
    >>> table = {"t": [0.0, 1.0], "u": [1.0, 0.4], "s": [0.1, 0.2]}
    >>> model, x, y, (sigma,) = columns_of("u ~ a*exp(-t/b)", table, None, {"sigma": "s"})
    >>> x, y, sigma
    (array([0., 1.]), array([1. , 0.4]), array([0.1, 0.2]))
    """
    if y is not None:
        model, x, y = _arrays(model, x, y)
        for argument, given in others.items():
            if isinstance(given, str) and not is_stored([x, y], None):
                raise ValueError(f"{argument}: {given!r} names a column, but y is given: pass a table in place of x")
        return model, x, y, list(others.values())
    refuse_lazy(x)
    path = x if isinstance(x, str | os.PathLike) else None
    keys = _keys(x) if path is None else {name: name for name in column_names(path)}
    present = list(keys)
    if not present:
        raise TypeError("y is needed, or a table (data frame or mapping of columns) in place of x")
    model, named = _with_columns(model, present)
    known = [*present, *named]
    chosen = {argument: given for argument, given in others.items() if isinstance(given, str)}
    for argument, name in chosen.items():
        if name not in known:
            raise ValueError(
                f"{argument}: {name!r} is not a column{suggest(name, present)}; there are {', '.join(present)}"
            )
    wanted = _wanted(model, [c for c in known if c not in chosen.values()]) if isinstance(model, Model) else ()
    missing = [str(n) for n in wanted if n not in known]
    if not wanted or missing:
        raise ValueError(f"the table has the columns {', '.join(present)}; the model needs {', '.join(missing)}")
    if path is not None:
        x = read_columns(path, [named.get(n, n) for n in map(str, wanted)])

    def column(name: str) -> Array:
        return inputs.column(f"column {name!r}", x[keys[named.get(name, name)]]).astype(np.float64)

    def other(argument: str, given: Any) -> Any:
        if argument not in chosen:
            return given
        name = named.get(given, given)
        if argument in labels:
            return complete(f"column {name!r}", x[keys[name]] if path is None else read_labels(path, name))
        return column(given) if path is None else read_columns(path, [name])[name].astype(np.float64)

    arrays = [column(str(n)) for n in wanted]
    rest = [other(argument, given) for argument, given in others.items()]
    return model, arrays[0] if len(arrays) == 2 else np.stack(arrays[:-1]), arrays[-1], rest


def complete(name: str, values: Any) -> Array:
    """Labels of groups, none of them missing."""
    refuse_units(name, values)
    labels = np.asarray(values)
    missing = [row for row, label in enumerate(labels.tolist()) if label is None or label != label]
    if missing:
        raise ValueError(f"{name}: the label of row {missing[0]} is missing")
    return labels


def _arrays(model: Any, x: Any, y: Any) -> tuple[Any, Any, Any]:
    """The model and arrays, of data that are no table."""
    model = formula(model) if isinstance(model, str) else model
    if isinstance(x, tuple | list) and len(x) and np.ndim(x[0]):
        x = np.stack([inputs.numbers(f"x[{i}]", v) for i, v in enumerate(x)])
    if not is_stored([x, y], None):
        read = inputs.numbers if isinstance(model, Model) else inputs.column
        x, y = x if hasattr(x, "columns") else inputs.column("x", read("x", x)), inputs.column("y", y)
    return checked(model), x, y


def _keys(table: Any) -> dict[str, Any]:
    """Columns of a table in memory by their names as text; none if it is something else."""
    keys = table if isinstance(table, Mapping) else getattr(table, "column_names", None)
    return {str(key): key for key in (getattr(table, "columns", ()) if keys is None else keys)}


def _with_columns(model: Any, present: list[str]) -> tuple[Any, dict[str, str]]:
    """The model, whose variables are columns, and the column of each word that is not its name."""
    if not isinstance(model, str):
        return checked(model), {}
    text, named = with_words(model, present)
    known = [*present, *named]
    _, mark, right = text.partition("~")
    if not mark:
        raise ValueError(f"model: name the column to fit on the left, such as {known[-1] + ' ~ ' + text!r}")
    words = formula(right, variables=()).parameters
    chosen = [w for w in words if w in known]
    if not chosen:
        raise ValueError(f"model: none of {', '.join(words)} is a column; there are {', '.join(known)}")
    return formula(text, variables=chosen), named


def _wanted(model: Model, present: Sequence[str]) -> tuple[str, ...]:
    """Columns of the variables and of the response; by position where the model does not name the response."""
    if model.response is not None:
        return (*model.variables, model.response)
    others = [c for c in present if c not in model.variables]
    if len(others) == 1:
        return (*model.variables, others[0])
    if len(present) == len(model.variables) + 1:
        return tuple(present)
    raise ValueError(
        f"the model does not name the column to fit, and the table has the columns {', '.join(present)}: pass x and y, "
        f"or only the columns of {', '.join(model.variables)} and of the response, in this order"
    )


def checked(model: Any) -> Any:
    if not callable(model):
        raise TypeError(f"model must be a formula, a model or a function, got {type(model).__name__}")
    return model
