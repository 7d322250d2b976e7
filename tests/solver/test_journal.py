"""Checkpoints in the middle of passes over everything, and to whom a checkpoint belongs."""

from __future__ import annotations

import contextlib
import json
import os

import numpy as np
import pytest

import problm
from problm.kernels import kernel as kernels
from problm.linalg.normal import Normal
from problm.losses import Loss
from problm.problems import out_of_core
from problm.solver.checkpoint import state as checkpoints
from problm.solver.checkpoint.file import pack, unpack
from problm.solver.journal import Journal, same
from problm.solver.loop import solve
from problm.solver.problem import Problem

START = np.array([1.0, 1.0, 0.0])


class Killed(BaseException):
    """Ends a solve as a crash would: nothing of it is left but the file."""


def curve(t, x, y):
    return t[0] * np.exp(-t[1] * x) + t[2] - y


def make_data(n):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 5, n)
    return x, 2.0 * np.exp(-0.7 * x) + 0.3 + 0.1 * rng.standard_normal(n)


class Plain(Problem):
    """A problem of the user's: no hooks but the two that are needed."""

    few = 10**9

    def __init__(self, x, y):
        self.x, self.y, self.n, self.dim, self.passes = x, y, len(x), 3, 0

    def _parts(self, theta, lo, hi):
        e = np.exp(-theta[1] * self.x[lo:hi])
        return theta[0] * e + theta[2] - self.y[lo:hi], np.stack([e, -theta[0] * self.x[lo:hi] * e, np.ones_like(e)])

    def linearize(self, theta, lo, hi, *, outer, costs):
        self.passes += 1
        r, j = self._parts(theta, lo, hi)
        return Normal(hi - lo, 0.5 * float(r @ r), j @ r, j @ j.T)

    def costs(self, theta, lo, hi):
        return 0.5 * self._parts(theta, lo, hi)[0] ** 2


# --- killed within passes --------------------------------------------------------------------------------------

N = 100_000


@pytest.fixture
def solves(tmp_path, monkeypatch):
    """By name: functions that solve, with rows enough for several groups a pass."""
    monkeypatch.setattr(kernels, "GROUP", 2)
    monkeypatch.setattr(out_of_core, "_PIECE_BYTES", 1 << 19)
    x, y = make_data(N)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    model = problm.formula("a*exp(-b*x) + c")
    return {
        "function": lambda **o: problm.least_squares(curve, START, data=(x, y), **o),
        "function, full": lambda **o: problm.least_squares(curve, START, data=(x, y), acceptance="full", **o),
        "function, robust": lambda **o: problm.least_squares(curve, START, data=(x, y), loss="huber", f_scale=0.1, **o),
        "formula": lambda **o: problm.least_squares(model, START, data=(x, y), damping="gain-ratio", **o),
        "formula, threads": lambda **o: problm.least_squares(
            model, START, data=(x, y), acceptance="full", damping="gain-ratio", threads=2, **o
        ),
        "files": lambda **o: problm.least_squares(
            model, START, data=tmp_path / "data.npz", max_memory="3MB", damping="gain-ratio", **o
        ),
    }


NAMES = ["function", "function, full", "function, robust", "formula", "formula, threads", "files"]


