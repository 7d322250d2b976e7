r"""Values that are only known to lie beyond a limit: below detection, or above saturation.

A measured value contributes ``((f - y) / sigma)^2``, a limit ``-2 log Phi(z)`` with ``z = (f - y) / sigma`` for values
at least y and ``z = (y - f) / sigma`` for values at most y. Each term is the square of a residual, so the sum is an
ordinary least-squares problem with the same minimum as the likelihood (the Tobit model with known sigma).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import special

from ...inference.estimate import by_name
from ...inference.fit import Fit
from ...models import expression as ex
from ...models.expression import Expression
from ...models.model import Model
from ...models.ties import Ties
from ...solver.result import Result
from ..arguments import numbers
from ..fit import bounds_of, mask_of
from ..least_squares import least_squares
from ..table_columns import columns_of

_FAR = -5.0
"""z below which an expansion replaces the error function, which underflows."""


def limit_residual(z: Expression) -> Expression:
    """``sqrt(-2 log Phi(z))``, smooth for all z."""
    near = ex.make("maximum", z, ex.constant(_FAR))
    tail = 0.5 * ex.make("erfc", near * math.sqrt(0.5))  # 1 - Phi
    inside = -2.0 * ex.make("log1p", -ex.make("minimum", tail, ex.constant(1.0 - 1e-7)))
    inside = ex.make("maximum", inside, ex.constant(1e-300))
    far = ex.make("minimum", z, ex.constant(_FAR))
    square = far * far
    series = ex.make("log1p", (-1.0 + (3.0 - 15.0 / square) / square) / square)
    outside = square + 2.0 * ex.make("log", -far) + math.log(2.0 * math.pi) - 2.0 * series
    return ex.sqrt(ex.where(z < _FAR, outside, inside))


def fit_censored(
    model: Any,
    x: Any,
    y: Any = None,
    limit: Any = None,
    sigma: Any = None,
    *,
    p0: Any = None,
    bounds: Any = None,
    fixed: Any = None,
    **options: Any,
) -> Fit:
    """Fit data of which some values are only known to lie below or above a limit.

    Parameters
    ----------
    model : str or model
        A formula or a ready-made model.
    x : (N,) or (k, N) array_like, or a table
        Without ``y``: a table, as for `problm.fit`, with the columns that the formula names.
    y : (N,) array_like
        Measured values, or limits.
    limit : (N,) array_like, or the name of a column
        0 where y was measured, -1 where the value is at most y, and 1 where it is at least y.
    sigma : number, (N,) array_like, or the name of a column
        Standard deviations, in the units of y.
    p0, bounds, fixed
        As for `problm.fit`; starts that are not given are guessed, with limits taken as values.
    **options
        Options of `problm.least_squares`.

    Returns
    -------
    `Fit`
        ``chi2`` is -2 log likelihood up to a constant; errors come from the information of the data, and profiles from
        the likelihood.

    Examples
    --------
    >>> import numpy as np, problm
    >>> rng = np.random.default_rng(0)
    >>> x = np.linspace(0, 5, 400)
    >>> y = 3 * np.exp(-x) + 0.1 * rng.standard_normal(x.size)
    >>> below = y < 0.2                                       # the instrument does not go lower
    >>> fit = problm.fit_censored("y ~ a*exp(-b*x)", x, np.where(below, 0.2, y), np.where(below, -1, 0), 0.1)
    >>> print(fit.params["b"])
    b = 0.999 ± 0.011
    """
    for name, value in (("limit", limit), ("sigma", sigma)):
        if value is None:
            raise TypeError(f"{name} is needed")
    model, x, y, (limit, sigma) = columns_of(model, x, y, {"limit": limit, "sigma": sigma})
    if not isinstance(model, Model) or model.body is None:
        raise TypeError("fit_censored needs a formula or a ready-made model")
    x, y = numbers("x", x), numbers("y", y).ravel()
    kinds = numbers("limit", limit).ravel()
    if kinds.shape != y.shape or not np.isin(kinds, (-1.0, 0.0, 1.0)).all():
        raise ValueError(f"limit must hold -1, 0 or 1 for each of the {len(y)} values of y")
    spread = np.broadcast_to(numbers("sigma", sigma), y.shape)
    if not (np.isfinite(spread).all() and (spread > 0.0).all()):
        raise ValueError("sigma must be positive and finite: limits weigh against the errors of the other values")
    names = model.parameters
    held, mask = bounds_of(bounds, names), mask_of(fixed, names)
    given = dict(p0) if isinstance(p0, Mapping) else dict(zip(names, [] if p0 is None else p0, strict=p0 is not None))
    known = {**by_name(names, given, "p0"), **by_name(names, fixed if isinstance(fixed, Mapping) else {}, "fixed")}
    start = np.clip(model.guess(x, y), *held) if len(known) < len(names) else np.zeros(len(names))
    start[list(known)] = list(known.values())
    k = len(model.variables)
    z = (model.body - ex.variable(k)) / ex.variable(k + 1)
    side = ex.variable(k + 2)
    body = ex.where(side == 0.0, z, limit_residual(z * ex.where(side == 0.0, 1.0, side)))
    residual = Model.from_expression(body, names, (*model.variables, "value", "sigma", "limit"))

    def refit(start: Any, x: Any = x, y: Any = y, sigma: Any = spread, fixed: Any = mask) -> Result:
        off = np.zeros(len(names), dtype=bool) if fixed is None else fixed
        free = (np.where(off, -np.inf, held[0]), np.where(off, np.inf, held[1]))
        if len(y) != len(kinds):
            raise ValueError("bootstraps of rows are not available for limits")
        rows = (*np.atleast_2d(x), y, np.array(sigma), kinds)
        return least_squares(residual, start, data=rows, bounds=free, fixed=fixed, **options)

    def objective(theta: Any) -> float:
        return float(np.sum(np.square(residual((*np.atleast_2d(x), y, spread, kinds), *theta))))

    result = refit(start)
    at = (np.asarray(model(x, *result.x)) - y) / spread * np.where(kinds == 0.0, 1.0, kinds)
    ratio = np.exp(-0.5 * at * at - special.log_ndtr(at)) / math.sqrt(2.0 * math.pi)
    weight = np.where(kinds == 0.0, 1.0, ratio * (ratio + at))  # second derivative of the terms
    J = model.jacobian(x, *result.x) / spread[:, None]
    result = replace(result, hessian=(J * weight[:, None]).T @ J, covariance_root=None, absolute=True, names=names)
    return Fit(model, Ties.read(names, {}), result, x, y, spread, absolute_sigma=True, bounds=held, refit=refit,
               objective=objective)  # fmt: skip
