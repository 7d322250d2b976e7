"""`least_squares`, `curve_fit` and `check_jacobian`: SciPy's behaviour, arrays as users have them, clear errors."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.optimize

import problm
from problm.api import arguments as inputs
from problm.api import curve_fit as curves


def line(t, x, y):
    return t[0] + t[1] * x - y


def decay(x, a, b, c):
    return a * np.exp(-b * x) + c


@pytest.fixture
def points():
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 4, 500))
    return x, decay(x, 2.5, 1.3, 0.5) + 0.1 * rng.standard_normal(500)


@pytest.mark.parametrize("sigma", ["none", "scalar", "vector", "matrix"])
@pytest.mark.parametrize("absolute", [False, True])
def test_curve_fit_is_scipys(points, sigma, absolute):
    x, y = points
    rng = np.random.default_rng(1)
    s = {
        "none": None,
        "scalar": 0.1,
        "vector": rng.uniform(0.05, 0.2, len(x)),
        "matrix": 0.01 * (np.eye(len(x)) + 0.3 * np.exp(-np.abs(np.subtract.outer(x, x)))),
    }[sigma]
    popt, pcov = problm.curve_fit(decay, x, y, sigma=s, absolute_sigma=absolute)
    expected, covariance = scipy.optimize.curve_fit(decay, x, y, sigma=s, absolute_sigma=absolute)
    np.testing.assert_allclose(popt, expected, rtol=1e-6)
    # MINPACK's covariance is that of its last Jacobian, one step before the answer.
    np.testing.assert_allclose(pcov, covariance, rtol=1e-4, atol=1e-4 * np.abs(covariance).max())


def test_curve_fit_jacobian_bounds_and_full_output(points):
    x, y = points

    def jac(x, a, b, c):
        e = np.exp(-b * x)
        return np.stack([e, -a * x * e, np.ones_like(x)], axis=1)

    popt, _, info, message, ier = problm.curve_fit(decay, x, y, [1, 1, 1], jac=jac, full_output=True)
    assert ier > 0
    assert "Converged" in message
    np.testing.assert_allclose(info["fvec"], decay(x, *popt) - y)
    assert info["nfev"] > 0
    assert info["result"].names == ("a", "b", "c")
    bounded, _ = problm.curve_fit(decay, x, y, bounds=(0, [3.0, 1.0, 1.0]))
    expected, _ = scipy.optimize.curve_fit(decay, x, y, bounds=(0, [3.0, 1.0, 1.0]))
    np.testing.assert_allclose(bounded, expected, rtol=1e-4)


def test_curve_fit_of_several_variables():
    rng = np.random.default_rng(2)
    xy = rng.uniform(-1, 1, (2, 3000))

    def plane(xy, a, b, c):
        return a * xy[0] + b * xy[1] + c

    z = plane(xy, 1.0, -2.0, 0.5) + 0.01 * rng.standard_normal(3000)
    for form in (xy, tuple(xy), [list(xy[0]), list(xy[1])]):
        popt, _ = problm.curve_fit(plane, form, z)
        np.testing.assert_allclose(popt, [1, -2, 0.5], atol=2e-3)


def test_curve_fit_with_an_opaque_abscissa():
    class Grid:
        values = np.linspace(0, 1, 50)

    y = 3.0 * Grid.values + 1.0
    popt, _ = problm.curve_fit(lambda g, a, b: a * g.values + b, Grid(), y)
    np.testing.assert_allclose(popt, [3, 1])


def test_curve_fit_warns_instead_of_raising(points):
    x, y = points
    with pytest.warns(problm.ConvergenceWarning, match="max_iter"):
        popt, _ = problm.curve_fit(decay, x, y, [10, 10, 10], max_iter=1)
    assert popt.shape == (3,)
    with pytest.warns(problm.CovarianceWarning):
        _, pcov = problm.curve_fit(lambda x, a, b: (a + b) * x, x, y)
    assert np.isinf(pcov).all()
    with pytest.warns(problm.CovarianceWarning):
        problm.curve_fit(decay, x[:3], y[:3], [2.5, 1.3, 0.5])


def test_arrays_as_users_have_them(points):
    x, y = points
    reference, _ = problm.curve_fit(decay, x, y)
    frame = pd.DataFrame({"x": x, "y": y})
    for a, b in ((list(x), list(y)), (frame["x"], frame["y"]), (x[::-1], y[::-1])):
        popt, _ = problm.curve_fit(decay, a, b)
        np.testing.assert_allclose(popt, reference, rtol=1e-6)
    popt, _ = problm.curve_fit(decay, x.astype(np.float32), y.astype(np.float32))
    np.testing.assert_allclose(popt, reference, rtol=1e-4)
    fit = problm.least_squares(line, [0, 0], data={"x": frame["x"], "y": frame["y"]})
    np.testing.assert_allclose(fit.x, np.polyfit(x, y, 1)[::-1], rtol=1e-6)
    integers = problm.least_squares(line, [0, 0], data=(np.arange(10), 2 * np.arange(10) + 1))
    np.testing.assert_allclose(integers.x, [1, 2], atol=1e-8)


@pytest.mark.parametrize("jac", ["2-point", "3-point", "cs"])
def test_difference_schemes(points, jac):
    x, y = points

    def fun(t, x, y):
        return decay(x, *t) - y

    fit = problm.least_squares(fun, [1, 1, 1], data=(x, y), jac=jac)
    expected = scipy.optimize.least_squares(fun, [1, 1, 1], args=(x, y), xtol=1e-15, ftol=1e-15, gtol=1e-15)
    np.testing.assert_allclose(fit.x, expected.x, rtol=1e-6)


def test_differences_stay_inside_bounds():
    seen = []

    def fun(t, x):
        seen.append(t.copy())
        return np.sqrt(t[0]) * x - 1

    x = np.linspace(1, 2, 50)
    for jac in ("2-point", "3-point"):
        fit = problm.least_squares(fun, [0.25], data=(x,), jac=jac, bounds=(0.0, 0.25))
        assert fit.x[0] == 0.25
    assert max(t[0] for t in seen) <= 0.25


def test_vector_blocks_and_losses_act_on_their_norm():
    rng = np.random.default_rng(3)
    v = rng.standard_normal((4000, 2)) * 0.1 + [1.0, -2.0]
    v[:400] += 30.0

    def fun(t, v):
        return t - v

    fit = problm.least_squares(fun, [0.0, 0.0], data=v, loss="cauchy", f_scale=0.2)
    np.testing.assert_allclose(fit.x, [1, -2], atol=0.02)
    turned = np.array([[0.6, -0.8], [0.8, 0.6]])
    other = problm.least_squares(fun, [0.0, 0.0], data=v @ turned.T, loss="cauchy", f_scale=0.2)
    # SciPy's losses act on scalars and are not invariant to a rotation of 2-D errors; ours are.
    np.testing.assert_allclose(other.x, turned @ fit.x, atol=1e-5)


def test_user_loss():
    rng = np.random.default_rng(3)
    x = rng.standard_normal(3000)
    x[:100] += 50

    def cauchy(z):
        return np.log1p(z), 1 / (1 + z), -1 / (1 + z) ** 2

    own = problm.least_squares(lambda t, x: t[0] - x, [0.0], data=x, loss=cauchy)
    built_in = problm.least_squares(lambda t, x: t[0] - x, [0.0], data=x, loss="cauchy")
    assert own.x == pytest.approx(built_in.x)


def test_scipys_call_without_data(points):
    x, y = points

    def fun(t, x, y):
        return decay(x, *t) - y

    fit = problm.least_squares(fun, [1, 1, 1], args=(x, y))
    expected = scipy.optimize.least_squares(fun, [1, 1, 1], args=(x, y))
    np.testing.assert_allclose(fit.x, expected.x, rtol=1e-5)
    assert fit.cost == pytest.approx(expected.cost)
    np.testing.assert_allclose(fit.fun, expected.fun, atol=1e-5)
    rosenbrock = problm.least_squares(lambda t: np.array([10 * (t[1] - t[0] ** 2), 1 - t[0]]), [-1.2, 1.0])
    np.testing.assert_allclose(rosenbrock.x, [1, 1], rtol=1e-8)


BAD = [
    (lambda: problm.least_squares(line, [0, np.nan], data=([1.0], [2.0])), ValueError, r"x0\[1\] is nan"),
    (lambda: problm.least_squares(line, [], data=([1.0], [2.0])), ValueError, "x0 is empty"),
    (lambda: problm.least_squares(line, "ab", data=([1.0], [2.0])), ValueError, "x0 must be"),
    (lambda: problm.least_squares(line, [[0, 0]], data=([1.0], [2.0])), ValueError, "one-dimensional"),
    (lambda: problm.least_squares(line, [0, 0], data=([1.0, 2.0], [2.0])), ValueError, "same number of rows"),
    (lambda: problm.least_squares(line, [0, 0], data=()), ValueError, "data is empty"),
    (lambda: problm.least_squares(line, [0, 0], data=(np.empty(0), np.empty(0))), ValueError, "no rows"),
    (lambda: problm.least_squares(line, [0, 0], data=([1.0, np.inf], [2.0, 3.0])), ValueError, "row 1"),
    (lambda: problm.least_squares(line, [0, 0], data=([1.0], [2.0])), ValueError, "cannot determine 2"),
    (lambda: problm.least_squares(line, [0, 0], data=(["a", "b"], ["c", "d"])), ValueError, "numbers"),
    (
        lambda: problm.least_squares(line, [0, 0], data=([1.0] * 9, [2.0] * 9), los="huber"),
        TypeError,
        "did you mean 'loss'",
    ),
    (lambda: problm.curve_fit(lambda x, a: a * x, [1.0], [2.0], absolute_sgma=True), TypeError, "'absolute_sigma'"),
    (lambda: problm.least_squares(line, [0, 0], data=([1.0] * 9, [2.0] * 9), max_itr=3), TypeError, "'max_iter'"),
    (lambda: problm.least_squares(line, [0, 0], data=([1.0] * 9, [2.0] * 9), loss="hubber"), ValueError, "'huber'"),
    (lambda: problm.least_squares(line, [0, 0], data=([1.0] * 9, [2.0] * 9), jac="2point"), ValueError, "2-point"),
    (lambda: problm.least_squares(line, [0, 0], data=([1.0] * 9, [2.0] * 9), method="bfgs"), ValueError, "problm"),
    (lambda: problm.least_squares(line, [0, 9], data=([1.0] * 9, [2.0] * 9), bounds=(0, 1)), ValueError, "outside"),
    (lambda: problm.least_squares(line, [0, 0], data=([1.0] * 9, [2.0] * 9), bounds=(1, 0)), ValueError, "above upper"),
    (lambda: problm.least_squares(line, [0, 0], data=([1.0] * 9, [2.0] * 9), bounds=3), ValueError, "pair"),
    (lambda: problm.least_squares(line, [0, 0], data=([1.0] * 9, [2.0] * 9), fixed=[0, 1]), ValueError, "all param"),
    (lambda: problm.least_squares(line, [0, 0], data=([1.0] * 9, [2.0] * 9), fixed=[5]), ValueError, "from 0 to 1"),
    (lambda: problm.least_squares(line, [0, 0], data=([1.0] * 9, [2.0] * 9), x_scale=[1, -1]), ValueError, "x_scale"),
    (lambda: problm.least_squares(line, [0, 0], data=([1.0] * 9, [2.0] * 9), f_scale=0), ValueError, "f_scale"),
    (lambda: problm.least_squares(line, [0, 0], data=([1.0] * 9, [2.0] * 9), ftol=-1), ValueError, "ftol"),
    (lambda: problm.least_squares(line, [0, 0], data=([1.0] * 9, [2.0] * 9), max_time=0), ValueError, "max_time"),
    (lambda: problm.least_squares(line, [0, 0], data=([1.0] * 9, [2.0] * 9), accuracy=2), ValueError, "accuracy"),
    (lambda: problm.least_squares(line, [0, 0], data=([1.0] * 9, [2.0] * 9), nan_policy="x"), ValueError, "nan_policy"),
    (lambda: problm.least_squares(line, [0, 0], data=([1.0] * 9, [2.0] * 9), callback=3), TypeError, "callback"),
    (lambda: problm.least_squares(3, [0, 0], data=([1.0] * 9, [2.0] * 9)), TypeError, "fun must be"),
    (
        lambda: problm.least_squares(line, [0, 0], data=([1.0] * 9, [2.0] * 9), method="lm", acceptance="paper"),
        ValueError,
        "drop acceptance",
    ),
    (lambda: problm.least_squares(lambda t, x: t, [0.0], data=([1.0] * 9,)), ValueError, "one block per row"),
    (
        lambda: problm.least_squares(line, [0, 0], data=([1.0] * 9, [2.0] * 9), jac=lambda t, x, y: np.ones((9, 3))),
        ValueError,
        "jac returned shape",
    ),
    (lambda: problm.curve_fit(decay, [1, 2, 3, 4], [1, 2, 3]), ValueError, "xdata has shape"),
    (lambda: problm.curve_fit(decay, [1, 2, 3], [1, np.nan, 3]), ValueError, "ydata is not finite at row 1"),
    (lambda: problm.curve_fit(decay, [], []), ValueError, "empty"),
    (lambda: problm.curve_fit(lambda x, *p: x, [1, 2], [1, 2]), ValueError, "p0 is needed"),
    (lambda: problm.curve_fit(decay, [1, 2, 3], [1, 2, 3], sigma=[1, 0, 1]), ValueError, "positive"),
    (lambda: problm.curve_fit(decay, [1, 2, 3], [1, 2, 3], sigma=[1, 1]), ValueError, "sigma has shape"),
    (lambda: problm.curve_fit(decay, [1, 2, 3], [1, 2, 3], sigma=-np.eye(3)), ValueError, "positive definite"),
    (lambda: problm.curve_fit(decay, [1, 2, 3], [1, 2, 3], nan_policy="drop"), ValueError, "nan_policy"),
    (lambda: problm.curve_fit("decay", [1, 2, 3], [1, 2, 3]), TypeError, "callable"),
    (lambda: problm.check_jacobian(line, "2-point", [0, 0]), TypeError, "callable"),
]


@pytest.mark.parametrize(("call", "kind", "text"), BAD, ids=[t for _, _, t in BAD])
def test_bad_input_is_named_before_any_work(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


def test_nan_omit(points):
    x, y = points
    expected, _ = problm.curve_fit(decay, x[5:], y[5:])
    y = y.copy()
    y[:5] = np.nan
    popt, _ = problm.curve_fit(decay, x, y, nan_policy="omit")
    np.testing.assert_allclose(popt, expected, rtol=1e-6)
    with pytest.raises(ValueError, match="every row has a NaN"):
        problm.least_squares(line, [0, 0], data=(x, np.full(len(x), np.nan)), nan_policy="omit")


def test_check_jacobian_names_the_worst(points):
    x, y = points

    def right(t, x, y):
        return np.stack([np.ones_like(x), x], axis=1)

    def wrong(t, x, y):
        j = right(t, x, y)
        j[x == x[17]] *= [1.0, 1.5]
        return j

    good = problm.check_jacobian(line, right, [1.0, 2.0], data=(x, y))
    assert good
    assert "agrees" in str(good)
    bad = problm.check_jacobian(
        lambda t, x, y: line(t, x, y), lambda t, x, y: right(t, x, y) * [1, 0.5], [1, 2], data=(x, y)
    )
    assert not bad
    assert (bad.column, bad.row) == (1, len(x) - 1)


def test_result_shows_itself(points):
    x, y = points
    fit = problm.curve_fit(decay, x, y, full_output=True)[2]["result"]
    text = str(fit)
    assert "a " in text
    assert "±" in text
    assert "correlations" in text
    html = fit._repr_html_()
    assert "<table>" in html
    fit.names = ("<script>", "b", "c")
    assert "<script>" not in fit._repr_html_()


def test_progress_is_silent_in_a_pipe(points, capsys):
    x, y = points
    problm.least_squares(line, [0, 0], data=(x, y), progress=True)
    assert capsys.readouterr().err == ""
    seen = []
    problm.least_squares(line, [0, 0], data=(x, y), progress=seen.append)
    assert seen


def test_import_is_light():
    code = (
        "import sys, problm\n"
        "heavy = {'numba', 'matplotlib', 'cv2', 'scipy', 'pandas', 'jax'} & set(sys.modules)\n"
        "assert not heavy, heavy\nassert 'curve_fit' in dir(problm)\n"
        "assert sum(name.startswith('problm') for name in sys.modules) < 10\n"
        "import problm.api.curve_fit; assert callable(problm.curve_fit)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_functions_do_without_numba():
    """It takes longer to load than most such solves."""
    code = (
        "import sys, numpy as np, problm\n"
        "x = np.linspace(0, 4, 100_000); y = np.exp(-x) + 0.1 * np.sin(1e4 * x)\n"
        "fit = problm.curve_fit(lambda x, a, b: a * np.exp(-b * x), x, y, [2.0, 0.5], full_output=True)[2]['result']\n"
        "assert fit.success and fit.history.batch_size[0] < 10_000\n"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = problm.nonsense


def test_a_function_in_single_precision():
    """Differences take steps that its rounding lets through."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 5, 3000)
    y = 2 * np.exp(-0.7 * x) + 0.3 + 0.1 * rng.standard_normal(len(x))

    def double(t, x, y):
        return t[0] * np.exp(-t[1] * x) + t[2] - y

    def single(t, x, y):
        return double(t, x, y).astype(np.float32)

    fit = problm.least_squares(single, [1, 1, 0], data=(x, y))
    assert fit.success
    np.testing.assert_allclose(fit.x, problm.least_squares(double, [1, 1, 0], data=(x, y)).x, rtol=1e-4)


