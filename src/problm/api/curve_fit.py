"""SciPy's `curve_fit`, for 10 to 10^9 points."""

from __future__ import annotations

import inspect
import math
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, solve_triangular

from ..data.sources import is_stored
from ..solver.result import Result
from ..warnings import ConvergenceWarning, CovarianceWarning
from . import arguments as inputs
from .least_squares import least_squares

Array = NDArray[np.float64]


def curve_fit(
    f: Any,
    xdata: Any,
    ydata: Any,
    p0: Any = None,
    sigma: Any = None,
    absolute_sigma: bool = False,
    check_finite: bool | None = None,
    bounds: Any = (-np.inf, np.inf),
    method: str | None = None,
    jac: Any = None,
    *,
    full_output: bool = False,
    nan_policy: str | None = None,
    **kwargs: Any,
) -> Any:
    """Fit ``f(xdata, *params)`` to ``ydata``, with SciPy's signature and return values.

    Parameters
    ----------
    f : callable or model
        ``f(x, *params) -> (k,)`` for any k of the points; or a `problm.formula` or `problm.model` (compiled).
    xdata : (N,) or (k, N) array_like, or a data frame with N rows
        Where the data were measured. Or data in files, one for each variable (see `problm.data.sources.open_source`).
    ydata : (N,) array_like
        Or data in a file.
    p0 : (d,) array_like, optional
        The start. By default ones, or the middle of the bounds, as SciPy does; a formula or ready-made model guesses
        from the data.
    sigma : None, number, (N,) or (N, N) array_like
        Standard deviations of ydata, or their covariance matrix.
    absolute_sigma : bool
        Whether sigma is in the units of ydata (else only relative).
    check_finite : bool, optional
        Look for NaN and infinity before any work. By default for up to 10^5 points; beyond, values are checked as
        they are read.
    bounds, jac
        As in `problm.least_squares`; ``jac(x, *params) -> (k, d)``.
    method : {None, 'problm', 'lm'}
        None is 'problm': growing batches.
    full_output : bool
        Return also infodict, message and status.
    nan_policy : {None, 'raise', 'omit'}
        'omit' leaves out points with a NaN.
    **kwargs
        Further options of `problm.least_squares`: loss, f_scale, ftol, max_iter, accuracy, rng, threads, ...;
        SciPy's maxfev and max_nfev are taken as max_iter.

    Returns
    -------
    popt : (d,) array
    pcov : (d, d) array
        Covariance; infinite, with a `CovarianceWarning`, where it cannot be estimated.
    infodict, mesg, ier
        With full_output: ``nfev, njev, fvec, result`` (the `problm.Result`), the message and the status.

    A fit that did not converge gives a `ConvergenceWarning` and the best parameters found; it does not raise.

    Examples
    --------
    >>> import numpy as np, problm
    >>> rng = np.random.default_rng(0)
    >>> x = np.linspace(0, 4, 200_000)
    >>> y = 2.5 * np.exp(-1.3 * x) + 0.5 + 0.2 * rng.standard_normal(x.size)
    >>> popt, pcov = problm.curve_fit(lambda x, a, b, c: a * np.exp(-b * x) + c, x, y)
    >>> popt.round(2)
    array([2.5, 1.3, 0.5])
    """
    result = fit(
        f, xdata, ydata, p0, sigma,
        check_finite=check_finite, bounds=bounds, method=method, jac=jac, nan_policy=nan_policy, **kwargs,
    )  # fmt: skip
    pcov = _covariance(result, absolute_sigma)
    if not result.success:
        warnings.warn(f"{result.message} The parameters returned are the best found.", ConvergenceWarning, 2)
    if not math.isfinite(pcov.trace()):
        warnings.warn("The covariance of the parameters could not be estimated.", CovarianceWarning, 2)
    if not full_output:
        return result.x, pcov
    info = {"nfev": result.nfev, "njev": result.njev, "fvec": result.fun, "result": result}
    return result.x, pcov, info, result.message, int(result.status)


