"""JAX functions read as expressions: the same values, derivatives and fits, and nothing that depends on other rows."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

import problm
from problm.losses import Loss
from problm.models.expression import TraceError
from problm.problems.backends.device import DeviceProblem
from problm.problems.compiled import CompiledProblem

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy
from problm.models.programs.jax_program import record  # noqa: E402

N = 40
LINEAR = Loss.named("linear")


def data(seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(0.2, 2.0, N), rng.normal(size=N)


def bumps(t, x, y):
    return jnp.exp(-(((x[:, None] - jnp.linspace(0.0, 4.0, 5)) / 0.3) ** 2)) @ jnp.tanh(t) - y


def rotated(t, x, y):
    c, s = jnp.cos(t[0]), jnp.sin(t[0])
    turned = jnp.array([[c, -s], [s, c]]) @ jnp.stack([x, y])
    return (turned + t[1:3, None]).T


def chosen(t, x, y):
    return jnp.where(x > 1.0, t[0] * x, jnp.sqrt(x) * t[jnp.array([1, 2])].sum()) - jnp.clip(y, -0.5, t[3])


def unrolled(t, x, y):
    return jax.lax.fori_loop(0, 3, lambda _, s: s + t[0] * x * (1.0 - s), 0.1 * x) + jnp.polyval(t[1:4], x) - y


SHORT = np.linspace(0.1, 0.7, 5, dtype=np.float32)
"""As a user's global array without double precision; it becomes double where it meets the parameters."""


@jax.jit
def compiled_before(t, x, y):
    return jnp.stack([x] * 5, 1) @ (t * (jnp.asarray(SHORT) * jnp.asarray(SHORT))) - y


READ = {
    "compiled before": compiled_before,
    "decay": lambda t, x, y: t[0] * jnp.exp(-t[1] * x) + t[2] - y,
    "wave": lambda t, x, y: t[0] * jnp.sin(t[1] * x + t[2]) * jnp.log1p(x) / jnp.hypot(x, t[3]) - y,
    "power": lambda t, x, y: (1.0 + jnp.exp(-t[0] * x)) ** t[1] + x ** -t[2] + jax.nn.sigmoid(t[3] * x) - y**3,
    "extremes": lambda t, x, y: jnp.maximum(t[0] * x, t[1]) - jnp.abs(t[2] - y) + jnp.arctan2(t[3], x),
    "unpacked": lambda t, x, y: (lambda a, b, c, d, e: a * x + b * x**2 + c * d + e - y)(*t),
    "reduced": lambda t, x, y: jnp.stack([x, y, x * y], 1).sum(1) * t.sum() + jnp.max(jnp.stack([x, y]), 0) * t[0],
    "softplus": lambda t, x, y: t[0] * jax.nn.softplus((x - t[1]) / t[2]) + jax.nn.relu(x - 0.3 * t[3]) - y,
    "bumps": bumps, "rotated": rotated, "chosen": chosen, "unrolled": unrolled,
}  # fmt: skip
LEFT = {
    "mean": lambda t, x, y: t[0] * (x - x.mean()) - y,
    "number of rows": lambda t, x, y: t[0] * x / len(x) - y,
    "first row": lambda t, x, y: t[0] * (x - x[0]) - y,
    "position": lambda t, x, y: t[0] * x * jnp.arange(len(x)) - y,
    "backwards": lambda t, x, y: t[0] * x[::-1] - y,
    "neighbours": lambda t, x, y: t[0] * jnp.roll(x, 1) - y,
    "some rows": lambda t, x, y: t[0] * jnp.concatenate([x[:10], 2.0 * x[10:]]) - y,
    "another program for many": lambda t, x, y: t[0] * (x if len(x) < 20 else 2.0 * x) - y,
    "full length": lambda t, x, y: t[0] * x + jnp.asarray(np.arange(N)) - y,
    "single precision": lambda t, x, y: (t[0] * x).astype(jnp.float32) - y,
    "indices from the data": lambda t, x, y: t[x.astype(int)] * x - y,
    "no derivative": lambda t, x, y: jax.lax.stop_gradient(t[0]) * x + t[1] - y,
    "unknown length": lambda t, x, y: jax.lax.while_loop(lambda s: (s < 9.0).any(), lambda s: s + t[0], x) - y,
}


def read(fun, columns, d=5):
    with jax.enable_x64(True):
        return record(fun, d, columns, jax)


