"""First guesses as the front doors ask for them: also from data with outliers, and with the ends of a curve in order.

The search for a start minimises squares, so a hot pixel draws a peak to itself. Medians over neighbouring points remove
outliers that stand alone, but also peaks as narrow as one point: for robust fits starts are found with and without
them, and the one that is nearer to the data as they are, by the sum of absolute residuals, is taken.

A falling curve between two ends, ``bottom + (top - bottom) / (1 + (x / half)**slope)``, is the same with its ends
exchanged and the other sign of the slope. The start is the one whose bottom is below its top. So are waves with a
negative amplitude those with a positive one, half a period later.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .first_guess import Guessable, finite, start

Array = NDArray[np.float64]
_WINDOW = 5
"""Points of a median along one variable."""
_NEIGHBOURS = 9
"""Points of a median over several variables: a pixel and those around it."""
_ENDS = (("bottom", "top"), ("low", "high"), ("lower", "upper"))
"""What the names of the ends of a curve contain."""


def guess(model: Guessable, x: Any, y: Any, robust: bool) -> Array:
    """A start (d,) for a model with an expression; see `problm.models.guesses.first_guess.start`."""
    columns, values = finite(x, y, len(model.variables))
    points: Any = columns[0] if len(columns) == 1 else tuple(columns)
    theta = _robust_start(model, columns, points, values) if robust else start(model, points, values)
    found: Array = in_order(model, points, theta[None, :])[0]
    return found


def _robust_start(model: Guessable, columns: list[Array], points: Any, values: Array) -> Array:
    found, failure = [], None
    for shown in (values, _medians(columns, values)):
        try:
            found.append(start(model, points, shown))
        except ValueError as error:
            failure = error
    if failure is not None and not found:
        raise failure

    def distance(theta: Array) -> float:
        with np.errstate(all="ignore"):
            total = float(np.abs(model(points, *theta) - values).sum())
        return total if np.isfinite(total) else np.inf

    return min(found, key=distance)


def _medians(columns: list[Array], values: Array) -> Array:
    """(n,) the median of each point and its neighbours; columns are in ascending order of the first."""
    if len(values) < 2 * _NEIGHBOURS:
        return values
    if len(columns) == 1:
        around = np.pad(values, _WINDOW // 2, mode="reflect")
        return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(around, _WINDOW), axis=1))
    from scipy.spatial import cKDTree

    places = np.stack([c / (float(np.ptp(c)) or 1.0) for c in columns], axis=1)
    _, near = cKDTree(places).query(places, _NEIGHBOURS)
    return np.asarray(np.median(values[near], axis=1))


def in_order(model: Guessable, points: Any, theta: Array) -> Array:
    """Parameters (B, d) of the same curves as they are usually given.

    Ends whose names tell it are in order where that takes one other sign, and amplitudes of waves are positive.
    """
    names = list(model.parameters)
    for i, name in enumerate(names):
        if "amplitude" in name:
            _exchange(model, points, theta, theta[:, i] < 0.0, [i], np.pi)
        for low, high in _ENDS:
            other = name.replace(low, high)
            if low in name and other in names:
                j = names.index(other)
                _exchange(model, points, theta, theta[:, i] > theta[:, j], [i, j], None)
    return theta


def _exchange(
    model: Guessable, points: Any, theta: Array, wrong: NDArray[np.bool_], places: list[int], turn: float | None
) -> None:
    """Exchange two parameters, or change the sign of one, where some other one can undo it: turned, or negated."""
    if not wrong.any():
        return

    def moved(some: Array, k: int) -> Array:
        result = some.copy()
        result[:, places] = -some[:, places] if len(places) == 1 else some[:, places[::-1]]
        result[:, k] = -some[:, k] if turn is None else some[:, k] - np.copysign(turn, some[:, k])
        return result

    first = theta[wrong][:1]
    curve = model(points, *first[0])
    for k in set(range(theta.shape[1])) - set(places):
        with np.errstate(all="ignore"):
            values = model(points, *moved(first, k)[0])
        if np.allclose(values, curve, rtol=0.0, atol=1e-9 * float(np.ptp(curve))):
            theta[wrong] = moved(theta[wrong], k)
            return
