"""Quantiles against SciPy's."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import special

from problm.support.quantiles import f_quantile, normal_quantile, student_quantile

FREEDOMS = [0.3, 1.0, 2.0, 3.7, 10.0, 39.0, 41.0, 100.0, 997.0, 9_000.0, 99_999.0, 100_001.0, 1e8]


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_equal_to_scipy(freedom):
    probabilities = np.array([0.501, 0.6, 0.75, 0.8413447, 0.95, 0.975, 0.99865, 0.999999, 1.0 - 1e-10])
    ours = [student_quantile(p, freedom) for p in probabilities]
    np.testing.assert_allclose(ours, special.stdtrit(freedom, probabilities), rtol=2e-12)


@pytest.mark.parametrize("first", [0.2, 1.0, 3.3, 40.0, 900.0])
@pytest.mark.parametrize("second", [1.0, 7.5, 413.0, 20_000.0])
def test_f_is_scipys(first, second):
    probabilities = np.array([0.01, 0.5, 0.9, 0.99, 0.9999])
    ours = [f_quantile(first, second, p) for p in probabilities]
    np.testing.assert_allclose(ours, special.fdtri(first, second, probabilities), rtol=1e-8)


def test_normal_is_scipys():
    probabilities = np.array([0.0, 1e-300, 1e-9, 0.3, 0.5, 0.9, 1.0 - 1e-12, 1.0])
    ours = [normal_quantile(p) for p in probabilities]
    np.testing.assert_allclose(ours, special.ndtri(probabilities), rtol=2e-15)


def test_ends():
    assert np.isnan(
        [normal_quantile(-0.1), normal_quantile(np.nan), f_quantile(0.0, 3.0, 0.9), f_quantile(1, 3, 1.0)]
    ).all()
    assert student_quantile(0.5, 3.0) == 0.0
    assert student_quantile(1.0, 3.0) == np.inf
    assert np.isnan([student_quantile(p, f) for p, f in ((0.4, 3.0), (1.1, 3.0), (0.9, 0.0), (np.nan, 3.0))]).all()
    np.testing.assert_allclose(student_quantile(0.975, np.inf), special.ndtri(0.975), rtol=1e-14)


def test_no_need_of_scipy():
    code = "import sys; from problm.support.quantiles import *; student_quantile(0.975, 20.0); f_quantile(3, 40, 0.9)"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'scipy' not in sys.modules"], check=True)