@pytest.mark.parametrize("name", READ)
def test_values_and_derivatives_are_jaxs(name):
    fun, columns = READ[name], data()
    model = pickle.loads(pickle.dumps(read(fun, columns)))  # noqa: S301
    problem = CompiledProblem(model.residual_kernel((1, 1), 5, LINEAR, 1), columns)
    for seed in range(3):
        theta = np.random.default_rng(seed).uniform(0.2, 1.5, 5)
        with jax.enable_x64(True):
            values = np.asarray(fun(jnp.asarray(theta), *columns)).reshape(N, -1)
            by = np.asarray(jax.jacfwd(fun)(jnp.asarray(theta), *columns)).reshape(N, -1, 5)
        np.testing.assert_allclose(problem.residuals(theta), values, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(problem.jacobian(theta), by, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_jax(name):
    with pytest.raises(TraceError):
        read(LEFT[name], data())


def test_functions_of_a_row_and_wide_columns():
    def one(t, point, y):
        return jnp.array([[t[0], t[1]], [t[2], t[0]]]) @ point - y

    rng = np.random.default_rng(1)
    truth = np.array([1.0, 0.5, -0.3])
    points = rng.normal(size=(500, 2))
    matrix = np.array([[truth[0], truth[1]], [truth[2], truth[0]]])
    fit = problm.least_squares(one, np.ones(3), data=(points, points @ matrix.T))
    assert isinstance(fit.problem, CompiledProblem)
    np.testing.assert_allclose(fit.x, truth, atol=1e-10)


@pytest.mark.parametrize("loss", ["linear", "soft_l1", "truncated"])
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int32])
def test_fits_are_those_in_jax(loss, kind, monkeypatch):
    x, fun = (10.0 * np.random.default_rng(2).uniform(0.0, 5.0, 3000)).astype(kind), READ["decay"]
    y = 2.0 * np.exp(-0.07 * x) + 0.3 + 0.1 * np.random.default_rng(3).standard_normal(3000)

    def fitted():
        return problm.least_squares(fun, [1.0, 0.1, 0.0], data=(x, y), loss=loss, f_scale=0.3, gtol=1e-12)

    mine = fitted()
    monkeypatch.setattr("problm.api.call.read_program", None)
    theirs = fitted()
    assert isinstance(mine.problem, CompiledProblem)
    assert isinstance(theirs.problem, DeviceProblem)
    np.testing.assert_allclose(mine.x, theirs.x, rtol=1e-7)
    np.testing.assert_allclose(mine.cost, theirs.cost, rtol=1e-12)


def test_arithmetic_in_single_precision_is_left_to_jax():
    x = np.linspace(0.0, 1.0, N, dtype=np.float32)
    with pytest.raises(TraceError):
        read(lambda t, x, y: t[0] * (x * x) - y, (x, x))  # the square is rounded to single precision


def test_a_function_is_read_once():
    calls = itertools.count()  # no list: what a function refers to is read again when it has changed

    def fun(t, x, y):
        next(calls)
        return t[0] * jnp.exp(-t[1] * x) - y

    x, y = data()
    first = problm.least_squares(fun, [1.0, 1.0], data=(x, y))
    traced = next(calls)
    again = problm.least_squares(fun, [1.0, 1.0], data=(x, y))
    assert next(calls) == traced + 1
    assert again.x.tobytes() == first.x.tobytes()


def test_curves_are_read_once():
    calls = itertools.count()

    def curve(x, a, b):
        next(calls)
        return a * jnp.exp(-b * x)

    x, y = data()
    problm.curve_fit(curve, x, y, [1.0, 1.0])
    traced = next(calls)
    problm.curve_fit(curve, x, y, [1.0, 1.0])
    assert next(calls) == traced + 1


def test_the_users_loss_and_manifold_stay_in_jax():
    x, y = data()
    fit = problm.least_squares(READ["decay"], np.ones(3), data=(x, y), loss=lambda z: (jnp.log1p(z), 1.0 / (1.0 + z)))
    assert isinstance(fit.problem, DeviceProblem)


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_a_derivative_of_the_users_own_is_kept(factor):
    @jax.custom_jvp
    def square(u):
        return u * u

    square.defjvps(lambda du, _, u: factor * 2.0 * u * du)
    x, y = data()
    fit = problm.least_squares(lambda t, x, y: square(t[0] * x) + t[1] - y, np.ones(2), data=(x, y), max_iter=3)
    assert isinstance(fit.problem, CompiledProblem if factor == 1.0 else DeviceProblem)


def test_another_device_stays_in_jax(monkeypatch):
    monkeypatch.setattr("problm.problems.backends.recorded._platform", lambda: "gpu")
    x, y = data()
    fit = problm.least_squares(READ["decay"], np.ones(3), data=(x, y))
    assert isinstance(fit.problem, DeviceProblem)
