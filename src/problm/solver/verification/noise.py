r"""Slopes that errors of derivatives make up.

Where parameters are redundant, differences turn the directions that no residual depends on into ones with a tiny
singular value, along which the gradient is noise. If residuals are small (data in single precision, without noise), the
decrease that the model promises there seems to matter. Evaluations of the cost tell noise from a valley.
"""

from __future__ import annotations

import math

from ...linalg.quadratic import QuadraticModel
from .. import rules
from ..run import Run
from .costs import Array, change_by, parabola, rounding, short_way
from .valley import Floor

_REACH = 0.1
"""Distance, relative to the point, on which a model counts (`problm.linalg.quadratic`)."""
_SHORT = 0.1
"""Part of that distance to go along the floor."""


def made_up(run: Run, model: QuadraticModel) -> bool:
    """Whether evaluations of the cost show that nothing that matters can be gained, within a tenth of the point's
    length, along the directions whose singular values errors of the derivatives can explain."""
    if model.weak is None or not model.cost > 0.0:
        return False
    level, values, steps = model.weak
    reach = _REACH * math.sqrt(model.point_squared())
    noise = 10.0 * rounding(run, model.cost)
    return all(_flat(run, model, reach * step, noise) for step in steps[values <= level])


def _flat(run: Run, model: QuadraticModel, step: Array, noise: float) -> bool:
    """Whether the cost changes by next to nothing along a step, to both sides or along the floor of a valley."""
    t, ahead = short_way(run, model, step, 1.0)
    slope, _ = parabola(ahead, change_by(run, model, -t * step), t)
    if rules.is_flat(abs(slope) + noise / t, model.cost, model.count):
        return True
    # Where parameters are redundant in a curve (a product), straight lines soon leave it: too soon for rounding.
    changes = [Floor(run, model, side * step).at(_SHORT, 0.0)[1] - model.cost for side in (1.0, -1.0)]
    return rules.is_flat((max(map(abs, changes)) + noise) / _SHORT, model.cost, model.count)
