r"""Compiled work on many candidate models at once: make them, score them, walk them downhill a little.

Robust estimation looks at thousands of models, each for microseconds, so this part is compiled and knows
nothing of Python. `robust` decides what is done with it.

`hypothesize`
    models from minimal samples (`minimal`).
`score`
    mean of the truncated squared error over a batch of matches, for each model. In float32, eight matches at a
    time: the error of a match is off by about 1e-4 pixels then.
`descend`
    a fixed number of damped Gauss-Newton steps with the smooth truncated loss, level by level, for each of many
    starts, on the same small batch. This is the one place beside `problm.solver` where steps are taken, and it is
    not a second solver: no stopping rule, no batch, no certificate. It exists because a start that must be looked
    at for 100 microseconds cannot pay for the loop's Python (about 25 us an iteration); the answer that comes out
    at the end always comes from `problm.solver.solve`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..fills import FASTMATH
from ..jit import njit
from ..manifolds import compiled, move_essential, move_fundamental, multiply, walk_sphere
from ..passes import linearize_chunk
from .minimal import five_point, four_point, seven_point
from .two_view_kernels import encode_essential, encode_fundamental, encode_homography

ESSENTIAL, FUNDAMENTAL, HOMOGRAPHY = 0, 1, 2
SMOOTH_TRUNCATED = 8  # its code in the kernels


@compiled
def hypothesize(kind, x, samples, A1, B2, models, pixel):  # type: ignore[no-untyped-def]
    """Solve every sample; returns the number of models found.

    ``x`` (n, 4) matches in the model's coordinates; ``samples`` (S, k) their rows; ``models`` (., 9) takes the
    solutions and ``pixel`` (., 9) float32 the same folded into the coordinates of the matches: A2' E A1, where
    ``B2`` is A2' for E and F, and the inverse of A2 for H.
    """
    k = samples.shape[1]
    sample = np.empty((k, 4))
    found = np.empty((10, 9))
    count = 0
    for s in range(samples.shape[0]):
        distinct = True
        for i in range(k):
            for j in range(i):
                distinct = distinct and samples[s, i] != samples[s, j]
            for c in range(4):
                sample[i, c] = x[samples[s, i], c]
        if not distinct:
            continue
        if kind == ESSENTIAL:
            here = five_point(sample, found)
        elif kind == FUNDAMENTAL:
            here = seven_point(sample, found)
        else:
            here = four_point(sample, found)
        for h in range(here):
            models[count] = found[h]
            to_pixels(found[h], A1, B2, pixel[count])
            count += 1
    return count


@compiled
def to_pixels(model, A1, B2, pixel):  # type: ignore[no-untyped-def]
    """``B2 X A1`` as float32 with unit norm, which keeps the scores' intermediate values in range."""
    F = multiply(B2, multiply(model.reshape(3, 3), A1)).reshape(9)
    norm = 0.0
    for j in range(9):
        norm += F[j] * F[j]
    norm = 1.0 / np.sqrt(norm) if norm > 0.0 else 0.0
    for j in range(9):
        pixel[j] = np.float32(F[j] * norm)


def _fast(function: Callable[..., Any]) -> Any:
    return njit(nogil=True, error_model="numpy", fastmath=FASTMATH)(function)


@_fast
def score(kind, pixel, columns, lo, hi, threshold, out):  # type: ignore[no-untyped-def]
    """Add to ``out[k]`` the truncated errors min(r^2 / threshold^2, 1) of model k over matches [lo, hi).

    ``pixel`` (m, 9) and ``columns`` (4, n) are float32, in the coordinates of the matches. The error of a
    homography is the transfer error into the second image.
    """
    one = np.float32(1.0)
    scale = np.float32(1.0 / (threshold * threshold))
    for k in range(pixel.shape[0]):
        f0, f1, f2, f3, f4 = pixel[k, 0], pixel[k, 1], pixel[k, 2], pixel[k, 3], pixel[k, 4]
        f5, f6, f7, f8 = pixel[k, 5], pixel[k, 6], pixel[k, 7], pixel[k, 8]
        total = np.float32(0.0)
        if kind == HOMOGRAPHY:
            for i in range(lo, hi):
                a, b, c, d = columns[0, i], columns[1, i], columns[2, i], columns[3, i]
                w = one / (f6 * a + f7 * b + f8)
                u, v = (f0 * a + f1 * b + f2) * w - c, (f3 * a + f4 * b + f5) * w - d
                z = (u * u + v * v) * scale
                total += z if z < one else one
        else:
            for i in range(lo, hi):
                a, b, c, d = columns[0, i], columns[1, i], columns[2, i], columns[3, i]
                l0, l1, l2 = f0 * a + f1 * b + f2, f3 * a + f4 * b + f5, f6 * a + f7 * b + f8
                m0, m1 = f0 * c + f3 * d + f6, f1 * c + f4 * d + f7
                e = c * l0 + d * l1 + l2
                z = e * e * scale / (l0 * l0 + l1 * l1 + m0 * m0 + m1 * m1)
                total += z if z < one else one
        out[k] += total


