"""Habits of the ecosystem: columns of other libraries, notebooks, warnings, logging, an import that changes nothing."""

from __future__ import annotations

import logging
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import problm
from problm.report import page
from problm.report.html import result_html, table
from problm.report.plots import plot_curve, plot_prediction, plot_result


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(11)
    x = rng.uniform(0, 4, 3000)
    return x, 2.0 * np.exp(-1.5 * x) + 0.05 * rng.standard_normal(x.size)


def decay(x, a, b):
    return a * np.exp(-b * x)


@pytest.fixture(scope="module")
def fitted(data):
    return problm.curve_fit(decay, *data, [1, 1], full_output=True)[2]["result"]


def _libraries():
    def pandas(x):
        return pytest.importorskip("pandas").Series(x, index=np.arange(len(x))[::-1])

    def polars(x):
        return pytest.importorskip("polars").Series(x)

    def arrow(x):
        return pytest.importorskip("pyarrow").array(x)

    def chunked(x):
        return pytest.importorskip("pyarrow").chunked_array([x[:1000], x[1000:]])

    def xarray(x):
        return pytest.importorskip("xarray").DataArray(x, dims=["time"])

    return [
        pandas,
        polars,
        arrow,
        chunked,
        xarray,
        list,
        lambda x: x.astype(np.float32).astype(np.float64)[:, None][:, 0],
    ]


@pytest.mark.parametrize("library", _libraries())
def test_columns_of_other_libraries(data, fitted, library):
    x, y = (library(v) for v in data)
    popt, _ = problm.curve_fit(decay, x, y, [1, 1])
    np.testing.assert_allclose(popt, fitted.x, rtol=1e-5)
    fit = problm.least_squares(lambda t, x, y: decay(x, *t) - y, [1, 1], data=(x, y))
    np.testing.assert_allclose(fit.x, fitted.x, rtol=1e-5)
    compiled, _ = problm.curve_fit(problm.formula("a*exp(-b*x)"), x, y, [1, 1])
    np.testing.assert_allclose(compiled, fitted.x, rtol=1e-5)


def test_data_frames_as_several_variables(data):
    pd = pytest.importorskip("pandas")
    x, y = data
    frame = pd.DataFrame({"u": x, "v": np.sqrt(x)})
    popt, _ = problm.curve_fit(lambda x, a, b, c: a * np.exp(-b * x["u"]) + c * x["v"], frame, y, [1, 1, 0])
    np.testing.assert_allclose(popt[:2], [2, 1.5], atol=0.1)


def test_missing_values_of_pandas_are_named(data):
    pd = pytest.importorskip("pandas")
    x, y = data
    holes = pd.Series(y).astype("Float64")
    holes[5] = pd.NA
    with pytest.raises(ValueError, match="ydata"):
        problm.curve_fit(decay, x, holes, [1, 1])


def test_fixed_parameters_have_no_error(data):
    x, y = data
    fit = problm.least_squares(lambda t, x, y: decay(x, *t) - y, [1.0, 1.5], data=(x, y), fixed=[1])
    assert fit.standard_errors[1] == 0.0
    slope = np.exp(-1.5 * x)
    expected = 2 * fit.cost / (len(x) - 1) / (slope @ slope)
    assert fit.covariance[0, 0] == pytest.approx(expected, rel=1e-9)
    assert "(fixed)" in fit.report()


# --- notebooks and pictures ----------------------------------------------------------------------------------


class Strict(HTMLParser):
    """Fails on tags that are not closed."""

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "img", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_text_and_html(fitted):
    assert repr(fitted).startswith("<problm.Result gradient: x=[") or repr(fitted).startswith("<problm.Result ")
    assert "\n" not in repr(fitted)
    assert str(fitted) == fitted.report()
    for text in ("Converged", "a ", "±", "reduced chi2"):
        assert text in str(fitted)
    Strict(fitted._repr_html_())
    assert "<td>b</td>" in fitted._repr_html_()


