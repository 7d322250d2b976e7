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


def test_errors_in_x_may_be_a_column():
    rng = np.random.default_rng(3)
    frame = {"x": np.linspace(0, 9, 40) + 0.1 * rng.standard_normal(40), "sx": np.full(40, 0.1), "sy": np.full(40, 0.2)}
    frame["y"] = 2 * np.linspace(0, 9, 40) + 1 + 0.2 * rng.standard_normal(40)
    named = problm.fit("y ~ a*x + b", frame, sigma="sy", x_sigma="sx")
    given = problm.fit("y ~ a*x + b", frame, sigma=frame["sy"], x_sigma=frame["sx"])
    np.testing.assert_array_equal(named.values, given.values)
    with pytest.raises(ValueError, match="x_sigma: 'sz' is not a column"):
        problm.fit("y ~ a*x + b", frame, x_sigma="sz")


@pytest.mark.parametrize("unit", ["ns", "s", "D"])
def test_times_in_a_table_are_not_taken_for_numbers(unit):
    times = np.arange(30).astype(f"datetime64[{unit}]")
    with pytest.raises(ValueError, match=r"column 't' holds times .* convert them to numbers"):
        problm.fit("y ~ a*t + b", {"t": times, "y": np.arange(30.0)})
    with pytest.raises(ValueError, match=r"'t' holds values that are not numbers"):
        problm.fit("y ~ a*t + b", {"t": ["soon"] * 30, "y": np.arange(30.0)})


def test_columns_of_text_beside_those_of_a_fit(tmp_path):
    rows = "\n".join(f"A{k};{k},5;{2 * k + 1},0" for k in range(12))
    (tmp_path / "a.csv").write_text(f"well;dose;resp\n{rows}\n")
    fit = problm.fit("resp ~ a*dose + b", tmp_path / "a.csv")
    np.testing.assert_allclose(fit.values, [2, 0], atol=1e-9)
    with pytest.raises(ValueError, match="is not a number"):
        problm.read_columns(tmp_path / "a.csv", ["well"])
