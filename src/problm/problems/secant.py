r"""Curvature that Gauss-Newton does not see, learned from the gradients of successive steps.

If residuals are large at the minimum (parallax, occlusion, noise in the gradients of the images), the Gauss-Newton
matrix H overestimates the curvature of the cost, several times in some directions, and Gauss-Newton converges slowly.
The true Hessian is ``H + S`` with ``S = sum r d2r``. S is learned by symmetric rank-one updates (as in structured
quasi-Newton methods): after a step s that changed the gradient by y, it must satisfy ``(H + S) s = y``,

    q = y - (H + S) s,      S <- S + q q^T / (q^T s) .

The solver gets ``H + S`` with its eigenvalues relative to H kept within [floor, cap], so it stays positive definite and
damping still works; a rejected step halves S. The gradient, and with it descent, minima and certificate, is not
affected, and the remaining decrease is estimated better. S is only updated by steps over *all* residuals: on a batch
the curvature of the noise is larger than that of the cost. If trials are linearised as well (``fused``,
`problm.solver.batch`), a rejected trial does not update S: what was learned belongs to its end point.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..linalg.corrected import corrected
from ..linalg.lapack import dposv
from ..linalg.normal import Normal
from ..solver.problem import Problem, Theta, Wrapper

Array = NDArray[np.float64]


class _Known(NamedTuple):
    """Results of a linearisation over all residuals."""

    theta: Theta
    gradient: Array
    gauss_newton: Array
    """(d, d) H, uncorrected."""
    correction: Array | None
    """(d, d) S, or None if nothing has been learned."""


class SecantProblem(Wrapper):
    """A problem whose Gauss-Newton matrix over all residuals is corrected by curvature learned from steps.

    Parameters
    ----------
    inner : the problem.
    floor, cap : limits of the eigenvalues of ``H + S`` relative to H.
    learned : (d, d) S per residual block that a sample of the residuals has taught; None: nothing is known.
    """

    def __init__(self, inner: Problem, floor: float = 0.05, cap: float = 2.0, learned: Array | None = None) -> None:
        super().__init__(inner)
        self.learns = True  # no extrapolation in addition: the pair ``head`` took 66 iterations instead of 39
        self._floor, self._cap = floor, cap
        self._base: _Known | None = None  # the point that steps are tried from
        self._latest: _Known | None = None  # the last linearised point, which the solver may have rejected
        self._step: tuple[Theta, Array] | None = None
        self._tried = 0
        self._given = None if learned is None else self.n * learned

    @property
    def learned(self) -> Array | None:
        """(d, d) S per residual block, for another problem of the same parameters; None: nothing was learned."""
        known = self._latest or self._base
        return None if known is None or known.correction is None else known.correction / self.n

    def gauss_newton(self, theta: Theta) -> Array | None:
        """(d, d) uncorrected Gauss-Newton matrix over all residuals at the point where a solve ended."""
        for known in (self._latest, self._base):
            if known is not None and known.theta is theta:
                return known.gauss_newton
        return None

    def retract(self, theta: Theta, delta: Array) -> Theta:
        if self._latest is not None and self._latest.theta is theta:
            self._base, self._latest, self._tried = self._latest, None, 0
        moved = self.inner.retract(theta, delta)
        self._step = (moved, delta) if self._base is not None and self._base.theta is theta else None
        self._tried += 1
        return moved

    def linearize(self, theta: Theta, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal:
        normal = self.inner.linearize(theta, lo, hi, outer=outer, costs=costs)
        if lo != 0 or hi != self.n:
            return normal
        correction = self._given if self._base is None else self._base.correction
        if correction is not None and self._tried > 1:
            # A rejected step shows that the correction was too large.
            correction = correction * 0.5 ** (self._tried - 1)
        if self._base is not None and self._step is not None and self._step[0] is theta:
            correction = _learned(correction, self._step[1], normal.gradient - self._base.gradient, normal.hessian)
        self._latest = _Known(theta, normal.gradient, normal.hessian, correction)
        hessian = normal.hessian
        if correction is not None:
            hessian = corrected(hessian, correction, self._floor, self._cap)
        return Normal(normal.count, normal.cost, normal.gradient, hessian, normal.outer, None, normal.compiled)


def _learned(correction: Array | None, step: Array, change: Array, hessian: Array) -> Array | None:
    """S after a step that changed the gradient; unchanged if the step is not informative."""
    moved = hessian @ step
    q = change - moved
    if correction is not None:
        q -= correction @ step
    curvature, size = float(q.dot(step)), float(step.dot(moved))
    # The usual safeguard of the update, in the metric of H: skip it if q is nearly orthogonal to the step.
    _, solved, info = dposv(hessian, q)
    length = float(q.dot(solved)) if info == 0 else 0.0
    if not (length > 0.0 and abs(curvature) > 1e-6 * (length * size) ** 0.5):
        return correction
    update = q[:, None] * (q / curvature)
    return update if correction is None else correction + update
