"""The bridge to lmfit: the same answers as lmfit's own, in lmfit's own results."""

from __future__ import annotations

import numpy as np
import pytest

lmfit = pytest.importorskip("lmfit")

from lmfit.models import ExponentialModel, GaussianModel, LinearModel  # noqa: E402
from scipy.sparse import csr_array  # noqa: E402
from scipy.sparse.linalg import aslinearoperator  # noqa: E402

import problm.lmfit  # noqa: E402


@pytest.fixture(scope="module")
def peaks():
    rng = np.random.default_rng(5)
    x = np.linspace(0, 10, 3000)
    model = GaussianModel(prefix="g_") + LinearModel(prefix="l_")
    params = model.make_params(g_amplitude=8, g_center=4.2, g_sigma=0.7, l_slope=0.3, l_intercept=1)
    y = model.eval(params, x=x) + 0.1 * rng.standard_normal(x.size)
    start = model.make_params(g_amplitude=5, g_center=4, g_sigma=1, l_slope=0, l_intercept=0)
    return model, start, x, y


def same_fit(ours, theirs):
    assert ours.success
    for name, parameter in theirs.params.items():
        assert ours.params[name].value == pytest.approx(parameter.value, rel=1e-4, abs=1e-6)
        if parameter.stderr:
            assert ours.params[name].stderr == pytest.approx(parameter.stderr, rel=1e-3)
    assert ours.chisqr == pytest.approx(theirs.chisqr, rel=1e-9)
    for field in ("redchi", "aic", "bic"):
        assert getattr(ours, field) == pytest.approx(getattr(theirs, field), rel=1e-6)
    assert (ours.ndata, ours.nvarys, ours.nfree) == (theirs.ndata, theirs.nvarys, theirs.nfree)


def test_composite_model(peaks):
    model, start, x, y = peaks
    ours, theirs = problm.lmfit.fit(model, y, start, x=x), model.fit(y, start, x=x)
    same_fit(ours, theirs)
    assert isinstance(ours, lmfit.model.ModelResult)
    assert ours.method == "problm"
    assert ours.rsquared == pytest.approx(theirs.rsquared)
    np.testing.assert_allclose(ours.best_fit, theirs.best_fit, rtol=1e-4)
    for name in ours.params:
        for other, value in (theirs.params[name].correl or {}).items():
            assert ours.params[name].correl[other] == pytest.approx(value, abs=2e-3)
    report = ours.fit_report()
    assert "g_fwhm" in report  # a tied parameter, with an error of its own
    assert "fitting method   = problm" in report
    assert ours.problm.certified


def test_start_is_left_alone(peaks):
    model, start, x, y = peaks
    before = start.valuesdict()
    problm.lmfit.fit(model, y, start, x=x)
    assert start.valuesdict() == before


def test_weights_bounds_fixed_and_tied(peaks):
    model, start, x, y = peaks
    weights = 1 / (0.05 + 0.05 * x)
    params = start.copy()
    params["g_center"].set(vary=False, value=4.2)
    params["l_slope"].set(max=0.25)
    params["l_intercept"].set(expr="3 * l_slope")
    params["l_slope"].set(value=0.1)
    ours, theirs = (
        problm.lmfit.fit(model, y, params, weights=weights, x=x),
        model.fit(y, params, weights=weights, x=x),
    )
    assert ours.params["g_center"].value == 4.2
    assert ours.params["l_slope"].value <= 0.25
    assert ours.params["l_intercept"].value == pytest.approx(3 * ours.params["l_slope"].value)
    assert ours.chisqr == pytest.approx(theirs.chisqr, rel=1e-6)


def test_keywords_as_starts(peaks):
    _, _, x, _ = peaks
    y = ExponentialModel().eval(x=x, amplitude=3, decay=2)
    out = problm.lmfit.fit(ExponentialModel(), y, x=x, amplitude=1, decay=1)
    assert out.best_values["decay"] == pytest.approx(2, rel=1e-6)


