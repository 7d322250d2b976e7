"""`fit_rows`: from a row model and its data to a result. Every front door calls it.

1. Choose the problem: rows in memory, in files, or on a cluster (`problm.api.stored`).
2. Check whether rows are independent (`problm.problems.row_wise`). A function whose rows depend on each other gets all
   rows in every call, and every step uses all of them. The check is done before the first step and again at the
   solution; if it fails there, the solve is repeated with all rows.
3. Solve (`problm.solver.loop`).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..linalg.space import Space
from ..problems.numpy_function import FunctionProblem
from ..problems.rows import Columns, FunctionModel, RowModel
from ..solver.loop import solve
from ..solver.problem import Problem, Theta
from ..solver.result import Result, Status
from .settings import NOT_ROW_WISE, NotRowWise, Settings

Array = NDArray[np.float64]
ALL_ROWS = " fun looks beyond its own row, so it was always called with all rows, and every step used all of them."


def fit_rows(model: RowModel, data: Any, start: Theta, settings: Settings, *, stored: bool = False) -> Result:
    """Minimise the cost of a model over its rows.

    Parameters
    ----------
    model
        Evaluates rows.
    data
        Checked arrays with N rows; none for a function that returns all residuals at once; or, if ``stored``, data in
        files or on a cluster.
    start
        The point to start from.
    settings
        How to solve.
    """
    if stored:
        from .stored import stored_problem

        points = [*nearby(start, settings.space), start]
        model, problem, columns = stored_problem(model, points, data, settings)
        asked = True
    else:
        columns = data
        together = not columns or (len(columns[0]) <= FunctionProblem.few and not settings.batches)
        points = [start] if together else [*nearby(start, settings.space), start]
        model = model.prepared(points, columns, together=together)
        asked = not (together and isinstance(model, FunctionModel))
        problem = model.problem(columns, settings.rng)
    if problem.n * model.components < model.dim and not settings.underdetermined:
        raise ValueError(
            f"{problem.n} residual blocks cannot determine {model.dim} parameters: give more data or fix parameters"
        )
    began = time.perf_counter()
    result = _solved(model, problem, start, settings, settings.options)
    if not model.whole and not _holds(model, problem, columns, result):
        if len(columns[0]) < problem.n:
            raise NotRowWise(NOT_ROW_WISE)
        left = settings.options.get("max_time", np.inf) - (time.perf_counter() - began)
        model = model.with_all_rows()
        options = {**settings.options, "max_time": max(left, 1e-6)}
        result = _solved(model, model.problem(columns, settings.rng), start, settings, options)
        result.row_wise = False
    if isinstance(problem, FunctionProblem) and not columns:
        result.nfev, result.njev = problem.nfev, problem.njev
    if model.whole and columns and result.row_wise is None and asked:
        result.row_wise = False
    if result.row_wise is False:
        result.message += ALL_ROWS
    return result


def _holds(model: RowModel, problem: Problem, columns: Columns, result: Result) -> bool:
    """Whether rows give the same residuals alone and together at the solution; not checked if the solve was stopped."""
    if result.status in (Status.INTERRUPTED, Status.STOPPED, Status.TIME) or not columns:
        return True
    return model.holds(result.x, columns, problem if result.batch_size == result.n else None)


def _solved(model: RowModel, problem: Problem, start: Theta, settings: Settings, options: dict[str, Any]) -> Result:
    """Solve once, and release the problem's external resources."""
    acceptance = "full" if model.whole else settings.acceptance or "holdout"
    how = {**options, "acceptance": acceptance, "nan_policy": settings.nan_policy, "rng": settings.rng}
    if model.whole:
        how = {name: value for name, value in how.items() if name not in ("initial_batch", "max_batch")}
    try:
        if not settings.progress:
            return solve(problem, start, space=settings.space, begun=settings.begun, callback=settings.callback, **how)
        from ..report.progress import showing

        with showing(settings.callback, settings.progress, problem) as callback:
            return solve(problem, start, space=settings.space, callback=callback, **how)
    finally:
        problem.close()


def nearby(start: Theta, space: Space) -> list[Array]:
    """Points near the start, within the bounds and without zeros, so that no term of the model vanishes."""
    if not isinstance(start, np.ndarray) or start.shape != (space.dim,):
        return []
    sizes = np.where(start == 0.0, 1.0, np.abs(start))
    shifts = 0.1 * (1.0 + (0.6180339887498949 * np.arange(1, space.dim + 1)) % 1.0)
    moved = start + np.where(np.arange(space.dim) % 2, -1.0, 1.0) * shifts * sizes
    if space.fixed is not None:
        moved = np.where(space.fixed, start, moved)
    return [space.inside(moved)]
