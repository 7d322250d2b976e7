"""Fits as JSON: parameters, errors, statistics and the model if it is an expression, but not the data."""

from __future__ import annotations

import json
import os
from typing import Any, TypeVar

import numpy as np

from ..models.expression_file import from_nodes, to_nodes
from ..models.model import Model
from ..models.ties import Ties
from ..report.serialize import plain
from ..solver import saved
from ..solver.result import Result
from ..support.files import write_atomically
from .estimate import Estimate
from .shown import formula_of

F = TypeVar("F", bound=Estimate)
FORMAT, VERSION = "problm.fit", 1


def to_dict(fit: Estimate) -> dict[str, Any]:
    """Return the fit as numbers, text, lists and dicts only."""
    body = getattr(fit.model, "body", None)
    model = None
    if body is not None:
        model = {"variables": list(fit.model.variables), "response": fit.model.response, "nodes": to_nodes(body)}
    return {
        "format": FORMAT,
        "version": VERSION,
        "formula": formula_of(fit),
        "params": {
            p.name: {"value": p.value, "error": plain(p.error), "fixed": p.fixed, "tie": p.tie, "at_bound": p.at_bound}
            for p in fit.params.values()
        },
        "chi2": plain(fit.chi2),
        "reduced_chi2": plain(fit.reduced_chi2),
        "aic": plain(fit.aic),
        "bic": plain(fit.bic),
        "r2": plain(fit.r2) if fit.y is not None and getattr(fit.sigma, "ndim", 1) < 2 else None,
        "warnings": list(fit.warnings),
        "absolute_sigma": fit.absolute_sigma,
        "loss": fit.loss,
        "names": list(fit.names),
        "free": list(fit.ties.free),
        "ties": dict(fit.ties.texts),
        "model": model,
        "result": fit.result.to_dict(),
    }


def save(fit: Estimate, path: str | os.PathLike[str]) -> None:
    """Write a fit atomically."""
    write_atomically(path, json.dumps(to_dict(fit), indent=1, allow_nan=False) + "\n")


def load(
    kind: type[F], path: str | os.PathLike[str], model: Any = None, *, x: Any = None, y: Any = None, sigma: Any = None
) -> F:
    """Read a fit that `save` wrote, with its data if they are given.

    The file is not trusted: a model consists of known operations only, ties are formulas, sizes are limited.

    Parameters
    ----------
    kind
        The class of the returned fit.
    path
    model
        The fitted function, if it was a Python function.
    x, y, sigma
        The data, needed for residuals, leverage and plots.
    """
    data = saved.read_json(path)
    path = os.fspath(path)
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
        raise ValueError(f"{path} is not a saved fit of version {VERSION}")
    try:
        names = tuple(map(str, data["names"]))
        if model is None and data["model"] is not None:
            kept = data["model"]
            variables = tuple(map(str, kept["variables"]))
            body = from_nodes(kept["nodes"], len(names), len(variables))
            model = Model.from_expression(body, names, variables, str(kept["response"]))
        ties = Ties.read(names, data["ties"], data["free"])
        result = Result.from_dict(data["result"])
        if not np.shape(result.x) == np.shape(result.grad) == (len(ties.free),):
            raise ValueError(f"{np.shape(result.x)} values for {len(ties.free)} free parameters")
        known = {"absolute_sigma": bool(data["absolute_sigma"]), "loss": str(data["loss"])}
        doubts = tuple(map(str, data["warnings"]))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if model is None:
        raise ValueError(f"{path} holds a fit of a Python function, {data.get('formula')}: give it as model=")
    return kind(model, ties, result, x, y, sigma, warnings=doubts, **known)  # type: ignore[arg-type]
