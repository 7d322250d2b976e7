"""Many small fits at once give what SciPy gives one by one."""

import numpy as np
import pytest
from scipy.optimize import curve_fit

import problm
from problm import models

RNG = np.random.default_rng(4)
X = np.linspace(0, 10, 50)
PEAK = models.gaussian() + models.constant_background()
TRUE = np.c_[RNG.uniform(1, 5, 300), RNG.uniform(2, 8, 300), RNG.uniform(0.4, 2, 300), RNG.uniform(-1, 1, 300)]


def peak(x, a, m, s, c):
    return a * np.exp(-0.5 * ((x - m) / s) ** 2) + c


Y = peak(X[None], *TRUE.T[:, :, None]) + 0.1 * RNG.standard_normal((300, 50))


def test_each_fit_is_scipys():
    sigma = 0.5 + 0.1 * X
    fits = problm.fit_many(PEAK, X, Y, sigma=sigma)
    assert fits.success.all()
    for b in range(0, 300, 30):
        popt, pcov = curve_fit(peak, X, Y[b], p0=fits.values[b], sigma=sigma, xtol=1e-14, ftol=1e-14)
        np.testing.assert_allclose(fits.values[b], popt, atol=1e-3 * fits.errors[b].min())
        np.testing.assert_allclose(fits.errors[b], np.sqrt(pcov.diagonal()), rtol=1e-4)
        assert fits.chi2[b] == pytest.approx(np.sum(((peak(X, *popt) - Y[b]) / sigma) ** 2), rel=1e-9)


def test_errors_and_intervals_hold_the_truth():
    fits = problm.fit_many(PEAK, X, Y)
    z = (fits.values - TRUE) / fits.errors
    assert 0.9 < np.sqrt(np.mean(z**2)) < 1.12
    low, high = fits.interval("center", 0.9)
    assert np.mean((low < TRUE[:, 1]) & (TRUE[:, 1] < high)) == pytest.approx(0.9, abs=0.05)
    assert set(fits.to_dict()) == {
        *PEAK.parameters, *(f"{n}_error" for n in PEAK.parameters), "chi2", "success",
    }  # fmt: skip
    np.testing.assert_array_equal(fits["center"], fits.values[:, 1])
    assert "300 curves, 300 converged" in repr(fits)


def test_missing_points_and_an_x_for_each_curve():
    gaps = Y.copy()
    gaps[RNG.random(Y.shape) < 0.2] = np.nan
    fits = problm.fit_many(PEAK, X, gaps)
    assert fits.success.mean() > 0.98
    good = np.isfinite(gaps[7])
    popt, pcov = curve_fit(peak, X[good], gaps[7][good], p0=fits.values[7])
    np.testing.assert_allclose(fits.values[7], popt, rtol=1e-5)
    np.testing.assert_allclose(fits.errors[7], np.sqrt(pcov.diagonal()), rtol=1e-4)
    shifted = problm.fit_many(PEAK, X + np.arange(300)[:, None], Y, p0=TRUE + [0, 1, 0, 0] * np.arange(300)[:, None])
    np.testing.assert_allclose(shifted["center"] - np.arange(300), problm.fit_many(PEAK, X, Y)["center"], atol=1e-4)
    with pytest.raises(ValueError, match="p0 is needed"):
        problm.fit_many(PEAK, X + np.arange(300)[:, None], Y)


def test_bounds_and_fixed_parameters():
    free = problm.fit_many(PEAK, X, Y)
    fits = problm.fit_many(PEAK, X, Y, p0=TRUE, fixed=["background"], bounds={"sigma": (None, 1.0)})
    np.testing.assert_array_equal(fits["background"], TRUE[:, 3])
    assert np.isnan(fits.errors[:, 3]).all()
    assert (fits["sigma"] <= 1.0).all()
    assert (fits["sigma"] == 1.0).any()
    inside = TRUE[:, 2] < 0.8
    assert np.abs(fits["center"] - free["center"])[inside].max() < 0.1
    assert fits.n_free == 3


