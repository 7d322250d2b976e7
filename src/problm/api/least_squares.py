"""SciPy's front door: `least_squares`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Unpack

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
    f_scale: float | Literal["auto"] = 1.0,
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
        ``fun(theta, *rows) -> (k,)`` or ``(k, p)`` residuals of the k given rows of ``data``; or a `problm.formula` or
        `problm.model`, which runs compiled. Without ``data``, ``fun(theta, *args)`` returns all residuals, as in SciPy,
        and every step uses all of them. A function whose residual of a row depends on other rows (``t - t[0]``,
        ``cumsum``, a convolution) is recognised and gets all rows in every call; the result's ``row_wise`` is then
        False.
    x0 : (d,) array_like
        Start values of the parameters.
    jac : callable or {'2-point', '3-point', 'cs'}
        ``jac(theta, *rows) -> (k, d)`` or ``(k, p, d)``, or a difference scheme. Without ``data`` also a sparse matrix
        or a ``LinearOperator``.
    bounds : (lower, upper)
        Numbers or (d,) arrays, as in SciPy.
    method : {'problm', 'lm', 'trf', 'dogbox'}
        ``'problm'`` uses growing batches, ``'lm'`` is plain Levenberg-Marquardt on all residuals. SciPy's ``'trf'`` and
        ``'dogbox'`` mean ``'problm'``, which handles bounds and losses as well. Without ``data`` every method uses all
        residuals, and ``'lm'`` refuses bounds, losses and sparse Jacobians, as in SciPy.
    ftol, xtol : float or None
        Relative changes of cost and parameters that also end the solve. By default, and for None, they do not: a small
        step does not imply a minimum.
    gtol : float or None
        Largest cosine between the residuals and the tangent space at convergence; None turns this test off. The default
        is 1e-8 up to 10^4 residuals (48,000 rows of a NumPy function, 20,000 without data), and for more of them the
        cosine of a point that is 0.01 standard errors from the minimum (`problm.solver.termination`).
    x_scale : 'jac' or (d,) array_like, optional
        Typical sizes of the parameters for the damping; by default from the Jacobian.
    loss : str, callable or `problm.losses.Loss`
        On the norm of a block: linear, huber, soft_l1, cauchy, arctan, geman_mcclure, welsch, tukey, truncated, or
        ``z -> (rho, rho')``.
    f_scale : float or "auto"
        Scale of the loss: residuals below it count as inliers. "auto" takes it from the data, by the median size of the
        residuals at a robust fit (`problm.api.loss_scale`); the result's ``f_scale`` is the number.
    diff_step : number or (d,) array_like, optional
        Relative steps of the differences.
    tr_solver, tr_options
        SciPy's choice between dense and iterative linear algebra. Checked but not used: steps are solved by a Cholesky
        decomposition here.
    jac_sparsity : (m, d) array_like or sparse matrix, optional
        Non-zero where a residual depends on a parameter; only without ``data``. Parameters that share no residual are
        moved together in finite differences, and the normal equations are formed from a sparse Jacobian.
    max_nfev : int, optional
        Largest number of evaluations of the residuals, not counting those for finite differences.
    verbose : {0, 1, 2}
        1 prints the outcome, 2 also a row per iteration.
    args, kwargs
        Further arguments of ``fun`` and ``jac``, which are not sliced.
    callback : callable, optional
        Called after every iteration; StopIteration or a true return value ends the solve. With ``data`` it is called as
        ``callback(state)`` with a `problm.solver.result.State`, without it as in SciPy: ``callback(x)`` or
        ``callback(intermediate_result=...)``. A parameter that is named ``state``, ``x`` or ``intermediate_result``
        gets what its name says in either case.
    workers : int or map-like callable, optional
        Evaluates finite differences: a number of threads, or a map such as ``pool.map``.
    data : array, tuple of arrays or mapping of arrays
        Arrays with N rows along the first axis: NumPy arrays, lists, pandas, polars or PyArrow columns. The solver
        passes slices of them to ``fun`` and ``jac``, before ``args``. Rows need not fit into memory: ``data`` may also
        be paths (``.npy``, ``.npz``, ``.zarr``, Parquet files and folders), memory maps, Zarr and HDF5 arrays, PyArrow
        datasets, Dask collections, or anything with a length and slices (see `problm.data.sources.open_source`). Data
        frames and other tables are passed as one array of their columns; a formula takes the columns that it names.
    fixed : mask or indices, optional
        Parameters that keep their start value.
    acceptance : str or policy, optional
        Test of a step on a batch: ``"holdout"`` (default), ``"paper"``, ``"paper-relaxed"``,
        ``"hoeffding-serfling"``, ``"empirical-bernstein"``, ``"full"``, or an object of
        `problm.solver.policies.acceptance`.
    manifold : object, optional
        An object with ``retract(theta, delta)`` and ``dim``; derivatives are then with respect to ``delta``.
    nan_policy : {'reject', 'raise', 'omit'}
        What to do with a step whose cost is NaN: reject it, or raise and name the row. ``'omit'`` first leaves out
        the rows of ``data`` that have a NaN.
    rng : Generator or seed
        Random order of the rows. The default, 0, gives the same bits in every call; None uses fresh entropy.
    threads : int, optional
        Number of threads of compiled models; by default all cores that the process may use.
    backend : {'numpy', 'jax', 'torch'}, optional
        Library that ``fun`` is written with; by default detected. JAX and PyTorch functions, for a batch or for a
        single row, get exact derivatives and run on their device (see `problm.problems.backends`).
    max_memory : int or str, optional
        Memory for data from files, in bytes or as text such as ``"2GB"``; by default half of the free memory.
    client : dask.distributed.Client, str, concurrent.futures.Executor or problm.MapReduce, optional
        Solve on its workers, where the partitions of ``data`` stay (see `problm.distributed.problem`): a Dask client,
        the address of a scheduler or ``"local"``, a pool, or any cluster as three functions.
    progress : bool or callable
        Whether to show a line of progress on the terminal.
    **options
        Fields of `problm.solver.options.Options`: max_iter, max_time, accuracy, confidence, damping,
        initial_batch, max_batch, keep_path.

    Returns
    -------
    `problm.Result`
        SciPy's ``x, cost, grad, optimality, nfev, njev, status, message, success``, and also ``history``,
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
