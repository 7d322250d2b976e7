"""`problm.fit`: fit a model to data with named parameters, and return a `problm.Fit`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.sources import is_stored
from ..inference.doubts import SERIOUS, doubts, sample
from ..inference.estimate import by_name
from ..inference.fit import Fit
from ..models import expression as ex
from ..models.guesses.first_guess import alternatives
from ..models.model import Model
from ..models.ties import Ties
from ..solver.result import Result, Status
from ..support.array_kinds import refuse_units
from .curve import standard_deviations
from .curve_fit import fit as fit_curve
from .table_columns import checked, columns_of

Array = NDArray[np.float64]


def fit(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    sigma: Any = None,
    absolute_sigma: bool = False,
    x_sigma: Any = None,
    p0: Any = None,
    bounds: Any = None,
    fixed: Any = None,
    ties: Mapping[str, str] | None = None,
    jac: Callable[..., Any] | None = None,
    loss: Any = "linear",
    **options: Any,
) -> Fit:
    """Fit a model to data, with parameters by name.

    Parameters
    ----------
    model : str, model or callable
        A formula such as ``"y ~ a*exp(-b*x) + c"``, a model of `problm.models`, `problm.formula` or `problm.model`, or
        a function ``f(x, *parameters)`` of arrays.
    x : (N,) or (k, N) array_like, or a table
        Where the data were measured. Without ``y``: a table (a data frame, mapping of columns, or the path of a file
        for `problm.read_columns`) with the columns that the formula names, also in quotes or by position:
        ``'"I (counts)" ~ a*exp(-b*$1)'``.
    y : (N,) array_like, optional
        Complex values are fitted by complex functions; the result is then a
        `problm.api.likelihoods.complex_data.ComplexFit`.
    sigma : number, (N,) or (N, N) array_like, or the name of a column
        Standard deviations of y, or their covariance matrix.
    absolute_sigma : bool
        Whether sigma is in the units of y; if not, only its relative sizes matter.
    x_sigma : number, (N,) or (k, N) array_like, or the name of a column, optional
        Standard deviations of x, in the same scale as sigma (which is 1 if it is not given): distances in x and y are
        minimised together, as by `scipy.odr`.
    p0 : mapping or (d,) array_like, optional
        Start values, ``{"a": 1.0}``. The others are guessed from the data if the model allows, else they are 1.
    bounds : mapping or (lower, upper), optional
        ``{"a": (0, 10), "b": (0, None)}``, or as for `problm.least_squares`.
    fixed : mapping or names, optional
        ``{"c": 0.0}``, or names of parameters that keep their start value.
    ties : mapping, optional
        Parameters as expressions of others: ``{"s2": "2*s1"}``. A name that occurs only here needs a start in p0.
    jac : callable, optional
        ``jac(x, *parameters) -> (N, p)``, for functions.
    loss : str or loss
        As for `problm.least_squares`.
    **options
        Further options of `problm.least_squares`: f_scale, method, max_iter, rng, threads, ...

    Returns
    -------
    `Fit`

    Examples
    --------
    >>> import numpy as np, problm
    >>> rng = np.random.default_rng(0)
    >>> x = np.linspace(-5, 5, 500)
    >>> y = 3.0 * np.exp(-0.5 * (x / 0.8) ** 2) + 1.0 + 0.05 * rng.standard_normal(x.size)
    >>> peak = problm.models.gaussian() + problm.models.constant_background()
    >>> fit = problm.fit(peak, x, y, fixed={"center": 0.0}, bounds={"sigma": (0, None)})
    >>> print(fit.params["sigma"])
    sigma = 0.7976 ± 0.0025
    """
    for name, value in (("x", x), ("y", y), ("sigma", sigma)):
        refuse_units(name, value)
    if y is not None:
        y, sigma, absolute_sigma = standard_deviations(y, sigma, absolute_sigma)
    if y is not None and np.iscomplexobj(y):
        return _fit_complex(model, x, y, sigma, absolute_sigma, p0, bounds, fixed, ties, loss, options)
    model, x, y, (sigma, x_sigma) = columns_of(model, x, y, {"sigma": sigma, "x_sigma": x_sigma})
    if options.get("nan_policy") == "omit":
        x, y, sigma = _without_nan(x, y, sigma)
    names = _names(model, p0)
    extra = [n for n in p0 if n not in names] if ties and isinstance(p0, Mapping) else []
    tied = Ties.read(names, ties or {}, extra)
    curve = tied.apply(model)
    known = _known(p0, fixed, tied.free)
    limits = bounds_of(bounds, tied.free)
    mask = mask_of(fixed, tied.free)
    rest = [k for k in range(len(tied.free)) if k not in known]
    stored = is_stored([x, y], options.get("max_memory"))
    partial = None if stored else partial_model(curve, known, rest)
    if stored and rest and known:
        raise ValueError(f"p0: data in files need a start for all parameters or for none: {', '.join(tied.free)}")
    start = None if stored and rest else _start(partial, known, rest, x, y, limits, loss != "linear")
    if x_sigma is not None:
        from .likelihoods.errors_in_x import fit_distance

        if start is None or np.ndim(sigma) > 1:
            raise ValueError("x_sigma: data in files, and covariance matrices, have no errors in x")
        return fit_distance(
            model, tied, jac, x, y, sigma, x_sigma, start, limits, mask, absolute_sigma, {"loss": loss, **options}
        )
    derivative = None if jac is None else tied.apply_to_jacobian(jac)

    def refit(start: Any, x: Any = x, y: Any = y, sigma: Any = sigma, fixed: Any = mask) -> Result:
        again = limits
        if fixed is not None and fixed is not mask:  # a fixed parameter may lie outside its bounds
            again = (np.where(fixed, -np.inf, limits[0]), np.where(fixed, np.inf, limits[1]))
        result: Result = fit_curve(
            curve, x, y, start, sigma, bounds=again, jac=derivative, fixed=fixed, loss=loss, **options
        )
        return result

    def made(result: Result) -> Fit:
        result.names, result.absolute = tied.free, absolute_sigma
        name = loss if isinstance(loss, str) else str(getattr(loss, "name", "custom"))
        kept = {} if stored else {"x": x, "y": y, "sigma": sigma}
        return Fit(model, tied, result, absolute_sigma=absolute_sigma, loss=name, bounds=limits, jac=jac, refit=refit,
                   **kept)  # fmt: skip

    return settle(start, refit, made, partial, rest, limits)


def _fit_complex(model: Any, x: Any, y: Any, sigma: Any, absolute: bool, p0: Any, bounds: Any, fixed: Any, ties: Any,
                 loss: Any, options: dict[str, Any]) -> Fit:  # fmt: skip
    """Fit real and imaginary parts together."""
    from .likelihoods.complex_data import as_complex, stacked

    if isinstance(model, str | Model):
        raise TypeError("model: formulas are real; complex data need a function f(x, *parameters)")
    function, points, values, spread = stacked(checked(model), x, y, sigma, _names(model, p0))
    found = fit(function, points, values, sigma=spread, absolute_sigma=absolute, p0=p0, bounds=bounds, fixed=fixed,
                ties=ties, loss=loss, **options)  # fmt: skip
    return as_complex(found, model)


def settle(
    start: Array | None,
    solve: Callable[[Any], Result],
    made: Callable[[Result], Fit],
    partial: Model | None,
    rest: Sequence[int],
    limits: tuple[Array, Array],
) -> Fit:
    """Solve; if a fit from a guess is doubtful, solve again from better starts, and report the doubts that remain.

    Parameters
    ----------
    start : (d,) array or None
        The start; None if the solver guesses it.
    solve, made
        Functions from a start to a result, and from a result to a fit.
    partial
        Model of the guessed parameters (`partial_model`); None if none was guessed.
    rest
        Positions of the guessed parameters.
    limits
        (d,) lower and upper bounds.
    """
    found = made(solve(start))
    doubtful = doubts(found)
    ended = found.result.status in (Status.STOPPED, Status.TIME, Status.INTERRUPTED)
    if partial is not None and not ended and any(kind in SERIOUS for kind in doubtful):
        for other in _better(found, partial, rest, limits):
            again = made(solve(other))
            if again.result.cost < found.result.cost:
                found, doubtful = again, doubts(again)
    return replace(found, warnings=tuple(doubtful.values()))


def _known(p0: Any, fixed: Any, free: tuple[str, ...]) -> dict[int, float]:
    """Given starts, by the position of the parameter."""
    if p0 is not None and not isinstance(p0, Mapping):
        start = np.atleast_1d(np.asarray(p0, dtype=np.float64))
        if start.shape != (len(free),):
            raise ValueError(f"p0 has shape {start.shape}; expected {len(free)} values: {', '.join(free)}")
        p0 = dict(zip(free, start.tolist(), strict=True))
    held = fixed if isinstance(fixed, Mapping) else {}
    return {**by_name(free, p0 or {}, "p0"), **by_name(free, held, "fixed")}


def _start(
    partial: Model | None,
    known: Mapping[int, float],
    rest: Sequence[int],
    x: Any,
    y: Any,
    limits: tuple[Array, Array],
    robust: bool,
) -> Array:
    """The known starts, and guesses (or ones) within the bounds for the rest."""
    start = np.array([known.get(k, 1.0) for k in range(len(known) + len(rest))])
    if rest:
        guess = start[rest] if partial is None else partial.guess(x, y, robust)
        start[rest] = np.clip(guess, limits[0][rest], limits[1][rest])
    return start


def _without_nan(x: Any, y: Any, sigma: Any) -> tuple[Any, Any, Any]:
    """The rows without a NaN, so that residuals, bootstraps and plots use the rows that were fitted."""
    each = sigma is not None and np.ndim(sigma) == 1
    good = np.isfinite(np.asarray(y, dtype=np.float64))
    good &= np.isfinite(np.asarray(x, dtype=np.float64).reshape(-1, len(good)) if not hasattr(x, "iloc") else x.T).all(
        axis=0
    )
    if each:
        good &= np.isfinite(np.asarray(sigma, dtype=np.float64))
    chosen = x[good] if hasattr(x, "iloc") else np.asarray(x)[..., good]
    return chosen, np.asarray(y)[good], np.asarray(sigma)[good] if each else sigma


def _names(model: Any, p0: Any) -> tuple[str, ...]:
    names = tuple(getattr(model, "parameters", None) or ())
    if not names:
        try:
            kinds = list(inspect.signature(model).parameters.values())[1:]
        except (TypeError, ValueError):
            kinds = []
        if kinds and all(k.kind in (k.POSITIONAL_ONLY, k.POSITIONAL_OR_KEYWORD) for k in kinds):
            names = tuple(k.name for k in kinds)
    if not names and isinstance(p0, Mapping):
        names = tuple(p0)
    if not names and p0 is not None:
        names = tuple(f"p{i}" for i in range(np.size(p0)))
    if not names:
        raise ValueError("p0 is needed: the names of the parameters cannot be told from the signature of the model")
    return names


def bounds_of(bounds: Any, names: Sequence[str]) -> tuple[Array, Array]:
    lower, upper = np.full(len(names), -np.inf), np.full(len(names), np.inf)
    if isinstance(bounds, Mapping):
        for k, pair in by_name(tuple(names), bounds, "bounds").items():
            low, high = pair
            lower[k] = -np.inf if low is None else low
            upper[k] = np.inf if high is None else high
        return lower, upper
    if bounds is None:
        return lower, upper
    pair = (bounds.lb, bounds.ub) if hasattr(bounds, "lb") else bounds
    if np.ndim(pair) < 1 or len(pair) != 2 or any(np.size(p) not in (1, len(names)) for p in pair):
        raise ValueError(f"bounds: expected names with (lower, upper), or a pair for {len(names)} parameters")
    lower[:], upper[:] = pair
    return lower, upper


def mask_of(fixed: Any, names: Sequence[str]) -> NDArray[np.bool_] | None:
    if fixed is None:
        return None
    wanted = [fixed] if isinstance(fixed, str) else list(fixed)
    mask = np.zeros(len(names), dtype=bool)
    mask[list(by_name(tuple(names), dict.fromkeys(wanted), "fixed"))] = True
    return mask


def partial_model(curve: Any, known: Mapping[int, float], rest: Sequence[int]) -> Model | None:
    """The model of the unknown parameters, if it can guess them."""
    if not rest or not isinstance(curve, Model) or curve.body is None:
        return None
    places = {k: ex.constant(float(v)) for k, v in known.items()} | {k: ex.parameter(i) for i, k in enumerate(rest)}
    names = tuple(curve.parameters[k] for k in rest)
    return replace(curve, parameters=names, body=ex.substitute(curve.body, places), terms=(), kind="", _made={})


def _better(found: Fit, partial: Model, rest: Sequence[int], limits: tuple[Array, Array]) -> list[Array]:
    """At most two starts whose cost on a sample of the rows is lower than that of the fit."""
    x, y, deviations = sample(found)
    curve = found.ties.apply(found.model)
    now, power = np.asarray(found.result.x, dtype=np.float64), 2 if found.loss == "linear" else 1

    def cost(theta: Array) -> float:
        return float(np.sum(np.abs((curve(x, *theta) - y) / deviations) ** power))

    lowest = cost(now)
    starts = []
    for guess in alternatives(partial, x, y):
        theta = now.copy()
        theta[rest] = np.clip(guess, limits[0][rest], limits[1][rest])
        if cost(theta) < 0.99 * lowest:
            starts.append(theta)
    return starts[:2]