def test_threads_change_nothing():
    one, two = (problm.fit_many(PEAK, X, Y, threads=k) for k in (1, 2))
    np.testing.assert_array_equal(one.values, two.values)


def test_exact_data_and_hopeless_ones():
    exact = problm.fit_many(PEAK, X, peak(X[None], *TRUE[:20].T[:, :, None]))
    assert exact.success.all()
    np.testing.assert_allclose(exact.values, TRUE[:20], rtol=1e-8, atol=1e-8)
    flat = problm.fit_many("y ~ a*exp(-b*x)", X, np.zeros((2, 50)), p0=[1.0, 1.0])
    assert np.isnan(flat.errors).any()
    few = problm.fit_many(PEAK, X, Y[:5], p0=[100.0, 50.0, 0.01, 0.0], max_iter=2)
    assert not few.success.all()


@pytest.mark.parametrize("model", [models.sine(), models.lorentzian() + models.line(), models.logistic_4pl()])
def test_guesses_of_other_models(model):
    rng = np.random.default_rng(9)
    x = np.linspace(0.3, 10, 80)
    ranges = {
        3: [(1, 5), (0.2, 3), (0, 6)],
        4: [(-1, 1), (2, 5), (2, 7), (1, 5)],
        5: [(1, 5), (2, 8), (0.3, 1.5), (-1, 1), (-1, 1)],
    }[len(model.parameters)]
    true = np.stack([rng.uniform(low, high, 100) for low, high in ranges], axis=1)
    clean = np.array([model(x, *t) for t in true])
    y = clean + 0.05 * rng.standard_normal(clean.shape)
    fits = problm.fit_many(model, x, y)
    assert np.mean(fits.chi2 <= 1.001 * np.sum((y - clean) ** 2, axis=1)) >= 0.95


def test_what_cannot_be_fitted_says_so():
    with pytest.raises(TypeError, match="ready-made model"):
        problm.fit_many(lambda x, a: a * x, X, Y)
    with pytest.raises(ValueError, match="expected"):
        problm.fit_many(PEAK, X[:10], Y)
    with pytest.raises(ValueError, match="sigma must be positive"):
        problm.fit_many(PEAK, X, Y, sigma=-1.0)
    with pytest.raises(ValueError, match="points for 4 parameters"):
        problm.fit_many(PEAK, X[:3], Y[:, :3], p0=TRUE)


