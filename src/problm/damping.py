"""How the damping lambda of ``(H + lambda D) step = -g`` follows the success of the steps.

H is a mean over the batch, so lambda means the same at every batch size (erratum 16). Three rules:

``GainRatio`` (default), ``D = diag(H)`` (Marquardt: free of the parameters' units)
    follows the ratio of actual to predicted decrease: a good step divides lambda by ten, a fair one changes it
    by Nielsen's smooth factor. For plain LM it measured better than Nielsen's rule alone.
``Nielsen``, ``D = diag(H)``
    H. B. Nielsen's smooth rule, IMM-REP-1999-05.
``Tenfold``, ``D = I``
    the paper's: times ten on failure, a tenth on success.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_LEAST = 1e-30
_MOST = 1e14


class Damping(Protocol):
    """State and rule of the damping."""

    value: float
    marquardt: bool
    """Whether D is the diagonal of H (else the identity, in the units of ``x_scale``)."""

    def accept(self, ratio: float) -> None:
        """A step with this ratio of actual to predicted decrease was taken."""
        ...

    def reject(self, least: float = 0.0) -> None:
        """A step did not lower the cost of the batch; below ``least`` lambda has no effect on it."""
        ...

    def reset(self) -> None:
        """Begin anew, after a batch on which no step went down."""
        ...


@dataclass(slots=True)
class GainRatio:
    start: float = 1e-3
    marquardt: bool = True
    value: float = 0.0
    _factor: float = 2.0

    def __post_init__(self) -> None:
        self.value = self.start

    def accept(self, ratio: float) -> None:
        if ratio > 0.75:
            scale = 0.1
        else:
            scale = max(1.0 / 3.0, 1.0 - (2.0 * ratio - 1.0) ** 3)
            if ratio <= 0.25:
                scale = min(2.0, scale)
        self.value = min(max(self.value * scale, _LEAST), _MOST)
        self._factor = 2.0

    def reject(self, least: float = 0.0) -> None:
        self.value = min(max(self.value * 2.0 * self._factor, least), _MOST)
        self._factor *= 2.0

    def reset(self) -> None:
        self.value = self.start
        self._factor = 2.0


@dataclass(slots=True)
class Nielsen:
    start: float = 1e-3
    marquardt: bool = True
    value: float = 0.0
    _factor: float = 2.0

    def __post_init__(self) -> None:
        self.value = self.start

    def accept(self, ratio: float) -> None:
        self.value = max(self.value * max(1.0 / 3.0, 1.0 - (2.0 * ratio - 1.0) ** 3), _LEAST)
        self._factor = 2.0

    def reject(self, least: float = 0.0) -> None:
        self.value = min(max(self.value * self._factor, least), _MOST)
        self._factor *= 2.0

    def reset(self) -> None:
        self.value = self.start
        self._factor = 2.0


@dataclass(slots=True)
class Tenfold:
    start: float = 1e-3
    marquardt: bool = False
    value: float = 0.0

    def __post_init__(self) -> None:
        self.value = self.start

    def accept(self, ratio: float) -> None:
        self.value = max(self.value / 10.0, _LEAST)

    def reject(self, least: float = 0.0) -> None:
        self.value = min(max(self.value * 10.0, least), _MOST)

    def reset(self) -> None:
        self.value = self.start


DAMPINGS: dict[str, type[GainRatio] | type[Nielsen] | type[Tenfold]] = {
    "gain-ratio": GainRatio,
    "nielsen": Nielsen,
    "tenfold": Tenfold,
}


def as_damping(damping: str | Damping) -> Damping:
    """The rule of that name, or the object itself."""
    if isinstance(damping, str):
        if damping not in DAMPINGS:
            from .options import suggest

            raise ValueError(
                f"damping={damping!r} is not known{suggest(damping, DAMPINGS)}; choose one of {', '.join(DAMPINGS)}"
            )
        return DAMPINGS[damping]()
    return damping
