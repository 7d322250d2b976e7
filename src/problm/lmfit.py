"""A bridge to lmfit: its models and parameters in, its results out, ProBLM in between.

``problm.lmfit.fit(model, data, params, x=x)`` takes the place of ``model.fit(data, params, x=x)`` and returns an
``lmfit.model.ModelResult``: ``fit_report()``, ``plot()``, ``eval()``, confidence intervals and the rest are lmfit's
own, and so is everything before the fit: pandas' indices, lists, missing values, starts. Fixed parameters, bounds and
expressions are honoured. Needs lmfit, which ProBLM does not install.

Steps are taken on batches of rows. A model that looks beyond its own row, such as a convolution, is recognised and gets
all rows in every call; complex data are fitted with all rows as well.
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
        By default ``model.make_params()`` with the values among the keywords.
    weights : number or (N,) array_like, optional
        Factors of the residuals, as lmfit's.
    options, fit_kws : mapping, optional
        Of `problm.least_squares`: method, loss, f_scale, max_nfev, accuracy, rng, ...
    **keywords
        Independent variables, arrays of N rows or other values; starts of parameters by name; and ``scale_covar``,
        ``nan_policy``, ``max_nfev``, ``iter_cb`` and the other arguments of lmfit's ``Model.fit``.

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
    keywords.pop("method", None)
    chosen = {**(fit_kws or {}), **(options or {})}
    return _model_fit(model, data, params, weights, "problm", fit_kws=chosen, **keywords)


class _ModelResult(lmfit.model.ModelResult):  # type: ignore[misc]
    """lmfit's result of a model's fit, which minimises with ProBLM."""

    def minimize(self, method: str = "problm", params: Any = None, **kws: Any) -> lmfit.minimizer.MinimizerResult:
        if method != "problm":  # confidence intervals call lmfit's own
            return super().minimize(method, params, **{n: v for n, v in kws.items() if n in ("max_nfev",)})
        self.result = _solved(self, params, self._rows())
        return self.result

    def _rows(self) -> dict[str, NDArray[Any]]:
        """Data, weights and independent variables that have a row for each point; nothing if they cannot be sliced."""
        data = np.asarray(self.data)
        if data.ndim != 1 or data.dtype.kind not in "fiu" or not data.size:
            return {}
        known = {name: np.asarray(value) for name, value in self.userkws.items() if _has_rows(value, len(data))}
        weights = {} if self.weights is None else {"weights": np.broadcast_to(np.asarray(self.weights), data.shape)}
        if any(np.iscomplexobj(v) or v.dtype.kind not in "fiu" for v in (*known.values(), *weights.values())):
            return {}
        return {**known, "data": data, **weights}

    def residuals_of(self, params: lmfit.Parameters, rows: Mapping[str, Any]) -> Any:
        """Residuals of some rows, by lmfit's own function."""
        if not rows:
            return self.userfcn(params, *self.userargs, **self.userkws)
        independent = {name: value for name, value in rows.items() if name not in ("data", "weights")}
        return self.userfcn(params, rows["data"], rows.get("weights"), **{**self.userkws, **independent})


class _Minimizer(lmfit.Minimizer):  # type: ignore[misc]
    """lmfit's minimizer of a function of parameters and rows."""

    def residuals_of(self, params: lmfit.Parameters, rows: Mapping[str, Any]) -> Any:
        return self.userfcn(params, *(rows.values() if rows else self.userargs), **self.userkws)


_model_fit = FunctionType(
    lmfit.Model.fit.__code__,
    {**lmfit.model.__dict__, "ModelResult": _ModelResult},
    "fit",
    lmfit.Model.fit.__defaults__,
)
"""lmfit's own ``Model.fit``, whose results minimise with ProBLM: it has no hook for that."""


def _has_rows(value: Any, n: int) -> bool:
    return np.ndim(value) == 1 and len(value) == n and not isinstance(value, str)


def _solved(minimizer: Any, params: Any, rows: Mapping[str, NDArray[Any]]) -> lmfit.minimizer.MinimizerResult:
    """Minimise what an lmfit minimizer holds, and fill lmfit's result with its own functions."""
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
    if columns is None or len(columns[0]) <= inputs.CHECK_UP_TO:  # with lmfit's words for what is not a number
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
    """The better one of a fit that ended on a bound and of one in lmfit's internal variables, which have none."""
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
    """lmfit's callback of parameters, iteration and all residuals; a true value ends the fit."""

    def called(state: Any) -> Any:
        params = at(state.x)
        residual = minimizer.userfcn(params, *minimizer.userargs, **minimizer.userkws)
        return minimizer.iter_cb(params, state.iteration, residual, *minimizer.userargs, **minimizer.userkws)

    return called


def _fill(minimizer: Any, answer: Any, found: Result, params: lmfit.Parameters, residual: Array) -> None:
    """Statistics, errors and correlations, by lmfit's own functions."""
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
    with np.errstate(all="ignore"):  # of exact data, whose errors are zero
        minimizer._calculate_uncertainties_correlations()
    minimizer.scale_covar = scaled


def _copied(params: Any) -> lmfit.Parameters:
    if not isinstance(params, lmfit.Parameters):
        raise TypeError(f"params must be lmfit.Parameters, got {type(params).__name__}; see lmfit.create_params")
    return deepcopy(params)
