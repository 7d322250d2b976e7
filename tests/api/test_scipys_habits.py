"""What SciPy's users take for granted: results, errors of parameters, kinds of arrays."""

import copy
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import aslinearoperator

import problm
from problm.api.curve_fit import fit as fit_curve

X = np.linspace(0, 4, 300)
Y = 2.0 * np.exp(-X) + 0.1 * np.random.default_rng(0).standard_normal(X.size)


def decay(x, a, b):
    return a * np.exp(-b * x)


def residuals(t, x, y):
    return decay(x, *t) - y


@pytest.mark.parametrize("model", [decay, problm.formula("a*exp(-b*x)")])
@pytest.mark.parametrize("sigma", [0.3, np.full(300, 0.3), 0.09 * np.eye(300)], ids=["number", "array", "matrix"])
@pytest.mark.parametrize("absolute", [False, True])
def test_every_error_of_a_fit_is_that_of_pcov(model, sigma, absolute):
    _, pcov, info, _, _ = problm.curve_fit(model, X, Y, [1.0, 1.0], sigma, absolute_sigma=absolute, full_output=True)
    result = info["result"]
    np.testing.assert_array_equal(result.covariance, pcov)
    np.testing.assert_array_equal(result.standard_errors, np.sqrt(pcov.diagonal()))
    _, theirs = scipy.optimize.curve_fit(decay, X, Y, [1.0, 1.0], sigma=np.full(300, 0.3), absolute_sigma=absolute)
    np.testing.assert_allclose(pcov, theirs, rtol=1e-4)
    shown = f"{np.sqrt(pcov[0, 0]):.2g}"
    for text in (str(result), result._repr_html_()):
        assert f"± {shown}" in text
    again = type(result).load
    assert result.to_dict()["standard_errors"] == result.standard_errors.tolist()
    assert callable(again)


def test_a_saved_result_keeps_its_errors(tmp_path):
    result = fit_curve(decay, X, Y, [1.0, 1.0], 0.3, absolute_sigma=True)
    result.save(tmp_path / "fit.json")
    loaded = problm.Result.load(tmp_path / "fit.json")
    np.testing.assert_allclose(loaded.standard_errors, result.standard_errors)
    assert loaded.absolute


def test_a_result_is_a_mapping_of_scipys_fields():
    fit = problm.least_squares(residuals, [1.0, 1.0], args=(X, Y))
    theirs = scipy.optimize.least_squares(residuals, [1.0, 1.0], args=(X, Y))
    assert set(theirs.keys()) <= set(fit.keys())
    assert "x" in fit
    assert "nothing" not in fit
    assert fit.get("nothing", 3) == 3
    for name, value in fit.items():
        assert np.shape(value) == np.shape(theirs[name]), name
    np.testing.assert_allclose(dict(fit)["jac"], theirs.jac, rtol=1e-4, atol=1e-6)


def test_a_result_is_scipys():
    fit = problm.least_squares(residuals, [1.0, 1.0], args=(X, Y))
    for one in (fit, copy.copy(fit), copy.deepcopy(fit), pickle.loads(pickle.dumps(fit)), replace(fit, cost=1.0)):  # noqa: S301
        assert isinstance(one, scipy.optimize.OptimizeResult)
        assert isinstance(one, problm.Result)
        assert isinstance(one, dict)
        assert type(one) is problm.Result
    assert list(fit) == list(fit.keys()) == list(scipy.optimize.least_squares(residuals, [1.0, 1.0], args=(X, Y)))
    assert len(fit) == len(dict(fit)) == len({**fit}) == len(fit.items())
    assert {"x", "fun", "success"} <= set(dir(fit))
    assert fit == fit
    fit.seen = 3
    fit["note"] = "mine"
    fit.update(more=4)
    assert (fit["seen"], fit.note, fit.pop("more"), "more" in fit, list(fit)[-1]) == (3, "mine", 4, False, "note")
    assert copy.deepcopy(fit).note == pickle.loads(pickle.dumps(fit)).note == "mine"  # noqa: S301
    del fit["seen"]
    with pytest.raises(KeyError):
        fit["seen"]
    with pytest.raises(TypeError, match="cannot be deleted"):
        del fit["x"]


