"""First guesses for robust fits, and the usual one of several equal starts."""

import numpy as np
import pytest

import problm
from problm import models

X = np.linspace(0.0, 10.0, 200)


def picture(rng, hot):
    """A spot on a detector of which some pixels are hot."""
    y, x = (v.ravel().astype(float) for v in np.mgrid[:60, :80])
    spot = rng.uniform(300, 2000), rng.uniform(15, 65), rng.uniform(15, 45), rng.uniform(3, 7), rng.uniform(3, 7), 80.0
    model = models.gaussian_2d() + models.constant_background()
    pixels = rng.poisson(model((x, y), *spot)).astype(float)
    where = rng.random(pixels.size) < hot
    pixels[where] = rng.uniform(4_000, 65_000, where.sum())
    return model, np.stack([x, y]), pixels, spot


@pytest.mark.parametrize("seed", range(5))
def test_hot_pixels_draw_no_peak_to_themselves(seed):
    model, x, pixels, spot = picture(np.random.default_rng(seed), 0.005)
    fit = problm.fit(model, x, pixels, loss="cauchy", f_scale="auto")
    assert np.abs(fit.values - spot)[1:5].max() < 0.3
    assert not any("explains" in doubt for doubt in fit.warnings)
    found, _ = problm.curve_fit(model, x, pixels, loss="cauchy", f_scale=15.0)
    assert np.abs(found - spot)[1:5].max() < 0.3


def test_cosmic_rays_draw_no_peak_to_themselves():
    rng = np.random.default_rng(1)
    model = models.gaussian() + models.line()
    y = model(X, 3.0, 6.0, 0.5, 0.2, 1.0) + 0.1 * rng.standard_normal(X.size)
    y[[20, 90, 171]] += 80.0
    fit = problm.fit(model, X, y, loss="soft_l1", f_scale="auto")
    assert fit.params["center"].value == pytest.approx(6.0, abs=0.1)
    assert fit.params["sigma"].value == pytest.approx(0.5, abs=0.1)


def test_a_peak_of_one_point_is_kept():
    rng = np.random.default_rng(2)
    model = models.gaussian() + models.constant_background()
    y = model(X, 50.0, X[120], 0.02, 1.0) + 0.1 * rng.standard_normal(X.size)
    assert abs(model.guess(X, y, robust=True)[1] - X[120]) < 0.05


@pytest.mark.parametrize("falls", [False, True])
def test_the_bottom_is_below_the_top(falls):
    rng = np.random.default_rng(3)
    x, model = np.geomspace(1e-2, 1e2, 30), models.logistic_4pl()
    slopes = np.array([1.5, -1.5]) if falls else np.array([-1.2, 1.2])
    for slope in slopes:
        y = model(x, 5.0, 90.0, 1.3, slope) + rng.standard_normal(30)
        fit = problm.fit(model, x, y)
        assert fit.params["bottom"].value < fit.params["top"].value
        assert fit.params["slope"].value == pytest.approx(slope, abs=0.3)
        many = problm.fit_many(model, x, [y, y])
        np.testing.assert_allclose(many.values[1], fit.values, rtol=1e-4)
    wells = np.repeat([0, 1, 2], 30)
    joint = problm.fit_groups(model, np.tile(x, 3), model(np.tile(x, 3), 5.0, 90.0, 1.3, slopes[1]), wells,
                              shared=["bottom", "top"])  # fmt: skip
    assert joint.params["bottom"].value == pytest.approx(5.0)
    written = problm.fit("y ~ low + (high - low)/(1 + exp(-k*(x - m)))", X, -np.tanh(X - 4.0))
    assert written.params["low"].value == pytest.approx(-1.0)


@pytest.mark.parametrize("phase", [0.5, 2.0, 3.5, 5.0])
def test_amplitudes_of_waves_are_positive(phase):
    model = models.sine()
    found = model.guess(X, model(X, 2.0, 0.7, phase))
    assert found[0] == pytest.approx(2.0, rel=0.05)
    assert abs(found[2]) < 2.0 * np.pi
    falling = models.gaussian().guess(X, -models.gaussian()(X, 2.0, 4.0, 1.0))
    assert falling[0] == pytest.approx(-2.0, rel=0.05)  # nothing else could be turned
