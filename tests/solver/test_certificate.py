"""What a certificate means: the minimum is near, in standard errors, however the parameters are written."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

import problm
from problm.solver.result import Status


def peak(t, x, y):
    return t[0] * np.exp(-0.5 * ((x - t[1]) / t[2]) ** 2) + t[3] - y


def data(n, origin=0.0, seed=0):
    rng = np.random.default_rng(seed)
    x = origin + rng.uniform(0, 100, n)
    return x, peak([3.0, origin + 47.0, 6.0, 1.0], x, 0.0) + 0.3 * rng.standard_normal(n)


@pytest.mark.parametrize("n", [400, 40_000])
@pytest.mark.parametrize("origin", [0.0, 1.7e9])
def test_an_origin_far_away_changes_nothing(n, origin):
    near = problm.least_squares(peak, [2, 40, 8, 0], data=data(n))
    far = problm.least_squares(peak, [2, origin + 40, 8, 0], data=data(n, origin))
    assert far.success
    assert far.certified
    assert (np.abs(far.x - near.x - [0, origin, 0, 0]) <= 0.05 * near.standard_errors).all()


@pytest.mark.parametrize("n", [300, 30_000])
def test_mixing_the_parameters_changes_nothing(n):
    x, y = data(n)
    mix = np.random.default_rng(1).standard_normal((4, 4)) + 3.0 * np.eye(4)
    start = np.array([2.5, 45.0, 7.0, 0.5])
    plain = problm.least_squares(peak, start, data=(x, y), jac="3-point")
    mixed = problm.least_squares(
        lambda t, x, y: peak(mix @ t, x, y), np.linalg.solve(mix, start), data=(x, y), jac="3-point"
    )
    assert plain.status == mixed.status
    assert (np.abs(mix @ mixed.x - plain.x) <= 0.02 * plain.standard_errors).all()


def test_the_bound_of_the_last_step_holds():
    decay = problm.formula("a*exp(-b*x) + c")
    kinds = set()
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x = rng.uniform(0, 4, 300_000)
        rows = x, decay(x, 2.5, 1.3, 0.5) + 0.2 * rng.standard_normal(x.size)
        ours = problm.least_squares(decay, [1, 0.2, 0], data=rows)
        exact = problm.least_squares(decay, ours.x, data=rows, gtol=1e-10, acceptance="full")
        off = ours.x - exact.x
        distance = np.sqrt(off @ exact.hessian @ off / (2 * exact.cost / exact.degrees_of_freedom))
        assert distance <= max(2.0 * ours.distance, 1e-3) <= 0.02
        assert ours.cost == pytest.approx(exact.cost, rel=1e-9)
        kinds.add(ours.certificate)
    assert "bound" in kinds
    gradient = problm.least_squares(decay, [1, 0.2, 0], data=rows, certificate="gradient")
    assert gradient.certificate == "gradient"
    assert gradient.distance <= 0.01
    with pytest.raises(ValueError, match="certificate"):
        problm.least_squares(decay, [1, 0.2, 0], data=rows, certificate="both")


def test_a_saddle_point_of_two_equal_terms_is_left():
    x = np.linspace(0, 4, 200)
    y = 2.0 * np.exp(-0.5 * x) + 1.0 * np.exp(-3.0 * x) + 0.001 * np.sin(40 * x)

    def residuals(t, x, y):
        return t[0] * np.exp(-t[1] * x) + t[2] * np.exp(-t[3] * x) - y

    fit = problm.least_squares(residuals, [1.0, 1.0, 1.0, 1.0], data=(x, y), jac="cs")
    scipys = scipy.optimize.least_squares(residuals, [1.2, 0.6, 0.9, 2.0], args=(x, y))
    assert fit.success
    assert fit.cost <= 1.01 * scipys.cost


def test_a_bounded_loss_beyond_its_scale_is_no_success():
    x = np.linspace(0, 1, 50)
    fit = problm.least_squares(lambda t, x: t[0] * x + 1000.0, [1.0], data=(x,), loss="truncated", f_scale=0.1)
    assert fit.status is Status.NOT_DETERMINED
    assert not fit.success
    assert not fit.certified


def test_parameters_that_run_to_infinity_are_no_success():
    x = np.linspace(0, 1, 100)
    y = np.where(x < 0.5, 0.0, 1.0)  # a step: the steeper the better
    fit = problm.least_squares(
        lambda t, x, y: 0.5 * (1 + np.tanh(t[0] * (x - t[1]))) - y, [5.0, 0.505], data=(x, y), max_iter=300
    )
    assert not (fit.success and fit.cosine > 1e-6)


def test_wrong_derivatives_are_no_success():
    x, y = data(300)
    fit = problm.least_squares(
        peak, [2, 40, 8, 0], data=(x, y), jac=lambda t, x, y: -np.stack([np.ones_like(x), x, x**2, x**0], axis=1)
    )
    assert not fit.success
    assert not fit.certified


@pytest.mark.parametrize("given", [{"ftol": 1e-2}, {"xtol": 1e-2}])
def test_tolerances_of_the_user_stop_and_the_certificate_tells_the_truth(given):
    x, y = data(500, seed=3)
    fit = problm.least_squares(peak, [2, 40, 8, 0], data=(x, y), **given)
    assert fit.status in (Status.COST, Status.STEP)
    assert fit.success
    assert fit.certified == (fit.distance <= 0.01)
