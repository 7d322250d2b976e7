r"""Fits of counts: Poisson likelihood as least squares of deviance residuals.

The deviance ``2 sum (f - y + y log(y / f))`` is twice the difference of the log likelihoods of a perfect model and f.
Written as a sum of squares of ``sign(f - y) sqrt(...)`` it has the same minimum, so that Levenberg-Marquardt, batches
and bounds work as for any curve. The covariance is the inverse of Fisher's information, ``sum f'_a f'_b / f``. The
deviance of a binomial count is the sum of two such terms, of successes and of failures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..inference.estimate import by_name
from ..inference.fit import Fit
from ..models import expression as ex
from ..models.expression import Expression
from ..models.model import Model
from ..models.ties import Ties
from ..solver.result import Result
from .arguments import numbers
from .fit import bounds_of, mask_of
from .least_squares import least_squares
from .table_columns import columns_of

_LEAST = 1e-9
"""Smallest expected count: the likelihood is zero where a model is not positive."""


def deviance(f: Expression, y: Expression) -> Expression:
    """Deviance residual of a count y with expected value f; smooth where they agree."""
    f = ex.make("maximum", f, ex.constant(_LEAST))
    t = y / f - 1.0
    near = abs(t) < 1e-2
    safe = ex.where(near, 1.0, t)
    # f (1 - s + s log s) with s = y / f; y = 0 has s log s = 0.
    far = f * ((1.0 + safe) * ex.make("log_or_zero", 1.0 + safe) - safe)
    series = 1.0 - t * (1.0 / 3.0 - t * (1.0 / 6.0 - t * (0.1 - t * (1.0 / 15.0))))
    sign = ex.where(t > 0.0, -1.0, 1.0)
    return ex.where(near, -t * ex.sqrt(f * series), sign * ex.sqrt(2.0 * far))


def fit_counts(
    model: Any,
    x: Any,
    counts: Any = None,
    *,
    trials: Any = None,
    p0: Any = None,
    bounds: Any = None,
    fixed: Any = None,
    **options: Any,
) -> Fit:
    """Fit counts by maximum likelihood, Poisson's or binomial; many of them may be zero.

    Parameters
    ----------
    model : str or model
        A formula or a ready-made model of the expected counts; with ``trials`` of the probability.
    x : (N,) or (k, N) array_like, or a table
        Without ``counts``: a table, as for `problm.fit`, with the columns that the formula names.
    counts : (N,) array_like
        Whole numbers, at least 0.
    trials : int, (N,) array_like, or the name of a column, optional
        Numbers of trials, of which ``counts`` succeeded: the likelihood is binomial.
    p0, bounds, fixed
        As for `problm.fit`; starts that are not given are guessed.
    **options
        Options of `problm.least_squares`.

    Returns
    -------
    `Fit`
        ``chi2`` is the deviance, ``sigma`` the standard deviation that the model expects, errors come from Fisher's
        information, and profiles are those of the likelihood. With ``trials``, ``y`` are the observed shares.

    Examples
    --------
    >>> import numpy as np, problm
    >>> rng = np.random.default_rng(0)
    >>> x = np.linspace(0, 10, 200)
    >>> counts = rng.poisson(6.0 * np.exp(-0.5 * ((x - 4) / 0.8) ** 2) + 0.5)
    >>> peak = problm.models.gaussian() + problm.models.constant_background()
    >>> print(problm.fit_counts(peak, x, counts).params["center"])
    center = 3.978 ± 0.061
    >>> dead = rng.binomial(20, 1 / (1 + np.exp(-2 * (x - 5))))
    >>> print(problm.fit_counts("1/(1 + exp(-k*(x - m)))", x, dead, trials=20).params["m"])
    m = 5.055 ± 0.036
    """
    model, x, counts, (trials,) = columns_of(model, x, counts, {"trials": trials})
    if not isinstance(model, Model) or model.body is None:
        raise TypeError("fit_counts needs a formula or a ready-made model")
    y = numbers("counts", counts).ravel()
    wrong = np.flatnonzero(~((y >= 0.0) & (y % 1.0 == 0.0)))
    if len(wrong):
        raise ValueError(f"counts must be whole numbers, at least 0; row {wrong[0]} is {y[wrong[0]]}")
    x = numbers("x", x)
    n = None if trials is None else _trials(trials, y)
    names = model.parameters
    limits, mask = bounds_of(bounds, names), mask_of(fixed, names)
    given = dict(p0) if isinstance(p0, Mapping) else dict(zip(names, [] if p0 is None else p0, strict=p0 is not None))
    known = {**by_name(names, given, "p0"), **by_name(names, fixed if isinstance(fixed, Mapping) else {}, "fixed")}
    shown = y if n is None else y / n
    start = np.clip(model.guess(x, shown), *limits) if len(known) < len(names) else np.zeros(len(names))
    start[list(known)] = list(known.values())
    residual = _residual(model, n is not None)

    def rows(x: Any, y: Any) -> tuple[Any, ...]:
        if n is None:
            return (*np.atleast_2d(x), y)
        if x is not here and np.ptp(n) > 0.0:
            raise ValueError("bootstraps of rows need the same number of trials everywhere")
        part = np.repeat([0.0, 1.0], len(y))
        return (*np.tile(np.atleast_2d(x), 2), np.concatenate([y * n, n - y * n]), np.tile(n, 2), part)

    here = x

    def refit(start: Any, x: Any = x, y: Any = shown, sigma: Any = None, fixed: Any = mask) -> Result:
        held = np.zeros(len(names), dtype=bool) if fixed is None else fixed
        free = (np.where(held, -np.inf, limits[0]), np.where(held, np.inf, limits[1]))
        return least_squares(residual, start, data=rows(x, y), bounds=free, fixed=fixed, **options)

    def objective(theta: Any) -> float:
        return float(np.sum(np.square(residual(rows(x, shown), *theta))))

    result = refit(start)
    expected = np.maximum(np.asarray(model(x, *result.x)), _LEAST)
    spread = np.sqrt(expected if n is None else expected * np.maximum(1.0 - expected, _LEAST) / n)
    J = model.jacobian(x, *result.x) / spread[:, None]
    result = replace(
        result, n=len(y), batch_size=len(y), hessian=J.T @ J, covariance_root=None, absolute=True, names=names
    )
    return Fit(model, Ties.read(names, {}), result, x, shown, spread, absolute_sigma=True, bounds=limits, refit=refit,
               objective=objective)  # fmt: skip


def _trials(trials: Any, counts: Any) -> Any:
    n = np.broadcast_to(numbers("trials", trials), counts.shape)
    wrong = np.flatnonzero(~((n >= np.maximum(counts, 1.0)) & (n % 1.0 == 0.0)))
    if len(wrong):
        row = wrong[0]
        raise ValueError(f"trials must be whole numbers, at least counts; row {row} is {n[row]} with {counts[row]}")
    return n


def _residual(model: Model, binomial: bool) -> Model:
    """Deviance residuals. The binomial deviance is the sum of two of Poisson's, of successes and of failures."""
    assert model.body is not None
    k, names = len(model.variables), (*model.variables, "counts")
    if not binomial:
        return Model.from_expression(deviance(model.body, ex.variable(k)), model.parameters, names)
    share = ex.where(ex.variable(k + 2) == 0.0, model.body, 1.0 - model.body)
    body = deviance(ex.variable(k + 1) * share, ex.variable(k))
    return Model.from_expression(body, model.parameters, (*names, "trials", "part"))
