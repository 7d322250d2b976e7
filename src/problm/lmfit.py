"""A bridge to lmfit: its models and parameters in, its results out, ProBLM in between.

``problm.lmfit.fit(model, data, params, x=x)`` takes the place of ``model.fit(data, params, x=x)`` and returns an
``lmfit.model.ModelResult``: ``fit_report()``, ``plot()``, ``eval()``, confidence intervals and the rest are lmfit's
own. Fixed parameters, bounds and expressions are honoured. Needs lmfit, which ProBLM does not install.

Steps are taken on batches of rows, so the model is evaluated on slices of its independent variables: it must treat
rows alike, as every curve does; a convolution along the rows does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import lmfit
except ImportError as error:
    raise ImportError("problm.lmfit needs lmfit: pip install lmfit") from error

from .api import arguments as inputs
from .api.least_squares import least_squares
from .solver.result import Result

Array = NDArray[np.float64]


def minimize(
    fcn: Callable[..., Any],
    params: lmfit.Parameters,
    data: Any = None,
    *,
    kws: Mapping[str, Any] | None = None,
    **options: Any,
) -> lmfit.minimizer.MinimizerResult:
    """`lmfit.minimize` for very many residuals.

    Parameters
    ----------
    fcn : callable
        ``fcn(params, *rows, **kws) -> (k,)`` residuals of the k rows that it is given.
    params : lmfit.Parameters
    data : tuple of arrays
        With N rows each, lmfit's ``args``. Without them ``fcn(params, **kws)`` returns all residuals.
    kws : mapping, optional
        Further keywords of ``fcn``.
    **options
        Of `problm.least_squares`: method, loss, f_scale, max_iter, accuracy, rng, ...

    Returns
    -------
    lmfit.minimizer.MinimizerResult
        With lmfit's fields, and ``problm``: the `problm.Result`.

    Examples
    --------
    >>> import lmfit, numpy as np, problm.lmfit
    >>> rng = np.random.default_rng(0)
    >>> x = np.linspace(0, 5, 50_000)
    >>> y = 3 * np.exp(-0.8 * x) + 0.1 * rng.standard_normal(x.size)
    >>> params = lmfit.create_params(a=1, b={"value": 1, "min": 0})
    >>> out = problm.lmfit.minimize(lambda p, x, y: p["a"] * np.exp(-p["b"] * x) - y, params, data=(x, y))
    >>> out.success, round(out.params["b"].value, 2), out.params["b"].stderr < 0.01
    (True, 0.8, True)
    """
    given = _copied(params)
    extra = dict(kws or {})
    shared = _Shared(given)

    def residuals(theta: Array, *rows: Any) -> Any:
        return np.asarray(fcn(shared.at(theta), *rows, **extra))

    result = shared.solve(residuals, data, options)
    return _lmfit_result(shared, result, np.asarray(result.fun).ravel(), extra)


def fit(
    model: lmfit.Model,
    data: Any,
    params: lmfit.Parameters | None = None,
    *,
    weights: Any = None,
    options: Mapping[str, Any] | None = None,
    **independent: Any,
) -> lmfit.model.ModelResult:
    """``model.fit(data, params, weights=..., x=x)`` for very many points.

    Parameters
    ----------
    model : lmfit.Model
    data : (N,) array_like
    params : lmfit.Parameters, optional
        By default ``model.make_params()`` with the values among the keywords.
    weights : number or (N,) array_like, optional
        Factors of the residuals, as lmfit's.
    options : mapping, optional
        Of `problm.least_squares`: method, loss, f_scale, max_iter, accuracy, rng, ...
    **independent
        Independent variables, arrays of N rows or other values; and starts of parameters by name.

    Returns
    -------
    lmfit.model.ModelResult
        As lmfit's, with ``method == 'problm'`` and ``problm``: the `problm.Result`.

    Examples
    --------
    >>> import numpy as np, problm.lmfit
    >>> from lmfit.models import GaussianModel
    >>> rng = np.random.default_rng(0)
    >>> x = np.linspace(-5, 5, 50_000)
    >>> model = GaussianModel()
    >>> y = model.eval(x=x, amplitude=10, center=0.5, sigma=1.2) + 0.1 * rng.standard_normal(x.size)
    >>> out = problm.lmfit.fit(model, y, model.guess(y, x=x), x=x)
    >>> out.success, round(out.best_values["sigma"], 2)
    (True, 1.2)
    """
    y = inputs.column("data", data)
    starts = {n: independent.pop(n) for n in list(independent) if n in model.param_names}
    missing = [
        str(n) for n in model.independent_vars if n not in independent and n not in model.independent_vars_defvals
    ]
    if missing:
        raise ValueError(f"the model needs the independent variable {missing[0]!r}: pass {missing[0]}=array")
    unknown = [n for n in independent if n not in model.independent_vars and n not in model.opts]
    if unknown:
        raise TypeError(
            f"{unknown[0]!r} is neither an independent variable nor a parameter of the model "
            f"({', '.join([*model.independent_vars, *model.param_names])})"
        )
    chosen = model.make_params(**starts) if params is None else _copied(params)
    for name, value in starts.items() if params is not None else ():
        chosen[name].value = value
    sliced: dict[str, NDArray[Any]] = {}
    whole: dict[str, Any] = {}
    for name, value in independent.items():
        if np.ndim(value) > 0 and len(value) == len(y):
            sliced[name] = inputs.column(name, value)
        else:
            whole[name] = value
    factors = None if weights is None else np.broadcast_to(np.asarray(weights, dtype=np.float64), (len(y),))
    shared = _Shared(chosen)

    def residuals(theta: Array, y: Any, *rows: Any) -> Any:
        columns = dict(zip(sliced, rows, strict=False))
        values = model.eval(shared.at(theta), **columns, **whole)
        difference = values - y
        return difference * rows[-1] if factors is not None else difference

    table = (y, *sliced.values(), *([] if factors is None else [factors]))
    result = shared.solve(residuals, table, dict(options or {}))
    answer = _lmfit_result(shared, result, np.asarray(result.fun).ravel(), {})
    report = _ModelResult(model, chosen, method="problm", weights=weights, fcn_kws=independent)
    report.answer = answer
    report.fit(data=y, params=chosen, weights=weights, method="problm")
    report.problm = result
    return report


class _ModelResult(lmfit.model.ModelResult):  # type: ignore[misc]
    """lmfit's result of a model's fit, whose minimisation has been done already."""

    answer: lmfit.minimizer.MinimizerResult

    def minimize(self, method: str = "problm", params: Any = None, **kws: Any) -> lmfit.minimizer.MinimizerResult:
        if method == "problm":
            self.result = self.answer
            return self.answer
        return super().minimize(method, params, **kws)  # confidence intervals call lmfit's own


class _Shared:
    """lmfit's parameters as the solver's vector of those that vary."""

    def __init__(self, params: lmfit.Parameters) -> None:
        self.params = params
        self.params.update_constraints()
        self.names = [n for n, p in params.items() if p.vary and p.expr is None]
        if not self.names:
            raise ValueError("params: no parameter varies, so there is nothing to fit")
        self.start = np.array([params[n].value for n in self.names])
        self.lower = np.array([params[n].min for n in self.names])
        self.upper = np.array([params[n].max for n in self.names])
        self.tied = any(p.expr is not None for p in params.values())
        self.initial = deepcopy(params)

    def at(self, theta: Array) -> lmfit.Parameters:
        """The parameters at a point; the same object every time."""
        for name, value in zip(self.names, theta.tolist(), strict=True):
            self.params[name].value = value
        if self.tied:
            self.params.update_constraints()
        return self.params

    def solve(self, residuals: Any, data: Any, options: dict[str, Any]) -> Result:
        result = least_squares(residuals, self.start, data=data, bounds=(self.lower, self.upper), **options)
        result.names = tuple(self.names)
        return result


def _copied(params: Any) -> lmfit.Parameters:
    if not isinstance(params, lmfit.Parameters):
        raise TypeError(f"params must be lmfit.Parameters, got {type(params).__name__}; see lmfit.create_params")
    return deepcopy(params)


def _lmfit_result(
    shared: _Shared, result: Result, residual: Array, kws: dict[str, Any]
) -> lmfit.minimizer.MinimizerResult:
    """Fill lmfit's result: best values, standard errors, correlations, statistics."""
    params = shared.at(np.asarray(result.x))
    covariance = result.covariance
    errors = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    good = not result.singular and bool((errors > 0).all())
    for parameter in params.values():
        parameter.stderr, parameter.correl = (0.0, None) if good else (None, None)
    if good:
        for i, name in enumerate(shared.names):
            params[name].stderr = float(errors[i])
            params[name].correl = {
                other: float(covariance[i, j] / (errors[i] * errors[j]))
                for j, other in enumerate(shared.names)
                if j != i
            }
    count, free = len(residual), len(shared.names)
    chi2 = max(float(residual @ residual), 1e-250 * count)
    likelihood = count * float(np.log(chi2 / count))
    answer = lmfit.minimizer.MinimizerResult(
        params=params, init_vals=shared.start.tolist(), init_values=shared.initial.valuesdict(),
        var_names=shared.names, covar=covariance if good else None, errorbars=good, method="problm",
        success=result.success, message=result.message, status=int(result.status), aborted=False,
        nfev=result.nfev, nvarys=free, ndata=count, nfree=count - free, residual=residual, chisqr=chi2,
        redchi=chi2 / max(1, count - free), aic=likelihood + 2 * free, bic=likelihood + float(np.log(count)) * free,
        call_kws=kws, problm=result,
    )  # fmt: skip
    if good:
        answer.uvars = params.create_uvars(covar=covariance)  # and the errors of tied parameters with them
    return answer
