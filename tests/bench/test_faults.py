"""The study of faults, with a few of them."""

from __future__ import annotations

import random
import sys

import pytest
from bench.studies import faults

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals and forks are POSIX"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),  # a fork beside threads, which are idle
]


def test_a_few_kills_and_interrupts(tmp_path, monkeypatch):
    monkeypatch.setattr(faults, "ROWS", 60_000)
    monkeypatch.setattr(faults, "EVERY", 0.0)
    data = faults.make_data()
    killed = faults.kills(3, data, tmp_path, random.Random(1))
    assert killed["kills"] >= 3
    assert killed["wrong"] == 0
    stopped = faults.interrupts(3, data, tmp_path, random.Random(1))
    assert stopped.get("wrong", 0) == 0
    assert "| kills | " in "\n".join(faults.page({"kill": killed, "interrupt": stopped}))


@pytest.mark.parametrize("part", ["disk", "files", "threads"])
def test_a_few_other_faults(tmp_path, part):
    found = faults.measure(part, 3, tmp_path, random.Random(1))
    assert found["wrong"] == 0
    assert 3 in found.values()


def test_results_of_somebody_else_are_not_replaced(tmp_path, capsys):
    from bench.__main__ import execute
    from bench.harness.run import Settings

    (tmp_path / "report.html").write_text("precious")
    assert execute(["all"], Settings(None, "check", 11), tmp_path) == 2
    assert "report.html; give another --output, or --force" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
