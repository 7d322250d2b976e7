"""The compiled reduction of the normal equations against the NumPy one."""

import numpy as np
import pytest

from problm.normal import Normal
from problm.scaled import COMPILED
from problm.system import Space, System


@pytest.mark.parametrize("d", [1, 2, 3, 8, 20])
@pytest.mark.parametrize("damped", [False, True])
@pytest.mark.parametrize("flat", [True, False])
def test_compiled_system_is_the_numpy_one(d, damped, flat):
    rng = np.random.default_rng(d)
    jacobian = rng.standard_normal((50, d)) * 10.0 ** rng.uniform(-6, 6, d)
    residuals, theta = rng.standard_normal(50), rng.standard_normal(d) if flat else (np.eye(3), "anything")
    each = jacobian * residuals[:, None]
    parts = (50, 0.5 * residuals @ residuals, each.sum(axis=0), jacobian.T @ jacobian, each.T @ each)
    scaling = (lambda diagonal: 3.0 * diagonal) if damped else (lambda diagonal: None)
    plain = System(Normal(*parts), theta, Space(d), scaling)
    compiled = System(Normal(*parts, compiled=COMPILED), theta, Space(d), scaling)
    assert compiled._squares is not None
    close = {"rtol": 1e-9, "atol": 1e-12}
    for name in ("decrement", "cost", "_scale", "_gradient", "_gauss_newton", "_matrix"):
        np.testing.assert_allclose(getattr(compiled, name), getattr(plain, name), err_msg=name, **close)
    assert compiled.least_curvature == pytest.approx(plain.least_curvature)
    np.testing.assert_allclose(compiled.lengths(), plain.lengths(), **close)
    np.testing.assert_allclose(compiled.column_cosine(), plain.column_cosine(), **close)
    np.testing.assert_allclose(compiled.relative_step(), plain.relative_step(), **close)
    np.testing.assert_allclose(compiled.relative(2.0), plain.relative(2.0), **close)
    np.testing.assert_allclose(compiled.noise(), plain.noise(), rtol=1e-8)
    for damping in (0.0, 0.1, 1e6):
        for mine, theirs in zip(compiled.step(damping), plain.step(damping), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-12 * np.abs(theirs).max())
    for short in (1e-6, 0.3, 0.9):
        radius = short * plain.lengths()[1]
        for system in (compiled, plain):
            damping, length = system.damping_within(radius)
            assert 0.9999999 * radius <= length <= 1.1 * radius
            for mine, theirs in zip(system.step(damping), plain.step(damping), strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-12 * np.abs(theirs).max())


def test_what_the_compiled_one_leaves_to_numpy():
    hessian, gradient = np.diag([1.0, 2.0]), np.array([1.0, 1.0])

    def compiled(hessian, theta, space):
        normal = Normal(10, 5.0, gradient, hessian, compiled=COMPILED)
        return System(normal, theta, space, lambda diagonal: None)._squares is not None

    flat = np.zeros(2)
    assert compiled(hessian, flat, Space(2))
    assert not compiled(np.ones((2, 2)), flat, Space(2)), "singular"
    assert not compiled(np.full((2, 2), np.nan), flat, Space(2)), "not finite"
    assert compiled(hessian, np.eye(3), Space(2)), "a manifold is none of that"
    assert not compiled(hessian, flat, Space(2, fixed=np.array([True, False]))), "a fixed parameter"
    assert not compiled(hessian, flat, Space(2, x_scale=np.ones(2))), "sizes of the user's"


def test_bounds_cut_the_full_step():
    normal = Normal(10, 5.0, np.array([-10.0]), np.array([[10.0]]), compiled=COMPILED)
    space = Space(1, np.array([-1.0]), np.array([0.25]))
    assert System(normal, np.zeros(1), space, lambda diagonal: None).step(0.0)[0] == pytest.approx(0.25)
