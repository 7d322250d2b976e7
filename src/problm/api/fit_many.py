"""Many small fits of one model at once, for example one curve per pixel, well or group.

All fits run in one compiled loop (`problm.kernels.many_fits`). First guesses come from a grid of shapes
(`problm.models.guesses.many_curves`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..inference.estimate import by_name, quantile
from ..losses import Loss
from ..models.formula import formula
from ..models.guesses.many_curves import grid_guesses, lanes_kernel
from ..models.model import Model
from ..problems.many import Curves, solve_many
from .arguments import numbers
from .fit import bounds_of, mask_of

Array = NDArray[np.float64]
_ROWS = 4_000_000
"""Rows that are assembled at a time, to limit memory."""


@dataclass(frozen=True, eq=False, repr=False)
class Fits:
    """Fits of one model to B curves; arrays have one row per curve.

    Examples
    --------
    >>> import problm
    >>> x = np.linspace(0, 3, 40)
    >>> fits = problm.fit_many("y ~ a*exp(-b*x)", x, [np.exp(-x), 2 * np.exp(-3 * x)])
    >>> fits.names, fits.values.round(6).tolist(), fits.success.tolist()
    (('a', 'b'), [[1.0, 1.0], [2.0, 3.0]], [True, True])
    """

    names: tuple[str, ...]
    values: Array
    """(B, d) parameters."""
    errors: Array
    """(B, d) standard errors; NaN where they cannot be estimated."""
    chi2: Array
    """(B,) sums of squared residuals."""
    success: NDArray[np.bool_]
    """(B,) whether each fit converged."""
    iterations: NDArray[np.int64]
    n: NDArray[np.int64]
    """(B,) numbers of points."""
    n_free: int
    """Number of parameters that were fitted."""

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, name: str) -> Array:
        """Values (B,) of a parameter by name."""
        return self.values[:, self.names.index(name)]

    def interval(self, name: str, level: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper ends, (B,) each, of the confidence intervals of a parameter."""
        k = self.names.index(name)
        factor = np.array([quantile(level, float(v)) for v in np.unique(self.degrees_of_freedom)])
        half = factor[np.searchsorted(np.unique(self.degrees_of_freedom), self.degrees_of_freedom)] * self.errors[:, k]
        return self.values[:, k] - half, self.values[:, k] + half

    @property
    def degrees_of_freedom(self) -> NDArray[np.int64]:
        """(B,)"""
        return np.maximum(self.n - self.n_free, 1)

    def to_dict(self) -> dict[str, NDArray[Any]]:
        """Columns by name, for a data frame: parameters, their errors (``a_error``), chi2, success."""
        columns: dict[str, NDArray[Any]] = {name: self.values[:, k] for k, name in enumerate(self.names)}
        columns |= {f"{name}_error": self.errors[:, k] for k, name in enumerate(self.names)}
        return {**columns, "chi2": self.chi2, "success": self.success}

    def __repr__(self) -> str:
        return f"<problm.Fits of {len(self):,} curves, {int(self.success.sum()):,} converged: {', '.join(self.names)}>"


