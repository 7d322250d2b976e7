"""Results as JSON: everything comes back, nothing is executed, damage is named."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import problm
from problm.report.serialize import plain
from problm.solver.saved import to_dict


@pytest.fixture(scope="module")
def result():
    rng = np.random.default_rng(3)
    x = rng.random(5000)
    y = 2 * np.exp(-3 * x) + 0.1 * rng.standard_normal(x.size)
    _, _, info, _, _ = problm.curve_fit(lambda x, a, b: a * np.exp(-b * x), x, y, [1, 1], full_output=True)
    return info["result"]


def test_everything_comes_back(result, tmp_path):
    path = tmp_path / "fit.json"
    result.save(path)
    again = problm.Result.load(path)
    np.testing.assert_array_equal(again.x, result.x)
    np.testing.assert_array_equal(again.hessian, result.hessian)
    np.testing.assert_array_equal(again.covariance, result.covariance)
    np.testing.assert_array_equal(again.active_mask, result.active_mask)
    assert again.active_mask.dtype == np.int64
    assert again.history == result.history
    assert again.status is result.status
    assert again.names == ("a", "b")
    assert again.report() == result.report()
    assert again.to_dict() == result.to_dict()
    assert repr(again) == repr(result)
    assert [p.name for p in tmp_path.iterdir()] == ["fit.json"]


def test_the_file_is_plain_json(result, tmp_path):
    result.save(tmp_path / "fit.json")

    def forbidden(name):
        raise AssertionError(f"{name} is not JSON")

    data = json.loads((tmp_path / "fit.json").read_text(), parse_constant=forbidden)
    assert data["x"] == result.x.tolist()
    assert data["standard_errors"] == pytest.approx(result.standard_errors.tolist())
    assert data["status"] == result.status.name


def test_what_is_not_finite(result):
    data = to_dict(result)
    data["history"]["cost"][0] = "Infinity"
    data["cosine"] = "NaN"
    again = problm.Result.from_dict(json.loads(json.dumps(data)))
    assert again.history.cost[0] == np.inf
    assert np.isnan(again.cosine)
    assert to_dict(again)["cosine"] == "NaN"


def test_a_loaded_result_has_no_residuals_and_says_so(result):
    again = problm.Result.from_dict(result.to_dict())
    with pytest.raises(RuntimeError, match="loaded from a file"):
        _ = again.fun
    assert again.plot() is not None  # without the histogram


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.pop("format"), "not a saved result"),
        (lambda d: d.update(version=99), "version 99"),
        (lambda d: d.pop("grad"), "'grad' is missing"),
        (lambda d: d.update(status="FINE"), "unknown status 'FINE'"),
        (lambda d: d.update(hessian=[[1.0]]), "hessian has shape"),
        (lambda d: d.update(hessian=[[1.0, 2.0], [3.0]]), "damaged"),
        (lambda d: d.update(cost="lots"), "'lots' is not a number"),
        (lambda d: d.update(cost=True), "a number was expected"),
        (lambda d: d.update(grad=3), "grad must be a list"),
        (lambda d: d.update(names=["a"]), "1 names for 2"),
        (lambda d: d["history"]["cost"].pop(), "differ in length"),
        (lambda d: d.update(history=7), "damaged"),
        (lambda d: d.update(x=[[1, 2], [3]]), "damaged"),
    ],
)
def test_damage_is_named(result, change, says):
    data = result.to_dict()
    change(data)
    with pytest.raises(ValueError, match=says):
        problm.Result.from_dict(data)


def test_files_that_are_no_results(tmp_path, monkeypatch):
    path = tmp_path / "fit.json"
    for content in (b"", b"\xff\xfe", b"[" * 100_000, b"{", b"import os", b"[1]", b"null"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"not JSON|not a saved result"):
            problm.Result.load(path)
    monkeypatch.setattr("problm.solver.saved.MAX_BYTES", 3)
    with pytest.raises(ValueError, match="at most 3"):
        problm.Result.load(path)


def test_a_failed_write_leaves_the_old_file(result, tmp_path, monkeypatch):
    path = tmp_path / "fit.json"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        result.save(path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["fit.json"]


def test_plain():
    @dataclass
    class Point:
        x: float
        where: np.ndarray

    assert plain([Point(1.0, np.eye(2)), np.float32(2), np.int8(3), np.bool_(True), None, "s"]) == [
        {"x": 1.0, "where": [[1.0, 0.0], [0.0, 1.0]]}, 2.0, 3, True, None, "s",
    ]  # fmt: skip
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        plain(object())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("mask", [[2**63], [0.5, 0], ["NaN", 1], [2, -1]])
def test_a_mask_of_bounds_holds_signs_alone(result, mask):
    with pytest.raises(ValueError, match="active_mask"):
        problm.Result.from_dict(result.to_dict() | {"active_mask": mask})


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_change_is_read_or_refused(result, data):
    saved = result.to_dict()
    key = data.draw(st.sampled_from(sorted(saved)))
    saved[key] = data.draw(json_values)
    try:
        again = problm.Result.from_dict(saved)
    except ValueError:
        return
    assert isinstance(again, problm.Result)
