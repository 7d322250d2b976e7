"""Residual functions of JAX and PyTorch: the same sums, answers and losses as NumPy's, derivatives checked."""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pytest

import problm
from problm.losses import LOSSES, Loss
from problm.problems.backends import backend_model, detect
from problm.problems.backends.device import CHUNK, LARGE, DeviceProblem, cost_and_weight
from problm.problems.rows import FunctionModel

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy
try:
    import torch
except ImportError:
    torch = None

# PyTorch 2.13 loads its own rules for forward derivatives with a function that it calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
LIBRARIES = ["jax", pytest.param("torch", marks=needs_torch)]


@pytest.fixture(autouse=True)
def _in_the_library(monkeypatch):
    """Functions that compiled kernels could run (`tests/models/test_jax_program.py`) run in JAX."""
    monkeypatch.setattr("problm.api.call.read_program", None)


def xp_of(name):
    return {"jax": jnp, "torch": torch, "numpy": np}[name]


@functools.cache
def decay(xp):
    def fun(t, x, y):
        return t[0] * xp.exp(-t[1] * x) + t[2] - y

    return fun, [1.0, 1.0, 0.0], [2.0, 0.7, 0.3]


@functools.cache
def wave(xp):
    def fun(t, x, y):
        return t[0] * xp.sin(t[1] * x) * xp.exp(-t[2] * x) - y

    return fun, [1.0, 2.0, 0.2], [1.5, 1.9, 0.1]


@functools.cache
def plane(xp):
    """Two residuals a row."""

    def fun(t, x, y):
        return xp.stack([t[0] * x + t[1] - y, 0.5 * (t[0] * x + t[1] ** 2 - y)], -1)

    return fun, [0.95, 1.1], [1.0, 1.0]


PROBLEMS = {"decay": decay, "wave": wave, "plane": plane}


