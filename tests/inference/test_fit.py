"""`problm.fit` and what a `Fit` says, against lmfit, SciPy and closed formulas."""

import json

import lmfit
import numpy as np
import pandas as pd
import pytest
from scipy import optimize, stats

import problm
from problm import models

RNG = np.random.default_rng(7)
X = np.linspace(0.0, 6.0, 120)
SIGMA = 0.05 + 0.02 * X
Y = 2.5 * np.exp(-0.8 * X) + 0.4 + SIGMA * RNG.standard_normal(X.size)


def decay(x, a, b, c):
    return a * np.exp(-b * x) + c


@pytest.fixture(scope="module", params=["relative", "absolute"])
def pair(request):
    """The same fit by us and by lmfit."""
    absolute = request.param == "absolute"
    ours = problm.fit("y ~ a*exp(-b*x) + c", X, Y, sigma=SIGMA, absolute_sigma=absolute, gtol=1e-12)
    model = lmfit.Model(decay)
    theirs = model.fit(Y, x=X, a=2, b=1, c=0, weights=1 / SIGMA, scale_covar=not absolute,
                       fit_kws={"ftol": 1e-14, "xtol": 1e-14})  # fmt: skip
    return ours, theirs


def test_parameters_and_statistics_are_lmfits(pair):
    ours, theirs = pair
    for name, p in ours.params.items():
        assert p.value == pytest.approx(theirs.params[name].value, rel=1e-6)
        assert p.error == pytest.approx(theirs.params[name].stderr, rel=1e-4)
    assert ours.chi2 == pytest.approx(theirs.chisqr)
    assert ours.reduced_chi2 == pytest.approx(theirs.redchi)
    if not ours.absolute_sigma:
        assert ours.aic == pytest.approx(theirs.aic)
        assert ours.bic == pytest.approx(theirs.bic)
    correlation = theirs.params["a"].correl["b"]
    assert ours.correlation[0, 1] == pytest.approx(correlation, abs=1e-4)


def test_bands_are_lmfits(pair):
    ours, theirs = pair
    if ours.absolute_sigma:
        pytest.skip("lmfit uses Student's t for known noise too")
    x = np.linspace(-1.0, 8.0, 11)
    band = ours.confidence_band(x, 0.9)
    half = theirs.eval_uncertainty(x=x, sigma=0.9)
    np.testing.assert_allclose(band.upper - band.value, half, rtol=2e-3)
    np.testing.assert_allclose(band.value - band.lower, half, rtol=2e-3)
    np.testing.assert_allclose(band.value, theirs.eval(x=x), rtol=1e-6)


def test_profiles_are_lmfits(pair):
    ours, theirs = pair
    if ours.absolute_sigma:
        pytest.skip("lmfit profiles with estimated noise only")
    expected = theirs.conf_interval(sigmas=[0.6827, 0.95])
    for name in "abc":
        low, high = ours.profile(name).interval(0.95)
        assert low == pytest.approx(expected[name][0][1], rel=1e-4)
        assert high == pytest.approx(expected[name][-1][1], rel=1e-4)


def test_known_noise_means_chi_squared_steps():
    """For a linear model with known noise, intervals, profiles and the contour have closed forms."""
    y = 2.0 * X - 1.0 + SIGMA * RNG.standard_normal(X.size)
    fit = problm.fit(models.line(), X, y, sigma=SIGMA, absolute_sigma=True)
    A = np.stack([X, np.ones_like(X)], axis=1) / SIGMA[:, None]
    C = np.linalg.inv(A.T @ A)
    np.testing.assert_allclose(fit.covariance, C, rtol=1e-8)
    z = stats.norm.ppf(0.975)
    expected = fit.params["slope"].value + np.array([-z, z]) * np.sqrt(C[0, 0])
    np.testing.assert_allclose(fit.params["slope"].interval(), expected)
    np.testing.assert_allclose(fit.profile("slope").interval(), expected, rtol=1e-5)
    values, heights = fit.profile("slope").curve()
    np.testing.assert_allclose(heights, (values - fit.values[0]) / np.sqrt(C[0, 0]), atol=1e-4)
    boundary = fit.contour("slope", "intercept", 0.9, points=8) - fit.values
    np.testing.assert_allclose(
        np.einsum("ki,ij,kj->k", boundary, np.linalg.inv(C), boundary), stats.chi2.ppf(0.9, 2), rtol=1e-3
    )


