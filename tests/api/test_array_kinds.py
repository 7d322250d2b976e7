"""Arrays that are more, or less, than double precision: they are fitted as they are meant, or refused by name."""

import array
import datetime
import fractions
import sys
from types import ModuleType

import numpy as np
import pytest

import problm

MODEL = "a*exp(-b*x) + c"
X = np.linspace(0.0, 4.0, 120)
Y = 2.0 * np.exp(-1.3 * X) + 0.5 + 0.01 * np.random.default_rng(0).standard_normal(X.size)
GROUPS = np.repeat([0, 1], 60)


def curve(x, a, b, c):
    return a * np.exp(-b * x) + c


def separable(x, y):
    found = problm.separable_fit(lambda x, rate: np.stack([np.exp(-rate * x), np.ones_like(x)], 1), [1.0], x, y)
    return [found.coefficients[0], found.alpha[0], found.coefficients[1]]


CALLS = {
    "curve_fit": lambda x, y: problm.curve_fit(curve, x, y)[0],
    "least_squares": lambda x, y: problm.least_squares(
        lambda t, x, y: curve(x, *t) - y, [1.0, 1.0, 0.0], data=(x, y)).x,
    "fit": lambda x, y: problm.fit(MODEL, x, y).values,
    "fit_groups": lambda x, y: problm.fit_groups(MODEL, x, y, GROUPS, shared=["a", "b", "c"]).values,
    "fit_many": lambda x, y: problm.fit_many(MODEL, x, y).values[0],
    "separable_fit": separable,
}  # fmt: skip
WANTED = CALLS["curve_fit"](X, Y)
EQUAL = {
    "extended": lambda v: v.astype(np.longdouble),
    "swapped": lambda v: v.astype(">f8"),
    "objects": lambda v: v.astype(object),
    "fractions": lambda v: [fractions.Fraction(float(value)) for value in v],
    "text": lambda v: np.array([repr(float(value)) for value in v]),
    "array": lambda v: array.array("d", v),
    "strided": lambda v: np.repeat(v, 2)[::2],
    "no mask": np.ma.array,
}


@pytest.mark.parametrize("kind", EQUAL)
@pytest.mark.parametrize("call", CALLS)
def test_kinds_of_equal_numbers_give_the_same_fit(call, kind):
    x = X if kind == "array" and call == "separable_fit" else EQUAL[kind](X)
    assert np.allclose(CALLS[call](x, EQUAL[kind](Y)), WANTED, rtol=1e-3)


class Units(np.ndarray):
    """What a quantity of astropy looks like."""

    __module__ = "astropy.units.quantity"
    unit = "m"


def masked(v):
    return np.ma.array(v, mask=np.arange(len(v)) == 3)


REFUSED = {
    "units": (lambda v: v.view(Units), "units"),
    "list of units": (lambda v: [value.view(Units) for value in np.split(v, len(v))], "units"),
    "objects with units": (lambda v: _objects([value.view(Units) for value in np.split(v, len(v))]), "units"),
    "masked": (masked, "masked"),
    "times": (lambda v: (v * 1e6).astype("m8[us]"), "times"),
    "dates": (lambda v: [datetime.datetime(2026, 1, 1) + datetime.timedelta(hours=float(h)) for h in v], "timedelta64"),
    "complex": (lambda v: v + 1j, "complex|real|imaginary"),
    "mapping": (lambda v: dict(enumerate(v)), "numbers"),
    "decimal comma": (lambda v: [str(value).replace(".", ",") for value in v], "numbers"),
}


def _objects(values):
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("call", CALLS)
def test_what_would_be_dropped_is_refused(call, kind):
    make, word = REFUSED[kind]
    with pytest.raises((ValueError, TypeError), match=word):
        CALLS[call](X, make(Y))


