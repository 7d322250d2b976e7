"""Differences by one call of functions that broadcast their parameters: fewer calls, the same bits."""

import math

import numpy as np
import pytest

import problm
from problm.api.plain_curve import PlainCurve
from problm.problems import stacked
from problm.problems.stacked import Stacked

X = np.linspace(0.0, 5.0, 200)
K = 4
TRUTH = np.append(np.stack([np.linspace(1.0, 2.0, K), np.linspace(0.5, 4.5, K), np.full(K, 0.3)], axis=1).ravel(), 0.2)
START = TRUTH * np.where(np.arange(len(TRUTH)) % 2, 1.02, 0.97)


def peaks(t, x):
    out = t[-1] + 0.0 * x
    for i in range(K):
        out = out + t[3 * i] * np.exp(-0.5 * ((x - t[3 * i + 1]) / t[3 * i + 2]) ** 2)
    return out


Y = peaks(TRUTH, X) + 0.05 * np.random.default_rng(0).standard_normal(len(X))


class Counted:
    """A function of theta and x that counts its calls, for numbers and for arrays."""

    def __init__(self, function):
        self.function, self.calls, self.stacked = function, 0, 0

    def __call__(self, t, x):
        self.calls += 1
        self.stacked += np.ndim(t[0]) > 0
        return self.function(t, x)

    def residuals(self, t, x, y):
        return self(t, x) - y

    def curve(self, x, *t):
        return self(t, x)


def fit(function, way, monkeypatch, most=None):
    counted = Counted(function)
    if most is not None:
        monkeypatch.setattr(stacked, "MOST", most)
    if way == "least_squares":
        found = problm.least_squares(counted.residuals, START, data=(X, Y)).x
    elif way == "closure":
        found = problm.least_squares(lambda t: counted(t, X) - Y, START).x
    else:
        found = problm.curve_fit(lambda x, *t: counted(t, x), X, Y, START)[0]
    monkeypatch.undo()
    return found, counted


@pytest.mark.parametrize("way", ["least_squares", "closure", "curve_fit"])
def test_fewer_calls_and_the_same_bits(way, monkeypatch):
    one, single = fit(peaks, way, monkeypatch, most=0)
    found, both = fit(peaks, way, monkeypatch)
    assert found.tobytes() == one.tobytes()
    assert not single.stacked
    assert both.stacked >= 3
    assert both.calls < 0.5 * single.calls


def branches(t, x):
    return peaks(t, x) if t[0] > 0.0 else 0.0 * x


def numbers(t, x):
    return math.exp(math.log(t[0])) * np.exp(-0.5 * ((x - t[1]) / t[2]) ** 2) + peaks([0.0, *t[1:]], x)


def totals(t, x):
    return peaks(t, x) + 0.01 * np.sum(t)


def products(t, x):
    return np.exp(-(((x[:, None] - 5.0 * np.arange(13) / 12) / 0.4) ** 2)) @ np.asarray(t)


def in_place(t, x):
    out = np.zeros_like(x)
    for i in range(K):
        out += t[3 * i] * np.exp(-0.5 * ((x - t[3 * i + 1]) / t[3 * i + 2]) ** 2)
    out += t[-1]
    return out


@pytest.mark.parametrize("way", ["least_squares", "curve_fit"])
@pytest.mark.parametrize("function", [branches, numbers, totals, products, in_place])
def test_other_functions_are_tried_once(function, way, monkeypatch):
    one, single = fit(function, way, monkeypatch, most=0)
    found, both = fit(function, way, monkeypatch)
    assert found.tobytes() == one.tobytes()
    assert both.stacked <= 2  # the general way tries again where the short way hands over
    assert both.calls <= single.calls + 2 * len(TRUTH) + 2


def test_a_function_that_stops_broadcasting_is_noticed():
    points = np.tile(TRUTH, (len(TRUTH), 1)) + 1e-8 * np.diag(TRUTH)
    tries = Stacked()
    assert tries.values(lambda t: peaks(t, X), lambda t: peaks(t, X), points, len(X)) is not None
    assert tries.works
    assert tries.values(lambda t: peaks(t, X) + 1e-12, lambda t: peaks(t, X), points, len(X)) is None
    assert not tries.pays(len(TRUTH), len(X))


def test_few_parameters_and_many_rows_are_called_one_by_one():
    assert not Stacked().pays(stacked.FEWEST - 1, 10)
    assert not Stacked().pays(10, stacked.MOST)


@pytest.mark.parametrize("sigma", [None, np.linspace(1.0, 2.0, len(X))])
def test_the_short_way_of_curve_fit(sigma):
    def f(x, *t):
        return peaks(t, x)

    jacobians = []
    for works in (None, False):
        curve = PlainCurve(f, None, X, Y, sigma)
        curve._stacked.works = works
        curve._looks = 0
        curve._least, curve._widths = [0.01] * len(START), np.empty(len(START))
        curve.cost(START)
        curve._normal(START)
        jacobians.append(curve._point[2])
        assert curve._stacked.works is (works is None)
    assert jacobians[0].tobytes() == jacobians[1].tobytes()
