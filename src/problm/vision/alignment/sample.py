"""Both images at some pixels of image 1, from which the search judges a warp without solving anything.

The moments of the values are summed in the pass that looks them up: a search judges some twenty warps, and a handful of
NumPy calls on 5000 values for each of them would take longer than a solve on a coarse level.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...jit import types
from ...jit.njit import njit
from ...kernels.kernel import BLOCK, FASTMATH
from ...losses import Loss
from . import kernels as ak

Array = NDArray[np.float64]
Floats = NDArray[np.float32]
_f8, _f4, _i8, _i4 = types.float64, types.float32, types.int64, types.int32


@njit(
    types.void(_f8[::1], _i4[::1], _i8[::1], _f8[::1], _f4[:, ::1], _f4[::1]),
    nogil=True,
    error_model="numpy",
    fastmath=FASTMATH,  # as the evaluator: shared code would be compiled again for callers with other options
)
def look_up(theta, pixels, program, constants, values, weights):  # type: ignore[no-untyped-def]
    """Image 2 as image 1 sees it: gain I2 + bias (k, channels) and the weight (k,) at k pixels of image 1."""
    rows = np.empty((1, BLOCK))
    work = np.empty((18, BLOCK))
    cells = np.empty(BLOCK, dtype=np.int32)
    raw = np.empty((4, BLOCK), dtype=np.int32)
    channels, kind = program[ak.P_CHANNELS], program[ak.P_TYPE2]
    size = 1 if kind == 0 else (2 if kind == 1 else 4)
    factor = theta[9] * constants[ak.C_UNIT2]
    for first in range(0, len(pixels), BLOCK):
        m = min(BLOCK, len(pixels) - first)
        for i in range(m):
            rows[0, i] = pixels[first + i]
        ak._warp(theta, rows, m, program, constants, work)
        ak._cells(m, program[ak.P_WIDTH2], program[ak.P_HEIGHT2], work, cells)
        ak._border(m, program, constants, cells, work)
        for c in range(channels):
            ak._taps(program[ak.P_IMAGE2] + size * c, kind, channels, program[ak.P_WIDTH2], m, cells, raw)
            if kind == 2:
                ak._interpolate(raw.view(np.float32), m, work)
            else:
                ak._interpolate(raw, m, work)
            for i in range(m):
                values[first + i, c] = factor * work[14, i] + theta[10]
        for i in range(m):
            weights[first + i] = work[11, i]


@njit(types.void(_f4[:, ::1], _f4[:, ::1], _f4[::1], _f8[::1]), nogil=True, error_model="numpy", fastmath=FASTMATH)
def _sum_moments(first, second, weights, sums):  # type: ignore[no-untyped-def]
    """Add to ``sums``: pixels inside; of those, per channel c, a and b, a^2, b^2, a b; |b - a|^2 inside; weights;
    weights times |b - a|^2. The values a and b are measured from the first value of a, so that their squares do not
    cancel."""
    channels = first.shape[1]
    for i in range(len(weights)):
        weight, norm = np.float64(weights[i]), 0.0  # Numba's float() would leave it a float32
        inside = 1.0 if weight > 0.5 else 0.0
        for c in range(channels):
            origin = np.float64(first[0, c])
            a, b = np.float64(first[i, c]) - origin, np.float64(second[i, c]) - origin
            norm += (b - a) * (b - a)
            if inside > 0.0:
                at = 4 + 5 * c
                sums[at] += a
                sums[at + 1] += b
                sums[at + 2] += a * a
                sums[at + 3] += b * b
                sums[at + 4] += a * b
        sums[0] += inside
        sums[2] += weight
        if inside > 0.0:
            sums[1] += norm
        if weight > 0.0:
            sums[3] += weight * norm


@njit(
    types.void(_f8[:, ::1], _i4[::1], _f4[:, ::1], _i8[::1], _f8[::1], _f8[::1]),
    nogil=True,
    error_model="numpy",
)
def score_warps(thetas, pixels, first, program, constants, scores):  # type: ignore[no-untyped-def]
    """Correlation times the root of the overlap under each of some warps (k, 11), at the same pixels."""
    channels = first.shape[1]
    values = np.empty((len(pixels), channels), dtype=np.float32)
    weights = np.empty(len(pixels), dtype=np.float32)
    sums = np.empty(4 + 5 * channels)
    for k in range(len(thetas)):
        look_up(thetas[k], pixels, program, constants, values, weights)
        sums[:] = 0.0
        _sum_moments(first, values, weights, sums)
        count, product, a, b = sums[0], 0.0, 0.0, 0.0
        scores[k] = 0.0
        if count >= 2.0:
            for c in range(channels):
                at = 4 + 5 * c
                a += sums[at + 2] - sums[at] ** 2 / count
                b += sums[at + 3] - sums[at + 1] ** 2 / count
                product += sums[at + 4] - sums[at] * sums[at + 1] / count
            if a > 0.0 and b > 0.0:
                scores[k] = product / np.sqrt(a * b) * np.sqrt(count / len(pixels))


class Sample:
    """Values of both images at some pixels of image 1, and statistics of them where the images overlap.

    Parameters
    ----------
    first, second : (k, channels) values of image 1, and of image 2 there.
    weights : (k,) 1 well inside image 2, 0 outside.
    """

    def __init__(self, first: Floats, second: Floats, weights: Floats) -> None:
        self.first, self.second, self.weights = first, second, weights
        channels = first.shape[1]
        sums = np.zeros(4 + 5 * channels)
        _sum_moments(first, second, weights, sums)
        self._count, self._norms, self._weight, self._weighted = sums[:4].tolist()
        self._moments: list[list[float]] = sums[4:].reshape(channels, 5).tolist()

    @property
    def overlap(self) -> float:
        """Share of the pixels that lie in image 2."""
        return self._count / len(self.weights)

    @cached_property
    def _squared(self) -> Array:
        """(k,) squared norms of the residuals."""
        return ((self.second - self.first).astype(np.float64) ** 2).sum(axis=1)

    @cached_property
    def _inside(self) -> NDArray[np.bool_]:
        return self.weights > 0.5

    def outside_level(self, loss: Loss) -> float:
        """k such that a pixel outside costs as much as the average pixel inside."""
        if not self._count:
            return 0.0
        if loss.is_linear:
            return math.sqrt(self._norms / self._count)
        norms = self._squared[self._inside]
        target = float(loss.cost(norms).mean())
        low, high = 0.0, float(np.sqrt(norms.max()))
        for _ in range(60):  # the loss rises with the norm
            middle = 0.5 * (low + high)
            low, high = (middle, high) if loss.cost(np.array([middle**2]))[0] < target else (low, middle)
        return high

    def cost(self, loss: Loss, outside: float) -> float:
        """Mean cost per pixel, with k = ``outside``: an estimate of the problem's cost."""
        count = len(self.weights)
        if loss.is_linear:
            return 0.5 * (self._weighted + (count - self._weight) * outside**2) / count
        weights = self.weights.astype(np.float64)
        return float(loss.cost(weights * self._squared + (1.0 - weights) * outside**2).mean())

    def gain_and_bias(self) -> tuple[float, float]:
        """``gain``, ``bias`` that give image 2 the mean and contrast of image 1 in the overlap.

        Moments are used instead of regression: at a start that is off by pixels the images correlate weakly, and
        regression would flatten image 2.
        """
        (mean_a, spread_a), (mean_b, spread_b) = self._pooled
        if not (spread_a > 0.0 and spread_b > 0.0):
            return 1.0, 0.0
        gain = spread_a / spread_b
        return gain, mean_a - gain * mean_b

    def brightness(self) -> float:
        """Difference of the mean values in the overlap, in standard deviations of image 1 there."""
        (mean_a, spread_a), (mean_b, _) = self._pooled
        return (mean_b - mean_a) / spread_a if spread_a > 0.0 else 0.0

    @cached_property
    def _pooled(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Mean and standard deviation in the overlap over all channels, of image 1 and of image 2."""
        if not self._count:
            return (0.0, 0.0), (0.0, 0.0)
        parts = [(self.first[0, c].item(), *m) for c, m in enumerate(self._moments)]
        return _mean_and_spread([(p[0], p[1], p[3]) for p in parts], self._count), _mean_and_spread(
            [(p[0], p[2], p[4]) for p in parts], self._count
        )

    def detail(self, tiles: NDArray[np.integer[Any]]) -> float:
        """Correlation in the overlap about the means of tiles, whose numbers (k,) are given; 0 where all are flat.

        Photographs of two different places correlate, by sky above and ground below; what is left within tiles does
        so only where the same things are seen.
        """
        inside, count = self._inside, int(tiles.max(initial=0)) + 1
        at = tiles[inside]
        sizes = np.maximum(np.bincount(at, minlength=count), 1)
        product = squares_a = squares_b = 0.0
        for c in range(self.first.shape[1]):
            a, b = (v[inside, c].astype(np.float64) for v in (self.first, self.second))
            a, b = (v - (np.bincount(at, v, count) / sizes)[at] for v in (a, b))
            product, squares_a, squares_b = product + a @ b, squares_a + a @ a, squares_b + b @ b
        scale = math.sqrt(squares_a * squares_b)
        return float(product / scale) if scale > 0.0 else 0.0

    def spread(self) -> float:
        """Robust standard deviation of the residuals' norms in the overlap: 1.4826 times their median."""
        if not self._count:
            return 0.0
        return 1.4826 * float(np.median(np.sqrt(self._squared[self._inside])))

    def correlation(self) -> float:
        """Normalised cross-correlation in the overlap, about the channels' own means; 0 where an image is flat."""
        if self._count < 2:
            return 0.0
        product = square_a = square_b = 0.0
        for a, b, aa, bb, ab in self._moments:
            square_a += _centred(aa, a * a / self._count)
            square_b += _centred(bb, b * b / self._count)
            product += ab - a * b / self._count
        scale = math.sqrt(square_a * square_b)
        return product / scale if scale > 0.0 else 0.0


def _centred(squares: float, of_mean: float) -> float:
    """The sum of squares about the mean; zero where it is what rounding leaves of a flat image."""
    rest = squares - of_mean
    return rest if rest > 1e-11 * squares else 0.0


def _mean_and_spread(channels: list[tuple[float, float, float]], count: float) -> tuple[float, float]:
    """Mean and standard deviation over channels, from an origin and the sums of values and squares counted from it."""
    total = count * len(channels)
    mean = sum(count * origin + values for origin, values, _ in channels) / total
    squares = 0.0
    for origin, values, of_values in channels:
        shift = origin - mean
        squares += _centred(of_values, values * values / count) + (values + count * shift) ** 2 / count
    return mean, math.sqrt(squares / total)
