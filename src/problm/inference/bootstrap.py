"""The bootstrap: fits of resampled data, for errors that do not depend on a quadratic approximation."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..support.suggest import suggest
from .estimate import Estimate

Array = NDArray[np.float64]
_KINDS = ("rows", "residuals", "groups")


@dataclass(frozen=True, eq=False, repr=False)
class Bootstrap:
    """Parameters of repeated fits."""

    names: tuple[str, ...]
    samples: Array
    """(n, p) parameters of the repetitions that converged."""
    failed: int
    """Number of repetitions that did not converge; they are left out."""

    @property
    def covariance(self) -> Array:
        """(p, p)"""
        return np.atleast_2d(np.cov(self.samples, rowvar=False))

    @property
    def errors(self) -> dict[str, float]:
        """Standard deviations by name."""
        return dict(zip(self.names, self.samples.std(axis=0, ddof=1).tolist(), strict=True))

    def interval(self, name: str, level: float = 0.95) -> tuple[float, float]:
        """Percentile interval of a parameter."""
        if name not in self.names:
            raise ValueError(f"there is no parameter {name!r}{suggest(name, self.names)}")
        tail = 0.5 * (1.0 - level)
        low, high = np.quantile(self.samples[:, self.names.index(name)], [tail, 1.0 - tail])
        return float(low), float(high)

    def __repr__(self) -> str:
        errors = ", ".join(f"{n} ± {e:.2g}" for n, e in self.errors.items())
        return f"<problm.Bootstrap of {len(self.samples)} fits ({self.failed} failed): {errors}>"


def bootstrap(
    fit: Estimate,
    n: int = 1000,
    kind: str = "rows",
    *,
    groups: Any = None,
    rng: np.random.Generator | int | None = 0,
    workers: int | None = None,
) -> Bootstrap:
    """Fit resampled data ``n`` times, starting from the fitted parameters.

    Parameters
    ----------
    fit
    n
        Number of repetitions.
    kind : {'rows', 'residuals', 'groups'}
        ``'rows'`` draws points with replacement; valid also if the noise differs from point to point.
        ``'residuals'`` keeps x and adds to the curve residuals drawn with replacement and corrected for leverage;
        valid if the noise is the same everywhere up to sigma. ``'groups'`` draws whole groups of points that share
        errors.
    groups : (N,) array_like
        The group of each point, for ``kind='groups'``.
    rng
        Random seed; samples do not depend on the number of workers.
    workers
        Number of threads; by default all cores that the process may use.

    Returns
    -------
    `Bootstrap`
    """
    if fit.refit is None or fit.y is None:
        raise ValueError("a fit of data in files, or loaded from a file, cannot be repeated: fit the data again")
    if kind not in _KINDS:
        raise ValueError(f"kind must be one of {_KINDS}, got {kind!r}{suggest(kind, _KINDS)}")
    if (kind == "groups") != (groups is not None):
        raise ValueError("groups and kind='groups' must be given together")
    draw = _by_residuals(fit) if kind == "residuals" else _by_rows(fit, groups)
    seeds = np.random.default_rng(rng).spawn(n)

    def repeat(seed: np.random.Generator) -> Array | None:
        assert fit.refit is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = fit.refit(start=fit.result.x, **draw(seed))
        return fit.ties.full(result.x) if result.success else None

    count = workers or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    if count == 1:
        found = [repeat(seed) for seed in seeds]
    else:
        with ThreadPoolExecutor(count) as pool:
            found = list(pool.map(repeat, seeds))
    good = [theta for theta in found if theta is not None]
    if len(good) < 2:
        raise RuntimeError(f"only {len(good)} of {n} repetitions converged: the fit is not stable under resampling")
    return Bootstrap(fit.names, np.array(good), n - len(good))


def _by_rows(fit: Estimate, groups: Any) -> Callable[[np.random.Generator], dict[str, Any]]:
    y, sigma = fit.observed, fit.sigma
    x = fit.x if hasattr(fit.x, "iloc") else np.asarray(fit.x)
    count = len(y)
    if sigma is not None and np.ndim(sigma) > 1:
        raise ValueError("data with a covariance matrix cannot be resampled row by row")
    members: list[NDArray[np.int64]] = []
    if groups is not None:
        labels = np.asarray(groups).ravel()
        if len(labels) != count:
            raise ValueError(f"groups has {len(labels)} labels for {count} points")
        _, place = np.unique(labels, return_inverse=True)
        members = [np.flatnonzero(place == k) for k in range(place.max() + 1)]
        if len(members) < 2:
            raise ValueError("groups: at least two groups are needed")

    def draw(rng: np.random.Generator) -> dict[str, Any]:
        if members:
            rows = np.concatenate([members[k] for k in rng.integers(0, len(members), len(members))])
        else:
            rows = rng.integers(0, count, count)
        chosen = x.iloc[rows] if hasattr(x, "iloc") else x[..., rows]
        few = sigma if sigma is None or np.ndim(sigma) == 0 else np.asarray(sigma)[rows]
        return {"x": chosen, "y": y[rows], "sigma": few}

    return draw


def _by_residuals(fit: Estimate) -> Callable[[np.random.Generator], dict[str, Any]]:
    deviations = fit.deviations
    # Residuals are smaller than errors because each point pulls the curve towards itself (leverage).
    errors = fit.residuals / deviations / np.sqrt(np.maximum(1.0 - fit.leverage, 0.01))
    errors = errors - errors.mean()
    curve = fit.observed - fit.residuals

    def draw(rng: np.random.Generator) -> dict[str, Any]:
        return {"y": curve + deviations * errors[rng.integers(0, len(errors), len(errors))]}

    return draw
