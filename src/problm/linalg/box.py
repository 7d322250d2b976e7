"""The minimum of a quadratic over a box."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..support.products import dot
from .dense import solve_unit

Array = NDArray[np.float64]
_MOST_GRADIENTS, _MOST_CUTS = 10, 5
_SHORTER = (0.5, 0.25, 0.125, 0.0625, 0.03125)
"""Shares of a step that are tried before the first bound, which one coordinate alone may reach: with many of them it
would take as many solves."""


def minimum_in_box(
    matrix: Any,
    gradient: Array,
    low: Array,
    high: Array,
    solve: Callable[[NDArray[np.intp], Array], Array] | None = None,
    least: float = 1e-15,
) -> Array:
    """The y with ``low <= y <= high`` that minimises ``g^T y + y^T H y / 2``; all (d,), and the box contains zero.

    Uses projected Newton steps (Bertsekas 1982) from zero: coordinates that would cross a bound stay on it.

    Parameters
    ----------
    matrix : (d, d) H, positive semi-definite, with a diagonal of about one.
    gradient : (d,) g.
    solve : ``solve(indices, right)`` solves with the part of H that belongs to these parameters, for an H that is not
        an array.
    least : relative decrease below which a step is the last.

    Examples
    --------
    >>> minimum_in_box(np.eye(2), np.array([-3.0, -0.5]), np.zeros(2), np.ones(2))
    array([1. , 0.5])
    """

    def value(y: Array) -> float:
        return dot(y, gradient + 0.5 * (matrix @ y))

    y, now = np.zeros(len(gradient)), 0.0
    for _ in range(3 * len(gradient)):
        if solve is not None:
            y, now = _by_gradients(matrix, gradient, low, high, y, now)
        slope = gradient + matrix @ y
        moving = np.flatnonzero(~(((y <= low) & (slope > 0.0)) | ((y >= high) & (slope < 0.0))))
        if not len(moving):
            break
        direction = np.zeros(len(y))
        while len(moving):
            if solve is not None:
                direction[moving] = -solve(moving, slope[moving])
            else:
                direction[moving] = -solve_unit(matrix[np.ix_(moving, moving)], slope[moving])[0]
            outwards = ((y <= low) & (direction < 0.0)) | ((y >= high) & (direction > 0.0))
            if not outwards.any():
                break
            moving = moving[~outwards[moving]]  # the others stay, although their slope alone leads inside
            direction[:] = 0.0
        trial = np.clip(y + direction, low, high)
        then = value(trial)
        for share in _SHORTER if solve is not None and len(moving) else ():  # many coordinates may cross a bound
            if then < now:
                break
            trial = np.clip(y + share * direction, low, high)
            then = value(trial)
        if not then < now and len(moving):  # up to the first bound the quadratic falls
            trial = _to_the_first_bound(y, direction, moving, low, high)
            then = value(trial)
        if not then < now:
            break
        gained, y, now = now - then, trial, then
        if not gained > least * abs(now):
            break
    return y


def _by_gradients(matrix: Any, gradient: Array, low: Array, high: Array, y: Array, now: float) -> tuple[Array, float]:
    """Go on by projected gradients until they change no set of bounds that are reached (Moré and Toraldo 1991); return
    the point and its value. They take one product each, and many coordinates reach their bounds at once."""
    bend = matrix @ y
    for _ in range(_MOST_GRADIENTS):
        slope = gradient + bend
        down = np.where(((y <= low) & (slope > 0.0)) | ((y >= high) & (slope < 0.0)), 0.0, -slope)
        curvature = dot(down, matrix @ down)
        if not curvature > 0.0:
            break
        share, before = dot(down, down) / curvature, (y <= low) | (y >= high)
        for _ in range(_MOST_CUTS):
            trial = np.clip(y + share * down, low, high)
            there = matrix @ trial
            then = dot(trial, gradient + 0.5 * there)
            if then < now:
                break
            share *= 0.25
        else:
            break
        y, now, bend = trial, then, there
        if np.array_equal(before, (y <= low) | (y >= high)):
            break
    return y, now


def _to_the_first_bound(y: Array, direction: Array, moving: NDArray[np.intp], low: Array, high: Array) -> Array:
    """Move along the direction until the first moving coordinate reaches its bound."""
    bound = np.where(direction > 0.0, high, low)
    shares = np.full(len(y), np.inf)
    moving = moving[direction[moving] != 0.0]
    with np.errstate(over="ignore"):
        shares[moving] = (bound[moving] - y[moving]) / direction[moving]
    first = int(np.argmin(shares))
    reached: Array = np.clip(y + min(1.0, shares[first]) * direction, low, high)
    if shares[first] <= 1.0:
        reached[first] = bound[first]
    return reached
