"""SciPy's arguments: their meaning here, and the errors for wrong ones."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from ..losses import Loss
from ..problems.differences import Differences
from ..solver.options import Options
from ..solver.result import State
from ..support.suggest import suggest

Array = NDArray[np.float64]
Method = Literal["problm", "lm", "trf", "dogbox"]
Scheme = Literal["2-point", "3-point", "cs"]
LossName = Literal[
    "linear", "huber", "soft_l1", "cauchy", "arctan", "geman_mcclure", "welsch", "tukey", "truncated"
]  # fmt: skip
METHODS = ("problm", "lm", "trf", "dogbox")
DEFAULT: float = float("nan")
"""Default of a tolerance that was not given; None turns its test off."""
_EPS = float(np.finfo(np.float64).eps)
_LSMR = ("regularize", "damp", "atol", "btol", "conlim", "maxiter", "show")


class SolverOptions(TypedDict, total=False):
    """Fields of `problm.solver.options.Options` that the front doors take as keywords."""

    damping: Any
    max_iter: int
    max_time: float
    initial_batch: int | None
    max_batch: int | None
    accuracy: float | None
    confidence: float
    certificate: str | None
    keep_path: bool
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: float


class CurveOptions(SolverOptions, total=False):
    """Keywords of `problm.curve_fit`: those of `problm.least_squares` and of SciPy's leastsq."""

    ftol: float | None
    xtol: float | None
    gtol: float | None
    x_scale: Any
    loss: LossName | Loss | Callable[..., Any]
    f_scale: float | Literal["auto"]
    diff_step: Any
    tr_solver: str | None
    tr_options: Mapping[str, Any] | None
    jac_sparsity: Any
    max_nfev: int | None
    verbose: int
    callback: Callable[..., Any] | None
    workers: int | Callable[..., Any] | None
    fixed: Any
    acceptance: Any
    manifold: Any
    rng: np.random.Generator | int | None
    threads: int | None
    backend: str | None
    max_memory: int | float | str | None
    client: Any
    progress: bool | Callable[..., Any]
    maxfev: int | None
    epsfcn: float | None
    factor: float
    diag: Any


_NAMED = (
    "p0",
    "sigma",
    "absolute_sigma",
    "check_finite",
    "bounds",
    "method",
    "jac",
    "full_output",
    "nan_policy",
    "data",
)
"""Further arguments of `problm.curve_fit` and `problm.least_squares`, for suggestions."""


def refuse_options(options: Mapping[str, Any]) -> None:
    """Raise for a keyword that is not an option, and suggest the nearest one."""
    for name in options:
        if name not in SolverOptions.__annotations__:
            valid = list(SolverOptions.__annotations__)
            known = (*CurveOptions.__annotations__, *_NAMED)
            raise TypeError(f"unknown option {name!r}{suggest(name, known)}; options are {', '.join(valid)}")
    if options:
        Options.of(**options)  # wrong values fail before any work


def uses_all_residuals(method: str, acceptance: Any) -> bool:
    """Whether a method uses all residuals in every step."""
    if method not in METHODS:
        raise ValueError(
            f"method={method!r} is not known{suggest(method, METHODS)}; choose 'problm' (growing batches; bounds and "
            "robust losses included) or 'lm' (all residuals in every step)"
        )
    if method == "lm" and acceptance not in (None, "full"):
        raise ValueError("method='lm' uses all residuals: drop acceptance, or use method='problm'")
    return method == "lm"


def refuse_as_minpack(limits: Any, loss: Loss, jac_sparsity: Any, callback: Any) -> None:
    """Refuse what MINPACK cannot do, as SciPy's ``method='lm'`` does; warn that it takes no callback."""
    if limits is not None:
        raise ValueError("method='lm' does not support bounds without data=: use 'trf' or 'problm'")
    if not loss.is_linear:
        raise ValueError("method='lm' supports only the 'linear' loss without data=: use 'trf' or 'problm'")
    if jac_sparsity is not None:
        raise ValueError("method='lm' does not support jac_sparsity: use 'trf' or 'problm'")
    if callback is not None:
        warnings.warn("Callback function specified, but not supported with `lm` method.", UserWarning, stacklevel=5)


def tolerances(
    ftol: float | None, xtol: float | None, gtol: float | None, plain: bool, minpack: bool
) -> dict[str, float]:
    """The given tolerances as options; None turns a test off, and at least one must be on, as in SciPy."""
    if ftol is DEFAULT and xtol is DEFAULT and gtol is DEFAULT:
        return {}
    given = {"ftol": ftol, "xtol": xtol, "gtol": gtol}
    small = [name for name, value in given.items() if value is None or value < _EPS]
    if plain and len(small) == 3:
        raise ValueError("at least one of ftol, xtol and gtol must be above the machine epsilon")
    if minpack and small:
        raise ValueError(f"{small[0]} must be above the machine epsilon with method='lm'")
    kept = {name: 0.0 if value is None else float(value) for name, value in given.items()}
    return {name: value for name, value in kept.items() if not np.isnan(value)}


