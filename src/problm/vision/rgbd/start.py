r"""A start for RGB-D odometry: the turn of the camera under which coarse views correlate best.

Turns about x and y shift the image, and are what loses the way first. On a coarse level all turns that shift it by
whole pixels, up to a quarter of its width, are scored by the correlation of the images times the root of their overlap.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...manifolds import rotation_exp
from ..alignment.sample import Sample
from .problem import RgbdProblem
from .views import Views

Array = NDArray[np.float64]
ROWS = 400
"""Rows of the level that is searched, at most."""
_FARTHEST = 0.25
"""Largest shift, as a share of the width."""


def score(probe: RgbdProblem, theta: Array) -> float:
    """Correlation times the root of the overlap."""
    values, weights, _ = probe.look_up(theta)
    sample = Sample(probe.views.values[:, None], np.ascontiguousarray(values[0][:, None]), weights[0])
    return sample.correlation() * math.sqrt(sample.overlap)


def best_turn(views: Views, theta: Array) -> Array:
    """The start (12,), turned about the axes x and y of camera 2 to where the views correlate best."""
    probe = RgbdProblem(views, (1.0, 1.0), lit=False)
    reach = int(_FARTHEST * views.depth1.shape[1])
    focal = views.K[0, 0]
    best, found = score(probe, theta), theta
    for down in range(-reach, reach + 1):
        for across in range(-reach, reach + 1):
            R = rotation_exp(np.arctan(np.array([down, across, 0.0]) / focal))
            turned = np.concatenate([(R @ theta[:9].reshape(3, 3)).ravel(), R @ theta[9:12]])
            now = score(probe, turned)
            if now > best:
                best, found = now, turned
    return found