@pytest.mark.parametrize("name", NAMES)
def test_killed_after_any_group_of_a_pass(solves, tmp_path, monkeypatch, name):
    """No group that was noted is done again, and the bits are those of a solve that nobody disturbed."""
    path, run, note = tmp_path / "solve.npz", solves[name], Journal.note
    whole, counts = run(), [0, 0]

    def counted(self, groups, sums):
        counts[0] += self._pass is not None
        note(self, groups, sums)
        if counts[0] == counts[1] > 0:
            raise Killed

    monkeypatch.setattr(Journal, "note", counted)
    run(checkpoint=path, checkpoint_every=0.0)
    total = counts[0]
    assert total >= 8
    for kill in (1, total // 3, total // 2, total - 1):
        path.unlink()
        counts[:] = 0, kill
        with pytest.raises(Killed):
            run(checkpoint=path, checkpoint_every=0.0)
        counts[:] = 0, 0
        again = run(checkpoint=path, checkpoint_every=0.0)
        assert counts[0] == total - kill
        assert again.x.tobytes() == whole.x.tobytes()
        assert (again.cost, again.status, again.nit) == (whole.cost, whole.status, whole.nit)
        assert again.history.cost == whole.history.cost


def test_a_pass_that_takes_longer_than_the_interval_is_preceded_by_a_checkpoint(tmp_path, monkeypatch):
    """Problems that note no groups: the state is on disk before a pass begins that would not end in time."""
    path, problem = tmp_path / "solve.npz", Plain(*make_data(5000))
    clock = [0.0]
    monkeypatch.setattr(checkpoints.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr("problm.solver.batch.time.perf_counter", lambda: clock[0])
    inner = problem.linearize

    def slow(theta, lo, hi, *, outer, costs):
        if problem.passes >= 2:
            assert path.exists()
        clock[0] += 10.0
        return inner(theta, lo, hi, outer=outer, costs=costs)

    problem.linearize = slow
    solve(problem, START, checkpoint=path, checkpoint_every=15.0)
    assert problem.passes > 2


def test_passes_that_ended_are_not_repeated(tmp_path):
    """A solve that ended, taken up again: the last iteration is replayed from the journal."""
    path, problem = tmp_path / "solve.npz", Plain(*make_data(5000))
    first = solve(problem, START, checkpoint=path, checkpoint_every=0.0)
    again = Plain(*make_data(5000))
    second = solve(again, START, checkpoint=path, checkpoint_every=0.0)
    assert second.x.tobytes() == first.x.tobytes()
    assert again.passes == 0


# --- to whom a checkpoint belongs ------------------------------------------------------------------------------


def changed(x, y):
    """One row in the middle, which no sample of rows is likely to hold."""
    y = y.copy()
    y[len(y) // 2] += 1e-9
    return x, y


def test_one_other_row_of_very_many(tmp_path):
    path, (x, y) = tmp_path / "solve.npz", make_data(100_000)
    problm.least_squares(curve, START, data=(x, y), checkpoint=path, checkpoint_every=0.0)
    for data in (changed(x, y), (x[::-1], y[::-1]), (x, y.astype(np.float32))):
        with pytest.raises(ValueError, match="was written for other data"):
            problm.least_squares(curve, START, data=data, checkpoint=path)


@pytest.mark.parametrize("moved", [False, True])
def test_other_rows_in_files(tmp_path, moved):
    """Files are known by their size and times; where these differ, by the cost of all rows."""
    path, (x, y) = tmp_path / "solve.npz", make_data(100_000)
    file = tmp_path / "rows.npz"
    np.savez(file, x=x, y=y)
    first = problm.least_squares(curve, START, data=file, max_memory="1.5MB", checkpoint=path, checkpoint_every=0.0)
    if moved:
        os.rename(file, tmp_path / "other.npz")
        file = tmp_path / "other.npz"
        again = problm.least_squares(curve, START, data=file, max_memory="1.5MB", checkpoint=path)
        assert again.x.tobytes() == first.x.tobytes()
        return
    y[50_000] += 10.0
    np.savez(file, x=x, y=y)
    with pytest.raises(ValueError, match=r"the data or the residual function changed|belongs to another solve"):
        problm.least_squares(curve, START, data=file, max_memory="1.5MB", checkpoint=path)


@pytest.mark.parametrize("other", [{"loss": "huber"}, {"jac": "3-point"}, {"fun": lambda t, x, y: t[2] - y + t[0] * x}])
def test_another_model_of_rows_in_files(tmp_path, other):
    """Also after the first iteration, of which no cost is known to compare with."""
    path, (x, y) = tmp_path / "solve.npz", make_data(100_000)
    np.savez(tmp_path / "rows.npz", x=x, y=y)
    options = {"data": tmp_path / "rows.npz", "max_memory": "1.5MB", "checkpoint": path}
    problm.least_squares(curve, START, max_iter=1, checkpoint_every=0.0, **options)
    with pytest.raises(ValueError, match="belongs to another solve"):
        problm.least_squares(
            other.get("fun", curve), START, **options, **{k: v for k, v in other.items() if k != "fun"}
        )


def test_problems_without_a_digest_are_asked_for_the_cost_of_all_rows(tmp_path):
    path, (x, y) = tmp_path / "solve.npz", make_data(3000)
    solve(Plain(x, y), START, checkpoint=path, checkpoint_every=0.0)
    y = y.copy()
    y[1500] += 0.5
    with pytest.raises(ValueError, match=r"cost of all rows .* then, .* now"):
        solve(Plain(x, y), START, checkpoint=path)


@pytest.mark.parametrize("n", [3000, 100_000])
@pytest.mark.parametrize("other", ["model", "loss"])
def test_another_model_or_loss(tmp_path, n, other):
    """Also one that agrees at the start, where c is zero."""
    path, data = tmp_path / "solve.npz", make_data(n)
    problm.least_squares(curve, START, data=data, checkpoint=path, checkpoint_every=0.0)
    fun = curve if other == "loss" else (lambda t, x, y: t[0] * np.exp(-t[1] * x) - t[2] - y)
    options = {"loss": "huber", "f_scale": 0.01} if other == "loss" else {}
    with pytest.raises(ValueError, match=r"the data or the residual function changed|belongs to another solve"):
        problm.least_squares(fun, START, data=data, checkpoint=path, **options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"ftol": 1e-3}, "options"), ({"gtol": 1e-3}, "options"), ({"accuracy": 0.1}, "options"),
        ({"bounds": ([0, 0, 0], [9, 9, 9])}, "bounds"), ({"acceptance": "full"}, "acceptance"),
        ({"damping": "nielsen"}, "damping"), ({"rng": 5}, "seed"),
    ],
)  # fmt: skip
def test_other_options(tmp_path, options, told):
    path, data = tmp_path / "solve.npz", make_data(50_000)
    problm.least_squares(curve, START, data=data, checkpoint=path, checkpoint_every=0.0)
    with pytest.raises(ValueError, match=f"belongs to another solve: its {told} is"):
        problm.least_squares(curve, START, data=data, checkpoint=path, **options)


