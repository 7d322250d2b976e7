r"""Compiled work on many candidate models at once: generation, scoring, and a few descent steps.

Robust estimation examines thousands of models for microseconds each, so this part is compiled without Python objects.
`robust` controls it.

`hypothesize`, `random_points`
    models from minimal samples (`minimal`), and random ones.
`score`
    mean of the truncated squared error over a batch of matches, for each model. In float32, eight matches at a time:
    the error of a match is then accurate to about 1e-4 pixels.
`descend`
    a fixed number of damped Gauss-Newton steps with the smooth truncated loss, level by level, for each of many starts,
    on the same small batch. This is the only place besides `problm.solver.loop` where steps are taken, but it is not a
    second solver: it has no stopping rule, no batch and no certificate. A start that is examined for 100 microseconds
    cannot afford the Python of the loop (about 25 us per iteration). The final answer always comes from
    `problm.solver.loop.solve`.

What differs between E, F and H (minimal solver, encoder, retraction) is called through its address, so only what is
used is compiled, and only once: direct calls would be optimised again in every calling function.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...jit import types
from ...jit.addresses import ENCODE, MOVE, address_of, call_encode, call_move, caller
from ...jit.njit import intrinsic, njit
from ...jit.types import Signature
from ...kernels.evaluator import FASTMATH
from ...kernels.passes import LINEARIZE, call_linearize, linearize_chunk, tools
from ...linalg.cholesky_compiled import cholesky, solve
from ...manifolds import compiled, internal, multiply, rotations_by, rotations_of

_f8, _i8, _f4 = types.float64, types.int64, types.float32
SOLVER = _i8(_f8[:, ::1], _f8[:, ::1])
"""``(sample (k, 4), out (., 9)) -> solutions``."""
SMOOTH_TRUNCATED = 8  # its code in the kernels


@intrinsic
def _solve_sample(typing: Any, at: Any, sample: Any, out: Any) -> Any:
    return SOLVER.return_type(_i8, *SOLVER.args), caller(SOLVER)


def addresses(encode: Any, move: Any) -> NDArray[np.int64]:
    """Addresses of what `descend` calls: encoder and retraction of a model, the pass over the rows, and its tools."""
    linearize = address_of(linearize_chunk, LINEARIZE)
    return np.array([address_of(encode, ENCODE), address_of(move, MOVE), linearize, tools(True)])


@compiled(_i8(_i8, _f8[:, ::1], _i8[:, ::1], _f8[:, ::1], _f8[:, ::1], _f8[:, ::1], _f4[:, ::1]))
def hypothesize(solver, x, samples, A1, B2, models, pixel):  # type: ignore[no-untyped-def]
    """Solve every sample; returns the number of models found.

    ``solver`` is the address of the minimal solver; ``x`` (n, 4) matches in the model's coordinates; ``samples`` (S, k)
    their rows; ``models`` (., 9) takes the solutions and ``pixel`` (., 9) float32 the same folded into the coordinates
    of the matches: A2' E A1, where ``B2`` is A2' for E and F, and the inverse of A2 for H.
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
        for h in range(_solve_sample(solver, sample, found)):
            for j in range(9):
                models[count, j] = found[h, j]
            to_pixels(found[h], A1, B2, pixel[count])
            count += 1
    return count