def fit_many(
    model: Any,
    x: Any,
    y: Any,
    *,
    sigma: Any = None,
    p0: Any = None,
    bounds: Any = None,
    fixed: Any = None,
    max_iter: int = 100,
    threads: int | None = None,
) -> Fits:
    """Fit one model to many curves, all of them at once.

    Parameters
    ----------
    model : str or model
        A formula or a model of `problm.models`; a Python function does not do.
    x : (n,), or (B, n) array_like
        Where the curves were measured: one x for all, or one per curve.
    y : (B, n) array_like
        The curves; NaN marks a missing point.
    sigma : number, (n,) or (B, n) array_like, optional
        Standard deviations of y, relative to one another.
    p0 : (d,) or (B, d) array_like, or mapping, optional
        Start values, for all curves or for each; by default guessed for each curve, which needs a common x.
    bounds : mapping or (lower, upper), optional
        As for `problm.fit`.
    fixed : names, optional
        Parameters that stay at p0.
    max_iter : int
        Largest number of steps.
    threads : int, optional
        By default all cores that the process may use.

    Returns
    -------
    `Fits`

    Examples
    --------
    >>> import numpy as np, problm
    >>> rng = np.random.default_rng(0)
    >>> x, rates = np.linspace(0, 5, 60), rng.uniform(0.5, 2.0, 2000)
    >>> y = 3.0 * np.exp(-rates[:, None] * x) + 0.05 * rng.standard_normal((2000, 60))
    >>> fits = problm.fit_many("y ~ a*exp(-b*x)", x, y)
    >>> fits
    <problm.Fits of 2,000 curves, 2,000 converged: a, b>
    >>> bool(0.9 < np.std((fits["b"] - rates) / fits.errors[:, 1]) < 1.1)
    True
    """
    model = formula(model) if isinstance(model, str) else model
    if not isinstance(model, Model) or model.body is None or len(model.variables) != 1:
        raise TypeError("fit_many needs a formula or a ready-made model of one variable")
    y = np.atleast_2d(numbers("y", y))
    x = numbers("x", x)
    if y.ndim != 2 or x.shape not in ((y.shape[1],), y.shape):
        raise ValueError(f"x has shape {x.shape} and y {y.shape}: expected (n,) or (B, n), and (B, n)")
    weights, count = _weights(x, y, sigma)
    lower, upper = bounds_of(bounds, model.parameters)
    held = mask_of(fixed, model.parameters)
    free = np.ones(len(lower), dtype=bool) if held is None else ~held
    if (count < free.sum()).any():
        raise ValueError(f"curve {int(np.argmin(count))} has {count.min()} points for {int(free.sum())} parameters")
    if weights is not None and (count < y.shape[1]).any():
        there = weights > 0.0
        y = np.where(there, y, 0.0)
        x = _where_known(x, there)
    theta = np.clip(_starts(model, x, y, weights, p0), lower, upper)
    batch = max(1, _ROWS // y.shape[1])
    parts = []
    for i in range(0, len(y), batch):
        some = slice(i, i + batch)
        factors = None if weights is None else weights[some]
        curves = _curves(model, x if x.ndim == 1 else x[some], y[some], factors)
        size = y[some] if factors is None else y[some] * factors
        floors = 1e-28 * np.einsum("bn,bn->b", size, size)
        parts.append(solve_many(curves, theta[some], (lower, upper), free, floors, count[some], max_iter, threads))
    values, chi2, errors, steps = (
        np.concatenate([getattr(p, k) for p in parts]) for k in ("theta", "chi2", "errors", "steps")
    )
    return Fits(model.parameters, values, errors, chi2, steps > 0, np.abs(steps), count, int(free.sum()))


def _weights(x: Array, y: Array, sigma: Any) -> tuple[Array | None, NDArray[np.int64]]:
    """Factors (B, n) of the residuals, 0 for missing points, or None if all are 1; and numbers of points (B,)."""
    finite = np.isfinite(y)
    if sigma is None and finite.all() and np.isfinite(x).all():
        return None, np.full(len(y), y.shape[1])
    there = finite & np.isfinite(x)
    weights = there / np.broadcast_to(numbers("sigma", 1.0 if sigma is None else sigma), y.shape)
    if not (np.isfinite(weights).all() and (weights >= 0.0).all()):
        raise ValueError("sigma must be positive")
    return weights, (weights > 0.0).sum(axis=1)


def _where_known(x: Array, there: NDArray[np.bool_]) -> Array:
    """x with values of the curve's own for points that are missing, where the model may have none."""
    if x.ndim == 1:
        seen = there.any(axis=0)
        return np.where(seen, x, x[seen.argmax()])
    first = np.take_along_axis(x, there.argmax(axis=1)[:, None], axis=1)
    return np.where(there, x, first)


def _curves(model: Model, x: Array, y: Array, weights: Array | None) -> Curves:
    common = x.ndim == 1
    own = [y] if common else [x, y]
    if weights is not None:
        own.append(weights)

    def rows() -> tuple[Any, list[Array]]:
        kernel = model.curve_kernel(1, len(model.parameters), "sigma", Loss.named("linear"), 1)
        with np.errstate(divide="ignore"):
            deviations = np.ones(1) if weights is None else 1.0 / weights
        return kernel, [np.broadcast_to(v, y.shape).ravel() for v in (x, y, deviations)]

    return Curves(
        x[:, None].copy() if common else np.empty((y.shape[1], 0)),
        np.ascontiguousarray(y)[:, None] if len(own) == 1 else np.stack(own, axis=1),
        lanes_kernel(model, common, weights is not None), rows,
    )  # fmt: skip


def _starts(model: Model, x: Array, y: Array, weights: Array | None, p0: Any) -> Array:
    shape = (len(y), len(model.parameters))
    if isinstance(p0, Mapping):
        known = by_name(model.parameters, p0, "p0")
        if len(known) < shape[1]:
            raise ValueError(f"p0: give all of {', '.join(model.parameters)}, or nothing")
        p0 = [known[k] for k in range(shape[1])]
    if p0 is not None:
        return np.broadcast_to(numbers("p0", p0), shape).copy()
    if x.ndim != 1:
        raise ValueError("p0 is needed where each curve has an x of its own")
    return grid_guesses(model, x, y, weights)
