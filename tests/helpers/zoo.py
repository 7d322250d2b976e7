"""A zoo of problems, the solvers that are let loose on them, and the check of what they claim.

A `Fit` is a least-squares problem in the form of the front door: ``fun(theta, *rows)``, a start, and arrays with one
row a residual block. All functions take complex parameters too, so that SciPy's complex step gives their derivatives
to all digits, independently of the package.

`certificate` looks at a point with nothing but those derivatives: is it a stationary point of the cost over all
residuals? `violations` compares that with what a solver claimed. Both know nothing of how the solver works.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.optimize
from scipy.optimize._numdiff import approx_derivative

EPS = np.finfo(float).eps
LENGTHS = 2.0 ** -np.arange(30)


@dataclass(frozen=True)
class Fit:
    """A least-squares problem. ``minimum`` is the cost at the best minimum for the linear loss, where it is known."""

    name: str
    fun: Callable[..., Any]
    x0: np.ndarray
    data: tuple[np.ndarray, ...]
    jac: Callable[..., Any] | None = None
    minimum: float | None = None
    solution: np.ndarray | None = None
    loss: str = "linear"
    f_scale: float = 1.0
    bounds: tuple[Any, Any] = (-np.inf, np.inf)
    scale: float = 1.0
    """Size of a typical residual at the solution: the scale for a robust loss."""

    @property
    def n(self) -> int:
        return len(self.data[0])

    def residuals(self, theta: Any) -> np.ndarray:
        """All residual blocks (n, p)."""
        r = np.asarray(self.fun(np.asarray(theta), *self.data))
        return r.reshape(self.n, -1)

    def jacobian(self, theta: np.ndarray, method: str = "cs") -> np.ndarray:
        """Derivatives (n * p, d): by the complex step, or another scheme of SciPy's."""
        theta = np.asarray(theta, dtype=float)
        if method != "cs":
            return np.atleast_2d(approx_derivative(lambda t: self.residuals(t).ravel(), theta, method=method))
        # SciPy's complex step has the length 1e-8, which is long where parameters are that small, or huge and cancel.
        columns = []
        for j in range(len(theta)):
            point = theta.astype(complex)
            h = 1e-100 * (abs(theta[j]) or 1.0)
            point[j] += 1j * h
            with np.errstate(all="ignore"):  # the real part may overflow, and is not used
                columns.append(self.residuals(point).imag.ravel() / h)
        return np.stack(columns, axis=1)

    def cost(self, theta: Any) -> float:
        """Cost over all residuals, from the textbook formula of the loss."""
        z = self._z(self.residuals(theta))
        with np.errstate(over="ignore", invalid="ignore"):
            return float(0.5 * self.f_scale**2 * np.sum(RHO[self.loss](z)[0]))

    def _z(self, residuals: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.sum(np.abs(residuals) ** 2, axis=1) / self.f_scale**2


# Value and derivative of the losses, as in textbooks: the package's own are not used in a check of the package.
RHO: dict[str, Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]] = {
    "linear": lambda z: (z, np.ones_like(z)),
    "huber": lambda z: (np.where(z <= 1, z, 2 * np.sqrt(z) - 1), np.minimum(1.0, 1 / np.sqrt(np.maximum(z, 1e-300)))),
    "soft_l1": lambda z: (2 * z / (1 + np.sqrt(1 + z)), 1 / np.sqrt(1 + z)),
    "cauchy": lambda z: (np.log1p(z), 1 / (1 + z)),
    "arctan": lambda z: (np.arctan(z), 1 / (1 + z**2)),
    "geman_mcclure": lambda z: (z / (1 + z), 1 / (1 + z) ** 2),
    "welsch": lambda z: (-np.expm1(-z), np.exp(-z)),
    "tukey": lambda z: ((1 - np.maximum(0, 1 - z) ** 3) / 3, np.maximum(0, 1 - z) ** 2),
    "truncated": lambda z: ((1 - np.maximum(0, 1 - z) ** 2) / 2, np.maximum(0, 1 - z)),
}


