"""A bridge to lmfit: fit its models and parameters with ProBLM, and get its results.

``problm.lmfit.fit(model, data, params, x=x)`` replaces ``model.fit(data, params, x=x)`` and returns an
``lmfit.model.ModelResult``. Everything after the fit is lmfit's own: ``fit_report()``, ``plot()``, ``eval()``,
confidence intervals. So is everything before it: pandas indices, lists, missing values, starts. Fixed parameters,
bounds and expressions are honoured. Needs lmfit, which ProBLM does not install.

Steps are taken on batches of rows. A model whose rows depend on each other, such as a convolution, is recognised and
gets all rows in every call. So do complex data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from types import FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import lmfit
except ImportError as error:
    raise ImportError("problm.lmfit needs lmfit: pip install lmfit") from error

from .api import arguments as inputs
from .api.least_squares import least_squares
from .solver.result import Result, Status

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
        ``fcn(params, *rows, **kws) -> (k,)`` residuals of the k given rows.
    params : lmfit.Parameters
    data : tuple of arrays
        Arrays with N rows each; lmfit's ``args``. If not given, ``fcn(params, **kws)`` returns all residuals.
    kws : mapping, optional
        Further keywords of ``fcn``.
    **options
        Options of `problm.least_squares`: method, loss, f_scale, max_iter, accuracy, rng, ...

    Returns
    -------
    lmfit.minimizer.MinimizerResult
        lmfit's fields, and the `problm.Result` as ``problm``.

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
    rows = {} if data is None else {str(i): column for i, column in enumerate(inputs.columns(data))}
    minimizer = _Minimizer(fcn, _copied(params), fcn_args=tuple(rows.values()), fcn_kws=dict(kws or {}), **options)
    return _solved(minimizer, None, rows)


def fit(
    model: lmfit.Model,
    data: Any,
    params: lmfit.Parameters | None = None,
    weights: Any = None,
    *,
    options: Mapping[str, Any] | None = None,
    fit_kws: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> lmfit.model.ModelResult:
    """``model.fit(data, params, weights=..., x=x)`` for very many points.

    Parameters
    ----------
    model : lmfit.Model
    data : (N,) array_like
        Complex data are fitted as two residuals per point.
    params : lmfit.Parameters, optional
        By default ``model.make_params()`` with the values given as keywords.
    weights : number or (N,) array_like, optional
        Factors of the residuals, as in lmfit.
    options, fit_kws : mapping, optional
        Options of `problm.least_squares`: method, loss, f_scale, max_nfev, accuracy, rng, ...
    **keywords
        Independent variables (arrays of N rows or other values), start values of parameters by name, and the other
        arguments of lmfit's ``Model.fit``: ``scale_covar``, ``nan_policy``, ``max_nfev``, ``iter_cb``, ...

    Returns
    -------
    lmfit.model.ModelResult
        lmfit's result, with ``method == 'problm'`` and the `problm.Result` as ``problm``.

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
    keywords.pop("method", None)
    chosen = {**(fit_kws or {}), **(options or {})}
    return _model_fit(model, data, params, weights, "problm", fit_kws=chosen, **keywords)


class _ModelResult(lmfit.model.ModelResult):  # type: ignore[misc]
    """An lmfit result of a model fit that minimises with ProBLM."""

    def minimize(self, method: str = "problm", params: Any = None, **kws: Any) -> lmfit.minimizer.MinimizerResult:
        if method != "problm":  # confidence intervals call lmfit's own methods
            return super().minimize(method, params, **{n: v for n, v in kws.items() if n in ("max_nfev",)})
        self.result = _solved(self, params, self._rows())
        return self.result

    def _rows(self) -> dict[str, NDArray[Any]]:
        """Data, weights and independent variables with one row per point; empty if they cannot be sliced."""
        data = np.asarray(self.data)
        if data.ndim != 1 or data.dtype.kind not in "fiu" or not data.size:
            return {}
        known = {name: np.asarray(value) for name, value in self.userkws.items() if _has_rows(value, len(data))}
        weights = {} if self.weights is None else {"weights": np.broadcast_to(np.asarray(self.weights), data.shape)}
        if any(np.iscomplexobj(v) or v.dtype.kind not in "fiu" for v in (*known.values(), *weights.values())):
            return {}
        return {**known, "data": data, **weights}

    def residuals_of(self, params: lmfit.Parameters, rows: Mapping[str, Any]) -> Any:
        """Residuals of some rows, computed by lmfit's own function."""
        if not rows:
            return self.userfcn(params, *self.userargs, **self.userkws)
        independent = {name: value for name, value in rows.items() if name not in ("data", "weights")}
        return self.userfcn(params, rows["data"], rows.get("weights"), **{**self.userkws, **independent})


class _Minimizer(lmfit.Minimizer):  # type: ignore[misc]
    """An lmfit minimizer of a function of parameters and rows."""

    def residuals_of(self, params: lmfit.Parameters, rows: Mapping[str, Any]) -> Any:
        return self.userfcn(params, *(rows.values() if rows else self.userargs), **self.userkws)


_model_fit = FunctionType(
    lmfit.Model.fit.__code__,
    {**lmfit.model.__dict__, "ModelResult": _ModelResult},
    "fit",
    lmfit.Model.fit.__defaults__,
)
"""lmfit's ``Model.fit``, rebound so that its results minimise with ProBLM; lmfit has no hook for that."""


