"""Performance profiles and data profiles: many problems, many methods, one picture.

**Performance profile** (Dolan and Moré 2002). With t[p, s] what method s needs on problem p (inf: not solved) and
``r[p, s] = t[p, s] / min_s t[p, s]``, the curve is ``rho_s(tau)``, the share of problems with ``r <= tau``: at tau = 1
how often a method is the fastest, at the right how often it succeeds at all.

**Data profile** (Moré and Wild 2009): the share of problems that are solved within a budget of work, on an absolute
scale: here passes over the data instead of simplex gradients.

**Cost profile**: what the paper calls a performance profile (section 5.2). With a budget of time fixed and f* the best
cost of a problem over all runs, the share of runs that end at a cost of at most ``tau f*``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def performance_profile(needed: ArrayLike, taus: ArrayLike) -> Array:
    """Dolan and Moré's profile.

    Parameters
    ----------
    needed : (problems, methods) positive numbers; inf or nan if a method failed.
    taus : (k,) ratios from 1.

    Returns
    -------
    (methods, k) shares. A problem that no method solved counts as unsolved for all.

    Examples
    --------
    >>> performance_profile([[1.0, 2.0], [3.0, 1.0]], [1.0, 2.0, 3.0])
    array([[0.5, 0.5, 1. ],
           [0.5, 1. , 1. ]])
    """
    t = np.asarray(needed, dtype=float)
    if t.ndim != 2:
        raise ValueError(f"needed must have shape (problems, methods), got {t.shape}")
    if np.nanmin(t, initial=np.inf) <= 0:
        raise ValueError("needed must be positive: a time of zero has no ratio")
    t = np.where(np.isnan(t), np.inf, t)
    best = t.min(axis=1, keepdims=True)
    solved = np.isfinite(best)
    ratio = np.where(solved, t / np.where(solved, best, 1.0), np.inf)
    return _shares(ratio.T, np.asarray(taus, dtype=float))


def data_profile(needed: ArrayLike, budgets: ArrayLike) -> Array:
    """Share of the problems that each method solves within each budget: (methods, k).

    Examples
    --------
    >>> data_profile([[1.0, 2.0], [3.0, np.inf]], [1.0, 2.0, 3.0])
    array([[0.5, 0.5, 1. ],
           [0. , 0.5, 0.5]])
    """
    t = np.asarray(needed, dtype=float)
    if t.ndim != 2:
        raise ValueError(f"needed must have shape (problems, methods), got {t.shape}")
    return _shares(np.where(np.isnan(t), np.inf, t).T, np.asarray(budgets, dtype=float))


def cost_profile(costs: Sequence[ArrayLike], best: ArrayLike, taus: ArrayLike) -> Array:
    """The paper's profile of one method: the share of its runs with ``cost <= tau best``.

    Parameters
    ----------
    costs : for each problem the costs of the runs at the end of the budget.
    best : (problems,) the best cost of each problem over all methods and runs.
    taus : (k,) from 1.

    Returns
    -------
    (k,) shares.

    Examples
    --------
    >>> cost_profile([[1.0, 3.0], [4.0]], [1.0, 2.0], [1.0, 2.0, 3.0])
    array([0.33333333, 0.66666667, 1.        ])
    """
    lowest = np.asarray(best, dtype=float)
    if len(costs) != len(lowest):
        raise ValueError(f"costs has {len(costs)} problems, best has {len(lowest)}")
    ratio = np.concatenate([np.asarray(c, dtype=float) / b for c, b in zip(costs, lowest, strict=True)])
    # Costs are sums of thousands of terms: equal up to rounding is equal.
    return _shares(np.where(np.isnan(ratio), np.inf, ratio * (1 - 1e-9))[None], np.asarray(taus, dtype=float))[0]


def _shares(values: Array, limits: Array) -> Array:
    """(rows, k): the share of each row's values that are at most each limit."""
    return (values[:, :, None] <= limits[None, None, :]).mean(axis=1)
