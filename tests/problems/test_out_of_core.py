"""Rows that are read from files while the solve runs: right sums, valid statistics, bounded memory, right answers."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

import problm
from problm.data.columns import Sliced, even_ends
from problm.data.sources import open_source
from problm.losses import Loss
from problm.problems.out_of_core import ChunkedProblem
from problm.problems.rows import FunctionModel
from problm.sampling.chunk_order import GROUPS, ChunkOrder
from problm.solver.loop import solve
from problm.solver.policies.acceptance import Holdout
from problm.support.reduction import add_pairwise


def model(t, x, y):
    return t[0] * np.exp(-t[1] * x) + t[2] - y


def model_jac(t, x, y):
    e = np.exp(-t[1] * x)
    return np.stack([e, -t[0] * x * e, np.ones_like(x)], axis=1)


def make_data(n, kind="shuffled", seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 5, n)
    y = 2.0 * np.exp(-0.7 * x) + 0.3
    if kind == "sorted":
        x = np.sort(x)
        y = 2.0 * np.exp(-0.7 * x) + 0.3
    elif kind == "clustered":  # each run of 500 rows has an offset of its own, larger than the noise
        y = y + np.repeat(0.3 * rng.standard_normal(-(-n // 500)), 500)[:n]
    return x, y + 0.1 * rng.standard_normal(n)


class Reader:
    """A source of slices that counts what is read, and by whom."""

    def __init__(self, values, log=None):
        self.values = values
        self.log = [] if log is None else log

    def __len__(self):
        return len(self.values)

    def __getitem__(self, rows):
        self.log.append((rows.start, rows.stop, threading.current_thread() is threading.main_thread()))
        return self.values[rows]


class Coarse(Sliced):
    """A source that reads whole chunks."""

    def __init__(self, arrays, rows):
        super().__init__(arrays)
        self.fine = False
        self.ends = even_ends(self.n, rows)


def rows(loss="linear", jac=model_jac):
    return FunctionModel(model, jac, 3, Loss.named(loss, 0.2))


def chunked(x, y, *, coarse=0, **options):
    source = Coarse([x, y], coarse) if coarse else Sliced([Reader(x), Reader(y)])
    return ChunkedProblem(rows(), source, max_memory=options.pop("max_memory", "20MB"), **options)


class TestOrder:
    @settings(deadline=None)
    @given(
        st.integers(50, 3000), st.integers(1, 60), st.booleans(), st.integers(8, 40),
        st.lists(st.integers(1, 400), min_size=1, max_size=6), st.integers(0, 99),
    )  # fmt: skip
    def test_segments_have_the_rows_that_were_asked_for(self, n, chunk, fine, least, sizes, seed):
        order = ChunkOrder(even_ends(n, chunk), fine, least, seed)
        at, seen = 0, []
        for size in sizes:
            size = min(size, n - at)
            if size == 0:
                break
            index = order.indices(at, at + size)
            assert len(index) == size
            assert index.min() >= 0
            assert index.max() < n
            (segment,) = order.between(at, at + size)
            assert segment.taken.sum() == size
            assert len(segment.groups) <= GROUPS
            assert segment.groups[0] == 0
            assert (np.diff(segment.groups) > 0).all()
            seen.append(index)
            at += size
        chunks = np.concatenate([segment.chunk for segment in order.segments])
        if len(np.unique(chunks)) == len(chunks):  # they did not run out
            all_rows = np.concatenate(seen)
            assert len(np.unique(all_rows)) == len(all_rows)
        assert order.drawn == at
        assert order.boundary(at) == at
        assert order.boundary(1) == order.segments[0].hi

    @pytest.mark.parametrize("fine", [True, False])
    def test_every_row_has_the_same_chance(self, fine):
        """Chunks of unequal size, and a short last one: 4000 draws of 12 of 40 rows, a chi-square of the counts."""
        ends = np.array([3, 10, 12, 20, 31, 33, 39, 40])
        counts = np.zeros(40)
        for seed in range(4000):
            np.add.at(counts, ChunkOrder(ends, fine, 4, seed).indices(0, 12), 1)
        expected = 4000 * 12 / 40
        assert counts.sum() == 48000
        # Clusters make the counts of neighbours alike, so single rows are compared: five standard deviations.
        assert np.abs(counts - expected).max() < 5 * math.sqrt(expected) + 0.05 * expected

    def test_same_seed_same_order(self):
        ends = even_ends(5000, 64)
        a, b, c = (ChunkOrder(ends, True, 8, seed).indices(0, 300) for seed in (1, 1, 2))
        np.testing.assert_array_equal(a, b)
        assert not np.array_equal(a, c)

    def test_it_cannot_be_cut_anywhere(self):
        order = ChunkOrder(even_ends(5000, 64), True, 8)
        order.indices(0, 100)
        order.indices(200, 300)
        assert [s.hi for s in order.segments] == [100, 200, 300]
        with pytest.raises(ValueError, match="cannot be cut at 0 and 150"):
            order.indices(0, 150)


class TestSums:
    @pytest.mark.parametrize("coarse", [0, 700])
    @pytest.mark.parametrize("loss", ["linear", "huber", "truncated"])
    def test_everything_equals_memory(self, coarse, loss):
        x, y = make_data(100_000)
        source = Coarse([x, y], coarse) if coarse else Sliced([Reader(x), Reader(y)])
        problem = ChunkedProblem(rows(loss), source, max_memory="20MB")
        memory = rows(loss).problem((x, y))
        theta = np.array([1.5, 0.9, 0.1])
        a = problem.linearize(theta, 0, problem.n, outer=False, costs=None)
        b = memory.linearize(theta, 0, memory.n, outer=False, costs=None)
        assert a.count == b.count == 100_000
        np.testing.assert_allclose(a.cost, b.cost, rtol=1e-13)
        np.testing.assert_allclose(a.gradient, b.gradient, rtol=1e-12)
        np.testing.assert_allclose(a.hessian, b.hessian, rtol=1e-12)
        np.testing.assert_allclose(problem.cost(theta), b.cost, rtol=1e-13)
        np.testing.assert_array_equal(problem.costs(theta, 0, problem.n), memory.costs(theta, 0, memory.n))
        np.testing.assert_array_equal(problem.residuals(theta), memory.residuals(theta))

    @pytest.mark.parametrize("coarse", [0, 700])
    def test_a_batch_has_the_rows_of_its_order(self, coarse):
        x, y = make_data(50_000)
        problem = chunked(x, y, coarse=coarse)
        theta = np.array([1.5, 0.9, 0.1])
        for lo, hi in [(0, 300), (300, 600), (0, 600), (600, 3000)]:
            index = problem.indices(lo, hi)
            expected = 0.5 * model(theta, x[index], y[index]) ** 2
            np.testing.assert_allclose(problem.costs(theta, lo, hi), expected, rtol=1e-13)
            kept = np.empty(hi - lo)
            normal = problem.linearize(theta, lo, hi, outer=True, costs=kept)
            np.testing.assert_allclose(kept, expected, rtol=1e-13)
            j, r = model_jac(theta, x[index], y[index]), model(theta, x[index], y[index])
            np.testing.assert_allclose(normal.gradient, j.T @ r, rtol=1e-10)
            np.testing.assert_allclose(normal.hessian, j.T @ j, rtol=1e-10)
            starts = problem.order.group_starts(lo, hi)
            sums = np.add.reduceat(j * r[:, None], starts, axis=0)
            np.testing.assert_allclose(normal.outer, sums.T @ sums, rtol=1e-9)
            assert normal.clusters.units == len(starts)
        assert problem.boundary(400) == 600

    def test_pairwise_sums_keep_digits(self):
        values = np.full(100_001, 0.1, dtype=np.float32)
        assert abs(float(add_pairwise(values)) - 10_000.1) < 0.01
        assert abs(float(sum(values, np.float32(0))) - 10_000.1) > 0.1


class TestReading:
    def test_a_first_batch_reads_few_rows_in_many_places(self):
        x, y = make_data(1_000_000)
        log = []
        problem = ChunkedProblem(rows(), Sliced([Reader(x, log), Reader(y, log)]), max_memory="20MB")
        log.clear()
        problem.costs(np.ones(3), 0, 200)
        assert sum(hi - lo for lo, hi, _ in log) == 400
        assert len({lo // 10_000 for lo, _, _ in log}) > 40

    def test_a_pass_reads_every_row_once_in_order_and_ahead(self):
        x, y = make_data(300_000)
        log = []
        problem = ChunkedProblem(rows(), Sliced([Reader(x, log), Reader(y)]), max_memory="4MB")
        log.clear()
        problem.cost(np.ones(3))
        assert [lo for lo, _, _ in log] == [0, *(hi for _, hi, _ in log[:-1])]
        assert log[-1][1] == 300_000
        assert len(log) > 3
        assert not any(main for _, _, main in log)

    def test_a_pass_that_fails_stops_its_reader(self):
        x, y = make_data(300_000)

        def wrong(theta, x, y):
            raise KeyError("not today")

        problem = ChunkedProblem(
            FunctionModel(wrong, "2-point", 3, Loss.named("linear")), Sliced([Reader(x), Reader(y)])
        )
        before = threading.active_count()
        with pytest.raises(KeyError, match="not today"):
            problem.cost(np.ones(3))
        assert threading.active_count() <= before

    def test_chunks_are_decoded_once_when_they_fit(self):
        x, y = make_data(100_000)
        log = []
        problem = ChunkedProblem(rows(), Coarse([Reader(x, log), y], 1000), max_memory="20MB")
        log.clear()
        result = solve(problem, np.array([1.0, 1.0, 0.0]))
        assert result.success
        assert sorted(lo for lo, _, _ in log) == list(range(0, 100_000, 1000))

    def test_memory_limits_the_batch(self):
        x, y = make_data(400_000)
        small, large = chunked(x, y, max_memory="3MB"), chunked(x, y, max_memory="1GB")
        assert small.largest_batch * 2 * 64 <= 1e6
        assert large.largest_batch == 100_000
        result = solve(small, np.array([1.0, 1.0, 0.0]))
        sizes = set(result.history.batch_size)
        assert max(sizes - {400_000}) <= small.largest_batch
        assert result.certified

    def test_all_residuals_are_refused_when_they_do_not_fit(self):
        x, y = make_data(400_000)
        result = solve(chunked(x, y, max_memory="2MB"), np.array([1.0, 1.0, 0.0]))
        with pytest.raises(MemoryError, match="max_memory=2000000"):
            result.fun  # noqa: B018


@pytest.mark.parametrize("kind", ["shuffled", "sorted", "clustered"])
@pytest.mark.parametrize("coarse", [0, 500])
def test_the_answer_is_scipys(kind, coarse):
    x, y = make_data(100_000, kind)
    result = solve(chunked(x, y, coarse=coarse), np.array([1.0, 1.0, 0.0]), gtol=1e-12)
    other = optimize.least_squares(model, [1, 1, 0], model_jac, args=(x, y), xtol=1e-15, ftol=1e-15, gtol=1e-15)
    assert result.success
    assert result.certified
    np.testing.assert_allclose(result.x, other.x, rtol=1e-7)
    np.testing.assert_allclose(result.cost, other.cost, rtol=1e-12)


@pytest.mark.parametrize("coarse", [0, 500])
def test_the_end_needs_two_passes(coarse):
    x, y = make_data(200_000)
    result = solve(chunked(x, y, coarse=coarse, max_memory="4MB"), np.array([1.0, 1.0, 0.0]))
    assert result.certified
    full = [s for s in result.history.batch_size if s == 200_000]
    assert result.jacobian_passes < len(full) + 0.5
    assert result.jacobian_passes <= 3.5


def test_the_same_seed_gives_the_same_bits():
    x, y = make_data(60_000, "clustered")
    a, b = (solve(chunked(x, y, rng=5), np.array([1.0, 1.0, 0.0])) for _ in range(2))
    assert a.x.tobytes() == b.x.tobytes()
    assert a.history.cost == b.history.cost


class Witness(Holdout):
    """The default policy, with a look at the truth."""

    def __init__(self, problem, delta):
        super().__init__(delta=delta)
        object.__setattr__(self, "record", [])
        object.__setattr__(self, "memory", problem)

    __slots__ = ("memory", "record")

    def judge(self, step):
        verdict = super().judge(step)
        batch = step.batch
        change = self.memory.cost(batch.trial_point) - self.memory.cost(batch.theta)
        self.record.append((verdict.accept and verdict.grow_to == 0, change))
        return verdict


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sorted", "clustered"])
@pytest.mark.parametrize("coarse", [0, 500])
def test_false_acceptance_stays_below_delta(kind, coarse):
    """Of the steps on a batch that raise the true cost, at most delta = 0.1 pass the test."""
    record = []
    x, y = make_data(50_000, kind)
    memory = rows().problem((x, y))
    for seed in range(200):
        problem = chunked(x, y, coarse=coarse, rng=seed)
        policy = Witness(memory, 0.1)
        with np.errstate(over="ignore"):  # some starts lead steps far away
            run_on_batches(problem, policy, np.random.default_rng(seed))
        record += policy.record
    rose = [passed for passed, change in record if change > 0]
    fell = [passed for passed, change in record if change < 0]
    assert len(rose) > 50
    assert sum(rose) <= 0.1 * len(rose)
    assert sum(fell) > 0.3 * len(fell)


def run_on_batches(problem, policy, rng):
    """Levenberg-Marquardt to convergence on a fixed batch, so that late steps truly raise the cost over all rows."""
    from problm.linalg.quadratic import QuadraticModel
    from problm.linalg.space import Space
    from problm.solver.batch import Batch
    from problm.solver.policies.acceptance import Step

    batch = Batch(problem, np.array([1.0, 1.0, 0.0]) + 0.3 * rng.standard_normal(3), 500)
    for _ in range(8):
        system = QuadraticModel(batch.linearize(True), batch.theta, Space(3), lambda diagonal: None)
        step, predicted, _ = system.step(1e-4)
        if not predicted > 1e-14 or not batch.trial(batch.theta + step) < 0:
            return
        policy.judge(Step(batch, step, lambda: rng))
        batch.accept()


class TestFrontDoor:
    def test_paths(self, tmp_path):
        x, y = make_data(100_000)
        np.save(tmp_path / "x.npy", x)
        np.save(tmp_path / "y.npy", y)
        paths = (tmp_path / "x.npy", str(tmp_path / "y.npy"))
        for memory in (None, "2MB"):  # read at once, and in chunks
            fit = problm.least_squares(model, [1, 1, 0], data=paths, jac=model_jac, max_memory=memory)
            assert fit.success
            np.testing.assert_allclose(fit.x, [2.0, 0.7, 0.3], atol=0.02)
        assert isinstance(fit.problem, ChunkedProblem)

    def test_omit_needs_memory(self, tmp_path):
        np.save(tmp_path / "x.npy", np.zeros(100))
        with pytest.raises(ValueError, match="nan_policy='omit' needs data in memory"):
            problm.least_squares(model, [1, 1, 0], data=tmp_path / "x.npy", nan_policy="omit")

    def test_a_bad_row_is_named(self, tmp_path):
        x, y = make_data(200_000)
        y[123_456] = np.nan
        np.savez(tmp_path / "t.npz", x=x, y=y)
        with pytest.raises(ValueError, match="at row 123456 of the data"):
            problm.least_squares(model, [1, 1, 0], data=tmp_path / "t.npz", max_memory="2MB")

    def test_difference_quotients_are_refined(self):
        problem = ChunkedProblem(rows(jac="2-point"), Sliced([Reader(np.zeros(5000)), Reader(np.zeros(5000))]))
        assert problem.refine_derivatives()
        assert problem.model.jac == "3-point"
        assert not problem.refine_derivatives()

    def test_parquet(self, tmp_path):
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        x, y = make_data(300_000, "sorted")
        pq.write_table(pa.table({"x": x, "y": y}), tmp_path / "t.parquet", row_group_size=20_000)
        source = open_source(tmp_path / "t.parquet", columns=["x", "y"])
        fit = problm.least_squares(model, [1, 1, 0], data=source, max_memory="8MB")
        assert fit.success
        assert isinstance(fit.problem, ChunkedProblem)
        np.testing.assert_allclose(fit.x, [2.0, 0.7, 0.3], atol=0.02)

    @pytest.mark.parametrize("weighted", [False, True])
    def test_curve_fit(self, tmp_path, weighted):
        x, y = make_data(100_000, "sorted")
        sigma = np.where(x > 2, 0.2, 0.1)
        for name, values in (("x", x), ("y", y), ("s", sigma)):
            np.save(tmp_path / f"{name}.npy", values)
        paths = [tmp_path / f"{name}.npy" for name in ("x", "y", "s")]

        def curve(x, a, b, c):
            return a * np.exp(-b * x) + c

        popt, pcov = problm.curve_fit(curve, paths[0], paths[1], sigma=paths[2] if weighted else None, max_memory="2MB")
        other, cov = problm.curve_fit(curve, x, y, sigma=sigma if weighted else None)
        np.testing.assert_allclose(popt, other, rtol=1e-4)
        np.testing.assert_allclose(pcov, cov, rtol=1e-3)

    def test_curve_fit_of_two_variables(self, tmp_path):
        rng = np.random.default_rng(0)
        u, v = rng.uniform(0, 1, (2, 100_000))
        y = 3.0 * u - 2.0 * v + 0.1 * rng.standard_normal(100_000)
        for name, values in (("u", u), ("v", v), ("uv", np.stack([u, v], 1)), ("y", y)):
            np.save(tmp_path / f"{name}.npy", values)

        def plane(x, a, b):
            return a * x[0] + b * x[1]

        def slopes(x, a, b):
            return np.stack([x[0], x[1]], axis=1)

        a, _ = problm.curve_fit(plane, (tmp_path / "u.npy", tmp_path / "v.npy"), tmp_path / "y.npy", max_memory="2MB")
        b, _ = problm.curve_fit(plane, tmp_path / "uv.npy", tmp_path / "y.npy", jac=slopes, max_memory="2MB")
        np.testing.assert_allclose(a, [3.0, -2.0], atol=0.01)
        np.testing.assert_allclose(a, b, rtol=1e-5)
