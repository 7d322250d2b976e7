"""The line of progress during passes over files: bytes, rate, and a remaining time that comes true."""

from __future__ import annotations

import io

import numpy as np
import pytest

import problm
from problm.report.progress import ProgressLine, Reading, Remaining


@pytest.mark.parametrize("passes", [2, 3])
def test_the_remaining_time_of_passes_over_files(passes):
    """Within a factor of 3 of what is left, from 0.75 s after the first pass began to the last quarter of a pass."""
    total, rate, piece = 16_000_000_000, 5e8, 8_000_000
    reading, clock = Reading(), 0.3
    for k in range(passes):
        for done in range(piece, total + 1, piece):
            clock += piece / rate
            reading.add(clock, done)
            left = ((passes - k) * total - done) / rate
            if left > total / rate / 4 and not (k == 0 and done < 0.75 * rate):
                assert reading.rate == pytest.approx(rate)
                assert left / 3 < reading.seconds(total) < 3 * left
    assert reading.passes == passes


def test_a_rate_that_changes_is_the_recent_one():
    reading, clock = Reading(), 0.0
    for k, speed in enumerate([1e8] * 200 + [1e9] * 800, 1):
        clock += 1e7 / speed
        reading.add(clock, k * 10_000_000)
    assert reading.rate == pytest.approx(1e9, rel=0.1)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_fit_of_files_shows_its_passes(tmp_path, monkeypatch):
    monkeypatch.setattr("problm.report.progress._PERIOD", 0.0)
    monkeypatch.setattr(Remaining, "LEAST", 0.0)
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 4.0, 400_000)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", 2.0 * np.exp(-0.7 * x) + 0.1 * rng.standard_normal(len(x)))
    stream = Terminal()
    line = ProgressLine(stream)
    files = str(tmp_path / "x.npy"), str(tmp_path / "y.npy")
    problm.least_squares(problm.formula("y ~ a*exp(-b*x)"), [1.0, 1.0], data=files, progress=line, max_memory="4MB")
    shown = [text for text in stream.getvalue().split("\r") if "pass" in text]
    assert shown
    assert all("of 6.4 MB" in text and "B/s" in text for text in shown)
    assert any("s left" in text for text in shown)