def test_an_open_side_of_a_profile_is_infinite():
    x = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    y = x + 0.02 * np.array([1, -1, 1, 1, -1, -1])  # the beginning of a saturation: its end is not seen
    fit = problm.fit("y ~ top*x/(1 + x/half)", x, y, p0={"top": 1.0, "half": 2.0}, bounds={"half": (0, None)})
    low, high = fit.profile("half").interval(0.95)
    assert 0.0 < low < 10.0
    assert high == np.inf
    bounded = problm.fit(fit.model, x, y, p0={"top": 1.0, "half": 2.0}, bounds={"half": (0, 500)})
    assert bounded.profile("half").interval(0.95)[1] == 500.0


def test_a_single_parameter_has_a_profile():
    fit = problm.fit("y ~ a*x", X, Y)
    np.testing.assert_allclose(fit.profile("a").interval(), fit.params["a"].interval(), rtol=1e-6)


def test_prediction_band_holds_new_measurements():
    rng = np.random.default_rng(3)
    inside = total = 0
    for _ in range(60):
        y = decay(X, 2.5, 0.8, 0.4) + 0.1 * rng.standard_normal(X.size)
        fit = problm.fit("y ~ a*exp(-b*x) + c", X, y, p0=[2, 1, 0])
        band = fit.prediction_band(X, 0.9)
        new = decay(X, 2.5, 0.8, 0.4) + 0.1 * rng.standard_normal(X.size)
        inside += np.sum((new > band.lower) & (new < band.upper))
        total += X.size
    assert inside / total == pytest.approx(0.9, abs=0.015)
    with pytest.raises(ValueError, match="sigma is needed"):
        problm.fit("y ~ a*x", X, Y, sigma=SIGMA).prediction_band(X)


def test_names_bounds_and_fixed():
    fit = problm.fit(decay, X, Y, p0={"a": 2.0, "b": 0.5, "c": 0.0}, fixed={"c": 0.3}, bounds={"b": (None, 0.7)})
    assert fit.params["c"].fixed
    assert fit.params["c"].value == 0.3
    assert fit.params["c"].error == 0.0
    assert fit.params["b"].at_bound
    assert fit.params["b"].value == pytest.approx(0.7)
    assert fit.n_free == 2
    again = problm.fit(decay, X, Y, p0=[2.0, 0.5, 0.3], fixed=["c"], bounds=([-np.inf] * 3, [np.inf, 0.7, np.inf]))
    np.testing.assert_array_equal(again.values, fit.values)
    for wrong in ({"p0": {"d": 1.0}}, {"bounds": {"d": (0, 1)}}, {"fixed": ["d"]}, {"fixed": {"d": 1.0}}):
        with pytest.raises(ValueError, match="no parameter 'd'"):
            problm.fit("y ~ a*exp(-b*x) + c", X, Y, **wrong)


def test_guesses_go_with_what_is_known():
    x = np.linspace(0, 10, 400)
    two = models.gaussian() + models.gaussian()
    y = two(x, 2.0, 3.0, 0.5, 1.0, 7.0, 0.5) + 0.02 * RNG.standard_normal(400)
    fit = problm.fit(two, x, y, p0={"center_1": 7.1})
    assert fit.params["center_1"].value == pytest.approx(7.0, abs=0.02)
    assert fit.params["center_2"].value == pytest.approx(3.0, abs=0.02)


