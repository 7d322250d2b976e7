"""Limits of a solve of 10^12 rows on 1000 workers: a simulation of its rounds with measured latencies.

    python -m bench.studies.rounds [-o bench/results]     # measure on a LocalCluster, then simulate
    python -m bench.studies.rounds --task-ms 0.4 --call-ms 6 --row-ns 10 --answer-us 30   # with numbers from elsewhere

Measured: the time of a round of k empty tasks, k = 1..256, whose slope is what the client and the scheduler take for a
task (they handle one after the other); the spread of single calls; what the client takes to read and add the answer of
a partition; and the time of a row in the compiled kernel. Other work on the machine only adds to these times, so the
fastest of them count. Assumed: a network of 10 Gbit/s at the client.

Simulated: the rounds of a solve (a look at all partitions; the head; levels by the growth rule, a linearisation and a
step at each; two passes over everything), where a worker's call takes latency x a heavy-tailed factor plus its rows, a
round waits for the slowest, the scheduler sends tasks one by one, and the client adds up the answers. Variants: many
partitions a worker; stragglers; calls sent twice when they are late; relays that send to 32 workers each and add up
their answers. Writes ``rounds.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import math
import pickle
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..harness import record
from ..harness.summary import markdown_table

SEED = 0
RUNS = 200


@dataclass(frozen=True)
class Machine:
    task: float
    """Seconds of client and scheduler per task."""
    call: float
    """Median seconds of a call and its answer."""
    spread: float
    """Standard deviation of the logarithm of a call's time."""
    row: float
    """Seconds per linearised row."""
    answer: float
    """Seconds of the client to read and add the answer of a partition."""
    size: int
    """Bytes of the answer of a partition."""
    bandwidth: float = 1.25e9
    """Bytes per second that reach the client."""
    workers: int = 1000
    partitions: int = 8
    """Number of partitions per worker."""
    straggler: float = 0.0
    """Share of calls that take ten times as long: a worker that swaps, or shares its cores."""
    fan_out: int = 0
    """Number of workers behind a relay; 0: the scheduler sends to all workers itself."""
    twice: bool = False
    """Whether calls that take three times the median are also sent to another worker."""


def levels(n: float, first: float = 65_536.0) -> list[float]:
    """Batch sizes beyond the head, in equal factors of at most 16, up to an eighth of n; then n."""
    leaps = math.ceil(math.log(n / 8 / first) / math.log(16.0))
    factor = (n / 8 / first) ** (1.0 / leaps)
    return [first * factor**k for k in range(1, leaps + 1)] + [n]