@dataclass(frozen=True)
class Certificate:
    """What differences say about a point."""

    cost: float
    gain: float
    """Relative decrease of the cost that the linear model promises for the best step of at most a tenth of the
    parameters' own size: 0 at a stationary point. Without that limit a nearly singular Jacobian promises anything,
    far away; at a minimum of a square system the Jacobian *is* singular."""
    lowered: float
    """Relative decrease of the cost that steps in that direction, of any length up to it, really bring."""
    step: float
    """Largest relative change of a parameter by the Gauss-Newton step."""
    rounding: float
    """Norm of the residuals over the size of their own rounding errors."""
    finite: bool
    vanished: float
    """Cost relative to the start's."""
    n: int

    def agrees(self) -> bool:
        """Whether the point may be called converged.

        Either the gradient vanishes: no step lowers the cost by 1e-5 of it, nor moves a parameter by more than about
        a tenth of its standard error (at a minimum with a singular Jacobian the linear model promises a little more,
        which must then prove to be wrong); or no parameter would move in its first six digits; or nothing is left of
        the residuals but rounding.
        """
        enough = min(1e-5, 0.01 / self.n)
        flat = self.gain <= enough or (self.gain <= 100 * enough and self.lowered <= 0.1 * enough)
        nothing_left = self.rounding <= 1e3 or self.vanished <= 1e-28
        return self.finite and (flat or self.step <= 1e-6 or nothing_left)


def certificate(fit: Fit, theta: Any, method: str = "cs") -> Certificate:
    """Check a point independently of any solver, over all residuals."""
    theta = np.asarray(theta, dtype=float)
    nothing = Certificate(np.nan, np.inf, np.inf, np.inf, np.inf, False, np.inf, fit.n)
    if not np.isfinite(theta).all():
        return nothing
    residuals = fit.residuals(theta)
    if not np.isfinite(residuals).all():
        return nothing
    with np.errstate(over="ignore"):
        root = np.sqrt(RHO[fit.loss](fit._z(residuals))[1])
    jacobian = fit.jacobian(theta, method)
    if not np.isfinite(jacobian).all():
        with np.errstate(all="ignore"):
            jacobian = fit.jacobian(theta, "3-point")  # a complex exponential overflows before a real one does
    r = (residuals * root[:, None]).ravel()
    jacobian = jacobian * np.repeat(root, residuals.shape[1])[:, None]
    cost = fit.cost(theta)
    if not (np.isfinite(jacobian).all() and np.isfinite(cost)):
        return nothing
    lower, upper = (np.broadcast_to(b, theta.shape) for b in fit.bounds)
    gradient = jacobian.T @ r
    # Interior-point methods end a little inside their bounds.
    near = 1e-6 * (1 + np.abs(theta))
    held = ((theta <= lower + near) & (gradient > 0)) | ((theta >= upper - near) & (gradient < 0))
    # A parameter that could double without moving the residuals in the digits that a difference sees has no say.
    visible = (1e-8 if fit.jac is None else 1e-14) * np.linalg.norm(r)
    held |= np.linalg.norm(jacobian, axis=0) * np.abs(theta) < visible * (theta != 0)
    gain, best, step = _best_step(jacobian[:, ~held], r, theta[~held])
    direction = np.zeros(len(theta))
    direction[~held] = best
    with np.errstate(all="ignore"):
        least = np.nanmin([cost, *(fit.cost(np.clip(theta + t * direction, lower, upper)) for t in LENGTHS)])
    moved = np.abs(step) / np.maximum(np.abs(theta[~held]), 1e-300)
    return Certificate(
        cost=cost,
        gain=gain / cost if cost > 0 else 0.0,
        lowered=(cost - least) / cost if cost > 0 else 0.0,
        step=float(moved.max(initial=0.0)),
        rounding=_over_rounding(fit, theta, residuals),
        finite=True,
        vanished=cost / fit.cost(fit.x0) if cost > 0 else 0.0,
        n=fit.n,
    )


