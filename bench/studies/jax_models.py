"""JAX functions: `least_squares` against jaxopt's and optimistix's own solvers, nine models, three sizes.

    python -m bench.studies.jax_models [--rows 1e4 1e5 1e6] [--rounds 3] [-o bench/results]

CPU time of a solve on one core, from the same start, in double precision, compiling excluded for all. The peers' arrays
are on the device before the clock starts and each of their solves is one compiled program; ours is the call that a user
makes, with NumPy arrays. A peer counts if its cost is within 1e-6 of the lowest. Writes ``jax_models.md`` and
``.json``.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import jax.numpy as jnp
import numpy as np

import problm

from ..harness import record
from ..harness.summary import markdown_table

SEED = 2311
NEAR = 1e-6
"""Relative excess of the cost over the lowest with which a peer counts."""


def exponential(t: Any, x: Any, y: Any) -> Any:
    return t[0] * jnp.exp(-t[1] * x) + t[2] - y


def damped_sine(t: Any, x: Any, y: Any) -> Any:
    return t[0] * jnp.exp(-t[1] * x) * jnp.sin(t[2] * x + t[3]) + t[4] - y


def two_peaks(t: Any, x: Any, y: Any) -> Any:
    u, v = (x - t[1]) / t[2], (x - t[4]) / t[5]
    return t[0] * jnp.exp(-0.5 * u * u) + t[3] * jnp.exp(-0.5 * v * v) + t[6] + t[7] * x - y


def dose_response(t: Any, x: Any, y: Any) -> Any:
    return t[0] + (t[1] - t[0]) / (1.0 + jnp.exp(-t[2] * (x - t[3]))) ** t[4] - y


def basis(t: Any, x: Any, y: Any) -> Any:
    """50 bumps whose heights saturate."""
    return jnp.exp(-(((x[:, None] - jnp.linspace(0.0, 4.0, 50)) / 0.12) ** 2)) @ jnp.tanh(t) - y


def gamma_curve(t: Any, x: Any, y: Any) -> Any:
    """A gamma distribution. Compiled kernels do not have its ``gammaln``, so it runs in JAX."""
    shape, scale = t[1], t[2]
    density = (shape - 1.0) * jnp.log(x) - x / scale - jax.scipy.special.gammaln(shape) - shape * jnp.log(scale)
    return t[0] * jnp.exp(density) + t[3] - y


def von_mises(t: Any, x: Any, y: Any) -> Any:
    """A peak on the circle, normalised by a Bessel function."""
    return t[0] * jnp.exp(t[1] * (jnp.cos(x - t[2]) - 1.0)) / jax.scipy.special.i0e(t[1]) + t[3] - y


def template(t: Any, x: Any, y: Any) -> Any:
    """A measured shape, moved and stretched: indices depend on the data."""
    at = jnp.linspace(-2.0, 6.0, 200)
    return t[0] * jnp.interp((x - t[1]) * t[2], at, jnp.exp(-0.5 * (at - 2.0) ** 2)) + t[3] - y


def knots(t: Any, x: Any, y: Any) -> Any:
    """A saturated line through 50 knots: two of them matter for a row."""
    return jnp.tanh(jnp.interp(x, jnp.linspace(0.0, 4.0, 50), t)) - y


def cases() -> dict[str, tuple[Any, np.ndarray, np.ndarray]]:
    """Model, truth and start."""
    rng = np.random.default_rng(SEED)
    heights = rng.uniform(-0.8, 0.8, 50)
    return {
        "exponential": (exponential, np.array([2.0, 0.7, 0.3]), np.array([1.0, 1.0, 0.0])),
        "damped sine": (damped_sine, np.array([2.0, 0.5, 5.0, 0.3, 0.1]), np.array([1.5, 0.4, 4.9, 0.1, 0.0])),
        "two peaks and a line": (
            two_peaks,
            np.array([2.0, 1.2, 0.3, 1.5, 2.6, 0.4, 0.3, 0.1]),
            np.array([1.5, 1.1, 0.4, 1.2, 2.7, 0.5, 0.0, 0.0]),
        ),
        "dose-response": (
            dose_response,
            np.array([0.1, 2.0, 3.0, 2.0, 0.8]),
            np.array([0.0, 1.8, 2.5, 1.8, 1.0]),
        ),
        "gamma curve (runs in JAX)": (gamma_curve, np.array([2.0, 3.0, 0.5, 0.1]), np.array([1.5, 2.5, 0.6, 0.0])),
        "50 saturated bumps": (basis, heights, np.zeros(50)),
        "von Mises (runs in JAX)": (von_mises, np.array([2.0, 3.0, 2.0, 0.1]), np.array([1.5, 2.0, 1.8, 0.0])),
        "template (runs in JAX)": (template, np.array([2.0, 0.3, 1.2, 0.1]), np.array([1.5, 0.1, 1.1, 0.0])),
        "50 knots (runs in JAX)": (knots, heights, np.zeros(50)),
    }


def peers(model: Any, start: np.ndarray, columns: tuple[Any, ...]) -> dict[str, Callable[[], Any]]:
    """Compiled solves of the peers that are installed, by name; each returns the parameters."""
    found: dict[str, Callable[[], Any]] = {}
    at = jnp.asarray(start)
    tolerance = float(np.linalg.norm(np.asarray(columns[1]))) * 1e-7
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import jaxopt

            gauss = jax.jit(jaxopt.GaussNewton(model, maxiter=100, tol=tolerance).run)
            marquardt = jax.jit(
                jaxopt.LevenbergMarquardt(
                    model,
                    maxiter=100,
                    tol=tolerance,
                    xtol=1e-8,
                    gtol=tolerance,
                    materialize_jac=True,
                    solver="cholesky",
                ).run
            )
            found["jaxopt Gauss-Newton"] = lambda: gauss(at, *columns).params
            found["jaxopt LM"] = lambda: marquardt(at, *columns).params
        except ImportError:
            pass
    try:
        import lineax
        import optimistix

        solver = optimistix.LevenbergMarquardt(1e-8, 1e-8, linear_solver=lineax.Normal(lineax.Cholesky()))

        @jax.jit
        def solve(x0: Any, columns: Any) -> Any:
            return optimistix.least_squares(
                lambda t, data: model(t, *data), solver, x0, args=columns, max_steps=200, throw=False
            ).value

        found["optimistix LM"] = lambda: solve(at, columns)
    except ImportError:
        pass
    return found


def cpu(function: Callable[[], Any], rounds: int) -> tuple[float, float, Any]:
    """CPU seconds of the first call, which compiles, median of those after it, and the last value."""
    began = time.process_time()
    value = jax.block_until_ready(function())
    first = time.process_time() - began
    seconds = []
    for _ in range(rounds):
        began = time.process_time()
        value = jax.block_until_ready(function())
        seconds.append(time.process_time() - began)
    return first, float(np.median(seconds)), value


def measure(name: str, n: int, rounds: int) -> dict[str, Any]:
    model, truth, start = cases()[name]
    rng = np.random.default_rng([SEED, n])
    x = rng.uniform(0.0, 4.0, n)
    with jax.enable_x64(True):
        y = np.asarray(model(jnp.asarray(truth), jnp.asarray(x), 0.0)) + 0.1 * rng.standard_normal(n)
        columns = jnp.asarray(x), jnp.asarray(y)
        squares = jax.jit(lambda t: 0.5 * (model(t, *columns) ** 2).sum())
        theirs = {}
        for peer, run in peers(model, start, columns).items():
            first, seconds, point = cpu(run, rounds)
            theirs[peer] = {"first": first, "seconds": seconds, "cost": float(squares(point))}
        own = partial(problm.least_squares, model, start, data=(x, y), backend="jax")
        fits: list[Any] = []
        first, seconds, _ = cpu(lambda: fits.append(own()), rounds)
        cost = float(squares(jnp.asarray(fits[-1].x)))
    lowest = min([cost, *(p["cost"] for p in theirs.values() if np.isfinite(p["cost"]))])
    valid = {peer: p["seconds"] for peer, p in theirs.items() if p["cost"] <= lowest * (1.0 + NEAR)}
    best = min(valid, key=valid.__getitem__) if valid else None
    return {
        "model": name, "rows": n, "parameters": len(start), "first": first, "seconds": seconds, "cost": cost,
        "status": fits[-1].message,
        "above": cost / lowest - 1.0, "peers": theirs, "best": best, "ratio": valid[best] / seconds if best else None,
    }  # fmt: skip


def describe(found: list[dict[str, Any]]) -> list[str]:
    names = sorted({peer for row in found for peer in row["peers"]})
    rows = []
    for row in found:
        times = []
        for peer in names:
            p = row["peers"].get(peer)
            above = p is not None and not p["cost"] <= (row["cost"] / (1.0 + row["above"])) * (1.0 + NEAR)
            times.append("" if p is None else f"{1e3 * p['seconds']:.3g}" + (" (above)" if above else ""))
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2g}"
        theirs = "" if row["best"] is None else f"{row['peers'][row['best']]['first']:.2g}"
        rows.append(
            [row["model"], f"{row['rows']:,}", f"{1e3 * row['seconds']:.3g}", *times, ratio, f"{row['above']:.0e}",
             f"{row['first']:.2g}", theirs]
        )  # fmt: skip
    return [
        "# JAX functions against JAX's own solvers",
        "CPU milliseconds per solve on one core, double precision, compiling excluded for all, medians. *Times as "
        "fast*: the fastest peer that reaches the lowest cost to 1e-6, over ours; peers marked *above* do not. "
        "*Excess*: ours over the lowest cost. *First call*: CPU seconds of a call that compiles, ours and that of the "
        "fastest peer.",
        markdown_table(["model", "rows", "ours", *names, "times as fast", "excess", "first call", "the peer's"], rows),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e4, 1e5, 1e6])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=list(cases()))
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    began = time.perf_counter()
    found = []
    for n in options.rows:
        for name in options.models:
            if n * len(cases()[name][2]) <= 1e7:  # the peers hold the whole Jacobian several times
                found.append(measure(name, int(n), options.rounds))
                print(name, int(n), found[-1]["seconds"], found[-1]["ratio"], flush=True)
    record.write(
        options.output, "jax_models", describe(found), found,
        record.about(
            seed=SEED, seconds=time.perf_counter() - began, packages=("jax", "jaxlib", "jaxopt", "optimistix")
        ),
    )  # fmt: skip


if __name__ == "__main__":
    main()