def test_minimize_like_lmfit(peaks):
    _, _, x, y = peaks

    def residual(p, x, y, scale=1.0):
        v = p.valuesdict()
        return scale * (v["l"] * x + v["c"] + v["a"] * np.exp(-((x - v["m"]) ** 2)) - y)

    params = lmfit.create_params(a=3, m={"value": 4, "min": 3, "max": 5}, l=0, c=0)
    ours = problm.lmfit.minimize(residual, params, data=(x, y), kws={"scale": 2.0})
    theirs = lmfit.minimize(residual, params, args=(x, y), kws={"scale": 2.0})
    same_fit(ours, theirs)
    assert "m:" in lmfit.fit_report(ours)
    whole = problm.lmfit.minimize(lambda p: residual(p, x, y, 2.0), params)
    same_fit(whole, theirs)


def test_batches_are_used():
    rng = np.random.default_rng(1)
    x = np.linspace(0, 3, 300_000)
    y = 2 * np.exp(-x / 0.9) + 0.2 * rng.standard_normal(x.size)
    out = problm.lmfit.fit(ExponentialModel(), y, x=x, amplitude=1, decay=2, options={"accuracy": 1e-2})
    assert out.problm.batch_size < x.size / 4
    assert out.best_values["decay"] == pytest.approx(0.9, rel=0.05)


def test_confidence_intervals_are_lmfits(peaks):
    model, start, x, y = peaks
    out = problm.lmfit.fit(model, y, start, x=x)
    intervals = out.conf_interval(p_names=["g_center"], sigmas=[1])
    low, best, high = (v for _, v in intervals["g_center"])
    assert low < best < high


def test_errors(peaks):
    model, start, x, y = peaks
    with pytest.raises(TypeError, match=r"must be lmfit\.Parameters, got dict"):
        problm.lmfit.minimize(lambda p: 0, {"a": 1})
    with pytest.raises(ValueError, match="Missing independent variable 'x'"):
        problm.lmfit.fit(model, y, start)
    with pytest.warns(UserWarning, match="keyword argument z does not match"):
        problm.lmfit.fit(model, y, start, x=x, z=3)


def test_what_lmfit_does_before_a_fit():
    """Lists, pandas' indices and missing values are lmfit's business, and complex data two residuals per point."""
    pandas = pytest.importorskip("pandas")
    x = np.linspace(0, 5, 200)
    model = ExponentialModel()
    y = model.eval(x=x, amplitude=3, decay=2) + 0.01 * np.sin(40 * x)
    expected = model.fit(y, x=x, amplitude=1, decay=1)
    shuffled = pandas.Series(x).sample(frac=1.0, random_state=0)
    holes = np.where(np.arange(200) % 50 == 7, np.nan, y)
    for out in (
        problm.lmfit.fit(model, y.tolist(), x=x.tolist(), amplitude=1, decay=1),
        problm.lmfit.fit(model, pandas.Series(y), x=shuffled, amplitude=1, decay=1),
    ):
        assert out.best_values["decay"] == pytest.approx(expected.best_values["decay"], rel=1e-5)
        assert out.params["decay"].stderr == pytest.approx(expected.params["decay"].stderr, rel=1e-3)
        np.testing.assert_allclose(out.init_fit, model.eval(x=x, amplitude=1, decay=1))
    assert problm.lmfit.fit(model, holes, x=x, amplitude=1, decay=1, nan_policy="omit").ndata == 196
    with pytest.raises(ValueError, match="NaN values detected"):
        problm.lmfit.fit(ExponentialModel(), holes, x=x, amplitude=1, decay=1, nan_policy="raise")
    turning = lmfit.Model(lambda x, a, k: a * np.exp(1j * k * x))
    out = problm.lmfit.fit(turning, turning.eval(x=x, a=2.0, k=1.1), x=x, a=1.5, k=1.0)
    assert out.best_values["k"] == pytest.approx(1.1)
    assert out.ndata == 400
    unscaled = problm.lmfit.fit(model, y, x=x, amplitude=1, decay=1, scale_covar=False)
    theirs = model.fit(y, x=x, amplitude=1, decay=1, scale_covar=False)
    assert unscaled.params["decay"].stderr == pytest.approx(theirs.params["decay"].stderr, rel=1e-3)


