r"""Settings of the two-view functions, checked before any work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from ...losses import as_loss
from ...sampling.order import as_generator
from ...solver.options import Options
from ...support.suggest import suggest

STARTS = ("minimal", "random")


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Settings of the search for a start. A wrong value raises here."""

    starts: str = "minimal"
    """``"minimal"`` or ``"random"`` (no RANSAC)."""
    max_starts: int = 100_000
    """Largest number of minimal samples; a tenth as many random starts, each of which costs about ten times as
    much. Photographs with 10 % right matches need as many.."""
    confidence: float = 0.999
    """Probability of having drawn a sample without outliers, at which the search ends."""
    max_time: float = math.inf
    """Seconds."""

    def __post_init__(self) -> None:
        if self.starts not in STARTS:
            raise ValueError(
                f"starts={self.starts!r} is not known{suggest(self.starts, STARTS)}; choose one of {STARTS}"
            )
        if int(self.max_starts) != self.max_starts or self.max_starts < 1:
            raise ValueError(f"max_starts must be a whole number from 1, got {self.max_starts!r}")
        if not 0.0 < self.confidence < 1.0:
            raise ValueError(f"confidence must lie between 0 and 1, got {self.confidence!r}")
        if not self.max_time > 0.0:
            raise ValueError(f"max_time must be positive seconds, got {self.max_time!r}")


@dataclass(frozen=True)
class Settings:
    """Checked settings of a fit."""

    threshold: float | None
    """None: estimated."""
    loss: str
    levels: int | None
    search: SearchOptions
    threads: int | None
    seed: np.random.Generator | int | None
    options: dict[str, Any]
    """Options of the solver."""

    @cached_property
    def rng(self) -> np.random.Generator:
        """Random generator, created on demand: refining a start needs none."""
        return as_generator(self.seed)


def make_settings(
    threshold: float | str,
    loss: str,
    levels: int | None,
    starts: str,
    max_starts: int,
    confidence: float,
    threads: int | None,
    rng: np.random.Generator | int | None,
    options: dict[str, Any],
) -> Settings:
    """Check the arguments; a wrong value raises here, before any work."""
    given = threshold, loss, levels, starts, max_starts, confidence, threads, options.get("max_time", math.inf)
    try:
        cut, search = _checked(*given)
    except TypeError:  # a value that cannot be hashed, such as a 0-d array, or a wrong one
        cut, search = _checked.__wrapped__(*given)
    if len(options) > ("max_time" in options):
        Options.of_several(**options)
    return Settings(cut, loss, levels, search, threads and int(threads), rng, options)


@lru_cache(maxsize=64)
def _checked(
    threshold: float | str, loss: str, levels: int | None, starts: str, max_starts: int, confidence: float,
    threads: int | None, max_time: float,
) -> tuple[float | None, SearchOptions]:  # fmt: skip
    """The threshold (None: estimated) and the options of the search. Cached: a refinement takes less time than a dozen
    checks."""
    cut: float | None = None
    if isinstance(threshold, str):
        if threshold != "auto":
            raise ValueError(f'threshold must be a positive number or "auto", got {threshold!r}')
    else:
        cut = float(threshold)
        if not (math.isfinite(cut) and cut > 0.0):
            raise ValueError(f'threshold must be a positive number or "auto", got {threshold!r}')
    if not isinstance(loss, str):
        raise TypeError(f"loss must be the name of a loss (its scale is the threshold), got {type(loss).__name__}")
    if as_loss(loss).is_linear:
        raise ValueError('loss="linear" is not robust; use robust=False for squared residuals')
    if levels is not None and (int(levels) != levels or levels < 1):
        raise ValueError(f"levels must be a whole number from 1, got {levels!r}")
    if threads is not None and (int(threads) != threads or threads < 1):
        raise ValueError(f"threads must be a whole number from 1, got {threads!r}")
    limit = float(max_time)
    return cut, SearchOptions(starts=starts, max_starts=max_starts, confidence=confidence, max_time=limit)
