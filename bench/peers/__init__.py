"""Thin adapters of other solvers, each used only if it is installed, with settings that suit it.

An adapter is a `bench.harness.run.Run`: it gets an instance, a start and the options, and returns where it ended
and how long its own call took. What it needs that we do not (its own data types, compiling) happens outside the clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

from ..harness.run import Outcome


def version_of(package: str) -> Callable[[], str | None]:
    """A function that returns the installed version, or None."""

    def version() -> str | None:
        try:
            return f"{package} {metadata.version(package)}"
        except metadata.PackageNotFoundError:
            return None

    return version


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    value = call()
    return value, time.perf_counter() - began


def ended(x: Any, seconds: float, *, n: int = 0, residuals: float = math.nan, jacobians: float = math.nan,
          success: bool = True, **extra: Any) -> Outcome:  # fmt: skip
    """The outcome of a solver that only reports its final point."""
    passes = not math.isnan(residuals)
    return Outcome(
        seconds=[seconds], path=[x], batch=[n], residual_passes=[residuals] if passes else [],
        jacobian_passes=[jacobians] if passes else [], status=int(success), total_seconds=seconds,
        total_residual_passes=residuals, total_jacobian_passes=jacobians, x=x, extra=extra,
    )  # fmt: skip
