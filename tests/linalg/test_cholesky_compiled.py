"""Normal equations solved as they are, by NumPy and compiled, against the scaled ones."""

import numpy as np
import pytest

from problm.linalg.cholesky_compiled import CompiledCholesky
from problm.linalg.normal import Normal
from problm.linalg.quadratic import QuadraticModel
from problm.linalg.space import Space


@pytest.mark.parametrize("compiled", [None, CompiledCholesky], ids=["numpy", "compiled"])
@pytest.mark.parametrize("d", [1, 2, 3, 8, 20])
@pytest.mark.parametrize("damped", [False, True])
@pytest.mark.parametrize("flat", [True, False])
def test_the_factored_system_is_the_scaled_one(d, damped, flat, compiled):
    rng = np.random.default_rng(d)
    jacobian = rng.standard_normal((50, d)) * 10.0 ** rng.uniform(-6, 6, d)
    residuals, theta = rng.standard_normal(50), rng.standard_normal(d) if flat else (np.eye(3), "anything")
    each = jacobian * residuals[:, None]
    parts = (50, 0.5 * residuals @ residuals, each.sum(axis=0), jacobian.T @ jacobian, each.T @ each)
    scaling = (lambda diagonal: 3.0 * diagonal) if damped else (lambda diagonal: None)
    nobody = Space(d, fixed=np.zeros(d, bool))  # whoever has limits gets the scaled system, even where none holds
    scaled = QuadraticModel(Normal(*parts), theta, nobody, scaling)
    factored = QuadraticModel(Normal(*parts, compiled=compiled), theta, Space(d), scaling)
    assert factored._factored is not None
    assert scaled._factored is None
    close = {"rtol": 1e-9, "atol": 1e-12}
    assert factored.decrement == pytest.approx(scaled.decrement, rel=1e-9)
    assert factored.least_curvature == pytest.approx(scaled.least_curvature)
    np.testing.assert_allclose(factored.lengths(), scaled.lengths(), **close)
    np.testing.assert_allclose(factored.step_squared(), scaled.step_squared(), **close)
    np.testing.assert_allclose(factored.point_squared(), scaled.point_squared(), **close)
    np.testing.assert_allclose(factored.within_reach(), scaled.within_reach(), **close)
    np.testing.assert_allclose(factored.noise(), scaled.noise(), rtol=1e-8)
    for damping in (0.0, 0.1, 1e6):
        for mine, theirs in zip(factored.step(damping), scaled.step(damping), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-12 * np.abs(theirs).max())
    for short in (1e-6, 0.3, 0.9):
        radius = short * scaled.lengths()[1]
        for system in (factored, scaled):
            damping, length = system.damping_within(radius)
            assert 0.9999999 * radius <= length <= 1.1 * radius
            for mine, theirs in zip(system.step(damping), scaled.step(damping), strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-12 * np.abs(theirs).max())


@pytest.mark.parametrize("compiled", [None, CompiledCholesky], ids=["numpy", "compiled"])
def test_what_is_scaled_first(compiled):
    hessian, gradient = np.diag([1.0, 2.0]), np.array([1.0, 1.0])

    def factored(hessian, theta, space):
        normal = Normal(10, 5.0, gradient, hessian, compiled=compiled)
        return QuadraticModel(normal, theta, space, lambda diagonal: None)._factored is not None

    flat = np.zeros(2)
    assert factored(hessian, flat, Space(2))
    assert not factored(np.ones((2, 2)), flat, Space(2)), "singular"
    assert not factored(np.diag([1.0, 0.0]), flat, Space(2)), "without influence"
    assert not factored(np.full((2, 2), np.nan), flat, Space(2)), "not finite"
    assert factored(hessian, np.eye(3), Space(2)), "a manifold is none of that"
    assert not factored(hessian, flat, Space(2, fixed=np.array([True, False]))), "a fixed parameter"
    assert not factored(hessian, flat, Space(2, x_scale=np.ones(2))), "sizes of the user's"


def test_bounds_cut_the_full_step():
    normal = Normal(10, 5.0, np.array([-10.0]), np.array([[10.0]]), compiled=CompiledCholesky)
    space = Space(1, np.array([-1.0]), np.array([0.25]))
    assert QuadraticModel(normal, np.zeros(1), space, lambda diagonal: None).step(0.0)[0] == pytest.approx(0.25)
