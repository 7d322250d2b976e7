"""The compiled passes against plain NumPy: every type, stride, block size, loss and number of threads."""

import math

import numpy as np
import pytest

from problm.kernels.kernel import BLOCK, CHUNK, ROW_NUMBER, Kernel, available_threads, describe, evaluator, loadable
from problm.losses import LOSSES, Loss, as_loss
from problm.problems.compiled import CompiledProblem


@evaluator
def bilinear_evaluator(theta, rows, m, program, constants, jacobian, out):
    """r_c = k_c (sum_a theta_a x_a + theta_0^2 x_0 / 2) - y with k_c = constants[c]; d, p = program."""
    d, p = program[0], program[1]
    for i in range(m):
        s = 0.5 * theta[0] * theta[0] * rows[0, i]
        for a in range(d):
            s += theta[a] * rows[a, i]
        for c in range(p):
            out[c, i] = constants[c] * s - rows[d, i]
            if jacobian != 0:
                for a in range(d):
                    extra = theta[0] * rows[0, i] if a == 0 else 0.0
                    out[p + c * d + a, i] = constants[c] * (rows[a, i] + extra)


def kernel_of(d, p=1, loss="linear", scale=1.0, threads=1):
    return Kernel(
        bilinear_evaluator,
        d,
        p,
        program=np.array([d, p], dtype=np.int64),
        constants=1.0 + 0.5 * np.arange(p),
        loss=Loss.named(loss, scale),
        threads=threads,
    )


def by_numpy(kernel, theta, columns):
    """Residuals (n, p), costs (n,), gradients (n, d) and J^T W J, in the plainest way."""
    x = np.column_stack([np.asarray(c, dtype=np.float64) for c in columns])
    d = kernel.dim
    s = x[:, :d] @ theta + 0.5 * theta[0] ** 2 * x[:, 0]
    residual = kernel.constants * s[:, None] - x[:, d : d + 1]
    slope = x[:, :d].copy()
    slope[:, 0] += theta[0] * x[:, 0]
    jacobian = kernel.constants[:, None] * slope[:, None, :]
    costs, weight = kernel.loss.cost_and_weight((residual**2).sum(axis=1))
    gradients = weight[:, None] * np.einsum("npd,np->nd", jacobian, residual)
    hessian = np.einsum("n,npd,npe->de", weight, jacobian, jacobian)
    return residual, costs, gradients, hessian


def compare(kernel, theta, columns, rtol=1e-12):
    n = len(columns[0])
    described = describe(columns)
    residual, costs, gradients, hessian = by_numpy(kernel, theta, columns)
    written = np.full(n, np.nan)
    normal = kernel.linearize(theta, described, n, outer=True, costs=written)
    assert normal.count == n
    np.testing.assert_allclose(kernel.residuals(theta, described, n), residual, rtol=rtol, atol=1e-13)
    np.testing.assert_allclose(written, costs, rtol=rtol, atol=1e-13)
    np.testing.assert_array_equal(kernel.costs(theta, described, n), written)
    total = pytest.approx(math.fsum(costs), rel=1e-13, abs=1e-13)
    assert normal.cost == total
    assert kernel.cost(theta, described, n) == total
    tight = {"rtol": rtol, "atol": 1e-12 * max(1, n)}
    np.testing.assert_allclose(normal.gradient, gradients.sum(axis=0), **tight)
    np.testing.assert_allclose(normal.hessian, hessian, **tight)
    np.testing.assert_allclose(normal.outer, gradients.T @ gradients, **tight)
    np.testing.assert_array_equal(normal.hessian, normal.hessian.T)
    plain = kernel.linearize(theta, described, n, outer=False, costs=None)
    assert plain.outer is None
    assert plain.cost == normal.cost
    np.testing.assert_array_equal(plain.gradient, normal.gradient)
    np.testing.assert_array_equal(plain.hessian, normal.hessian)


def table(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(n) for _ in range(d)] + [3.0 * rng.standard_normal(n)]


@pytest.mark.parametrize("d", range(1, 10))
@pytest.mark.parametrize("p", [1, 2, 3])
def test_every_size_of_block_and_parameter(d, p):
    compare(kernel_of(d, p), np.linspace(0.3, 1.0, d), table(300, d))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("scale", [0.2, 3.0])
def test_every_loss(loss, p, scale):
    compare(kernel_of(3, p, loss, scale), np.array([0.5, -1.0, 2.0]), table(500, 3))


SIZES = [0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 77, 5 * CHUNK]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("loss", ["linear", "huber"])
def test_boundaries_of_blocks_and_chunks(n, loss):
    compare(kernel_of(2, 1, loss), np.array([0.7, -0.2]), table(n, 2))