def test_ties_are_lmfits():
    x = np.linspace(-5, 5, 300)
    y = 3 * np.exp(-0.5 * (x / 0.5) ** 2) + np.exp(-0.5 * ((x - 2) / 1.0) ** 2) + 0.05 * RNG.standard_normal(300)

    def peaks(x, h1, s1, h2, m2, s2):
        return h1 * np.exp(-0.5 * (x / s1) ** 2) + h2 * np.exp(-0.5 * ((x - m2) / s2) ** 2)

    theirs = lmfit.Model(peaks)
    params = theirs.make_params(h1=3, s1=0.5, h2=1, m2=2)
    params["s2"].set(expr="2*s1")
    expected = theirs.fit(y, params, x=x)
    text = "y ~ h1*exp(-0.5*(x/s1)**2) + h2*exp(-0.5*((x - m2)/s2)**2)"
    for model in (text, peaks):
        fit = problm.fit(model, x, y, ties={"s2": "2*s1"}, p0={"h1": 3, "s1": 0.6, "h2": 1, "m2": 2}, gtol=1e-12)
        for name, p in fit.params.items():
            assert p.value == pytest.approx(expected.params[name].value, rel=1e-5)
            assert p.error == pytest.approx(expected.params[name].stderr, rel=1e-3)
        assert fit.params["s2"].tie == "2*s1"
        assert fit.n_free == 4
        assert "= 2*s1" in str(fit)
    with pytest.raises(ValueError, match="is tied"):
        fit.profile("s2")
    # A new free parameter, that only the tie knows.
    more = problm.fit(text, x, y, ties={"s2": "s1*ratio"}, p0={"h1": 3, "s1": 0.6, "h2": 1, "m2": 2, "ratio": 2.0})
    assert more.ties.free == ("h1", "s1", "h2", "m2", "ratio")
    for ties, match in (({"s2": "2*s9"}, "'s9'"), ({"s9": "s1"}, "'s9'"), ({"s1": "s2", "s2": "s1"}, "circle")):
        with pytest.raises(ValueError, match=match):
            problm.fit(text, x, y, ties=ties)


def test_leverage_and_outliers():
    y = 2.0 * X - 1.0 + 0.1 * RNG.standard_normal(X.size)
    y[17] += 1.0
    fit = problm.fit(models.line(), X, y)
    A = np.stack([X, np.ones_like(X)], axis=1)
    hat = A @ np.linalg.inv(A.T @ A) @ A.T
    np.testing.assert_allclose(fit.leverage, hat.diagonal(), rtol=1e-6)
    np.testing.assert_allclose(fit.residuals, y - hat @ y, atol=1e-8)
    # Without the point: its distance from the line of the others, over the deviation of that difference.
    others = np.arange(X.size) != 17
    slope, other = np.linalg.lstsq(A[others], y[others], rcond=None)[:2]
    noise = np.sqrt(other[0] / (others.sum() - 2))
    pull = A[17] @ np.linalg.inv(A[others].T @ A[others]) @ A[17]
    expected = (y[17] - A[17] @ slope) / (noise * np.sqrt(1 + pull))
    assert fit.studentized_residuals[17] == pytest.approx(expected, rel=1e-6)
    assert fit.outliers().tolist() == [17]
    assert fit.r2 == pytest.approx(1 - np.sum((y - hat @ y) ** 2) / np.sum((y - y.mean()) ** 2))


def test_comparison_of_nested_models():
    y = 2.0 * X - 1.0 + 0.1 * RNG.standard_normal(X.size)
    small, large = problm.fit(models.line(), X, y), problm.fit(models.polynomial(2), X, y)
    both = small.compare(large)
    f = (small.chi2 - large.chi2) / (large.chi2 / (X.size - 3))
    assert both.f == pytest.approx(f)
    assert both.f_probability == pytest.approx(2 * stats.t.sf(np.sqrt(f), X.size - 3))  # one more: a t test
    assert both.likelihood_ratio == pytest.approx(X.size * np.log(small.chi2 / large.chi2))
    assert sum(both.weights) == pytest.approx(1.0)
    assert both.weights[0] / both.weights[1] == pytest.approx(np.exp((large.aic - small.aic) / 2))
    assert large.compare(small).weights == both.weights[::-1]
    assert "Akaike" in str(both)
    with pytest.raises(ValueError, match="same data"):
        small.compare(problm.fit(models.line(), X[1:], y[1:]))


def test_comparison_is_level_if_the_smaller_model_is_true():
    rng = np.random.default_rng(11)
    chances = []
    for _ in range(200):
        y = 2.0 * X - 1.0 + 0.1 * rng.standard_normal(X.size)
        small, large = problm.fit(models.line(), X, y), problm.fit(models.polynomial(3), X, y)
        chances.append(small.compare(large).f_probability)
    assert stats.kstest(chances, "uniform").pvalue > 0.01


