"""The short way of `curve_fit`: same bits and certificates as the general one, and what is handed over to it."""

from __future__ import annotations

import _thread
import warnings

import numpy as np
import pytest
import scipy.optimize
from bench.studies.scipy_calls import CURVES, OTHERS

import problm
from problm.api import curve_fit as front
from problm.api.curve_fit import fit
from problm.api.plain_curve import looks_linear, plain_fit
from problm.problems.quotients import quotients
from problm.problems.row_wise import tried_rows
from problm.solver.compiled.advance import Steps, at_hand

pytestmark = pytest.mark.skipif(not at_hand(), reason="compiled code was not built")


def rise(x, a, k, c):
    return a * (1.0 - np.exp(-k * x)) + c


def rise_by(x, a, k, c):
    e = np.exp(-k * x)
    return np.stack([1.0 - e, a * x * e, np.ones_like(x)], axis=1)


def points(n=300, seed=0, noise=0.05):
    rng = np.random.default_rng([seed, n])
    x = np.sort(rng.uniform(0.0, 4.0, n))
    return x, rise(x, 2.0, 1.3, 0.4) + noise * rng.standard_normal(n)


@pytest.mark.parametrize("jac", [None, rise_by])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_it_has_the_bits_of_the_general_way(jac, weighted, absolute, seed):
    x, y = points(seed=seed)
    sigma = np.linspace(0.05, 0.1, len(x)) if weighted else None
    found = plain_fit(rise, x, y, [1.0, 1.0, 0.0], sigma, absolute, jac)
    assert isinstance(found, tuple)
    general = fit(rise, x, y, [1.0, 1.0, 0.0], sigma, absolute_sigma=absolute, jac=jac, certificate="bound")
    np.testing.assert_array_equal(found[0], general.x)
    np.testing.assert_allclose(found[1], general.covariance, rtol=1e-13)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_formula_has_the_bits_of_the_general_way(weighted, seed):
    x, y = points(seed=seed)
    model = problm.formula("a*(1 - exp(-k*x)) + c")
    sigma = np.linspace(0.05, 0.1, len(x)) if weighted else None
    found = plain_fit(model, x, y, [1.0, 1.0, 0.0], sigma, weighted, None)
    assert isinstance(found, tuple)
    general = fit(model, x, y, [1.0, 1.0, 0.0], sigma, absolute_sigma=weighted, certificate="bound")
    np.testing.assert_array_equal(found[0], general.x)
    np.testing.assert_allclose(found[1], general.covariance, rtol=1e-13)


def test_a_formula_from_a_singular_start_is_handed_over(monkeypatch):
    kinds = handed_over(monkeypatch)
    x, y = points()
    popt, _ = problm.curve_fit(problm.formula("a*(1 - exp(-k*x)) + c"), x, y, [0.0, 1.0, 0.0])
    assert kinds == [Steps]
    np.testing.assert_allclose(popt, [2.0, 1.3, 0.4], atol=0.1)


def test_a_linear_function_takes_one_step():
    rng = np.random.default_rng(3)
    x = np.linspace(-1.0, 2.0, 400)
    y = 0.7 * x**2 - 1.2 * x + 3.0 + 0.1 * rng.standard_normal(400)
    calls = []

    def parabola(x, a, b, c):
        calls.append((a, b, c))
        return a * x**2 + b * x + c

    popt, pcov = problm.curve_fit(parabola, x, y)
    assert len(calls) == 1 + 3 + 1
    expected, covariance = np.polyfit(x, y, 2, cov=True)
    np.testing.assert_allclose(popt, expected, atol=1e-5 * np.sqrt(covariance.diagonal()).min())
    np.testing.assert_allclose(pcov, covariance, rtol=1e-6)