def scaled(k):
    return lambda t, x, y: t[0] * np.exp(-k * t[1] * x) + t[2] - y


OTHERS = {
    "a constant in a closure": {"fun": scaled(1.0001)},
    "parameters in another order": {"fun": lambda t, x, y: t[2] * np.exp(-t[1] * x) + t[0] - y},
    "the other sign": {"fun": lambda t, x, y: y - t[0] * np.exp(-t[1] * x) - t[2]},
    "a loss": {"loss": "huber", "f_scale": 0.1},
    "other derivatives": {"jac": "3-point"},
    "derivatives of the user's": {"jac": lambda t, x, y: np.zeros((len(x), 3))},
    "bounds": {"bounds": ([-9.0] * 3, [9.0] * 3)},
    "units": {"x_scale": [1.0, 2.0, 3.0]},
    "a start that differs in its last digit": {"start": np.array([1.0, 1.0, 1e-15])},
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("stop", [1, 4])
def test_the_checkpoint_of_another_solve(tmp_path, other, stop):
    """Also after the first iteration, of which no cost is known to compare with."""
    path, data = tmp_path / "solve.npz", make_data(20_000)
    problm.least_squares(scaled(1.0), START, data=data, checkpoint=path, checkpoint_every=0.0, max_iter=stop)
    given = {"fun": scaled(1.0), "start": START, **OTHERS[other]}
    fun, start = given.pop("fun"), given.pop("start")
    with pytest.raises(ValueError, match="another solve"):
        problm.least_squares(fun, start, data=data, checkpoint=path, **given)
    assert problm.least_squares(scaled(1.0), START, data=data, checkpoint=path).success


@pytest.mark.parametrize("stop", [1, 3])
def test_the_checkpoint_of_another_formula(tmp_path, stop):
    path, data, mine = tmp_path / "solve.npz", make_data(20_000), problm.formula("a*exp(-b*x) + c")
    options = {"data": data, "checkpoint": path, "damping": "gain-ratio"}
    problm.least_squares(mine, START, checkpoint_every=0.0, max_iter=stop, **options)
    for other, more in ((problm.formula("a*exp(-1.01*b*x) + c"), {}), (mine, {"loss": "huber", "f_scale": 0.1})):
        with pytest.raises(ValueError, match="another solve"):
            problm.least_squares(other, START, **options, **more)
    assert problm.least_squares(mine, START, **options).success


def test_what_a_function_counts_is_no_other_model(tmp_path):
    calls, buffer, seen = 0, np.empty(20_000), []

    def fun(t, x, y):
        nonlocal calls
        calls += 1
        seen.append(calls)
        np.multiply(-t[1], x, out=buffer[: len(x)])
        return t[0] * np.exp(buffer[: len(x)]) + t[2] - y

    path, data = tmp_path / "solve.npz", make_data(20_000)
    problm.least_squares(fun, START, data=data, checkpoint=path, checkpoint_every=0.0, max_iter=2)
    assert problm.least_squares(fun, START, data=data, checkpoint=path).success


def test_limits_may_change(tmp_path):
    path, data = tmp_path / "solve.npz", make_data(20_000)
    stopped = problm.least_squares(curve, START, data=data, checkpoint=path, checkpoint_every=0.0, max_iter=3)
    assert not stopped.success
    assert problm.least_squares(curve, START, data=data, checkpoint=path, max_iter=500, max_time=100.0).success


def test_another_version(tmp_path, monkeypatch):
    path, data = tmp_path / "solve.npz", make_data(20_000)
    problm.least_squares(curve, START, data=data, checkpoint=path, checkpoint_every=0.0)
    monkeypatch.setattr(checkpoints, "__version__", "99.0")
    with pytest.raises(ValueError, match="its versions is"):
        problm.least_squares(curve, START, data=data, checkpoint=path)


# --- a stranger's ----------------------------------------------------------------------------------------------


def forged(path, change):
    state = unpack(str(path))
    change(state)
    path.write_bytes(pack(state))


FORGERIES = {
    "another part of the run": lambda s: s["memory"].update(saver={"path": "precious"}),
    "a part of Checkpoint": lambda s: s["memory"].update(batch={"theta": 1}),
    "another attribute": lambda s: s["memory"]["policy"].update(__class__="str"),
    "a missing attribute": lambda s: s["memory"]["growth"].popitem(),
    "history's methods": lambda s: s["history"].update(add=[1]),
    "known costs beyond all rows": lambda s: s["batch"].update(known=10**15),
    "a batch beyond all rows": lambda s: s["batch"].update(size=10**15),
    "no batch": lambda s: s["batch"].update(size=0),
    "a point of another shape": lambda s: s["batch"].update(theta=np.zeros(4)),
    "counters that are text": lambda s: s["batch"].update(counters=("a", "b", "c", "d")),
    "history of several lengths": lambda s: s["history"]["cost"].append(1.0),
    "an order that is none": lambda s: s.update(order={"ends": [10**12], "states": [{}], "now": None}),
    "no journal": lambda s: s.pop("journal"),
    "seconds": lambda s: s.update(seconds=-1.0),
    "a radius that is text": lambda s: s["memory"]["damping"].update(radius="1"),
    "a diagonal of another length": lambda s: s["memory"]["damping"].update(_largest=np.ones(1)),
    "a diagonal of whole numbers": lambda s: s["memory"]["damping"].update(_largest=np.ones(3, dtype=np.int64)),
    "a number of blind steps that is none": lambda s: s["memory"]["termination"].update(blind=None),
    "sums that are none": lambda s: s["batch"].update(normal="sums"),
    "decisions that are numbers": lambda s: s["history"].update(decision=[1] * len(s["history"]["decision"])),
    "costs that are text": lambda s: s["history"].update(cost=["1"] * len(s["history"]["cost"])),
    "a fall that is text": lambda s: s.update(fall=("a", "b")),
    "a trail of another length": lambda s: s.update(trail=(np.ones(1), np.ones(2))),
    "a pass without a point": lambda s: s["journal"]["ended"].insert(0, {"kind": "cost", "found": 1.0}),
    "a pass of an unknown kind": lambda s: s["journal"].update(
        {"pass": {"kind": "run", "theta": s["batch"]["theta"], "groups": 1, "sums": None}}
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_states(tmp_path, monkeypatch, forgery):
    """Refused, or nothing comes of it: no file but the checkpoint is written, and no other answer comes out."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "precious").write_text("mine")
    path, data = tmp_path / "solve.npz", make_data(20_000)
    whole = problm.least_squares(curve, START, data=data)
    problm.least_squares(curve, START, data=data, checkpoint=path, checkpoint_every=0.0, max_iter=4)
    forged(path, FORGERIES[forgery])
    again = None
    with contextlib.suppress(ValueError):
        again = problm.least_squares(curve, START, data=data, checkpoint=path, checkpoint_every=0.0)
    assert again is None or again.x.tobytes() == whole.x.tobytes()
    assert sorted(os.listdir(tmp_path)) == ["precious", "solve.npz"]
    assert (tmp_path / "precious").read_text() == "mine"


SUMS = [
    None, 1.0, [1.0], [(0, 1.0)], [(0, 1.0), (0, 1.0)], [(63, 1.0)], [(-1, 1.0)], [[1.0]], "sum", np.ones(2), [],
    [np.ones(10)], [np.ones(2)], [(0, np.ones(10))], {"a": 1}, Normal.zero(3), [(0, Normal.zero(3))], [Normal.zero(4)],
]  # fmt: skip


@pytest.mark.parametrize("name", ["function, full", "formula, threads", "files"])
@pytest.mark.parametrize("kind", ["cost", "linearize"])
def test_forged_sums_of_a_pass(solves, tmp_path, name, kind):
    """Sums in a form that others note, or in none: refused, or computed anew."""
    path, run = tmp_path / "solve.npz", solves[name]
    run(checkpoint=path, checkpoint_every=0.0, max_iter=1)
    state = unpack(str(path))
    for sums in SUMS:
        for groups in (1, 2, 10**9, -1):
            noted = {"kind": kind, "theta": state["batch"]["theta"], "groups": groups, "sums": sums}
            path.write_bytes(pack({**state, "journal": {"ended": [], "pass": noted}}))
            with contextlib.suppress(ValueError):
                run(checkpoint=path, max_iter=3)


def test_states_of_endless_depth(tmp_path):
    text = b'{"a":' * 100_000
    np.savez(tmp_path / "solve.npz", state=np.frombuffer(text, dtype=np.uint8))
    with pytest.raises(ValueError, match="is not a checkpoint"):
        problm.least_squares(curve, START, data=make_data(100), checkpoint=tmp_path / "solve.npz")
    deep = json.dumps([[["x"]]]).encode()
    np.savez(tmp_path / "solve.npz", state=np.frombuffer(deep, dtype=np.uint8))
    with pytest.raises(ValueError, match="is not a checkpoint"):
        problm.least_squares(curve, START, data=make_data(100), checkpoint=tmp_path / "solve.npz")


def test_same():
    assert same({"a": [np.nan, (1, np.arange(2))]}, {"a": [np.nan, (1, np.arange(2))]})
    assert not same(np.arange(2), np.arange(2.0))
    assert not same([1, 2], [1])


def test_losses_are_told_apart():
    assert Loss.named("huber", 0.1) != Loss.named("huber", 0.2)
