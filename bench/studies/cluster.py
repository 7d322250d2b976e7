"""A fit on a Dask cluster of this machine: agreement with a single process, overhead of a round, workers killed.

    python -m bench.studies.cluster [--rows 1e8] [--workers 2 4] [--repeats 3] [-o bench/results]

The rows are made by the workers themselves, 16 bytes each. Reported for each number of workers: the largest relative
difference of theta to a single process, for plain LM, for growing batches over the same partitions, and for growing
batches over plain arrays (which draw other rows first, so that they agree to the tolerance of the certificate);
seconds, rounds, the time of a round that computes nothing; and whether theta has the same bits when one and then
another worker is killed with SIGKILL in the middle of the solve. Writes ``cluster.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

import problm
from problm.distributed import worker as shards

from ..harness import record
from ..harness.summary import markdown_table

TRUTH = (2.0, 0.7, 0.3)
START = (1.0, 1.0, 0.0)
PART = 5_000_000
SEED = 7


def part(i: int, rows: int) -> np.ndarray:
    """Partition i: x and y, (2, rows)."""
    rng = np.random.default_rng([SEED, i])
    x = rng.uniform(0.0, 5.0, rows)
    return np.stack([x, TRUTH[0] * np.exp(-TRUTH[1] * x) + TRUTH[2] + 0.1 * rng.standard_normal(rows)])


def sizes(rows: int) -> list[int]:
    each = min(PART, -(-rows // 8))
    return [min(each, rows - lo) for lo in range(0, rows, each)]


def lazy(rows: int) -> tuple[Any, Any]:
    """The columns as Dask arrays, whose lineage is `part`."""
    import dask
    import dask.array as da

    lengths = sizes(rows)
    blocks = [dask.delayed(part)(i, size) for i, size in enumerate(lengths)]
    columns = [
        da.concatenate([da.from_delayed(b[j], (s,), np.float64) for b, s in zip(blocks, lengths, strict=True)])
        for j in range(2)
    ]
    return columns[0], columns[1]


def in_memory(rows: int) -> tuple[np.ndarray, np.ndarray]:
    columns = np.empty(rows), np.empty(rows)
    lo = 0
    for i, size in enumerate(sizes(rows)):
        for column, values in zip(columns, part(i, size), strict=True):
            column[lo : lo + size] = values
        lo += size
    return columns


def fit(data: tuple[Any, Any], **options: Any) -> Any:
    from problm.api.curve_fit import fit as curve

    return curve(problm.formula("a*exp(-b*x) + c"), *data, START, **options)


def difference(a: Any, b: Any) -> float:
    return float(np.abs(a.x / b.x - 1.0).max())


def empty_rounds(client: Any, data: tuple[Any, Any]) -> list[float]:
    """Milliseconds of rounds over all shards with almost no computation."""
    from problm.distributed.problem import distributed_problem
    from problm.losses import Loss
    from problm.problems.rows import FunctionModel

    def nothing(theta: Any, x: Any, y: Any) -> Any:
        return np.zeros(len(x))

    def model_of(few: Any) -> Any:
        return FunctionModel(nothing, "2-point", 3, Loss.named("linear"))

    problem = distributed_problem(model_of, data, client, 0)
    request = problem.request(np.array(START), level=0)
    problem.ask(shards.cost, request)
    times = []
    for _ in range(30):
        began = time.perf_counter()
        problem.ask(shards.cost, request)
        times.append(1e3 * (time.perf_counter() - began))
    problem.close()
    return times


def killed(client: Any, data: tuple[Any, Any]) -> tuple[Any, int, float]:
    """A fit during which two workers die, one after the other."""
    dead: list[int] = []
    alive = sorted(client.run(os.getpid).values())

    def kill(state: Any) -> None:
        if len(dead) < 2 and 2 * state.batch_size > 65_536:
            dead.append(alive[len(dead)])
            os.kill(dead[-1], signal.SIGKILL)

    began = time.perf_counter()
    result = fit(data, client=client, callback=kill)
    return result, len(set(dead)), time.perf_counter() - began


def measure(workers: int, rows: int, repeats: int, alone: dict[str, Any]) -> dict[str, Any]:
    """Run all fits on a cluster with this number of workers."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
        ) as cluster,
        Client(cluster) as client,
    ):
        from distributed import wait

        data = client.persist(lazy(rows))
        wait(data)
        fit(data, client=client)  # the workers load compiled code
        plain = fit(data, client=client, method="lm")
        seconds, ours = [], plain
        for _ in range(repeats):
            began = time.perf_counter()
            ours = fit(data, client=client)
            seconds.append(time.perf_counter() - began)
        survived, dead, took = killed(client, data)
        return {
            "workers": workers,
            "difference, plain LM": difference(plain, alone["plain"]),
            "difference, growing batches over the same partitions": difference(ours, alone["parts"]),
            "difference, growing batches over plain arrays": difference(ours, alone["grown"]),
            "seconds": record.spread(seconds),
            "seconds, plain LM": plain.seconds,
            "iterations": ours.nit,
            "rounds": ours.problem.rounds,
            "batch sizes": sorted(set(ours.history.batch_size)),
            "milliseconds of an empty round": record.spread(empty_rounds(client, data)),
            "workers killed": dead,
            "seconds with workers killed": took,
            "same bits": survived.x.tobytes() == ours.x.tobytes(),
        }


