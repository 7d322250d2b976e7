"""Rules for the damping lambda of ``(H + lambda D) step = -g``.

H is a mean over the batch, so lambda means the same at every batch size (erratum 16). Marquardt's D, the diagonal of
H, makes steps independent of the parameters' units. It is the largest diagonal so far, as in MINPACK: with the present
diagonal, parameters run away where the residuals flatten out (the More-Garbow-Hillstrom problems penalty functions I
and II and Brown-Dennis are then not solved in 1000 iterations). There are four rules:

``TrustRegion`` (default), Marquardt's D
    More's rule (1978), as in MINPACK: lambda is the smallest value that keeps the step within a radius, zero if the
    Gauss-Newton step fits, and the radius follows the ratio of actual to predicted decrease. On batches of large
    problems it costs as much as the others. On ill-conditioned problems it is the only rule that never waits for lambda
    to fall (NIST's Lanczos1 from its second start: 8 iterations instead of 108; MGH10 and MGH17 are solved from the far
    start).
``GainRatio``, Marquardt's D
    Follows the ratio of actual to predicted decrease: a good step divides lambda by ten, a fair one changes it by
    Nielsen's smooth factor. It measured better than Nielsen's rule alone for plain LM.
``Nielsen``, Marquardt's D
    H. B. Nielsen's smooth rule, IMM-REP-1999-05.
``Tenfold``, ``D = I``
    The paper's rule: lambda is multiplied by ten on failure and divided by ten on success. Steps are not extrapolated
    under this rule, so that with all blocks from the start it is the paper's baseline, plain LM.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import ge
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from .rules import FACTOR, first_radius, next_radius

if TYPE_CHECKING:
    from ..linalg.quadratic import Proposal, QuadraticModel

Array = NDArray[np.float64]

_FEW = 100
"""Number of parameters up to which Python's numbers take less time than NumPy's."""
_LEAST = 1e-30
_MOST = 1e14


class Damping(Protocol):
    """State and rule of the damping."""

    value: float

    def scaling(self, diagonal: Array) -> Array | None:
        """D (d,) at a point whose H has this diagonal; None if D is the diagonal itself."""
        ...

    def propose(self, system: QuadraticModel) -> Proposal:
        """The next step to try from here; its lambda is then the ``value``."""
        ...

    def accept(self, ratio: float) -> None:
        """A step with this ratio of actual to predicted decrease was taken."""
        ...

    def reject(self, least: float = 0.0, ratio: float = 0.0) -> None:
        """A step with this ratio did not lower the cost of the batch; lambda below ``least`` does not affect it."""
        ...

    def reset(self) -> None:
        """Start again after a batch on which no step lowered the cost."""
        ...


@dataclass(slots=True)
class GainRatio:
    start: float = 1e-3
    value: float = 0.0
    _factor: float = 2.0
    _largest: Array | None = None

    def __post_init__(self) -> None:
        self.value = self.start

    def scaling(self, diagonal: Array) -> Array | None:
        self._largest, scaling = _running_maximum(self._largest, diagonal)
        return scaling

    def propose(self, system: QuadraticModel) -> Proposal:
        return system.step(self.value)

    def accept(self, ratio: float) -> None:
        if ratio > 0.75:
            scale = 0.1
        else:
            scale = max(1.0 / 3.0, 1.0 - (2.0 * ratio - 1.0) ** 3)
            if ratio <= 0.25:
                scale = min(2.0, scale)
        self.value = min(max(self.value * scale, _LEAST), _MOST)
        self._factor = 2.0

    def reject(self, least: float = 0.0, ratio: float = 0.0) -> None:
        self.value = min(max(self.value * 2.0 * self._factor, least), _MOST)
        self._factor *= 2.0

    def reset(self) -> None:
        self.value = self.start
        self._factor = 2.0


@dataclass(slots=True)
class Nielsen(GainRatio):
    """Nielsen's smooth factor alone."""

    def accept(self, ratio: float) -> None:
        self.value = max(self.value * max(1.0 / 3.0, 1.0 - (2.0 * ratio - 1.0) ** 3), _LEAST)
        self._factor = 2.0

    def reject(self, least: float = 0.0, ratio: float = 0.0) -> None:
        self.value = min(max(self.value * self._factor, least), _MOST)
        self._factor *= 2.0


@dataclass(slots=True)
class Tenfold:
    start: float = 1e-3
    value: float = 0.0

    def __post_init__(self) -> None:
        self.value = self.start

    def scaling(self, diagonal: Array) -> Array | None:
        return np.ones(len(diagonal))

    def propose(self, system: QuadraticModel) -> Proposal:
        return system.step(self.value)

    def accept(self, ratio: float) -> None:
        self.value = max(self.value / 10.0, _LEAST)

    def reject(self, least: float = 0.0, ratio: float = 0.0) -> None:
        self.value = min(self.value * 10.0, _MOST)

    def reset(self) -> None:
        self.value = self.start


@dataclass(slots=True)
class TrustRegion:
    factor: float = FACTOR
    """First radius, relative to the length of the start."""
    value: float = 0.0
    radius: float = 0.0
    """Zero before the first step."""
    length: float = 0.0
    """Length of the last step in the metric of the damping."""
    _largest: Array | None = None

    @property
    def largest(self) -> Array:
        """(d,) the largest diagonal of H so far."""
        assert self._largest is not None
        return self._largest

    def scaling(self, diagonal: Array) -> Array | None:
        self._largest, scaling = _running_maximum(self._largest, diagonal)
        return scaling

    def stepped(self, value: float, radius: float, length: float, largest: Array) -> None:
        """Steps were taken elsewhere by these rules (`problm.solver.compiled.loop`)."""
        self.value, self.radius, self.length, self._largest = value, radius, length, largest

    def propose(self, system: QuadraticModel) -> Proposal:
        self.value, self.length = system.damping_within(self.radius_at(system))
        return system.step(self.value)

    def radius_at(self, system: QuadraticModel) -> float:
        """The radius for the next step from here."""
        if not self.radius > 0.0:
            self.radius = first_radius(self.factor, *system.lengths())
        return self.radius

    def accept(self, ratio: float) -> None:
        self.radius = next_radius(self.radius, self.length, self.value, ratio)

    def reject(self, least: float = 0.0, ratio: float = 0.0) -> None:
        self.radius = next_radius(self.radius, self.length, self.value, ratio)

    def reset(self) -> None:
        self.radius = self.value = 0.0


def _running_maximum(largest: Array | None, diagonal: Array) -> tuple[Array, Array | None]:
    """The largest diagonal so far, and D: None if that is the present diagonal."""
    if largest is None:
        return diagonal, None
    # On few numbers Python's comparisons take half the time of NumPy's.
    few = len(diagonal) <= _FEW
    if all(map(ge, diagonal.tolist(), largest.tolist())) if few else (diagonal >= largest).all():
        return diagonal, None
    largest = np.maximum(largest, diagonal)
    return largest, largest


DAMPINGS: dict[str, type[TrustRegion] | type[GainRatio] | type[Nielsen] | type[Tenfold]] = {
    "trust-region": TrustRegion,
    "gain-ratio": GainRatio,
    "nielsen": Nielsen,
    "tenfold": Tenfold,
}


def as_damping(damping: str | Damping) -> Damping:
    """Return the rule with this name, or the object itself."""
    if isinstance(damping, str):
        if damping not in DAMPINGS:
            from ..support.suggest import suggest

            raise ValueError(
                f"damping={damping!r} is not known{suggest(damping, DAMPINGS)}; choose one of {', '.join(DAMPINGS)}"
            )
        return DAMPINGS[damping]()
    return damping
