"""The runner of the benchmarks: records, honest costs, order, failures, resuming, processes."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from bench.harness.journal import Journal
from bench.harness.progress import Progress, clock
from bench.harness.run import WALL_CLOCK, Settings, cpu_clock, find, fingerprint, plain, read_records, run, tasks
from bench.harness.traces import cost_at, merged, reached, seconds_to, total_units, units, units_to

from tests.helpers import bench_tiny

ROOT = Path(__file__).parents[2]
SETTINGS = Settings(None, "check", 5)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return run(bench_tiny.EXPERIMENT, SETTINGS, tmp_path_factory.mktemp("tiny"), workers=1)


def test_every_task_has_a_record(records):
    assert len(records) == 2 * 2 * 2 * 2  # cases, starts, repeats, methods
    assert len({r["key"] for r in records}) == len(records)
    assert not [r for r in records if "error" in r]


def test_costs_are_those_of_all_residuals(records):
    instance = bench_tiny.cases(SETTINGS)[0].load()
    for r in records:
        if r["case"] != "exponential 1":
            continue
        x, y = instance.extra.data
        residuals = instance.extra.fun(np.array(r["x"]), x, y)
        assert r["final"] == pytest.approx(0.5 * residuals @ residuals, rel=1e-12)
        assert r["cost"][0] == pytest.approx(instance.cost(instance.starts[r["start"]]), rel=1e-10)
        assert r["cost"][-1] == pytest.approx(r["final"], rel=1e-10)
        assert r["seconds"][0] == 0.0
        assert r["seconds"] == sorted(r["seconds"])
        assert len(r["seconds"]) == len(r["cost"]) == len(r["batch"]) == len(r["residuals"]) == len(r["jacobians"])


def test_plain_lm_uses_all_residuals_and_the_default_does_not(records):
    assert {b for r in records if r["method"] == "lm" for b in r["batch"]} == {50_000}
    assert min(b for r in records if r["method"] == "default" for b in r["batch"]) < 50_000


def test_repeats_visit_the_same_points(records):
    groups = {}
    for r in records:
        groups.setdefault((r["case"], r["method"], r["start"]), []).append(r["cost"])
    assert all(a == b for a, b in groups.values())


def test_methods_are_interleaved_and_rotate():
    keys = [t.method for t in tasks(bench_tiny.EXPERIMENT, bench_tiny.cases(SETTINGS), SETTINGS)]
    assert keys[:4] == ["lm", "default", "default", "lm"]


def test_a_method_that_fails_is_recorded(tmp_path):
    found = run(bench_tiny.FAILING, SETTINGS, tmp_path, workers=1)
    broken = [r for r in found if r["method"] == "broken"]
    assert {r["error"] for r in broken} == {"ValueError: this method always fails"}
    summary = bench_tiny.summarise(bench_tiny.FAILING, found, SETTINGS)
    assert len(summary.failures) == 2
    assert "(4 runs)" in summary.failures[0]


def test_a_second_run_does_nothing(tmp_path, monkeypatch):
    first = run(bench_tiny.EXPERIMENT, SETTINGS, tmp_path, workers=1)
    monkeypatch.setattr(bench_tiny, "curve", lambda made: pytest.fail("a case was loaded although nothing is left"))
    assert run(bench_tiny.EXPERIMENT, SETTINGS, tmp_path, workers=1) == first


def test_processes_give_the_same_records(tmp_path):
    serial = run(bench_tiny.UNTIMED, SETTINGS, tmp_path / "one", workers=1)
    parallel = run(bench_tiny.UNTIMED, SETTINGS, tmp_path / "two", workers=2)
    for a, b in zip(serial, parallel, strict=True):
        assert (a["key"], a["batch"]) == (b["key"], b["batch"])
        # Workers give BLAS one thread each; how many it has decides how it rounds sums of more than 10^4 numbers.
        np.testing.assert_allclose([*a["cost"], a["final"]], [*b["cost"], b["final"]], rtol=1e-13)


_KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.helpers import bench_tiny
from bench.harness.run import Settings, run
run(bench_tiny.SLOW, Settings(None, "check", 5), Path({out!r}), workers=1)
"""


