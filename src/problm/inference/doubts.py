"""What makes a fit doubtful, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .fit import Fit


def doubts(fit: Fit) -> tuple[str, ...]:
    return ()