@pytest.mark.parametrize("n", [7, 32, 33, 70, 200])
def test_equal_to_fits_one_by_one(n):
    """Also with missing points, and of few curves, which are fitted one after the other if they are long."""
    rng = np.random.default_rng(n)
    x = np.linspace(0.0, 5.0, n)
    y = rng.uniform(2, 5, (41, 1)) * np.exp(-rng.uniform(0.5, 2, (41, 1)) * x) + 0.05 * rng.standard_normal((41, n))
    y[::3, 2] = np.nan
    fits = problm.fit_many("y ~ a*exp(-b*x)", x, y, threads=1)
    assert fits.success.all()
    for k in range(0, 41, 5):
        there = np.isfinite(y[k])
        one = problm.fit("y ~ a*exp(-b*x)", x[there], y[k, there])
        np.testing.assert_allclose(fits.chi2[k], one.chi2, rtol=1e-10)
        errors = np.array([p.error for p in one.params.values()])
        values = np.array([p.value for p in one.params.values()])
        assert (np.abs(fits.values[k] - values) <= 1e-6 * errors).all()
        np.testing.assert_allclose(fits.errors[k], errors, rtol=1e-6)
    some = problm.fit_many("y ~ a*exp(-b*x)", x, y[:7], threads=1)
    assert (np.abs(some.values - fits.values[:7]) <= 1e-7 * fits.errors[:7]).all()
    np.testing.assert_allclose(some.errors, fits.errors[:7], rtol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_the_minimum_is_reached(own, weighted):
    """Further steps move no parameter, whether x is common or not, with and without sigma."""
    shifts = 0.01 * np.arange(300)[:, None] * own
    x = X + (shifts if own else 0.0)
    sigma = np.linspace(0.5, 2.0, 50) if weighted else np.ones(50)
    given = {"sigma": sigma} if weighted else {}
    fits = problm.fit_many(PEAK, x, Y, p0=TRUE + [0, 1, 0, 0] * shifts, **given)
    assert fits.success.all()
    for b in range(0, 300, 20):
        at, here = fits.values[b].copy(), x[b] if own else x
        for _ in range(10):
            J, r = PEAK.jacobian(here, *at) / sigma[:, None], (PEAK(here, *at) - Y[b]) / sigma
            at -= np.linalg.lstsq(J * fits.errors[b], r)[0] * fits.errors[b]
        assert (np.abs(at - fits.values[b]) <= 1e-7 * fits.errors[b]).all()
        np.testing.assert_allclose(fits.chi2[b], r @ r, rtol=1e-12)


def test_an_unknown_x_is_a_missing_point():
    x, gaps = np.tile(X, (300, 1)), Y.copy()
    x[:, 7] = gaps[:, 7] = np.nan
    there = np.arange(50) != 7
    fits, fewer = problm.fit_many(PEAK, x, gaps, p0=TRUE), problm.fit_many(PEAK, X[there], Y[:, there], p0=TRUE)
    np.testing.assert_allclose(fits.values, fewer.values, rtol=1e-7, atol=1e-9)
    np.testing.assert_array_equal(fits.n, 49)
    at = np.where(there, X + 1.0, -1.0)  # where the logarithm is not defined, and nothing was measured
    gone = problm.fit_many("y ~ a*log(x) + b", at, np.where(there, Y, np.nan))
    assert gone.success.all()
    with pytest.raises(ValueError, match="give p0"):
        problm.fit_many("y ~ a*log(x) + b", X - 1.0, Y)


def test_doses_over_decades_written_with_or_without_a_logarithm():
    """Positions are those of log(x), not of x; no curve ends in its mirror image."""
    rng = np.random.default_rng(5)
    dose, half, slope = np.geomspace(1e-3, 1e2, 11), 10.0 ** rng.uniform(-1.5, 1, 96), rng.uniform(0.8, 2, 96)
    y = 5 + 90 / (1 + (half[:, None] / dose) ** slope[:, None]) + 2 * rng.standard_normal((96, 11))
    written = problm.fit_many("y ~ low + (high - low)/(1 + exp(-k*(log(x) - m)))", dose, y)
    ready = problm.fit_many(models.logistic_4pl(), dose, y)
    assert written.success.all()
    assert ready.success.all()
    assert (written["k"] > 0).all()
    assert (ready["ec50"] > 0).all()
    np.testing.assert_allclose(np.exp(written["m"]), ready["ec50"], rtol=1e-5)
    np.testing.assert_allclose(written["k"], np.abs(ready["slope"]), rtol=1e-5)


def test_fits_that_end_badly_do_not_hold_up_the_others():
    """More curves than fit into a block; some without a solution, some that need all steps."""
    x = np.linspace(0.0, 5.0, 12)
    y = np.tile(3.0 * np.exp(-0.7 * x), (100, 1)) + 0.01 * np.sin(9.0 * np.arange(1200)).reshape(100, 12)
    p0 = np.tile([1.0, 1.0], (100, 1))
    p0[::9] = [1.0, -1e3]  # overflows
    fits = problm.fit_many("y ~ a*exp(-b*x)", x, y, p0=p0, threads=1)
    bad = np.zeros(100, dtype=bool)
    bad[::9] = True
    np.testing.assert_array_equal(fits.success, ~bad)
    np.testing.assert_allclose(fits["b"][~bad], 0.7, atol=0.05)
    few = problm.fit_many("y ~ a*exp(-b*x)", x, y, p0=[1.0, 3.0], max_iter=2, threads=1)
    assert not few.success.any()
    assert (few.iterations == 2).all()
