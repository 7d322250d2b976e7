"""SciPy's calls, with nothing but the name changed: `curve_fit` and `least_squares` of NumPy functions.

    OMP_NUM_THREADS=1 python -m bench.studies.scipy_calls [--largest 1000000] [--repeats 5]

Whole arrays, no ``data=``, no formula, SciPy's defaults, with differences and with the user's Jacobian. Six *first*
models, on which limits were once chosen, and six *other* ones; both chose the limit of 48,000 rows; sizes on both
sides of the limits. CPU time of the whole call on one thread; the two take turns, and the median of the repeats counts
for each. A ratio above one means that ProBLM is faster.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy import optimize

import problm

from ..harness import record
from ..harness.summary import markdown_table

SEED = 2026
SIZES = (200, 1000, 4_999, 5_000, 10_000, 20_001, 30_000, 48_000, 48_001, 100_000, 1_000_000)
Array = np.ndarray


@dataclass(frozen=True)
class Curve:
    """A function of x, its derivatives (N, d), true parameters, and a start."""

    f: Callable[..., Array]
    jac: Callable[..., Array]
    truth: tuple[float, ...]
    start: tuple[float, ...]
    range: tuple[float, float]


def _columns(x: Array, *columns: Any) -> Array:
    return np.stack([np.broadcast_to(c, x.shape) for c in columns], axis=1)


def _line(x: Array, a: float, b: float) -> Array:
    return a * x + b


def _decay(x: Array, a: float, b: float, c: float) -> Array:
    return a * np.exp(-b * x) + c


def _decay_by(x: Array, a: float, b: float, c: float) -> Array:
    e = np.exp(-b * x)
    return _columns(x, e, -a * x * e, 1.0)


def _peak(x: Array, a: float, m: float, s: float, c: float) -> Array:
    return a * np.exp(-0.5 * ((x - m) / s) ** 2) + c


def _peak_by(x: Array, a: float, m: float, s: float, c: float) -> Array:
    u = (x - m) / s
    e = np.exp(-0.5 * u * u)
    return _columns(x, e, a * e * u / s, a * e * u * u / s, 1.0)


def _sine(x: Array, a: float, w: float, p: float) -> Array:
    return a * np.sin(w * x + p)


def _sine_by(x: Array, a: float, w: float, p: float) -> Array:
    return _columns(x, np.sin(w * x + p), a * x * np.cos(w * x + p), a * np.cos(w * x + p))


def _power(x: Array, a: float, k: float, c: float) -> Array:
    return a * x**k + c


def _power_by(x: Array, a: float, k: float, c: float) -> Array:
    return _columns(x, x**k, a * x**k * np.log(x), 1.0)


def _two_decays(x: Array, a: float, b: float, c: float, d: float) -> Array:
    return a * np.exp(-b * x) + c * np.exp(-d * x)


def _two_decays_by(x: Array, a: float, b: float, c: float, d: float) -> Array:
    e, f = np.exp(-b * x), np.exp(-d * x)
    return _columns(x, e, -a * x * e, f, -c * x * f)


def _logistic(x: Array, a: float, k: float, m: float) -> Array:
    return a / (1.0 + np.exp(-k * (x - m)))


def _logistic_by(x: Array, a: float, k: float, m: float) -> Array:
    s = 1.0 / (1.0 + np.exp(-k * (x - m)))
    slope = a * s * (1.0 - s)
    return _columns(x, s, slope * (x - m), -slope * k)


def _saturation(x: Array, a: float, h: float) -> Array:
    return a * x / (h + x)


def _saturation_by(x: Array, a: float, h: float) -> Array:
    return _columns(x, x / (h + x), -a * x / (h + x) ** 2)


def _lorentz(x: Array, a: float, m: float, w: float, b: float, c: float) -> Array:
    return a / (1.0 + ((x - m) / w) ** 2) + b * x + c


def _lorentz_by(x: Array, a: float, m: float, w: float, b: float, c: float) -> Array:
    u = (x - m) / w
    q = 1.0 / (1.0 + u * u)
    return _columns(x, q, 2.0 * a * q * q * u / w, 2.0 * a * q * q * u * u / w, x, 1.0)


def _cubic(x: Array, a: float, b: float, c: float, d: float) -> Array:
    return ((a * x + b) * x + c) * x + d


def _ringing(x: Array, a: float, k: float, w: float, p: float) -> Array:
    return a * np.exp(-k * x) * np.cos(w * x + p)


def _ringing_by(x: Array, a: float, k: float, w: float, p: float) -> Array:
    e, c, s = np.exp(-k * x), np.cos(w * x + p), np.sin(w * x + p)
    return _columns(x, e * c, -a * x * e * c, -a * x * e * s, -a * e * s)


def _stretched(x: Array, a: float, t: float, b: float) -> Array:
    return a * np.exp(-((x / t) ** b))


def _stretched_by(x: Array, a: float, t: float, b: float) -> Array:
    u = (x / t) ** b
    e = np.exp(-u)
    return _columns(x, e, a * e * u * b / t, -a * e * u * np.log(x / t))


CURVES = {
    "line": Curve(_line, lambda x, a, b: _columns(x, x, 1.0), (2.0, 1.0), (1.0, 0.0), (0.0, 4.0)),
    "decay": Curve(_decay, _decay_by, (2.0, 1.3, 0.5), (1.0, 1.0, 0.0), (0.0, 4.0)),
    "peak": Curve(_peak, _peak_by, (2.0, 2.0, 0.5, 0.3), (1.0, 1.6, 0.8, 0.0), (0.0, 4.0)),
    "sine": Curve(_sine, _sine_by, (1.5, 2.0, 0.3), (1.0, 2.1, 0.0), (0.0, 6.0)),
    "power": Curve(_power, _power_by, (1.5, 1.7, 0.5), (1.0, 1.0, 0.0), (0.1, 4.0)),
    "two decays": Curve(_two_decays, _two_decays_by, (2.0, 3.0, 1.0, 0.4), (1.0, 2.0, 1.0, 0.2), (0.0, 6.0)),
}

OTHERS = {
    "logistic": Curve(_logistic, _logistic_by, (2.0, 2.5, 1.8), (1.5, 1.5, 1.2), (0.0, 4.0)),
    "saturation": Curve(_saturation, _saturation_by, (3.0, 0.8), (1.0, 1.0), (0.0, 5.0)),
    "lorentz": Curve(_lorentz, _lorentz_by, (3.0, 1.7, 0.3, 0.2, 0.5), (2.0, 1.5, 0.5, 0.0, 0.0), (0.0, 4.0)),
    "cubic": Curve(
        _cubic, lambda x, a, b, c, d: _columns(x, x**3, x * x, x, 1.0), (0.3, -1.0, 0.5, 1.0), (0.0,) * 4, (-2.0, 3.0)
    ),
    "ringing": Curve(_ringing, _ringing_by, (2.0, 0.4, 3.0, 0.3), (1.5, 0.6, 2.8, 0.0), (0.0, 6.0)),
    "stretched": Curve(_stretched, _stretched_by, (2.0, 1.5, 0.7), (1.0, 1.0, 1.0), (0.05, 6.0)),
}
SETS = {"first": CURVES, "other": OTHERS}


def calls(curve: Curve, n: int) -> Iterator[tuple[str, str, Callable[[], Array], Callable[[], Array]]]:
    """Function, derivatives, and SciPy's call and ours, which return the parameters."""
    rng = np.random.default_rng([SEED, n])
    x = np.linspace(*curve.range, n)
    y = curve.f(x, *curve.truth) + 0.1 * rng.standard_normal(n)
    start = np.array(curve.start)
    for derivatives, jac in (("differences", None), ("Jacobian", curve.jac)):
        by: Any = "2-point" if jac is None else lambda t: curve.jac(x, *t)

        def residuals(t: Array) -> Array:
            return curve.f(x, *t) - y

        yield (
            "curve_fit", derivatives,
            lambda jac=jac: optimize.curve_fit(curve.f, x, y, start, jac=jac)[0],
            lambda jac=jac: problm.curve_fit(curve.f, x, y, start, jac=jac)[0],
        )  # fmt: skip
        yield (
            "least_squares", derivatives,
            lambda by=by: optimize.least_squares(residuals, start, by).x,
            lambda by=by: problm.least_squares(residuals, start, by).x,
        )  # fmt: skip


