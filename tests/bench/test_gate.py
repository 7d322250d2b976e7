"""The regression gate and the speed table: what counts as fallen behind, met or missed."""

from __future__ import annotations

import json
import math

import pytest
from bench.harness import check
from bench.studies import speed

BASE = {
    "curves, passes": {"value": 10.0, "noise": 0.1},
    "curves, seconds": {"value": 10.0, "noise": 0.1},
    "curves, passes of the default": {"value": 2.0, "noise": 0.2, "lower": True},
    "curves, unknown noise": {"value": 10.0, "noise": None},
}


def held(**values):
    current = {
        k: {"value": values.get(k.split(", ")[1].replace(" ", "_"), v["value"]), "noise": 0.0} for k, v in BASE.items()
    }
    return {r["name"].split(", ")[1]: r["holds"] for r in check.compare(BASE, current)}


def test_equal_numbers_hold():
    assert all(held().values())


def test_a_ratio_may_fall_by_its_noise_only():
    assert held(passes=9.1)["passes"]
    assert not held(passes=8.9)["passes"]
    assert held(seconds=6.6)["seconds"]  # seconds get more room
    assert not held(seconds=6.4)["seconds"]


def test_counts_may_rise_by_their_noise_only():
    assert held(passes_of_the_default=2.3)["passes of the default"]
    assert not held(passes_of_the_default=2.5)["passes of the default"]


def test_unknown_noise_gets_half():
    assert held(unknown_noise=9.6)["unknown noise"]
    assert check.room("passes", math.inf, math.inf) == 0.5
    assert check.room("passes", 5.0) == check.MOST_NOISE


def test_a_number_that_is_gone_fails():
    assert [r["holds"] for r in check.compare({"curves, x": {"value": 1.0, "noise": 0.1}}, {})] == [False]


def test_finite_drops_what_json_cannot_say():
    kept = check.finite({"a": {"value": 1.23456789, "noise": math.inf}, "b": {"value": math.nan, "noise": 0.1}})
    assert kept == {"a": {"value": 1.23457, "noise": None}}


def test_the_gate_fails_and_says_why(tmp_path, monkeypatch, capsys):
    path = tmp_path / "baseline.json"
    monkeypatch.setattr(
        check, "measured", lambda settings, names=None: {"curves, passes": {"value": 10.0, "noise": 0.1}}
    )
    assert check.main(["--baseline", str(path)]) == 2
    assert check.main(["--baseline", str(path), "--update"]) == 0
    assert json.loads(path.read_text())["data"] == {"curves, passes": {"value": 10.0, "noise": 0.1}}
    assert check.main(["--baseline", str(path)]) == 0
    monkeypatch.setattr(
        check, "measured", lambda settings, names=None: {"curves, passes": {"value": 5.0, "noise": 0.1}}
    )
    assert check.main(["--baseline", str(path)]) == 1
    assert "BEHIND  curves, passes: 5 (baseline 10, limit 9)" in capsys.readouterr().out


def test_what_fails_once_is_measured_again(tmp_path, monkeypatch):
    path = tmp_path / "baseline.json"
    values = iter([10.0, 5.0, 10.0])
    monkeypatch.setattr(
        check, "measured", lambda settings, names=None: {"curves, passes": {"value": next(values), "noise": 0.1}}
    )
    assert check.main(["--baseline", str(path), "--update"]) == 0
    assert check.main(["--baseline", str(path)]) == 0


def test_the_committed_baseline_is_readable():
    if not check.BASELINE.exists():
        pytest.fail("bench/results/baseline.json is missing: make it with python -m bench.harness.check --update")
    kept = json.loads(check.BASELINE.read_text())["data"]
    assert kept
    for name, entry in kept.items():
        assert name.startswith(check.GUARDED)
        assert entry["value"] > 0


def _record(method, seconds, *, n=1_000_000, final=1.0, level=None):
    return {
        "case": f"exponential, N = {n}", "method": method, "start": 0, "repeat": 0, "final": final,
        "total_seconds": seconds, "cost": [5.0, 1.0005, final], "seconds": [0.0, level or seconds, seconds],
    }  # fmt: skip


def test_the_fastest_peer_that_arrived_counts():
    times = speed.Times([
        _record("problm", 1.0), _record("problm", 1.2), _record("scipy-lm", 4.0), _record("scipy-lm", 6.0),
        _record("jaxopt-gn", 0.5, final=1.1), _record("optimistix", 3.0), _record("optimistix", 3.0),
    ])  # fmt: skip
    (row,) = speed.certificate_rows(times, [1_000_000])
    assert row["against"].startswith("optimistix")  # jaxopt was faster, but ended elsewhere
    assert row["ratio"] == pytest.approx((3.0 / 1.0 + 3.0 / 1.2) / 2)
    assert row["met"]
    assert not speed.row("x", "1", "", "", (1.9, 1.0, 3.0), 2.0)["met"]


def test_levels_and_growth():
    times = speed.Times([
        _record("problm", 1.0, n=10_000_000, level=0.02), _record("problm-lm", 3.0, n=10_000_000, level=2.0),
        _record("problm", 0.1, n=100_000, level=0.015),
    ])  # fmt: skip
    against_lm, growth = speed.level_rows(times, [100_000, 10_000_000])
    assert against_lm["ratio"] == pytest.approx(100.0)
    assert against_lm["met"]
    assert growth["ratio"] == pytest.approx(0.02 / 0.015)
    assert growth["met"]


def test_the_table_prints_missed_targets():
    text = speed.describe({
        "rows": [speed.row("fit", "10", "2 s", "peer: 1 s", (0.5, 0.4, 0.6), 2.0)], "probes": [],
        "kernels": [], "times": [], "skipped": ["peer at N = 7"],
    })  # fmt: skip
    assert "| fit | 10 | 2 s | peer: 1 s | 0.5× (0.4–0.6) | ≥ 2× | **missed** |" in text[2]
    assert "Not run: peer at N = 7." in text
