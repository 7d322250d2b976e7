"""SciPy's front door: `least_squares`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.named_columns import chosen_columns
from ..data.sources import is_stored
from ..linalg.space import Space
from ..losses import as_loss
from ..problems.backends import backend_rows, detect
from ..problems.numpy_function import FunctionProblem
from ..problems.rows import Rows, compiled_rows, function_rows
from ..solver.loop import solve
from ..solver.problem import Problem
from ..solver.result import Result
from ..support.differences import METHODS
from ..support.suggest import suggest
from . import arguments as inputs

Array = NDArray[np.float64]
_METHODS = {"problm": "problm", "lm": "lm", "trf": "problm", "dogbox": "problm"}
"""SciPy's names for methods that know bounds and losses, as the default here does."""


def least_squares(
    fun: Any,
    x0: Any,
    *,
    data: Any = None,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    jac: str | Callable[..., Any] = "2-point",
    bounds: Any = (-np.inf, np.inf),
    fixed: Any = None,
    x_scale: Any = None,
    loss: Any = "linear",
    f_scale: float = 1.0,
    method: str = "problm",
    acceptance: Any = None,
    manifold: Any = None,
    nan_policy: str = "reject",
    rng: np.random.Generator | int | None = 0,
    threads: int | None = None,
    backend: str | None = None,
    max_memory: int | float | str | None = None,
    client: Any = None,
    max_nfev: int | None = None,
    verbose: int = 0,
    callback: Callable[..., Any] | None = None,
    progress: bool | Callable[..., Any] = False,
    **options: Any,
) -> Result:
    """Minimise ``0.5 * sum(rho(||r_i||**2))`` over very many residual blocks ``r_i`` and few parameters.

    Parameters
    ----------
    fun : callable or model
        ``fun(theta, *rows) -> (k,)`` or ``(k, p)`` residuals of the k rows of ``data`` that it is given; or a
        `problm.formula` or `problm.model`, which runs compiled. Without ``data``: ``fun(theta, *args)`` returns all
        residuals, as for SciPy, and every step uses all of them.
    x0 : (d,) array_like
        The start.
    data : array, tuple of arrays or mapping of arrays
        Arrays with N rows along the first axis: NumPy, lists, float32, pandas, polars or PyArrow columns. The solver
        passes slices of them to ``fun`` and ``jac``, before ``args``. Also rows that need not fit into memory: paths
        (``.npy``, ``.npz``, ``.zarr``, Parquet files and folders), memory maps, Zarr and HDF5 arrays, PyArrow datasets,
        Dask collections, anything with a length and slices (see `problm.data.sources.open_source`). Data frames and
        other tables are their columns side by side; a formula takes those that it names.
    args, kwargs
        Further arguments of ``fun`` and ``jac`` that are not sliced.
    jac : callable or {'2-point', '3-point', 'cs'}
        ``jac(theta, *rows) -> (k, d)`` or ``(k, p, d)``, or a difference scheme.
    bounds : (lower, upper)
        Numbers or (d,) arrays, as SciPy's.
    fixed : mask or indices, optional
        Parameters that stay at their start.
    x_scale : 'jac' or (d,) array_like, optional
        Typical sizes of the parameters for the damping; by default from the Jacobian.
    loss : str, callable or `problm.losses.Loss`
        On the norm of a block: linear, huber, soft_l1, cauchy, arctan, geman_mcclure, welsch, tukey, truncated, or
        ``z -> (rho, rho')``.
    f_scale : float
        Scale of the loss: residuals below it count as inliers.
    method : {'problm', 'lm'}
        Growing batches, or plain Levenberg-Marquardt on all residuals. SciPy's ``'trf'`` and ``'dogbox'`` are taken
        for ``'problm'``, which knows bounds and losses as they do.
    acceptance : str or policy, optional
        The test of a step on a batch: ``"holdout"`` (default), ``"paper"``, ``"paper-relaxed"``,
        ``"hoeffding-serfling"``, ``"empirical-bernstein"``, ``"full"``, or an object of `problm.solver.acceptance`.
    manifold : object, optional
        With ``retract(theta, delta)`` and ``dim``; derivatives are then by ``delta``.
    nan_policy : {'reject', 'raise', 'omit'}
        What to do with a step whose cost is NaN: reject it, or raise and name the row. ``'omit'`` first leaves out
        the rows of ``data`` that have a NaN.
    rng : Generator or seed
        Of the random order. The default, 0, gives the same bits in every call; None draws from the system.
    threads : int, optional
        For compiled models; by default all cores that the process may use.
    backend : {'numpy', 'jax', 'torch'}, optional
        What ``fun`` is written with; by default detected. JAX and PyTorch functions, for a batch or for a single row,
        get exact derivatives and run on their device (see `problm.problems.backends`).
    max_memory : int or str, optional
        Bytes, or text such as ``"2GB"``, that data from files may take; by default half of the free memory.
    client : dask.distributed.Client, optional
        Solve on its workers, where the partitions of ``data`` stay (see `problm.distributed.problem`).
    callback : callable, optional
        ``callback(state)`` after every iteration; a true value or StopIteration ends the solve.
    max_nfev, verbose
        SciPy's: another name of ``max_iter``; 1 prints how it ended, 2 the progress too.
    progress : bool or callable
        Show a line of progress on the terminal.
    **options
        Fields of `problm.solver.options.Options`: ftol, xtol, gtol, max_iter, max_time, accuracy, confidence, damping,
        initial_batch, max_batch, keep_path.

    Returns
    -------
    `problm.Result`
        With SciPy's ``x, cost, grad, optimality, nfev, njev, status, message, success``, and ``history``,
        ``covariance``, ``residual_passes``, ``jacobian_passes``, ``report()``, ``plot()``.

    Examples
    --------
    >>> import numpy as np, problm
    >>> rng = np.random.default_rng(1)
    >>> x = rng.uniform(0, 5, 100_000)
    >>> y = 2.0 * np.exp(-0.7 * x) + 0.3 + 0.1 * rng.standard_normal(x.size)
    >>> fit = problm.least_squares(lambda t, x, y: t[0] * np.exp(-t[1] * x) + t[2] - y, [1, 1, 0], data=(x, y))
    >>> fit.success, fit.x.round(2)
    (True, array([2. , 0.7, 0.3]))
    """
    if not callable(fun):
        raise TypeError(f"fun must be callable or a compiled model, got {type(fun).__name__}")
    if method not in _METHODS:
        raise ValueError(
            f"method={method!r} is not known{suggest(method, _METHODS)}; choose 'problm' (growing batches; bounds and "
            "robust losses included) or 'lm' (all residuals in every step)"
        )
    if max_nfev is not None:
        options.setdefault("max_iter", max_nfev)
    progress = progress or verbose > 1
    if _METHODS[method] == "lm":
        if acceptance not in (None, "full"):
            raise ValueError("method='lm' uses all residuals: drop acceptance, or use method='problm'")
        acceptance = "full"
    start, dim = (inputs.parameters("x0", x0), 0) if manifold is None else (x0, int(manifold.dim))
    dim = dim or len(start)
    limits = None if manifold is not None else inputs.limits(bounds, start)
    space = Space(
        dim,
        None if limits is None else limits[0],
        None if limits is None else limits[1],
        inputs.fixed_mask(fixed, dim),
        inputs.scales(x_scale, dim),
    )
    if nan_policy not in ("reject", "raise", "omit"):
        raise ValueError(f"nan_policy must be 'reject', 'raise' or 'omit', got {nan_policy!r}")
    checked = isinstance(data, inputs.Checked)
    if not isinstance(data, tuple):
        data = chosen_columns(fun, data)
    stored = data is not None and not checked and (client is not None or is_stored(data, max_memory))
    rows = () if data is None or stored else inputs.columns(data)
    if stored and nan_policy == "omit":
        raise ValueError("nan_policy='omit' needs data in memory: remove rows with NaN from the files first")
    if rows:
        if nan_policy == "omit":
            rows = inputs.omit_nan(rows)
        elif not checked and len(rows[0]) <= inputs.CHECK_UP_TO:
            inputs.finite([(f"data[{i}]", a) for i, a in enumerate(rows)])
    the_loss = as_loss(loss, f_scale)
    if not callable(jac) and jac not in METHODS:
        raise ValueError(f"jac={jac!r} is not known{suggest(jac, METHODS)}; give a callable or one of {METHODS}")
    extra = dict(kwargs or {})

    def model_of(few: tuple[NDArray[Any], ...]) -> Rows:
        if hasattr(fun, "residual_kernel"):
            return compiled_rows(fun, few, dim, the_loss, threads)
        bound = _bind(fun, args, extra), _bind(jac, args, extra)
        if few and backend != "numpy" and not callable(jac):
            other = backend_rows(backend or detect(fun), bound[0], few, start, dim, the_loss, manifold)
            if other is not None:
                return other
        return function_rows(*bound, few, start, dim, the_loss, manifold, limits)

    problem: Problem
    if stored:
        from .stored import stored_problem

        problem = stored_problem(model_of, data, client, max_memory, rng)
    else:
        problem = model_of(tuple(a[:8] for a in rows)).problem(rows, rng)
        if not rows:
            acceptance = "full"
    if problem.n * problem.components < dim:
        raise ValueError(
            f"{problem.n} residual blocks cannot determine {dim} parameters: give more data or fix parameters"
        )
    options["acceptance"] = "holdout" if acceptance is None else acceptance
    options["nan_policy"] = "raise" if nan_policy == "raise" else "reject"
    try:
        if not progress:
            result = solve(problem, start, space=space, rng=rng, callback=callback, **options)
        else:
            from ..report.progress import showing

            with showing(callback, progress) as callback:
                result = solve(problem, start, space=space, rng=rng, callback=callback, **options)
    finally:
        problem.close()
    names = tuple(getattr(fun, "parameters", None) or ())  # of a formula
    if len(names) == dim and all(isinstance(n, str) for n in names):
        result.names = names
    if verbose:
        print(f"{result.message}\n{result!r}")
    return result


def function_problem(
    fun: Callable[..., Any],
    jac: Any,
    rows: tuple[NDArray[Any], ...],
    start: Any,
    dim: int,
    loss: Any,
    manifold: Any,
    limits: tuple[Array, Array] | None,
    rng: np.random.Generator | int | None,
) -> FunctionProblem:
    """A `FunctionProblem` whose block size is learnt from a first call on a few rows."""
    model = function_rows(fun, jac, tuple(a[:8] for a in rows), start, dim, loss, manifold, limits)
    return model.problem(rows, rng)


def _bind(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not callable(function) or not (args or kwargs):
        return function

    def bound(theta: Any, *rows: Any) -> Any:
        return function(theta, *rows, *args, **kwargs)

    return bound
