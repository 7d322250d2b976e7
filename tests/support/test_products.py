"""Products in pieces: right, and no piece is large enough for the threads of a BLAS."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from problm.support.products import dot, times


@pytest.mark.parametrize("n", [0, 1, 8192, 8193, 100_000])
def test_dot(n):
    a, b = np.random.default_rng(n).standard_normal((2, n))
    np.testing.assert_allclose(dot(a, b), (a * b).sum(), rtol=1e-11, atol=1e-11)
    assert dot(a.reshape(-1, 1), b.reshape(-1, 1)) == dot(a, b)


@pytest.mark.parametrize(("d", "n"), [(0, 5), (1, 10), (3, 200_001), (20, 2000), (60, 300)])
def test_times(d, n):
    a, b = np.random.default_rng(n).standard_normal((2, d, n))
    for other in (b[0] if d else np.ones(n), b.T, a.T):
        np.testing.assert_allclose(times(a, other), np.tensordot(a, other, (1, 0)), rtol=1e-10, atol=1e-9)


class Spy(np.ndarray):
    """An array that notes the shapes of its products, also of its parts."""

    seen: ClassVar[list[tuple[int, ...]]] = []

    def dot(self, other):
        Spy.seen.append(self.shape)
        return np.asarray(self).dot(np.asarray(other))


@pytest.mark.parametrize("d", [3, 8, 20, 40])
def test_pieces_are_too_small_for_threads(d):
    """OpenBLAS starts threads from 10,000 numbers of a vector, and from half a million multiplications of matrices."""
    Spy.seen.clear()
    r, j = np.ones(200_000).view(Spy), np.ones((d, 20_000)).view(Spy)
    dot(r, r)
    assert sum(n for (n,) in Spy.seen) == len(r)
    assert max(n for (n,) in Spy.seen) < 10_000
    Spy.seen.clear()
    times(j, j.T)
    assert sum(n for _, n in Spy.seen) == 20_000
    assert max(d * d * n for _, n in Spy.seen) < 500_000
