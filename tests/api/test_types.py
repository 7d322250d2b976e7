"""What a type checker says of a caller's code: arrays are arrays, and misspelt options are errors."""

import re
from pathlib import Path

import pytest

EXAMPLE = """
import numpy as np
import problm

def decay(x: np.ndarray, a: float, b: float) -> np.ndarray:
    return np.asarray(a * np.exp(-b * x))

x = np.linspace(0.0, 1.0, 50)
popt, pcov = problm.curve_fit(decay, x, decay(x, 2.0, 1.0))
reveal_type(popt)
reveal_type(pcov)
popt, pcov, info, message, status = problm.curve_fit(decay, x, x, full_output=True, loss="huber", maxfev=100)
reveal_type(message)
fit = problm.least_squares(lambda t: decay(x, *t), [1.0, 1.0], "3-point", method="trf", max_time=5.0)
reveal_type(fit.success)
reveal_type(fit.standard_errors)
problm.least_squares(decay, [1.0], method="trff")  # wrong
problm.least_squares(decay, [1.0], loss="hubber")  # wrong
problm.least_squares(decay, [1.0], "4-point")  # wrong
problm.least_squares(decay, [1.0], max_tme=5.0)  # wrong
problm.curve_fit(decay, x, x, metod="lm")  # wrong
problm.curve_fit(decay, x, x, nan_policy="ommit")  # wrong
problm.curve_fit(decay, x, x, full_output=True)[5]  # wrong
"""


def test_a_checker_knows_the_types_and_finds_the_mistakes(tmp_path, monkeypatch):
    api = pytest.importorskip("mypy.api")
    path = tmp_path / "example.py"
    path.write_text(EXAMPLE, encoding="utf-8")
    monkeypatch.chdir(Path(__file__).parents[2])
    told, _, _ = api.run([str(path), "--no-error-summary"])
    mistakes = {int(m) for m in re.findall(r"example\.py:(\d+):.*error", told)}
    assert mistakes == {i for i, line in enumerate(EXAMPLE.splitlines(), 1) if line.endswith("# wrong")}, told
    types = re.findall(r'Revealed type is "(.*)"', told)
    arrays = [t for t in types if "ndarray" in t and "float64" in t]
    assert len(arrays) == 3, told
    assert sum(t == "Any" for t in types) == 0