class TestHabitsOfSciPy:
    """What code that was written for SciPy passes and reads."""

    x = np.linspace(0, 4, 60)
    y = 2.5 * np.exp(-1.3 * x) + 0.5 + 0.2 * np.random.default_rng(3).standard_normal(60)

    @staticmethod
    def decay(x, a, b, c=1.0):
        return a * np.exp(-b * x) + c

    def same(self, **options):
        ours = problm.curve_fit(self.decay, self.x, self.y, **options)
        theirs = scipy.optimize.curve_fit(self.decay, self.x, self.y, **options)
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)  # three parameters: a default is no constant
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-3)

    @pytest.mark.parametrize("method", ["lm", "trf", "dogbox"])
    def test_methods(self, method):
        self.same(method=method)

    def test_one_sigma_for_all(self):
        self.same(sigma=np.array([0.2]), absolute_sigma=True)

    @pytest.mark.parametrize("library", ["pandas", "polars"])
    @pytest.mark.parametrize("count", [60, 200_000])
    def test_a_data_frame_reaches_the_function_as_one(self, library, count):
        frames = pytest.importorskip(library)
        rng = np.random.default_rng(0)
        u, v = rng.standard_normal((2, count))
        popt, _ = problm.curve_fit(
            lambda f, a, b: a * f["u"] + np.sin(b * f["v"]), frames.DataFrame({"u": u, "v": v}), 2 * u + np.sin(0.5 * v)
        )
        np.testing.assert_allclose(popt, [2, 0.5], rtol=1e-6)

    def test_results_are_also_mappings(self):
        model = problm.formula("a*exp(-b*x) + c")
        for fit in (
            curves.fit(self.decay, self.x, self.y),
            curves.fit(model, self.x, self.y),
        ):
            found = dict(fit)
            theirs = scipy.optimize.least_squares(lambda t: self.decay(self.x, *t) - self.y, [1, 1, 1])
            assert set(found) == set(theirs)
            np.testing.assert_allclose(found["jac"], theirs.jac, atol=1e-3)
            np.testing.assert_allclose(fit["fun"], theirs.fun, atol=1e-4)
            with pytest.raises(KeyError):
                fit["nonsense"]

    def test_limits_and_words(self, capsys):
        fit = problm.least_squares(lambda t: t**2 - 2, 1.0, max_nfev=2, ftol=None, xtol=None, gtol=1e-15, verbose=1)
        assert fit.nit == 1
        assert "max_iter" in capsys.readouterr().out


