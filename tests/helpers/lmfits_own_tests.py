"""lmfit's own tests, with ProBLM in the place of its ``leastsq`` and ``least_squares``.

lmfit's wheel has no tests; its source distribution does (``pip download --no-binary lmfit --no-deps lmfit``, unpack):

    python -m tests.helpers.lmfits_own_tests lmfit-1.3.4/tests

prints how many pass, with lmfit's own method and with ProBLM's, and which fail with ProBLM's alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FILES = (
    "test_1variable.py", "test_NIST_Strd.py", "test_algebraic_constraint.py", "test_basicfit.py", "test_bounds.py",
    "test_builtin_models.py", "test_confidence.py", "test_custom_independentvar.py", "test_default_kws.py",
    "test_itercb.py", "test_least_squares.py", "test_lineshapes.py", "test_manypeaks_speed.py", "test_max_nfev.py",
    "test_minimizer.py", "test_model.py", "test_model_saveload.py", "test_model_uncertainties.py", "test_models.py",
    "test_multidatasets.py", "test_nose.py", "test_pandas.py", "test_params_uvars.py", "test_printfuncs.py",
)  # fmt: skip
"""Those that fit by least squares; the others test parameters alone, or other minimisers."""
KEPT = ("loss", "f_scale", "ftol", "xtol", "gtol", "jac", "Dfun", "col_deriv", "verbose")


def pytest_configure(config: Any) -> None:
    """As a plugin: put ProBLM in the place of lmfit's methods of least squares."""
    import lmfit

    import problm.lmfit  # noqa: F401  makes the method known

    def solved(self: Any, params: Any = None, max_nfev: int | None = None, **kws: Any) -> Any:
        # Other options of MINPACK and SciPy mean nothing here.
        self.kws = {name: value for name, value in {**self.kws, **kws}.items() if name in KEPT}
        return self.minimize("problm", params, max_nfev=max_nfev)

    lmfit.Minimizer.leastsq = solved
    lmfit.Minimizer.least_squares = solved


def outcomes(folder: Path, *options: str, files: Sequence[str] = FILES) -> dict[str, bool]:
    """Whether each test passed, by ``file::name``; those that were skipped are left out."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        chosen = [str(folder / name) for name in files if (folder / name).exists()]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", *options]
        path = os.pathsep.join(
            [str(Path(__file__).parent), str(ROOT / "src")]
        )  # lmfit's tests are a package "tests" too
        subprocess.run(
            [*command, f"--rootdir={folder}", f"--junitxml={report}", *chosen],
            cwd=scratch, env={**os.environ, "PYTHONPATH": path, "MPLBACKEND": "agg"}, check=False, capture_output=True,
        )  # fmt: skip
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))  # noqa: S314  of our own making
    run = [case for case in cases if case.find("skipped") is None]
    return {
        f"{case.get('classname', '').replace('tests.', '')}::{case.get('name')}":
        case.find("failure") is None and case.find("error") is None for case in run
    }  # fmt: skip


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    theirs = outcomes(folder)
    ours = outcomes(folder, "-p", Path(__file__).stem)
    print(
        f"lmfit's own methods: {sum(theirs.values())} of {len(theirs)}; ProBLM's: {sum(ours.values())} of {len(ours)}"
    )
    for name in sorted(name for name, passed in ours.items() if not passed and theirs.get(name)):
        print(f"  fails with ProBLM alone: {name}")


if __name__ == "__main__":
    main()