def test_a_killed_run_goes_on(tmp_path):
    code = _KILLED.format(root=str(ROOT), out=str(tmp_path))
    path = tmp_path / "raw" / "slow.jsonl"
    env = {**os.environ, "BENCH_TINY_SLEEP": "0.4"}
    child = subprocess.Popen([sys.executable, "-c", code], env=env)
    try:
        for _ in range(600):
            if path.exists() and len(path.read_bytes().splitlines()) >= 4:  # a header and three records
                break
            time.sleep(0.05)
        child.send_signal(signal.SIGKILL)
    finally:
        child.wait()
    before = read_records(path)
    assert 3 <= len(before) < 8
    with path.open("ab") as file:
        file.write(b'{"key":"1/1/1/slow","case":"torn')
    after = run(bench_tiny.SLOW, SETTINGS, tmp_path, workers=1)
    assert len(after) == 8
    assert after[: len(before)] == before
    assert {r["process"] for r in after[len(before) :]} == {os.getpid()}
    assert len(read_records(path)) == 8


def test_other_settings_do_not_mix(tmp_path):
    run(bench_tiny.SLOW, SETTINGS, tmp_path, workers=1)
    run(bench_tiny.SLOW, Settings(None, "check", 6), tmp_path, workers=1)
    old = tmp_path / "raw" / "slow.jsonl.old"
    assert json.loads(old.read_text().splitlines()[0])["settings"]["seed"] == 5
    assert json.loads((tmp_path / "raw" / "slow.jsonl").read_text().splitlines()[0])["settings"]["seed"] == 6


def test_the_journal_refuses_garbage(tmp_path):
    path = tmp_path / "j.jsonl"
    path.write_text("not json\n")
    with Journal(path, {"a": 1}) as journal:
        journal.append({"key": "1", "value": 0.5})
    with Journal(path, {"a": 1}) as journal:
        assert journal.records == {"1": {"key": "1", "value": 0.5}}


def test_fingerprint_tells_code_methods_and_cases():
    one = fingerprint(bench_tiny.EXPERIMENT, SETTINGS)
    assert one["methods"] == {"lm": "built in", "default": "built in"}
    assert one["cases"] == [["exponential 1", 2, 2], ["exponential 2", 2, 2]]
    assert len(one["code"]) == 16


def test_the_clock_is_cpu_time_inside_only():
    with cpu_clock():
        began = time.perf_counter()
        time.sleep(0.2)
        assert time.perf_counter() - began < 0.1
    assert time.perf_counter is WALL_CLOCK


def test_settings_are_checked(tmp_path):
    with pytest.raises(ValueError, match="scale='huge'"):
        Settings(None, "huge")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        Settings(str(tmp_path / "nowhere"))
    assert Settings(None, "paper").pick(1, 2, 3) == 3


def test_find_and_plain():
    assert find("tests.helpers.bench_tiny:EXPERIMENT") is bench_tiny.EXPERIMENT
    assert plain({"a": np.float64(1.5), "b": np.arange(2), 3: (np.int64(4),)}) == {"a": 1.5, "b": [0, 1], "3": [4]}


RECORD = {
    "cost": [9.0, 4.0, 6.0, 2.0, 1.0], "seconds": [0.0, 1.0, 2.0, 3.0, 4.0], "residuals": [0.0, 1.0, 2.0, 3.0, 4.0],
    "jacobians": [0.0, 1.0, 1.0, 2.0, 2.0], "residual_passes": 5.0, "jacobian_passes": 2.0,
}  # fmt: skip


def test_levels_are_crossed_for_good():
    assert seconds_to(RECORD, 5.0) == 3.0  # not 1.0: the cost rose above it again
    assert seconds_to(RECORD, 0.5) == np.inf
    assert seconds_to(RECORD, 10.0) == 0.0
    assert units(RECORD) == [0.0, 4.0, 5.0, 9.0, 10.0]
    assert units_to(RECORD, 5.0) == 9.0
    assert total_units(RECORD) == 11.0
    assert cost_at(RECORD, 2.5) == 6.0
    assert reached(RECORD, 1.0, RECORD["seconds"]) == 4.0


def test_merged_takes_medians_point_by_point():
    runs = [
        {"case": "a", "method": "m", "start": 0, "seconds": [0.0, s], "cost": [2.0, 1.0], "total_seconds": s}
        for s in (1.0, 5.0, 2.0)
    ]
    (one,) = merged([*runs, {"case": "a", "method": "m", "start": 0, "error": "x"}])
    assert one["seconds"] == [0.0, 2.0]
    assert one["total_seconds"] == 2.0


def test_progress_tells_the_time_left():
    stream = io.StringIO()
    progress = Progress({"a": 10.0, "b": 30.0}, stream)
    progress.begin("a", 20, 10, 10.0)
    assert progress.seconds_left() == pytest.approx(35.0, abs=0.5)  # half of a, all of b
    for _ in range(10):
        progress.step()
    progress.finish()
    assert "20/20" in stream.getvalue()
    assert clock(125.0) == "2 min 05 s"
    assert clock(float("nan")) == "?"