TYPES = ["f8", "f4", "i8", "i4", "u1", "u2"]
LAYOUTS = {
    "contiguous": lambda a: a,
    "every third": lambda a: np.repeat(a, 3)[::3],
    "reversed": lambda a: a[::-1].copy()[::-1],
    "one value": lambda a: np.broadcast_to(a[:1], a.shape),
    "unaligned": lambda a: np.frombuffer(b"\0" + a.tobytes(), dtype=a.dtype, offset=1),
    "read-only": lambda a: np.frombuffer(a.tobytes(), dtype=a.dtype),
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_type_and_layout_is_read_in_place(kind, layout):
    n = 2 * BLOCK + 5
    rng = np.random.default_rng(7)
    raw = rng.integers(0, 200, n) if kind[0] in "iu" else rng.standard_normal(n)
    x = LAYOUTS[layout](raw.astype(kind))
    y = LAYOUTS[layout](rng.integers(0, 9, n).astype(kind))
    assert loadable(x) is x
    compare(kernel_of(1), np.array([0.01]), [x, y])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["f8", "f4"])
def test_matrices_count_as_columns(order, kind):
    rng = np.random.default_rng(8)
    whole = np.asarray(rng.standard_normal((400, 7)), dtype=kind, order=order)
    for x in (whole[:, :3], whole[:, ::3], whole[::2, 1:4], whole[::-1, 2::-1]):
        y = rng.standard_normal(len(x))
        np.testing.assert_array_equal(describe([x, y]), describe([*x.T, y]))
        problem = CompiledProblem(kernel_of(3), [x, y])
        residual, costs, *_ = by_numpy(problem.kernel, np.ones(3), [*x.T, y])
        np.testing.assert_allclose(problem.residuals(np.ones(3)), residual, rtol=1e-13, atol=1e-14)
        assert problem.cost(np.ones(3)) == pytest.approx(costs.sum())


def test_columns_that_do_not_fit():
    with pytest.raises(ValueError, match=r"same length, got \[5, 4\]"):
        CompiledProblem(kernel_of(1), [np.zeros(5), np.zeros(4)])
    with pytest.raises(ValueError, match="no columns"):
        CompiledProblem(kernel_of(1), [])
    with pytest.raises(ValueError, match=r"shape \(5, 1, 2\)"):
        CompiledProblem(kernel_of(1), [np.zeros((5, 1, 2))])


OTHER_TYPES = ["f2", "i1", "i2", "u4", "u8", "?", ">f8", ">i4"]


@pytest.mark.parametrize("kind", OTHER_TYPES)
def test_other_types_are_converted(kind):
    x = (np.arange(300) % 100).astype(kind)
    assert loadable(x).dtype == np.float64
    y = np.linspace(0, 1, 300)
    problem = CompiledProblem(kernel_of(1), [x, y])
    np.testing.assert_allclose(
        problem.residuals(np.array([0.5]))[:, 0], (0.5 + 0.125) * x.astype(float) - y, rtol=1e-14
    )


def test_extreme_integers():
    x = np.array([2**53, -(2**53), 0, 1], dtype=np.int64)
    u = np.array([2**16 - 1, 0, 255, 256], dtype=np.uint16)
    kernel = kernel_of(1)
    got = kernel.residuals(np.array([0.0]), describe([x, u]), 4)
    np.testing.assert_array_equal(got[:, 0], -u.astype(float))
    small = np.array([1e-9])
    np.testing.assert_allclose(
        kernel.residuals(small, describe([x, u]), 4)[:, 0], (small + 0.5 * small**2) * x - u, rtol=1e-15
    )


@pytest.mark.parametrize("n", [10, CHUNK + 3])
def test_row_numbers_as_a_column(n):
    kernel = kernel_of(1)
    y = np.zeros(n)
    got = kernel.residuals(np.array([2.0]), np.concatenate([ROW_NUMBER, describe([y])]), n)
    np.testing.assert_array_equal(got[:, 0], 4.0 * np.arange(n))


@pytest.mark.parametrize("loss", ["linear", "cauchy"])
@pytest.mark.parametrize("n", [CHUNK, 3 * CHUNK + 5, 8 * CHUNK + 1])
def test_same_bits_for_any_number_of_threads(loss, n):
    columns = table(n, 3)
    described = describe(columns)
    theta = np.array([0.1, 0.2, 0.3])
    results = []
    for threads in (1, 2, 4, 7):
        kernel = kernel_of(3, 2, loss, 1.0, threads)
        costs = np.empty(n)
        normal = kernel.linearize(theta, described, n, outer=True, costs=costs)
        results.append(
            b"".join(
                np.asarray(a).tobytes()
                for a in (
                    normal.cost,
                    normal.gradient,
                    normal.hessian,
                    normal.outer,
                    costs,
                    kernel.cost(theta, described, n),
                    kernel.costs(theta, described, n),
                    kernel.residuals(theta, described, n),
                )
            )
        )
    assert all(r == results[0] for r in results)


def test_long_sums_keep_their_digits():
    # A million equal terms that are no binary fractions: a running sum loses four digits, this one none.
    n = 1_000_000
    columns = [np.full(n, 0.1), np.full(n, 0.3)]
    theta = np.array([0.7])
    kernel = kernel_of(1)
    one = by_numpy(kernel, theta, [c[:1] for c in columns])
    normal = kernel.linearize(theta, describe(columns), n, outer=True, costs=None)
    assert normal.cost == pytest.approx(n * one[1][0], rel=1e-13)
    assert normal.gradient[0] == pytest.approx(n * one[2][0, 0], rel=1e-13)
    assert normal.hessian[0, 0] == pytest.approx(n * one[3][0, 0], rel=1e-13)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("row", [0, BLOCK - 1, BLOCK + 3, CHUNK + 10])
