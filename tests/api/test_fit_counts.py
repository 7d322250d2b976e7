"""Counts: the maximum of the Poisson likelihood, with errors that are true where counts are few."""

import numpy as np
import pytest
from scipy import optimize, special, stats

import problm
from problm import models
from problm.api.fit_counts import deviance
from problm.models import expression as ex

X = np.linspace(0, 10, 150)
PEAK = models.gaussian() + models.constant_background()
TRUE = np.array([5.0, 4.0, 0.8, 0.6])


def likelihood(theta, y):
    f = np.maximum(PEAK(X, *theta), 1e-12)
    return np.sum(f - y * np.log(f) + special.gammaln(y + 1))


def test_deviance_residuals():
    y, f = np.meshgrid([0.0, 1.0, 3.0, 1000.0], [0.2, 1.0, 2.9999, 3.0, 3.02, 3.1, 990.0, 1000.0, 1010.1])
    (found,) = ex.evaluate([deviance(ex.parameter(0), ex.variable(0))], [f], [y])
    expected = np.sign(f - y) * np.sqrt(np.maximum(2 * (f - y + special.xlogy(y, y / f)), 0))
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)
    slope = [ex.evaluate([deviance(ex.parameter(0), ex.variable(0))], [f + h], [y])[0] for h in (-1e-6, 1e-6)]
    model = problm.models.model.Model.from_expression(deviance(ex.parameter(0), ex.variable(0)), ["f"], ["y"])
    for i, j in np.ndindex(f.shape):
        by = model.jacobian([y[i, j]], f[i, j])[0, 0]
        assert by == pytest.approx((slope[1] - slope[0])[i, j] / 2e-6, rel=1e-4)


def test_the_maximum_of_the_likelihood():
    y = np.random.default_rng(1).poisson(PEAK(X, *TRUE))
    fit = problm.fit_counts(PEAK, X, y, gtol=1e-12)
    best = optimize.minimize(likelihood, TRUE, args=(y,), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
    np.testing.assert_allclose(fit.values, best.x, rtol=1e-4)
    saturated = np.sum(y - special.xlogy(y, y) + special.gammaln(y + 1))
    assert fit.chi2 == pytest.approx(2 * (likelihood(fit.values, y) - saturated), rel=1e-8)
    # The profile is that of the likelihood.
    low, high = fit.profile("center").interval(0.95)
    for end in (low, high):
        others = optimize.minimize(
            lambda t, end=end: likelihood([t[0], end, t[1], t[2]], y), fit.values[[0, 2, 3]], method="Nelder-Mead",
            options={"xatol": 1e-8, "fatol": 1e-10},
        )  # fmt: skip
        assert 2 * (others.fun - best.fun) == pytest.approx(stats.chi2.ppf(0.95, 1), rel=1e-3)


def test_contours_are_those_of_the_likelihood():
    y = np.random.default_rng(3).poisson(4.0 * np.exp(-0.5 * X))
    fit = problm.fit_counts("y ~ a*exp(-b*x)", X, y)

    def nll(a, b):
        return np.sum(a * np.exp(-b * X) - y * np.log(a * np.exp(-b * X)))

    for a, b in fit.contour("a", "b", 0.9, points=6):
        assert 2 * (nll(a, b) - nll(*fit.values)) == pytest.approx(stats.chi2.ppf(0.9, 2), rel=1e-3)


def test_errors_are_true_at_few_counts():
    rng = np.random.default_rng(2)
    z = []
    for _ in range(150):
        fit = problm.fit_counts(PEAK, X, rng.poisson(PEAK(X, *TRUE)), p0=TRUE)
        z.append((fit.values - TRUE) / fit.errors)
    assert 0.9 < np.sqrt(np.mean(np.square(z))) < 1.12


def test_arguments_are_checked():
    y = np.random.default_rng(1).poisson(PEAK(X, *TRUE))
    fit = problm.fit_counts(PEAK, X, y, fixed={"center": 4.0}, bounds={"sigma": (0, None)})
    assert fit.params["center"].fixed
    for wrong in (-1.0, 0.5, np.nan):
        with pytest.raises(ValueError, match="row 3 is"):
            problm.fit_counts(PEAK, X, np.where(np.arange(150) == 3, wrong, y))
    with pytest.raises(ValueError, match="no parameter 'width'"):
        problm.fit_counts(PEAK, X, y, p0={"width": 1.0})


def test_the_result_of_a_binomial_fit_has_the_errors_of_the_fit():
    x = np.linspace(0.0, 10.0, 150)
    dead = np.random.default_rng(0).binomial(40, 1.0 / (1.0 + np.exp(-0.5 * (x - 3.0))))
    fit = problm.fit_counts("1/(1 + exp(-b*(x - c)))", x, dead, trials=40)
    np.testing.assert_allclose(fit.result.standard_errors, fit.errors)
