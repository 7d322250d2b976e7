"""Steps of finite differences follow the function."""

import numpy as np

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
