"""SciPy's `curve_fit`, for 10 to 10^9 points."""

from __future__ import annotations

import inspect
import math
import types
import warnings
from collections.abc import Callable
from typing import Any, Literal, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..data.sources import is_stored
from ..solver.result import Result
from ..support.array_kinds import refuse_units
from ..warnings import ConvergenceWarning
from .arguments import as_limits
from .call import Call
from .curve import Curve, WholeCurve, points_of, shape_of, standard_deviations
from .plain_curve import plain_fit
from .scipy_arguments import CurveOptions, Method, Scheme, names_of

Array = NDArray[np.float64]
Infodict = dict[str, Any]
_CURVES = {False: "plain", True: "weighted"}
_FREE = (-np.inf, np.inf)
_POOR = 0.9
"""Share of the variation of ydata that residuals keep in a fit that explains hardly anything."""
_FACTOR_UP_TO = 1_000_000
"""Largest number of entries of the Jacobian for which MINPACK's outputs are computed."""


@overload
def curve_fit(
    f: Any,
    xdata: Any,
    ydata: Any,
    p0: ArrayLike | None = None,
    sigma: Any = None,
    absolute_sigma: bool = False,
    check_finite: bool | None = None,
    bounds: Any = ...,
    method: Method | None = None,
    jac: Scheme | Callable[..., Any] | None = None,
    *,
    full_output: Literal[False] = False,
    nan_policy: Literal["raise", "omit"] | None = None,
    **kwargs: Unpack[CurveOptions],
) -> tuple[Array, Array]: ...


@overload
def curve_fit(
    f: Any,
    xdata: Any,
    ydata: Any,
    p0: ArrayLike | None = None,
    sigma: Any = None,
    absolute_sigma: bool = False,
    check_finite: bool | None = None,
    bounds: Any = ...,
    method: Method | None = None,
    jac: Scheme | Callable[..., Any] | None = None,
    *,
    full_output: Literal[True],
    nan_policy: Literal["raise", "omit"] | None = None,
    **kwargs: Unpack[CurveOptions],
) -> tuple[Array, Array, Infodict, str, int]: ...


