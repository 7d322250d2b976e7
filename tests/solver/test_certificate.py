"""What a certificate means: the minimum is near, in standard errors, however the parameters are written."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

import problm
from problm.problems.numpy_function import FunctionProblem
from problm.solver.result import Status
from tests.helpers import random_problems, zoo
from tests.helpers.polish import polished


def peak(t, x, y):
    return t[0] * np.exp(-0.5 * ((x - t[1]) / t[2]) ** 2) + t[3] - y


def data(n, origin=0.0, seed=0):
    rng = np.random.default_rng(seed)
    x = origin + rng.uniform(0, 100, n)
    return x, peak([3.0, origin + 47.0, 6.0, 1.0], x, 0.0) + 0.3 * rng.standard_normal(n)


@pytest.mark.parametrize("n", [400, 50_000])
@pytest.mark.parametrize("origin", [0.0, 1.7e9])
def test_an_origin_far_away_changes_nothing(n, origin):
    near = problm.least_squares(peak, [2, 40, 8, 0], data=data(n))
    far = problm.least_squares(peak, [2, origin + 40, 8, 0], data=data(n, origin))
    assert far.success
    assert far.certified
    assert (np.abs(far.x - near.x - [0, origin, 0, 0]) <= 0.05 * near.standard_errors).all()


@pytest.mark.parametrize("n", [300, 50_000])
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
        assert ours.cost == pytest.approx(exact.cost, rel=1e-7)
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


def test_a_direction_that_errors_of_differences_hide_is_no_success():
    """A cubic of two nearly collinear columns: no difference sees along which combination the cost still falls."""
    from tests.helpers import random_problems, zoo

    fit = random_problems.make("ill_conditioned", 3_000_004)
    result = zoo.problm(fit).result
    assert result.status is Status.STALLED
    assert not result.certified
    assert np.isnan(result.distance)
    assert "give jac" in result.message


@pytest.mark.parametrize("n", [30, 200, 5000])
def test_the_bound_of_the_last_step_over_few_rows_holds(n):
    def decay(t, x, y):
        return t[0] * np.exp(-t[1] * x) + t[2] - y

    kinds = []
    for seed in range(12):
        rng = np.random.default_rng([n, seed])
        x = rng.uniform(0, 4, n)
        y = decay([2.5, 1.3, 0.5], x, 0.0) + 0.2 * rng.standard_normal(n)
        ours = problm.least_squares(decay, [1, 1, 0], data=(x, y), certificate="bound")
        exact = problm.least_squares(decay, ours.x, data=(x, y), jac="3-point", gtol=1e-12)
        off = ours.x - exact.x
        distance = np.sqrt(off @ exact.hessian @ off / (2 * exact.cost / exact.degrees_of_freedom))
        assert ours.success
        assert distance <= max(ours.distance, 1e-7 * np.sqrt(n)) <= 1e-5 * np.sqrt(n)
        kinds.append(ours.certificate)
        plain = problm.least_squares(decay, [1, 1, 0], data=(x, y))
        assert plain.certificate in ("gradient", "measured")
        popt, pcov = problm.curve_fit(lambda x, a, b, c: decay([a, b, c], x, 0.0), x, y, [1, 1, 0])
        np.testing.assert_array_equal(popt, ours.x)
        np.testing.assert_allclose(pcov, plain.covariance, rtol=1e-4, atol=1e-4 * pcov.max())
    assert kinds.count("bound") >= 6


def test_digits_end_where_batches_begin():
    few = FunctionProblem.few
    for n, cosine in ((few, 1e-8), (few + 1, None)):
        x, y = data(n)
        fit = problm.least_squares(peak, [2, 40, 8, 0], data=(x, y), certificate="gradient")
        assert fit.history.batch_size[0] == n if cosine else fit.history.batch_size[0] < n
        assert fit.cosine <= 1e-8 if cosine else 1e-8 < fit.cosine <= 0.01 / np.sqrt(n - 4)
    for n, cosine in ((20_000, 1e-8), (20_001, None)):  # residuals of all rows at once
        x, y = data(n)
        fit = problm.least_squares(lambda t, x=x, y=y: peak(t, x, y), [2, 40, 8, 0], certificate="gradient")
        assert fit.cosine <= 1e-8 if cosine else 1e-8 < fit.cosine <= 0.01 / np.sqrt(n - 4)


def test_a_plateau_leaves_the_rate_of_its_rise_undetermined():
    """All points lie on the plateau, so the rate rises until nothing depends on it."""
    rng = np.random.default_rng(11)
    x = rng.uniform(10, 110, 200)
    y = 3.0 + 0.03 * rng.standard_normal(200)

    def rise(t, x, y):
        with np.errstate(over="ignore"):
            return t[0] * (1 - np.exp(-t[1] * x)) - y

    fit = problm.least_squares(rise, [1.0, 1.0], data=(x, y))
    assert fit.status in (Status.RUNS_AWAY, Status.NOT_DETERMINED)
    assert not fit.certified


def test_a_model_that_vanishes_at_the_start_is_no_success():
    """The decay begins 1.7e9 seconds before the data: it underflows, and no parameter matters."""
    x = 1.7e9 + np.linspace(0, 100, 300)

    def decay(t, x, y):
        with np.errstate(over="ignore", invalid="ignore"):
            return t[0] * np.exp(-t[1] * x) - y

    fit = problm.least_squares(decay, [2.0, 0.03], data=(x, np.ones(300)))
    assert fit.status is Status.NOT_DETERMINED
    assert not fit.certified


def test_a_frequency_with_times_since_1970_is_no_false_success():
    """Its usual step turns the phase by many radians, and frequency and phase are collinear to all digits."""
    rng = np.random.default_rng(11)
    x = 1.7e9 + np.sort(rng.uniform(0, 100, 200))
    truth = np.array([1.0, 0.7, 0.3 - 0.7 * 1.7e9])
    y = truth[0] * np.sin(truth[1] * x + truth[2]) + 0.1 * rng.standard_normal(200)
    fun = lambda t, x, y: t[0] * np.sin(t[1] * x + t[2]) - y  # noqa: E731
    fit = problm.least_squares(fun, [0.8, 0.7001, truth[2]], data=(x, y))
    phase = lambda t, x, y: t[0] * np.sin(t[1] * (x - 1.7e9) + t[2]) - y  # noqa: E731
    best = problm.least_squares(phase, [0.9, 0.7, 0.3], data=(x, y))
    assert not fit.success or fit.cost <= best.cost * 1.0001


@pytest.mark.parametrize("seed", [9_200_153, 9_201_680])
def test_errors_of_differences_do_not_hide_the_rest_of_a_valley(seed):
    """Steps of differences grow with parameters that compensate each other: their errors hid 1.2 and 0.005 standard
    errors, with distances of 6e-4 and 3e-5 claimed."""
    fit = random_problems.make("ill_conditioned", seed)
    found = zoo.problm(fit)
    assert found.success
    assert polished(fit, found.x).distance <= 1e-4


def test_a_curved_way_to_infinity_is_no_minimum():
    """a x / (b + x) + c with data like 1 / x: b vanishes, a and -c grow, and a + c stays."""
    x = np.array([0.4, 0.9, 1.3, 2.1, 2.8, 3.9, 4.6])
    y = 2.4 - 0.8 / x**1.6 + np.array([0.02, -0.03, 0.01, 0.03, -0.02, 0.01, -0.02])
    fit = problm.least_squares(lambda t, x, y: t[0] * x / (t[1] + x) + t[2] - y, [2.6, 0.9, 0.3], data=(x, y))
    assert not fit.certified
    assert fit.status is Status.RUNS_AWAY


def test_a_parameter_that_lost_its_size_keeps_its_slope():
    """The second term has an amplitude of 1e26 and a rate of 34: its column is 1e-27 of the others, which the metric of
    the damping, the largest column so far, must not round away from the decrement."""
    x = np.array([1.79, 2.4, 3.1, 3.7, 4.2, 4.8])
    y = 3.0 * np.exp(-0.5 * x) - 2.9e26 * np.exp(-34.0 * x) + 0.05 * np.array([1, -2, 1, 2, -1, -1])
    two = lambda t, x, y: t[0] * np.exp(-t[1] * x) + t[2] * np.exp(-t[3] * x) - y  # noqa: E731
    fit = problm.least_squares(two, [1.4, 0.54, 1.0, 1.5], data=(x, y))
    columns = np.stack([np.exp(-fit.x[1] * x), -fit.x[0] * x * np.exp(-fit.x[1] * x),
                        np.exp(-fit.x[3] * x), -fit.x[2] * x * np.exp(-fit.x[3] * x)], axis=1)  # fmt: skip
    unit = columns / np.linalg.norm(columns, axis=0)
    r = two(fit.x, x, y)
    cosine = np.linalg.norm(np.linalg.qr(unit)[0].T @ r) / np.linalg.norm(r)
    assert not fit.certified or cosine <= 0.01 / np.sqrt(2) * 1.5
