"""The number of peaks and the background are found from the data."""

import numpy as np
import pytest

import problm
from problm import models


def spectrum(seed, count, n=400, shape=models.gaussian):
    """Peaks at least six apart, 10 to 50 times the noise, on a line."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 100, n)
    centers = np.sort(rng.uniform(5, 95, count))
    while count > 1 and np.diff(centers).min() < 6:
        centers = np.sort(rng.uniform(5, 95, count))
    y = 1 + 0.02 * x
    for center in centers:
        y = y + shape()(x, rng.uniform(1, 5), center, rng.uniform(0.8, 2.5))
    return x, y + 0.1 * rng.standard_normal(n), centers


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_the_number_of_peaks(count):
    x, y, centers = spectrum(40 + count, count)
    fit = problm.find_peaks_model(x, y)
    found = [p for name, p in fit.params.items() if name.startswith("center")]
    assert [abs(p.value - c) < 5 * p.error for p, c in zip(found, centers, strict=True)] == [True] * count
    assert fit.names[-2:] == ("slope", "intercept")
    assert fit.warnings == ()


def test_other_shapes_and_backgrounds():
    x, y, centers = spectrum(50, 2, shape=models.lorentzian)
    fit = problm.find_peaks_model(x, y - 0.02 * x, peak="lorentzian")
    assert fit.names[-1] == "background"
    np.testing.assert_allclose([fit.params["center_1"].value, fit.params["center_2"].value], centers, atol=0.3)
    again = problm.fit(fit.model + models.gaussian(), x, y, p0=[*fit.values, 0.1, 50.0, 2.0])  # it can be edited
    assert len(again.model.terms) == 4


def test_shapes_of_data_are_checked():
    with pytest.raises(ValueError, match="the same length"):
        problm.find_peaks_model([1.0, 2.0], [1.0, 2.0, 3.0])


@pytest.mark.parametrize("seed", [0, 1])
def test_the_shape_is_chosen(seed):
    """A Lorentzian line is one Lorentzian, not several Gaussians."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 100, 600)
    u = (x - 40) / 3
    y = {0: 5 / (1 + u * u), 1: 5 * np.exp(-0.5 * u * u)}[seed] + 1 + 0.05 * rng.standard_normal(600)
    fit = problm.find_peaks_model(x, y)
    assert [t.kind for t in fit.model.terms] == [("lorentzian", "gaussian")[seed], "constant_background"]
    assert (len(problm.find_peaks_model(x, y, peak="gaussian").model.terms) > 2) == (seed == 0)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_background_that_decays_needs_no_peaks(seed):
    """Such as fluorescence under a Raman spectrum; no parabola has its shape."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 100, 600)
    y = 8.0 * np.exp(-x / 40.0) + 0.5 * rng.standard_normal(x.size)
    for center in (25.0, 55.0, 80.0):
        y += models.gaussian()(x, rng.uniform(6, 18), center, rng.uniform(1.2, 3.0))
    fit = problm.find_peaks_model(x, y)
    assert [t.kind for t in fit.model.terms] == ["gaussian"] * 3 + ["exponential"]
    assert fit.params["rate"].value == pytest.approx(1 / 40, rel=0.3)
