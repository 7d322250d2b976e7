"""SciPy's LAPACK functions, without the import of `scipy.linalg`."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
import numpy as np, problm
x = np.linspace(0.0, 4.0, 200)
y = 2.5 * np.exp(-1.3 * x) + 0.5 + 0.01 * np.cos(40.0 * x)
{first}
problm.curve_fit(lambda x, a, b, c: a * np.exp(-b * x) + c, x, y)
print(sorted(name for name in sys.modules if name.startswith("scipy")))
import scipy.linalg._flapack
from scipy.linalg import lapack
from problm.linalg.lapack import dposv
print(dposv is lapack.dposv, scipy.linalg._flapack.dposv is dposv)
"""


def run(first: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", CODE.format(first=first)], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_numpy_fit_imports_no_scipy_and_leaves_its_import_as_it_was() -> None:
    assert run("") == ["[]", "True True"]


def test_functions_are_scipys_whatever_is_imported_first() -> None:
    assert run("import scipy.linalg")[1] == "True True"


def test_falls_back_on_scipys_own_import() -> None:
    """If its extension module is not found."""
    modules, same = run("import importlib.util; importlib.util.find_spec = lambda name: None")
    assert "scipy.linalg.lapack" in modules
    assert same.startswith("True")
