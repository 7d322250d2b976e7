"""A solve that was killed goes on from its checkpoint and ends with the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import problm
from problm import manifolds
from problm.losses import Loss
from problm.problems.rows import FunctionModel
from problm.sampling.order import RandomOrder
from problm.solver.checkpoint import Checkpoint
from problm.solver.checkpoint.file import decode, encode, pack, unpack

START = np.array([1.0, 1.0, 0.0])


def model(t, x, y):
    return t[0] * np.exp(-t[1] * x) + t[2] - y


def make_data(n=60_000):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 5, n)
    return x, 2.0 * np.exp(-0.7 * x) + 0.3 + 0.1 * rng.standard_normal(n)


class Killed(BaseException):
    """Ends a solve as a crash would: nothing of it is left but the file."""


def killed_after(iterations):
    def callback(state):
        if state.iteration >= iterations:
            raise Killed

    return callback


def same(a, b):
    assert a.x.tobytes() == b.x.tobytes()
    assert a.cost == b.cost
    assert a.status == b.status
    for name in ("batch_size", "cost", "damping", "decision", "residual_passes", "jacobian_passes"):
        assert getattr(a.history, name) == getattr(b.history, name), name
    assert (a.nfev, a.njev) == (b.nfev, b.njev)
    np.testing.assert_array_equal(a.hessian, b.hessian)


def check_every_place(solve, path, step=4):
    """Kill the solve after every so many iterations; it always ends as if nothing had happened."""
    whole = solve()
    for k in range(1, whole.nit + 1, step):
        path.unlink(missing_ok=True)
        with pytest.raises(Killed):
            solve(checkpoint=path, checkpoint_every=0.0, callback=killed_after(k))
        assert path.exists()
        same(solve(checkpoint=path, checkpoint_every=0.0), whole)
    return whole


@pytest.mark.parametrize("damping", ["trust-region", "gain-ratio"])
def test_killed_anywhere_in_a_compiled_fit(tmp_path, damping):
    formula = problm.formula("a*exp(-b*x) + c")

    def solve(**options):
        return problm.least_squares(formula, START, data=make_data(), damping=damping, keep_path=True, **options)

    check_every_place(solve, tmp_path / "state", step=1)


@pytest.mark.parametrize("acceptance", ["holdout", "full", "paper", "paper-relaxed", "empirical-bernstein"])
@pytest.mark.parametrize("loss", ["linear", "soft_l1"])
def test_killed_anywhere(tmp_path, acceptance, loss):
    data = make_data(15_000)

    def solve(**options):
        return problm.least_squares(model, START, data=data, acceptance=acceptance, loss=loss, f_scale=0.1, **options)

    whole = check_every_place(solve, tmp_path / "solve.npz", 1 if acceptance == "holdout" else 5)
    assert whole.success


def test_killed_twice(tmp_path):
    data, path = make_data(), tmp_path / "solve.npz"

    def solve(**options):
        return problm.least_squares(model, START, data=data, **options)

    for k in (3, 6):
        with pytest.raises(Killed):
            solve(checkpoint=path, checkpoint_every=0.0, callback=killed_after(k))
    same(solve(checkpoint=path), solve())


def test_a_generator_of_the_users(tmp_path):
    """It feeds the order and the policy's coin alike; the state brings both back."""
    data = make_data(15_000)

    def solve(**options):
        rng = np.random.Generator(np.random.Philox(7))
        return problm.least_squares(model, START, data=data, rng=rng, acceptance="paper-relaxed", **options)

    check_every_place(solve, tmp_path / "solve.npz")


def test_from_files(tmp_path):
    x, y = make_data()
    np.savez(tmp_path / "data.npz", x=x, y=y)

    def solve(**options):
        return problm.least_squares(model, START, data=tmp_path / "data.npz", max_memory="1.2MB", **options)

    whole = check_every_place(solve, tmp_path / "solve.npz")
    assert type(whole.problem).__name__ == "ChunkedProblem"


