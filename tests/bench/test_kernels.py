"""The costs of the kernels: operations counted by hand, limits that are limits, and the files that are written."""

import json

import numpy as np
import pytest
from bench.studies import kernel_costs

from problm.losses import Loss
from problm.models.ready_made import exponential, line


def counted(model):
    program = model.curve_kernel(1, len(model.parameters), None, Loss.named("linear"), 1).program
    return [kernel_costs.operations(program, int(program[k])) for k in (3, 2)]


def test_operations_of_a_line():
    value, both = counted(line())
    assert value == 4  # slope * x + intercept - y as one instruction: two multiply-adds
    assert both == 4 + 2  # by the slope x, a copy as 1 * x + 0, by the intercept 1


def test_operations_of_an_exponential():
    value, both = counted(exponential())
    assert value == 36 + 4  # exp(s x + u), then a e + c - y
    assert both > value


@pytest.mark.parametrize(("read", "peak", "by"), [(1.0, 1e6, "memory"), (1e6, 1.0, "arithmetic")])
def test_the_larger_limit_counts(read, peak, by):
    found = {"linearise": {"median": 32.0}, "cost": {"median": 16.0}, "linearise_operations": 16, "cost_operations": 16}
    kernel_costs.shares(found, {"read": read, "peak": peak})
    assert (found["linearise_limit"], found["linearise_limited_by"], found["linearise_share"]) == (16.0, by, 0.5)
    assert found["cost_share"] == 1.0


def test_limits_are_positive_and_chains_of_multiply_adds_compute():
    total, triad, multiply_adds = kernel_costs.limits_compiled()
    assert total(np.arange(5.0)) == 10.0
    out = np.zeros(3)
    triad(out, np.ones(3), np.full(3, 4.0))
    assert out.tolist() == [3.0] * 3
    assert multiply_adds(100, 0.5) == pytest.approx(12.0)  # twelve chains, each ends at x = x / 2 + 1 / 2


def test_command_writes_what_it_measured(tmp_path, capsys):
    assert kernel_costs.main(["--rows", "1000", "-o", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "kernels.json").read_text())["data"]
    assert {k["model"] for k in found["kernels"]} == set(kernel_costs.models())
    for kernel in found["kernels"]:
        assert kernel["linearise"]["median"] > 0.0
        assert kernel["linearise_operations"] > kernel["cost_operations"] > 0
    text = (tmp_path / "kernels.md").read_text()
    assert "GB/s" in text
    assert "exponential" in text
    assert text.strip() in capsys.readouterr().out
