"""Wall time of the default on one thread over that on all cores: a part of `bench.studies.like_for_like`.

It runs in a process of its own, whatever limits the study has set for its threads and cores.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import problm
from problm.api.curve_fit import fit
from problm.support.threads import available_threads

from ..data import problems, stand_ins
from ..data.instances import FORMULAS, poses_near
from ..harness import record

LIMITS = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
"""Variables that limit the threads of the default; those of a BLAS stay, so that it uses one in both columns."""
STARTS = 5


@problm.model
def peak(x: float, height: float, center: float, width: float, floor: float) -> float:
    """A compiled model in Python."""
    u = (x - center) / width
    return height / (1.0 + u * u) + floor


def cases(n: int, seed: int) -> Iterator[tuple[str, list[Callable[[int | None], Any]]]]:
    """Names, and calls for a number of threads, one for each start."""
    for name, make in (
        ("exponential", problems.exponential),
        ("double Gaussian + line", problems.double_gaussian),
        ("damped sine, heavy tails", problems.damped_sine),
    ):
        made, formula = make(n, seed, starts=STARTS), problm.formula(FORMULAS[name])
        yield (
            f"formula: {name}",
            [lambda t, m=formula, d=made.data, s=s: fit(m, *d, s, threads=t).x for s in made.starts],
        )
    rng = np.random.default_rng([seed, n])
    x = rng.uniform(0.0, 10.0, n)
    truth = np.array([3.0, 4.0, 0.7, 0.5])
    y = peak(x, *truth) + 0.2 * rng.standard_normal(n)
    starts = truth * (1.0 + 0.2 * rng.uniform(-1.0, 1.0, (STARTS, 4)))
    yield "compiled model: peak", [lambda t, s=s: fit(peak, x, y, s, threads=t).x for s in starts]
    views = stand_ins.matches(seed, n)
    near = poses_near(np.random.default_rng(seed), views.R, views.t, STARTS, 0.2, 0.3)

    def refine(threads: int | None, start: Any) -> Any:
        initial = start[:9].reshape(3, 3), start[9:]
        found = problm.essential_matrix(views.x1, views.x2, views.K, robust=False, initial=initial, threads=threads)
        return found.result.x

    yield "essential matrix, refined", [lambda t, s=s: refine(t, s) for s in near]


def rows(sizes: list[int], seed: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Least wall times of both, in turn, and whether the bits were the same."""
    for n in sizes:
        for name, calls in cases(n, seed):
            runs = []
            for call in calls:
                least, ends = {1: math.inf, None: math.inf}, []
                for threads in (1, None) * repeats:
                    began = time.perf_counter()
                    ends.append(np.asarray(call(threads)))
                    least[threads] = min(least[threads], time.perf_counter() - began)
                same = all(np.array_equal(ends[0], end) for end in ends)
                runs.append({"one": least[1], "all": least[None], "ratio": least[1] / least[None], "same": same})
            ratio = record.spread([r["ratio"] for r in runs])
            yield {
                "problem": f"threads: {name}", "n": n, "threads": available_threads(), "ratio": ratio, "runs": runs,
            }  # fmt: skip


def measured(sizes: list[int], seed: int, repeats: int) -> list[dict[str, Any]]:
    """The rows, from a process of its own that may use every core of the machine; none if there is only one."""
    if (os.cpu_count() or 1) < 2 or not sizes:
        return []
    done = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import main; main()", str(seed), str(repeats), *map(str, sizes)],
        env={name: value for name, value in os.environ.items() if name not in LIMITS},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> None:
    """Print the rows as JSON, for the seed, the repeats and the sizes of the command line."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))  # also if the study was pinned to one core
    seed, repeats, *sizes = map(int, sys.argv[1:])
    for row in rows(sizes, seed, repeats):
        print(json.dumps(row), flush=True)
