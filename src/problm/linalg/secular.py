"""Hebden's iteration on the secular equation: the least damping whose step is no longer than a radius (More 1978).

With ``x(t) = (H + t D)^-1 g`` the inverse of the length ``||x||_D`` is nearly linear in t, so Newton's iteration on it
takes two or three steps and comes from below. The rule is a plain function of numbers: `problm.linalg.quadratic`
applies it to eigenvalues, `problm.linalg.cholesky` to factors, and `problm.linalg.cholesky_compiled` compiles it.
"""

from __future__ import annotations

SLACK = 1.1
"""How much longer than the radius a step may be, as a factor."""
MOST = 30
"""Dampings tried."""


def next_damping(damping: float, squared: float, slope: float, length: float, radius: float) -> float:
    """The next damping, where ``squared = x'Dx`` is the square of ``length`` and ``slope = x'D (H + t D)^-1 D x``."""
    return damping + squared / slope * (length - radius) / radius
