"""Reasons to doubt a fit, as sentences.

At most `SAMPLE` rows are examined, in the order of x, so the cost does not depend on N. If residuals are much larger
than the scatter between neighbouring points, the model misses structure. The measure is von Neumann's ratio of the mean
squared difference of neighbours to the variance, which is 2 for independent residuals.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .estimate import Estimate

Array = NDArray[np.float64]
SAMPLE = 20_000
_USUAL = 6.0
"""Largest residual of a robust fit that is no outlier, in units of their median size: four standard deviations."""
SERIOUS = ("undetermined", "correlated", "poor", "systematic", "coincident")
"""Kinds of doubts that another start may resolve."""


def doubts(fit: Estimate) -> dict[str, str]:
    """Sentences by kind of doubt; empty for a fit that looks right."""
    found: dict[str, str] = {}
    if fit.result.singular:
        found["undetermined"] = "the data do not determine all parameters: some can change without changing the curve"
    bound = [p.name for p in fit.params.values() if p.at_bound and not p.fixed]
    if bound:
        found["bound"] = f"{_listed(bound)} at a bound: errors and intervals there are not valid"
    pairs = _correlated(fit)
    if pairs and not fit.result.singular:
        found["correlated"] = f"the data hardly tell apart {_listed(pairs)}: correlated by more than 0.999"
    if isinstance(fit.y, np.ndarray | list) and np.ndim(fit.sigma) < 2:
        found |= _of_rows(fit)
    return found


def _correlated(fit: Estimate) -> list[str]:
    correlation = np.nan_to_num(fit.correlation)
    free = [i for i, p in enumerate(fit.params.values()) if p.tie is None]
    pairs = [(i, j) for i, j in itertools.combinations(free, 2) if abs(correlation[i, j]) > 0.999]
    return [f"{fit.names[i]} and {fit.names[j]}" for i, j in pairs]


def _of_rows(fit: Estimate) -> dict[str, str]:
    x, y, deviations = sample(fit)
    n, body = len(y), getattr(fit.model, "body", None)
    residuals = (y - fit.predict(x).ravel()) / deviations
    usual = np.ones(n, dtype=bool)
    if fit.loss != "linear":  # outliers are not to be explained
        usual = np.abs(residuals) <= _USUAL * np.median(np.abs(residuals))
    spread = float(np.var((y / deviations)[usual])) if usual.any() else 0.0
    left = float(np.mean(residuals[usual] ** 2)) if usual.any() else 0.0
    found: dict[str, str] = {}
    if n < 10 or left <= 1e-14 * spread:  # too few rows to judge, or an exact fit
        return found
    explained = 1.0 - left / spread if spread > 0.0 else 1.0
    if explained < 0.1 and (body is None or body.rowwise):
        found["poor"] = f"the model explains {max(0.0, 100.0 * explained):.2g} % of the variance of the data"
    if np.ndim(x) == 1:
        order = np.argsort(x, kind="stable")
        steps = np.diff(residuals[order])
        ratio = float(steps @ steps) / (n - 1) / (2.0 * max(float(np.var(residuals)), np.finfo(float).tiny))
        if ratio < 0.67 and (1.0 - ratio) > 4.0 * np.sqrt((n - 2.0) / (n * n - 1.0)):
            found["systematic"] = (
                f"residuals are {1.0 / np.sqrt(max(ratio, 1e-12)):.2g} times the scatter between neighbouring points: "
                "the model misses structure in the data, or this is not the best fit"
            )
        found |= _coincident(fit, x)
    return found


def _coincident(fit: Estimate, x: Any) -> dict[str, str]:
    """Report terms of a sum that have become the same curve."""
    terms, curves, place = getattr(fit.model, "terms", ()), [], 0
    for term in terms:
        values = np.asarray(term(x, *fit.values[place : place + len(term.parameters)]), dtype=np.float64)
        place += len(term.parameters)
        size = float(np.linalg.norm(values))
        curves.append(values / size if size > 0.0 else values)
    same = [
        f"{i + 1} and {j + 1}"
        for i, j in itertools.combinations(range(len(terms)), 2)
        if terms[i].kind == terms[j].kind and abs(float(curves[i] @ curves[j])) > 0.9999
    ]
    return {"coincident": f"terms {_listed(same)} of the sum coincide: one of them may be too many"} if same else {}


def sample(fit: Estimate) -> tuple[Any, Array, Array]:
    """x, y and sigma of at most `SAMPLE` rows."""
    y, deviations = fit.observed, fit.deviations
    x = fit.x if hasattr(fit.x, "iloc") else np.asarray(fit.x)
    if len(y) <= SAMPLE:
        return x, y, deviations
    rows = np.unique(np.random.default_rng(0).integers(0, len(y), SAMPLE))
    return (x.iloc[rows] if hasattr(x, "iloc") else x[..., rows]), y[rows], deviations[rows]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if len(names) < 4 else (
        f"{', '.join(names[:3])}, ..."
    )  # fmt: skip
