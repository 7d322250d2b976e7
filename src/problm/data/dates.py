"""Dates and times of day as numbers: seconds since the first one of their column."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time

import numpy as np
from numpy.typing import NDArray

_CLOCK = r"(?P<H>\d{1,2}):(?P<M>\d\d)(?::(?P<S>\d\d)(?:[.,](?P<f>\d{1,9}))?)?"
_ZONE = r"\s*(?P<zone>Z|[+-]\d\d:?\d\d)?"
_FORMS = [
    re.compile(pattern, re.ASCII)
    for pattern in (
        rf"(?P<y>\d{{4}})-(?P<m>\d{{1,2}})-(?P<d>\d{{1,2}})(?:[T ]+{_CLOCK}{_ZONE})?",
        rf"(?P<y>\d{{4}})/(?P<m>\d{{1,2}})/(?P<d>\d{{1,2}})(?:\s+{_CLOCK})?",
        rf"(?P<d>\d{{1,2}})\.(?P<m>\d{{1,2}})\.(?P<y>\d{{4}})(?:\s+{_CLOCK})?",
        _CLOCK,
    )
]
_EPOCH = date(1970, 1, 1).toordinal()
FORMS = "2024-01-31, 2024-01-31 12:30:00, 2024/01/31, 31.01.2024 or 12:30:00"
"""Dates that are read, for messages. Those such as 01/02/2024 mean different days in different countries."""


def microseconds(text: str) -> int:
    """Microseconds since 1970, or since midnight for a time of day; raises ValueError for anything else.

    Examples
    --------
    >>> microseconds("31.01.2024 12:30") - microseconds("2024-01-31")
    45000000000
    """
    for form in _FORMS:
        found = form.fullmatch(text)
        if found is not None:
            part = found.groupdict()
            days = 0
            if part.get("y"):
                days = date(int(part["y"]), int(part["m"]), int(part["d"])).toordinal() - _EPOCH
            hour, minute, second = (int(part[key] or 0) for key in "HMS")
            if hour > 23 or minute > 59 or second > 60:
                raise ValueError(text)
            fraction = int((part["f"] or "0").ljust(6, "0")[:6])
            return ((days * 24 + hour) * 60 + minute - _offset(part.get("zone"))) * 60_000_000 + (
                second * 1_000_000 + fraction
            )
    raise ValueError(text)


def _offset(zone: str | None) -> int:
    """Minutes of a time zone."""
    if zone in (None, "Z"):
        return 0
    digits = zone.replace(":", "")
    return (1 if digits[0] == "+" else -1) * (60 * int(digits[1:3]) + int(digits[3:5]))


def is_date(text: str) -> bool:
    try:
        microseconds(text)
    except ValueError:
        return False
    return True


def of_cell(value: datetime | date | time) -> str:
    """The text of a cell of a spreadsheet that holds a date or a time."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return value.isoformat(sep=" ") if isinstance(value, datetime) else value.isoformat()


def since_first(moments: Sequence[int | None]) -> NDArray[np.float64]:
    """(N,) seconds since the first moment that is not missing; NaN for missing ones."""
    first = next((m for m in moments if m is not None), 0)
    return np.array([np.nan if m is None else (m - first) / 1e6 for m in moments], dtype=np.float64)