def test_nan_reaches_the_sums_and_only_its_own_row(loss, row):
    n = CHUNK + 200
    columns = table(n, 2)
    columns[0][row] = np.nan
    kernel = kernel_of(2, 2, loss)
    theta = np.array([1.0, -1.0])
    described = describe(columns)
    costs = np.empty(n)
    normal = kernel.linearize(theta, described, n, outer=True, costs=costs)
    assert np.flatnonzero(np.isnan(costs)).tolist() == [row]
    assert math.isnan(normal.cost)
    assert math.isnan(kernel.cost(theta, described, n))
    assert np.isnan(normal.gradient).all()
    assert np.isnan(normal.hessian[0, 0])
    assert np.isnan(kernel.residuals(theta, described, n)[row]).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_infinite_residuals(loss):
    columns = table(10, 2)
    columns[2][4] = np.inf
    kernel = kernel_of(2, 1, loss)
    costs = kernel.costs(np.ones(2), describe(columns), 10)
    assert np.isfinite(np.delete(costs, 4)).all()
    assert costs[4] == pytest.approx(kernel.loss.bound)


# -- CompiledProblem ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["linear", "soft_l1", "tukey"])
def test_batches_are_sums_over_their_rows(loss):
    n = 5000
    columns = table(n, 2)
    columns[0] = columns[0].astype(np.float32)
    kernel = kernel_of(2, 2, loss)
    problem = CompiledProblem(kernel, columns, rng=3)
    theta = np.array([0.4, 0.6])
    for lo, hi in [(0, 200), (200, 400), (0, 400), (400, 1000), (1000, n), (0, n), (0, 1000)]:
        rows = np.arange(n) if (lo, hi) == (0, n) else problem.data.order.indices(lo, hi)
        _, costs, gradients, hessian = by_numpy(kernel, theta, [c[rows] for c in columns])
        written = np.empty(hi - lo)
        normal = problem.linearize(theta, lo, hi, outer=True, costs=written)
        assert normal.count == hi - lo
        np.testing.assert_allclose(written, costs, rtol=1e-12)
        np.testing.assert_allclose(problem.costs(theta, lo, hi), costs, rtol=1e-12)
        np.testing.assert_allclose(normal.gradient, gradients.sum(axis=0), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(normal.hessian, hessian, rtol=1e-11)
        np.testing.assert_allclose(normal.outer, gradients.T @ gradients, rtol=1e-11, atol=1e-9)
        assert normal.cost == pytest.approx(costs.sum())
        if (lo, hi) != (0, n):
            assert problem.indices(lo, hi)[0] == rows[0]
    assert problem.cost(theta) == pytest.approx(problem.costs(theta, 0, n).sum())
    assert (problem.n, problem.dim, problem.cost_bound) == (n, 2, kernel.loss.bound)


def test_batch_sums_do_not_depend_on_threads():
    columns = table(6 * CHUNK, 2)
    theta = np.array([0.4, 0.6])
    seen = set()
    for threads in (1, 2, 4):
        problem = CompiledProblem(kernel_of(2, 1, "huber", 1.0, threads), columns, rng=3)
        normal = problem.linearize(theta, 0, 2 * CHUNK, outer=True, costs=None)
        seen.add((normal.cost, normal.gradient.tobytes(), normal.hessian.tobytes(), normal.outer.tobytes()))
    assert len(seen) == 1


def test_space_of_the_parameters():
    # A point given as an angle: encode tells the kernel, retract moves it.
    problem = CompiledProblem(
        kernel_of(2),
        table(100, 2),
        encode=lambda angle: [math.cos(angle), math.sin(angle)],
        retract=lambda angle, delta: angle + delta[0],
    )
    plain = CompiledProblem(kernel_of(2), table(100, 2))
    assert problem.cost(0.3) == plain.cost(np.array([math.cos(0.3), math.sin(0.3)]))
    assert problem.retract(0.3, np.array([0.1])) == pytest.approx(0.4)
    np.testing.assert_array_equal(plain.retract(np.ones(2), np.ones(2)), [2.0, 2.0])
    # Integers and lists are points too.
    assert plain.cost([1, 2]) == plain.cost(np.array([1.0, 2.0]))


def test_rows_given_back_can_be_read_again():
    problem = CompiledProblem(kernel_of(2), table(1000, 2))
    theta = np.ones(2)
    before = problem.costs(theta, 0, 100)
    problem.release()
    np.testing.assert_array_equal(problem.costs(theta, 0, 100), before)
    assert problem.boundary(50) == 100


def test_a_users_loss_cannot_be_compiled():
    with pytest.raises(TypeError, match="cannot be used inside a compiled model"):
        Kernel(bilinear_evaluator, 1, loss=as_loss(lambda z: (z, np.ones_like(z))))


def test_available_threads_respects_the_environment(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    cores = available_threads()
    assert cores >= 1
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert available_threads() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "nonsense")
    assert available_threads() == cores
