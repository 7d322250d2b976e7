"""Binomial counts, errors in x, censored values and complex data, beside SciPy."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import optimize, stats

import problm
from problm.api.likelihoods.censored import limit_residual
from problm.api.likelihoods.errors_in_x import distance_of
from problm.models import expression as ex
from problm.models.model import Model


@pytest.fixture
def rng():
    return np.random.default_rng(1)


def test_binomial_counts_agree_with_the_likelihood(rng):
    x, n = np.linspace(0, 10, 60), rng.integers(5, 40, 60)
    k = rng.binomial(n, 1 / (1 + np.exp(-1.3 * (x - 5))))
    fit = problm.fit_counts("1/(1 + exp(-k*(x - m)))", x, k, trials=n)

    def unlikely(t):
        return -stats.binom.logpmf(k, n, 1 / (1 + np.exp(-t[0] * (x - t[1])))).sum()

    best = optimize.minimize(unlikely, [1.0, 5.0])
    np.testing.assert_allclose(fit.values, best.x, rtol=1e-5)
    np.testing.assert_allclose(fit.errors, np.sqrt(np.diag(best.hess_inv)), rtol=0.03)
    perfect = -stats.binom.logpmf(k, n, k / n).sum()
    assert fit.chi2 == pytest.approx(2 * (best.fun - perfect), rel=1e-7)
    low, high = fit.profile("m").interval(0.95)
    assert low < best.x[1] < high
    for bad in (k - 1, n + 0.5):
        with pytest.raises(ValueError, match="trials must be whole numbers"):
            problm.fit_counts("1/(1 + exp(-k*(x - m)))", x, k, trials=bad)


@pytest.mark.parametrize("form", ["formula", "function"])
def test_errors_in_x_agree_with_odrpack(rng, form):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        odr = pytest.importorskip("scipy.odr")
    x = np.linspace(0, 5, 200)
    spread = rng.uniform(0.05, 0.2, x.size)
    seen, y = x + spread * rng.standard_normal(x.size), 3 * np.exp(-0.8 * x) + 0.5 + 0.05 * rng.standard_normal(x.size)

    def curve(x, a, b, c):
        return a * np.exp(-b * x) + c

    model = "a*exp(-b*x) + c" if form == "formula" else curve
    fit = problm.fit(model, seen, y, sigma=0.05, x_sigma=spread, p0=[1.0, 1.0, 0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = odr.RealData(seen, y, sx=spread, sy=0.05)
        other = odr.ODR(data, odr.Model(lambda b, x: curve(x, *b)), beta0=[1.0, 1.0, 0.0]).run()
    np.testing.assert_allclose(fit.values, other.beta, rtol=1e-5)
    np.testing.assert_allclose(fit.errors, other.sd_beta, rtol=1e-3)
    assert fit.chi2 == pytest.approx(other.sum_square, rel=1e-8)
    plain = problm.fit(model, seen, y, sigma=0.05, p0=[1.0, 1.0, 0.0])
    assert abs(plain.values[1] - 0.8) > abs(fit.values[1] - 0.8)


def test_errors_in_two_variables(rng):
    x = rng.uniform(0, 3, (2, 300))
    y = 1.5 * x[0] + np.sin(2 * x[1]) + 0.05 * rng.standard_normal(300)
    spread = np.array([[0.05], [0.02]])
    seen = x + spread * rng.standard_normal(x.shape)
    start = {"a": 1.0, "b": 1.0, "c": 2.1}
    fit = problm.fit("a*x1 + b*sin(c*x2)", seen, y, sigma=0.05, x_sigma=spread, p0=start, absolute_sigma=True)
    assert (np.abs(fit.values - [1.5, 1.0, 2.0]) < 4 * fit.errors).all()
    assert 200 < fit.chi2 < 400


def test_derivatives_of_distances(rng):
    model = problm.formula("a*exp(-b*x) + c")
    rows = (rng.uniform(0, 4, (50, 1)), rng.uniform(0, 3, 50), rng.uniform(0, 0.3, (50, 1)), rng.uniform(0.1, 0.3, 50))
    rows[2][::7] = 0.0
    distance, theta = distance_of(model, None, 1), np.array([2.0, 0.7, 0.4])
    J = distance.derivative(theta, *rows)
    for k in range(3):
        h = 1e-6 * np.eye(3)[k]
        slope = (distance.residuals(theta + h, *rows) - distance.residuals(theta - h, *rows)) / 2e-6
        np.testing.assert_allclose(J[:, k], slope, rtol=2e-4, atol=2e-5)


def test_bad_errors_in_x_are_named():
    x = np.linspace(0, 1, 20)
    for bad in (-1.0, np.nan, np.ones(3)):
        with pytest.raises(ValueError, match="x_sigma"):
            problm.fit("a*x + b", x, x, x_sigma=bad)


def test_limits_agree_with_the_likelihood(rng):
    x = np.linspace(0, 5, 400)
    y = 3 * np.exp(-x) + 0.1 * rng.standard_normal(x.size)
    limit = np.where(y < 0.2, -1, np.where(y > 2.5, 1, 0))
    y = np.clip(y, 0.2, 2.5)
    fit = problm.fit_censored("a*exp(-b*x)", x, y, limit, 0.1)

    def unlikely(t):
        z = (t[0] * np.exp(-t[1] * x) - y) / 0.1
        return np.where(limit == 0, 0.5 * z * z, -stats.norm.logcdf(z * limit)).sum()

    best = optimize.minimize(unlikely, [2.0, 0.8])
    np.testing.assert_allclose(fit.values, best.x, rtol=1e-4)
    np.testing.assert_allclose(fit.errors, np.sqrt(np.diag(best.hess_inv)), rtol=0.05)
    assert fit.chi2 == pytest.approx(2 * best.fun, rel=1e-8)
    naive = problm.fit("a*exp(-b*x)", x, y)
    assert abs(fit.values[1] - 1.0) < abs(naive.values[1] - 1.0)
    with pytest.raises(ValueError, match="limit must hold"):
        problm.fit_censored("a*exp(-b*x)", x, y, limit + 5, 0.1)
    with pytest.raises(ValueError, match="sigma must be positive"):
        problm.fit_censored("a*exp(-b*x)", x, y, limit, 0.0)


def test_the_residual_of_a_limit_is_smooth():
    model = Model.from_expression(limit_residual(ex.variable(0) + ex.parameter(0)), ["p"])
    z = np.concatenate([np.linspace(-60, 8, 400), [-5.0 - 1e-9, -5.0 + 1e-9]])
    np.testing.assert_allclose(model(z, 0.0), np.sqrt(-2 * stats.norm.logcdf(z)), rtol=2e-4, atol=1e-12)
    J = model.jacobian(z, 0.0)[:, 0]
    assert np.isfinite(J).all()
    exact = -np.exp(stats.norm.logpdf(z) - stats.norm.logcdf(z)) / np.sqrt(-2 * stats.norm.logcdf(z))
    np.testing.assert_allclose(J, exact, rtol=2e-3, atol=1e-9)
    assert np.isfinite(model.jacobian(np.array([1e3, -1e6]), 0.0)).all()


def test_complex_data(rng):
    frequency = np.geomspace(1, 1e5, 60)

    def impedance(w, r0, r1, c):
        return r0 + r1 / (1 + 1j * w * r1 * c)

    noise = rng.standard_normal(60) + 1j * rng.standard_normal(60)
    z = impedance(frequency, 10.0, 100.0, 1e-5) + 0.5 * noise
    start, positive = {"r0": 5.0, "r1": 80.0, "c": 2e-5}, {"c": (0.0, None)}
    fit = problm.fit(impedance, frequency, z, p0=start, bounds=positive, sigma=0.5, absolute_sigma=True)
    assert (np.abs(fit.values - [10.0, 100.0, 1e-5]) < 4 * fit.errors).all()
    assert fit.n == 120
    assert 70 < fit.chi2 < 180
    np.testing.assert_allclose(fit.curve(frequency), impedance(frequency, *fit.values))
    with pytest.raises(TypeError, match="formulas are real"):
        problm.fit("a*x", frequency, z)
    with pytest.raises(ValueError, match="same length for complex data"):
        problm.fit(impedance, frequency[:3], z, p0=[1.0, 1.0, 1.0])


def test_tables_in_files_and_quoted_columns(tmp_path):
    path = tmp_path / "a.csv"
    x = np.linspace(0, 3, 40)
    rows = "\n".join(f"{a:.4f};{2 * np.exp(-a):.6f};0.1".replace(".", ",") for a in x)
    path.write_text("t [s];I (counts);err\n" + rows)
    for model in ('"I (counts)" ~ a*exp(-b*`t [s]`)', "$2 ~ a*exp(-b*$1)", "I ~ a*exp(-b*t)"):
        fit = problm.fit(model, path, sigma="err")
        np.testing.assert_allclose(fit.values, [2.0, 1.0], rtol=1e-3)


def test_a_constant_may_be_added_to_a_plane():
    model = problm.models.gaussian_2d() + problm.models.constant_background()
    x, y = np.meshgrid(np.arange(20.0), np.arange(15.0))
    z = model((x.ravel(), y.ravel()), 5.0, 8.0, 6.0, 2.0, 1.5, 1.0)
    fit = problm.fit(model, (x.ravel(), y.ravel()), z)
    np.testing.assert_allclose(np.abs(fit.values), [5.0, 8.0, 6.0, 2.0, 1.5, 1.0], rtol=1e-6)