def test_a_fit_does_not_import_scipy_optimize():
    """It takes longer than most fits; and results made before the import are SciPy's after it."""
    code = (
        "import sys, problm; fit = problm.least_squares(lambda t: t - 1.0, [0.0, 2.0]);"
        "assert 'scipy.optimize' not in sys.modules; from scipy.optimize import OptimizeResult;"
        "assert isinstance(fit, OptimizeResult)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_results_pickle_and_are_copied():
    fit = problm.least_squares(residuals, [1.0, 1.0], data=(X, Y))
    again = pickle.loads(pickle.dumps(fit))  # noqa: S301  our own
    np.testing.assert_array_equal(again.fun, fit.fun)
    lost = pickle.loads(pickle.dumps(problm.least_squares(lambda t: residuals(t, X, Y), [1.0, 1.0])))  # noqa: S301
    np.testing.assert_allclose(lost.x, fit.x, rtol=1e-6)
    with pytest.raises(RuntimeError, match="pickled without its function"):
        lost.fun  # noqa: B018
    copied = copy.deepcopy(fit)
    copied.x[0] = 7.0
    assert fit.x[0] != 7.0
    np.testing.assert_array_equal(copied.grad, fit.grad)


class TestSparse:
    n = 3000

    def fun(self, t):
        f = (3 - t) * t + 1
        f[1:] -= t[:-1]
        f[:-1] -= 2 * t[1:]
        return f

    def jac(self, t):
        return diags_array([3 - 2 * t, -np.ones(len(t) - 1), -2 * np.ones(len(t) - 1)], offsets=[0, -1, 1])

    def test_jacobian_and_sparsity(self):
        start = -np.ones(400)
        exact = problm.least_squares(self.fun, start, lambda t: self.jac(t).toarray())
        pattern = self.jac(start)
        calls = []

        def counted(t):
            calls.append(1)
            return self.fun(t)

        for fit in (
            problm.least_squares(self.fun, start, self.jac),
            problm.least_squares(self.fun, start, lambda t: aslinearoperator(csr_array(self.jac(t)))),
            problm.least_squares(counted, start, jac_sparsity=pattern),
            problm.least_squares(self.fun, start, "3-point", jac_sparsity=pattern.toarray(), bounds=(-np.inf, 5.0)),
        ):
            assert fit.success
            np.testing.assert_allclose(fit.x, exact.x, rtol=1e-6)
        assert len(calls) < 100  # three groups of parameters, not 400 parameters

    def test_a_jacobian_stays_sparse(self):
        fit = problm.least_squares(self.fun, -np.ones(400), self.jac)
        assert fit.jac.shape == (400, 400)
        assert fit.jac.nnz <= 3 * 400


@pytest.mark.parametrize("n", [10_000, 50_000])
def test_options_of_scipy_have_an_effect(n):
    x = np.linspace(0, 4, n)
    y = decay(x, 2.0, 1.0)
    fun = lambda t: decay(x, *t) - y  # noqa: E731
    rough = problm.least_squares(fun, [1.0, 0.5], diff_step=0.1, max_nfev=3)
    fine = problm.least_squares(fun, [1.0, 0.5], max_nfev=3)
    assert rough.nfev == fine.nfev == 3
    assert not np.allclose(rough.x, fine.x, rtol=1e-6)
    seen = []
    problm.least_squares(fun, [1.0, 0.5], callback=lambda x: seen.append(x))
    assert all(x.shape == (2,) for x in seen)
    states = []
    problm.least_squares(residuals, [1.0, 0.5], data=(x, y), callback=lambda s: states.append(s.iteration))
    assert states[0] == 1
    np.testing.assert_array_equal(
        problm.least_squares(fun, [1.0, 0.5], workers=2).x, problm.least_squares(fun, [1.0, 0.5]).x
    )


class Quantity:
    """What astropy's would look like."""

    unit = "m"
    __module__ = "astropy.units"

    def __array__(self, dtype=None, copy=None):
        return X


@pytest.mark.parametrize(
    ("x", "y", "match"),
    [
        (Quantity(), Y, "xdata has units.*value"),
        (X, np.ma.masked_greater(Y, 1.0), "ydata has masked values"),
        (X, Y + 1j, "complex"),
        (np.arange(300).astype("datetime64[s]"), Y, "timedelta64"),
        (np.ones((2, 3)), Y, "ydata has 300 points"),
    ],
)
def test_what_would_be_dropped_is_refused(x, y, match):
    with pytest.raises(ValueError, match=match):
        problm.curve_fit(decay, x, y)


MASKED = np.ma.masked_greater(Y, 1.0)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: problm.curve_fit(decay, X, Y, Quantity()), "p0 has units"),
        (lambda: problm.curve_fit(decay, X, Y, bounds=(Quantity(), 5.0)), "bounds has units"),
        (lambda: problm.curve_fit(decay, X, [Quantity()] * 300), "ydata has units"),
        (lambda: problm.curve_fit(decay, X, Y, sigma=Quantity()), "sigma has units"),
        (lambda: problm.least_squares(lambda t: residuals(t, X, MASKED), [1.0, 1.0]), "fun returns has masked values"),
        (lambda: problm.least_squares(lambda t: Quantity(), [1.0, 1.0]), "fun returns has units"),
        (lambda: problm.fit("a*exp(-b*x)", X, MASKED), "y has masked values"),
        (lambda: problm.fit("a*exp(-b*x)", Quantity(), Y), "x has units"),
    ],
)
def test_units_and_masks_are_refused_everywhere(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_series_of_dask():
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    table = frames.from_pandas(pandas.DataFrame({"x": X, "y": Y}), npartitions=3)
    expected = problm.curve_fit(decay, X, Y, [1.0, 1.0])[0]
    for x, y in ((table["x"], table["y"]), (X, table["y"])):
        np.testing.assert_allclose(problm.curve_fit(decay, x, y, [1.0, 1.0])[0], expected, rtol=1e-5)


def test_a_mask_without_masked_values_is_none():
    popt, _ = problm.curve_fit(decay, X, np.ma.masked_greater(Y, 1e9))
    np.testing.assert_allclose(popt, problm.curve_fit(decay, X, Y)[0])


def test_shapes_of_xdata():
    two = np.stack([X, X**2])
    f = lambda x, a, b: a * x[0] + b * x[1]  # noqa: E731
    expected = scipy.optimize.curve_fit(f, two, Y)[0]
    for x, g in (
        (two, f),
        (two.T.copy(), lambda x, a, b: f(x.T, a, b)),
        ({"u": X, "v": X**2}, lambda x, a, b: a * x["u"] + b * x["v"]),
        ([X.tolist(), (X**2).tolist()], f),
        (two[None], lambda x, a, b: f(x[0], a, b)),
    ):
        np.testing.assert_allclose(problm.curve_fit(g, x, Y)[0], expected, rtol=1e-5)


def test_numbers_with_uncertainties():
    unumpy = pytest.importorskip("uncertainties.unumpy")
    sigma = 0.1 + 0.05 * X
    popt, pcov = problm.curve_fit(decay, X, unumpy.uarray(Y, sigma))
    theirs, their_cov = scipy.optimize.curve_fit(decay, X, Y, sigma=sigma, absolute_sigma=True)
    np.testing.assert_allclose(popt, theirs, rtol=1e-5)
    np.testing.assert_allclose(pcov, their_cov, rtol=1e-4)
    fit = problm.fit("a*exp(-b*x)", X, unumpy.uarray(Y, sigma))
    np.testing.assert_allclose([p.error for p in fit.params.values()], np.sqrt(their_cov.diagonal()), rtol=1e-3)


def test_few_rows_are_used_together_and_linear_residuals_at_once():
    """Batches of a NumPy function pay from some ten thousand rows on, and never where one step is exact."""
    rng = np.random.default_rng(3)
    x = rng.uniform(0.0, 4.0, 60_000)
    y = 2.0 * np.exp(-x) + 0.1 * rng.standard_normal(x.size)
    some = problm.least_squares(residuals, [1.0, 0.5], data=(x[:20_000], y[:20_000]))
    assert set(some.history.batch_size) == {20_000}
    more = problm.least_squares(residuals, [1.0, 0.5], data=(x, y))
    assert more.history.batch_size[0] < 1000
    line = problm.least_squares(lambda t, x, y: t[0] + t[1] * x - y, [0.0, 0.0], data=(x, y))
    assert sorted(set(line.history.batch_size)) == [200, 60_000]
    np.testing.assert_allclose(line.x, np.polynomial.Polynomial.fit(x, y, 1).convert().coef, rtol=1e-6)


def test_values_that_would_be_broadcast_are_refused():
    """(n, 1) minus (n,) is (n, n): every value would be compared with every point."""
    line = lambda x, a, b: a * x + b  # noqa: E731
    for sigma in (None, np.ones(300)):
        with pytest.raises(ValueError, match=r"f returned shape \(300, 1\) for 300 points, expected \(300,\)"):
            problm.curve_fit(line, X[:, None], Y, sigma=sigma)
        with pytest.raises(ValueError, match=r"f returned shape \(300, 1\)"):
            problm.curve_fit(lambda x, a, b: line(x, a, b)[:, None], X, Y, sigma=sigma)
    popt, _ = problm.curve_fit(line, X, Y[:, None])
    np.testing.assert_allclose(popt, np.polyfit(X, Y, 1), rtol=1e-6)


@pytest.mark.parametrize(("returned", "match"), [([], "empty"), ([True, False], "dtype bool")])
def test_residuals_must_be_numbers(returned, match):
    with pytest.raises(ValueError, match=match):
        problm.least_squares(lambda t: np.array(returned), [1.0])


def test_text_of_numbers_is_read_as_by_scipy():
    """As csv.reader returns it."""
    x, y = X.astype(str), Y.astype(str).tolist()
    np.testing.assert_allclose(problm.curve_fit(decay, x, y)[0], scipy.optimize.curve_fit(decay, x, y)[0], rtol=1e-5)
    with pytest.raises(ValueError, match="ydata holds values that are not numbers"):
        problm.curve_fit(decay, x, ["2,5"] * 300)


def test_a_callback_sees_the_residuals():
    seen = []
    keep = lambda intermediate_result: seen.append(intermediate_result)  # noqa: E731
    fit = problm.least_squares(residuals, [1.0, 1.0], args=(X, Y), callback=keep)
    for state in seen:
        assert set(state) == {"x", "fun", "cost", "nit", "nfev"}
        np.testing.assert_allclose(0.5 * state.fun @ state.fun, state.cost)
    np.testing.assert_array_equal(seen[-1].fun, residuals(fit.x, X, Y))


def test_verbose_prints_a_row_per_iteration(capsys):
    fit = problm.least_squares(residuals, [1.0, 1.0], args=(X, Y), verbose=2)
    head, *rows, message, _ = capsys.readouterr().out.splitlines()
    assert head.split() == ["iteration", "seconds", "batch", "cost", "damping", "decision"]
    assert [int(row.split()[0]) for row in rows] == list(range(1, fit.nit + 1))
    assert float(rows[-1].split()[3]) == pytest.approx(fit.cost, rel=1e-6)
    assert message == fit.message


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ((None, [3.0, 1.0]), "None; use -inf"),
        (([0.0, None], [3.0, 1.0]), "None; use -inf"),
        (([0.0], [3.0]), "2 entries, one per parameter"),
        ((0.0, [3.0, 1.0, 2.0]), "2 entries, one per parameter"),
        (("low", 3.0), "numbers, got 'low'"),
        ((0.0, 1.0, 2.0), "a pair"),
        (3.0, "a pair"),
        (([0.0, 5.0], [3.0, 1.0]), "is above upper"),
    ],
)
def test_bounds_that_are_no_bounds_are_named(bounds, told):
    for start in (None, [1.0, 1.0]):
        with pytest.raises(ValueError, match=told):
            problm.curve_fit(decay, X, Y, start, bounds=bounds)
    with pytest.raises(ValueError, match=told):
        problm.least_squares(residuals, [1.0, 1.0], bounds=bounds, args=(X, Y))