def describe(rows: int, alone: dict[str, Any], found: list[dict[str, Any]]) -> list[str]:
    def row(name: str, value: Any, target: str = "", met: Any = None) -> list[Any]:
        verdict = "" if met is None else record.verdict(all(met(f) for f in found))
        return [name, *(value(f) for f in found), target, verdict]

    same = "difference of theta to the single process"
    lm, parts, grown = (
        f"difference, {of}"
        for of in ("plain LM", "growing batches over the same partitions", "growing batches over plain arrays")
    )
    table = [
        row(f"{same}, plain LM", lambda f: f[lm], "1e-12", lambda f: f[lm] <= 1e-12),
        row(f"{same}, growing batches, same partitions", lambda f: f[parts], "1e-12", lambda f: f[parts] <= 1e-12),
        row(f"{same}, growing batches, plain arrays", lambda f: f[grown]),
        row("seconds, growing batches", lambda f: record.told(f["seconds"])),
        row("seconds, plain LM", lambda f: f["seconds, plain LM"]),
        row("iterations / rounds", lambda f: f"{f['iterations']} / {f['rounds']}"),
        row("milliseconds of an empty round", lambda f: record.told(f["milliseconds of an empty round"])),
        row("workers killed with SIGKILL in the solve", lambda f: f["workers killed"], "2",
            lambda f: f["workers killed"] == 2),
        row("the same bits then", lambda f: "yes" if f["same bits"] else "no", "yes", lambda f: f["same bits"]),
        row("seconds of that solve", lambda f: f["seconds with workers killed"]),
    ]  # fmt: skip
    return [
        "# A fit on a Dask cluster",
        f"`a*exp(-b*x) + c`, {rows:,} rows made by the workers, in {len(sizes(rows))} partitions; workers are "
        f"processes of this machine with a thread each. In a single process on all cores: "
        f"{alone['grown'].seconds:.2f} s, plain LM {alone['plain'].seconds:.2f} s. Median (least to greatest).",
        markdown_table(["", *(f"{f['workers']} workers" for f in found), "target", ""], table),
        "Iterations need fewer rounds than their number: those on the first batches run on the client.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e8)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    options = parser.parse_args()
    from distributed import Client, LocalCluster

    rows, began = int(options.rows), time.perf_counter()
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    memory = in_memory(rows)
    fit(memory)  # loads compiled code
    alone = {"plain": fit(memory, method="lm"), "grown": fit(memory)}
    for result in alone.values():
        result.problem = None  # releases the columns
    del memory
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        alone["parts"] = fit(lazy(rows), client=client)
        alone["parts"].problem = None
    print(f"single process: {time.perf_counter() - began:.0f} s", flush=True)
    found = []
    for workers in options.workers:
        found.append(measure(workers, rows, options.repeats, alone))
        print(f"{workers} workers: {time.perf_counter() - began:.0f} s", flush=True)
    record.write(
        options.output, "cluster", describe(rows, alone, found),
        {"rows": rows, "single process": {k: {"x": r.x.tolist(), "seconds": r.seconds} for k, r in alone.items()},
         "clusters": found},
        record.about(seed=SEED, seconds=time.perf_counter() - began, packages=("dask", "distributed")),
    )  # fmt: skip


if __name__ == "__main__":
    main()
