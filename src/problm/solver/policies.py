"""The policies by name."""

from __future__ import annotations

import copy
from typing import Any

from ..support.suggest import suggest
from .acceptance import Acceptance, FullBatch, Holdout
from .paper_tests import Paper, RelaxedPaper

POLICIES: dict[str, Any] = {
    "holdout": Holdout,
    "full": FullBatch,
    "paper": Paper,
    "paper-relaxed": RelaxedPaper,
    "hoeffding-serfling": lambda: Holdout(bound="hoeffding-serfling"),
    "empirical-bernstein": lambda: Holdout(bound="empirical-bernstein"),
}


def as_acceptance(acceptance: str | Acceptance) -> Acceptance:
    """The policy of that name, or a fresh copy of the object (policies keep state during a solve)."""
    if isinstance(acceptance, str):
        if acceptance not in POLICIES:
            raise ValueError(
                f"acceptance={acceptance!r} is not known{suggest(acceptance, POLICIES)}; "
                f"choose one of {', '.join(POLICIES)}"
            )
        policy: Acceptance = POLICIES[acceptance]()
        return policy
    return copy.copy(acceptance)
