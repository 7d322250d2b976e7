"""Models of rows: ready-made curves, formulas, traced functions; their derivatives and first guesses.

Calls `problm.kernels`, `problm.losses`, `problm.jit` and `problm.support`, never the solver. Start with
`problm.models.formula`; the curves of `problm.models.ready_made` can be imported from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = [
    "constant_background", "damped_sine", "exponential", "gaussian", "line", "logistic", "lorentzian", "polynomial",
    "power_law", "voigt",
]  # fmt: skip

if TYPE_CHECKING:
    from .ready_made import (
        constant_background,
        damped_sine,
        exponential,
        gaussian,
        line,
        logistic,
        lorentzian,
        polynomial,
        power_law,
        voigt,
    )


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'problm.models' has no attribute {name!r}")
    from . import ready_made

    return getattr(ready_made, name)
