"""What is compiled for a JAX function is not used again after a change of what the function refers to."""

from __future__ import annotations

import functools
import types

import numpy as np
import pytest

import problm
from problm.problems.backends.snapshot import as_it_is_now

jnp = pytest.importorskip("jax.numpy")
special = pytest.importorskip("jax.scipy.special")
rng = np.random.default_rng(5)
x = rng.uniform(0.0, 4.0, 500)
y = 2.0 * np.exp(-1.2 * x) + 0.1 * rng.standard_normal(x.size)
settings = types.ModuleType("settings")
k = 1.0
stored = np.array([1.0])


def of_a_global(t, x, y):
    return t[0] * jnp.exp(-t[1] * x * k) - y


def of_an_array(t, x, y):
    return t[0] * jnp.exp(-t[1] * x * stored[0]) - y


def of_a_module(t, x, y):
    return t[0] * jnp.exp(-t[1] * x * settings.k) - y


def of_another_function(t, x, y):
    return of_a_global(t, x, y)


def only_in_jax(t, x, y):
    return t[0] * jnp.exp(-t[1] * x * k) - y + 0.0 * special.gammaln(x + 1.0)


class Decay:
    k = 1.0

    def residuals(self, t, x, y):
        return t[0] * jnp.exp(-t[1] * x * self.k) - y


def closure():
    inner = 1.0

    def change(value):
        nonlocal inner
        inner = value

    return (lambda t, x, y: t[0] * jnp.exp(-t[1] * x * inner) - y), change


def change_all(value: float) -> None:
    global k
    k = settings.k = decay.k = stored[0] = value
    change_inner(value)


decay = Decay()
of_a_closure, change_inner = closure()
FUNCTIONS = [of_a_global, of_an_array, of_a_module, of_another_function, only_in_jax, of_a_closure, decay.residuals]


@pytest.mark.parametrize("fun", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_changed_number_changes_the_fit(fun):
    change_all(1.0)
    before = problm.least_squares(fun, [1.0, 1.0], data=(x, y)).x
    change_all(2.0)
    after = problm.least_squares(fun, [1.0, 1.0], data=(x, y)).x
    np.testing.assert_allclose(after, before / [1.0, 2.0], rtol=1e-6)


def test_a_changed_number_changes_a_curve():
    change_all(1.0)
    curve = lambda x, a, b: a * jnp.exp(-b * x * k)  # noqa: E731
    before = problm.curve_fit(curve, x, y, [1.0, 1.0])[0]
    change_all(2.0)
    np.testing.assert_allclose(problm.curve_fit(curve, x, y, [1.0, 1.0])[0], before / [1.0, 2.0], rtol=1e-6)


@pytest.mark.parametrize("fun", [*FUNCTIONS, functools.partial(of_a_global)], ids=range(len(FUNCTIONS) + 1))
def test_without_a_change_the_function_is_the_same_object(fun):
    change_all(1.0)
    first = as_it_is_now(fun)
    assert as_it_is_now(fun) is first
    change_all(3.0)
    assert as_it_is_now(fun) is not first


def test_methods_of_equal_objects_are_the_same():
    from problm.api.curve import Curve

    made = [Curve(of_a_global, None, "rows", False).residuals for _ in range(2)]
    assert as_it_is_now(made[0]) is as_it_is_now(made[1])
