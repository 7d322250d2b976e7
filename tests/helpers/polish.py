"""Is there a lower cost downhill from where a solver says the minimum is? SciPy looks, with exact derivatives.

The judge of claims on problems of any kind. From the point that a solver returned, `polished` runs SciPy's
`least_squares` with tolerances at rounding and derivatives by the complex step. What it gains is told in standard
errors, ``sqrt(dof * gain / cost)``: the unit of the package's certificate (`problm.solver.termination`).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.optimize

from tests.helpers.zoo import EPS, RHO, Fit, Outcome

FALSE = 0.05
"""Standard errors from the minimum beyond which a claimed success is false. The package promises 0.01 by the quadratic
model, of which the cost itself may differ."""
_NEAR = 0.1
"""Part of each parameter by which a way downhill is followed first. Bounded losses have many minima, and a long step of
SciPy's may lead over a hill into another one."""
_BOUNDED = ("arctan", "geman_mcclure", "welsch", "tukey", "truncated")
_DIGITS = 1e-6
"""Relative change of every parameter below which two points of an exact fit are the same."""


@dataclass(frozen=True)
class Polished:
    """Where SciPy ends from a point, and how far that is."""

    cost: float
    distance: float
    """In standard errors."""
    moved: float
    """Largest relative change of a parameter."""

    @property
    def refutes(self) -> bool:
        """Whether the point it began at cannot be called a minimum."""
        return self.distance > FALSE and self.moved > _DIGITS


def polished(fit: Fit, theta: np.ndarray) -> Polished:
    """Go downhill from a point, within the bounds."""
    theta = np.asarray(theta, dtype=float)
    cost = fit.cost(theta)
    lowest, end = _lowest(fit, theta)
    freedom = max(fit.n - len(theta), 1)
    least = 100 * EPS * cost + 10 * _rounding(fit, theta, cost)
    if fit.loss in _BOUNDED and cost - lowest > least:
        room = _NEAR * np.abs(theta) + 1e-300
        box = np.maximum(fit.bounds[0], theta - room), np.minimum(fit.bounds[1], theta + room)
        if cost - _lowest(replace(fit, bounds=box), theta)[0] <= least:
            lowest, end = cost, theta
    gain = cost - lowest
    if gain <= least or cost <= 0:
        gain = 0.0
    moved = np.abs(end - theta) / np.maximum(np.maximum(np.abs(theta), np.abs(end)), 1e-300)
    return Polished(lowest, float(np.sqrt(freedom * gain / cost)) if gain else 0.0, float(moved.max(initial=0.0)))


def _lowest(fit: Fit, theta: np.ndarray) -> tuple[float, np.ndarray]:
    """The lowest cost that SciPy's methods reach, and where; that of the point itself if none is lower."""
    ends = [(fit.cost(theta), theta), *((cost, point) for point, cost in _ends(fit, theta))]
    return min(ends, key=lambda end: end[0])


def _ends(fit: Fit, theta: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """Points that SciPy's methods reach, with their costs."""
    lower, upper = (np.broadcast_to(b, theta.shape) for b in fit.bounds)
    bounded = bool(np.isfinite(lower).any() or np.isfinite(upper).any())
    free = lower < upper
    start = np.clip(theta, np.nextafter(lower, np.inf), np.nextafter(upper, -np.inf)) if bounded else theta
    tight: dict[str, Any] = {"ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15}
    calls: list[dict[str, Any]] = [{"method": "trf", "bounds": (lower, upper), "x_scale": "jac", "max_nfev": 100}]
    if fit.loss != "linear":
        calls[0] |= {"loss": _loss(fit.loss), "f_scale": fit.f_scale}
    elif not bounded and fit.n >= len(theta):
        calls.append({"method": "lm", "max_nfev": 100})
    found = []
    for call in calls if free.all() else ():
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                end = scipy.optimize.least_squares(
                    lambda t: fit.residuals(t).ravel(), start, lambda t: _derivatives(fit, t), **call, **tight
                )
            except (ValueError, np.linalg.LinAlgError):
                continue  # not finite on its way
            found.append((end.x, fit.cost(end.x)))
    return [(x, c) for x, c in found if np.isfinite(c)]


def _derivatives(fit: Fit, theta: np.ndarray) -> np.ndarray:
    jacobian = fit.jacobian(theta)
    return jacobian if np.isfinite(jacobian).all() else fit.jacobian(theta, "3-point")


def _loss(name: str) -> Any:
    """A loss that SciPy may not have: value, slope, and no curvature, which only shapes its steps."""
    if name in ("huber", "soft_l1", "cauchy", "arctan"):
        return name

    def rho(z: np.ndarray) -> np.ndarray:
        value, slope = RHO[name](z)
        return np.stack([value, slope, np.zeros_like(z)])

    return rho


def _rounding(fit: Fit, theta: np.ndarray, cost: float) -> float:
    """What the last bits of the parameters do to the cost."""
    moved = [theta * (1 + 2 * EPS * np.random.default_rng(seed).choice([-1.0, 1.0], theta.shape)) for seed in range(3)]
    with np.errstate(all="ignore"):
        changes = [abs(fit.cost(point) - cost) for point in moved]
    return max((c for c in changes if np.isfinite(c)), default=0.0)


def judged(fit: Fit, outcome: Outcome) -> tuple[str, Polished | None]:
    """``right``, ``false``, ``honest`` (a failure that says so) or ``crash``, and what was found downhill."""
    if outcome.error is not None:  # an error is the answer to a start without a cost
        return ("crash" if np.isfinite(fit.cost(fit.x0)) else "honest"), None
    start, end = fit.cost(fit.x0), fit.cost(outcome.x) if outcome.x is not None else np.nan
    if not np.isfinite(end) or end > start * (1 + 1e-10) + 1e-300:
        return ("false" if outcome.success or np.isfinite(start) else "honest"), None
    assert outcome.x is not None
    if np.any(outcome.x < fit.bounds[0]) or np.any(outcome.x > fit.bounds[1]):
        return "false", None
    if not outcome.success:
        return "honest", None
    lower = polished(fit, outcome.x)
    return ("false" if lower.refutes else "right"), lower