def test_other_results_in_a_notebook():
    from problm.vision.two_view.simulate import two_views

    views = two_views(60, seed=1)
    x = np.linspace(0, 5, 50)
    for result in (
        problm.essential_matrix(views.x1, views.x2, views.K, robust=False),
        problm.separable_fit(lambda x, r: [np.exp(-r[0] * x), 1.0], [1.0], x, np.exp(-0.5 * x)),
    ):
        Strict(result._repr_html_())
        assert str(result).splitlines()[0] in result._repr_html_()


def test_every_string_is_escaped(fitted):
    evil = "<script>alert('&')</script>"
    import dataclasses

    named = dataclasses.replace(fitted, names=(evil, "b"), message=evil)
    for text in (
        result_html(named),
        table([evil], [[evil]]),
        page.page(
            evil, [page.heading(evil), page.paragraph(evil), page.listing(evil), page.wide_table([evil], [[evil]])]
        ),
        page.picture(b"", evil),
    ):
        assert "<script" not in text
        assert "&lt;script&gt;" in text
        Strict(text)
    assert plot_result(named) is not None


def test_the_page_loads_nothing(fitted):
    text = page.page("t", [page.picture(page.figure_png(fitted.plot()), "c")])
    assert "default-src 'none'" in text
    assert "http://" not in text
    assert "https://" not in text
    assert "prefers-color-scheme: dark" in text
    assert "width=device-width" in text
    Strict(text)


def test_pictures(fitted, data):
    figure = fitted.plot()
    assert len(figure.axes) == 5  # four panels and a colour bar
    assert page.figure_png(figure) == page.figure_png(fitted.plot())
    x, y = data
    few = plot_curve(x, y, lambda t: decay(t, *fitted.x), labels=("time in $", "U"))
    assert any(line.get_label() == "data" for line in few.axes[0].lines)
    assert few.savefig is not None
    page.figure_png(few)
    many = plot_curve(np.tile(x, 10), np.tile(y, 10), lambda t: decay(t, *fitted.x))
    assert many.axes[0].collections  # a density
    existing = figure.axes[0]
    assert plot_curve(x, y, lambda t: t, ax=existing) is figure
    assert plot_prediction(y, decay(x, *fitted.x)).axes[0].get_xlabel() == "y, predicted"
    assert plot_prediction(y, y, ax=existing) is figure


def test_without_matplotlib(fitted, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"problm\[plot\]"):
        fitted.plot()


def test_progress_goes_to_a_terminal_only(data, capsys, monkeypatch):
    problm.least_squares(lambda t, x, y: decay(x, *t) - y, [1, 1], data=data, progress=True)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    problm.least_squares(lambda t, x, y: decay(x, *t) - y, [1, 1], data=data, progress=True)
    shown = capsys.readouterr().err
    assert "batch" in shown
    assert shown.endswith("\r")
    seen = []
    problm.least_squares(lambda t, x, y: decay(x, *t) - y, [1, 1], data=data, progress=seen.append)
    assert seen


# --- warnings, logging, import -------------------------------------------------------------------------------


def test_warnings_are_our_own(data):
    assert issubclass(problm.ConvergenceWarning, problm.ProblmWarning)
    with pytest.warns(problm.ConvergenceWarning):
        problm.curve_fit(decay, *data, [1, 1], max_iter=1)


def test_messages_go_through_logging():
    assert logging.getLogger("problm").handlers == []


def test_import_is_light_and_changes_nothing():
    code = """
import sys, os, warnings, locale, logging
import numpy as np

def state():
    handlers = logging.root.handlers[:]
    return dict(os.environ), list(warnings.filters), np.geterr(), locale.setlocale(locale.LC_ALL), handlers

before = state()
heavy = {"numba", "matplotlib", "cv2", "scipy", "pandas", "torch", "jax", "typer", "dask"}
import problm
assert not heavy & set(sys.modules), heavy & set(sys.modules)
assert before == state()
assert set(problm.__all__) <= set(dir(problm))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there_and_documented():
    for name in problm.__all__:
        value = getattr(problm, name)
        if not isinstance(value, str):
            assert (value.__doc__ or "").strip(), name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = problm.nonsense
