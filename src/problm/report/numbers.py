"""Values rounded to their errors, for people.

The error keeps two significant digits and the value ends at the same decimal place, so that no digit is lost and none
is invented. Files and attributes keep all digits; only displayed numbers are rounded.
"""

from __future__ import annotations

import math
from decimal import Decimal

_DIGITS = 15
"""Significant digits that every double has."""
_PLAIN = range(-4, 7)
"""Powers of ten of the leading digit that are written without exponent."""


def with_error(value: float, error: float, style: str = "±") -> str:
    """A value and its standard error, both rounded to two digits of the error.

    Parameters
    ----------
    value
    error
        Standard error, at least 0. If it is 0, infinite, NaN or below the precision of a double, the value keeps all
        its digits.
    style : {'±', '()'}
        ``1.300 ± 0.016``, or ``1.300(16)`` with the error in units of the last digits.

    Returns
    -------
    str

    Examples
    --------
    >>> with_error(1.29983, 0.01604)
    '1.300 ± 0.016'
    >>> with_error(1.29983, 0.01604, "()")
    '1.300(16)'
    >>> with_error(1700000002.00021, 0.00134)
    '1700000002.0002 ± 0.0013'
    >>> with_error(6.02214e23, 1.3e19)
    '(6.02214 ± 0.00013)e+23'
    """
    if style not in ("±", "()"):
        raise ValueError(f"style must be '±' or '()', got {style!r}")
    value, error = float(value), float(error)
    leading = _power(value) if value and math.isfinite(value) else None
    if not (math.isfinite(value) and math.isfinite(error) and error > 0.0) or (
        leading is not None and _power(error) < leading - _DIGITS
    ):
        return f"{value!r} ± {error:.2g}" if style == "±" else f"{value!r}({error:.2g})"
    last = _power(error) - 1
    largest = last + 1 if leading is None else max(leading, last + 1)
    shift = 0 if largest in _PLAIN or (largest > 0 and last <= 0) else largest
    decimals = max(shift - last, 0)
    number, spread = (f"{_rounded(v, last).scaleb(-shift):.{decimals}f}" for v in (value, error))
    exponent = f"e{shift:+03d}" if shift else ""
    if style == "()":
        return f"{number}({spread.lstrip('0.') if float(spread) < 1.0 else spread}){exponent}"
    return f"({number} ± {spread}){exponent}" if shift else f"{number} ± {spread}"


def _power(value: float) -> int:
    """The power of ten of the leading digit, once rounded to two digits."""
    return int(f"{abs(value):.1e}".partition("e")[2])


def _rounded(value: float, last: int) -> Decimal:
    """The value rounded to a multiple of ``10**last``."""
    return round(Decimal(value).scaleb(-last)) * Decimal(1).scaleb(last)