@pytest.mark.parametrize("by", [None, lambda x, a, b: np.stack([x, np.ones_like(x)], axis=1)])
@pytest.mark.parametrize("n", [10_000, 30_000, 100_000])
def test_a_linear_function_takes_one_step_over_many_points(n, by):
    x = np.linspace(0.0, 5.0, n)
    y = 2.0 * x + 1.0 + 0.1 * np.random.default_rng([4, n]).standard_normal(n)
    rows = []

    def line(x, a, b):
        rows.append(len(x))
        return a * x + b

    popt, pcov = problm.curve_fit(line, x, y, [0.0, 0.0], jac=by)
    assert rows.count(n) == (4 if by is None else 2)
    assert sum(rows) - rows.count(n) * n <= 3 * 64
    expected, covariance = np.polyfit(x, y, 1, cov=True)
    np.testing.assert_allclose(popt, expected, rtol=1e-11)
    np.testing.assert_allclose(pcov, covariance, rtol=1e-9)


@pytest.mark.parametrize("n", [10_000, 30_000])
def test_a_function_that_is_linear_at_the_points_that_are_looked_at_is_not_taken_for_one(n, monkeypatch):
    kinds = handed_over(monkeypatch)
    x = np.linspace(0.0, 1.0, n)
    bent = np.ones(n, dtype=bool)
    bent[tried_rows(n)] = False
    special = set(x[~bent].tolist())

    def curve(x, a, b):
        square = 0.2 * b * b * ~np.isin(x, list(special))
        return a * x + b + square

    y = curve(x, 2.0, 0.7) + 0.1 * np.random.default_rng([9, n]).standard_normal(n)
    assert looks_linear(curve, x, np.ones(2))
    popt, pcov = problm.curve_fit(curve, x, y, [1.0, 1.0])
    assert kinds == [type(None)]
    exact = problm.least_squares(lambda t: curve(x, *t) - y, popt, jac="3-point", gtol=1e-12)
    assert (np.abs(popt - exact.x) <= 0.02 * np.sqrt(pcov.diagonal())).all()


@pytest.mark.parametrize("by", [None, lambda x, a, b: np.stack([x, np.ones_like(x)], axis=1)])
def test_a_linear_function_with_a_parameter_that_starts_at_its_end_takes_one_step(by, monkeypatch):
    kinds, n = handed_over(monkeypatch), 30_000
    x = np.linspace(-1.0, 1.0, n)
    y = 2.0 * x + 1.0 + 0.1 * np.random.default_rng(14).standard_normal(n)
    expected, covariance = np.polyfit(x, y, 1, cov=True)
    popt, pcov = problm.curve_fit(lambda x, a, b: a * x + b, x, y, [0.0, expected[1]], jac=by)
    assert kinds == [tuple]
    np.testing.assert_allclose(popt, expected, rtol=1e-11)
    np.testing.assert_allclose(pcov, covariance, rtol=1e-9, atol=1e-15)


def test_a_parameter_that_the_step_leaves_does_not_hide_that_a_function_is_not_linear(monkeypatch):
    kinds, n = handed_over(monkeypatch), 30_000
    x = np.linspace(-1.0, 1.0, n)
    plain = np.isin(np.arange(n), tried_rows(n))
    special = x[plain]

    def curve(x, a, b):
        return a * x + b + 0.3 * a * (b - 1.0) * x * ~np.isin(x, special)

    def move_of_b(b):
        j = np.stack([x + 0.3 * (b - 1.0) * x * ~plain, 1.0 + 0.3 * x * ~plain], axis=1)
        return np.linalg.lstsq(j, y - curve(x, 1.0, b))[0][1]

    y = curve(x, 2.0, 1.0) + 0.1 * np.random.default_rng(15).standard_normal(n)
    start = [1.0, scipy.optimize.brentq(move_of_b, 0.9, 1.1, xtol=1e-15)]
    assert looks_linear(curve, x, np.array(start))
    popt, pcov = problm.curve_fit(curve, x, y, start)
    assert kinds == [type(None)]
    exact = problm.least_squares(lambda t: curve(x, *t) - y, popt, jac="3-point", gtol=1e-12).x
    assert (np.abs(popt - exact) <= 0.02 * np.sqrt(pcov.diagonal())).all()