def test_compiled(tmp_path):
    x, y = make_data()

    def solve(**options):
        return problm.api.curve_fit.fit(problm.formula("a*exp(-b*x) + c"), x, y, START, **options)

    import problm.api.curve_fit

    check_every_place(solve, tmp_path / "solve.npz")


def test_on_a_manifold(tmp_path):
    rng = np.random.default_rng(1)
    p = rng.standard_normal((20_000, 3))
    truth = manifolds.rotation_exp(np.array([0.3, -0.2, 0.5]))
    q = p @ truth.T + 0.01 * rng.standard_normal(p.shape)

    def residual(R, p, q):
        return p @ R.reshape(3, 3).T - q

    def solve(**options):
        return problm.least_squares(
            residual, np.eye(3).ravel(), data=(p, q), manifold=manifolds.ROTATION, keep_path=True, **options
        )

    whole = check_every_place(solve, tmp_path / "solve.npz")
    assert len(whole.history.path) == whole.nit


def test_after_refined_derivatives(tmp_path):
    """Differences that went over to three points stay so."""
    x, y = make_data(500)
    path = tmp_path / "solve.npz"
    rows = FunctionModel(model, "2-point", 3, Loss.named("linear"))
    from problm.solver.loop import solve

    with pytest.raises(Killed):
        solve(rows.problem((x, y)), START, checkpoint=path, checkpoint_every=0.0, callback=killed_after(2))
    state = Checkpoint(path, 0.0).load()
    assert state is not None
    state["refined"] = True

    path.write_bytes(pack(state))
    problem = rows.problem((x, y))
    solve(problem, START, checkpoint=path)
    assert problem.differences.scheme == "3-point"


SCRIPT = """
import sys, time, numpy as np, problm
rng = np.random.default_rng(0)
x = rng.uniform(0, 5, 60_000)
y = 2.0 * np.exp(-0.7 * x) + 0.3 + 0.1 * rng.standard_normal(60_000)
def slow(state):
    time.sleep(float(sys.argv[2]))
fit = problm.least_squares(lambda t, x, y: t[0] * np.exp(-t[1] * x) + t[2] - y, [1.0, 1.0, 0.0], data=(x, y),
                           checkpoint=sys.argv[1], checkpoint_every=0.0, callback=slow)
print(fit.x.tobytes().hex(), fit.nit)
"""


def test_kill_9(tmp_path):
    path = tmp_path / "solve.npz"
    run = [sys.executable, "-c", SCRIPT]
    whole = subprocess.run([*run, str(tmp_path / "other.npz"), "0"], capture_output=True, text=True, check=True)
    for _ in range(2):
        process = subprocess.Popen([*run, str(path), "0.3"], stdout=subprocess.PIPE)
        seen = path.stat().st_mtime_ns if path.exists() else 0
        deadline = time.monotonic() + 60
        while not (path.exists() and path.stat().st_mtime_ns > seen):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()
    resumed = subprocess.run([*run, str(path), "0"], capture_output=True, text=True, check=True)
    assert resumed.stdout == whole.stdout