def fit(
    f: Any,
    xdata: Any,
    ydata: Any,
    p0: Any = None,
    sigma: Any = None,
    *,
    check_finite: bool | None = None,
    bounds: Any = (-np.inf, np.inf),
    method: str | None = None,
    jac: Any = None,
    nan_policy: str | None = None,
    **kwargs: Any,
) -> Result:
    """`curve_fit` that returns the whole `problm.Result`."""
    if not callable(f):
        raise TypeError(f"f must be callable or a compiled model, got {type(f).__name__}")
    if nan_policy not in (None, "raise", "omit"):
        raise ValueError(f"nan_policy must be None, 'raise' or 'omit', got {nan_policy!r}")
    for name in ("maxfev", "max_nfev"):
        if name in kwargs:
            kwargs["max_iter"] = kwargs.pop(name) or 5000
    dim, names = _parameters(f, p0)
    options = {"method": method or "problm", "bounds": bounds, **kwargs}
    parts = [*(xdata if isinstance(xdata, (tuple, list)) else [xdata]), ydata, *([] if sigma is None else [sigma])]
    if kwargs.get("client") is not None or is_stored(parts, kwargs.get("max_memory")):
        from .stored import fit_stored

        result = fit_stored(f, parts, p0, sigma is not None, jac, dim, options)
        result.names = names if len(names) == len(result.x) else ()
        return result
    y = inputs.column("ydata", ydata)
    if y.ndim != 1:
        y = y.ravel()
    if not y.size:
        raise ValueError("ydata is empty: there is nothing to fit")
    x, sliceable = _abscissae(xdata, len(y))
    weights = _sigma(sigma, len(y))
    rows = [*x, y, *([weights] if weights is not None and weights.ndim == 1 else [])] if sliceable else [y]
    labels = [*(["xdata"] * len(x)), "ydata", "sigma"]
    if nan_policy == "omit":
        if not sliceable or (weights is not None and weights.ndim == 2):
            raise ValueError("nan_policy='omit' needs xdata as an array and sigma with one value a point")
        rows = list(inputs.omit_nan(rows))
    elif check_finite or (check_finite is None and len(y) <= inputs.CHECK_UP_TO):
        inputs.finite(list(zip(labels, rows, strict=False)))
    whole_matrix = weights is not None and weights.ndim == 2
    if hasattr(f, "curve_kernel") and sliceable and not whole_matrix and "manifold" not in kwargs:
        start = inputs.parameters("p0", f.guess(*rows[:2]) if p0 is None else p0)
        result = _fit_compiled(f, rows, start, weights is not None, options)
    else:
        start = inputs.parameters("p0", _start(f, dim, bounds, rows) if p0 is None else p0)
        result = _fit_function(f, jac, xdata, rows, y, weights, start, sliceable and not whole_matrix, options)
    result.names = names if len(names) == len(start) else ()
    return result


def _fit_compiled(f: Any, rows: list[NDArray[Any]], start: Array, weighted: bool, options: dict[str, Any]) -> Result:
    """A model's curve becomes rows of residuals for the same front door."""
    return least_squares(CurveRows(f, weighted), start, data=inputs.Checked(rows), **options)


class CurveRows:
    """A compiled model as residuals ``(f(x) - y) / sigma`` of the columns x..., y[, sigma]."""

    def __init__(self, model: Any, weighted: bool) -> None:
        self.model, self.weighted = model, weighted

    def __call__(self, *args: Any) -> Any:  # least_squares asks for a callable; the kernel is what runs
        raise TypeError("a compiled model is not called through its residuals")

    def residual_kernel(self, shapes: tuple[int, ...], dim: int, loss: Any, threads: int | None) -> Any:
        variables = sum(shapes) - (2 if self.weighted else 1)
        return self.model.curve_kernel(variables, dim, "sigma" if self.weighted else None, loss, threads)


def _fit_function(
    f: Callable[..., Any],
    jac: Any,
    xdata: Any,
    rows: list[NDArray[Any]],
    y: NDArray[Any],
    weights: Array | None,
    start: Array,
    sliceable: bool,
    options: dict[str, Any],
) -> Result:
    if sliceable:
        weighted = weights is not None
        given = _as_given(xdata, rows[0])

        def weighted_residuals(theta: Array, x: Any, y: Any, s: Any) -> Any:
            return (np.asarray(f(given(x), *theta)) - y) / s

        def plain_residuals(theta: Array, x: Any, y: Any) -> Any:
            return np.asarray(f(given(x), *theta)) - y

        residuals: Callable[..., Any] = weighted_residuals if weighted else plain_residuals

        def derivative(theta: Array, x: Any, y: Any, *s: Any) -> Any:
            j = np.asarray(jac(given(x), *theta))
            return j / s[0][:, None] if weighted else j

        derivatives = derivative if callable(jac) else (jac or "2-point")
        return least_squares(residuals, start, data=inputs.Checked(rows), jac=derivatives, **options)

    x = np.asarray(xdata, dtype=np.float64) if isinstance(xdata, (list, tuple, np.ndarray)) else xdata
    whiten = _whitening(weights)

    def all_residuals(theta: Array) -> Any:
        return whiten(np.asarray(f(x, *theta)) - y)

    def all_derivatives(theta: Array) -> Any:
        return whiten(np.asarray(jac(x, *theta)))

    return least_squares(all_residuals, start, jac=all_derivatives if callable(jac) else (jac or "2-point"), **options)


