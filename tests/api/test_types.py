"""What a type checker says of a caller's code: arrays are arrays, and misspelt options are errors."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

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
reveal_type(fit.covariance)
reveal_type(fit.x)
model = problm.formula("a*exp(-b*x)")
reveal_type(model(x, 1.0, 2.0))
reveal_type(problm.fit(model, x, x).values)
problm.least_squares(decay, [1.0], method="trff")  # wrong
problm.least_squares(decay, [1.0], loss="hubber")  # wrong
problm.least_squares(decay, [1.0], "4-point")  # wrong
problm.least_squares(decay, [1.0], max_tme=5.0)  # wrong
problm.curve_fit(decay, x, x, metod="lm")  # wrong
problm.curve_fit(decay, x, x, nan_policy="ommit")  # wrong
problm.curve_fit(decay, x, x, full_output=True)[5]  # wrong
"""


WRONG = {i for i, line in enumerate(EXAMPLE.splitlines(), 1) if line.endswith("# wrong")}


@pytest.fixture
def example(tmp_path, monkeypatch):
    path = tmp_path / "example.py"
    path.write_text(EXAMPLE, encoding="utf-8")
    monkeypatch.chdir(ROOT)
    return path


def test_mypy_knows_the_types_and_finds_the_mistakes(example):
    api = pytest.importorskip("mypy.api")
    told, _, _ = api.run([str(example), "--no-error-summary"])
    assert {int(m) for m in re.findall(r"example\.py:(\d+):.*error", told)} == WRONG, told
    check(re.findall(r'Revealed type is "(.*)"', told))


def test_pyright_knows_the_types_and_finds_the_mistakes(example, monkeypatch):
    if shutil.which("pyright") is None:
        pytest.skip("pyright is not installed")
    monkeypatch.chdir(example.parent)
    settings = {"include": ["."], "extraPaths": [str(ROOT / "src")], "venvPath": str(ROOT), "venv": ".venv"}
    (example.parent / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    told = subprocess.run(["pyright"], capture_output=True, text=True, check=False).stdout
    assert {int(m) for m in re.findall(r"example\.py:(\d+):\d+ - error", told)} == WRONG, told
    check(re.findall(r'Type of ".*" is "(.*)"', told))


def check(types):
    assert len(types) == 9, types
    assert sum("ndarray" in t and "float64" in t for t in types) == 7, types