def round_time(m: Machine, rows: float, rng: np.random.Generator) -> float:
    """Seconds of one round over ``rows`` rows, spread evenly."""
    call = m.call * np.exp(m.spread * rng.standard_normal(m.workers))
    work = rows / m.workers * m.row * np.exp(0.05 * rng.standard_normal(m.workers))
    slow = np.where(rng.random(m.workers) < m.straggler, 10.0, 1.0)
    took = (call + work) * slow
    if m.twice:
        again = 3.0 * np.median(took) + m.call * np.exp(m.spread * rng.standard_normal(m.workers)) + work
        took = np.minimum(took, again)
    each = m.answer + m.size / m.bandwidth
    if m.fan_out:
        relays = -(-m.workers // m.fan_out)
        sent = m.task * (np.arange(relays)[:, None] + 1.0 + np.arange(m.fan_out)[None, :])
        adding = each * (m.fan_out * m.partitions + relays)
        return float((sent.ravel()[: m.workers] + m.call + took).max()) + adding
    return float((m.task * np.arange(1, m.workers + 1) + took).max()) + each * m.workers * m.partitions


def solve_time(m: Machine, n: float, rng: np.random.Generator) -> tuple[float, float, float, int]:
    """Seconds of the head, of the batches and of the full passes; number of rounds."""
    # A look at all partitions, with a task each, and the head, with a task per worker.
    sent = m.fan_out + -(-m.workers // m.fan_out) if m.fan_out else m.workers
    head, early, full = m.task * sent * (m.partitions + 1) + 2.0 * m.call, 0.0, 0.0
    rounds = 2
    for size in levels(n):
        # A linearisation of the new rows and a step with its hold-out block (twice the rows, three evaluations); on all
        # rows a linearisation and a step, fused.
        for rows in (size, size) if size == n else (size, 2.0 * size):
            seconds = round_time(m, rows, rng)
            rounds += 1
            if size == n:
                full += seconds
            else:
                early += seconds
    return head, early, full, rounds


def measure(d: int) -> Machine:
    """Latencies of a LocalCluster with two workers, and a row of the compiled kernel, on this machine."""
    import problm
    from distributed import Client, LocalCluster
    from problm.api.curve_fit import fit

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        client.gather([client.submit(abs, -1, pure=False) for _ in range(64)])
        fastest = {}
        for k in (1, 4, 16, 64, 256):
            times = []
            for _ in range(25):
                began = time.perf_counter()
                client.gather([client.submit(abs, -1, pure=False) for _ in range(k)])
                times.append(time.perf_counter() - began)
            fastest[k] = min(times)
        slope, _ = np.polyfit(list(fastest), list(fastest.values()), 1)
        single = np.sort([_single(client) for _ in range(300)])
    x = np.random.default_rng(SEED).uniform(0, 5, 2_000_000)
    y = 2.0 * np.exp(-0.7 * x) + 0.3 + 0.1 * np.sin(1e4 * x)
    result = fit(problm.formula("a*exp(-b*x) + c"), x, y, (1.0, 1.0, 0.0), threads=1)
    theta, problem = result.x, result.problem
    passes = []
    for _ in range(5):
        began = time.process_time()
        problem.linearize(theta, 0, len(x), outer=False, costs=None)
        passes.append((time.process_time() - began) / len(x))
    call, spread = float(single[len(single) // 10]), float(np.log(single[: len(single) // 2]).std())
    answer, size = _answers(d)
    return Machine(float(slope), call, spread, min(passes), answer, size)


def _single(client: Any) -> float:
    began = time.perf_counter()
    client.submit(abs, -1, pure=False).result()
    return time.perf_counter() - began


def _answers(d: int) -> tuple[float, int]:
    """Seconds to read and add an answer to a trial step, and its bytes, by those of a thousand partitions."""
    from problm.distributed import worker as shards
    from problm.linalg.normal import Normal
    from problm.sampling.moments import Moments
    from problm.support.reduction import add_pairwise

    moments = Moments.of(np.arange(10.0), extremes=True)
    parts = [
        shards.Trial(moments, moments, Normal(10, 1.0, np.ones(d), np.full((d, d), 1.0 + i), np.ones((d, d))))
        for i in range(1000)
    ]
    sent = pickle.dumps(parts, protocol=5)
    times = []
    for _ in range(5):
        began = time.process_time()
        found = pickle.loads(sent)  # noqa: S301 - made here
        add_pairwise([part.normal for part in found])
        shards.merge([part.inside for part in found])
        shards.merge([part.outside for part in found])
        times.append((time.process_time() - began) / len(parts))
    return min(times), len(sent) // len(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e12)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--parameters", type=int, default=8)
    parser.add_argument("--task-ms", type=float)
    parser.add_argument("--call-ms", type=float)
    parser.add_argument("--row-ns", type=float)
    parser.add_argument("--answer-us", type=float, default=30.0)
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    options = parser.parse_args()
    began = time.perf_counter()
    if options.task_ms is None:
        machine = measure(options.parameters)
    else:
        given = options.task_ms / 1e3, options.call_ms / 1e3, 0.3, options.row_ns / 1e9, options.answer_us / 1e6
        machine = Machine(*given, _answers(options.parameters)[1])
    machine = replace(machine, workers=options.workers)
    slow = replace(machine, straggler=1e-3)
    many = round(options.rows / options.workers / 4e6)
    variants = {
        "one task a worker": machine,
        f"{many} partitions of a worker instead of {machine.partitions}": replace(machine, partitions=many),
        "1 in 1000 calls takes ten times as long": slow,
        "the same, late calls sent twice": replace(slow, twice=True),
        "relays of 32 workers": replace(machine, fan_out=32),
        "relays, 1 in 1000 calls late and sent twice": replace(slow, fan_out=32, twice=True),
    }
    rows, found = [], {}
    for name, variant in variants.items():
        runs = np.array([solve_time(variant, options.rows, np.random.default_rng([SEED, i])) for i in range(RUNS)])
        head, early, full, rounds = np.median(runs, axis=0).tolist()
        slowest = float(np.quantile(runs[:, :3].sum(axis=1), 0.95))
        rows.append([name, head, early, full, slowest])
        found[name] = {"head": head, "batches": early, "everything": full, "95 % within": slowest, "rounds": rounds}
    work = machine.row * options.rows / options.workers
    text = [
        f"# {options.rows:.0e} rows on {options.workers} workers, simulated",
        markdown_table(
            ["measured on this machine", ""],
            [
                ["client and scheduler, for a task", f"{1e3 * machine.task:.3g} ms"],
                ["a call and its answer", f"{1e3 * machine.call:.3g} ms"],
                ["spread of the logarithm of calls", f"{machine.spread:.2g}"],
                ["client, for the answer of a partition", f"{1e6 * machine.answer:.3g} us"],
                [f"bytes of such an answer, {options.parameters} parameters", machine.size],
                ["a row, linearised, on one core", f"{1e9 * machine.row:.3g} ns"],
            ],
        ),
        f"A pass over everything is {work:.3g} s of arithmetic for each worker. Seconds, medians of {RUNS} simulated "
        f"solves of {found['one task a worker']['rounds']:.0f} rounds:",
        markdown_table(["", "head", "batches", "two passes over everything", "95 % of solves within"], rows),
    ]
    record.write(
        options.output, "rounds", text, {"machine": asdict(machine), "simulated": found},
        record.about(seed=SEED, seconds=time.perf_counter() - began, packages=("dask", "distributed")),
    )  # fmt: skip


if __name__ == "__main__":
    main()
