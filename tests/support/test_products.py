"""Products in pieces: right, and no piece is large enough for the threads of a BLAS."""

from __future__ import annotations

import subprocess
import sys

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


def test_no_threads_start():
    """Of a vector and of Jacobians of usual sizes; OpenBLAS starts its threads when it is loaded, so CPU time tells."""
    code = (
        "import numpy as np, time\n"
        "from problm.support.products import dot, times\n"
        "r, pairs = np.ones(200_000), [np.ones((d, 20_000)) for d in (3, 8, 20, 40)]\n"
        "own = -time.thread_time() + time.process_time()\n"
        "for _ in range(20):\n"
        "    dot(r, r), [(times(j, j[0]), times(j, j.T)) for j in pairs]\n"
        "others = time.process_time() - time.thread_time() - own\n"
        "print(others < 0.01)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
