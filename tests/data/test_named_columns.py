"""Tables as data: a formula takes the columns that it names, whatever their order."""

from __future__ import annotations

import numpy as np
import pytest

import problm

FORMULA = "y ~ a*exp(-b*x)"


@pytest.fixture(scope="module")
def table():
    """The response first, and a column that nobody needs."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 4, 20_000)
    return {"y": 2 * np.exp(-1.5 * x) + 0.1 * rng.standard_normal(x.size), "extra": x**2, "x": x}


@pytest.fixture(scope="module")
def expected(table):
    return problm.least_squares(problm.formula(FORMULA), [1, 1], data=(table["x"], table["y"])).x


def as_parquet(table, folder):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table(table), folder / "t.parquet")
    return folder / "t.parquet"


def as_dataset(table, folder):
    as_parquet(table, folder)
    return pytest.importorskip("pyarrow.dataset").dataset(folder / "t.parquet")


def as_npz(table, folder):
    np.savez(folder / "t.npz", **table)
    return str(folder / "t.npz")


def as_dask(table, folder):
    dd = pytest.importorskip("dask.dataframe")
    return dd.from_pandas(pytest.importorskip("pandas").DataFrame(table), npartitions=3)


KINDS = {
    "mapping": lambda table, folder: table,
    "pandas": lambda table, folder: pytest.importorskip("pandas").DataFrame(table),
    "polars": lambda table, folder: pytest.importorskip("polars").DataFrame(table),
    "arrow": lambda table, folder: pytest.importorskip("pyarrow").table(table),
    "parquet": as_parquet,
    "dataset": as_dataset,
    "npz": as_npz,
    "dask": as_dask,
}


@pytest.mark.parametrize("kind", KINDS)
def test_formulas_take_columns_by_name(table, expected, tmp_path, kind):
    data = KINDS[kind](table, tmp_path)
    fit = problm.least_squares(problm.formula(FORMULA), [1, 1], data=data)
    np.testing.assert_array_equal(fit.x, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_functions_get_all_columns(table, expected, tmp_path, kind):
    data = KINDS[kind](table, tmp_path)
    fit = problm.least_squares(lambda t, y, _, x: t[0] * np.exp(-t[1] * x) - y, [1, 1], data=data)
    np.testing.assert_allclose(fit.x, expected, rtol=1e-5)


def test_the_response_is_what_is_left(table, expected):
    """A formula without a left side, and a table with one column more than it has variables."""
    data = {"y": table["y"], "x": table["x"]}
    fit = problm.least_squares(problm.formula("a*exp(-b*x)"), [1, 1], data=data)
    np.testing.assert_array_equal(fit.x, expected)


def test_other_names_go_by_position(table, expected):
    fit = problm.least_squares(problm.formula(FORMULA), [1, 1], data={"time": table["x"], "counts": table["y"]})
    np.testing.assert_array_equal(fit.x, expected)


def test_a_missing_column_is_named(table):
    with pytest.raises(ValueError, match="no column 'x'; there are y, X1"):
        problm.least_squares(problm.formula(FORMULA), [1, 1], data={"y": table["y"], "X1": table["x"]})


def test_lazy_frames_say_what_to_do(table):
    polars = pytest.importorskip("polars")
    with pytest.raises(TypeError, match="collect"):
        problm.least_squares(problm.formula(FORMULA), [1, 1], data=polars.DataFrame(table).lazy())