def test_terms_of_two_parameters_do_not_cancel():
    assert not looks_linear(lambda x, a, b: a * a * x - b * b * x, np.linspace(0.0, 1.0, 100), np.ones(2))


@pytest.mark.parametrize(
    "curve",
    [
        lambda x, a, b: a * b * x + a,  # bilinear
        lambda x, a, b: a * np.exp(b * x),
        lambda x, a, b: a * x + b * b,
        lambda x, a, b: a * x + 1e-3 * b * b * x**2 + b,  # nearly linear
    ],
)
@pytest.mark.parametrize("start", [[1.0, 1.0], [1.9, 0.7], [2.0, 0.701]])
def test_a_function_that_is_not_linear_is_not_taken_for_one(curve, start):
    rng = np.random.default_rng(8)
    x = np.linspace(0.0, 1.0, 150)
    y = curve(x, 2.0, 0.7) + 0.1 * rng.standard_normal(150)
    popt, pcov = problm.curve_fit(curve, x, y, start)
    exact = problm.least_squares(lambda t: curve(x, *t) - y, popt, jac="3-point", gtol=1e-12)
    assert (np.abs(popt - exact.x) <= 1e-4 * np.sqrt(pcov.diagonal())).all()


def calls_of_both(curve, x, y, start):
    """Number of calls of the function, ours and MINPACK's."""
    made = []

    def counted(x, *theta):
        made.append(theta)
        return curve(x, *theta)

    problm.curve_fit(counted, x, y, start)
    ours = len(made)
    scipy.optimize.curve_fit(counted, x, y, start)
    return ours, len(made) - ours


@pytest.mark.parametrize("n", [50, 200, 1000])
@pytest.mark.parametrize("curve", [*CURVES.values(), *OTHERS.values()], ids=[*CURVES, *OTHERS])
def test_about_as_many_calls_as_minpack(curve, n):
    """Counted over five fits; some take one linearisation more."""
    x = np.linspace(*curve.range, n)
    ours = theirs = 0
    for seed in range(5):
        y = curve.f(x, *curve.truth) + 0.1 * np.random.default_rng([seed, n]).standard_normal(n)
        counts = calls_of_both(curve.f, x, y, np.array(curve.start))
        ours, theirs = ours + counts[0], theirs + counts[1]
    assert ours <= 1.25 * theirs


def handed_over(monkeypatch):
    """The kinds of what the short way found in each call."""
    kinds = []

    def noted(*args):
        found = plain_fit(*args)
        kinds.append(type(found))
        return found

    monkeypatch.setattr(front, "plain_fit", noted)
    return kinds


def test_exact_data_give_exact_parameters():
    x, y = points(noise=0.0)
    popt, _ = problm.curve_fit(rise, x, y)
    np.testing.assert_allclose(popt, [2.0, 1.3, 0.4], rtol=1e-9)


