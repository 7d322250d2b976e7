"""A fit on a Dask cluster of this machine: agreement with a single process, overhead of a round, workers killed.

    python bench/cluster.py --rows 1e8 --workers 2 4

The rows are made by the workers themselves, 16 bytes each. Reported for each number of workers: the largest relative
difference of theta to a single process (plain LM takes the same steps, so it agrees to rounding; growing batches draw
other rows, so they agree to the tolerance), seconds, rounds, the time of a round that computes nothing, and whether
theta has the same bits when one and then another worker is killed with SIGKILL in the middle.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from typing import Any

import numpy as np

import problm
from problm import shards

TRUTH = (2.0, 0.7, 0.3)
START = (1.0, 1.0, 0.0)
PART = 5_000_000


def part(i: int, rows: int) -> np.ndarray:
    rng = np.random.default_rng([7, i])
    x = rng.uniform(0.0, 5.0, rows)
    return np.stack([x, TRUTH[0] * np.exp(-TRUTH[1] * x) + TRUTH[2] + 0.1 * rng.standard_normal(rows)])


def lazy(rows: int) -> tuple[Any, Any]:
    import dask
    import dask.array as da

    sizes = [min(PART, rows - lo) for lo in range(0, rows, PART)]
    blocks = [dask.delayed(part)(i, size) for i, size in enumerate(sizes)]
    columns = [
        da.concatenate([da.from_delayed(b[j], (s,), np.float64) for b, s in zip(blocks, sizes, strict=True)])
        for j in range(2)
    ]
    return columns[0], columns[1]


def fit(data: tuple[Any, Any], **options: Any) -> Any:
    from problm.curves import fit as curve

    return curve(problm.formula("a*exp(-b*x) + c"), *data, START, **options)


def difference(a: Any, b: Any) -> float:
    return float(np.abs(a.x / b.x - 1.0).max())


def empty_round(client: Any, data: tuple[Any, Any]) -> float:
    """Median milliseconds of a round over all shards that has next to nothing to compute."""
    from problm.distributed import distributed_problem
    from problm.losses import Loss
    from problm.rows import FunctionRows

    def nothing(theta: Any, x: Any, y: Any) -> Any:
        return np.zeros(len(x))

    def model_of(few: Any) -> Any:
        return FunctionRows(nothing, "2-point", 3, Loss.named("linear"))

    problem = distributed_problem(model_of, data, client, 0)
    request = problem.request(np.array(START), level=0)
    problem.ask(shards.cost, request)
    times = []
    for _ in range(30):
        began = time.perf_counter()
        problem.ask(shards.cost, request)
        times.append(time.perf_counter() - began)
    problem.close()
    return 1e3 * float(np.median(times))


def killed(client: Any, data: tuple[Any, Any]) -> tuple[Any, int]:
    """A fit during which two workers die, one after the other."""
    dead: list[int] = []

    def kill(state: Any) -> None:
        if len(dead) < 2 and 2 * state.batch_size > 65_536 and state.iteration >= 5 + 2 * len(dead):
            pid = sorted(client.run(os.getpid).values())[0]
            os.kill(pid, signal.SIGKILL)
            dead.append(pid)

    return fit(data, client=client, callback=kill), len(set(dead))


def main() -> None:
    from distributed import Client, LocalCluster

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e8)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--no-kill", action="store_true")
    options = parser.parse_args()
    rows = int(options.rows)
    parts = [part(i, min(PART, rows - lo)) for i, lo in enumerate(range(0, rows, PART))]
    memory = tuple(np.concatenate([p[j] for p in parts]) for j in range(2))
    del parts
    plain, grown = fit(memory, method="lm"), fit(memory)
    del memory
    print(json.dumps({"rows": rows, "single process": {"x": grown.x.tolist(), "seconds": round(grown.seconds, 2)}}))
    for workers in options.workers:
        with (
            LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            data = client.persist(lazy(rows))
            same = fit(data, client=client, method="lm")
            began = time.perf_counter()
            ours = fit(data, client=client)
            report = {
                "workers": workers,
                "difference, plain LM": difference(same, plain),
                "difference, growing batches": difference(ours, grown),
                "seconds": round(time.perf_counter() - began, 2),
                "seconds of the solve": round(ours.seconds, 2),
                "iterations": ours.nit,
                "rounds": ours.problem.rounds,
                "batch sizes": sorted(set(ours.history.batch_size)),
                "milliseconds of an empty round": round(empty_round(client, data), 2),
            }
            if not options.no_kill:
                survived, dead = killed(client, data)
                report["workers killed"] = dead
                report["same bits"] = survived.x.tobytes() == ours.x.tobytes()
            print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