@pytest.mark.parametrize("kind", ["rows", "residuals", "groups"])
def test_bootstraps_agree_with_the_errors_where_they_are_right(kind):
    fit = problm.fit("y ~ a*exp(-b*x) + c", X, decay(X, 2.5, 0.8, 0.4) + 0.1 * RNG.standard_normal(X.size))
    groups = np.arange(X.size) if kind == "groups" else None
    found = fit.bootstrap(300, kind, groups=groups, workers=1)
    assert found.failed == 0
    assert found.samples.shape == (300, 3)
    for name, error in found.errors.items():
        assert error == pytest.approx(fit.params[name].error, rel=0.25)
        low, high = found.interval(name, 0.95)
        assert low < fit.params[name].value < high
    np.testing.assert_array_equal(fit.bootstrap(20, kind, groups=groups, workers=2).samples, found.samples[:20])


def test_bootstrap_of_groups_sees_errors_that_groups_share():
    rng = np.random.default_rng(5)
    groups = np.repeat(np.arange(30), 40)
    y = 1.0 + 0.5 * rng.standard_normal(30)[groups] + 0.1 * rng.standard_normal(1200)
    fit = problm.fit(models.constant_background(), groups / 30, y)
    shared = fit.bootstrap(200, "groups", groups=groups, workers=1).errors["background"]
    assert shared == pytest.approx(np.std([y[groups == g].mean() for g in range(30)]) / np.sqrt(30), rel=0.2)
    assert fit.params["background"].error < 0.3 * shared
    with pytest.raises(ValueError, match="must be given together"):
        fit.bootstrap(10, "groups")
    with pytest.raises(ValueError, match="kind must be"):
        fit.bootstrap(10, "row")


def test_tables_by_name():
    frame = pd.DataFrame({"time": X, "signal": Y, "err": SIGMA, "other": 0.0})
    fit = problm.fit("signal ~ a*exp(-b*time) + c", frame, sigma="err")
    np.testing.assert_allclose(fit.values, problm.fit("y ~ a*exp(-b*x) + c", X, Y, sigma=SIGMA).values)
    assert problm.fit("signal ~ a*exp(-b*time) + c", dict(frame)).names == ("a", "b", "c")
    for arguments, match in (
        (("signal ~ a*exp(-b*hour)", {"signal": Y}), "none of a, b, hour is a column"),
        (("volt ~ a*exp(-b*time)", frame), "needs volt"),
        (("a*exp(-b*time)", frame), "on the left"),
    ):
        with pytest.raises(ValueError, match=match):
            problm.fit(*arguments)
    with pytest.raises(TypeError, match="y is needed"):
        problm.fit("y ~ a*x", X)


def test_several_variables():
    x = RNG.uniform(-1, 1, (2, 500))
    y = 1.5 * x[0] - 0.5 * x[1] ** 2 + 0.01 * RNG.standard_normal(500)
    fit = problm.fit(problm.formula("a*x1 + b*x2**2"), tuple(x), y)
    np.testing.assert_allclose(fit.values, [1.5, -0.5], atol=0.01)
    assert fit.confidence_band(x[:, :5]).value.shape == (5,)
    assert fit.bootstrap(20, workers=1).samples.shape == (20, 2)
    assert fit.plot() is not None


def test_a_function_has_its_derivative():
    def slopes(x, a, b, c):
        return np.stack([np.exp(-b * x), -a * x * np.exp(-b * x), np.ones_like(x)], axis=1)

    with_jac = problm.fit(decay, X, Y, p0=[2, 1, 0], jac=slopes)
    without = problm.fit(decay, X, Y, p0=[2, 1, 0])
    np.testing.assert_allclose(with_jac.leverage, without.leverage, rtol=1e-5)
    expected = optimize.curve_fit(decay, X, Y, p0=[2, 1, 0], jac=slopes)[1]
    np.testing.assert_allclose(with_jac.covariance, expected, rtol=1e-4)


