"""Quantiles of the normal, Student's and the F distribution: loading SciPy for these takes longer than most fits.

Student's probability beyond t is half of the incomplete beta function I_x(f/2, 1/2) with x = f / (f + t^2), which has a
continued fraction. Its logarithm is a concave function of log t, so that Newton's method converges from everywhere. The
probability of an F below v is I_x(f/2, g/2) with x = f v / (f v + g), solved for log v within shrinking bounds.
"""

from __future__ import annotations

import math

_MANY = 1e5
"""Degrees of freedom from which three terms of an expansion about the normal quantile have all digits."""


def normal_quantile(probability: float) -> float:
    """The value that a standard normal variable exceeds with one minus this probability.

    >>> round(normal_quantile(0.975), 6), normal_quantile(1.0)
    (1.959964, inf)
    """
    if not 0.0 < probability < 1.0:
        return {0.0: -math.inf, 1.0: math.inf}.get(probability, math.nan)
    from statistics import NormalDist  # loads more than this module needs elsewhere

    return NormalDist().inv_cdf(probability)


def student_quantile(probability: float, freedom: float) -> float:
    """The value that Student's t exceeds with one minus this probability, which is at least a half.

    >>> round(student_quantile(0.975, 5), 6), round(student_quantile(0.975, float("inf")), 6)
    (2.570582, 1.959964)
    """
    if not 0.5 <= probability <= 1.0 or not freedom > 0.0:
        return math.nan
    if probability in (0.5, 1.0):
        return 0.0 if probability == 0.5 else math.inf
    return _expansion(probability, freedom) if freedom > _MANY else _root(1.0 - probability, freedom)


def f_quantile(first: float, second: float, probability: float) -> float:
    """The value that F with these degrees of freedom exceeds with one minus this probability.

    >>> round(f_quantile(3, 40, 0.9), 6)
    2.226092
    """
    if not (0.0 < probability < 1.0 and 0.0 < first < math.inf and 0.0 < second < math.inf):
        return math.nan
    a, b = 0.5 * first, 0.5 * second
    constant = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    low, high, v = -600.0, 600.0, _start(first, second, probability)
    for _ in range(200):
        odds = v + math.log(first / second)
        ratio, log_y = math.exp(odds), -math.log1p(math.exp(odds))
        density = math.exp(constant + a * (odds + log_y) + b * log_y)  # of log v: x^a y^b / B(a, b)
        below = _below(a, b, ratio / (1.0 + ratio), 1.0 / (1.0 + ratio), density)
        low, high = (v, high) if below < probability else (low, v)
        step = (probability - below) / density if density > 0.0 else math.inf
        last, v = v, v + step if low < v + step < high else 0.5 * (low + high)
        if abs(v - last) < 1e-6:  # the error is of the order of its square
            break
    return math.exp(v)


def _start(first: float, second: float, probability: float) -> float:
    """Logarithm of the quantile of F to a few per cent, by Paulson's approximation (1942); 0 where it has none."""
    a, b, z = 2.0 / (9.0 * first), 2.0 / (9.0 * second), normal_quantile(probability)
    square = (1.0 - a) ** 2 * b + (1.0 - b) ** 2 * a - a * b * z * z
    below = (1.0 - b) ** 2 - z * z * b
    if not (square > 0.0 and below > 0.0):
        return 0.0
    root = ((1.0 - a) * (1.0 - b) + z * math.sqrt(square)) / below
    return 3.0 * math.log(root) if root > 0.0 else 0.0


def _below(a: float, b: float, x: float, y: float, front: float) -> float:
    """The incomplete beta function I_x(a, b), with y = 1 - x and ``front = x^a y^b / B(a, b)``."""
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, y) / b


def _expansion(probability: float, freedom: float) -> float:
    z = normal_quantile(probability)
    terms = (
        (z**3 + z) / 4.0,
        (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0,
        (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0,
    )
    return z + sum(term / freedom ** (k + 1) for k, term in enumerate(terms))


def _root(beyond: float, freedom: float) -> float:
    """The t whose tail is ``beyond``, by Newton's method in logarithms."""
    t = max(math.sqrt(-2.0 * math.log(beyond)), 1e-3)
    for _ in range(100):
        tail, density = _tail(t, freedom)
        step = tail * math.log(tail / beyond) / (density * t)
        t *= math.exp(max(-20.0, min(step, 20.0)))
        if abs(step) < 1e-14:
            break
    return t


def _tail(t: float, freedom: float) -> tuple[float, float]:
    """Probability beyond t > 0, and the density at t."""
    a, square = 0.5 * freedom, t * t / freedom
    x, y = 1.0 / (1.0 + square), square / (1.0 + square)
    density = math.exp(_log_ratio(a) - 0.5 * math.log(math.pi * freedom) - (a + 0.5) * math.log1p(square))
    scale = density * t  # x^a y^(1/2) / B(a, 1/2)
    if x < (a + 1.0) / (a + 2.5):
        return scale * _fraction(a, 0.5, x) / freedom, density
    return 0.5 - scale * _fraction(0.5, a, y), density


def _log_ratio(a: float) -> float:
    """``log(Gamma(a + 1/2) / Gamma(a))``; for large a the difference of the logarithms would have few digits."""
    if a < 20.0:
        return math.lgamma(a + 0.5) - math.lgamma(a)
    return 0.5 * math.log(a) - 1 / (8 * a) + 1 / (192 * a**3) - 1 / (640 * a**5) + 17 / (14336 * a**7)


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function by Lentz's method, for x < (a + 1) / (a + b + 2)."""
    d = 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    c, value = 1.0, d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / (1.0 + term * d)
            c = 1.0 + term / c
            value *= c * d
        if abs(c * d - 1.0) < 1e-16:
            break
    return value
