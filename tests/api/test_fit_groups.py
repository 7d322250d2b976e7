"""Global fits: shared and separate parameters in one call."""

import numpy as np
import pytest
from scipy.optimize import curve_fit

import problm
from problm import models

RNG = np.random.default_rng(3)
X = np.tile(np.linspace(0, 5, 60), 3)
GROUP = np.repeat(["wt", "ko 1", "ko 2"], 60)
HEIGHT = {"wt": 1.0, "ko 1": 2.0, "ko 2": 4.0}
Y = np.array([HEIGHT[g] for g in GROUP]) * np.exp(-0.7 * X) + 0.3 + 0.05 * RNG.standard_normal(180)


def test_shared_parameters_are_those_of_one_large_fit():
    fit = problm.fit_groups("y ~ h*exp(-k*x) + c", X, Y, GROUP, shared=["k", "c"], gtol=1e-12)
    assert fit.names == ("k", "c", "h_ko_1", "h_ko_2", "h_wt")

    def together(x, k, c, *heights):
        return np.choose(np.unique(GROUP, return_inverse=True)[1], heights) * np.exp(-k * x) + c

    popt, pcov = curve_fit(together, X, Y, p0=[1.0, 0.0, 1.0, 1.0, 1.0], xtol=1e-14, ftol=1e-14)
    np.testing.assert_allclose(fit.values, popt, rtol=1e-6)
    np.testing.assert_allclose(fit.errors, np.sqrt(pcov.diagonal()), rtol=1e-4)
    np.testing.assert_allclose(fit.predict(([1.0], [2.0])), popt[4] * np.exp(-popt[0]) + popt[1], rtol=1e-6)
    assert fit.warnings == ()


def test_separate_parameters_are_those_of_single_fits():
    fit = problm.fit_groups("y ~ h*exp(-k*x) + c", X, Y, GROUP, gtol=1e-12)
    for label, name in (("wt", "wt"), ("ko_1", "ko 1")):
        single = problm.fit("y ~ h*exp(-k*x) + c", X[name == GROUP], Y[name == GROUP], gtol=1e-12)
        for p in "hkc":
            assert fit.params[f"{p}_{label}"].value == pytest.approx(single.params[p].value, rel=1e-5)
    fewer = problm.fit_groups("y ~ h*exp(-k*x) + c", X, Y, GROUP, shared=["k", "c"])
    assert fewer.compare(fit).f_probability > 0.001  # the groups do share them


def test_numbers_as_groups_bounds_and_starts():
    codes = np.unique(GROUP, return_inverse=True)[1] / 2
    fit = problm.fit_groups(
        models.exponential(), X, Y, codes, shared=["rate"], p0={"rate": 0.5}, bounds={"rate": (0, 0.65)}
    )
    assert fit.params["rate"].at_bound
    assert "amplitude_0_5" in fit.names


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"shared": ["q"]}, "no parameter 'q'"),
        ({"p0": {"q": 1.0}}, "no parameter 'q'"),
        ({"groups": GROUP[:-1]}, "the same length"),
        ({"groups": np.arange(180)}, "at most 60"),
        ({"groups": np.where(GROUP == "wt", "ko_1", GROUP)}, "rename them"),
    ],
)
def test_mistakes(arguments, match):
    with pytest.raises(ValueError, match=match):
        problm.fit_groups("y ~ h*exp(-k*x) + c", X, Y, **{"groups": GROUP, **arguments})
