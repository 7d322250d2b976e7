r"""Profile likelihood: the cost along one or two parameters, with the others refitted at each point.

With the sum of squares S, ``z(a) = sign(a - a_min) sqrt((S(a) - S_min) / s^2)`` is a straight line if the model is
linear. It is compared with Student's t (the normal distribution if sigma is absolute), which is the F test of
`lmfit.conf_interval`; two parameters together are compared with ``2 F(2, n - d)`` (chi^2 of 2). Each point starts from
the values that the covariance predicts for the other parameters, so that it takes two or three steps.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..warnings import ProblmWarning
from .estimate import Estimate, quantile

Array = NDArray[np.float64]
_REACH = 30.0
"""Distance, in standard errors, beyond which a side of the interval counts as open."""
_MOST = 1e12
"""Finite stand-in for the infinite cost where the model is not defined, for the root finder."""


@dataclass(eq=False)
class Profile:
    """Profile likelihood of a parameter.

    Examples
    --------
    >>> import numpy as np, problm
    >>> x, y = np.arange(1.0, 9.0), np.array([0.9, 1.3, 1.9, 2.0, 2.4, 2.2, 2.6, 2.5])
    >>> fit = problm.fit("y ~ top*x/(half + x)", x, y)
    >>> [round(v, 2) for v in fit.profile("half").interval(0.95)]
    [1.75, 5.06]
    >>> [round(v, 2) for v in fit.params["half"].interval(0.95)]
    [1.38, 4.52]
    """

    fit: Estimate = field(repr=False)
    name: str
    points: dict[float, tuple[float, Array]] = field(default_factory=dict, repr=False)
    """z and all free parameters, by the value of the parameter."""

    def __post_init__(self) -> None:
        self.index = self.fit.free_index(self.name)
        _checked(self.fit)
        theta, C = np.asarray(self.fit.result.x), self.fit.free_covariance
        self.center, self.error = float(theta[self.index]), float(np.sqrt(C[self.index, self.index]))
        if not (np.isfinite(self.error) and self.error > 0.0):
            raise ValueError(f"parameter {self.name!r} has no finite standard error to profile along")
        self.direction = C[:, self.index] / C[self.index, self.index]
        self.points[self.center] = (0.0, theta)

    def z(self, value: float) -> float:
        """Signed square root of the rise of the cost at a value of the parameter, in standard deviations."""
        if value not in self.points:
            start = np.asarray(self.fit.result.x) + (value - self.center) * self.direction
            rise, theta = _rise(self.fit, [self.index], start)
            self.points[value] = (float(np.copysign(np.sqrt(rise), value - self.center)), theta)
        return self.points[value][0]

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Confidence interval; a side that the data do not limit ends at the bound, or is infinite."""
        dof = np.inf if self.fit.absolute_sigma else self.fit.degrees_of_freedom
        height = quantile(level, dof)
        return self._end(-1.0, height), self._end(1.0, height)

    def curve(self, reach: float = 3.0, points: int = 13) -> tuple[Array, Array]:
        """Values (points,) within ``reach`` standard errors, and z there: a straight line for a linear model."""
        values = self.center + self.error * np.linspace(-reach, reach, points)
        return values, np.array([self.z(float(v)) for v in values])

    def _end(self, side: float, height: float) -> float:
        def above(distance: float) -> float:
            return side * self.z(self.center + side * distance * self.error) - height

        limits = self.fit.bounds
        limit = float(side * np.inf if limits is None else limits[int(side > 0.0)][self.index])
        room = abs(limit - self.center) / self.error
        near, far = 0.0, min(height, room)
        while above(far) < 0.0:
            if far >= room or far > _REACH * max(1.0, height):
                return limit
            near, far = far, min(1.6 * far, room)
        from scipy import optimize

        distance = float(optimize.brentq(above, near, far, xtol=1e-5, rtol=1e-10))
        return self.center + side * distance * self.error


def contour(fit: Estimate, first: str, second: str, level: float, points: int) -> Array:
    """Boundary (points, 2) of the joint region of two parameters, along rays from the best fit."""
    _checked(fit)
    pair = [fit.free_index(first), fit.free_index(second)]
    if pair[0] == pair[1]:
        raise ValueError(f"contour needs two different parameters, got {first!r} twice")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}")
    from scipy import optimize, special

    theta, C = np.asarray(fit.result.x), fit.free_covariance
    both = C[np.ix_(pair, pair)]
    root, direction = np.linalg.cholesky(both), C[:, pair] @ np.linalg.inv(both)
    dof = fit.degrees_of_freedom
    height = float(-2.0 * np.log1p(-level) if fit.absolute_sigma else 2.0 * special.fdtri(2, dof, level))
    found = np.empty((points, 2))
    for k, angle in enumerate(np.linspace(0.0, 2.0 * np.pi, points, endpoint=False)):
        ray = root @ np.array([np.cos(angle), np.sin(angle)])

        def above(radius: float, ray: Any = ray) -> float:
            return float(np.sqrt(_rise(fit, pair, theta + direction @ (radius * ray))[0]) - np.sqrt(height))

        near, far = 0.0, float(np.sqrt(height))
        while above(far) < 0.0 and far < _REACH * np.sqrt(height):
            near, far = far, 1.6 * far
        radius = np.inf if above(far) < 0.0 else optimize.brentq(above, near, far, xtol=1e-4 * far)
        found[k] = theta[pair] + radius * ray
    return found


def _checked(fit: Estimate) -> None:
    if fit.refit is None:
        raise ValueError("a fit that was loaded from a file cannot be repeated: fit the data again")
    if not fit.result.certified:
        raise ValueError("a profile needs a fit of all rows: fit without accuracy= and limits")
    if fit.loss != "linear":
        raise ValueError(f"a profile needs a likelihood, and loss={fit.loss!r} is not one: use Fit.bootstrap")


def _rise(fit: Estimate, held: list[int], start: Array) -> tuple[float, Array]:
    """``(S - S_min) / s^2`` with some parameters held, and the point where it is reached."""
    assert fit.refit is not None
    mask = np.zeros(len(start), dtype=bool) if fit.result.fixed is None else fit.result.fixed.copy()
    mask[held] = True
    if mask.all():
        total, theta = fit.chi2_at(start), start
    else:
        try:
            result = fit.refit(start=start, fixed=mask)
        except ValueError:  # the model is not defined there
            return _MOST, start
        total, theta = 2.0 * result.cost, np.asarray(result.x)
    rise = (total - fit.chi2) / (1.0 if fit.absolute_sigma else fit.reduced_chi2)
    if rise < -1e-3:
        warnings.warn(
            f"a better fit was found on the way, at {dict(zip(fit.ties.free, theta.tolist(), strict=True))}: "
            "the profile belongs to another minimum; start from there with p0",
            ProblmWarning,
            stacklevel=2,
        )
    return float(np.clip(np.nan_to_num(rise, nan=_MOST), 0.0, _MOST)), theta
