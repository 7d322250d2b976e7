"""A Dask scheduler and workers in processes of their own, over loopback: the solve ends right or says what is wrong.

The tests share one cluster and run in this order; the last ones destroy it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest

import problm
from problm.distributed import dask_cluster, worker

distributed = pytest.importorskip("distributed", reason="Dask is not installed")

START = np.array([1.0, 1.0, 0.0])
PARTS, ROWS = 6, 20_000


def decay(t, x, y):
    return t[0] * np.exp(-t[1] * x) + t[2] - y


def part(i):
    rng = np.random.default_rng(i)
    x = rng.uniform(0, 5, ROWS)
    return x, 2.0 * np.exp(-0.7 * x) + 0.3 + 0.1 * rng.standard_normal(ROWS)


def fit(client=None, **options):
    data = problm.Partitions([partial(part, i) for i in range(PARTS)])
    return problm.least_squares(decay, START, data=data, client=client, initial_batch=30_000, **options)


class Processes:
    """A scheduler, and workers that come and go."""

    def __init__(self, folder):
        self._file = str(folder / "scheduler.json")
        self.workers = []
        self.scheduler = self._start(
            "dask_scheduler", "--port", "0", "--host", "127.0.0.1", "--dashboard-address", ":0"
        )
        self._wait(self.scheduler, lambda: os.path.exists(self._file) and os.path.getsize(self._file))
        with open(self._file) as file:
            self.address = json.load(file)["address"]

    def add(self, client, count=1):
        known = len(client.ncores())
        self.workers += [
            self._start("dask_worker", "--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1")
            for _ in range(count)
        ]
        client.wait_for_workers(known + count, timeout=60)

    def kill(self, process):
        process.send_signal(signal.SIGKILL)
        process.wait()

    def close(self):
        for process in (*self.workers, self.scheduler):
            self.kill(process)

    def _start(self, module, *options):
        command = [sys.executable, "-m", f"distributed.cli.{module}", "--scheduler-file", self._file, *options]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=os.getcwd())

    def _wait(self, process, ready):
        limit = time.monotonic() + 60
        while not ready():
            assert process.poll() is None
            assert time.monotonic() < limit
            time.sleep(0.05)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = Processes(tmp_path_factory.mktemp("dask"))
    try:
        with distributed.Client(made.address) as client:
            made.add(client, 2)
        yield made
    finally:
        made.close()


@pytest.fixture
def client(cluster):
    made = distributed.Client(cluster.address, timeout=20)
    yield made
    made.close(timeout=1)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(dask_cluster, "_PATIENCE", 1.5)


def at(iteration, action):
    """A callback that acts once."""
    done = []

    def callback(state):
        if state.iteration >= iteration and not done:
            done.append(True)
            action()

    return callback


def test_the_bits_of_a_local_solve_while_workers_come_and_go(cluster, client):
    local = fit()
    assert local.certified
    ours = fit(client, callback=at(1, lambda: cluster.add(client)))
    assert ours.x.tobytes() == local.x.tobytes()
    assert len(client.ncores()) == 3
    ours = fit(client, callback=at(1, lambda: cluster.kill(cluster.workers[0])))
    assert ours.x.tobytes() == local.x.tobytes()
    assert ours.history.cost == local.history.cost


def test_the_address_of_a_scheduler(cluster):
    assert fit(cluster.address).x.tobytes() == fit().x.tobytes()


def test_another_version_on_the_workers(client):
    client.run(setattr, worker, "__version__", "0.0.1")
    try:
        with pytest.raises(RuntimeError, match=r"a worker has problm 0\.0\.1 instead of .*install the same"):
            fit(client)
    finally:
        client.run(setattr, worker, "__version__", problm.__version__)
    assert fit(client).certified


def test_an_error_in_the_function(client):
    here = os.getpid()

    def wrong(t, x, y):
        if os.getpid() != here:
            raise KeyError("not today")
        return decay(t, x, y)

    data = problm.Partitions([partial(part, i) for i in range(PARTS)])
    with pytest.raises(KeyError, match="not today"):
        problm.least_squares(wrong, START, data=data, client=client)


def test_the_client_is_closed(client):
    with pytest.raises(ConnectionError, match="client was closed during the solve"):
        fit(client, callback=at(1, client.close))


@pytest.mark.usefixtures("impatient")
def test_all_workers_are_lost(cluster, client):
    def kill():
        for process in cluster.workers:
            cluster.kill(process)

    with pytest.raises(ConnectionError, match=r"no workers for 1\.5 s"):
        fit(client, callback=at(1, kill))


@pytest.mark.usefixtures("impatient")
def test_the_scheduler_is_lost(cluster, client):
    cluster.add(client)
    with pytest.raises(ConnectionError, match="scheduler"):
        fit(client, callback=at(1, lambda: cluster.kill(cluster.scheduler)))