def _abscissae(xdata: Any, n: int) -> tuple[list[NDArray[Any]], bool]:
    """xdata as one array with N rows, and whether it can be sliced at all."""
    if isinstance(xdata, (list, tuple, np.ndarray)) or hasattr(xdata, "to_numpy"):
        x = inputs.column("xdata", xdata)
        if x.ndim == 1 and len(x) == n:
            return [x], True
        if x.ndim == 2 and x.shape[1] == n:
            return [x.T], True
        if x.ndim == 2 and x.shape[0] == n and hasattr(xdata, "columns"):
            return [x], True  # a data frame: rows are points
        if x.ndim <= 2:
            raise ValueError(f"xdata has shape {x.shape} but ydata has {n} points: expected ({n},) or (k, {n})")
    return [], False


def _as_given(xdata: Any, rows: NDArray[Any]) -> Callable[[Any], Any]:
    """What f gets for some rows of xdata: in the form in which the user gave all of them."""
    if rows.ndim == 1:
        return lambda x: x
    names = getattr(xdata, "columns", None)
    if names is not None and len(names) == rows.shape[1]:  # a data frame
        frame = type(xdata)
        return lambda x: frame({name: x[:, i] for i, name in enumerate(names)})
    return lambda x: x.T  # SciPy's (k, N): kept as (N, k) so that rows can be sliced


def _sigma(sigma: Any, n: int) -> Array | None:
    if sigma is None:
        return None
    s = np.asarray(sigma.to_numpy() if hasattr(sigma, "to_numpy") else sigma)
    if s.dtype.kind not in "fiu":
        raise ValueError(f"sigma must hold numbers, got dtype {s.dtype}")
    if s.size == 1:
        s = np.full(n, float(s.item()))
    if s.shape not in ((n,), (n, n)):
        raise ValueError(f"sigma has shape {s.shape}, expected ({n},) or ({n}, {n})")
    if s.ndim == 1 and not (s > 0).all():
        row = int(np.argmin(np.where(np.isnan(s), -np.inf, s)))
        raise ValueError(f"sigma must be positive, but sigma[{row}] is {s[row]}")
    return s if s.dtype.kind == "f" else s.astype(np.float64)


def _whitening(weights: Array | None) -> Callable[[Any], Any]:
    if weights is None:
        return lambda r: r
    if weights.ndim == 1:
        return lambda r: (r.T / weights).T
    try:
        factor, lower = cho_factor(weights, lower=True)
    except np.linalg.LinAlgError as error:
        raise ValueError("sigma must be a positive definite covariance matrix") from error
    return lambda r: solve_triangular(factor, r, lower=lower)


def _parameters(f: Any, p0: Any) -> tuple[int, tuple[str, ...]]:
    """Number and names of the parameters, from the model or the signature."""
    names = getattr(f, "parameters", None)
    if names:
        return len(names), tuple(names)
    if type(f) is types.FunctionType and not f.__dict__:
        # What follows, for a plain function: the general way takes 25 us, a tenth of a small fit.
        code = f.__code__
        plain_names = code.co_varnames[1 : code.co_argcount]
        if code.co_flags & inspect.CO_VARARGS:
            if p0 is not None:
                return np.size(p0), ()
        elif plain_names:
            return len(plain_names), plain_names
    try:
        kinds = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        kinds = []
    # Parameters with defaults are fitted too, as SciPy does.
    plain = [p for p in kinds if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind is p.VAR_POSITIONAL for p in kinds) or len(plain) < 2:
        if p0 is None:
            raise ValueError("p0 is needed: the number of parameters cannot be told from the signature of f")
        return len(np.atleast_1d(p0)), ()
    return len(plain) - 1, tuple(p.name for p in plain[1:])


def _start(f: Any, dim: int, bounds: Any, rows: list[NDArray[Any]]) -> Array:
    if hasattr(f, "guess"):
        return np.asarray(f.guess(*rows[:2]), dtype=np.float64)
    start = np.ones(dim)
    if bounds is None:
        return start
    pair = (bounds.lb, bounds.ub) if hasattr(bounds, "lb") else bounds
    lower, upper = (np.broadcast_to(np.asarray(b, dtype=np.float64), (dim,)) for b in pair)
    both, below, above = np.isfinite(lower) & np.isfinite(upper), np.isfinite(lower), np.isfinite(upper)
    start = np.where(below & ~above, lower + 1.0, np.where(above & ~below, upper - 1.0, start))
    middle = 0.5 * (np.where(both, lower, 0.0) + np.where(both, upper, 0.0))
    return np.where(both, middle, start)


def _covariance(result: Result, absolute: bool) -> Array:
    d = len(result.x)
    points = result.n * result.residuals_per_block
    if result.singular or (points <= d and not absolute):
        return np.full((d, d), np.inf)
    return result.unscaled_covariance if absolute else result.covariance