def test_a_fit_that_ends_on_a_bound_is_tried_in_lmfits_internal_variables():
    """Two peaks that overlap, within limits: steps that are cut at the bounds end with one of them at its limit."""
    x = np.linspace(-10, 10, 1000)
    model = GaussianModel(prefix="a_") + GaussianModel(prefix="b_")
    truth = {"a_amplitude": 7.1, "a_center": 1.1, "a_sigma": 2.4, "b_amplitude": 3.15, "b_center": 2.45, "b_sigma": 0.8}
    y = model.eval(x=x, **truth) + 0.0001 * np.random.default_rng(0).standard_normal(x.size)
    start = model.make_params(a_amplitude=3, a_center=1, a_sigma=2, b_amplitude=1, b_center=2.4, b_sigma=1)
    start["a_center"].set(min=0.2, max=1.8)
    start["b_center"].set(min=2, max=3.5)
    for name in ("a_amplitude", "a_sigma", "b_amplitude", "b_sigma"):
        start[name].min = 0
    out = problm.lmfit.fit(model, y, start, x=x)
    for name, value in truth.items():
        assert out.best_values[name] == pytest.approx(value, rel=0.01)
    assert out.errorbars


def test_a_model_that_looks_beyond_its_row():
    x = np.linspace(0, 5, 50_000)
    model = lmfit.Model(lambda x, a, k: a * np.cumsum(np.exp(-k * x)) / 1000)
    y = model.eval(x=x, a=2.0, k=0.7) + 0.01 * np.sin(90 * x)
    out = problm.lmfit.fit(model, y, x=x, a=1.0, k=1.0)
    assert out.problm.row_wise is False
    assert out.best_values["k"] == pytest.approx(model.fit(y, x=x, a=1.0, k=1.0).best_values["k"], rel=1e-5)


def test_lmfit_knows_the_method(peaks, tmp_path):
    model, start, x, y = peaks
    ours = model.fit(y, start, x=x, method="problm", fit_kws={"max_iter": 200})
    same_fit(ours, model.fit(y, start, x=x))
    assert type(ours) is lmfit.model.ModelResult
    assert ours.method == "problm"
    assert ours.problm.certified
    low, best, high = (v for _, v in ours.conf_interval(p_names=["g_center"], sigmas=[1])["g_center"])
    assert low < best < high  # by lmfit's own method, which does not know our options
    ours.fit()
    assert ours.method == "problm"
    lmfit.model.save_modelresult(ours, tmp_path / "fit.sav")
    assert lmfit.model.load_modelresult(tmp_path / "fit.sav").best_values == pytest.approx(ours.best_values)
    line = lmfit.minimize(
        lambda p, x, y: p["a"] * x + p["b"] - y, lmfit.create_params(a=1, b=0), args=(x, 3 * x), method="problm"
    )
    assert line.params["a"].value == pytest.approx(3)
    assert lmfit.minimize(lambda p: p["a"] - x, lmfit.create_params(a=1)).method == "leastsq"


def test_residuals_that_are_no_numbers_follow_lmfits_policy():
    x = np.linspace(0.0, 5.0, 200)
    y = np.where(np.arange(200) % 50 == 7, np.nan, 2.0 * x)
    params = lmfit.create_params(a=1)
    fcn = lambda p, x, y: p["a"] * x - y  # noqa: E731
    with pytest.raises(ValueError, match="NaN values detected"):
        lmfit.minimize(fcn, params, args=(x, y), method="problm")
    out = lmfit.minimize(fcn, params, args=(x, y), method="problm", nan_policy="omit")
    assert out.ndata == 196
    assert out.params["a"].value == pytest.approx(2.0)


def test_a_minimizer_that_was_aborted_says_so(peaks):
    model, start, x, y = peaks
    out = model.fit(y, start, x=x, method="problm", iter_cb=lambda params, count, *_, **__: count == 2)
    assert out.aborted
    assert out._abort
    assert not out.success


