"""Threads, forks, process pools and event loops: a solve gives the same bits wherever it runs, and leaves no trace."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import problm

START = (1.0, 0.2, 0.0)


def table(seed=0, n=50_000):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 4, n)
    return x, 2.5 * np.exp(-1.3 * x) + 0.5 + 0.1 * rng.standard_normal(n)


def decay(theta, x, y):
    return theta[0] * np.exp(-theta[1] * x) + theta[2] - y


def compiled(seed, threads=2):
    """A formula, on two threads unless told otherwise."""
    fit = problm.least_squares(problm.formula("a*exp(-b*x) + c"), START, data=table(seed), rng=seed, threads=threads)
    return fit.x.tobytes(), fit.cost, fit.nit


def plain(seed):
    """A NumPy function, with a loss and a callback that keeps a state of its own."""
    seen = []
    fit = problm.least_squares(
        decay,
        START,
        data=table(seed, 5000),
        rng=seed,
        loss="huber",
        f_scale=0.2,
        callback=lambda s: seen.append(s.cost),
    )
    assert seen == fit.history.cost
    return fit.x.tobytes(), fit.cost, fit.nit


def pose(seed):
    """Robust two-view geometry."""
    from problm.vision.two_view.simulate import two_views

    views = two_views(400, inliers=0.7, seed=seed)
    found = problm.essential_matrix(views.x1, views.x2, views.K, views.K, rng=seed)
    return found.matrix.tobytes(), found.inliers.tobytes()


SOLVES = (compiled, plain, pose)
CASES = [(solve, seed) for seed in (1, 2, 3) for solve in SOLVES]


def run(case):
    solve, seed = case
    return solve(seed)


@pytest.fixture(scope="module")
def alone():
    """What every case gives when nothing else runs."""
    return [run(case) for case in CASES]


def test_many_threads_at_once(alone):
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, CASES * 3)) == alone * 3


def _in_a_process(code):
    """Run a program in a process that holds no threads of other tests (JAX's among them), and is ended if it waits."""
    begin = "from tests.hardship import test_processes as t"
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", f"{begin}\n{code}"],  # of forks beside threads
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_first_use_in_many_threads_at_once():
    """Lazy imports, caches of models and pools are made once, whoever comes first."""
    _in_a_process("""
import threading
gate, found = threading.Barrier(6), []
def work():
    gate.wait()
    found.append(t.compiled(1))
threads = [threading.Thread(target=work) for _ in range(6)]
for one in threads: one.start()
for one in threads: one.join()
assert len(found) == 6 and len(set(found)) == 1, found
""")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_after_a_fork():
    """The parent has used its threads already; the child gets none of them and must make its own."""
    _in_a_process("""
import os
alone = [t.run(case) for case in t.CASES[:3]]
child = os.fork()
if child == 0:
    os._exit(0 if [t.run(case) for case in t.CASES[:3]] == alone else 1)
assert os.waitpid(child, 0)[1] == 0
assert t.run(t.CASES[0]) == alone[0]
""")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_process_pools(method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"there is no {method}")
    _in_a_process(f"""
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
if __name__ == "__main__":
    alone = [t.run(case) for case in t.CASES[:6]]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context({method!r})) as pool:
        assert list(pool.map(t.run, t.CASES[:6])) == alone
""")


def test_inside_a_running_event_loop(alone):
    """As in Jupyter, where a loop runs already: called directly, and in threads of the loop's."""

    async def cell():
        direct = run(CASES[0])
        others = await asyncio.gather(*(asyncio.to_thread(run, case) for case in CASES))
        return direct, others

    direct, others = asyncio.run(cell())
    assert direct == alone[0]
    assert others == alone


def test_number_of_threads(alone):
    for threads in (1, 2, 4):
        assert compiled(1, threads) == alone[0]


def test_threads_end_with_their_work(alone):
    before = threading.active_count()
    for _ in range(20):
        run(CASES[0])
    assert threading.active_count() <= before + 4, "threads pile up"


class Chunked:
    """Columns that say which chunks they are stored in, as Zarr and HDF5 arrays do."""

    def __init__(self, values, rows):
        self.values, self.chunks, self.shape, self.dtype = values, (rows,), values.shape, values.dtype

    def __len__(self):
        return len(self.values)

    def __getitem__(self, rows):
        return self.values[rows]


@pytest.mark.parametrize("acceptance", ["holdout", "full"])
def test_chunks_of_the_source(acceptance, monkeypatch):
    """The same chunks: the same bits. Other chunks: other samples and sums, so the same minimum to the tolerance."""
    import problm.api.stored

    monkeypatch.setattr(problm.api.stored, "_SMALL", 0)  # small data would be read as a whole
    x, y = table(0, 60_000)

    def solve(rows):
        data = (Chunked(x, rows), Chunked(y, rows))
        return problm.least_squares(decay, START, data=data, max_memory="1MB", acceptance=acceptance, rng=5)

    whole = problm.least_squares(decay, START, data=(x, y), acceptance=acceptance, rng=5)
    for rows in (100, 1024, 7001, 60_000):
        one, two = solve(rows), solve(rows)
        assert type(one.problem).__name__ == "ChunkedProblem"
        assert one.x.tobytes() == two.x.tobytes()
        assert one.history.cost == two.history.cost
        assert one.success
        assert one.cost == pytest.approx(whole.cost, rel=1e-8)
        assert np.all(np.abs(one.x - whole.x) <= 0.01 * whole.standard_errors)


_STATE = """
import locale, logging, os, random, signal, sys, threading, warnings
import numpy as np
import numba, scipy.linalg, scipy.special, scipy.spatial, scipy.stats, scipy.optimize, scipy.ndimage, llvmlite.binding

def state():
    return {{
        "environment": dict(os.environ), "filters": list(warnings.filters), "errors": np.geterr(),
        "call": np.geterrcall(), "locale": locale.setlocale(locale.LC_ALL), "handlers": logging.root.handlers[:],
        "level": logging.root.level, "signals": [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)],
        "print": np.get_printoptions(), "random": random.getstate(), "numpy": str(np.random.get_state()),
        "hooks": (sys.excepthook, threading.excepthook), "recursion": sys.getrecursionlimit(), "folder": os.getcwd(),
        "threads": numba.config.NUMBA_NUM_THREADS, "umask": os.umask(0o22) or os.umask(0o22),
    }}

before = state()
import problm
for name in problm.__all__:
    getattr(problm, name)
import problm.vision.two_view.simulate, problm.data.sources, problm.data.shuffle, problm.data.tables, problm.report.page
imported = state()
sys.path.insert(0, {tests!r})
x = np.linspace(0, 4, 20_000)
fit = problm.least_squares(problm.formula("a*exp(-b*x) + c"), [1, .2, 0], data=(x, np.exp(-x)), progress=True)
try:
    problm.least_squares(lambda t, x: t[0] * np.exp(x / t[1]) - 1, [1, 1e-3], data=x)
except ValueError as error:
    assert "not finite" in str(error)
else:
    raise AssertionError("e to the 4000 is no number")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    str(fit)
after = state()
for key in before:
    assert before[key] == imported[key], ("import", key)
    assert before[key] == after[key], ("solve", key)
"""


def test_nothing_global_changes():
    """Not by importing everything that the package offers, nor by solving."""
    tests = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", _STATE.format(tests=tests)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
