"""Any cluster by three functions: the bits of a local solve of the same partitions, or a sentence that says why not."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context, parent_process

import numpy as np
import pytest

import problm
from problm.distributed import worker
from problm.distributed.clients import cluster_of
from problm.distributed.partitions import LEAST_BYTES, loaded, neighbours, partitions_of
from problm.distributed.shards import Shard, shards_of
from problm.distributed.worker import Request
from problm.losses import Loss
from problm.problems.rows import FunctionModel

START = np.array([1.0, 1.0, 0.0])
SIZES = (15_000, 40_000, 7, 20_000, 30_000)


def decay(t, x, y):
    return t[0] * np.exp(-t[1] * x) + t[2] - y


def crash(t, x, y):
    if parent_process() is not None:
        os._exit(1)
    return decay(t, x, y)


def part(i, rows):
    rng = np.random.default_rng(i)
    x = rng.uniform(0, 5, rows)
    return x, 2.0 * np.exp(-0.7 * x) + 0.3 + 0.1 * rng.standard_normal(rows)


def loaders(sizes=SIZES):
    return problm.Partitions([partial(part, i, rows) for i, rows in enumerate(sizes)])


def arrays(sizes=SIZES):
    return problm.Partitions([part(i, rows) for i, rows in enumerate(sizes)])


def fit(data, client=None, fun=decay, **options):
    return problm.least_squares(fun, START, data=data, client=client, **options)


def same(a, b):
    return a.x.tobytes() == b.x.tobytes() and a.history.cost == b.history.cost


MANY = (70_000, 0, 100_000, 600, 150_000, 99_999, 200_001)


def in_disorder(function, message, placed):
    """The last partition first, and one answer twice."""
    answers = [function(message, i, placed[i]) for i in reversed(range(len(placed)))]
    return [*answers, answers[0]]


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        yield pool


@pytest.mark.parametrize("model", [decay, problm.formula("y ~ a*exp(-b*x) + c")], ids=["numpy", "formula"])
@pytest.mark.parametrize("make", [loaders, arrays])
def test_the_bits_of_a_local_solve(processes, model, make):
    """Threads, processes, and three functions of the user, which answer in any order."""
    local = fit(make(), fun=model)
    assert local.certified
    np.testing.assert_allclose(local.x, [2.0, 0.7, 0.3], atol=0.01)
    with ThreadPoolExecutor(3) as threads:
        for client in (threads, processes, problm.MapReduce(list, in_disorder)):
            assert same(local, fit(make(), client, fun=model))


def test_the_short_end_reads_all_rows_once(processes):
    model = problm.formula("y ~ a*exp(-b*x) + c")
    ours = fit(arrays(MANY), fun=model)
    assert ours.certified
    assert ours.certificate == "bound"
    assert ours.jacobian_passes < 1.5
    rows = tuple(np.concatenate(c) for c in zip(*(part(i, n) for i, n in enumerate(MANY)), strict=True))
    exact = fit(rows, fun=model, gtol=1e-11, acceptance="full")
    off = ours.x - exact.x
    distance = np.sqrt(off @ exact.hessian @ off / (2 * exact.cost / exact.degrees_of_freedom))
    assert distance <= max(ours.distance, 1e-3) <= 0.01
    assert ours.cost == pytest.approx(exact.cost, rel=1e-7)
    for client in (processes, problm.MapReduce(list, in_disorder)):
        assert same(ours, fit(arrays(MANY), client, fun=model))


def test_bits_do_not_depend_on_the_threads_of_blas():
    """Sums of more than 10,000 rows have other last digits with two threads of BLAS than with one."""
    controller = pytest.importorskip("threadpoolctl").ThreadpoolController().select(user_api="blas")
    model = FunctionModel(decay, "2-point", 3, Loss.named("linear"))
    columns = part(0, 60_000)

    def costs():
        points = START * np.linspace(0.5, 2.0, 20)[:, None]
        return [worker.cost(Request("blas", model, 0, (), 60_000, t, level=-1), 0, columns) for t in points]

    with controller.limit(limits=2):
        two = costs()
    with controller.limit(limits=1):
        assert costs() == two
    worker.forget("blas", 0, columns)


def test_the_answer_of_arrays():
    x, y = (np.concatenate(columns) for columns in zip(*(part(i, n) for i, n in enumerate(SIZES)), strict=True))
    local = fit(loaders(), method="lm")
    np.testing.assert_allclose(local.x, fit((x, y), method="lm").x, rtol=1e-7)
    np.testing.assert_array_equal(local.fun, decay(local.x, x, y))


def test_dask_gives_the_same_bits():
    distributed = pytest.importorskip("distributed")
    with distributed.Client(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as client:
        for make in (loaders, arrays):
            assert same(fit(make(), client), fit(make()))


@pytest.mark.parametrize("kind", ["arrays", "files"])
def test_data_that_are_not_cut_yet(processes, kind, tmp_path):
    x, y = part(0, 150_000)
    data = (x, y)
    if kind == "files":
        np.save(tmp_path / "x.npy", x)
        np.save(tmp_path / "y.npy", y)
        data = (tmp_path / "x.npy", tmp_path / "y.npy")
    local = fit(data, problm.MapReduce(list, in_disorder))
    assert same(local, fit(data, processes))
    assert local.certified


def test_rows_in_memory_are_sent_to_processes_once(processes):
    """A round carries the request, not the rows."""
    sent = []
    pool = cluster_of(processes)

    def counted(function, message, placed):
        sent.append(all(callable(p) for p in placed))
        return pool.map(function, message, placed)

    fit(arrays(), replace(pool, map=counted))
    assert len(sent) > 4
    assert all(sent)


def test_many_small_partitions_are_joined():
    """5,000 partitions of 20 rows: as many calls as the bytes explain, and the same calls for any cluster."""
    rows = [part(i, 20) for i in range(5000)]
    calls = []

    def counted(function, message, placed):
        calls.append(len(placed))
        return in_disorder(function, message, placed)

    result = fit(problm.Partitions(rows), problm.MapReduce(list, counted))
    assert result.certified
    assert set(calls) == {2}
    assert list(neighbours([LEAST_BYTES // 2, LEAST_BYTES // 2, 5, LEAST_BYTES, 1])) == [(0, 2), (2, 4), (4, 5)]


def test_empty_partitions():
    sizes = (0, 25_000, 0, 0, 20_000, 0)
    result = fit(loaders(sizes), initial_batch=20_000)
    assert result.certified
    assert same(result, fit(loaders(sizes), problm.MapReduce(list, in_disorder), initial_batch=20_000))
    assert result.fun.shape == (45_000,)
    with pytest.raises(ValueError, match="data has no rows"):
        fit(loaders((0, 0)))


def test_cuts_do_not_depend_on_the_cluster(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(1_000_000))
    parts = partitions_of(tmp_path / "x.npy")
    assert len(parts) == 8
    assert sum(len(loaded(p)[0]) for p in parts) == 1_000_000


def forged(**changed):
    """Workers that look like others."""

    def everywhere(function, message, placed):
        found = in_disorder(function, message, placed)
        if function is worker.look:
            found[1] = (found[1][0], replace(found[1][1], versions={**worker.versions(), **changed}))
        return found

    return problm.MapReduce(list, everywhere)


def test_versions():
    with pytest.raises(RuntimeError, match=r"a worker has problm 0.0.1 instead of .*install the same versions"):
        fit(loaders(), forged(problm="0.0.1"))
    with pytest.raises(RuntimeError, match=r"a worker has Python 2\.7"):
        fit(loaders(), forged(Python="2.7", numpy="1.0"))
    with pytest.warns(problm.ProblmWarning, match=r"a worker has numpy 1\.0"):
        assert fit(loaders(), forged(numpy="1.0")).certified


class Broken:
    """A cluster that breaks in its third round."""

    def __init__(self):
        self.rounds, self.released = 0, []

    def map(self, function, message, placed):
        self.rounds += 1
        if self.rounds == 3:
            raise OSError("the network is down")
        return in_disorder(function, message, placed)


def test_a_cluster_that_breaks():
    broken = Broken()
    cluster = problm.MapReduce(list, broken.map, broken.released.append)
    with pytest.raises(OSError, match="the network is down") as error:
        fit(loaders(), cluster)
    assert "round 3 of a solve on a cluster" in error.value.__notes__[0]
    assert len(broken.released) == 1
    assert broken.rounds == 3  # nobody is asked any more


def test_a_process_that_dies():
    with ProcessPoolExecutor(1, get_context("spawn")) as pool, pytest.raises(RuntimeError, match="terminated abruptly"):
        fit(loaders(), pool, fun=crash)


def test_answers_that_are_missing():
    with pytest.raises(RuntimeError, match="map must return an answer for every partition"):
        fit(loaders(), problm.MapReduce(list, lambda f, m, placed: in_disorder(f, m, placed)[:2]))
    with pytest.raises(RuntimeError, match="map must return an answer for every partition"):
        fit(loaders(), problm.MapReduce(list, lambda f, m, placed: []))


def test_partitions_that_do_not_fit_together():
    x, y = part(0, 100)
    with pytest.raises(TypeError, match="partition 1 must be a tuple of columns"):
        problm.Partitions([(x, y), x])
    with pytest.raises(ValueError, match="at least one partition"):
        problm.Partitions([])
    with pytest.raises(ValueError, match="columns of partition 1"):
        fit(problm.Partitions([lambda: (x, y), lambda: (x, y, y)]))
    with pytest.raises(ValueError, match="one entry per row"):
        fit(problm.Partitions([lambda: (x, y[:-1])]))
    with pytest.raises(TypeError, match="a partition must be a tuple"):
        fit(problm.Partitions([lambda: x]))


@pytest.mark.parametrize("kind", [object, str, bool, np.longdouble])
def test_numbers_of_any_type(kind):
    """Partitions are converted as arrays in memory are."""
    x, y = part(0, 400)
    column = (x > x.mean() if kind is bool else x).astype(kind)
    halves = problm.Partitions([lambda a=a: (column[a : a + 200], y[a : a + 200]) for a in (0, 200)])

    def line(t, x, y):
        return t[0] * x + t[1] - y

    found = problm.least_squares(line, [1.0, 0.0], data=halves).x
    np.testing.assert_allclose(found, problm.least_squares(line, [1.0, 0.0], data=(column, y)).x, rtol=1e-8)


def test_what_a_fit_would_drop_is_refused():
    x, y = part(0, 400)
    whole = np.arange(400)
    for column, told in [
        (np.ma.masked_less(x, x.mean()), "column 0 of a partition has masked values"),
        (whole.astype("M8[s]"), "column 0 of a partition holds times"),
        (np.full(400, "low"), "values that are not numbers"),
        (whole, r"partition 1 are whole, real, those of the first are real, real; .* \.astype\(float\)"),
    ]:
        with pytest.raises(ValueError, match=told):
            fit(problm.Partitions([lambda: (x, y), lambda column=column: (column, y)]))


def test_shards_follow_the_workers():
    """Partitions stay where they are if shares are nearly even, newcomers take theirs, lost ones come alone."""
    assert shards_of([["a"], ["b"], ["a"], ["b"]], {"a", "b"}) == [Shard("a", [0, 2]), Shard("b", [1, 3])]
    grown = shards_of([["a"]] * 6, {"a", "b", "c"})
    assert [len(s.indices) for s in grown] == [2, 2, 2]
    assert sorted(i for s in grown for i in s.indices) == list(range(6))
    uneven = [["a"]] * 11 + [["b"]] * 9  # to send a partition takes longer than what an even share saves
    assert [len(s.indices) for s in shards_of(uneven, {"a", "b"})] == [11, 9]
    assert shards_of([[], ["a"]], {"a"}) == [Shard("a", [1]), Shard(None, [0])]
    assert shards_of([[]], set()) == [Shard(None, [0])]


@pytest.mark.parametrize("other", ["a row", "a model", "a loss", "the order of partitions"])
@pytest.mark.parametrize("stop", [1, 3])
def test_the_checkpoint_of_other_rows_or_another_model(tmp_path, other, stop):
    """The cost of all rows cannot tell a difference of 1e-9 in one of them."""
    path, parts = tmp_path / "solve.npz", [part(i, rows) for i, rows in enumerate(SIZES)]
    options = {"checkpoint": path, "checkpoint_every": 0.0}
    fit(problm.Partitions(parts), max_iter=stop, **options)
    assert same(fit(problm.Partitions(parts), **{**options, "checkpoint": shutil.copy(path, tmp_path / "copy.npz")}),
                fit(problm.Partitions(parts)))  # fmt: skip
    fun = decay
    if other == "a row":
        x, y = parts[3]
        parts[3] = x, np.where(np.arange(len(y)) == 777, y + 1e-9, y)
    elif other == "a model":
        fun = lambda t, x, y: t[2] * np.exp(-t[1] * x) + t[0] - y  # noqa: E731
    elif other == "a loss":
        options["loss"] = "huber"
    else:
        parts = parts[::-1]
    with pytest.raises(ValueError, match=r"belongs to another solve|was written for other data"):
        fit(problm.Partitions(parts), fun=fun, **options)
