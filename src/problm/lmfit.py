"""A bridge to lmfit: fit its models and parameters with ProBLM, and get its results.

Importing this module adds the method ``"problm"`` to lmfit: ``model.fit(y, params, x=x, method="problm")`` and
``lmfit.minimize(fcn, params, args=(x, y), method="problm")``. lmfit has no hook for that, so its ``Minimizer.minimize``
is wrapped; every other method goes to lmfit's own. `fit` and `minimize` are short for it.

Everything after the fit is lmfit's own: ``fit_report()``, ``plot()``, ``eval()``, confidence intervals. So is
everything before it: pandas indices, lists, missing values, starts. Fixed parameters, bounds and expressions are
honoured. Needs lmfit, which ProBLM does not install.

Steps are taken on batches of rows. A model whose rows depend on each other, such as a convolution, is recognised and
gets all rows in every call. So do complex data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import wraps
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
_Abort = lmfit.minimizer.AbortFitException
_SMALL = 20_000
"""Residuals up to which every call is for all of them, so that they are counted as lmfit counts, and up to which a fit
with bounds is also done in lmfit's internal variables. Beyond, where that takes time, only fits that end on a bound
are."""
_TRIES = 100
"""Trial steps in internal variables, where a parameter may creep along its bound for ever."""


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
    if not isinstance(params, lmfit.Parameters):
        raise TypeError(f"params must be lmfit.Parameters, got {type(params).__name__}; see lmfit.create_params")
    rows = () if data is None else inputs.columns(data)
    return lmfit.Minimizer(fcn, deepcopy(params), fcn_args=rows, fcn_kws=dict(kws or {}), **options).minimize("problm")


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
    keywords["method"], chosen = "problm", {**(fit_kws or {}), **(options or {})}
    return model.fit(data, params, weights, fit_kws=chosen, **keywords)


def _register() -> None:
    """Add the method ``"problm"`` to lmfit's minimizers."""
    theirs = lmfit.Minimizer.minimize
    if hasattr(theirs, "__wrapped__"):
        return

    @wraps(theirs)
    def minimize(self: Any, method: str = "leastsq", params: Any = None, **kws: Any) -> Any:
        return _solved(self, params, kws) if method == "problm" else theirs(self, method, params, **kws)

    lmfit.Minimizer.minimize = minimize


_register()