def _has_rows(value: Any, n: int) -> bool:
    return np.ndim(value) == 1 and len(value) == n and not isinstance(value, str)


def _solved(minimizer: Any, params: Any, rows: Mapping[str, NDArray[Any]]) -> lmfit.minimizer.MinimizerResult:
    """Minimise an lmfit minimizer's function, and fill lmfit's result by lmfit's own functions."""
    answer = minimizer.prepare_fit(params)
    answer.method = "problm"
    chosen, names = answer.params, answer.var_names
    tied = any(p.expr is not None for p in chosen.values())

    def at(theta: Array) -> lmfit.Parameters:
        for name, value in zip(names, np.asarray(theta).tolist(), strict=True):
            chosen[name].value = value
        if tied:
            chosen.update_constraints()
        return chosen

    def residuals(theta: Array, *columns: Any) -> Any:
        answer.nfev += 1
        r = np.asarray(minimizer.residuals_of(at(theta), dict(zip(rows, columns, strict=True))))
        return r.astype(np.complex128).ravel().view(np.float64) if r.dtype.kind == "c" else r

    if not names:
        raise ValueError("params: no parameter varies, so there is nothing to fit")
    start = np.array([chosen[n].value for n in names])
    bounds = np.array([chosen[n].min for n in names]), np.array([chosen[n].max for n in names])
    options = {"max_nfev": _limit(minimizer.max_nfev), **minimizer.kws}
    if callable(minimizer.iter_cb):
        options["callback"] = _callback(minimizer, at)
    columns = tuple(rows.values()) or None
    if columns is None or len(columns[0]) <= inputs.CHECK_UP_TO:  # lmfit's error message for NaN
        lmfit.minimizer.coerce_float64(residuals(start, *(columns or ())), nan_policy=minimizer.nan_policy)
    found = least_squares(residuals, start, bounds=bounds, data=columns, **options)
    if found.active_mask.any():
        found = _off_the_bounds(found, residuals, start, bounds, columns, chosen, options)
    found.names = tuple(names)
    _fill(minimizer, answer, found, at(found.x), residuals(found.x, *rows.values()))
    return answer


def _off_the_bounds(
    found: Result, residuals: Any, start: Array, bounds: tuple[Array, Array], columns: Any, params: Any, options: Any
) -> Result:
    """The better of a fit that ended on a bound and a fit in lmfit's internal variables, which have no bounds."""
    chosen = [p for p in params.values() if p.vary and p.expr is None]
    for parameter, value in zip(chosen, start.tolist(), strict=True):
        parameter.value = value
    inside = np.array([parameter.setup_bounds() for parameter in chosen])

    def outside(theta: Array) -> Array:
        values = [p.from_internal(v) for p, v in zip(chosen, np.asarray(theta).tolist(), strict=True)]
        return np.clip(np.array(values, dtype=np.float64), *bounds)

    def internal(theta: Array, *rows: Any) -> Any:
        return residuals(outside(theta), *rows)

    other = least_squares(internal, inside, data=columns, **options)
    if not other.cost < found.cost * (1.0 - 1e-6):
        return found
    again = least_squares(residuals, outside(other.x), bounds=bounds, data=columns, **options)
    return again if again.cost < found.cost else found


def _limit(max_nfev: Any) -> int | None:
    return None if max_nfev is None or not np.isfinite(max_nfev) else int(max_nfev)


def _callback(minimizer: Any, at: Callable[[Array], Any]) -> Callable[..., Any]:
    """Wrap lmfit's callback of parameters, iteration and all residuals; a true return value ends the fit."""

    def called(state: Any) -> Any:
        params = at(state.x)
        residual = minimizer.userfcn(params, *minimizer.userargs, **minimizer.userkws)
        return minimizer.iter_cb(params, state.iteration, residual, *minimizer.userargs, **minimizer.userkws)

    return called


def _fill(minimizer: Any, answer: Any, found: Result, params: lmfit.Parameters, residual: Array) -> None:
    """Fill in statistics, errors and correlations by lmfit's own functions."""
    answer.params, answer.residual, answer.problm = params, np.asarray(residual, dtype=np.float64).ravel(), found
    answer.success, answer.message = found.success, found.message
    answer.status, answer.aborted = int(found.status), found.status in (Status.STOPPED, Status.INTERRUPTED)
    answer._calculate_statistics()
    answer.x, answer.errorbars = np.atleast_1d(found.x), False
    if found.singular or answer.aborted:
        return
    robust = "loss" in minimizer.kws and minimizer.kws["loss"] != "linear"
    answer.covar = found.covariance if robust else found.unscaled_covariance
    scaled, minimizer.scale_covar = minimizer.scale_covar, minimizer.scale_covar and not robust
    with np.errstate(all="ignore"):  # errors are zero for exact data
        minimizer._calculate_uncertainties_correlations()
    minimizer.scale_covar = scaled


def _copied(params: Any) -> lmfit.Parameters:
    if not isinstance(params, lmfit.Parameters):
        raise TypeError(f"params must be lmfit.Parameters, got {type(params).__name__}; see lmfit.create_params")
    return deepcopy(params)
