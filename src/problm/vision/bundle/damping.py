r"""Damping of cameras where the model is wrong, and only there.

A point near the centre of a camera, or a wrong match of two images, has a cost that the quadratic model describes only
very near. One damping for all cameras would then make every step short: among hundreds of cameras some such track
forbids almost every step. So every image i has a damping mu_i of its own besides the common lambda,

    (H + lambda D + mu D) step = -g,

with D the diagonal of H. After a step that gained less than predicted, the change of every track is compared with its
own prediction, and the difference is divided among its images. If without the few worst images the others gained at
least half of what was predicted for them, these few are damped more, ten times at first, and lambda follows the ratio
of the others. Otherwise lambda alone rises. An accepted step divides mu by two. An image that is held already is not
blamed again: what is missing is then not its doing, and the same step would be tried for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...linalg.block_model import BlockModel
from ...solver.damping import GainRatio

if TYPE_CHECKING:
    from ...linalg.quadratic import Proposal, QuadraticModel
    from .problem import BundleProblem

Array = NDArray[np.float64]
_GOOD = 0.75
"""Ratio of actual to predicted decrease from which no image is looked for."""
_FAIR = 0.5
"""Least ratio of the images that are not blamed."""
_MOST = 0.25
"""Largest share of the images that may be blamed."""
_LEAST, _FIRST, _FACTOR, _EASE = 1e-7, 0.1, 10.0, 0.5
"""The damping of an image: below the first it is none; its first value, its growth by the first of several failed
steps, and its decline."""
_HELD = 1e7
"""Damping of an image above which it stands still."""
_NOTICED = 1e-7
"""Least lambda after a failed step for which no image is to blame: below, it makes no difference."""


@dataclass(slots=True)
class LocalDamping(GainRatio):
    """Damping by gain ratio, and by image.

    Parameters
    ----------
    problem
        The problem, with a block matrix.
    """

    problem: BundleProblem | None = None
    _local: Array = field(default_factory=lambda: np.empty(0))
    _last: tuple[BlockModel, Array] | None = None
    _failed: int = 0
    """Number of failed steps from this point."""

    def scaling(self, diagonal: Array) -> Array | None:
        return None

    def propose(self, system: QuadraticModel) -> Proposal:
        assert isinstance(system, BlockModel)
        assert self.problem is not None
        if not len(self._local):
            self._local = np.zeros(self.problem.images)
        system.hold(self._by_parameter())
        proposal = system.step(self.value)
        self._last = system, proposal[0]
        return proposal

    def accept(self, ratio: float) -> None:
        rest = self._blame() if ratio < _GOOD else None
        self._failed = 0
        self._local *= _EASE
        self._local[self._local < _LEAST] = 0.0
        GainRatio.accept(self, ratio if rest is None else max(ratio, rest))

    def reject(self, least: float = 0.0, ratio: float = 0.0) -> None:
        self._failed += 1
        if self._blame() is None:
            GainRatio.reject(self, max(least, _NOTICED), ratio)

    def reset(self) -> None:
        GainRatio.reset(self)
        self._local[:] = 0.0

    def _by_parameter(self) -> Array:
        assert self.problem is not None
        return np.append(self._local, 0.0)[self.problem.owner]

    def _blame(self) -> float | None:
        """Damp the few images whose tracks gained much less than predicted; return the ratio of the others, None if
        they are not few, or if there are none."""
        if self._last is None or self.problem is None:
            return None
        system, step = self._last
        normal = system.normal
        damped = (self.value + self._by_parameter()) * normal.hessian.diagonal() * step
        predicted = self.problem.by_image(0.5 * step * (damped - normal.gradient))
        missing = self.problem.missing_gain(step, 100.0 * float(np.abs(predicted).sum()))
        order = np.argsort(_FAIR * predicted - missing, kind="stable")
        order = order[self._local[order] < _HELD]
        rest_predicted = predicted.sum() - np.cumsum(predicted[order])
        rest_missing = missing.sum() - np.cumsum(missing[order])
        fair = np.flatnonzero((rest_predicted > 0.0) & (rest_missing <= (1.0 - _FAIR) * rest_predicted))
        if not (len(fair) and np.isfinite(missing).all()) or fair[0] >= max(2, _MOST * len(predicted)):
            return None
        count = int(fair[0]) + 1
        worst = order[:count]
        factor = _FACTOR ** max(self._failed, 1)
        self._local[worst] = np.maximum(factor * np.maximum(self._local[worst], self.value), _FIRST)
        return float(1.0 - rest_missing[count - 1] / rest_predicted[count - 1])


def camera_options(options: dict[str, Any], first: float = 1e-3, damping: Any = None) -> dict[str, Any]:
    """The user's options; if no damping is given and the policy uses a trust region, damping by gain ratio.

    A trust region begins with radius 100 and so with a full Gauss-Newton step, which may rotate cameras arbitrarily
    far. Measured on three views of a castle, cameras off by 0.03 rad (24 starts): the right one of two minima in 22
    runs by gain ratio and in 18 by trust region; with five views 167 and 249 iterations in the median; on BAL's 49
    cameras 9 and 13 iterations.

    ``first`` is the first lambda; ``damping`` replaces that rule.
    """
    from ...solver.policies import as_acceptance

    policy = as_acceptance(options.get("acceptance", "holdout"))
    if options.get("damping") is None and policy.damping == "trust-region":
        options = {"damping": damping or GainRatio(start=first), **{k: v for k, v in options.items() if k != "damping"}}
    return {"ftol": 1e-8, "xtol": 1e-8, **options}