class _Residuals:
    """Residuals of an lmfit minimizer for some or all rows of its arguments.

    Arguments with one row per residual are given to the solver, which passes some of their rows; others are unchanged.
    """

    def __init__(self, minimizer: Any, names: list[str], params: lmfit.Parameters) -> None:
        self.minimizer, self.names, self.params = minimizer, names, params
        self.best = np.inf, np.array([params[n].value for n in names])
        """The least sum of squares of all evaluations, and where it was."""
        self.tied = any(p.expr is not None for p in params.values())
        self.calls = 0
        self._where: list[Any] = []
        """Positions and keywords of the arguments that have rows."""
        self.start, self.small = self.best[1], True
        self.columns: tuple[NDArray[Any], ...] | None = None

    def at(self, theta: Array) -> lmfit.Parameters:
        """The parameters with these values."""
        for name, value in zip(self.names, np.asarray(theta).tolist(), strict=True):
            self.params[name].value = value
        if self.tied:
            self.params.update_constraints()
        return self.params

    def __call__(self, theta: Array, *rows: Any) -> Any:
        r = self._evaluated(theta, rows)
        return np.asarray(r) if rows else self._coerced(r)

    def finished(self, theta: Array) -> Array:
        """All residuals of the result, which do not count."""
        r = self.minimizer.userfcn(self.at(theta), *self.minimizer.userargs, **self.minimizer.userkws)
        return np.asarray(self._coerced(r), dtype=np.float64).ravel()

    def _evaluated(self, theta: Array, rows: tuple[Any, ...]) -> Any:
        """Residuals of these rows; counted, limited and reported as lmfit does it if the fit is small."""
        minimizer, params = self.minimizer, self.at(theta)
        self.calls += 1
        if self.small and self.calls > minimizer.max_nfev:
            raise _Abort(f"Fit aborted: number of function evaluations > {minimizer.max_nfev}")
        args, keywords = self._arguments(rows)
        r = minimizer.userfcn(params, *args, **keywords)
        self.small = self.small and np.size(r) <= _SMALL
        if self.small:
            cost = float(np.vdot(r, r).real)
            self.best = min(self.best, (cost, np.array(theta)), key=lambda at: at[0])
            if callable(minimizer.iter_cb) and minimizer.iter_cb(params, self.calls, r, *args, **keywords):
                minimizer._abort = True
                raise _Abort("Fit aborted by user callback. Could not estimate error-bars.")
        return r

    def jacobian(self, dfun: Callable[..., Any], by_columns: bool) -> Callable[..., Any]:
        """The Jacobian by lmfit's ``Dfun``, derivatives for the parameters that vary; ``by_columns`` is col_deriv."""

        def jac(theta: Array, *rows: Any) -> Any:
            args, keywords = self._arguments(rows)
            j = dfun(self.at(theta), *args, **keywords)
            if hasattr(j, "tocsr") or hasattr(j, "matmat"):  # sparse, or an operator
                return j
            j = np.asarray(j, dtype=np.float64)
            return j.T if by_columns else j

        return jac

    def _arguments(self, rows: tuple[Any, ...]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments of the user's functions, with these rows in place of all of them."""
        args, keywords = list(self.minimizer.userargs), dict(self.minimizer.userkws)
        for key, values in zip(self._where if rows else (), rows, strict=True):
            (keywords if isinstance(key, str) else args)[key] = values
        return args, keywords

    def _coerced(self, r: Any) -> Array:
        """All residuals along one axis, complex ones as two, by lmfit's rules for what is not a number."""
        return np.asarray(lmfit.minimizer.coerce_float64(r, nan_policy=self.minimizer.nan_policy))

    def find_columns(self) -> None:
        """Find the arguments with one row per residual, if they can be identified."""
        residual = np.asarray(self._evaluated(self.start, ()))
        n = residual.size
        if residual.ndim != 1 or residual.dtype.kind not in "fiu" or len(self._coerced(residual)) < n:
            return
        given = {**dict(enumerate(self.minimizer.userargs)), **self.minimizer.userkws}
        rows = {key: value for key, value in given.items() if _has_rows(value, n)}
        if not rows or any(column.dtype.kind not in "fiu" for column in rows.values()):
            return
        self._where = list(rows)
        self.columns = tuple(rows.values())


def _has_rows(value: Any, n: int) -> bool:
    """Whether an argument is a plain array with n rows; a function may need other kinds unchanged."""
    return type(value) is np.ndarray and value.ndim in (1, 2) and len(value) == n


def _solved(minimizer: Any, params: Any, keywords: Mapping[str, Any]) -> lmfit.minimizer.MinimizerResult:
    """Minimise an lmfit minimizer's function, and fill lmfit's result by lmfit's own functions."""
    answer = minimizer.prepare_fit(params)
    answer.method, answer.problm, names = "problm", None, answer.var_names
    # Removed from the minimizer, because confidence intervals pass its keywords to lmfit's own method.
    minimizer.problm_kws = {**getattr(minimizer, "problm_kws", {}), **minimizer.kws, **keywords}
    minimizer.kws = {}
    options = dict(minimizer.problm_kws)
    minimizer.set_max_nfev(options.pop("max_nfev", None), 2000 * (len(names) + 1))
    residuals = _Residuals(minimizer, names, answer.params)
    try:
        residuals.find_columns()
        found = _minimized(minimizer, answer, residuals, options) if names else None
    except _Abort as stopped:
        found, answer.message, answer.aborted = None, str(stopped), True
    answer.success, answer.errorbars = not answer.aborted, False
    answer.nfev = residuals.calls
    theta = residuals.best[1] if found is None else np.atleast_1d(found.x)
    answer.x, answer.residual = theta, residuals.finished(theta)
    answer.params = residuals.params
    answer._calculate_statistics()
    if found is not None:
        _fill(minimizer, answer, found, options)
    return answer


def _minimized(minimizer: Any, answer: Any, residuals: _Residuals, options: dict[str, Any]) -> Result:
    """The solution, by the better of two ways of keeping to bounds."""
    if not residuals.small:
        options["max_nfev"] = _limit(minimizer.max_nfev)
        if callable(minimizer.iter_cb):
            options["callback"] = _callback(minimizer, residuals.at)
    dfun, by_columns = options.pop("Dfun", None), bool(options.pop("col_deriv", False))
    if dfun is None and callable(options.get("jac")):
        dfun = options["jac"]
    if dfun is not None:
        options["jac"] = residuals.jacobian(dfun, by_columns)
    chosen = [answer.params[n] for n in residuals.names]
    bounds = np.array([p.min for p in chosen]), np.array([p.max for p in chosen])
    found = least_squares(residuals, residuals.start, bounds=bounds, data=residuals.columns, **options)
    bounded = any(np.isfinite(bound).any() for bound in bounds)
    if not minimizer._abort and (found.active_mask.any() or (bounded and found.n <= _SMALL)):
        found = _by_internal_variables(found, residuals, bounds, chosen, options)
    found.names = tuple(residuals.names)
    return found


def _by_internal_variables(
    found: Result, residuals: _Residuals, bounds: tuple[Array, Array], chosen: list[Any], options: Any
) -> Result:
    """The better of a fit within bounds and a fit in lmfit's internal variables, which have no bounds: they lead to
    different local minima."""
    for parameter, value in zip(chosen, residuals.start.tolist(), strict=True):
        parameter.value = value
    inside = np.array([parameter.setup_bounds() for parameter in chosen])

    def outside(theta: Array) -> Array:
        values = [p.from_internal(v) for p, v in zip(chosen, np.asarray(theta).tolist(), strict=True)]
        return np.clip(np.array(values, dtype=np.float64), *bounds)

    def internal(theta: Array, *rows: Any) -> Any:
        return residuals(outside(theta), *rows)

    limited = {**options, "max_nfev": min(options.get("max_nfev") or _TRIES, _TRIES), "jac": "2-point"}
    try:
        other = least_squares(internal, inside, data=residuals.columns, **limited)
        if not other.cost < found.cost * (1.0 - 1e-6):
            return found
        again = least_squares(residuals, outside(other.x), bounds=bounds, data=residuals.columns, **options)
    except _Abort:
        if residuals.minimizer._abort:
            raise
        return found  # which needed fewer evaluations than are allowed
    return again if again.cost < found.cost else found


def _limit(max_nfev: Any) -> int | None:
    return None if max_nfev is None or not np.isfinite(max_nfev) else int(max_nfev)


def _callback(minimizer: Any, at: Callable[[Array], Any]) -> Callable[..., Any]:
    """Wrap lmfit's callback of parameters, iteration and all residuals; a true return value ends the fit."""

    def called(state: Any) -> Any:
        params = at(state.x)
        residual = minimizer.userfcn(params, *minimizer.userargs, **minimizer.userkws)
        minimizer._abort = bool(
            minimizer.iter_cb(params, state.iteration, residual, *minimizer.userargs, **minimizer.userkws)
        )
        return minimizer._abort

    return called


def _fill(minimizer: Any, answer: Any, found: Result, options: Mapping[str, Any]) -> None:
    """Fill in errors and correlations by lmfit's own functions."""
    answer.problm, answer.success, answer.message = found, found.success, found.message
    answer.status, answer.aborted = int(found.status), found.status in (Status.STOPPED, Status.INTERRUPTED)
    if found.singular or answer.aborted:
        return
    robust = options.get("loss", "linear") != "linear"
    answer.covar = found.covariance if robust else found.unscaled_covariance
    scaled, minimizer.scale_covar = minimizer.scale_covar, minimizer.scale_covar and not robust
    with np.errstate(all="ignore"):  # errors are zero for exact data
        minimizer._calculate_uncertainties_correlations()
    minimizer.scale_covar = scaled
