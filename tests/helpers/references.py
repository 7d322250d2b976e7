"""Fits whose results are committed, to be compared on other machines: ``python -m tests.helpers.references``.

One of each kind of code: compiled formulas, NumPy functions, losses, the variable projection, images, two views and
bundles. ``tests/references.json`` holds what they gave on one machine.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import problm

Array = np.ndarray[Any, np.dtype[Any]]
START = [1.0, 0.2, 0.0]


def table(n: int, outliers: float = 0.0) -> tuple[Array, Array]:
    rng = np.random.default_rng(7)
    x = rng.uniform(0, 4, n)
    y = 2.5 * np.exp(-1.3 * x) + 0.5 + 0.1 * rng.standard_normal(n)
    return x, np.where(rng.random(n) < outliers, y + rng.uniform(0, 5, n), y)


def decay(theta: Array, x: Array, y: Array) -> Array:
    return theta[0] * np.exp(-theta[1] * x) + theta[2] - y


def slopes(theta: Array, x: Array, y: Array) -> Array:
    e = np.exp(-theta[1] * x)
    return np.stack([e, -theta[0] * x * e, np.ones_like(x)], axis=1)


def formula() -> Any:
    return problm.least_squares(problm.formula("a*exp(-b*x) + c"), START, data=table(60_000)).x


def peak() -> Any:
    """Most of the compiled functions at once."""
    rng = np.random.default_rng(3)
    x = rng.uniform(0.1, 5.0, 20_000)
    y = 2.0 * np.exp(-((x - 2.0) ** 2) / 0.5) + 0.3 * np.sin(1.7 * x) + 0.2 * x**0.6
    y += 0.05 * rng.standard_normal(x.size)
    model = problm.formula("a*exp(-(x - m)**2/w) + b*sin(k*x) + c*x**p")
    return problm.least_squares(model, [1.5, 2.1, 0.6, 0.2, 1.6, 0.3, 0.5], data=(x, y)).x


def robust() -> Any:
    model = problm.formula("a*exp(-b*x) + c")
    return problm.least_squares(model, START, data=table(60_000, 0.2), loss="cauchy", f_scale=0.2).x


def function() -> Any:
    return problm.least_squares(decay, START, jac=slopes, data=table(60_000)).x


def differences() -> Any:
    return problm.least_squares(decay, START, data=table(60_000)).x


def bounded() -> Any:
    model = problm.formula("a*exp(-b*x) + c")
    return problm.least_squares(model, START, data=table(60_000), bounds=([0, 0, 0], [2.2, 9, 9])).x


def sums() -> Any:
    x, y = table(5000)
    fit = problm.separable_fit(lambda x, alpha: np.stack([np.exp(-alpha[0] * x), np.ones_like(x)], axis=1), [0.2], x, y)
    return np.r_[fit.alpha, fit.coefficients]


def alignment() -> Any:
    y, x = np.mgrid[:120, :160]

    def picture(dx: float, dy: float) -> Array:
        return 128 + 50 * np.sin((x - dx) / 6) + 40 * np.cos((y - dy) / 8 + (x - dx) / 25)

    return problm.align(picture(0, 0), picture(2.3, -1.4), "affine").matrix


def _views(inliers: float) -> Any:
    from problm.vision.two_view.simulate import two_views

    return two_views(2000, inliers=inliers, seed=1)


def essential() -> Any:
    views = _views(1.0)
    return problm.essential_matrix(views.x1, views.x2, views.K, initial=(views.R, views.t), robust=False).matrix


def essential_robust() -> Any:
    views = _views(0.7)
    return problm.essential_matrix(views.x1, views.x2, views.K).matrix


def bundle() -> Any:
    from problm.vision.bundle.camera_models import Intrinsics
    from problm.vision.bundle.reconstruction import Reconstruction

    rng = np.random.default_rng(0)
    points = rng.uniform(-1, 1, (40, 3))
    camera = Intrinsics("SIMPLE_RADIAL", (800.0, 0.0, 0.0, -0.05))
    turns, shifts = np.tile(np.eye(3), (4, 1, 1)), np.c_[np.linspace(-1, 1, 4), np.zeros(4), np.full(4, 6.0)]
    seen = np.stack([camera.project(points + s) for s in shifts]) + 0.3 * rng.standard_normal((4, 40, 2))
    start = Reconstruction.from_arrays(turns, shifts, camera, points + rng.normal(0, 0.02, points.shape), seen)
    found = problm.bundle_adjustment(start)
    return np.array([found.cost])


_ALL = (formula, peak, robust, function, differences, bounded, sums, alignment, essential, essential_robust, bundle)
FITS: dict[str, Callable[[], Any]] = {f.__name__: f for f in _ALL}


def plainest(cache: str) -> dict[str, str]:
    """Environment of a process that computes as the oldest x86-64 does; ``cache`` is for what it compiles."""
    return older() | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": cache}


def older() -> dict[str, str]:
    """The part of it that compiles nothing: NumPy's loops and OpenBLAS' kernels."""
    from numpy._core import _multiarray_umath as numpys

    fast = [name for name in numpys.__cpu_dispatch__ if numpys.__cpu_features__.get(name)]
    return {"NPY_DISABLE_CPU_FEATURES": " ".join(fast), "OPENBLAS_CORETYPE": "Prescott"}


def difference(one: list[float], other: list[float]) -> float:
    """The largest, relative to the largest number."""
    a, b = np.array(one), np.array(other)
    return float(np.max(np.abs(a - b)) / max(np.max(np.abs(a)), np.finfo(float).tiny))


def results(names: list[str]) -> dict[str, list[float]]:
    return {name: np.ravel(FITS[name]()).tolist() for name in names or FITS}


if __name__ == "__main__":
    print(json.dumps(results(sys.argv[1:]), indent=1))
