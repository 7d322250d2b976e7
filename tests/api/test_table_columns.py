"""Tables as data of every fit: frames, mappings and files, with columns by name."""

import numpy as np
import pytest

import problm

DECAY = "y ~ a*exp(-k*$2)"
GROUPS = np.repeat(["left", "ü 2"], 200)


def columns():
    rng = np.random.default_rng(0)
    x = np.tile(np.linspace(0.0, 5.0, 200), 2)
    y = np.exp(-0.8 * x) * np.where(GROUPS == "left", 2.0, 3.0) + 0.02 * rng.standard_normal(x.size)
    return {
        "note": GROUPS, "x (s)": x, "y": y, "n": rng.poisson(30.0 * np.exp(-0.8 * x) + 2.0), "s": np.full(x.size, 0.02),
        "tried": np.full(x.size, 40), "died": rng.binomial(40, 1.0 / (1.0 + np.exp(-2.0 * (x - 2.0)))),
        "side": np.where(y < 0.1, -1, 0),
    }  # fmt: skip


def tables(kind, folder):
    found = columns()
    if kind == "mapping":
        return found
    if kind in ("pandas", "categories"):
        frame = pytest.importorskip("pandas").DataFrame(found)
        return frame.astype({"note": "category"}) if kind == "categories" else frame
    if kind == "polars":
        return pytest.importorskip("polars").DataFrame(found)
    if kind == "csv":
        rows = zip(*(found[name].tolist() for name in found), strict=True)
        text = "\n".join([",".join(found), *(",".join(map(str, row)) for row in rows)])
        (folder / "t.csv").write_text(text, encoding="utf-8")
        return folder / "t.csv"
    table = pytest.importorskip("pyarrow").table(found)
    if kind == "parquet":
        pytest.importorskip("pyarrow.parquet").write_table(table, folder / "t.parquet", row_group_size=90)
        return folder / "t.parquet"
    return table


@pytest.mark.parametrize("kind", ["mapping", "pandas", "categories", "polars", "pyarrow", "csv", "parquet"])
def test_columns_by_name(kind, tmp_path):
    table, c = tables(kind, tmp_path), columns()
    x = c["x (s)"]

    def same(by_name, by_arrays):
        assert by_name.names == by_arrays.names
        np.testing.assert_allclose(by_name.values, by_arrays.values, rtol=1e-6)
        np.testing.assert_allclose(by_name.errors, by_arrays.errors, rtol=1e-6)

    same(
        problm.fit("y ~ a*exp(-k*`x (s)`)", table, sigma="s", absolute_sigma=True),
        problm.fit("a*exp(-k*x)", x, c["y"], sigma=c["s"], absolute_sigma=True),
    )
    same(
        problm.fit_groups("y ~ a*exp(-k*$2)", table, groups="note", shared=["k"], sigma="s"),
        problm.fit_groups("a*exp(-k*x)", x, c["y"], GROUPS, shared=["k"], sigma=c["s"]),
    )
    same(problm.fit_counts("n ~ a*exp(-k*x) + b", table), problm.fit_counts("a*exp(-k*x) + b", x, c["n"]))
    same(
        problm.fit_counts("died ~ 1/(1 + exp(-q*(x - m)))", table, trials="tried"),
        problm.fit_counts("1/(1 + exp(-q*(x - m)))", x, c["died"], trials=40),
    )
    same(
        problm.fit_censored("y ~ a*exp(-k*x)", table, limit="side", sigma="s"),
        problm.fit_censored("a*exp(-k*x)", x, c["y"], c["side"], c["s"]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: problm.fit_groups(DECAY, t, groups="not"), "groups: 'not' is not a column .did you mean"),
        (lambda t: problm.fit_groups(DECAY, t), "groups is needed"),
        (lambda t: problm.fit_groups(DECAY, {**t, "note": [None, *GROUPS[1:]]}, groups="note"), "row 0 is missing"),
        (lambda t: problm.fit_groups("note ~ a*exp(-k*$2)", t, groups="note"), "not numbers"),
        (lambda t: problm.fit_groups("a*x", t["x (s)"], t["y"], "note"), "'note' names a column, but y is given"),
        (lambda t: problm.fit("a*x", t["x (s)"], t["y"], sigma="s"), "'s' names a column, but y is given"),
        (lambda t: problm.fit_counts("n ~ a*exp(-k*$2)", t, trials="tries"), "trials: 'tries' is not a column"),
        (lambda t: problm.fit_counts("a*exp(-k*$2)", t), "name the column to fit"),
        (lambda t: problm.fit_censored(DECAY, t, limit="side"), "sigma is needed"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(columns())


def test_plans_of_polars_are_refused():
    polars = pytest.importorskip("polars")
    with pytest.raises(TypeError, match="collect"):
        problm.fit_counts("n ~ a*exp(-k*`x (s)`)", polars.LazyFrame(columns()))


def test_labels_of_parquet_that_a_fit_cannot_use(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    x = np.arange(12_000.0)
    for labels, message in (
        (arrow.array([None, *map(str, x[1:] % 3)]), "missing"),
        (arrow.array(map(str, x)), "at most 10,000 different labels"),
        (arrow.array(["a" * 300, *map(str, x[1:] % 3)]), "of 200 characters"),
    ):
        parquet.write_table(arrow.table({"g": labels, "x": x, "y": x}), tmp_path / "t.parquet", row_group_size=5_000)
        with pytest.raises(ValueError, match=message):
            problm.fit_groups("y ~ a*x", tmp_path / "t.parquet", groups="g")


def test_predictions_and_bands_at_a_table():
    """The columns of the variables are taken by name, whatever else the table holds and in whatever order."""
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    rng = np.random.default_rng(5)
    t, u = rng.uniform(0, 3, (2, 60))
    table = {"counts": 2.0 * np.exp(-t) + 0.5 * u + 0.01 * rng.standard_normal(60), "u": u, "err": 0.01 + 0 * t, "t": t}
    fit = problm.fit("counts ~ a*exp(-b*t) + c*u", table, sigma="err")
    single = problm.fit("counts ~ a*exp(-b*t) + c", table)
    for kind in (dict, pandas.DataFrame, arrow.table):
        np.testing.assert_array_equal(fit.predict(kind(table)), fit.predict(np.stack([t, u])))
        np.testing.assert_array_equal(fit.confidence_band(kind(table)).upper, fit.confidence_band([t, u]).upper)
        np.testing.assert_array_equal(single.predict(kind(table)), single.predict(t))
