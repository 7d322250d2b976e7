"""First calls of an installed wheel: nothing may be compiled, and no Numba loaded. Run outside the source tree."""

from __future__ import annotations

import sys
import time

import numpy as np

import problm


def timed(name, call):
    began = time.perf_counter()
    result = call()
    print(f"{name:<24}{time.perf_counter() - began:8.3f} s")
    return result


def main():
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 4.0, 1000)
    y = 2.5 * np.exp(-1.3 * x) + 0.5 + 0.01 * rng.standard_normal(x.size)
    popt, _ = timed("formula", lambda: problm.curve_fit(problm.formula("a * exp(-b * x) + c"), x, y, p0=(1, 1, 0)))
    assert np.allclose(popt, (2.5, 1.3, 0.5), atol=0.05), popt
    a = rng.random((200, 2)) * 640
    H = np.array([[1.0, 0.02, 3.0], [-0.01, 1.1, 5.0], [1e-5, 2e-5, 1.0]])
    b = np.c_[a, np.ones(200)] @ H.T
    found = timed("homography", lambda: problm.homography(a, b[:, :2] / b[:, 2:]))
    assert np.allclose(found.H / found.H[2, 2], H, atol=1e-6), found.H
    assert "numba" not in sys.modules, "Numba was loaded"
    print(f"problm {problm.__version__} of {problm.__file__}")


if __name__ == "__main__":
    main()
