"""SciPy's front door: `least_squares`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from ..data.named_columns import chosen_columns
from ..data.sources import is_stored
from ..losses import Loss
from ..solver.result import Result
from . import arguments as inputs
from .call import Call
from .scipy_arguments import DEFAULT, LossName, Method, Scheme, SolverOptions, names_of


def least_squares(
    fun: Any,
    x0: ArrayLike,
    jac: Scheme | Callable[..., Any] = "2-point",
    bounds: Any = (-np.inf, np.inf),
    method: Method = "problm",
    ftol: float | None = DEFAULT,
    xtol: float | None = DEFAULT,
    gtol: float | None = DEFAULT,
    x_scale: ArrayLike | None = None,
    loss: LossName | Loss | Callable[..., Any] = "linear",
    f_scale: float = 1.0,
    diff_step: ArrayLike | None = None,
    tr_solver: str | None = None,
    tr_options: Mapping[str, Any] | None = None,
    jac_sparsity: Any = None,
    max_nfev: int | None = None,
    verbose: int = 0,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    callback: Callable[..., Any] | None = None,
    workers: int | Callable[..., Any] | None = None,
    *,
    data: Any = None,
    fixed: Any = None,
    acceptance: Any = None,
    manifold: Any = None,
    nan_policy: str = "reject",
    rng: np.random.Generator | int | None = 0,
    threads: int | None = None,
    backend: str | None = None,
    max_memory: int | float | str | None = None,
    client: Any = None,
    progress: bool | Callable[..., Any] = False,
    **options: Unpack[SolverOptions],
) -> Result:
    """Minimise ``0.5 * sum(rho(||r_i||**2))`` over very many residual blocks ``r_i`` and few parameters.

    Parameters
    ----------
    fun : callable or model
        ``fun(theta, *rows) -> (k,)`` or ``(k, p)`` residuals of the k rows of ``data`` that it is given; or a
        `problm.formula` or `problm.model`, which runs compiled. Without ``data``: ``fun(theta, *args)`` returns all
        residuals, as for SciPy, and every step uses all of them. A function whose residual of a row depends on other
        rows (``t - t[0]``, ``cumsum``, a convolution) is recognised, gets all rows in every call, and the result's
        ``row_wise`` is False.
    x0 : (d,) array_like
        The start.
    jac : callable or {'2-point', '3-point', 'cs'}
        ``jac(theta, *rows) -> (k, d)`` or ``(k, p, d)``, or a difference scheme. Without ``data`` also a sparse matrix
        or a ``LinearOperator``.
    bounds : (lower, upper)
        Numbers or (d,) arrays, as SciPy's.
    method : {'problm', 'lm', 'trf', 'dogbox'}
        Growing batches, or plain Levenberg-Marquardt on all residuals. SciPy's ``'trf'`` and ``'dogbox'`` are taken
        for ``'problm'``, which knows bounds and losses as they do. Without ``data`` every method uses all residuals,
        and ``'lm'`` refuses bounds, losses and sparse Jacobians, as SciPy's does.
    ftol, xtol : float or None
        Relative changes of cost and parameters at which to stop as well. By default, and for None, they are no reason
        to stop: small steps do not make a minimum.
    gtol : float or None
        Cosine between the residuals and the tangent space; None: this test is off. By default 1e-8, and beyond 10^4
        residuals the cosine of a point that is 0.01 standard errors from the minimum (`problm.solver.termination`).
    x_scale : 'jac' or (d,) array_like, optional
        Typical sizes of the parameters for the damping; by default from the Jacobian.
    loss : str, callable or `problm.losses.Loss`
        On the norm of a block: linear, huber, soft_l1, cauchy, arctan, geman_mcclure, welsch, tukey, truncated, or
        ``z -> (rho, rho')``.
    f_scale : float
        Scale of the loss: residuals below it count as inliers.
    diff_step : number or (d,) array_like, optional
        Relative steps of the differences.
    tr_solver, tr_options
        SciPy's choice between dense and iterative solves of its steps. Checked, and a hint only: steps are solved by
        Cholesky's decomposition here.
    jac_sparsity : (m, d) array_like or sparse matrix, optional
        Not zero where a residual depends on a parameter, without ``data``: parameters that share no residual are
        moved together in the differences, and the normal equations are formed from a sparse Jacobian.
    max_nfev : int, optional
        Most evaluations of the residuals, those for differences not counted.
    verbose : {0, 1, 2}
        1 prints how it ended, 2 the progress too.
    args, kwargs
        Further arguments of ``fun`` and ``jac`` that are not sliced.
    callback : callable, optional
        Called after every iteration; StopIteration, or a true value, ends the solve. With ``data``:
        ``callback(state)``, a `problm.solver.result.State`. Without, as SciPy's: ``callback(x)`` or
        ``callback(intermediate_result=...)``. The names of the parameter, ``state``, ``x`` and
        ``intermediate_result``, decide in either case.
    workers : int or map-like callable, optional
        Calls the function for differences: so many threads, or ``pool.map``.
    data : array, tuple of arrays or mapping of arrays
        Arrays with N rows along the first axis: NumPy, lists, float32, pandas, polars or PyArrow columns. The solver
        passes slices of them to ``fun`` and ``jac``, before ``args``. Also rows that need not fit into memory: paths
        (``.npy``, ``.npz``, ``.zarr``, Parquet files and folders), memory maps, Zarr and HDF5 arrays, PyArrow datasets,
        Dask collections, anything with a length and slices (see `problm.data.sources.open_source`). Data frames and
        other tables are their columns side by side; a formula takes those that it names.
    fixed : mask or indices, optional
        Parameters that stay at their start.
    acceptance : str or policy, optional
        The test of a step on a batch: ``"holdout"`` (default), ``"paper"``, ``"paper-relaxed"``,
        ``"hoeffding-serfling"``, ``"empirical-bernstein"``, ``"full"``, or an object of
        `problm.solver.policies.acceptance`.
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
    progress : bool or callable
        Show a line of progress on the terminal.
    **options
        Fields of `problm.solver.options.Options`: max_iter, max_time, accuracy, confidence, damping,
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
    call = Call(
        start=x0, plain=data is None, jac=jac, bounds=bounds, method=method, ftol=ftol, xtol=xtol, gtol=gtol,
        x_scale=x_scale, loss=loss, f_scale=f_scale, diff_step=diff_step, tr_solver=tr_solver, tr_options=tr_options,
        jac_sparsity=jac_sparsity, max_nfev=max_nfev, verbose=verbose, args=args, kwargs=kwargs, callback=callback,
        workers=workers, fixed=fixed, acceptance=acceptance, manifold=manifold, nan_policy=nan_policy, rng=rng,
        threads=threads, backend=backend, max_memory=max_memory, client=client, progress=progress, options=options,
    )  # fmt: skip
    if not isinstance(data, tuple):
        data = chosen_columns(fun, data)
    stored = data is not None and (client is not None or is_stored(data, max_memory))
    rows = data if stored else () if data is None else inputs.checked_columns(data, nan_policy)
    model = call.compiled(fun) if hasattr(fun, "residual_kernel") else call.function(fun, jac)
    result = call.fit(model, rows, stored=stored)
    result.names = names_of(fun, call.dim)
    return result
