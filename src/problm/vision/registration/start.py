r"""A start for registration from any rotation: the best of several hundred.

The centroids are put on each other, and rotations that cover the sphere evenly (super-Fibonacci spirals, Alexa 2022)
are scored by the mean truncated squared distance of some source points from the target, together with the 24 ways to
put the principal axes on each other. The best ones and the given start are followed with few points; the end at which
most of these agree with the target within the noise is the start.

It finds any rotation if the clouds overlap fully. It cannot find a partial overlap, whose centroids are apart, unless
the given start leads there (figures: `bench/results/registration.md`), nor tell the turns of a symmetrical object from
each other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...manifolds import rotations_of
from .stages import Setup, Stage, approach
from .target import Target
from .trust import inliers_of, own_noise

Array = NDArray[np.float64]
_ROTATIONS = 500
_SCORED = 250
"""Source points that score a rotation."""
_FOLLOWED = 12
_POINTS = 600
"""Source points that follow one."""
_FAR = 0.25
"""Distance at which errors are truncated, in radii of the target; also the first gate."""


def spread_rotations(n: int) -> Array:
    """n rotations (n, 3, 3) that cover all of them evenly."""
    s = np.arange(n) + 0.5
    r, q = np.sqrt(s / n), np.sqrt(1.0 - s / n)
    a, b = 2.0 * np.pi * s / np.sqrt(2.0), 2.0 * np.pi * s / 1.533751168755204288118041
    return rotations_of(np.column_stack([r * np.sin(a), r * np.cos(a), q * np.sin(b), q * np.cos(b)]))


def axes_rotations(source: Array, target: Array) -> Array:
    """The 24 rotations (24, 3, 3) that put the principal axes of one cloud on those of the other."""
    first, second = (np.linalg.eigh(np.cov(c.T))[1] for c in (source, target))
    found = []
    for order in ([0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1], [2, 1, 0], [1, 0, 2]):
        for signs in np.ndindex(2, 2, 2):
            R = second[:, order] * (1.0 - 2.0 * np.array(signs)) @ first.T
            if np.linalg.det(R) > 0.0:
                found.append(R)
    return np.array(found)


def search(sample: Array, target: Target, thetas: Array, setup: Setup) -> Stage:
    """The best end of several starts.

    Parameters
    ----------
    sample : (k, 3) source points, in random order, centred.
    thetas : (j, d) further starts.
    """
    few = sample[:_SCORED]
    rotations = np.concatenate([spread_rotations(_ROTATIONS), axes_rotations(sample, target.points)])
    starts = np.zeros((len(rotations) + len(thetas), thetas.shape[1]))
    starts[: len(rotations), :9] = rotations.reshape(-1, 9)
    starts[len(rotations) :] = thetas
    R, t = starts[:, :9].reshape(-1, 3, 3), starts[:, 9:12]
    points = np.einsum("jab,ib->jia", R, few) + t[:, None]
    distance = target.tree.query(points.reshape(-1, 3), distance_upper_bound=_FAR)[0].reshape(len(starts), -1)
    scores = (np.minimum(distance, _FAR) ** 2).mean(axis=1)
    best: list[Stage] = []
    some = np.ascontiguousarray(sample[:_POINTS])
    quiet = replace(setup, options={k: v for k, v in setup.options.items() if k == "max_time"})
    # The given start is always followed: partly overlapping clouds may fit better elsewhere before they are moved.
    given = np.arange(len(rotations), len(starts))
    for j in [*given, *np.argsort(scores[: len(rotations)], kind="stable")[:_FOLLOWED]]:
        best.append(approach(some, target, starts[j], _FAR, quiet))
    # By the points that agree within the least noise: a wrong pose has many points near the target, but few on it.
    narrow = min(stage.gate for stage in best)
    noise = max(min(stage.noise for stage in best), own_noise(target, setup.plane))  # without matches there is none
    problem = setup.problem(some, target, narrow, 1.0)
    return max(best, key=lambda stage: inliers_of(problem, stage.theta, noise).mean())
