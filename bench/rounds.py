"""What limits a solve of 10^12 rows on 1000 workers: a simulation of its rounds, with latencies measured here.

    python bench/rounds.py                # measure on a LocalCluster, then simulate
    python bench/rounds.py --task-ms 0.4 --call-ms 6 --row-ns 10   # with numbers from elsewhere

Measured: the time of a round of k empty tasks, k = 1..256, whose slope is what the client and the scheduler take for a
task (they handle one after the other) and whose intercept is the latency; the spread of single calls; and the time of a
row in the compiled kernel. Other work on the machine only adds to these times, so the fastest tenth of them counts.
Simulated: the rounds of a solve (levels by the growth rule, a linearisation and a step at
each, two passes over everything), where a worker's call takes latency x a heavy-tailed factor plus its rows, a round
waits for the slowest, and the scheduler sends tasks one by one. Variants: one task a worker; relays that fan out to
32 workers each; and calls sent twice when they are late.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Machine:
    task: float
    """Seconds of client and scheduler for a task."""
    call: float
    """Median seconds of a call and its answer."""
    spread: float
    """Standard deviation of the logarithm of a call's time."""
    row: float
    """Seconds of a row, linearised."""
    workers: int = 1000
    straggler: float = 0.0
    """Share of calls that take ten times as long: a worker that swaps, or shares its cores."""
    fan_out: int = 0
    """Workers behind a relay; 0: the scheduler sends to all itself."""
    twice: bool = False
    """Calls that take three times the median are sent to another worker too."""


def levels(n: float, first: float = 65_536.0) -> list[float]:
    """Batch sizes beyond the head, in equal factors of at most 32, up to an eighth of n; then n."""
    leaps = math.ceil(math.log(n / 8 / first) / math.log(32.0))
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
    if m.fan_out:
        relays = -(-m.workers // m.fan_out)
        sent = m.task * (np.arange(relays)[:, None] + 1.0 + np.arange(m.fan_out)[None, :])
        return float((sent.ravel()[: m.workers] + m.call + took).max())
    return float((m.task * np.arange(1, m.workers + 1) + took).max())


def solve_time(m: Machine, n: float, rng: np.random.Generator) -> tuple[float, float, int]:
    """Seconds to the last batch, seconds of the passes over everything, rounds."""
    early = full = 0.0
    rounds = 0
    for size in levels(n):
        # A linearisation of what is new and a step with its hold-out block (twice the rows, three evaluations); on
        # everything a linearisation and a step, fused.
        for rows in (size, size) if size == n else (size, 2.0 * size):
            seconds = round_time(m, rows, rng)
            rounds += 1
            if size == n:
                full += seconds
            else:
                early += seconds
    return early, full, rounds


def measure() -> Machine:
    """Latencies of a LocalCluster with two workers, and a row of the compiled kernel, on this machine."""
    from distributed import Client, LocalCluster

    import problm
    from problm.curves import fit

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        client.gather([client.submit(abs, -1, pure=False) for _ in range(64)])
        fastest = {}
        for k in (1, 4, 16, 64, 256):
            times = []
            for _ in range(15):
                began = time.perf_counter()
                client.gather([client.submit(abs, -1, pure=False) for _ in range(k)])
                times.append(time.perf_counter() - began)
            fastest[k] = float(np.quantile(times, 0.1))
        slope, _ = np.polyfit(list(fastest), list(fastest.values()), 1)
        single = np.sort([_single(client) for _ in range(300)])
    x = np.random.default_rng(0).uniform(0, 5, 2_000_000)
    y = 2.0 * np.exp(-0.7 * x) + 0.3 + 0.1 * np.sin(1e4 * x)
    result = fit(problm.formula("a*exp(-b*x) + c"), x, y, (1.0, 1.0, 0.0), threads=1)
    theta, problem = result.x, result.problem
    passes = []
    for _ in range(5):
        began = time.process_time()
        problem.linearize(theta, 0, len(x), outer=False, costs=None)
        passes.append((time.process_time() - began) / len(x))
    call = float(single[len(single) // 10])
    return Machine(float(slope), call, float(np.log(single[: len(single) // 2]).std()), min(passes))


def _single(client: object) -> float:
    began = time.perf_counter()
    client.submit(abs, -1, pure=False).result()  # type: ignore[attr-defined]
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e12)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--parameters", type=int, default=8)
    parser.add_argument("--task-ms", type=float)
    parser.add_argument("--call-ms", type=float)
    parser.add_argument("--row-ns", type=float)
    options = parser.parse_args()
    if options.task_ms is None:
        machine = measure()
    else:
        machine = Machine(options.task_ms / 1e3, options.call_ms / 1e3, 0.3, options.row_ns / 1e9)
    machine = replace(machine, workers=options.workers)
    d = options.parameters
    answer = 8 * (2 * (d * d + d + 1) + 12)
    measured = {
        "task ms": round(1e3 * machine.task, 3),
        "call ms": round(1e3 * machine.call, 2),
        "spread of the logarithm": round(machine.spread, 2),
        "row ns": round(1e9 * machine.row, 1),
        "bytes of an answer": answer,
        "bytes of a round": answer * options.workers,
    }
    print(json.dumps({"measured": measured}, indent=1))
    variants = {
        "one task a worker": machine,
        "1 in 1000 calls is ten times slower": replace(machine, straggler=1e-3),
        "the same, late calls sent twice": replace(machine, straggler=1e-3, twice=True),
        "relays of 32 workers": replace(machine, fan_out=32),
        "relays, late calls sent twice": replace(machine, fan_out=32, straggler=1e-3, twice=True),
    }
    for name, variant in variants.items():
        runs = [solve_time(variant, options.rows, np.random.default_rng(seed)) for seed in range(200)]
        early, full, rounds = (float(np.median([r[i] for r in runs])) for i in range(3))
        slowest = float(np.quantile([r[0] + r[1] for r in runs], 0.95))
        told = f"batches {early:6.1f} s, everything {full:6.1f} s, {rounds:.0f} rounds, 95 % within {slowest:.1f} s"
        print(f"{name:40s} {told}")


if __name__ == "__main__":
    main()
