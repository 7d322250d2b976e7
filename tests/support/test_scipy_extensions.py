"""Extension modules of SciPy without their packages."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import special

from problm.support import scipy_extensions
from problm.support.scipy_extensions import gammaincinv, lmder

X = np.linspace(0.0, 4.0, 60)
Y = 2.5 * np.exp(-1.3 * X) + 0.5 + 0.01 * np.cos(40.0 * X)
FORMULA = "problm.curve_fit(problm.formula('a * exp(-b * x) + c'), x, y)"
GROWING = """
x = np.random.default_rng(0).uniform(0.0, 4.0, 300_000); y = 2.5 * np.exp(-1.3 * x) + 0.5 + 0.1 * np.sin(1e6 * x)
problm.curve_fit(lambda x, a, b, c: a * np.exp(-b * x) + c, x, y, p0=[1.0, 1.0, 0.0])
problm.curve_fit(problm.formula('a * exp(-b * x) + c'), x, y)
problm.least_squares(problm.formula('a * exp(-b * x) + c'), [1.0, 1.0, 0.0], data=(x, y), accuracy=1e-3, f_scale=0.1,
                     loss="cauchy")
"""
BUNDLE = """
from problm.vision.bundle.camera_models import Intrinsics
from problm.vision.bundle.reconstruction import Reconstruction
rng = np.random.default_rng(0)
points, shifts = rng.uniform(-1, 1, (20, 3)), np.array([[-1.0, 0, 6], [0, 0, 6], [1, 0, 6]])
camera = Intrinsics("SIMPLE_RADIAL", (800.0, 0.0, 0.0, -0.05))
seen = np.stack([camera.project(points + s) for s in shifts])
start = Reconstruction.from_arrays(np.tile(np.eye(3), (3, 1, 1)), shifts, camera, points + 0.01, seen)
problm.write_bal(start, sys.argv[1])
print(problm.bundle_adjustment(problm.read_bal(sys.argv[1])))
"""


def residuals(p: np.ndarray) -> np.ndarray:
    return p[0] * np.exp(-p[1] * X) + p[2] - Y


def jacobian(p: np.ndarray) -> np.ndarray:
    e = np.exp(-p[1] * X)
    return np.stack([e, -p[0] * X * e, np.ones_like(X)], axis=1)


@pytest.mark.parametrize("calls", [3, 30])
@pytest.mark.parametrize("known", [True, False])
def test_lmder_is_leastsq(calls: int, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit, and also where SciPy's private function is not as expected."""
    from scipy.optimize import leastsq

    monkeypatch.setattr(scipy_extensions, "_as_known", lambda: known)
    p0 = np.array([1.0, 1.0, 0.0])
    found = lmder(residuals, p0, jacobian, 1e-4, 1e-10, calls)
    theirs = leastsq(residuals, p0, Dfun=jacobian, ftol=1e-4, xtol=1e-4, gtol=1e-10, maxfev=calls, full_output=True)[0]
    assert found.tolist() == theirs.tolist()
    assert p0.tolist() == [1.0, 1.0, 0.0]


def test_another_signature_of_scipys_private_function_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scipy_extensions._as_known.__wrapped__()
    monkeypatch.setattr(scipy_extensions, "extension", lambda *args: object())
    assert not scipy_extensions._as_known.__wrapped__()
    monkeypatch.setattr(scipy_extensions, "_lmder", lambda *args: np.zeros(1))
    assert not scipy_extensions._as_known.__wrapped__()


def test_an_error_of_the_function_is_raised() -> None:
    def failing(p: np.ndarray) -> np.ndarray:
        raise FloatingPointError("of the user")

    with pytest.raises(FloatingPointError, match="of the user"):
        lmder(failing, np.ones(3), jacobian, 1e-4, 1e-10, 9)


@pytest.mark.parametrize("call", [FORMULA, GROWING, BUNDLE])
def test_first_calls_import_no_large_package(call: str, tmp_path) -> None:
    """What takes longer than the fit: most of SciPy, Numba, pandas, matplotlib."""
    code = (
        "import sys; import numpy as np; import problm\n"
        "x = np.linspace(0.0, 4.0, 200); y = 2.5 * np.exp(-1.3 * x) + 0.5 + 0.01 * np.cos(40.0 * x)\n"
        f"{call}\n"
        "large = ('scipy.optimize', 'scipy.spatial', 'scipy.special', 'scipy.sparse', 'scipy.linalg', 'numba',"
        " 'pandas', 'matplotlib')\n"
        "print('imported', [name for name in large if name in sys.modules])\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "model.txt")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "imported []"


def test_the_gamma_quantile_is_scipys() -> None:
    for a, probability in ((0.5, 0.9), (3.0, 0.01), (400.0, 0.999)):
        assert gammaincinv(a, probability) == special.gammaincinv(a, probability)
