"""Where the axes of pictures carry numbers, and how these are written."""

from __future__ import annotations

import math
from typing import NamedTuple

_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


class Ticks(NamedTuple):
    """Places on an axis, their texts, and what is to be applied to all of these: a factor, then an offset."""

    values: list[float]
    texts: list[str]
    note: str


def written(value: float, digits: int) -> str:
    """A number with some decimals, a minus sign instead of a hyphen, and no negative zero.

    >>> written(-1.25, 1), written(-0.001, 2)
    ('−1.2', '0.00')
    """
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def linear_ticks(low: float, high: float, most: int = 8, whole: bool = False) -> Ticks:
    """At most so many steps of a round number between two ends; ``whole``: integers only.

    >>> linear_ticks(0.0, 1.0, 5)
    Ticks(values=[0.0, 0.2, 0.4, 0.6, 0.8, 1.0], texts=['0.0', '0.2', '0.4', '0.6', '0.8', '1.0'], note='')
    >>> linear_ticks(-2e7, 2e7, 4)[1:]
    (['−2', '−1', '0', '1', '2'], '×10⁷')
    >>> linear_ticks(2451545.0, 2451545.5, 5)[1:]
    (['0.0', '0.1', '0.2', '0.3', '0.4', '0.5'], '+ 2451545')
    """
    least = (high - low) / most
    if not (math.isfinite(least) and least > 0.0):
        return Ticks([], [], "")
    power = math.floor(math.log10(least))
    kinds = ((m, m * 10.0**power) for m in (1.0, 2.0, 2.5, 5.0, 10.0))
    factor, step = next(kind for kind in kinds if kind[1] >= least * (1.0 - 1e-9))
    if whole and step < 5.0:
        factor, step = next((m, m) for m in (1.0, 2.0, 5.0) if m >= step)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    values = [float(f"{k * step:.15g}") for k in range(first, last + 1)]
    offset = _offset(low, high) if max(abs(low), abs(high)) >= 1e5 * step else 0.0
    reach = max(abs(low - offset), abs(high - offset))
    exponent = 0 if 1e-3 <= reach < 1e6 else math.floor(math.log10(reach))
    digits = max(0, exponent - math.floor(math.log10(step) + 1e-9) + (factor == 2.5))
    unit = float(f"1e{exponent}")
    notes = [f"×{_power(exponent)}"] if exponent else []
    notes += [f"{'+' if offset > 0.0 else '−'} {_told(abs(offset))}"] if offset else []
    return Ticks(values, [written((v - offset) / unit, digits) for v in values], " ".join(notes))


def log_ticks(low: float, high: float) -> Ticks:
    """Powers of ten between two ends; 1, 2 and 5 of each if there are fewer than two.

    >>> log_ticks(0.5, 2000.0).texts
    ['1', '10', '100', '1000']
    >>> log_ticks(3.0, 60.0).texts
    ['5', '10', '20', '50']
    >>> log_ticks(1e-6, 1e-3).texts
    ['10⁻⁶', '10⁻⁵', '10⁻⁴', '10⁻³']
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = max(1, len(decades) // 8)
    factors = (1, 2, 5) if high < 100.0 * low else (1,)
    pairs = [(m, e) for e in decades if e % every == 0 for m in factors]
    pairs = [(m, e) for m, e in pairs if low * (1.0 - 1e-9) <= float(f"{m}e{e}") <= high * (1.0 + 1e-9)]
    values = [float(f"{m}e{e}") for m, e in pairs]
    if all(1e-4 < v < 1e5 for v in values):
        return Ticks(values, [f"{v:g}" for v in values], "")
    return Ticks(values, [_power(e) if m == 1 else f"{m}·{_power(e)}" for m, e in pairs], "")


def _offset(low: float, high: float) -> float:
    """A round number amid values that differ in their last digits only."""
    unit = 10.0 ** math.ceil(math.log10(high - low))
    return float(f"{round((low + high) / 2 / unit) * unit:.15g}")


def _power(exponent: int) -> str:
    return f"10{str(exponent).translate(_RAISED)}"


def _told(value: float) -> str:
    mantissa, _, exponent = f"{value:.12g}".partition("e")
    return f"{mantissa}·{_power(int(exponent))}" if exponent else mantissa
