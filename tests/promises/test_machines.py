"""Other machines give the same results: against committed ones, and with other instructions on this machine.

A change of the method moves results within its tolerances, which are wider than 1e-12: then write them again, with
``python -m tests.helpers.references > tests/references.json``.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import references

TESTS = Path(__file__).parents[1]
EXPECTED = json.loads((TESTS / "references.json").read_text())
TOLERANCE = {
    # Rounding of the residuals is divided by the steps of the differences.
    "differences": 1e-8,
    # Another of many hypotheses may win by a rounding: then the same minimum, to the tolerances.
    "essential_robust": 1e-8,
    # Pixels and their weights are numbers of 32 bits.
    "alignment": 1e-6,
}


def differing(found):
    assert found.keys() == EXPECTED.keys()
    apart = {name: references.difference(EXPECTED[name], values) for name, values in found.items()}
    return {name: d for name, d in apart.items() if not d <= TOLERANCE.get(name, 1e-12)}


def with_settings(settings):
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.references"], cwd=TESTS.parent, env={**os.environ, **settings},
        capture_output=True, text=True, timeout=1200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_results_are_those_of_the_machine_that_they_were_committed_on():
    assert differing(references.results([])) == {}


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="instructions of x86-64 are switched off")
def test_other_loops_of_numpy_and_other_kernels_of_blas():
    assert differing(with_settings(references.older())) == {}


@pytest.mark.slow
@pytest.mark.skipif("PROBLM_NIGHTLY" not in os.environ, reason="compiles everything again: make fuzz runs it")
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="instructions of x86-64 are switched off")
def test_without_vector_instructions_and_fused_multiply_add(tmp_path):
    assert differing(with_settings(references.plainest(str(tmp_path)))) == {}
