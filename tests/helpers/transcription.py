"""Algorithms 1 and 2 of the paper, transcribed line by line in plain NumPy, as slowly as they read.

Nothing of `problm` is used. The costs are the paper's: ``f = ||r||^2``, or the robust ``psi(||r||)``. Deviations from
the print are those without which it does not run (numbers of the errata page): the transposed Jacobian (1) and the sign
of the step (2), the sum in Algorithm 2's failure test (8), the unclamped sum in Algorithm 1's (9), no test at K = N
(10), a converged sample grows to N (11), means instead of sums, so that lambda keeps its meaning (16). Eq. 18 is
corrected (5) or as printed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Trace(NamedTuple):
    """What an iteration did, and the state after it."""

    decision: str
    size: int
    damping: float
    theta: np.ndarray


@dataclass
class Transcript:
    """A problem in the paper's notation, and the parameters of its algorithms."""

    residuals: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """``(theta, rows) -> r``, (K, p)."""
    jacobian: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """``(theta, rows) -> J``, (K, p, d)."""
    order: np.ndarray
    """The random permutation of the rows."""
    first: int
    tolerance: float
    """Cosine between residuals and tangent space at convergence."""
    tau: float | None = None
    """Inlier threshold of Eq. 22; None: plain least squares."""
    delta: float = 0.1
    alpha: float = 0.9
    eta: float = 0.5
    constant: float | None = None
    """L of the Lipschitz (Hoelder) bound; None: Eq. 14, or the bound of the kernel."""
    exponent: float = 1.0
    labels: np.ndarray | None = None
    group_bounds: Mapping[int, tuple[float, float]] | None = None
    printed: bool = False

    def f(self, theta: np.ndarray, rows: np.ndarray) -> np.ndarray:
        squares = (self.residuals(theta, rows) ** 2).sum(axis=1)
        if self.tau is None:
            return squares
        return self.tau**2 / 4 * (1 - np.maximum(0, 1 - squares / self.tau**2) ** 2)

    def gradient_and_hessian(self, theta: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        r, jac = self.residuals(theta, rows), self.jacobian(theta, rows)
        g, h = np.zeros(len(theta)), np.zeros((len(theta), len(theta)))
        for i in range(len(rows)):
            weight = 1.0 if self.tau is None else max(0.0, 1 - r[i] @ r[i] / self.tau**2)
            g += weight * jac[i].T @ r[i]
            h += weight * jac[i].T @ jac[i]
        return g / len(rows), h / len(rows)

    def bounds(self, changes: np.ndarray, distance: float) -> float:
        if self.constant is not None:
            return self.constant * distance**self.exponent
        return np.abs(changes).max() if self.tau is None else self.tau**2 / 4

    def test(self, changes: np.ndarray, rows: np.ndarray, distance: float) -> tuple[bool, int]:
        """Whether Eq. 13 (or 18) holds for any a, and K+ of Eq. 16 for the a that comes nearest to it."""
        k, n = len(rows), len(self.order)
        log = -math.log(self.delta)
        if self.labels is not None:
            total, squares = 0.0, 0.0
            for i, y in zip(rows, changes, strict=True):
                a, b = self.group_bounds[self.labels[i]]
                total += max(a, y)
                squares += (b - a) ** 2
            enough = total <= -math.sqrt(squares * log / 2) / (1 - self.alpha)
            grown = k * squares * log / (2 * total**2 * (1 - self.alpha) ** 2) if total < 0 else n
            return enough, min(n, math.ceil(grown))
        b = self.bounds(changes, distance)
        best, size = -math.inf, n
        for a in changes[changes < 0]:
            total = np.maximum(a, changes).sum()
            width = (1 / (b - a)) if self.printed else (b - a)
            share = -total / width
            if share > best:
                best = share
                if total < 0:
                    size = math.ceil(k**2 * (b - a) ** 2 * log / (2 * total**2 * (1 - self.alpha) ** 2))
        factor = 1 - self.alpha if self.printed else 1 / (1 - self.alpha)
        # "K+ > K" (section 4.3), which Eq. 16 does not ensure where Eq. 18 as printed fails.
        return best >= factor * math.sqrt(k * log / 2), min(n, max(k + 1, size))

    def converged(self, g: np.ndarray, h: np.ndarray, theta: np.ndarray, rows: np.ndarray) -> bool:
        scale = 1.0 if self.tau is None else 2.0  # psi is r^2 / 2 near zero
        return g @ np.linalg.solve(h, g) <= self.tolerance**2 * scale * self.f(theta, rows).mean()


def algorithm_1(p: Transcript, theta: np.ndarray, damping: float = 1e-3, most: int = 1000) -> list[Trace]:
    """Stochastic Levenberg-Marquardt."""
    n, k, trace = len(p.order), p.first, []
    while len(trace) < most:
        rows = p.order[:k]
        g, h = p.gradient_and_hessian(theta, rows)
        if p.converged(g, h, theta, rows):
            if k == n:
                break
            k = n
            trace.append(Trace("grow", k, damping, theta))
            continue
        step = -np.linalg.solve(h + damping * np.eye(len(theta)), g)
        changes = p.f(theta + step, rows) - p.f(theta, rows)
        if changes.sum() >= 0:
            damping *= 10
            trace.append(Trace("reject", k, damping, theta))
            continue
        enough, larger = (True, n) if k == n else p.test(changes, rows, float(np.linalg.norm(step)))
        if enough:
            theta, damping = theta + step, damping / 10
            trace.append(Trace("accept", k, damping, theta))
        else:
            k = larger
            trace.append(Trace("undo, grow", k, damping, theta))
    return trace


def algorithm_2(p: Transcript, theta: np.ndarray, seed: int, damping: float = 1e-3, most: int = 1000) -> list[Trace]:
    """Relaxed ProBLM."""
    rng = np.random.default_rng(seed)
    n, k, trace = len(p.order), p.first, []
    start = theta  # theta at t0
    while len(trace) < most:
        rows = p.order[:k]
        g, h = p.gradient_and_hessian(theta, rows)
        if p.converged(g, h, theta, rows):
            if k == n:
                break
            k = n
            trace.append(Trace("grow", k, damping, theta))
            continue
        new = theta - np.linalg.solve(h + damping * np.eye(len(theta)), g)
        if p.f(new, rows).sum() - p.f(theta, rows).sum() >= 0:
            damping *= 10
            trace.append(Trace("reject", k, damping, theta))
            continue
        changes = p.f(new, rows) - p.f(start, rows)
        enough, larger = (True, n) if k == n else p.test(changes, rows, float(np.linalg.norm(new - start)))
        coin = rng.random()
        if enough or coin <= p.eta:
            theta, damping = new, damping / 10
            trace.append(Trace("accept", k, damping, theta))
        else:
            k, start = larger, theta
            trace.append(Trace("undo, grow", k, damping, theta))
    return trace
