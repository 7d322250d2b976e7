"""Tables, models in words, and deviations as a column or as an array."""

import numpy as np
import pytest

import problm


@pytest.mark.parametrize("kind", ["array", "column"])
def test_deviations_of_a_table(kind):
    rng = np.random.default_rng(4)
    x = np.linspace(0.0, 4.0, 300)
    s = 0.02 + 0.05 * x
    table = {"x": x, "s": s, "y": 2.0 * np.exp(-x) + 0.5 + s * rng.standard_normal(x.size)}
    fit = problm.fit("y ~ a*exp(-b*x) + c", table, sigma=s if kind == "array" else "s", absolute_sigma=True)
    popt, pcov = problm.curve_fit(problm.formula("a*exp(-b*x) + c"), x, table["y"], sigma=s, absolute_sigma=True)
    np.testing.assert_allclose([fit.params[n].value for n in "abc"], popt, rtol=1e-8)
    np.testing.assert_allclose([fit.params[n].error for n in "abc"], np.sqrt(np.diag(pcov)), rtol=1e-6)