@pytest.mark.parametrize(("kind", "size"), [("float16", 300.0), ("float32", 1e25), ("float64", 1e200)])
def test_values_whose_squares_overflow_are_checked_without_a_warning(kind, size):
    inputs.finite([("y", np.full(20, size, kind))])
    with pytest.raises(ValueError, match="y is not finite at row 3"):
        inputs.finite([("y", np.where(np.arange(20) == 3, np.nan, size).astype(kind))])


@pytest.mark.parametrize("model", [lambda x, a, b: a * np.exp(-b * x), problm.formula("a*exp(-b*x)")])
def test_residuals_whose_squares_vanish_are_no_perfect_fit(model):
    x = np.linspace(0, 3, 40)
    with pytest.raises(ValueError, match="other units"):
        problm.curve_fit(model, x, 1e-200 * np.exp(-x), [2e-200, 2.0])
    exact, _ = problm.curve_fit(model, x, np.exp(-x), [1.0, 1.0])  # a perfect start is one
    np.testing.assert_array_equal(exact, [1.0, 1.0])


def test_few_rows_of_a_function_are_all_used_unless_a_first_batch_is_asked_for():
    rng = np.random.default_rng(0)

    def sizes(n, **options):
        x = rng.uniform(0, 4, n)
        y = 2.0 * np.exp(-x) + 0.1 * rng.standard_normal(n)
        fit = problm.least_squares(lambda t, x, y: t[0] * np.exp(-t[1] * x) - y, [1, 0.5], data=(x, y), **options)
        assert fit.success
        return set(fit.history.batch_size)

    assert sizes(48_000) == {48_000}
    assert min(sizes(48_001)) < 1000
    assert min(sizes(10_000, initial_batch=200)) == 200


def test_a_fit_without_a_start_that_explains_nothing_is_noted():
    x = np.linspace(0, 100, 500)
    y = np.exp(-0.5 * ((x - 60) / 2) ** 2) + 0.01 * np.random.default_rng(0).standard_normal(500)

    def peak(x, a, m, s):
        return a * np.exp(-0.5 * ((x - m) / s) ** 2)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        missed = problm.curve_fit(peak, x, y, full_output=True)[3]
        found = problm.curve_fit(peak, x, y, [1, 55, 3], full_output=True)[3]
        line = problm.curve_fit(lambda x, a, b: a * x + b, x, 3 * x + y, full_output=True)[3]
    assert "give p0" in missed
    assert "give p0" not in found + line


def test_a_derivative_that_is_not_finite_is_named_by_its_row():
    x = np.linspace(0.0, 4.0, 30)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")  # the derivative by b: a log of 1.66 - x
        found, _ = problm.curve_fit(problm.formula("a/(c-x)**b"), x, np.ones(30), [0.07, 1.66, -4.0])
    assert any("not finite at row 13 of the data" in str(w.message) for w in told)
    np.testing.assert_array_equal(found, [0.07, 1.66, -4.0])