def test_saved_and_loaded(tmp_path):
    fit = problm.fit(models.voigt() + models.line(), X, Y, p0=[1, 3, 0.5, 0.5, 0, 1], fixed=["gamma"], max_iter=5)
    fit.save(tmp_path / "fit.json")
    saved = json.loads((tmp_path / "fit.json").read_text())
    assert saved["params"]["area"]["value"] == fit.params["area"].value
    again = problm.Fit.load(tmp_path / "fit.json")
    assert again.params == fit.params
    np.testing.assert_array_equal(again.predict(X), fit.predict(X))
    np.testing.assert_array_equal(again.confidence_band(X).upper, fit.confidence_band(X).upper)
    assert (again.aic, again.bic) == (fit.aic, fit.bic)
    with pytest.raises(ValueError, match="needs the data in memory"):
        _ = again.residuals
    with pytest.raises(ValueError, match="cannot be repeated"):
        again.profile("area")
    whole = problm.Fit.load(tmp_path / "fit.json", x=X, y=Y)
    np.testing.assert_array_equal(whole.residuals, fit.residuals)
    problm.fit(decay, X, Y, p0=[2, 1, 0]).save(tmp_path / "function.json")
    with pytest.raises(ValueError, match="give it as model="):
        problm.Fit.load(tmp_path / "function.json")
    assert problm.Fit.load(tmp_path / "function.json", decay).names == ("a", "b", "c")
    (tmp_path / "fit.json").write_text('{"format": "problm.fit", "version": 1}')
    with pytest.raises(ValueError, match="damaged"):
        problm.Fit.load(tmp_path / "fit.json")


def test_shown_as_text_html_and_latex():
    fit = problm.fit("y ~ a*exp(-b*x) + c_0", X, Y, fixed={"c_0": 0.5})
    assert "y ~ a * exp(-b * x) + c_0" in str(fit)
    assert "0.5 (fixed)" in str(fit)
    assert repr(fit).startswith("<problm.Fit ")
    page = fit._repr_html_()
    assert "<td>b</td>" in page
    assert "data:image/png" in page
    assert fit.plot()._repr_png_().startswith(b"\x89PNG")
    assert r"c\_0 & $0.5$ (fixed) \\" in fit.to_latex()
    small = problm.fit("y ~ a*x", X, 1e-9 * Y)
    assert r"\times 10^{-10}$" in small.to_latex()


def test_robust_fits_have_no_profile():
    fit = problm.fit("y ~ a*exp(-b*x) + c", X, Y, loss="soft_l1", f_scale=0.1)
    with pytest.raises(ValueError, match="needs a likelihood"):
        fit.profile("a")


def test_data_of_other_kinds(tmp_path):
    expected = problm.fit("y ~ a*exp(-b*x) + c", X, Y).values
    np.testing.assert_allclose(problm.fit("y ~ a*exp(-b*x) + c", pd.Series(X), list(Y)).values, expected)
    gaps = Y.copy()
    gaps[::7] = np.nan
    with pytest.raises(ValueError, match="not finite at row 0"):
        problm.fit("y ~ a*exp(-b*x) + c", X, gaps)
    fit = problm.fit("y ~ a*exp(-b*x) + c", X, gaps, nan_policy="omit")
    assert len(fit.residuals) == fit.n == np.isfinite(gaps).sum()
    assert np.isfinite(fit.r2)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    stored = problm.fit("y ~ a*exp(-b*x) + c", tmp_path / "x.npy", tmp_path / "y.npy")
    np.testing.assert_allclose(stored.values, expected, rtol=1e-5)
    assert "r squared" not in str(stored)
    assert stored.confidence_band([1.0]).value == pytest.approx(stored.predict([1.0]))
    with pytest.raises(ValueError, match="in memory"):
        _ = stored.residuals


def test_an_accurate_enough_fit_has_no_profile():
    x = np.tile(X, 2000)
    fit = problm.fit("y ~ a*exp(-b*x) + c", x, decay(x, 2.5, 0.8, 0.4) + RNG.standard_normal(x.size), accuracy=0.05)
    assert not fit.result.certified
    with pytest.raises(ValueError, match="fit of all rows"):
        fit.profile("a")


