"""Solves on a Dask cluster: the answer of a single process, whoever dies or is late."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import numpy as np
import pytest

import problm
from problm.distributed import worker
from problm.distributed.problem import DistributedOrder, distributed_problem
from problm.distributed.worker import Head, Request
from problm.losses import Loss
from problm.problems.rows import FunctionModel
from problm.sampling.moments import Moments
from problm.solver.policies.paper_tests import Paper

distributed = pytest.importorskip("distributed", reason="Dask is not installed")
dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

N, PARTS = 240_000, 6
START = np.array([1.0, 1.0, 0.0])


def model(t, x, y):
    return t[0] * np.exp(-t[1] * x) + t[2] - y


def model_jac(t, x, y):
    e = np.exp(-t[1] * x)
    return np.stack([e, -t[0] * x * e, np.ones_like(x)], axis=1)


def part(i, kind="shuffled", rows=N // PARTS):
    rng = np.random.default_rng(i)
    x = rng.uniform(0, 5, rows) if kind == "shuffled" else rng.uniform(5 * i / PARTS, 5 * (i + 1) / PARTS, rows)
    return np.stack([x, 2.0 * np.exp(-0.7 * x) + 0.3 + 0.1 * rng.standard_normal(rows)])


def whole(kind="shuffled"):
    return np.concatenate([part(i, kind) for i in range(PARTS)], axis=1)


def lazy(kind="shuffled", make=part):
    """The rows as two Dask arrays that the workers make themselves."""
    blocks = [dask.delayed(make)(i, kind) for i in range(PARTS)]
    columns = []
    for j in range(2):
        rows = [da.from_delayed(block[j], (N // PARTS,), np.float64) for block in blocks]
        columns.append(da.concatenate(rows))
    return tuple(columns)


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as made,
    ):
        yield made


def fit(data, start=START, **options):
    return problm.least_squares(model, start, data=data, jac=model_jac, **{"gtol": 1e-8, **options})


@pytest.mark.parametrize("kind", ["shuffled", "sorted"])
def test_the_answer_of_a_single_process(client, kind):
    """To rounding where both take the same steps (plain LM); with batches, which are drawn otherwise, to gtol."""
    ours, alone = fit(lazy(kind), client=client, method="lm"), fit(tuple(whole(kind)), method="lm")
    np.testing.assert_allclose(ours.x, alone.x, rtol=1e-12)
    np.testing.assert_allclose(ours.cost, alone.cost, rtol=1e-12)
    np.testing.assert_allclose(ours.hessian, alone.hessian, rtol=1e-11)
    grown = fit(lazy(kind), client=client)
    assert grown.success
    assert grown.certified
    np.testing.assert_allclose(grown.x, alone.x, rtol=1e-7)


def test_one_round_an_iteration(client):
    """No round while the batch is in the head; then one a step or growth, and one for the first sums of a level."""
    fit = problm.least_squares(model, START, data=lazy(), jac=model_jac, client=client)
    h = fit.history
    far = [i for i, size in enumerate(h.batch_size) if 2 * size > fit.problem.head_size]
    assert h.batch_size[0] == 200
    assert h.seconds[far[0]] < h.seconds[-1]
    # Two rounds before: a look at all partitions, and the head.
    assert fit.problem.rounds <= 2 + len(far) + len({h.batch_size[i] for i in far})


def test_the_same_bits_again(client):
    a, b = (fit(lazy(), client=client, rng=3) for _ in range(2))
    assert a.x.tobytes() == b.x.tobytes()
    assert a.history.cost == b.history.cost


def test_rounds_are_calls_and_tasks_where_these_fail(client, monkeypatch):
    """Workers answer for partitions that they have without a task; with tasks the answer is the same."""
    from problm.distributed import dask_cluster

    data = client.persist(lazy())
    distributed.wait(data)
    tasks, submit = [], client.submit

    def counted(*args, **kwargs):
        tasks.append(args[0])
        return submit(*args, **kwargs)

    monkeypatch.setattr(client, "submit", counted)
    ours = fit(data, client=client, rng=3, initial_batch=40_000)
    assert ours.problem.rounds > 3
    assert not tasks

    async def lost(*args, dask_worker=None):
        raise KeyError("a partition has just gone")

    monkeypatch.setattr(dask_cluster, "_at_home", lost)
    again = fit(data, client=client, rng=3, initial_batch=40_000)
    assert len(tasks) >= 2 * again.problem.rounds
    assert again.history.cost == ours.history.cost
    assert again.x.tobytes() == ours.x.tobytes()


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_worker_is_killed(client, times):
    """With kill -9, in the middle of the solve: the same bits as from an undisturbed cluster of another size."""
    undisturbed = fit(lazy(), client=client, rng=1, initial_batch=40_000)
    killed = []
    with (
        distributed.LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as mine,
    ):

        def kill(state):
            if len(killed) < times and state.iteration >= 2 + 2 * len(killed):
                pid = sorted(mine.run(os.getpid).values())[0]
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

        ours = fit(lazy(), client=mine, rng=1, initial_batch=40_000, callback=kill)
    assert len(set(killed)) == times
    assert ours.x.tobytes() == undisturbed.x.tobytes()
    assert ours.history.cost == undisturbed.history.cost


def late_once(i, kind, folder):
    """A partition that is late the first time that it is made: it waits for the file "go", at most 2 min."""
    if i == 2:
        with contextlib.suppress(FileExistsError):
            open(f"{folder}/begun", "x").close()
            until = time.monotonic() + 120.0
            while not os.path.exists(f"{folder}/go"):
                if time.monotonic() > until:
                    open(f"{folder}/in vain", "x").close()
                    break
                time.sleep(0.05)
    return part(i, kind)


@pytest.mark.slow
def test_a_late_worker_does_not_hold_up_the_head(client, tmp_path):
    """Its share of the head comes from elsewhere, with the same rows; early iterations do not wait."""
    data = lazy(make=lambda i, kind: late_once(i, kind, str(tmp_path)))
    early = []

    def note(state):
        early.append(state.batch_size)
        if len(early) == 4:
            (tmp_path / "go").touch()

    ours = problm.least_squares(model, START, data=data, jac=model_jac, client=client, rng=1, callback=note)
    assert (tmp_path / "begun").exists()
    assert not (tmp_path / "in vain").exists()
    undisturbed = problm.least_squares(model, START, data=lazy(), jac=model_jac, client=client, rng=1)
    assert all(2 * size <= ours.problem.head_size for size in early[:4])
    assert ours.x.tobytes() == undisturbed.x.tobytes()


def test_loss_and_bounds(client):
    options = {"loss": "soft_l1", "f_scale": 0.1, "bounds": ([0, 0, 0.31], np.inf), "start": [1.0, 1.0, 0.5]}
    ours = fit(lazy(), client=client, **options)
    alone = fit(tuple(whole()), **options)
    np.testing.assert_allclose(ours.x, alone.x, rtol=1e-4)
    assert ours.active_mask.tolist() == [0, 0, -1]


def test_plain_lm_and_bounds_of_acceptance(client):
    alone = fit(tuple(whole()))
    for acceptance in ("full", "empirical-bernstein"):
        ours = fit(lazy(), client=client, acceptance=acceptance)
        np.testing.assert_allclose(ours.x, alone.x, rtol=1e-7)


def test_compiled_models(client):
    curve = problm.formula("a*exp(-b*x) + c")
    popt, pcov = problm.curve_fit(curve, *lazy(), START, client=client)
    other, cov = problm.curve_fit(curve, *whole(), START)
    np.testing.assert_allclose(popt, other, rtol=1e-4)
    np.testing.assert_allclose(pcov, cov, rtol=1e-3)


@pytest.mark.slow
def test_jax_functions(client):
    jax = pytest.importorskip("jax")

    def decay(t, x, y):
        return t[0] * jax.numpy.exp(-t[1] * x) + t[2] - y

    ours = problm.least_squares(decay, START, data=lazy(), client=client)
    np.testing.assert_allclose(ours.x, [2.0, 0.7, 0.3], atol=0.01)


@pytest.mark.parametrize("kind", ["files", "memory", "frame", "unknown chunks"])
def test_kinds_of_data(client, kind, tmp_path):
    x, y = whole()
    if kind == "files":
        np.save(tmp_path / "x.npy", x)
        np.save(tmp_path / "y.npy", y)
        data = (tmp_path / "x.npy", tmp_path / "y.npy")
    elif kind == "memory":
        data = (x[:30_000], y[:30_000])
        x, y = data
    elif kind == "frame":
        dd = pytest.importorskip("dask.dataframe")
        pd = pytest.importorskip("pandas")
        parts = [dask.delayed(lambda i: pd.DataFrame(part(i).T, columns=["x", "y"]))(i) for i in range(PARTS)]
        data = dd.from_delayed(parts, meta={"x": float, "y": float})
    else:
        data = tuple(column[column > -100.0] for column in lazy())
    ours = fit(data, client=client)
    np.testing.assert_allclose(ours.x, fit((x, y)).x, rtol=1e-7)


def test_checkpoint(client, tmp_path):
    path = tmp_path / "solve.npz"
    undisturbed = fit(lazy(), client=client, rng=1, initial_batch=40_000)

    class Killed(BaseException):
        pass

    def kill(state):
        if state.iteration == 3:
            raise Killed

    with pytest.raises(Killed):
        fit(lazy(), client=client, rng=1, initial_batch=40_000, checkpoint=path, checkpoint_every=0.0, callback=kill)
    ours = fit(lazy(), client=client, rng=1, initial_batch=40_000, checkpoint=path)
    assert ours.x.tobytes() == undisturbed.x.tobytes()
    assert ours.history.cost == undisturbed.history.cost


def test_a_bad_row_is_named(client):
    def broken(i, kind):
        values = part(i, kind)
        if i == 3:
            values[1, 77] = np.nan
        return values

    with pytest.raises(ValueError, match=f"at row {3 * (N // PARTS) + 77} of the data"):
        fit(lazy(make=broken), client=client)


def test_stopped_on_a_batch(client):
    ours = fit(lazy(), client=client, initial_batch=40_000, max_iter=1)
    assert not ours.success
    assert ours.batch_size >= 40_000
    assert ours.cost > 0


def test_errors(client):
    with pytest.raises(ValueError, match="Paper needs the costs of single rows in one place"):
        fit(lazy(), client=client, acceptance=Paper())
    with pytest.raises(TypeError, match="client must be a dask"):
        fit(lazy(), client=3)
    x, y = lazy()
    with pytest.raises(ValueError, match="same number of rows"):
        fit((x, y[:-1]), client=client)


@pytest.mark.slow
def test_a_cluster_of_its_own():
    ours = fit(lazy(), client="local")
    np.testing.assert_allclose(ours.x, fit(tuple(whole())).x, rtol=1e-7)


class TestWorker:
    """The worker's side, without a cluster."""

    def rows(self):
        return FunctionModel(model, model_jac, 3, Loss.named("linear"))

    def request(self, **fields):
        return Request("run", self.rows(), 5, (300, 900), 1000, START, **fields)

    def parts(self):
        return [tuple(part(i, rows=rows)) for i, rows in ((0, 600), (1, 400))]

    def heads(self):
        return self.all(worker.head, Head(5, 300, 1000))

    def all(self, function, request):
        found = [function(request, i, columns) for i, columns in enumerate(self.parts())]
        assert [i for i, _ in found] == [0, 1]
        return [answer for _, answer in found]

    @pytest.fixture(autouse=True)
    def forget(self):
        yield
        self.all(worker.forget, "run")
        assert not [name for name in worker._parts if name[0] == "run"]

    def test_levels_cover_every_partition_in_proportion(self):
        order = DistributedOrder([600, 399, 1], [100])
        assert order.size(100) == 60 + 40 + 1
        assert order.index(101) == 0
        assert order.index(102) == 1
        assert order.levels == [100, 102]
        assert order.index(90) == 0

    def test_levels_of_very_many_rows(self):
        """10^12 rows: a level times a partition is beyond 64 bits."""
        order = DistributedOrder([10**9] * 1000, [65_536])
        assert order.size(125 * 10**9) == 125 * 10**9
        assert order.size(65_536) == 66_000

    def test_sums_of_a_level(self):
        heads = self.heads()
        assert [len(h[0]) for h in heads] == [180, 120]
        parts = self.all(worker.linearize, self.request(level=0))
        normal = parts[0] + parts[1]
        joined = self.rows().problem(tuple(np.concatenate(c) for c in zip(*heads, strict=True)))
        direct = joined.linearize(START, 0, 300, outer=True, costs=None)
        np.testing.assert_allclose(normal.gradient, direct.gradient, rtol=1e-11)
        np.testing.assert_allclose(normal.outer, direct.outer, rtol=1e-11)

    def test_a_replacement_gives_the_same_bits(self):
        request = self.request(level=0, held=1, trial=START + 0.1)
        first, kept = (self.all(worker.trial, request) for _ in range(2))
        self.all(worker.forget, "run")
        for others in (kept, self.all(worker.trial, request)):
            for mine, other in zip(first, others, strict=True):
                assert other.inside == mine.inside
                assert other.outside == mine.outside
                assert other.normal.gradient.tobytes() == mine.normal.gradient.tobytes()

    def test_growing_adds_up(self):
        low, more, both = (
            self.all(worker.linearize, self.request(**levels))
            for levels in ({"level": 0}, {"level": 1, "known": 0}, {"level": 1})
        )
        assert [n.count for n in both] == [540, 360]
        for a, b, c in zip(low, more, both, strict=True):
            assert a.count + b.count == c.count
            np.testing.assert_allclose((a + b).hessian, c.hessian, rtol=1e-12)

    def test_moments_are_those_of_the_changes(self):
        trial = START + 0.1
        answers = self.all(worker.trial, self.request(level=0, held=1, trial=trial))
        inside, outside = (worker.merge([getattr(a, name) for a in answers]) for name in ("inside", "outside"))
        changes = np.concatenate([0.5 * model(trial, *h) ** 2 - 0.5 * model(START, *h) ** 2 for h in self.heads()])
        direct = Moments.of(changes, True)
        assert inside.mean == pytest.approx(direct.mean)
        assert inside.sd == pytest.approx(direct.sd)
        assert (inside.low, inside.high) == (direct.low, direct.high)
        assert outside.count == 600

    def test_points_are_told_apart(self):
        keys = {worker.point_key(p) for p in (np.zeros(2), np.ones(2), (np.zeros(2), np.ones(2)), "a")}
        assert len(keys) == 4


def test_the_problem_alone(client):
    """Sums of everything, and residuals in the order of the partitions."""
    problem = distributed_problem(
        lambda few: FunctionModel(model, model_jac, 3, Loss.named("linear")), lazy(), client, 0
    )
    x, y = whole()
    alone = FunctionModel(model, model_jac, 3, Loss.named("linear")).problem((x, y))
    a = problem.linearize(START, 0, problem.n, outer=False, costs=None)
    b = alone.linearize(START, 0, alone.n, outer=False, costs=None)
    np.testing.assert_allclose(a.gradient, b.gradient, rtol=1e-11)
    np.testing.assert_allclose(problem.cost(START), alone.cost(START), rtol=1e-12)
    np.testing.assert_array_equal(problem.residuals(START), alone.residuals(START))
    assert problem.first_bad_row(START) is None
    problem.close()