def test_without_varying_parameters_the_statistics_are_those_of_the_start(peaks):
    model, start, x, y = peaks
    fixed = start.copy()
    for parameter in fixed.values():
        parameter.vary = False
    out = model.fit(y, fixed, x=x, method="problm")
    assert out.chisqr == pytest.approx(np.sum((y - model.eval(fixed, x=x)) ** 2))
    assert out.nfev == 1
    assert not out.errorbars
    assert out.success


def test_evaluations_are_counted_limited_and_reported_as_by_lmfit():
    x = np.linspace(0.0, 5.0, 200)
    model = ExponentialModel()
    y = model.eval(x=x, amplitude=3, decay=2) + 0.01 * np.sin(40 * x)
    counts = []
    full = model.fit(y, x=x, amplitude=1, decay=1, method="problm", iter_cb=lambda _, n, *__, **___: counts.append(n))
    assert counts == list(range(1, full.nfev + 1))
    assert full.max_nfev == 6000
    short = model.fit(y, x=x, amplitude=1, decay=1, method="problm", max_nfev=4)
    assert short.nfev == 5
    assert short.aborted
    assert not short.success
    assert full.chisqr < short.chisqr <= np.sum((y - model.eval(x=x, amplitude=1, decay=1)) ** 2)


def test_the_derivative_of_lmfits_least_squares_is_used():
    x = np.linspace(0.0, 5.0, 200)
    y = 3.0 * np.exp(-x / 2.0) + 0.01 * np.sin(40 * x)

    def by(p, x):
        decay = np.exp(-x / p["t"])
        return -np.stack([decay, p["a"] * x / p["t"] ** 2 * decay], axis=1)

    def residual(p, x):
        return y - p["a"] * np.exp(-x / p["t"])

    params = lmfit.create_params(a=1, t=1)
    plain = lmfit.minimize(residual, params, args=(x,), method="problm")
    for jac in (by, lambda p, x: csr_array(by(p, x)), lambda p, x: aslinearoperator(by(p, x))):
        given = lmfit.minimize(residual, params, args=(x,), method="problm", jac=jac)
        assert given.nfev < plain.nfev
        assert given.params["t"].value == pytest.approx(plain.params["t"].value, rel=1e-6)


def test_bounds_are_tried_both_ways():
    """Two peaks and one-sided bounds, none of them active at the end: within bounds alone another minimum is found."""
    x = np.linspace(-10, 10, 1000)
    model = GaussianModel(prefix="a_") + GaussianModel(prefix="b_") + lmfit.models.ConstantModel()
    truth = {"a_amplitude": 7.1, "a_center": 1.1, "a_sigma": 2.4, "b_amplitude": 12.2, "b_center": 2.5, "b_sigma": 0.5}
    y = model.eval(x=x, c=1.01, **truth) + 5e-6 * np.random.default_rng(0).standard_normal(x.size)
    start = model.make_params(a_amplitude=3, a_center=1, a_sigma=2, b_amplitude=1, b_center=2.6, b_sigma=1, c=1.88)
    start["a_center"].max = 1.5
    start["b_center"].min = 2.0
    out = model.fit(y, start, x=x, method="problm")
    assert out.chisqr < 1e-6


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("bounded", [False, True])
def test_the_users_derivatives(by_columns, bounded):
    x = np.linspace(0, 5, 400)
    y = 3 * np.exp(-0.8 * x) + 0.1 * np.random.default_rng(2).standard_normal(x.size)
    calls = []

    def derivatives(p, x, y):
        calls.append(len(x))
        e = np.exp(-p["b"].value * x)
        j = np.array([e, -p["a"].value * x * e])
        return j if by_columns else j.T

    params = lmfit.create_params(a=1, c={"value": 0, "vary": False}, b={"value": 1, "min": 0 if bounded else -np.inf})
    how = {"args": (x, y), "Dfun": derivatives, "col_deriv": by_columns}
    residuals = lambda p, x, y: p["a"] * np.exp(-p["b"] * x) + p["c"] - y  # noqa: E731
    ours = lmfit.minimize(residuals, params, method="problm", **how)
    assert calls
    same_fit(ours, lmfit.minimize(residuals, params, args=(x, y)))