@compiled
def _encode(kind, theta, A1, B2):  # type: ignore[no-untyped-def]
    if kind == ESSENTIAL:
        return encode_essential(theta, A1, B2.T)
    if kind == FUNDAMENTAL:
        return encode_fundamental(theta, A1, B2.T)
    return encode_homography(theta, A1, B2)


@compiled
def _move(kind, theta, delta):  # type: ignore[no-untyped-def]
    if kind == ESSENTIAL:
        return move_essential(theta, delta)
    if kind == FUNDAMENTAL:
        return move_fundamental(theta, delta)
    return walk_sphere(theta, delta)


@compiled
def _damped_step(sums, d, damping, L, step):  # type: ignore[no-untyped-def]
    """Solve (H + damping diag H) step = -g for the packed sums of a linearisation; False where it cannot be."""
    largest = 0.0
    for i in range(d):
        largest = max(largest, sums[1 + d + i * (i + 1) // 2 + i])
    for i in range(d):
        at = 1 + d + i * (i + 1) // 2
        for j in range(i + 1):
            v = sums[at + j]
            if i == j:
                v += damping * v + 1e-12 * largest
            for k in range(j):
                v -= L[i, k] * L[j, k]
            if i == j:
                if not v > 0.0:
                    return False
                L[i, i] = np.sqrt(v)
            else:
                L[i, j] = v / L[j, j]
    for i in range(d):
        v = -sums[1 + i]
        for k in range(i):
            v -= L[i, k] * step[k]
        step[i] = v / L[i, i]
    for i in range(d - 1, -1, -1):
        v = step[i]
        for k in range(i + 1, d):
            v -= L[k, i] * step[k]
        step[i] = v / L[i, i]
    return True


@compiled
def descend(kind, fill, components, columns, m, A1, B2, starts, scales, steps, costs):  # type: ignore[no-untyped-def]
    """Move each start downhill on the first m matches: ``steps`` trial steps at each of the ``scales`` in turn.

    Parameters
    ----------
    fill, components, columns
        Address of the fill, its residuals a match, and the matches' descriptor (`problm.kernels.describe`).
    starts
        (S, q) points of the manifold, moved in place.
    scales
        Of the smooth truncated loss, (L,): the last is the one that counts.
    costs
        (S,) out: mean cost at the last scale, divided by its bound: 0 is perfect, 1 is nothing within reach.
    """
    d = 5 if kind == ESSENTIAL else (7 if kind == FUNDAMENTAL else 8)
    width = 1 + d + d * (d + 1) // 2
    sums, trial = np.empty(width), np.empty(width)
    L, step = np.empty((d, d)), np.empty(d)
    no_int, no_float = np.empty(0, dtype=np.int64), np.empty(0)
    for s in range(starts.shape[0]):
        theta = starts[s].copy()
        cost = 0.0
        for level in range(scales.shape[0]):
            damping = 1e-3
            scale = scales[level]
            sums[:] = 0.0
            point = _encode(kind, theta, A1, B2)
            linearize_chunk(
                fill, point, columns, 0, m, no_int, no_float, d, components, SMOOTH_TRUNCATED, 0, scale,
                0, no_float, sums,
            )  # fmt: skip
            for _ in range(steps):
                if not _damped_step(sums, d, damping, L, step):
                    break
                moved = _move(kind, theta, step)
                trial[:] = 0.0
                point = _encode(kind, moved, A1, B2)
                linearize_chunk(
                    fill, point, columns, 0, m, no_int, no_float, d, components, SMOOTH_TRUNCATED, 0, scale,
                    0, no_float, trial,
                )  # fmt: skip
                if trial[0] < sums[0]:
                    theta = moved
                    done = sums[0] - trial[0] < 1e-5 * sums[0]
                    sums, trial = trial, sums
                    damping *= 0.1
                    if done:
                        break
                else:
                    damping = max(10.0 * damping, 1e-2)
            cost = sums[0] / (m * 0.25 * scale * scale)
        starts[s] = theta
        costs[s] = cost
