"""Functions that look beyond their own row get all rows in every call, and SciPy's answer."""

import numpy as np
import pytest
import scipy.optimize

import problm
from problm.problems.row_wise import agree, is_row_wise, tried_rows
from tests.helpers.beyond_rows import APART, BEYOND, KERNEL, N, T, W, noisy


@pytest.mark.parametrize("name", BEYOND)
def test_a_function_that_looks_beyond_its_row_gets_scipys_answer(name):
    calls = set()

    def f(t, a, k):
        calls.add(len(t))
        return BEYOND[name](t, a, k)

    y = noisy(BEYOND[name](T, 2.0, 0.7))
    popt, pcov, info, message, _ = problm.curve_fit(f, T, y, [1.5, 0.5], full_output=True)
    expected, covariance = scipy.optimize.curve_fit(BEYOND[name], T, y, [1.5, 0.5])
    np.testing.assert_allclose(popt, expected, atol=1e-2 * np.sqrt(covariance.diagonal()).min())
    np.testing.assert_allclose(pcov, covariance, rtol=1e-2, atol=1e-4 * covariance.diagonal().min())
    result = info["result"]
    assert result.row_wise is False
    assert "beyond its own row" in message
    assert "beyond its own row" in str(result)
    assert set(result.history.batch_size) == {N}
    assert calls - {N} <= set(range(65))  # only the rows that it was tried on


@pytest.mark.parametrize("name", APART)
def test_a_row_wise_function_is_called_in_batches(name):
    y = noisy(APART[name](T, 2.0, 0.7))
    fit = problm.least_squares(lambda p, t, y: APART[name](t, *p) - y, [1.5, 0.5], data=(T, y))
    assert fit.row_wise is None
    assert min(fit.history.batch_size) < N


@pytest.mark.parametrize("n", [50, 5000])
def test_few_rows_are_always_evaluated_together(n):
    w = np.linspace(1, 2, n)
    sizes = set()

    def f(x, a):
        sizes.add(len(x))
        return a * w

    popt, _ = problm.curve_fit(f, np.arange(n), 3.0 * w)
    assert sizes == {n}
    np.testing.assert_allclose(popt, [3.0])
    fit = problm.least_squares(lambda t, y: t[0] * w - y, [1.0], data=(3.0 * w,))
    np.testing.assert_allclose(fit.x, [3.0])


def test_batches_that_are_asked_for_are_refused_to_such_a_function():
    x = np.linspace(1, 2, 3000)
    y = 2.0 * np.exp(-(x - x[0])) + 0.01 * np.sin(100 * x)
    for options in ({"initial_batch": 100}, {"acceptance": "paper-relaxed"}, {"accuracy": 0.1}):
        fit = problm.least_squares(
            lambda t, x, y: t[0] * np.exp(-t[1] * (x - x[0])) - y, [1.0, 0.5], data=(x, y), **options
        )
        assert set(fit.history.batch_size) == {3000}
        assert fit.row_wise is False
        np.testing.assert_allclose(fit.x, [2.0, 1.0], atol=0.01)


def test_data_of_several_columns():
    x = np.stack([T, W])
    y = noisy(2.0 * x[0] + 0.7 * x[1] / x[1].sum() * N)
    f = lambda x, a, b: a * x[0] + b * x[1] / x[1].sum() * N  # noqa: E731
    for given, function in ((x, f), (x.T.copy(), lambda x, a, b: f(x.T, a, b))):
        popt, _ = problm.curve_fit(function, given, y)
        np.testing.assert_allclose(popt, scipy.optimize.curve_fit(f, x, y)[0], rtol=1e-6)


def test_a_derivative_that_looks_beyond_its_row():
    f = lambda t, a, k: a * np.exp(-k * t)  # noqa: E731
    jac = lambda t, a, k: np.stack([np.exp(-k * t), -a * t * np.exp(-k * t)], axis=1) * (len(t) / N)  # noqa: E731
    y = noisy(f(T, 2.0, 0.7))
    popt, _, info, _, _ = problm.curve_fit(f, T, y, [1.5, 0.5], jac=jac, full_output=True)
    assert info["result"].row_wise is False
    np.testing.assert_allclose(popt, scipy.optimize.curve_fit(f, T, y, [1.5, 0.5])[0], rtol=1e-5)