def refused_jacobians(
    method: str, tr_solver: str | None, tr_options: Mapping[str, Any] | None, x_scale: Any, jac_sparsity: Any
) -> dict[str, str]:
    """Kinds of Jacobians (``sparse``, ``operator``) that the other arguments exclude, with the reasons."""
    if tr_solver not in (None, "exact", "lsmr"):
        raise ValueError(f"tr_solver must be None, 'exact' or 'lsmr', got {tr_solver!r}")
    unknown = [name for name in tr_options or () if name not in _LSMR]
    if unknown:
        raise TypeError(f"tr_options: unknown option {unknown[0]!r}{suggest(unknown[0], _LSMR)}")
    refused = {}
    if isinstance(x_scale, str):
        refused["operator"] = "x_scale='jac' needs a Jacobian with entries, not a LinearOperator"
    for excludes, why in ((tr_solver == "exact", "tr_solver='exact'"), (method == "lm", "method='lm'")):
        if excludes:
            refused |= dict.fromkeys(("sparse", "operator"), f"{why} needs a dense Jacobian")
    if jac_sparsity is not None and "sparse" in refused:
        raise ValueError(f"jac_sparsity: {refused['sparse']}")
    return refused


def differences(
    jac: Any, dim: int, manifold: Any, limits: tuple[Array, Array] | None, step: Any, sparsity: Any, mapped: Any
) -> Differences | None:
    """The difference scheme, if more than its name was given."""
    if callable(jac) or (step is None and sparsity is None and mapped is None):
        return None
    if sparsity is not None:
        from scipy.sparse import csr_array

        sparsity = csr_array(sparsity if hasattr(sparsity, "tocsr") else np.atleast_2d(sparsity))
    retract = None if manifold is None else manifold.retract
    return Differences(jac, dim, retract, limits, step, sparsity, mapped or map)


def mapped(workers: int | Callable[..., Any] | None, pools: ExitStack | None) -> Callable[..., Any] | None:
    """A map for finite differences, None for Python's own. Thread pools are closed by ``pools``."""
    if workers is None or pools is None or workers == 1:
        return None
    if callable(workers):
        return workers
    if int(workers) != workers or workers < -1 or workers == 0:
        raise ValueError(f"workers must be a number from 1, -1 for all cores, or a map, got {workers!r}")
    from concurrent.futures import ThreadPoolExecutor

    count = None if workers == -1 else int(workers)
    return pools.enter_context(ThreadPoolExecutor(count, thread_name_prefix="problm-map")).map


def evaluations(max_nfev: int | None) -> dict[str, int]:
    """``max_nfev`` as an option: one evaluation at the start, and one per trial step."""
    if max_nfev is None:
        return {}
    if not max_nfev > 0:
        raise ValueError(f"max_nfev must be None or a positive number, got {max_nfev!r}")
    return {"max_iter": int(max_nfev) - 1}


def called_back(callback: Callable[..., Any] | None, plain: bool) -> Callable[[State], Any] | None:
    """Convert the user's callback to one of the solver.

    The name of its parameter says what it takes: ``state``, ``x`` or ``intermediate_result``. A parameter of any other
    name gets SciPy's x in a call without data, and the state in a call with data.
    """
    if callback is None or not callable(callback):
        return callback
    try:
        names = list(inspect.signature(callback).parameters)
    except (TypeError, ValueError):
        names = []
    if names == ["intermediate_result"]:
        return Intermediate(callback)
    if names[:1] == ["state"] or (names[:1] != ["x"] and not plain):
        return callback
    return lambda state: callback(np.copy(state.x))


class Intermediate:
    """Calls the user's ``callback(intermediate_result=...)``; ``fun`` computes all residuals, if known."""

    def __init__(self, callback: Callable[..., Any]) -> None:
        self.callback = callback
        self.fun: Callable[..., Any] | None = None

    def __call__(self, state: State) -> Any:
        from scipy.optimize import OptimizeResult

        known = {"x": np.copy(state.x), "cost": state.cost, "nit": state.iteration, "nfev": state.iteration + 1}
        if self.fun is not None:
            known["fun"] = np.atleast_1d(self.fun(np.copy(state.x)))
        return self.callback(intermediate_result=OptimizeResult(**known))


class Bound:
    """A function with further arguments; can be pickled if the function can."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.__wrapped__, self.args, self.kwargs = function, args, kwargs

    def __call__(self, theta: Any, *rows: Any) -> Any:
        return self.__wrapped__(theta, *rows, *self.args, **self.kwargs)


def bind(function: Any, args: Any, kwargs: Mapping[str, Any] | None) -> Any:
    """A function with its further arguments."""
    args = args if isinstance(args, tuple) else tuple(args) if isinstance(args, list) else (args,)
    return Bound(function, args, dict(kwargs or {})) if callable(function) and (args or kwargs) else function


def names_of(model: Any, dim: int) -> tuple[str, ...]:
    """Names of the parameters of a formula."""
    names = tuple(getattr(model, "parameters", None) or ())
    return names if len(names) == dim and all(isinstance(n, str) for n in names) else ()