class TestFile:
    def write(self, path, **options):
        with pytest.raises(Killed):
            problm.least_squares(
                model,
                START,
                data=make_data(),
                checkpoint=path,
                checkpoint_every=0.0,
                callback=killed_after(4),
                **options,
            )

    def test_it_is_small_and_free_of_code(self, tmp_path):
        path = tmp_path / "solve.npz"
        self.write(path)
        assert path.stat().st_size < 30_000
        with np.load(path, allow_pickle=False) as file:
            assert all(file[name].dtype.kind in "fiub" for name in file.files)

    def test_every_so_often(self, tmp_path):
        path = tmp_path / "solve.npz"
        problm.least_squares(model, START, data=make_data(), checkpoint=path, checkpoint_every=3600.0)
        assert not path.exists()

    def test_another_start(self, tmp_path):
        path = tmp_path / "solve.npz"
        self.write(path)
        with pytest.raises(ValueError, match="belongs to another solve: its start"):
            problm.least_squares(model, START + 1, data=make_data(), checkpoint=path)

    def test_another_policy_or_length(self, tmp_path):
        path = tmp_path / "solve.npz"
        self.write(path)
        with pytest.raises(ValueError, match=r"its acceptance is .*'Holdout'.*, here it is .*'Paper'"):
            problm.least_squares(model, START, data=make_data(), checkpoint=path, acceptance="paper")
        with pytest.raises(ValueError, match="its n is 60000, here it is 50000"):
            problm.least_squares(model, START, data=make_data(50_000), checkpoint=path)

    def test_other_data(self, tmp_path):
        path = tmp_path / "solve.npz"
        self.write(path)
        x, y = make_data()
        with pytest.raises(ValueError, match="was written for other data"):
            problm.least_squares(model, START, data=(x, y + 0.01), checkpoint=path)

    @pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04garbage"])
    def test_not_a_checkpoint(self, tmp_path, content):
        path = tmp_path / "solve.npz"
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is not a checkpoint"):
            problm.least_squares(model, START, data=make_data(100), checkpoint=path)

    def test_cut_short(self, tmp_path):
        path = tmp_path / "solve.npz"
        self.write(path)
        path.write_bytes(path.read_bytes()[:1000])
        with pytest.raises(ValueError, match="is not a checkpoint"):
            problm.least_squares(model, START, data=make_data(), checkpoint=path)

    def test_another_version(self, tmp_path):
        path = tmp_path / "solve.npz"
        np.savez(path, state=np.frombuffer(b'{"format": "problm.checkpoint", "version": 99}', dtype=np.uint8))
        with pytest.raises(ValueError, match="another version"):
            problm.least_squares(model, START, data=make_data(100), checkpoint=path)

    def test_memories_of_another_version(self, tmp_path):
        """A rule that remembered something else then."""
        path = tmp_path / "solve.npz"
        self.write(path)
        state = unpack(str(path))
        state["memory"]["termination"]["_forgotten"] = 1
        path.write_bytes(pack(state))
        with pytest.raises(ValueError, match="another version"):
            problm.least_squares(model, START, data=make_data(), checkpoint=path)

    def test_what_cannot_be_saved(self):
        with pytest.raises(TypeError, match="a set cannot be saved"):
            encode({"a": {1}}, {})

    def test_values_come_back(self):
        arrays = {}
        value = {"a": (1, None, [np.float64(0.1)]), "b": np.arange(3), "c": float("nan"), "d": 2**127}
        back = decode(encode(value, arrays), arrays)
        assert back["a"] == (1, None, [0.1])
        np.testing.assert_array_equal(back["b"], [0, 1, 2])
        assert np.isnan(back["c"])
        assert back["d"] == 2**127


def test_a_folder_that_is_not_there_is_told_before_any_work(tmp_path):
    calls = []

    def line(theta, x):
        calls.append(len(x))
        return theta[0] * x - 1.0

    with pytest.raises(FileNotFoundError, match="folder of the checkpoint does not exist"):
        problm.least_squares(line, [3.0], data=np.ones(5), checkpoint=tmp_path / "none" / "solve.npz")
    assert len(calls) <= 1  # a look at what it returns


def test_orders_are_replayed():
    order = RandomOrder(1000, 3)
    parts = [order.indices(0, 10), order.indices(10, 200), order.indices(200, 700)]
    again = RandomOrder(1000, 3)
    again.restore(order.state())
    for lo, hi, part in ((0, 10, parts[0]), (10, 200, parts[1]), (200, 700, parts[2])):
        np.testing.assert_array_equal(again.indices(lo, hi), part)
    np.testing.assert_array_equal(again.indices(700, 900), order.indices(700, 900))
