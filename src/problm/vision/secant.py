r"""Curvature that Gauss-Newton does not see, learned from the gradients of successive steps.

Where residuals are large at the minimum (parallax, occlusion, noise in the gradients of the images) the Gauss-Newton
matrix H overestimates the curvature of the cost, several times in some directions, and Gauss-Newton converges slowly.
The true Hessian is ``H + S`` with ``S = sum r d2r``; S is learned by symmetric rank-one updates (as in structured
quasi-Newton methods): after a step s that changed the gradient by y, ``(H + S) s = y`` is required of it,

    q = y - (H + S) s,      S <- S + q q^T / (q^T s) .

What is handed to the solver is ``H + S`` with its eigenvalues relative to H kept within [floor, cap], so it stays
positive definite and the damping still rules; a refused step halves S. The gradient is untouched: so are descent,
minima and certificate, and the decrease that remains is estimated better. Only steps over *all* residuals teach: on a
batch the curvature of the noise is larger than that of the cost.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..normal import Normal
from ..problem import Problem, Theta

Array = NDArray[np.float64]


class SecantProblem:
    """A problem whose Gauss-Newton matrix over all residuals is corrected by what its steps have shown."""

    def __init__(self, inner: Problem, floor: float = 0.05, cap: float = 2.0) -> None:
        self.inner = inner
        self.n, self.dim, self.cost_bound = inner.n, inner.dim, inner.cost_bound
        self._floor, self._cap = floor, cap
        self._correction = np.zeros((inner.dim, inner.dim))
        self._last: tuple[Theta, Array] | None = None
        self._step: tuple[Theta, Theta, Array] | None = None
        self._tried = 0
        self.gauss_newton: Array | None = None
        """(d, d) the last Gauss-Newton matrix over all residuals, uncorrected."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def retract(self, theta: Theta, delta: Array) -> Theta:
        moved = self.inner.retract(theta, delta)
        self._step = (theta, moved, delta)
        self._tried += 1
        return moved

    def costs(self, theta: Theta, lo: int, hi: int) -> Array:
        return self.inner.costs(theta, lo, hi)

    def cost(self, theta: Theta) -> float:
        return self.inner.cost(theta)

    def linearize(self, theta: Theta, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal:
        normal = self.inner.linearize(theta, lo, hi, outer=outer, costs=costs)
        if lo != 0 or hi != self.n:
            return normal
        self.gauss_newton = normal.hessian
        # Every step that was refused says that the correction went too far.
        self._correction *= 0.5 ** max(self._tried - 1, 0)
        self._tried = 0
        if self._last is not None and self._step is not None:
            before, after, step = self._step
            if after is theta and before is self._last[0]:
                self._learn(step, normal.gradient - self._last[1], normal.hessian)
        self._last = (theta, normal.gradient)
        return Normal(normal.count, normal.cost, normal.gradient, self._corrected(normal.hessian), normal.outer)

    def _learn(self, step: Array, change: Array, hessian: Array) -> None:
        q = change - (hessian + self._correction) @ step
        curvature = float(q @ step)
        size = float(step @ hessian @ step)
        # The usual safeguard of the update, in the metric of H: q nearly orthogonal to the step teaches nothing.
        try:
            length = float(q @ np.linalg.solve(hessian, q))
        except np.linalg.LinAlgError:
            return
        if length > 0.0 and abs(curvature) > 1e-6 * np.sqrt(length * size):
            self._correction = self._correction + np.outer(q, q) / curvature

    def _corrected(self, hessian: Array) -> Array:
        if not self._correction.any():
            return hessian
        try:
            root = np.linalg.cholesky(hessian)
            inverse = np.linalg.inv(root)
            values, vectors = np.linalg.eigh(inverse @ self._correction @ inverse.T)
        except np.linalg.LinAlgError:
            return hessian
        basis = root @ vectors
        corrected: Array = (basis * np.clip(1.0 + values, self._floor, self._cap)) @ basis.T
        return corrected
