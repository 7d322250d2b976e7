"""Where the axes of pictures carry numbers, and how these are written."""

from __future__ import annotations

import math


def linear_ticks(low: float, high: float, about: int = 6) -> list[tuple[float, str]]:
    """Round numbers between two ends, with their texts.

    >>> linear_ticks(0.0, 1.0, 5)
    [(0.0, '0.0'), (0.2, '0.2'), (0.4, '0.4'), (0.6, '0.6'), (0.8, '0.8'), (1.0, '1.0')]
    >>> [text for _, text in linear_ticks(-2e7, 2e7, 4)]
    ['-2e+07', '-1e+07', '0', '1e+07', '2e+07']
    """
    rough = (high - low) / about
    if not (math.isfinite(rough) and rough > 0.0):
        return []
    power = math.floor(math.log10(rough))
    step = next(m * 10.0**power for m in (1, 2, 5, 10) if m * 10.0**power >= rough * (1.0 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    values = [float(f"{k * step:.12g}") for k in range(first, last + 1)]
    largest = max(abs(low), abs(high))
    place = math.floor(math.log10(step) + 1e-9)
    if 1e-3 <= largest < 1e6:
        return [(v, f"{v:.{max(0, -place)}f}") for v in values]
    digits = max(0, math.floor(math.log10(largest)) - place)
    return [(v, f"{v:.{digits}e}" if v else "0") for v in values]


def log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Powers of ten between two ends; 1, 2 and 5 of each if there are fewer than two.

    >>> log_ticks(0.5, 2000.0)
    [(1.0, '1'), (10.0, '10'), (100.0, '100'), (1000.0, '1000')]
    >>> [text for _, text in log_ticks(3.0, 60.0)]
    ['5', '10', '20', '50']
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = max(1, len(decades) // 8)
    factors = (1, 2, 5) if high < 100.0 * low else (1,)
    values = [float(f"{m}e{e}") for e in decades if e % every == 0 for m in factors]
    return [(v, f"{v:g}") for v in values if low * (1.0 - 1e-9) <= v <= high * (1.0 + 1e-9)]