@pytest.mark.parametrize("name", ["sigma", "x_sigma"])
@pytest.mark.parametrize("kind", ["units", "masked", "times"])
def test_errors_with_units_or_masks_are_refused(name, kind):
    make, word = REFUSED[kind]
    with pytest.raises(ValueError, match=word):
        problm.fit(MODEL, X, Y, p0=[2.0, 1.0, 0.5], **{name: make(np.full(X.size, 0.01))})


def test_values_of_a_model_refuse_units_and_masks():
    fitted = problm.fit(MODEL, X, Y)
    for evaluate in (fitted.predict, fitted.confidence_band, lambda x: fitted.model(x, 1.0, 1.0, 1.0)):
        with pytest.raises(ValueError, match="x has units"):
            evaluate(X.view(Units))
        with pytest.raises(ValueError, match="x has masked values"):
            evaluate(masked(X))


def test_a_column_of_a_table_without_unit_is_taken(monkeypatch):
    class Column(np.ndarray):
        __module__ = "astropy.table.column"
        unit = None

    assert np.allclose(problm.fit(MODEL, X.view(Column), Y.view(Column)).values, WANTED, rtol=1e-3)


def test_units_within_a_labelled_array_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", ModuleType("xarray"))

    class Labelled:
        __module__ = "xarray.core.dataarray"
        data = Y.view(Units)

        def __array__(self, dtype=None, copy=None):
            return np.asarray(self.data)

        def to_numpy(self):
            return np.asarray(self.data)

    with pytest.raises(ValueError, match="units"):
        problm.curve_fit(curve, X, Labelled())


def test_complex_x_is_refused_by_formulas():
    for call in (problm.fit, lambda model, x, y: problm.curve_fit(problm.formula(model), x, y)):
        with pytest.raises(ValueError, match=r"x(data)? is complex"):
            call(MODEL, X + 0j, Y)


@pytest.mark.parametrize("kind", ["extended", "swapped", "objects", "fractions"])
def test_residuals_of_any_kind(kind):
    found = problm.least_squares(lambda t: EQUAL[kind](curve(X, *t) - Y), [1.0, 1.0, 0.0])
    assert np.allclose(found.x, WANTED, rtol=1e-3)


@pytest.mark.parametrize("given", [(X, Y[:, None]), (X[:, None], Y)])
def test_a_broadcast_of_rows_and_columns_is_refused(given):
    with pytest.raises(ValueError, match="broadcast"):
        problm.least_squares(lambda t, x, y: curve(x, *t) - y, [1.0, 1.0, 0.0], data=given)
    with pytest.raises(ValueError, match="broadcast"):
        problm.least_squares(lambda t: curve(given[0], *t) - given[1], [1.0, 1.0, 0.0])


def test_a_name_of_the_groups_model_stands_for_all_groups():
    fitted = problm.fit_groups(MODEL, X, Y, GROUPS, shared=["b", "c"], p0={"a": 3.0}, bounds={"a": (2.5, None)})
    assert min(fitted.params["a_0"].value, fitted.params["a_1"].value) >= 2.5
    held = problm.fit_groups(MODEL, X, Y, GROUPS, shared=["b", "c"], fixed={"a": 2.0, "a_1": 1.9})
    assert [held.params[name].value for name in ("a_0", "a_1")] == [2.0, 1.9]
    with pytest.raises(ValueError, match="no parameter 'd'"):
        problm.fit_groups(MODEL, X, Y, GROUPS, shared=["b", "c"], p0={"d": 3.0})
    with pytest.raises(TypeError, match="p0 must be a mapping"):
        problm.fit_groups(MODEL, X, Y, GROUPS, shared=["b", "c"], p0=[1.0, 2.0])
    with pytest.raises(ValueError, match="groups has masked values"):
        problm.fit_groups(MODEL, X, Y, masked(GROUPS))


def test_the_estimator_refuses_units_masks_and_times():
    sklearn = pytest.importorskip("problm.sklearn")
    for kind in ("units", "masked", "times"):
        make, word = REFUSED[kind]
        with pytest.raises(ValueError, match=word):
            sklearn.NonlinearRegressor(MODEL).fit(X[:, None], make(Y))