def _best_step(jacobian: np.ndarray, r: np.ndarray, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Decrease of ``|r + J s|^2 / 2`` by the best step with ``|D s| <= 0.1 |D theta|``, D the norms of the columns;
    that step; and the Gauss-Newton step."""
    scale = np.linalg.norm(jacobian, axis=0)
    live = scale > 0
    if not live.any():
        return 0.0, np.zeros(len(theta)), np.zeros(len(theta))
    u, s, vt = np.linalg.svd(jacobian[:, live] / scale[live], full_matrices=False)
    inner = u.T @ r
    keep = s > s[0] * 1e-14
    s, inner, vt = s[keep], inner[keep], vt[keep]
    step = np.zeros(len(theta))
    step[live] = -(vt.T @ (inner / s)) / scale[live]
    reach = 0.1 * np.linalg.norm(scale * theta)

    def length(damping: float) -> float:
        return float(np.linalg.norm(s * inner / (s**2 + damping)))

    damping = 0.0
    if length(0.0) > reach > 0:
        low, high = 1e-40, 1e10
        for _ in range(200):
            damping = np.sqrt(low * high)
            low, high = (damping, high) if length(damping) > reach else (low, damping)
    x = s * inner / (s**2 + damping)
    gain = 0.5 * float(inner @ inner - np.sum((inner - s * x) ** 2))
    best = np.zeros(len(theta))
    best[live] = -(vt.T @ x) / scale[live]
    return gain, best, step


def _over_rounding(fit: Fit, theta: np.ndarray, residuals: np.ndarray) -> float:
    """Norm of the residuals in units of what the last bit of the parameters does to them."""
    noise = 0.0
    for seed in range(3):
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], theta.shape)
        with np.errstate(all="ignore"):
            noise = max(noise, float(np.linalg.norm(fit.residuals(theta * (1 + EPS * signs)) - residuals)))
    size = float(np.linalg.norm(residuals))
    return size / noise if noise > 0 else (np.inf if size > 0 else 0.0)


# -- solvers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What a solver claims. ``error`` is the exception that it raised, if any."""

    x: np.ndarray | None
    cost: float
    success: bool
    seconds: float
    message: str = ""
    error: BaseException | None = None
    result: Any = field(default=None, repr=False)


def timed(call: Callable[[], Any]) -> Outcome:
    began = time.perf_counter()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # overflow in a user's exp at a wild trial point is no news here
            result = call()
    except Exception as error:
        return Outcome(None, np.nan, False, time.perf_counter() - began, str(error), error)
    seconds = time.perf_counter() - began
    return Outcome(
        np.asarray(result.x), float(result.cost), bool(result.success), seconds, str(result.message), None, result
    )


def _flat(fit: Fit) -> dict[str, Any]:
    p = fit.residuals(fit.x0).shape[1]
    jac: Any = "2-point"
    if fit.jac is not None:

        def jac(t):
            return np.asarray(fit.jac(t, *fit.data)).reshape(fit.n * p, -1)

    return {"fun": lambda t: fit.residuals(t).ravel(), "x0": fit.x0, "jac": jac}


def scipy_lm(fit: Fit, **options: Any) -> Outcome:
    return timed(lambda: scipy.optimize.least_squares(**_flat(fit), method="lm", **options))


def scipy_trf(fit: Fit, **options: Any) -> Outcome:
    options = {"x_scale": "jac", **options}
    return timed(
        lambda: scipy.optimize.least_squares(
            **_flat(fit), method="trf", loss=fit.loss, f_scale=fit.f_scale, bounds=fit.bounds, **options
        )
    )


def problm(fit: Fit, **options: Any) -> Outcome:
    import problm as package

    return timed(
        lambda: package.least_squares(
            fit.fun,
            fit.x0,
            data=fit.data,
            jac=fit.jac if fit.jac is not None else "2-point",
            loss=fit.loss,
            f_scale=fit.f_scale,
            bounds=fit.bounds,
            **options,
        )
    )


def violations(fit: Fit, outcome: Outcome) -> list[str]:
    """Broken promises: empty for an honest outcome, successful or not."""
    if outcome.error is not None:
        return [f"crash: {type(outcome.error).__name__}: {outcome.error}"]
    found = []
    start, end = fit.cost(fit.x0), fit.cost(outcome.x)
    if not np.isfinite(outcome.x).all() or not np.isfinite(end):
        if outcome.success:
            found.append(f"not finite as success: x = {outcome.x}, cost = {end}")
        elif np.isfinite(start):
            found.append(f"not finite: x = {outcome.x}, cost = {end}")
        return found
    lower, upper = fit.bounds
    if np.any(outcome.x < lower) or np.any(outcome.x > upper):
        found.append("outside the bounds")
    # Cost may only rise by what rounding does to a sum of squares.
    slack = 1e-10 * start + (100 * EPS) ** 2 * _size(fit)
    if end > start + slack:
        found.append(f"cost above the start's: {end:.17g} > {start:.17g}")
    if outcome.success:
        if abs(outcome.cost - end) > 1e-8 * end + slack:
            found.append(f"cost misreported: {outcome.cost:.17g}, truly {end:.17g}")
        seen = certificate(fit, outcome.x)
        if not seen.agrees():
            found.append(
                f"false success: gain {seen.gain:.1e}, step {seen.step:.1e}, rounding {seen.rounding:.1e} "
                f"({outcome.message})"
            )
    return found


def _size(fit: Fit) -> float:
    return float(sum(np.sum(np.abs(np.asarray(a, dtype=float)) ** 2) for a in fit.data))


# -- problems -----------------------------------------------------------------------------------------------------


def exponential(n: int = 2000, seed: int = 0, noise: float = 0.1) -> Fit:
    """Exponential decay with an offset."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 5, n)
    y = 2.0 * np.exp(-0.7 * x) + 0.3 + noise * rng.standard_normal(n)

    def fun(t, x, y):
        return t[0] * np.exp(-t[1] * x) + t[2] - y

    def jac(t, x, y):
        e = np.exp(-t[1] * x)
        return np.stack([e, -t[0] * x * e, np.ones_like(x)], axis=-1)

    return Fit("exponential", fun, np.array([1.0, 1.5, 0.0]), (x, y), jac, scale=noise)


def two_gaussians(n: int = 3000, seed: int = 0, noise: float = 0.2) -> Fit:
    """Two Gaussian peaks on a line."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-5, 5, n))  # sorted, as most files are
    truth = np.array([3.0, -1.5, 0.6, 2.0, 1.2, 0.9, 0.5, 0.1])

    def fun(t, x, y):
        return (
            t[0] * np.exp(-0.5 * ((x - t[1]) / t[2]) ** 2)
            + t[3] * np.exp(-0.5 * ((x - t[4]) / t[5]) ** 2)
            + t[6]
            + t[7] * x
            - y
        )

    y = fun(truth, x, 0.0) + noise * rng.standard_normal(n)
    start = np.array([2.0, -2.0, 1.0, 2.5, 1.5, 1.0, 0.0, 0.0])
    return Fit("two Gaussians", fun, start, (x, y), scale=noise)


def damped_sine(n: int = 2000, seed: int = 0, noise: float = 0.1) -> Fit:
    """Damped oscillation with heavy-tailed (t, 3 degrees of freedom) noise."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 10, n)

    def fun(t, x, y):
        return t[0] * np.exp(-t[1] * x) * np.sin(t[2] * x + t[3]) - y

    y = fun(np.array([2.0, 0.2, 2.0, 0.3]), x, 0.0) + noise * rng.standard_t(3, n)
    return Fit("damped sine", fun, np.array([1.0, 0.1, 1.9, 0.0]), (x, y), scale=noise)


def circle(n: int = 1500, seed: int = 0, noise: float = 0.05) -> Fit:
    """Geometric distance to a circle, points on an arc."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2.0, n)
    x, y = 1.0 + 3.0 * np.cos(angle), -2.0 + 3.0 * np.sin(angle)
    x, y = x + noise * rng.standard_normal(n), y + noise * rng.standard_normal(n)

    def fun(t, x, y):
        return np.sqrt((x - t[0]) ** 2 + (y - t[1]) ** 2) - t[2]

    return Fit("circle", fun, np.array([0.0, 0.0, 1.0]), (x, y), scale=noise)


def similarity(n: int = 1200, seed: int = 0, noise: float = 0.02) -> Fit:
    """Plane similarity between point sets: blocks of two residuals, 2-D data columns."""
    rng = np.random.default_rng(seed)
    a = rng.uniform(-1, 1, (n, 2))

    def fun(t, a, b):
        c, s = np.exp(t[0]) * np.cos(t[1]), np.exp(t[0]) * np.sin(t[1])
        x = c * a[:, 0] - s * a[:, 1] + t[2]
        y = s * a[:, 0] + c * a[:, 1] + t[3]
        return np.stack([x - b[:, 0], y - b[:, 1]], axis=1)

    b = fun(np.array([0.3, 0.8, 0.5, -1.0]), a, np.zeros_like(a)) + noise * rng.standard_normal((n, 2))
    return Fit("similarity", fun, np.zeros(4), (a, b), scale=noise)


def line(n: int = 1000, seed: int = 0) -> Fit:
    """A straight line in float32, with an integer predictor: solved by one step."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 100, n).astype(np.int32)
    y = (0.5 * x - 3.0 + rng.standard_normal(n)).astype(np.float32)
    return Fit("line", lambda t, x, y: t[0] * x + t[1] - y, np.zeros(2), (x, y), scale=1.0)


def logistic(n: int = 2500, seed: int = 0, noise: float = 0.03) -> Fit:
    """Growth curve."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-4, 8, n)

    def fun(t, x, y):
        return t[0] / (1 + np.exp(-(x - t[1]) * t[2])) - y

    y = fun(np.array([5.0, 1.5, 1.3]), x, 0.0) + noise * rng.standard_normal(n)
    return Fit("logistic", fun, np.array([3.0, 0.0, 0.8]), (x, y), scale=noise)


ZOO: dict[str, Callable[[], Fit]] = {
    f.__name__: f for f in (exponential, two_gaussians, damped_sine, circle, similarity, line, logistic)
}


def with_outliers(fit: Fit, share: float = 0.15, seed: int = 5) -> Fit:
    """The same problem with some rows of the last column spoilt by tens of the noise."""
    from dataclasses import replace

    rng = np.random.default_rng(seed)
    last = fit.data[-1].copy()
    bad = rng.random(fit.n) < share
    shift = fit.scale * rng.uniform(20, 60, last.shape) * rng.choice([-1, 1], last.shape)
    last[bad] += shift[bad].astype(last.dtype)
    return replace(fit, data=(*fit.data[:-1], last))