def curve_fit(
    f: Any,
    xdata: Any,
    ydata: Any,
    p0: ArrayLike | None = None,
    sigma: Any = None,
    absolute_sigma: bool = False,
    check_finite: bool | None = None,
    bounds: Any = _FREE,
    method: Method | None = None,
    jac: Scheme | Callable[..., Any] | None = None,
    *,
    full_output: bool = False,
    nan_policy: Literal["raise", "omit"] | None = None,
    **kwargs: Unpack[CurveOptions],
) -> Any:
    """Fit ``f(xdata, *params)`` to ``ydata``, with SciPy's signature and return values.

    Parameters
    ----------
    f : callable or model
        ``f(x, *params) -> (k,)`` for any k of the points; or a `problm.formula` or `problm.model` (compiled). A
        function whose value at a point depends on other points, such as ``x - x[0]``, a convolution or a closure over
        an array of full length, is recognised and gets all points in every call; the result's ``row_wise`` is then
        False.
    xdata : (N,), (k, N) or (N, k) array_like, or a data frame with N rows
        Where the data were measured; f receives it in the shape in which it was given. Anything else (None, a dict,
        arrays of other shapes) is passed to f unchanged. Or data in files, one per variable (see
        `problm.data.sources.open_source`).
    ydata : (N,) array_like
        The measured values, or data in a file. The standard deviations of numbers of the *uncertainties* package are
        used as sigma, in the units of ydata.
    p0 : (d,) array_like, optional
        Start values. By default ones, or the middle of the bounds, as in SciPy; a formula or ready-made model guesses
        them from the data.
    sigma : None, number, (N,) or (N, N) array_like
        Standard deviations of ydata, or their covariance matrix.
    absolute_sigma : bool
        Whether sigma is in the units of ydata; if not, only its relative sizes matter.
    check_finite : bool, optional
        Whether to check for NaN and infinity before any work. The default is to check up to 10^5 points; more are
        checked as they are read.
    bounds, jac
        As in `problm.least_squares`; ``jac(x, *params) -> (k, d)``.
    method : {None, 'problm', 'lm', 'trf', 'dogbox'}
        None is 'problm': growing batches. 'lm' takes no bounds, as in SciPy.
    full_output : bool
        Whether to return infodict, message and status as well.
    nan_policy : {None, 'raise', 'omit'}
        'omit' leaves out points with a NaN; 'raise' raises for them whatever check_finite says.
    **kwargs
        Further arguments of `problm.least_squares`: loss, f_scale, ftol, max_nfev, accuracy, rng, threads, ...; and
        MINPACK's maxfev (as max_nfev), epsfcn (as the square of diff_step), factor and diag (accepted, not used).

    Returns
    -------
    popt : (d,) array
    pcov : (d, d) array
        Covariance; infinite, with a `CovarianceWarning`, where it cannot be estimated.
    infodict, mesg, ier
        Only with full_output. infodict holds ``nfev, njev, fvec, result`` (the `problm.Result`) and, for up to 10^6
        entries of the Jacobian, MINPACK's ``fjac, ipvt, qtf``; mesg is the message and ier the status.

    A fit that does not converge warns with a `ConvergenceWarning` and returns the best parameters found; it does not
    raise.

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
    begun: Any = None
    if not full_output:  # the gradient at the end is not returned: as in MINPACK, the last step needs none
        defaults = method is None and nan_policy is None and check_finite is not False
        if defaults and bounds is _FREE and not kwargs:
            found = plain_fit(f, xdata, ydata, p0, sigma, absolute_sigma, jac)
            if type(found) is tuple:
                return found
            begun = found
        kwargs.setdefault("certificate", "bound")
    result = fit(
        f, xdata, ydata, p0, sigma, absolute_sigma=absolute_sigma, check_finite=check_finite, bounds=bounds,
        method=method, jac=jac, nan_policy=nan_policy, begun=begun, **kwargs,
    )  # fmt: skip
    pcov = _covariance(result)
    if not result.success:
        warnings.warn(f"{result.message} The parameters returned are the best found.", ConvergenceWarning, 2)
    if not math.isfinite(sum(pcov.diagonal().tolist())):  # a quarter of the time of NumPy's trace
        from ..warnings import CovarianceWarning

        warnings.warn("Covariance of the parameters could not be estimated.", CovarianceWarning, 2)
    if not full_output:
        return result.x, pcov
    info, message = _infodict(result), result.message
    if p0 is None and sigma is None and _explains_nothing(info["fvec"], ydata):
        message += " The fit explains hardly any of the variation of ydata: give p0, or another model."
    return result.x, pcov, info, message, int(result.status)


def fit(
    f: Any,
    xdata: Any,
    ydata: Any,
    p0: Any = None,
    sigma: Any = None,
    *,
    absolute_sigma: bool = False,
    check_finite: bool | None = None,
    bounds: Any = (-np.inf, np.inf),
    method: str | None = None,
    jac: Any = None,
    nan_policy: str | None = None,
    begun: Any = None,
    **kwargs: Any,
) -> Result:
    """Like `curve_fit`, but return the whole `problm.Result`; ``begun`` are steps already taken, if any."""
    if not callable(f):
        raise TypeError(f"f must be callable or a compiled model, got {type(f).__name__}")
    _refuse(nan_policy, kwargs)
    refuse_units("ydata", ydata)
    dim, names = _parameters(f, p0)
    box = as_limits(bounds, dim)
    if method == "lm" and box is not None:
        raise ValueError("method='lm' does not support bounds: use 'trf' or 'problm'")
    compiled = hasattr(f, "curve_kernel")
    robust = kwargs.get("loss", "linear") != "linear"
    keywords = {"method": method or "problm", "bounds": bounds, **_minpack(kwargs)}
    ydata, sigma, absolute_sigma = standard_deviations(ydata, sigma, absolute_sigma)
    parts = [*(xdata if isinstance(xdata, (tuple, list)) else [xdata]), ydata, *([] if sigma is None else [sigma])]
    elsewhere = not isinstance(xdata, dict) and is_stored(parts, kwargs.get("max_memory"))
    if kwargs.get("client") is not None or elsewhere:
        from ..data.sources import open_source
        from .stored import sample

        if compiled and jac is not None and not callable(jac):
            raise ValueError("jac: a compiled model has exact derivatives; leave jac out")
        if p0 is None:
            p0 = _start(f, dim, box, list(sample(open_source(parts), 10_000, kwargs.get("rng", 0))), robust)
        curve = Curve(f, jac, "stacked" if len(parts) - (sigma is not None) > 2 else "columns", sigma is not None)
        data: Any = tuple(parts)
        stored, whole = True, None
    else:
        points = points_of(xdata, ydata, sigma, convert=not compiled)
        points.check(nan_policy, check_finite)
        if box is None and method in (None, "lm"):
            _refuse_too_few(dim, points.n)
        if p0 is None:
            p0 = _start(f, dim, box, list(points.columns), robust)
        curve = Curve(f, jac, shape_of(xdata, points), points.sigma is not None)
        whole = None if points.sliceable and "manifold" not in kwargs else WholeCurve(f, jac, points)
        data, stored = points.columns if whole is None else (), False
    call = Call.of(
        keywords, start=p0, start_name="p0", plain=whole is not None, jac=jac if jac is not None else "2-point"
    )
    if whole is not None:
        model = call.function(whole.residuals, whole.jacobian if callable(jac) else call.jac)
    elif compiled:
        model = call.compiled(f, _CURVES[sigma is not None])
    else:
        model = call.function(curve.residuals, curve.jacobian if callable(jac) else call.jac, f)
    result = call.fit(model, data, stored=stored, begun=begun)
    result.names = names if len(names) == len(result.x) else ()
    result.absolute = absolute_sigma
    return result


def fit_compiled(model: Any, data: Any, p0: Any, weighted: bool, *, stored: bool = False, **keywords: Any) -> Result:
    """Fit a compiled model to columns x..., y[, sigma] that have been checked or are ``stored``."""
    call = Call.of(keywords, start=p0, start_name="p0")
    result = call.fit(call.compiled(model, _CURVES[weighted]), data, stored=stored)
    result.names = names_of(model, call.dim)
    return result


def _refuse(nan_policy: Any, kwargs: dict[str, Any]) -> None:
    if nan_policy == "propagate":
        raise ValueError("`nan_policy='propagate'` is not supported by this function.")
    if nan_policy not in (None, "raise", "omit"):
        raise ValueError(f"nan_policy must be one of {{None, 'raise', 'omit'}}, got {nan_policy!r}")
    if "args" in kwargs:
        raise ValueError("'args' is not a supported keyword argument: f(x, *params) gets nothing else")


def _minpack(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Translate keywords of SciPy's leastsq to those of least_squares."""
    kept = {name: value for name, value in kwargs.items() if name not in ("maxfev", "epsfcn", "factor", "diag")}
    if kwargs.get("maxfev"):
        kept["max_nfev"] = kwargs["maxfev"]
    if kwargs.get("epsfcn"):
        kept["diff_step"] = math.sqrt(kwargs["epsfcn"])
    return kept


