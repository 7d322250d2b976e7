"""Finite differences of a function: forward, central and complex step.

Steps balance rounding and truncation errors (Press et al., 5.7), relative to sizes given by the caller. They follow a
retraction if there is one, and change direction at a bound and where the function is not defined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import add, sub
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .products import dot

Array = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)
CENTRAL = EPS ** (1 / 3)
"""Relative step of central differences for functions that are exact to rounding."""
COMPLEX = 1e-20
"""Relative complex step: nothing is subtracted, so any small value will do."""
_ORDER = {"2-point": 1 / 2, "3-point": 1 / 3}
METHODS = ("2-point", "3-point", "cs")


@lru_cache(maxsize=16)
def usual_step(method: str, eps: float = EPS) -> float:
    """Step relative to the size of a parameter, for functions with the relative accuracy ``eps``."""
    return COMPLEX if method == "cs" else float(eps ** _ORDER[method])


def relative(point: Array) -> Any:
    """Sizes of the parameters of a point (..., d), as a list of d; 1 for zero, as in MINPACK."""
    size = np.abs(point)
    return np.moveaxis(np.where(size > 0.0, size, 1.0), -1, 0)


def derivatives(
    function: Callable[[Any], Array],
    point: Any,
    sizes: Sequence[Any] | Array,
    method: str = "3-point",
    *,
    value: Array | None = None,
    retract: Callable[[Any, Array], Any] | None = None,
    limits: tuple[Array, Array] | None = None,
    eps: float = EPS,
    longer: float = 1.0,
) -> Array:
    """Derivatives of ``function`` with respect to each parameter of ``point``, (d, ...): the transposed Jacobian.

    Parameters
    ----------
    function
        Returns any array for a point; complex for complex points with the method ``"cs"``.
    point
        (d,); (b, d) for b points at once, for which the function returns one row each; any object with ``retract``.
    sizes
        d numbers, or arrays (b,): the sizes that steps are relative to.
    method
        ``"2-point"``, ``"3-point"`` or ``"cs"``.
    value
        ``function(point)``, which forward differences need.
    retract
        ``retract(point, step)`` on a manifold.
    limits
        Lower and upper bounds (d,); steps stay inside.
    eps
        Relative accuracy of the function.
    longer
        Factor on the usual steps.

    Examples
    --------
    >>> point = np.array([2.0, 3.0])
    >>> derivatives(lambda t: np.array([t[0] * t[1], t[1] ** 2]), point, relative(point)).round(6)
    array([[3., 0.],
           [2., 6.]])
    """
    step = longer * usual_step(method, eps)
    quotient = _Quotient(function, point, len(sizes), method, value, retract, limits)
    result = np.array([quotient(a, step * size) for a, size in enumerate(sizes)])
    if value is not None and method != "cs" and (retract is not None or point.ndim == 1):
        quotient.turn_around(result, [step * size for size in sizes])
    return result


def forward(
    function: Callable[[Array], Array],
    point: Array,
    steps: Sequence[float],
    value: Array,
    stack: Callable[[Array, int], Array | None] | None = None,
) -> Array:
    """Forward differences (d, ...) in flat space without bounds, the most common case: `derivatives` with given steps.

    ``stack(points, rows)`` may return the values at all points (d, d).

    Examples
    --------
    >>> point = np.array([2.0, 3.0])
    >>> forward(lambda t: np.array([t[0] * t[1], t[1] ** 2]), point, [1e-8, 1e-8], np.array([6.0, 9.0])).round(6)
    array([[3., 0.],
           [2., 6.]])
    """
    result, here = np.empty((len(steps), *value.shape)), point.tolist()
    ends = list(map(add, here, steps))
    values = None if stack is None else stack(moved_points(point, ends), value.size)
    if values is None:
        for a, end in enumerate(ends):
            moved = point.copy()
            moved[a] = end
            np.subtract(function(moved), value, out=result[a])
    else:
        np.subtract(values, value, out=result)
    result /= np.array(list(map(sub, ends, here))).reshape(-1, *(1,) * value.ndim)
    if not math.isfinite(dot(result, result)):
        _Quotient(function, point, len(steps), "2-point", value, None, None).turn_around(result, steps)
    return result


def moved_points(point: Array, ends: Sequence[float] | Array) -> Array:
    """Points (d, d), of which each has another one of the d parameters at its end.

    Examples
    --------
    >>> moved_points(np.array([1.0, 2.0]), [1.5, 2.5])
    array([[1.5, 2. ],
           [1. , 2.5]])
    """
    points = np.repeat(point[None], len(point), axis=0)
    np.fill_diagonal(points, ends)
    return points


@dataclass
class _Quotient:
    """The derivative with respect to one parameter; arguments as in `derivatives`."""

    function: Callable[[Any], Array]
    point: Any
    dim: int
    method: str
    value: Array | None
    retract: Callable[[Any, Array], Any] | None
    limits: tuple[Array, Array] | None

    def __call__(self, a: int, h: Any) -> Array:
        if self.method == "cs":
            moved = self.point.astype(np.complex128)
            moved[..., a] += 1j * h
            return np.asarray(self.function(moved).imag / h)
        below, above = -np.inf, np.inf
        if self.limits is not None:
            below, above = self.limits[0][a] - self.point[a], self.limits[1][a] - self.point[a]
        if self.method == "3-point" and (self.limits is None or (below <= -h and h <= above)):
            return self._between(self._moved(a, -h), self._moved(a, h), a, 2.0 * h)
        if h > above:
            h = -h if below <= -h else (above if above >= -below else below)
        assert self.value is not None
        if h == 0.0:  # a fixed parameter
            return np.zeros_like(self.value)
        moved = self._moved(a, h)
        width = h if self.retract is not None else moved[a] - self.point[a]  # the step after rounding
        return np.asarray((self.function(moved) - self.value) / width)

    def turn_around(self, columns: Array, steps: Sequence[Any]) -> None:
        """Use one-sided differences for values that are not finite on the other side, at the edge of a model."""
        assert self.value is not None
        # The sum of squares shows what is not finite in a third of the time of a sum.
        if not math.isfinite(np.vdot(columns, columns)) and np.isfinite(self.value).all():
            for a, h in enumerate(steps):
                self._turn(columns[a], a, h)

    def _turn(self, column: Array, a: int, h: Any) -> None:
        assert self.value is not None
        for step in (h, -h):
            bad = ~np.isfinite(column)
            if bad.any() and (self.limits is None or self.limits[0][a] <= self.point[a] + step <= self.limits[1][a]):
                moved = self._moved(a, step)
                width = step if self.retract is not None else moved[a] - self.point[a]
                column[bad] = ((self.function(moved) - self.value) / width)[bad]

    def _between(self, low: Any, high: Any, a: int, width: Any) -> Array:
        if self.retract is None:
            width = high[..., a] - low[..., a]  # now, as the function may write to its argument
        change = self.function(high) - self.function(low)
        if self.retract is None and self.point.ndim > 1:
            # Several points, each with its width, along the first axis of the function's values.
            width = width.reshape(-1, *(1,) * (change.ndim - 1))
        change /= width
        return change

    def _moved(self, a: int, h: Any) -> Any:
        if self.retract is None:
            point = self.point.copy()
            point[a if point.ndim == 1 else (..., a)] += h
            return point
        delta = np.zeros(self.dim)
        delta[a] = h
        return self.retract(self.point, delta)