@compiled(types.void(_f8[::1], _f8[:, ::1], _f8[:, ::1], _f4[::1]))
def to_pixels(model, A1, B2, pixel):  # type: ignore[no-untyped-def]
    """``B2 X A1`` as float32 with unit norm, which keeps intermediate values of the scores in range."""
    F = multiply(B2, multiply(model.reshape(3, 3), A1))
    norm = 0.0
    for j in range(9):
        norm += F[j // 3, j % 3] ** 2
    norm = 1.0 / np.sqrt(norm) if norm > 0.0 else 0.0
    for j in range(9):
        pixel[j] = np.float32(F[j // 3, j % 3] * norm)


def _fast(*signature: Signature) -> Any:
    return njit(*signature, any_types=True, nogil=True, error_model="numpy", fastmath=FASTMATH)


@_fast(types.void(types.boolean, _f4[:, ::1], _f4[:, ::1], _i8, _i8, _f8, _f8, _f4[::1]))
def score(maps, pixel, columns, lo, hi, threshold, fine, out):  # type: ignore[no-untyped-def]
    """Add to ``out[k]`` the truncated errors of model k over matches [lo, hi), at two widths.

    The mean of min(r^2 / w^2, 1) for w = threshold and w = fine threshold; ``fine`` = 1 is the usual score. ``pixel``
    (m, 9) and ``columns`` (4, n) are float32, in the coordinates of the matches. The error of a model that ``maps``, a
    homography, is the transfer error into the second image.
    """
    one, half = np.float32(1.0), np.float32(0.5)
    narrow = np.float32(1.0 / (fine * fine))
    scale = np.float32(1.0 / (threshold * threshold))
    for k in range(pixel.shape[0]):
        f0, f1, f2, f3, f4 = pixel[k, 0], pixel[k, 1], pixel[k, 2], pixel[k, 3], pixel[k, 4]
        f5, f6, f7, f8 = pixel[k, 5], pixel[k, 6], pixel[k, 7], pixel[k, 8]
        total = np.float32(0.0)
        if maps:
            for i in range(lo, hi):
                a, b, c, d = columns[0, i], columns[1, i], columns[2, i], columns[3, i]
                w = one / (f6 * a + f7 * b + f8)
                u, v = (f0 * a + f1 * b + f2) * w - c, (f3 * a + f4 * b + f5) * w - d
                z = (u * u + v * v) * scale
                total += half * (min(z, one) + min(narrow * z, one))
        else:
            for i in range(lo, hi):
                a, b, c, d = columns[0, i], columns[1, i], columns[2, i], columns[3, i]
                l0, l1, l2 = f0 * a + f1 * b + f2, f3 * a + f4 * b + f5, f6 * a + f7 * b + f8
                m0, m1 = f0 * c + f3 * d + f6, f1 * c + f4 * d + f7
                e = c * l0 + d * l1 + l2
                z = e * e * scale / (l0 * l0 + l1 * l1 + m0 * m0 + m1 * m1)
                total += half * (min(z, one) + min(narrow * z, one))
        out[k] += total


@internal
def _damped_step(sums, d, damping, matrix, factor, step):  # type: ignore[no-untyped-def]
    """Solve (H + damping diag H) step = -g for the packed sums of a linearisation; False if that fails."""
    largest = 0.0
    for i in range(d):
        largest = max(largest, sums[1 + d + i * (i + 1) // 2 + i])
    for i in range(d):
        at = 1 + d + i * (i + 1) // 2
        for j in range(i + 1):
            matrix[i, j] = sums[at + j]
        matrix[i, i] += damping * matrix[i, i] + 1e-12 * largest
        step[i] = -sums[1 + i]
    if cholesky(matrix, factor) == 0.0:
        return False
    solve(factor, step, step)
    return True


@compiled(
    types.void(
        _i8[::1], _i8, _i8, _i8, _i8[:, ::1], _i8, _f8[:, ::1], _f8[:, ::1], _f8[:, ::1], _f8[::1], _i8, _f8[::1]
    )
)
def descend(calls, evaluator, d, components, columns, m, A1, A2, starts, scales, steps, costs):  # type: ignore[no-untyped-def]
    """Move each start downhill on the first m matches: ``steps`` trial steps at each of the ``scales`` in turn.

    Parameters
    ----------
    calls
        `addresses` of the model.
    evaluator, d, components, columns
        Address of the evaluator, its tangent parameters and residuals per match, and the matches' descriptor
        (`problm.kernels.kernel.describe`).
    A1, A2
        What the encoder takes of the frame.
    starts
        (S, q) points of the manifold, moved in place.
    scales
        Scales of the smooth truncated loss, (L,); the last one is final.
    costs
        (S,) out: mean cost at the last scale, divided by its bound: 0 is a perfect fit, 1 means that no match is
        within reach.
    """
    width = 1 + d + d * (d + 1) // 2
    matrix, factor, step = np.empty((d, d)), np.empty((d, d)), np.empty(d)
    no_int, no_float = np.empty(0, dtype=np.int64), np.empty(0)
    for s in range(starts.shape[0]):
        theta = starts[s].copy()
        cost = 0.0
        for level in range(scales.shape[0]):
            damping = 1e-3
            scale = scales[level]
            sums = np.zeros(width)
            call_linearize(
                calls[2], evaluator, call_encode(calls[0], theta, A1, A2), columns, 0, m, no_int, no_float, d,
                components, SMOOTH_TRUNCATED, calls[3], scale, 0, no_float, sums,
            )  # fmt: skip
            for _ in range(steps):
                if not _damped_step(sums, d, damping, matrix, factor, step):
                    break
                moved = call_move(calls[1], theta, step)
                trial = np.zeros(width)
                call_linearize(
                    calls[2], evaluator, call_encode(calls[0], moved, A1, A2), columns, 0, m, no_int, no_float, d,
                    components, SMOOTH_TRUNCATED, calls[3], scale, 0, no_float, trial,
                )  # fmt: skip
                if trial[0] < sums[0]:
                    theta = moved
                    done = sums[0] - trial[0] < 1e-5 * sums[0]
                    sums = trial
                    damping *= 0.1
                    if done:
                        break
                else:
                    damping = max(10.0 * damping, 1e-2)
            cost = sums[0] / (m * 0.25 * scale * scale)
        for j in range(theta.shape[0]):
            starts[s, j] = theta[j]
        costs[s] = cost


def random_points(model: Any, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Random points of the manifold of a `models.Model`, (count, q)."""
    if model.sample == 5:
        near = rotations_by(0.3 * rng.normal(size=(count, 3)))
        far = rotations_of(rng.normal(size=(count, 4)))
        R = np.where((np.arange(count) % 2 == 0)[:, None, None], near, far)
        t = rng.normal(size=(count, 3))
        t /= np.linalg.norm(t, axis=1, keepdims=True)
        return np.ascontiguousarray(np.concatenate([R.reshape(count, 9), t], axis=1))
    if model.sample == 7:
        return np.array([model.point(rng.normal(size=(3, 3))) for _ in range(count)])
    points = []
    for _ in range(count):  # a similarity of unit-size images with a little perspective
        angle, scale = rng.choice([0.3 * rng.normal(), rng.uniform(-np.pi, np.pi)]), np.exp(0.3 * rng.normal())
        c, s = scale * np.cos(angle), scale * np.sin(angle)
        X = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]]) + 0.1 * rng.normal(size=(3, 3))
        points.append(model.point(X))
    return np.array(points)