def _refuse_too_few(dim: int, n: int) -> None:
    """Raise as SciPy does: MINPACK needs at least as many points as parameters."""
    if 1 < n < dim:
        raise TypeError(f"The number of func parameters={dim} must not exceed the number of data points={n}")


def _explains_nothing(residuals: Array, ydata: Any) -> bool:
    """Whether residuals without weights (N,) vary nearly as much as the data; False where that cannot be told."""
    y = np.asarray(ydata) if np.ndim(ydata) == 1 else np.zeros(0)
    if y.dtype.kind not in "iuf" or y.shape != residuals.shape:
        return False
    return bool(np.square(residuals).sum() > _POOR * np.square(y - y.mean()).sum())


def _infodict(result: Result) -> Infodict:
    residuals = result.fun
    info: Infodict = {"nfev": result.nfev, "njev": result.njev, "fvec": residuals, "result": result}
    jacobian = result.problem.jacobian(result.x) if residuals.size * len(result.x) <= _FACTOR_UP_TO else None
    if isinstance(jacobian, np.ndarray):
        from scipy.linalg import lapack, qr

        d = len(result.x)
        (packed, tau), _, order = qr(jacobian.reshape(-1, d), mode="raw", pivoting=True)
        turned = lapack.dormqr("L", "T", packed, tau, residuals.reshape(-1, 1), 64 * d)[0]
        info |= {"fjac": packed.T, "ipvt": order + 1, "qtf": turned[:d, 0]}
    return info


def _parameters(f: Any, p0: Any) -> tuple[int, tuple[str, ...]]:
    """Number and names of the parameters, from the model or the signature."""
    names = getattr(f, "parameters", None)
    if names:
        return len(names), tuple(names)
    if type(f) is types.FunctionType and not f.__dict__:
        # A shortcut for plain functions: the general way takes 25 us, a tenth of a small fit.
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


def _start(f: Any, dim: int, box: tuple[Array, Array] | None, rows: list[NDArray[Any]], robust: bool) -> Array:
    if hasattr(f, "guess"):
        return np.asarray(f.guess(*rows[:2], **({"robust": True} if robust else {})), dtype=np.float64)
    start = np.ones(dim)
    if box is None:
        return start
    lower, upper = box
    both, below, above = np.isfinite(lower) & np.isfinite(upper), np.isfinite(lower), np.isfinite(upper)
    start = np.where(below & ~above, lower + 1.0, np.where(above & ~below, upper - 1.0, start))
    middle = 0.5 * (np.where(both, lower, 0.0) + np.where(both, upper, 0.0))
    return np.where(both, middle, start)


def _covariance(result: Result) -> Array:
    d = len(result.x)
    points = result.n * result.residuals_per_block
    if result.singular or (points <= d and not result.absolute):
        return np.full((d, d), np.inf)
    return result.covariance