def test_what_the_start_hides_shows_nearby():
    """The term is zero at the start."""
    y = noisy(1.0 + 0.5 * (T - T.mean()))
    fit = problm.least_squares(lambda t, x, y: t[0] + t[1] * (x - x.mean()) - y, [0.0, 0.0], data=(T, y))
    assert fit.row_wise is False
    np.testing.assert_allclose(fit.x, np.polyfit(T - T.mean(), y, 1)[::-1], rtol=1e-5)


def test_what_few_rows_carry_shows_at_the_solution():
    """A convolved line of 40 channels: none of the rows that are tried lies in it, and the start is next to it."""
    x = np.arange(float(N))
    line = lambda x, a, c: a * np.exp(-0.5 * ((x - c) / 6.0) ** 2)  # noqa: E731
    f = lambda x, a, c: np.convolve(line(x, a, c), KERNEL, "same")  # noqa: E731
    chunk = 131072 // (2 + 4)
    center = chunk - 2.0  # where chunks of the rows are cut
    assert not (np.abs(tried_rows(N) - center) < 100).any()
    y = f(x, 50.0, center) + 0.5 * np.random.default_rng(0).standard_normal(N)
    popt, _, info, message, _ = problm.curve_fit(f, x, y, [40.0, center + 2], full_output=True)
    assert info["result"].row_wise is False
    assert "beyond" in message
    np.testing.assert_allclose(popt, scipy.optimize.curve_fit(f, x, y, [40.0, center + 2])[0], rtol=1e-5)


def test_a_solve_that_fails_is_compared_with_a_call_of_all_rows():
    """Few rows are treated one by one, more are not: the check before the first step sees nothing, and steps fail."""

    def f(t, a, k):
        return a * np.exp(-k * (t if len(t) < 1000 else t - t.mean()))

    t = np.linspace(0.0, 10.0, 50_000)
    y = f(t, 2.0, 0.6) + 0.1 * np.random.default_rng(1).standard_normal(len(t))
    popt, _, info, _, _ = problm.curve_fit(f, t, y, [1.0, 1.0], full_output=True)
    assert info["result"].row_wise is False
    np.testing.assert_allclose(popt, scipy.optimize.curve_fit(f, t, y, [1.0, 1.0])[0], rtol=1e-5)


def test_noise_and_state_are_beyond_a_row():
    rng = np.random.default_rng(0)
    assert not is_row_wise(lambda t, rows: [rows[0] + 1e-3 * rng.standard_normal(len(rows[0]))], [1.0], (T,))
    count = iter(range(100))
    assert not is_row_wise(lambda t, rows: [rows[0] + next(count)], [1.0], (T,))


def test_the_check_reads_few_rows():
    """Less than a hundredth of a pass over 10^5 rows before the first step."""
    n = 100_000
    x = np.linspace(0, 4, n)
    seen = []

    def f(t, x, y):
        seen.append(len(x))
        return t[0] * np.exp(-t[1] * x) - y

    def stop(state):
        return True

    problm.least_squares(f, [1.0, 1.0], data=(x, np.exp(-x)), callback=stop)
    before = seen[: next(i for i, k in enumerate(seen) if k > 64)]
    assert sum(before) < 0.01 * 3 * n
    assert max(before) <= 64


def test_without_data_a_function_is_never_called_in_pieces():
    n = 300_000
    x = np.linspace(0, 4, n)
    y = 2.0 * np.exp(-x / 2)
    shapes = set()

    def fun(t):
        r = t[0] * np.exp(-t[1] * (x - x[0])) - y
        shapes.add(r.shape)
        return r

    fit = problm.least_squares(fun, [1.0, 1.0])
    np.testing.assert_allclose(fit.x, [2.0, 0.5], rtol=1e-6)
    assert shapes == {(n,)}


def test_rounding_is_no_dependence():
    rng = np.random.default_rng(0)
    a = 1e9 + rng.standard_normal(50)
    b = a * (1 + 2e-16 * rng.choice([-1, 1], 50))
    assert agree([a], [b])
    small, moved = a - 1e9, b - 1e9
    assert not agree([small], [moved])
    assert agree([small], [moved], lambda: [np.array(4e-7)])
    assert not agree([small], [small[::-1]], lambda: [np.array(4e-7)])
    assert agree([np.array([1.0, np.nan, np.inf])], [np.array([1.0, np.nan, np.inf])])
    assert not agree([np.array([1.0, np.nan])], [np.array([np.nan, 1.0])])


