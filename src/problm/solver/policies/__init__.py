"""Acceptance policies by name: they decide whether a step computed on a batch is taken.

Calls `problm.sampling` and the batch. Start with `problm.solver.policies.acceptance`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, cast

from ...support.suggest import suggest
from .acceptance import Acceptance, FullBatch, Holdout, Step, Verdict
from .paper_tests import Paper, RelaxedPaper

POLICIES: dict[str, Any] = {
    "holdout": Holdout,
    "full": FullBatch,
    "paper": Paper,
    "paper-relaxed": RelaxedPaper,
    "hoeffding-serfling": lambda: Holdout(bound="hoeffding-serfling"),
    "empirical-bernstein": lambda: Holdout(bound="empirical-bernstein"),
}


@dataclass(slots=True)
class Judged:
    """A policy from a function that judges a step; batches start and grow as in the default policy."""

    function: Callable[[Step], Verdict]
    noise_rule: bool = True
    damping: str = "trust-region"

    def first_batch(self, n: int, dim: int) -> int:
        return Holdout().first_batch(n, dim)

    def judge(self, step: Step) -> Verdict:
        return self.function(step)


def as_acceptance(acceptance: str | Acceptance | Callable[[Step], Verdict]) -> Acceptance:
    """Return the policy of this name, a policy from a function, or a fresh copy of a policy (policies keep state)."""
    if isinstance(acceptance, str):
        if acceptance not in POLICIES:
            raise ValueError(
                f"acceptance={acceptance!r} is not known{suggest(acceptance, POLICIES)}; "
                f"choose one of {', '.join(POLICIES)}"
            )
        policy: Acceptance = POLICIES[acceptance]()
        return policy
    if isinstance(acceptance, FunctionType):
        return Judged(acceptance)
    return copy.copy(cast(Acceptance, acceptance))