@pytest.mark.parametrize("method", ["trf", "dogbox"])
def test_fewer_points_than_parameters(method):
    """SciPy's trf and dogbox fit them, with an infinite covariance; MINPACK refuses them."""
    for fit in (problm.curve_fit, scipy.optimize.curve_fit):
        with pytest.warns(scipy.optimize.OptimizeWarning, match="[Cc]ovariance"):
            popt, pcov = fit(lambda x, a, b, c: a * x * x + b * x + c, [1.0, 2.0], [2.0, 4.0], method=method)
        np.testing.assert_allclose(popt[0] * np.array([1, 4]) + popt[1] * np.array([1, 2]) + popt[2], [2, 4], atol=1e-6)
        assert np.isinf(pcov).all()
        with pytest.raises(TypeError, match="must not exceed"):
            fit(lambda x, a, b, c: a * x * x + b * x + c, [1.0, 2.0], [2.0, 4.0])


def test_infodict_has_minpacks_factor():
    popt, _, info, _, _ = problm.curve_fit(decay, X, Y, full_output=True)
    _, _, theirs, _, _ = scipy.optimize.curve_fit(decay, X, Y, full_output=True)
    assert {k: np.shape(info[k]) for k in ("fjac", "ipvt", "qtf", "fvec")} == {
        k: np.shape(theirs[k]) for k in ("fjac", "ipvt", "qtf", "fvec")
    }
    triangle, order = np.triu(info["fjac"].T[:2]), info["ipvt"] - 1
    jacobian = np.stack([np.exp(-popt[1] * X), -popt[0] * X * np.exp(-popt[1] * X)], axis=1)[:, order]
    np.testing.assert_allclose(triangle.T @ triangle, jacobian.T @ jacobian, rtol=1e-6)
    np.testing.assert_allclose(triangle.T @ info["qtf"], jacobian.T @ info["fvec"], atol=1e-6)
