"""The demo's curve fit: an exponential decay through ten million noisy points."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...api.curve_fit import fit
from ...models.formula import formula
from ...solver.result import Result
from .parts import Measured, Part, passes, repeated

Array = NDArray[np.float64]
TRUTH = (2.5, 1.3, 0.5)
START = (1.0, 0.3, 0.0)
_SCIPY_SECONDS = 10.0


def _decay(x: Any, a: float, b: float, c: float) -> Any:
    return a * np.exp(-b * x) + c


def make_data(n: int, seed: int) -> tuple[Array, Array]:
    """n points of a decay with noise of 0.2, in random order of x."""
    rng = np.random.default_rng(seed)
    x = rng.random(n)
    x *= 4.0
    y = rng.standard_normal(n)
    y *= 0.2
    y += _decay(x, *TRUTH)
    return x, y


def run(n: int, seed: int, progress: Callable[..., Any] | None) -> Part:
    """Fit the curve with growing batches, with plain Levenberg-Marquardt, and with SciPy."""
    x, y = make_data(n, seed)
    model = formula("a*exp(-b*x) + c")
    fit(model, x[:1000], y[:1000], START)  # loads what is compiled, before the clock runs

    def solve(**options: Any) -> Result:
        return fit(model, x, y, START, rng=seed, callback=progress, **options)

    names = ("ProBLM", "ProBLM, accuracy=1e-3", "LM (ProBLM's own)")
    results, seconds = repeated([solve, lambda: solve(accuracy=1e-3), lambda: solve(method="lm")])
    measured = [
        Measured(name, s, got.problem.cost(got.x), passes(got))
        for name, got, s in zip(names, results, seconds, strict=True)
    ]
    measured.append(_scipy(x, y))
    best = results[0]
    return Part(
        f"Exponential decay, {n:,} points",
        "y = a exp(-b x) + c with noise of 0.2. Work is in passes over all points; with accuracy=1e-3 the fit ends "
        "once the cost over all points is within a thousandth of its minimum with 90 % confidence.",
        measured,
        result=best,
        curve=(x, y, lambda t: _decay(t, *best.x)),
    )


def _scipy(x: Array, y: Array) -> Measured:
    """SciPy's curve_fit on the same points and start, stopped after some seconds."""
    from scipy.optimize import curve_fit

    began = time.perf_counter()

    def timed(t: Any, a: float, b: float, c: float) -> Any:
        if time.perf_counter() - began > _SCIPY_SECONDS:
            raise TimeoutError
        return _decay(t, a, b, c)

    try:
        best, _ = curve_fit(timed, x, y, START)
    except TimeoutError:
        return Measured("SciPy curve_fit", time.perf_counter() - began, np.nan, "given up")
    seconds = time.perf_counter() - began
    return Measured(
        "SciPy curve_fit", seconds, 0.5 * float(np.sum((_decay(x, *best) - y) ** 2)), "difference quotients"
    )
