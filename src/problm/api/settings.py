"""Settings that `problm.api.fit_rows` and `problm.api.stored` have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..linalg.space import Space

NOT_ROW_WISE = (
    "fun looks beyond its own row (some rows get other residuals than the same rows among more): such a function needs "
    "all rows at once, so load the data into memory and leave out client="
)


class NotRowWise(ValueError):
    """Raised for a function that needs all rows at once when they cannot be held in memory."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to solve, whatever the model."""

    space: Space
    acceptance: Any = None
    nan_policy: str = "reject"
    rng: np.random.Generator | int | None = 0
    underdetermined: bool = False
    """Whether there may be fewer residuals than parameters, as for SciPy's trf."""
    client: Any = None
    max_memory: int | float | str | None = None
    callback: Callable[..., Any] | None = None
    progress: bool | Callable[..., Any] = False
    begun: Any = None
    """Steps already taken from the start (`problm.solver.compiled.advance.Steps`), if any."""
    options: dict[str, Any] = field(default_factory=dict)
    """Fields of `problm.solver.options.Options`."""

    @property
    def batches(self) -> bool:
        """Whether batches were asked for; if not, a handful of rows is simply evaluated together."""
        if self.acceptance not in (None, "full"):
            return True
        given = self.options.get
        return not (given("initial_batch") is given("max_batch") is given("accuracy") is None)