def timed(call: Callable[[], Array], least: float = 0.01) -> tuple[float, Array]:
    """CPU seconds of a call, the mean of as many as take ``least`` seconds, and its answer."""
    count, began = 0, time.process_time()
    while True:
        answer = call()
        count += 1
        if (seconds := time.process_time() - began) >= least:
            return seconds / count, answer


def measure(theirs: Callable[[], Array], ours: Callable[[], Array], repeats: int) -> dict[str, Any]:
    """Seconds of both, in turn, their ratio, and the largest difference of the parameters, relatively."""
    times: dict[str, list[float]] = {"scipy": [], "problm": []}
    theirs(), ours()
    for _ in range(repeats):
        seconds, expected = timed(theirs)
        times["scipy"].append(seconds)
        seconds, found = timed(ours)
        times["problm"].append(seconds)
    middle = {name: median(values) for name, values in times.items()}
    apart = float(np.max(np.abs(found - expected) / np.abs(expected)))
    return {**middle, "ratio": middle["scipy"] / middle["problm"], "apart": apart}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    arguments = parser.parse_args()
    began = time.perf_counter()
    rows: list[dict[str, Any]] = []
    for n in (n for n in SIZES if n <= arguments.largest):
        for kind, name, curve in ((kind, *item) for kind, models in SETS.items() for item in models.items()):
            for function, derivatives, theirs, ours in calls(curve, n):
                found = measure(theirs, ours, arguments.repeats)
                key = {"n": n, "models": kind, "model": name, "function": function, "derivatives": derivatives}
                rows.append({**key, **found})
                print(f"{function}, {derivatives}, {name}, N = {n:,}: {found['ratio']:.2f}", flush=True)
    cells = []
    names = ("n", "function", "derivatives", "models")
    for key in dict.fromkeys(tuple(row[name] for name in names) for row in sorted(rows, key=itemgetter(*names[:3]))):
        mine = [row for row in rows if tuple(row[name] for name in names) == key]
        ratios = record.spread([row["ratio"] for row in mine])
        slowest = min(mine, key=itemgetter("ratio"))["model"]
        apart = f"{max(row['apart'] for row in mine):.0e}"
        cells.append([f"{key[0]:,}", *key[1:], record.told(ratios), slowest, apart])
    text = [
        "# SciPy's calls, with nothing but the name changed",
        "NumPy functions of whole arrays, no `data=`, SciPy's defaults (`curve_fit`: MINPACK, `least_squares`: trf), "
        "twelve models of two to five parameters: *first*, on which limits were once chosen, and *other*; both chose "
        "the limit of 48,000 rows. CPU time of the whole call on one thread. *Ratio*: SciPy's time over "
        "ProBLM's, median (least to greatest) over the models; above one ProBLM is faster. *Apart*: largest relative "
        "difference of a parameter.",
        markdown_table(["N", "function", "derivatives", "models", "ratio", "least with", "apart"], cells),
    ]
    record.write(
        arguments.output, "scipy_calls", text, rows, record.about(seconds=time.perf_counter() - began, seed=SEED)
    )


if __name__ == "__main__":
    main()
