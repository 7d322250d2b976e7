"""Sums over the memberships of matches, and the step that they ask for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....jit import types
from ....linalg.cholesky_compiled import cholesky
from ....manifolds import compiled
from ..depths import BINS

_f8 = types.float64

Array = NDArray[np.float64]

TAIL, IN_TAIL = 2.5, 0.1
"""Standard deviation of the wider part of the noise, relative to the narrower, and its share."""
_NEWTON = 0.1  # squared standard errors of a step of EM, below which Newton's metric is used
_SWEEPS = 8  # of Jacobi's rotations; four are usual
_SAFE = 0.2  # least curvature, relative to that without memberships: steps are at most five times as long


class Sums:
    """Sums over memberships: a histogram of depths, J'WJ, what memberships take away from it, J'Wr, and numbers."""

    def __init__(self, d: int) -> None:
        self.arrays = np.zeros(BINS), np.zeros((d, d)), np.zeros((d, d)), np.zeros(d), np.zeros(3)

    @property
    def gain(self) -> float:
        """Logarithm of the likelihood."""
        return float(self.arrays[4][0])

    @property
    def members(self) -> float:
        """Number of right matches."""
        return float(self.arrays[4][1])

    @property
    def squares(self) -> float:
        """Squared errors, of the narrow part's noise."""
        return float(self.arrays[4][2])


@compiled(
    types.void(
        _f8[:, ::1], _f8[::1], _f8, _f8[::1], _f8[::1], _f8[::1], _f8[:, ::1], _f8[:, ::1], _f8[::1], _f8[::1]
    )
)  # fmt: skip
def expect(values, place, front, state, g, histogram, A, C, v, sums):  # type: ignore[no-untyped-def]
    """Memberships of matches, and the sums that they weight.

    Parameters
    ----------
    values : (n, 1 + d) residuals and derivatives.
    place : (n,) depths on the scale of chance, -1 behind a camera.
    front : share of re-paired matches in front.
    state : standard deviation of the narrow part, share of right matches, density by chance.
    g : (bins,) density of the depths.
    histogram, A, C, v, sums : see `Sums`; added to.
    """
    n, d, bins = values.shape[0], v.shape[0], g.shape[0]
    sigma, right = state[0], state[1] / ((1.0 - state[1]) * state[2])
    precise, wide = 1.0 / (sigma * sigma), 1.0 / (TAIL * TAIL * sigma * sigma)
    height = right * np.sqrt(precise / (2.0 * np.pi)) / front
    first, second = (1.0 - IN_TAIL) * height, IN_TAIL * height / TAIL
    for i in range(n):
        r = values[i, 0]
        if place[i] < 0.0 or r * r * wide > 60.0:
            continue
        at = min(max(place[i] * bins - 0.5, 0.0), bins - 1.000001)
        left = int(at)
        share = at - left
        here = (1.0 - share) * g[left] + share * g[left + 1]
        a, b = first * here * np.exp(-0.5 * r * r * precise), second * here * np.exp(-0.5 * r * r * wide)
        every = 1.0 + a + b
        sums[0] += np.log(1.0 + (a + b) * front * min(1.0, 1.0 / here))
        a, b = a / every, b / every
        sums[1] += a + b
        sums[2] += r * r * (a + b / (TAIL * TAIL))
        histogram[left] += (1.0 - share) * (a + b)
        histogram[left + 1] += share * (a + b)
        weight = a * precise + b * wide
        spread = (a * precise * precise + b * wide * wide - weight * weight) * r * r
        for x in range(d):
            v[x] += weight * r * values[i, 1 + x]
            for y in range(x + 1):
                product = values[i, 1 + x] * values[i, 1 + y]
                A[x, y] += weight * product
                C[x, y] += spread * product
    for x in range(d):
        for y in range(x):
            A[y, x], C[y, x] = A[x, y], C[x, y]


def step_of(A: Array, C: Array, v: Array) -> Array | None:
    """The step ``-(A - C)^-1 v``, with the eigenvalues of A - C in the metric of A from `_SAFE` to one.

    Far from the end it is ``-A^-1 v``, the step of EM, which raises the likelihood.
    """
    step = np.empty(len(v))
    return step if _solve(A, C, v, step) else None


@compiled(types.boolean(_f8[:, ::1], _f8[:, ::1], _f8[::1], _f8[::1]))
def _solve(A, C, v, step):  # type: ignore[no-untyped-def]
    d = len(v)
    factor, half = np.zeros((d, d)), np.zeros((d, d))
    if cholesky(A, factor) == 0.0:
        return False
    for b in range(d):  # the inverse of the factor
        for a in range(b, d):
            total = 1.0 if a == b else 0.0
            for k in range(b, a):
                total -= factor[a, k] * half[k, b]
            half[a, b] = total / factor[a, a]
    pull, length = np.zeros(d), 0.0
    for a in range(d):
        for b in range(a + 1):
            pull[a] += half[a, b] * v[b]
        length += pull[a] ** 2
    if length < _NEWTON * d:
        part, lost, axes = np.zeros((d, d)), np.zeros((d, d)), np.eye(d)
        for a in range(d):
            for b in range(d):
                for k in range(a + 1):
                    part[a, b] += half[a, k] * C[k, b]
        for a in range(d):
            for b in range(d):
                for k in range(b + 1):
                    lost[a, b] += part[a, k] * half[b, k]
        _diagonalise(lost, axes)
        along = np.zeros(d)
        for a in range(d):
            for b in range(d):
                along[a] += axes[b, a] * pull[b]
            along[a] /= min(max(1.0 - lost[a, a], _SAFE), 1.0)
        for a in range(d):
            pull[a] = 0.0
            for b in range(d):
                pull[a] += axes[a, b] * along[b]
    for a in range(d):
        step[a] = 0.0
        for b in range(a, d):
            step[a] -= half[b, a] * pull[b]
    return True


@compiled(types.void(_f8[:, ::1], _f8[:, ::1]))
def _diagonalise(M, axes):  # type: ignore[no-untyped-def]
    """Turn a symmetric matrix to a diagonal one by Jacobi's rotations, and the axes (d, d) with it."""
    d = len(M)
    for _ in range(_SWEEPS):
        rest = 0.0
        for p in range(d):
            for q in range(p):
                rest = max(rest, abs(M[p, q]))
                if M[p, q] == 0.0:
                    continue
                ratio = (M[q, q] - M[p, p]) / (2.0 * M[p, q])
                t = (1.0 if ratio >= 0.0 else -1.0) / (abs(ratio) + np.sqrt(ratio * ratio + 1.0))
                c = 1.0 / np.sqrt(t * t + 1.0)
                s = t * c
                for k in range(d):
                    M[k, p], M[k, q] = c * M[k, p] - s * M[k, q], s * M[k, p] + c * M[k, q]
                    axes[k, p], axes[k, q] = c * axes[k, p] - s * axes[k, q], s * axes[k, p] + c * axes[k, q]
                for k in range(d):
                    M[p, k], M[q, k] = c * M[p, k] - s * M[q, k], s * M[p, k] + c * M[q, k]
        if rest < 1e-14:
            break


def log_volume(A: Array, C: Array) -> float:
    """Logarithm of the determinant of A - C, with its eigenvalues in the metric of A as in `step_of`."""
    try:
        half = np.linalg.inv(np.linalg.cholesky(A))
    except np.linalg.LinAlgError:
        return np.inf
    lost = np.linalg.eigvalsh(half @ C @ half.T)
    return float(np.log(np.clip(1.0 - lost, _SAFE, 1.0)).sum() - 2.0 * np.log(np.diag(half)).sum())
