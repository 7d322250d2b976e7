r"""Upper confidence bounds on the mean change of a finite population from a sample without replacement.

Each function returns a *radius*: with probability at least ``1 - delta`` the mean of the population is at most the
mean of the sample plus the radius, for a sample of n values from a population of size N.

normal
    ``z sd sqrt((1 - n/N) / n)``: central limit theorem with finite-population correction. Asymptotic, needs no range,
    and has by far the best power (see the calibration table of the documentation).
hoeffding_serfling
    ``(b - a) sqrt(rho ln(1/delta) / (2 n))``: Serfling (1974) in the form of Bardenet and Maillard (Bernoulli 21,
    2015), Corollary 2.5, with ``rho = 1 - (n-1)/N`` for ``n <= N/2`` and ``(1 - n/N)(1 + 1/n)`` above.
empirical_bernstein
    ``sd sqrt(2 rho ln(5/delta) / n) + kappa (b - a) ln(5/delta) / n`` with ``kappa = 7/3 + 3/sqrt(2)`` and sd the
    (1/n) standard deviation of the sample: the same paper, Theorem 4.3.

The last two hold for every n *if* [a, b] contains the whole population. That is true for a bounded loss, and a guess if
the range is that of the sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...support.quantiles import normal_quantile, student_quantile

Radius = Callable[[float, float, int, int, float], float]
"""``(sd, range, n, population, delta) -> radius``."""


def serfling_factor(n: int, population: int) -> float:
    """rho_n of Bardenet and Maillard: the gain of sampling without replacement over independent draws."""
    if 2 * n <= population:
        return 1.0 - (n - 1) / population
    return (1.0 - n / population) * (1.0 + 1.0 / n)


def normal(sd: float, width: float, n: int, population: int, delta: float) -> float:
    return normal_quantile(1.0 - delta) * sd * math.sqrt(max(0.0, 1.0 - n / population) / n)


def student(n: int, delta: float) -> float:
    """Factor on the normal radius if sd comes from few draws: Student's quantile divided by z."""
    if n <= 1:
        return math.inf
    likely = max(delta, 1.0 - delta)  # the distributions are symmetric
    return student_quantile(likely, n - 1) / normal_quantile(likely)


def hoeffding_serfling(sd: float, width: float, n: int, population: int, delta: float) -> float:
    return width * math.sqrt(serfling_factor(n, population) * math.log(1.0 / delta) / (2.0 * n))


_KAPPA = 7.0 / 3.0 + 3.0 / math.sqrt(2.0)


def empirical_bernstein(sd: float, width: float, n: int, population: int, delta: float) -> float:
    log = math.log(5.0 / delta)
    return sd * math.sqrt(2.0 * serfling_factor(n, population) * log / n) + _KAPPA * width * log / n


def hoeffding_threshold(width: float, n: int, delta: float) -> float:
    """``(b - a) sqrt(n ln(1/delta) / 2)``: Hoeffding's radius for a *sum* of n terms (Eq. 12 of the paper)."""
    return width * math.sqrt(n * math.log(1.0 / delta) / 2.0)


def delta_per_step(failure: float, steps: int) -> float:
    """delta of each of T_S = ``steps`` steps, so that with probability ``failure`` (eta0) at least one of them raises
    the cost: ``1 - (1 - eta0)^(1 / T_S)`` (the paper's footnote in section 4.4).

    It takes the steps as independent. They share a sample, so that only ``eta0 / T_S`` is certain (erratum 14), which
    is smaller by the factor ``1 - eta0 / 2``.

    Examples
    --------
    >>> round(delta_per_step(1e-4, 100), 12)
    1.00005e-06
    """
    if not 0.0 < failure < 1.0:
        raise ValueError(f"failure must lie between 0 and 1, got {failure!r}")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps!r}")
    return -math.expm1(math.log1p(-failure) / steps)
