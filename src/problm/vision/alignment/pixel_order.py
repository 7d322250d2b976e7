r"""A stratified random order of the pixels.

A segment of m rows is drawn from the F rows that no earlier segment holds, one from each of m strata of equal length:
the j-th is number ``floor((j + U_j) F / m)`` of the free rows, U_j uniform. Given the earlier segments every free row
is equally likely to be drawn, exactly as in a simple random sample, so a batch still represents all pixels and a
hold-out block the rest. But it is spread evenly over the image, and neighbouring pixels resemble each other: on
photographs the mean cost over 1000 pixels varies 0.85 times as much as over a simple random sample, over 20,000 pixels
0.4 times (measured). The solver's acceptance test assumes a simple random sample, so it errs on the safe side. U_j is
drawn independently in every stratum, so no regular texture can align with the sample.

The rows come out ascending without a sort, and both images are read forwards.
"""

from __future__ import annotations

import numpy as np

from ...sampling.order import Index, RandomOrder


def draw_stratified(rng: np.random.Generator, free: int, m: int) -> Index:
    """One of each of m strata of the numbers 0..free-1, ascending."""
    if m >= free:
        return np.arange(free, dtype=np.int64)
    chosen: Index = ((np.arange(m) + rng.random(m)) * (free / m)).astype(np.int64)
    np.minimum(chosen, free - 1, out=chosen)
    # A row on the edge of two strata may occur twice, once in 4 (F / m)^2 times: the second becomes the next one.
    steps = np.arange(m)
    chosen = np.maximum.accumulate(chosen - steps) + steps
    if chosen[-1] >= free:
        chosen = np.minimum(chosen, np.arange(free - m, free))
    return chosen


class PixelOrder(RandomOrder):
    """The order of ``n`` pixels, drawn in ascending, stratified segments."""

    def _draw(self, rng: np.random.Generator, free: int, m: int) -> Index:
        return draw_stratified(rng, free, m)