def test_ready_made_models_take_columns_by_position():
    x = np.linspace(0.0, 10.0, 80)
    y = models.gaussian()(x, 3.0, 4.0, 0.7) + 0.01 * np.cos(40.0 * x)
    expected = [p.value for p in problm.fit(models.gaussian(), x, y).params.values()]
    error = np.full(80, 0.1)
    for table, options in [
        ({"Wavenumber (cm-1)": x, "I": y}, {}),
        ({"I": y, "x": x}, {}),  # the variable by name
        ({"wave": x, "err": error, "I": y}, {"sigma": "err"}),
    ]:
        found = [p.value for p in problm.fit(models.gaussian(), table, **options).params.values()]
        np.testing.assert_allclose(found, expected, rtol=1e-8)
    with pytest.raises(ValueError, match="does not name the column to fit, and the table has the columns a, b, c"):
        problm.fit(models.gaussian(), {"a": x, "b": y, "c": y})


def test_terms_and_their_names():
    """Terms add up to the curve; the heading names ready-made models only where they are unchanged."""
    rng = np.random.default_rng(3)
    x = np.linspace(0, 10, 300)
    y = 3 * np.exp(-0.5 * ((x - 4) / 0.7) ** 2) + 0.2 * x + 1 + 0.05 * rng.standard_normal(300)
    fit = problm.fit(problm.models.gaussian() + problm.models.line(), x, y)
    parts = fit.components(x)
    assert list(parts) == ["1: gaussian", "2: line"]
    np.testing.assert_allclose(sum(parts.values()), fit.predict(x), rtol=1e-12)
    assert fit.report().startswith("y ~ gaussian + line\n")
    twisted = problm.fit(problm.models.gaussian() - 0.5 * problm.models.line(), x, y)
    assert "exp(" in twisted.report().splitlines()[0]
    np.testing.assert_allclose(sum(twisted.components(x).values()), twisted.predict(x), rtol=1e-12)
    tied = problm.fit(problm.models.gaussian() + problm.models.line(), x, y, ties={"intercept": "5*slope"})
    np.testing.assert_allclose(sum(tied.components(x).values()), tied.predict(x), rtol=1e-12)
    with pytest.raises(TypeError, match="Python function"):
        problm.fit(lambda x, a: a * x, x, y, p0=[1.0]).components(x)


def test_derived_quantities_have_the_errors_of_a_tied_parameter():
    rng = np.random.default_rng(4)
    x = np.linspace(0, 10, 300)
    y = 3 * np.exp(-0.5 * ((x - 4) / 0.7) ** 2) + 0.05 * rng.standard_normal(300)
    fit = problm.fit("y ~ a*exp(-((x - m)/s)**2/2)", x, y)
    area = fit.derived("a*s*sqrt(2*pi)")
    by_area = problm.fit("y ~ area/(s*sqrt(2*pi))*exp(-((x - m)/s)**2/2)", x, y, p0=[5.0, 4.0, 0.7])
    assert area.value == pytest.approx(by_area.params["area"].value, rel=1e-6)
    assert area.error == pytest.approx(by_area.params["area"].error, rel=1e-5)
    assert area.interval(0.9)[0] < area.value < area.interval(0.9)[1]
    with pytest.raises(ValueError, match="'q' is not a parameter; they are a, m, s"):
        fit.derived("2*q")


def test_a_parameter_that_no_point_sees_has_an_infinite_error():
    rng, x = np.random.default_rng(5), np.linspace(0, 4, 100)
    y = 0.5 * rng.standard_normal(100) + np.where(x == 0, 3.0, 0.0)
    fit = problm.fit("a*exp(-b*x) + c", x, y, p0={"a": 3, "b": 1e6, "c": 0})
    assert not fit.success  # the term of b has underflowed at every point but one
    assert fit.result.unseen.tolist() == [False, True, False]
    assert np.isinf(fit.result.standard_errors).tolist() == [False, True, False]
    assert np.isinf([fit.params[name].error for name in ("a", "b", "c")]).tolist() == [False, True, False]
    for text in (str(fit), fit.result.report()):
        assert "± inf" in text
        assert "± 0 " not in text
