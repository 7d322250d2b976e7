"""Faults other than signals, for `bench.studies.faults`: a full disk, files that change, threads, processes, workers.

Each function tries its fault many times at random moments and returns what came of it, by name; ``wrong`` counts
answers that differ from those of an undisturbed solve, half files under final names, and errors that name no file.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import problm
from problm.solver.checkpoint import state
from problm.support.files import write_atomically

START = [1.0, 0.2, 0.0]
ROWS = 200_000
Data = tuple[Any, Any]


def curve(theta: Any, x: Any, y: Any) -> Any:
    return theta[0] * np.exp(-theta[1] * x) + theta[2] - y


def bits(fit: Any) -> str:
    return f"{fit.x.tobytes().hex()} {fit.cost!r} {fit.nit} {fit.status.name}"


def rows(seed: int, count: int = ROWS) -> Data:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 4.0, count)
    return x, 2.5 * np.exp(-1.3 * x) + 0.5 + 0.1 * rng.standard_normal(count)


def full_disk(count: int, folder: Path, rng: random.Random) -> dict[str, Any]:
    """Checkpoints on a disk that is full from a random byte on; then, with room, the solve goes on from what is there.

    The limit is one on the size of files (RLIMIT_FSIZE): a write fails in its middle, as on a full disk.
    """
    import resource

    data, path = rows(0, 20_000), folder / "full.npz"
    expected = bits(problm.least_squares(curve, START, data=data))
    outcomes: Counter[str] = Counter()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for _ in range(count):
        path.unlink(missing_ok=True)
        stop = rng.randrange(1, 4)
        problm.least_squares(curve, START, data=data, checkpoint=path, checkpoint_every=0.0, max_iter=stop)
        before = path.read_bytes()
        resource.setrlimit(resource.RLIMIT_FSIZE, (rng.randrange(1, len(before) // 2), hard))
        written = list[Any]()

        def write(*args: Any, written: list[Any] = written) -> None:
            written.append(args)
            write_atomically(*args)

        try:
            with mock.patch.object(state, "write_atomically", write):
                problm.least_squares(curve, START, data=data, checkpoint=path, checkpoint_every=0.0)
            outcome = "wrong" if written else "ended without another checkpoint"
        except OSError as error:
            outcome = "an error that names the file" if path.name in str(error) else "wrong"
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        whole = path.read_bytes() == before and not list(folder.glob(".*.part"))
        again = bits(problm.least_squares(curve, START, data=data, checkpoint=path))
        outcomes[outcome if whole and again == expected else "wrong"] += 1
    path.unlink(missing_ok=True)
    return {"full disks": count, "wrong": 0, **outcomes}


def changing_files(count: int, folder: Path, rng: random.Random) -> dict[str, Any]:
    """Files that are changed, cut short or replaced by others at a random moment of a solve that reads them."""
    names = [folder / "x.npy", folder / "y.npy"]
    mine, other = rows(1, 100_000), rows(2, 100_000)

    def write(data: Data) -> None:
        for path, column in zip(names, data, strict=True):
            np.save(path, column)

    def changed(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(rng.randrange(128, path.stat().st_size - 8))
            file.write(b"\x01")

    def cut(path: Path) -> None:
        os.truncate(path, rng.randrange(0, path.stat().st_size))

    def replaced(path: Path) -> None:
        new = path.with_name("new.npy")
        np.save(new, other[0])
        new.replace(path)

    def solve(callback: Callable[[Any], None]) -> Any:
        return problm.least_squares(
            curve, START, data=tuple(names), max_memory="1MB", acceptance="full", callback=callback
        )

    write(mine)
    iterations = solve(lambda state: None).nit
    expected = bits(solve(lambda state: None))
    outcomes: Counter[str] = Counter()
    for k in range(count):
        write(mine)
        change, moment = (changed, cut, replaced)[k % 3], rng.randrange(1, iterations)

        def disturb(state: Any, change: Any = change, moment: int = moment) -> None:
            if state.iteration == moment:
                change(rng.choice(names))

        try:
            found = solve(disturb)
            outcomes["ended before" if bits(found) == expected else "wrong"] += 1
        except (OSError, ValueError) as error:
            named = any(path.name in str(error) for path in names)
            outcomes["an error that names the file" if named else "wrong"] += 1
    return {"changes": count, "wrong": 0, **outcomes}


def one_solve(seed: int) -> str:
    """One of several kinds of solves, by its number."""
    data = rows(seed, 20_000)
    if seed % 3 == 0:
        return bits(problm.least_squares(problm.formula("a*exp(-b*x) + c"), START, data=data))
    if seed % 3 == 1:
        return bits(problm.least_squares(curve, START, data=data, loss="huber", f_scale=0.1, rng=seed))
    return bits(problm.least_squares(curve, START, data=data, acceptance="full"))


def at_once(kind: str, workers: int, count: int) -> dict[str, Any]:
    """Solves in threads or processes at once: the bits of each are those that it has alone."""
    seeds = list(range(count))
    alone = [one_solve(seed) for seed in seeds]
    pool: Any
    if kind == "threads":
        pool = ThreadPoolExecutor(workers)
    else:
        pool = ProcessPoolExecutor(workers, get_context("spawn"))
    with pool:
        found = list(pool.map(one_solve, seeds))
    return {f"solves in {workers} {kind}": count, "wrong": sum(a != b for a, b in zip(found, alone, strict=True))}


def workers_lost(count: int, rng: random.Random) -> dict[str, Any]:
    """Workers of a cluster of three, killed at a random iteration."""
    import dask.array as da

    import distributed

    x, y = rows(3)
    lazy = (da.from_array(x, chunks=20_000), da.from_array(y, chunks=20_000))
    outcomes: Counter[str] = Counter()

    def solve(client: Any, callback: Callable[[Any], None] | None = None) -> Any:
        return problm.least_squares(curve, START, data=lazy, client=client, initial_batch=40_000, callback=callback)

    expected: str | None = None
    for k in range(count + 1):
        with (
            distributed.LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=":0") as cluster,
            distributed.Client(cluster) as client,
        ):
            if expected is None:
                whole = solve(client)
                expected, iterations = bits(whole), whole.nit
                continue
            moment, killed = rng.randrange(1, max(2, iterations)), list[int]()

            def kill(state: Any, client: Any = client, moment: int = moment, killed: list[int] = killed) -> None:
                if not killed and state.iteration >= moment:
                    killed.append(rng.choice(sorted(client.run(os.getpid).values())))
                    os.kill(killed[0], signal.SIGKILL)

            same = bits(solve(client, kill)) == expected
            outcomes["the same bits" if same else "wrong"] += 1
        time.sleep(0.1 if k else 0.0)
    return {"workers lost": count, "wrong": 0, **outcomes}
