"""Student's quantiles against SciPy's."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import special

from problm.support.quantiles import student_quantile

FREEDOMS = [0.3, 1.0, 2.0, 3.7, 10.0, 39.0, 41.0, 100.0, 997.0, 9_000.0, 99_999.0, 100_001.0, 1e8]


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_equal_to_scipy(freedom):
    probabilities = np.array([0.501, 0.6, 0.75, 0.8413447, 0.95, 0.975, 0.99865, 0.999999, 1.0 - 1e-10])
    ours = [student_quantile(p, freedom) for p in probabilities]
    np.testing.assert_allclose(ours, special.stdtrit(freedom, probabilities), rtol=2e-12)


def test_ends():
    assert student_quantile(0.5, 3.0) == 0.0
    assert student_quantile(1.0, 3.0) == np.inf
    assert np.isnan([student_quantile(p, f) for p, f in ((0.4, 3.0), (1.1, 3.0), (0.9, 0.0), (np.nan, 3.0))]).all()
    np.testing.assert_allclose(student_quantile(0.975, np.inf), special.ndtri(0.975), rtol=1e-14)


def test_no_need_of_scipy():
    code = "import sys; from problm.support.quantiles import student_quantile as q; q(0.975, 20.0)"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'scipy' not in sys.modules"], check=True)