def make(problem, n=50_000, seed=0):
    rng = np.random.default_rng(seed)
    fun, start, truth = PROBLEMS[problem](np)
    x = rng.uniform(0, 5, n)
    y = np.zeros(n)
    y = (fun(truth, x, y)[..., 0] if problem == "plane" else fun(truth, x, y)) + 0.1 * rng.standard_normal(n)
    y[:: n // 50] += 4.0  # some outliers, so that losses differ
    return x, y, np.array(start)


def models(library, problem, loss, x, y, start):
    xp = xp_of(library)
    fun, _, _ = PROBLEMS[problem](xp)
    other = backend_model(library, fun, len(start), loss).prepared([start], (x[:8], y[:8]))
    reference = FunctionModel(PROBLEMS[problem](np)[0], "3-point", len(start), loss, 2 if problem == "plane" else 1)
    return other, reference


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("loss", ["linear", "cauchy", "truncated"])
def test_sums_equal_numpys(library, problem, loss):
    x, y, start = make(problem, CHUNK + 777)
    mine, theirs = models(library, problem, Loss.named(loss, 0.3), x, y, start)
    a, b = mine.problem((x, y)), theirs.problem((x, y))
    assert a.components == b.components
    assert a.cost_bound == b.cost_bound
    for lo, hi in [(0, 200), (200, 400), (0, len(x))]:
        mine_costs, their_costs = np.empty(hi - lo), np.empty(hi - lo)
        p = a.linearize(start, lo, hi, outer=True, costs=mine_costs)
        q = b.linearize(start, lo, hi, outer=True, costs=their_costs)
        assert p.count == q.count == hi - lo
        np.testing.assert_allclose(mine_costs, their_costs, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(p.cost, q.cost, rtol=1e-12)
        for name in ("gradient", "hessian", "outer"):  # the reference's derivatives are differences
            scale = np.abs(getattr(q, name)).max()
            np.testing.assert_allclose(getattr(p, name), getattr(q, name), rtol=1e-6, atol=1e-7 * scale)
        np.testing.assert_allclose(a.costs(start, lo, hi), their_costs, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(a.cost(start), b.cost(start), rtol=1e-12)
    np.testing.assert_allclose(a.residuals(start), b.residuals(start), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("loss", ["linear", "soft_l1", "truncated"])
@pytest.mark.parametrize("acceptance", ["holdout", "full", "paper-relaxed"])
def test_grid(library, problem, loss, acceptance):
    x, y, start = make(problem)
    fun = PROBLEMS[problem](xp_of(library))[0]
    options = {"loss": loss, "f_scale": 0.3, "acceptance": acceptance, "ftol": 1e-13, "gtol": 1e-11}
    mine = problm.least_squares(fun, start, data=(x, y), **options)
    theirs = problm.least_squares(PROBLEMS[problem](np)[0], start, data=(x, y), jac="3-point", **options)
    assert isinstance(mine.problem, DeviceProblem)
    assert mine.success
    np.testing.assert_allclose(mine.cost, theirs.cost, rtol=1e-9)
    np.testing.assert_allclose(mine.x, theirs.x, rtol=1e-5)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_those_of_numpy(library, name):
    loss = Loss.named(name, 0.7)
    z = np.concatenate([np.logspace(-18, 6, 100), [0.0, 0.49, 0.4900001]])
    cost, weight = loss.cost_and_weight(z)
    if library == "torch":
        from problm.problems.backends.torch_backend import Functions

        mine = [v.numpy() for v in cost_and_weight(loss, torch.from_numpy(z), Functions)]
    else:
        with jax.enable_x64(True):
            mine = [np.asarray(v) for v in cost_and_weight(loss, jnp.asarray(z), jnp)]
    np.testing.assert_allclose(mine[0], cost, rtol=1e-14)
    np.testing.assert_allclose(mine[1], weight, rtol=1e-13)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_loss_of_the_users(library):
    xp = xp_of(library)
    x, y, start = make("decay")

    def rho(z):
        return xp.log1p(z), 1.0 / (1.0 + z)

    mine = problm.least_squares(decay(xp)[0], start, data=(x, y), loss=rho, f_scale=0.3)
    built_in = problm.least_squares(decay(xp)[0], start, data=(x, y), loss="cauchy", f_scale=0.3)
    np.testing.assert_allclose(mine.x, built_in.x, rtol=1e-12)


@pytest.mark.parametrize("library", LIBRARIES)
def test_functions_of_a_single_row(library):
    """A 3-vector a row: the norm of a difference is no function of a batch."""
    xp = xp_of(library)
    rng = np.random.default_rng(0)
    anchors = rng.standard_normal((5000, 3))
    ranges = np.linalg.norm(anchors - np.array([0.5, -0.2, 0.3]), axis=1) + 0.01 * rng.standard_normal(5000)

    def one(t, anchor, distance):
        difference = t - anchor
        return xp.sqrt((difference * difference).sum()) - distance

    def two(t, anchor, distance):
        difference = t - anchor
        return xp.stack([xp.sqrt(difference @ difference) - distance, 0.1 * difference[0]])

    fit = problm.least_squares(one, [0.0, 0.0, 0.0], data=(anchors, ranges))
    assert fit.success
    assert fit.problem.components == 1
    np.testing.assert_allclose(fit.x, [0.5, -0.2, 0.3], atol=2e-3)
    assert problm.least_squares(two, [0.0, 0.0, 0.0], data=(anchors, ranges)).problem.components == 2


@pytest.mark.parametrize("library", LIBRARIES)
def test_on_a_manifold(library):
    xp = xp_of(library)

    class Circle:
        dim = 1

        @staticmethod
        def retract(theta, delta):
            c, s = xp.cos(delta[0]), xp.sin(delta[0])
            return xp.stack([c * theta[0] - s * theta[1], s * theta[0] + c * theta[1]])

    rng = np.random.default_rng(0)
    p = np.array([0.6, 0.8]) + 0.1 * rng.standard_normal((4000, 2))
    fit = problm.least_squares(lambda t, p: t - p, np.array([1.0, 0.0]), data=p, manifold=Circle, backend=library)
    assert fit.success
    np.testing.assert_allclose(np.linalg.norm(fit.x), 1.0, rtol=1e-12)
    np.testing.assert_allclose(fit.x, p.mean(0) / np.linalg.norm(p.mean(0)), atol=1e-6)


def test_growing_compiles_nothing():
    fun = decay(jnp)[0]
    x, y, start = make("decay", 250_000)
    fit = problm.least_squares(fun, start, data=(x, y))
    passes = fit.problem.model.passes
    assert len(set(fit.history.batch_size)) >= 3
    assert passes.compiled() == 4  # sums and costs, for a chunk and for all rows
    again = problm.least_squares(fun, start, data=(x[:248_000], y[:248_000]))  # padded to the same length
    assert again.problem.model.passes is passes
    assert passes.compiled() == 4
    x, y, start = make("decay", 700_000)  # large chunks for everything, and nothing else
    problm.least_squares(fun, start, data=(x, y))
    assert passes.compiled() == 5


@pytest.mark.parametrize("library", LIBRARIES)
def test_large_chunks(library):
    """A pass over very many rows, in chunks of both sizes and with one that is filled up, has the sums of the rows."""
    fun, numpy_fun = decay(xp_of(library))[0], decay(np)[0]
    x, y, start = make("decay", 5 * LARGE + CHUNK + 777)
    ours = problm.least_squares(fun, start, data=(x, y), backend=library, max_iter=1).problem
    theirs = problm.least_squares(numpy_fun, start, data=(x, y), jac="3-point", max_iter=1).problem
    theta = np.asarray(start, dtype=np.float64)
    for outer in (False, True):
        normal = ours.linearize(theta, 0, ours.n, outer=outer, costs=None)
        expected = theirs.linearize(theta, 0, ours.n, outer=outer, costs=None)
        np.testing.assert_allclose(normal.cost, expected.cost, rtol=1e-12)
        np.testing.assert_allclose(normal.gradient, expected.gradient, rtol=1e-6)
        np.testing.assert_allclose(normal.hessian, expected.hessian, rtol=1e-6)
        if outer:
            np.testing.assert_allclose(normal.outer, expected.outer, rtol=1e-6)
    np.testing.assert_allclose(ours.costs(theta, 0, ours.n), theirs.costs(theta, 0, ours.n), rtol=1e-12)


def test_a_loop_of_unknown_length_is_differentiated_forward():
    """JAX has no reverse mode for such loops."""

    def fun(t, x, y):  # the geometric series t[0] / (1 - t[1] x), summed until nothing is added
        ratio = jnp.clip(t[1] * x, -0.9, 0.9)
        more = lambda s: jnp.any(jnp.abs(s[1]) > 1e-12)  # noqa: E731
        total, _ = jax.lax.while_loop(more, lambda s: (s[0] + s[1], s[1] * ratio), (0.0 * x, t[0] + 0.0 * x))
        return total + t[2] - y

    rng = np.random.default_rng(0)
    x = rng.uniform(0, 0.8, 2000)
    y = 2.0 / (1.0 - 0.7 * x) + 0.3 + 0.01 * rng.standard_normal(x.size)
    fit = problm.least_squares(fun, [1.0, 0.5, 0.0], data=(x, y), backend="jax")
    other = problm.least_squares(lambda t, x, y: t[0] / (1 - t[1] * x) + t[2] - y, [1.0, 0.5, 0.0], data=(x, y))
    assert fit.success
    np.testing.assert_allclose(fit.x, other.x, rtol=1e-5)


def test_neighbours_that_matter_in_few_rows_are_seen_at_the_end():
    """A smoothed line touches rows that the first check does not try; the same rows in other company show it."""
    x = np.linspace(0.0, 1.0, 20_001)

    def fun(t, x, y):
        line = jnp.where(jnp.abs(x - 0.4003) < 5e-4, t[0], 0.0)
        return jnp.convolve(line, jnp.ones(5) / 5, mode="same") + t[1] * x + t[2] * x**2 - y

    line = np.where(np.abs(x - 0.4003) < 5e-4, 2.0, 0.0)
    y = np.convolve(line, np.ones(5) / 5, mode="same") + x + 0.5 * x**2
    y += 0.01 * np.random.default_rng(0).standard_normal(x.size)
    fit = problm.least_squares(fun, [1.0, 1.0, 0.0], data=(x, y), backend="jax")
    assert fit.row_wise is False
    np.testing.assert_allclose(fit.x, [2.0, 1.0, 0.5], atol=0.01)


def test_all_rows_are_differentiated_together():
    """Rows whose influence on each other is only seen at the end get derivatives of all rows, not row by row."""
    x = np.linspace(0.0, 1.0, 20_001)

    def fun(t, x, y):
        line = jnp.where(jnp.abs(x - 0.4003) < 5e-4, t[0], 0.0)
        return line + 0.5 * jnp.roll(line, 3) + t[1] * x + t[2] * x**2 - y

    theta = np.array([1.0, 1.0, 0.0])
    model = backend_model("jax", fun, 3, Loss.named("linear")).prepared([theta], (x, 0.0 * x)).with_all_rows()
    problem = model.problem((x, 0.0 * x))
    gradient = problem.linearize(theta, 0, problem.n, outer=False, costs=None).gradient
    steps = 1e-4 * np.eye(3)
    expected = [(problem.cost(theta + h) - problem.cost(theta - h)) / 2e-4 for h in steps]
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


def test_derivatives_of_all_rows_are_never_in_memory_at_once():
    n, d = 102_400, 20

    def fun(t, x, y):
        return sum(t[k] * jnp.cos(k * x) for k in range(d)) - y

    x = np.linspace(0.0, 1.0, 2 * n)
    passes = backend_model("jax", fun, d, Loss.named("linear")).prepared([np.ones(d)], (x, x)).passes

    def memory(rows):
        columns = x[:rows], x[:rows]
        with jax.enable_x64(True):
            program = jax.jit(lambda t, c: passes.linearize(t, rows, c, False)).lower(np.ones(d), columns).compile()
        return program.memory_analysis().temp_size_in_bytes

    assert memory(2 * n) - memory(n) < 8 * n * d / 5


def test_jax_stays_as_the_user_left_it():
    x, y, start = make("decay", 2000)
    problm.least_squares(decay(jnp)[0], start, data=(x, y))
    assert jnp.zeros(1).dtype == jnp.float32
    assert not jax.config.jax_enable_x64


def test_double_precision_from_single_precision_data():
    x, y, start = make("decay", 5000)
    data = (x.astype(np.float32), y.astype(np.float32))
    mine = problm.least_squares(decay(jnp)[0], start, data=data, gtol=1e-12)
    theirs = problm.least_squares(
        decay(np)[0], start, data=tuple(a.astype(float) for a in data), jac="3-point", gtol=1e-12
    )
    np.testing.assert_allclose(mine.x, theirs.x, rtol=1e-6)


def test_from_a_file(tmp_path):
    x, y, start = make("decay", 100_000)
    np.savez(tmp_path / "t.npz", x=x, y=y)
    fit = problm.least_squares(decay(jnp)[0], start, data=tmp_path / "t.npz", max_memory="1.5MB", gtol=1e-11)
    assert type(fit.problem).__name__ == "ChunkedProblem"
    other = problm.least_squares(decay(np)[0], start, data=(x, y), gtol=1e-11)
    np.testing.assert_allclose(fit.x, other.x, rtol=1e-6)


def test_a_bad_row_is_named():
    x, y, start = make("decay", 20_000)
    x[12_345] = 1e4

    def grows(t, x, y):
        return decay(jnp)[0](t, -x, y)

    with pytest.raises(ValueError, match="at row 12345 of the data"):
        problm.least_squares(grows, start, data=(x, y), acceptance="full")


@pytest.mark.parametrize("library", LIBRARIES)
def test_models_travel(library):
    """What is pickled is the function, not the programs compiled from it."""
    x, y, start = make("decay", 500)
    rows = backend_model(library, module_level[library], 3, Loss.named("linear")).prepared([start], (x[:8], y[:8]))
    again = pickle.loads(pickle.dumps(rows))  # noqa: S301
    assert again.problem((x, y)).cost(start) == rows.problem((x, y)).cost(start)


def jax_decay(t, x, y):
    return t[0] * jnp.exp(-t[1] * x) + t[2] - y


def torch_decay(t, x, y):
    return t[0] * torch.exp(-t[1] * x) + t[2] - y


def _through_another(t, x, y):
    return jax_decay(t, x, y)


module_level = {"jax": jax_decay, "torch": torch_decay}


class TestDetection:
    def test_numpy(self):
        assert detect(lambda t, x: np.exp(t[0] * x)) == "numpy"
        assert detect(np.exp) == "numpy"
        assert detect(print) == "numpy"
        assert detect(3) == "numpy"

    def test_jax(self):
        assert detect(jax_decay) == "jax"
        assert detect(jax.jit(jax_decay)) == "jax"
        assert detect(functools.partial(jax_decay, x=1)) == "jax"
        assert detect(_through_another) == "jax"
        assert detect(lambda t, x: [jnp.exp(v) for v in x]) == "jax"
        local = jnp
        assert detect(lambda t, x: local.exp(x)) == "jax"

    def test_objects(self):
        class Model:
            def __call__(self, t, x):
                return jnp.exp(t * x)

            def method(self, t, x):
                return jnp.exp(t * x)

        assert detect(Model()) == "jax"
        assert detect(Model().method) == "jax"

    @needs_torch
    def test_torch(self):
        assert detect(torch_decay) == "torch"
        assert detect(torch.nn.Linear(1, 1)) == "torch"

    def test_recursion_ends(self):
        def loop(t, x):
            return loop(t, x)

        assert detect(loop) == "numpy"

    def test_a_jacobian_means_numpy(self):
        x, y, start = make("decay", 2000)
        fit = problm.least_squares(
            lambda t, x, y: np.asarray(jax_decay(t, x, y), dtype=float),
            start,
            data=(x, y),
            jac=lambda t, x, y: np.stack([np.exp(-t[1] * x), -t[0] * x * np.exp(-t[1] * x), np.ones_like(x)], 1),
            xtol=1e-4, ftol=1e-4,
        )  # fmt: skip
        assert not isinstance(fit.problem, DeviceProblem)


class TestErrors:
    def test_unknown_backend(self):
        x, y, start = make("decay", 100)
        with pytest.raises(ValueError, match=r"backend='jaxx' is not known \(did you mean 'jax'\?\)"):
            problm.least_squares(jax_decay, start, data=(x, y), backend="jaxx")

    @pytest.mark.parametrize("library", LIBRARIES)
    def test_shapes(self, library):
        xp = xp_of(library)
        x, y, start = make("decay", 100)
        with pytest.raises(ValueError, match="for a batch it gave"):
            problm.least_squares(lambda t, x, y: xp.zeros((2, 3, 4, 5)), start, data=(x, y))

    def test_data_is_needed(self):
        with pytest.raises(ValueError, match="data is needed with JAX"):
            backend_model("jax", jax_decay, 3, Loss.named("linear")).prepared([np.ones(3)], ())


@pytest.mark.parametrize("library", ["numpy", *LIBRARIES])
def test_a_start_where_every_block_is_an_outlier(library):
    """Every weight is zero there, so it is a stationary point, and the status does not claim more."""
    x, y, _ = make("decay", 2000)
    fit = problm.least_squares(decay(xp_of(library))[0], [500.0, 0.0, 0.0], data=(x, y), loss="truncated", f_scale=0.1)
    assert fit.singular
    np.testing.assert_array_equal(fit.x, [500.0, 0.0, 0.0])