def test_exact_data_are_not_taken_for_a_dependence():
    y = 2.0 * np.exp(-0.7 * T)
    info = problm.curve_fit(APART["exponential"], T, y, [1.5, 0.5], full_output=True)[2]
    assert info["result"].row_wise is not False


def test_rows_in_a_file(tmp_path):
    rng = np.random.default_rng(0)
    y = 2.0 * np.exp(-0.7 * (T - T[0])) + 0.01 * rng.standard_normal(N)
    np.save(tmp_path / "rows.npy", np.stack([T, y], axis=1).repeat(4, axis=0))
    fun = lambda t, r: t[0] * np.exp(-t[1] * (r[:, 0] - r[0, 0])) - r[:, 1]  # noqa: E731
    fit = problm.least_squares(fun, [1.0, 1.0], data=str(tmp_path / "rows.npy"))
    assert fit.row_wise is False
    np.testing.assert_allclose(fit.x, [2.0, 0.7], atol=0.01)
    with pytest.raises(ValueError, match="all rows at once"):
        problm.least_squares(fun, [1.0, 1.0], data=str(tmp_path / "rows.npy"), max_memory="1MB")


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # PyTorch's own
class TestBackends:
    """Rows are filled up to chunks by JAX, so that even few rows must be tried."""

    @pytest.mark.parametrize("n", [50, 20_000])
    @pytest.mark.parametrize("name", ["first row", "mean", "closure", "exponential"])
    @pytest.mark.parametrize("library", ["jax.numpy", "torch"])
    def test_answers_are_numpys(self, n, name, library):
        there = pytest.importorskip(library)
        x = np.linspace(2.0, 6.0, n)
        w = np.linspace(1.0, 2.0, n)

        def residuals(xp):
            model = {
                "first row": lambda t, x: t[0] * xp.exp(-t[1] * (x - x[0])),
                "mean": lambda t, x: t[0] * xp.exp(-t[1] * (x - x.mean())),
                "closure": lambda t, x: t[0] * xp.exp(-t[1] * x) * xp.asarray(w),
                "exponential": lambda t, x: t[0] * xp.exp(-t[1] * x),
            }[name]
            return lambda t, x, y: model(t, x) - y

        y = residuals(np)([2.0, 0.7], x, 0.05 * np.random.default_rng(1).standard_normal(n))
        fit = problm.least_squares(residuals(there), [1.5, 0.5], data=(x, y))
        theirs = scipy.optimize.least_squares(residuals(np), [1.5, 0.5], args=(x, y))
        np.testing.assert_allclose(fit.x, theirs.x, rtol=1e-4)
        assert fit.row_wise is (None if name == "exponential" else False)

    @pytest.mark.parametrize("library", ["jax.numpy", "torch"])
    def test_curves(self, library):
        there = pytest.importorskip(library)
        y = noisy(BEYOND["first row"](T, 2.0, 0.7))
        popt, _ = problm.curve_fit(lambda x, a, k: a * there.exp(-k * (x - x[0])), T, y)
        np.testing.assert_allclose(popt, scipy.optimize.curve_fit(BEYOND["first row"], T, y)[0], rtol=1e-5)


@pytest.mark.parametrize("acceptance", ["holdout", "paper", "empirical-bernstein"])
def test_residuals_of_a_batch_are_not_taken_for_those_of_all_rows(acceptance):
    """All rows fit in one call here, and may be asked for where a step on a batch led."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 5, 15_000)
    y = 2.0 * np.exp(-0.7 * x) + 0.3 + 0.1 * rng.standard_normal(15_000)

    def residuals(t, x, y):
        return t[0] * np.exp(-t[1] * x) + t[2] - y

    whole = problm.least_squares(residuals, [1.0, 1.0, 0.0], data=(x, y))
    for size in (500, 8000):
        fit = problm.least_squares(residuals, [1.0, 1.0, 0.0], data=(x, y), acceptance=acceptance, initial_batch=size)
        assert fit.success
        assert fit.cost == pytest.approx(whole.cost, rel=1e-10)