def test_a_trial_outside_the_domain_is_handed_over(monkeypatch):
    kinds = handed_over(monkeypatch)
    x = np.linspace(0.0, 5.0, 200)
    y = 2.0 * np.log(x + 0.5) + 1.0 + 0.1 * np.random.default_rng(77).standard_normal(200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        popt, _ = problm.curve_fit(lambda x, a, b, c: a * np.log(x + b) + c, x, y, [1.0, 1.0, 0.0])
    assert kinds == [Steps]
    np.testing.assert_allclose(popt, [2.0, 0.5, 1.0], atol=0.3)


@pytest.mark.parametrize(
    "change",
    [
        lambda x, y: (rise, x.tolist(), y),
        lambda x, y: (rise, x.astype(np.float32), y),
        lambda x, y: (rise, x, np.ma.array(y)),
        lambda x, y: (lambda x, a, k, c: rise(x, a, k, c).astype(np.float32), x, y),
        lambda x, y: (lambda x, a, k, c: list(rise(x, a, k, c)), x, y),
    ],
)
def test_what_is_not_plain_takes_the_general_way(change, monkeypatch):
    kinds = handed_over(monkeypatch)
    f, x, y = change(*points())
    popt, _ = problm.curve_fit(f, x, y, [1.0, 1.0, 0.0])
    assert kinds == [type(None)]
    np.testing.assert_allclose(popt, [2.0, 1.3, 0.4], atol=0.1)


@pytest.mark.parametrize("weighted", [False, True])
def test_arrays_of_any_layout_give_the_same_bits(weighted, monkeypatch):
    kinds, (x, y) = handed_over(monkeypatch), points()
    sigma = np.linspace(0.05, 0.1, len(x))
    table = np.stack([x, y, sigma, y], axis=1)
    locked = table.T.copy()
    locked.flags.writeable = False
    found = []
    for columns in (table.T.copy(), table.T, table.T[:, ::-1][:, ::-1], locked):
        popt, pcov = problm.curve_fit(rise, *columns[:2], [1.0, 1.0, 0.0], columns[2] if weighted else None)
        found.append(popt.tobytes() + pcov.tobytes())
    assert kinds == [tuple] * 4
    assert len(set(found)) == 1


@pytest.mark.parametrize("sigma", [None, np.linspace(0.5, 2.0, 37)])
def test_quotients_have_the_bits_of_numpy(sigma):
    rng = np.random.default_rng(5)
    values, y, r, widths = rng.normal(size=(3, 37)), rng.normal(size=37), rng.normal(size=37), rng.normal(size=3)
    expected = ((values - y) / (1.0 if sigma is None else sigma) - r) / widths[:, None]
    quotients(values, y, np.empty(0) if sigma is None else sigma, r, widths)
    np.testing.assert_array_equal(values, expected)


def test_values_that_are_not_finite_are_named():
    x, y = points()
    y[7] = np.nan
    with pytest.raises(ValueError, match="ydata is not finite at row 7"):
        problm.curve_fit(rise, x, y)
    with pytest.raises(ValueError, match="not finite at row 0"), np.errstate(all="ignore"):
        problm.curve_fit(lambda x, a: a / x, np.arange(5.0), np.ones(5))


def test_an_error_of_the_function_says_how_far_the_solve_came():
    calls = []

    def fails(x, a, k, c):
        calls.append(a)
        if len(calls) == 7:
            raise RuntimeError("sensor")
        return rise(x, a, k, c)

    with pytest.raises(RuntimeError, match="sensor") as caught:
        problm.curve_fit(fails, *points())
    assert any("best point" in note for note in caught.value.__notes__)


def test_ctrl_c_returns_the_best_point():
    calls = []

    def slow(x, a, k, c):
        calls.append(a)
        if len(calls) == 6:
            _thread.interrupt_main()
            sum(range(1000))  # so that the interpreter looks at its signals
        return rise(x, a, k, c)

    x, y = points()
    with pytest.warns(problm.ConvergenceWarning, match="[Ii]nterrupt"):
        popt, _ = problm.curve_fit(slow, x, y)
    start = np.ones(3)
    assert np.sum((rise(x, *popt) - y) ** 2) < np.sum((rise(x, *start) - y) ** 2)


def test_calls_of_many_points_are_at_most_those_of_minpack():
    calls = {scipy.optimize.curve_fit: 0, problm.curve_fit: 0}
    for curve in (*CURVES.values(), *OTHERS.values()):
        rng = np.random.default_rng(7)
        x = np.linspace(*curve.range, 10_000)
        y = curve.f(x, *curve.truth) + 0.1 * rng.standard_normal(x.size)
        found = {}
        for solver in calls:

            def counted(x, *theta, solver=solver, curve=curve):
                calls[solver] += np.size(x)
                return curve.f(x, *theta)

            found[solver], pcov = solver(counted, x, y, curve.start)
        apart = np.abs(found[scipy.optimize.curve_fit] - found[problm.curve_fit]) / np.sqrt(np.diag(pcov))
        assert apart.max() < 1e-3
    assert calls[problm.curve_fit] < calls[scipy.optimize.curve_fit]
