"""Steps of finite differences follow the function."""

import numpy as np
import pytest

import problm
from problm.problems.differences import Differences


def test_parameters_that_have_grown_get_shorter_steps_in_central_differences():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((50, 3))
    noise = 0.1 * rng.standard_normal(50)

    def fun(t):
        u = a @ t
        return np.sin(u) + noise

    differences = Differences("2-point", 3)
    start = np.array([1.0, -1.0, 0.5])
    differences.jacobian(fun, start, fun(start))
    assert differences.refine()
    far = start + 1e4 * np.array([1.0, -2.0, 3.0])
    found = differences.jacobian(fun, far, fun(far))
    exact = np.cos(a @ far) * a.T
    np.testing.assert_allclose(found, exact, atol=1e-5)


def test_residuals_that_are_only_rounding_errors_do_not_shorten_steps():
    x = np.linspace(0.0, 1.0, 30)
    differences = Differences("2-point", 2)
    target = np.exp(-0.5 * x) * 3e4 + 2e4 * x
    start, end = np.array([1e4, 1e4]), np.array([3e4, 2e4])

    def residuals(theta):
        return theta[0] * np.exp(-0.5 * x) + theta[1] * x - target

    differences.jacobian(residuals, start, residuals(start))
    assert differences.refine()
    found = differences.jacobian(residuals, end, residuals(end) + 1e-13)
    assert np.allclose(found, [np.exp(-0.5 * x), x], rtol=2e-3, atol=1e-4)


def test_rounding_errors_of_an_exact_fit_shorten_no_steps():
    x = np.arange(4.0)
    with pytest.warns(problm.CovarianceWarning, match="could not be estimated"):
        found, covariance = problm.curve_fit(lambda x, a, b: a + b + x, x, x, [1.0, 1.0])
    assert abs(found.sum()) < 1e-12
    assert np.isinf(covariance).all()
