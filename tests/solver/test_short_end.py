"""The short end: one pass over all rows, and a bound from a sample that holds."""

from __future__ import annotations

import math

import numpy as np
import pytest

import problm
from problm.linalg.normal import Runs
from problm.linalg.packed import square
from problm.losses import LOSSES, Loss
from problm.problems.compiled import CompiledProblem
from problm.solver import sample
from problm.vision import simulate

DECAY = problm.formula("a*exp(-b*x) + c")


def rows(kind, seed, n=700_000):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 4, n)
    if kind in ("sorted", "wrong"):
        x.sort()
    y = DECAY(x, 2.5, 1.3, 0.5) + 0.2 * rng.standard_normal(n)
    if kind == "wrong":
        y += 0.1 * np.sin(7 * x)
    elif kind == "uneven":
        y += (0.1 + 0.2 * x) * rng.standard_normal(n)
    elif kind == "heavy":
        y += 0.1 * rng.standard_t(3, n)
    elif kind == "single":
        x = x.astype(np.float32)
    return x, y


def distance(ours, exact):
    off = ours.x - exact.x
    return np.sqrt(off @ exact.hessian @ off / (2 * exact.cost / exact.degrees_of_freedom))


@pytest.mark.parametrize("kind", ["random", "sorted", "wrong", "uneven", "heavy", "single"])
def test_the_bound_holds(kind):
    short = 0
    for seed in range(3):
        data = rows(kind, seed)
        ours = problm.least_squares(DECAY, [1, 0.4, 0], data=data)
        exact = problm.least_squares(DECAY, ours.x, data=data, gtol=1e-11, acceptance="full")
        assert ours.certified
        assert distance(ours, exact) <= max(ours.distance, 1e-4) <= 0.01
        assert ours.cost == pytest.approx(exact.cost, rel=1e-7)
        assert np.allclose(ours.standard_errors, exact.standard_errors, rtol=0.01)
        short += ours.jacobian_passes < 1.8
    assert short >= 1


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_bound_without_the_rows_that_fit_worst(seed):
    # A hundred times the noise in a burst of rows, which make up most of the cost and which a sample misses.
    x, y = rows("random", seed, 600_000)
    y[200_000:200_400] += 20.0
    ours = problm.least_squares(DECAY, [1, 0.4, 0], data=(x, y))
    assert ours.jacobian_passes >= 1.8


def test_the_bound_solves_for_no_more_right_hand_sides_than_parameters(monkeypatch):
    # With one per run of rows LAPACK starts threads, which took three times as long as the rest of the solve.
    solved = []

    def counting(matrix, right):
        solved.append(right.size // len(right))
        return dposv(matrix, right)

    dposv = sample.dposv
    monkeypatch.setattr(sample, "dposv", counting)
    ours = problm.least_squares(DECAY, [1, 0.4, 0], data=rows("random", 0))
    assert ours.jacobian_passes < 1.8
    assert 1 <= max(solved) <= 3


@pytest.mark.parametrize("seed", [1, 2])
def test_no_bound_without_the_rows_that_matter(seed):
    # Few rows at the end, most of which a sample misses, determine the power.
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 4, 300_000)
    x[-300:] = rng.uniform(0, 30, 300)
    model = problm.formula("a*exp(-b*x) + c*x**d")
    y = 2.5 * np.exp(-1.3 * x) + 0.5 * x**1.5 + 0.3 * rng.standard_normal(x.size)
    ours = problm.least_squares(model, [2, 1, 0.6, 1.2], data=(x, y))
    exact = problm.least_squares(model, ours.x, data=(x, y), gtol=1e-11, acceptance="full")
    assert ours.certified
    assert distance(ours, exact) <= 0.011


def test_few_runs_that_make_up_the_scatter_widen_the_bound():
    class Rows:
        scale, n = 16.0, 10**6
        error = sample.Sample.error

    rng = np.random.default_rng(0)
    even = rng.standard_normal((256, 2))
    single = 0.01 * even
    single[100] = math.sqrt(256)
    hessian = np.eye(2)
    known = math.sqrt(-2.0 * math.log(0.01) * 256 * 16.0**2)  # quantile of two normal errors of known size
    assert Rows().error(even, hessian, 1.0) == pytest.approx(known, rel=0.15)
    known = 2.576 * math.sqrt(2 * 256 * 16.0**2)
    assert Rows().error(single, hessian, 1.0) > 2.0 * known


def test_one_linearisation_more_on_request():
    data = rows("random", 1)
    ours = problm.least_squares(DECAY, [1, 0.4, 0], data=data, certificate="gradient")
    assert ours.certificate == "gradient"
    assert ours.distance <= 0.01
    assert ours.jacobian_passes >= 2.0


def test_threads_do_not_change_bits():
    data = rows("random", 2)
    one, two = (problm.least_squares(DECAY, [1, 0.4, 0], data=data, threads=k) for k in (1, 2))
    assert one.x.tobytes() == two.x.tobytes()
    assert one.cost == two.cost
    other = problm.least_squares(DECAY, [1, 0.4, 0], data=data, rng=5)
    assert other.x.tobytes() != one.x.tobytes()


@pytest.mark.parametrize("loss", ["huber", "soft_l1", "cauchy", "welsch", "tukey"])
def test_a_robust_loss_ends_by_one_pass(loss):
    # Gauss-Newton steps, which ignore that the loss bends, would take 3 to 50 passes from here.
    data = rows("heavy", 0)
    ours = problm.least_squares(DECAY, [1, 0.4, 0], data=data, loss=loss, f_scale=0.5)
    exact = problm.least_squares(DECAY, ours.x, data=data, loss=loss, f_scale=0.5, gtol=1e-10, acceptance="full")
    assert ours.certificate == "bound"
    assert distance(ours, exact) <= max(ours.distance, 1e-4) <= 0.01
    assert ours.jacobian_passes < 2.0
    assert np.allclose(ours.hessian, exact.hessian, rtol=0.01)


def test_the_bound_holds_on_a_manifold():
    views = simulate.two_views(300_000, seed=3)
    start = np.eye(3), views.t
    options = {"robust": False, "initial": start}
    ours = problm.essential_matrix(views.x1, views.x2, views.K, **options).result
    exact = problm.essential_matrix(views.x1, views.x2, views.K, gtol=1e-11, acceptance="full", **options).result
    assert ours.certified
    assert ours.problem.cost(ours.x) <= exact.cost * (1.0 + 1e-4 / 300_000)


FORMULAS = [
    "a*exp(-b*x) + c",
    "a*exp(-0.5*((x - m)/s)**2) + b0 + b1*x",
    "a*sin(b*x + c)*exp(-d*x) + g*x**f",
    "a/(1 + ((x - m)/s)**2) + b*(x - c)**2",
    "a/(1 + exp(-(x - m)/s)) - a*b*x",
    "a*log(1 + b*x)*sqrt(x + c) + tanh(d*x)/x",
    "(a + b*x)*(c + d*x)**3/(1 + 2.7*x)",
]


@pytest.mark.parametrize(
    ("model", "loss"),
    [
        *((problm.formula(text), "linear") for text in FORMULAS),
        *((problm.formula(FORMULAS[1]), loss) for loss in LOSSES[1:]),
    ],
)
def test_second_derivatives_are_exact(model, loss):
    rng = np.random.default_rng(0)
    theta = rng.uniform(0.5, 1.5, len(model.parameters))
    x = rng.uniform(0.5, 3.0, 50_000)
    problem = CompiledProblem(
        model.curve_kernel(1, len(theta), None, Loss.named(loss, 2.0), 1), (x, rng.standard_normal(len(x)))
    )
    normal, curvature = problem.second_order(theta)
    plain = problem.linearize(theta, 0, problem.n, outer=False, costs=None)
    assert normal.cost == pytest.approx(plain.cost, rel=1e-12)
    assert np.allclose(normal.hessian, plain.hessian, rtol=1e-10)

    def gradient(k, h):
        moved = theta.copy()
        moved[k] += h
        return problem.linearize(moved, 0, problem.n, outer=False, costs=None).gradient

    differences = np.array([(gradient(k, 1e-5) - gradient(k, -1e-5)) / 2e-5 for k in range(len(theta))])
    kinks = 1e-5 if loss in ("huber", "truncated") else 1e-6  # of weights, which differences step over
    assert np.allclose(normal.hessian + curvature, differences, rtol=kinks, atol=kinks * np.abs(differences).max())


@pytest.mark.parametrize(("off", "passes"), [(0.1, 1.5), (0.02, 2.5), (0.0, 2.5)])
def test_a_near_start_costs_no_second_solve(off, passes):
    # Whether the cost fell is told by the last batch, by the sample, and else by one pass over all residuals.
    data = rows("random", 0)
    ours = problm.least_squares(DECAY, [2.5 * (1 + off), 1.3 * (1 + off), 0.5], data=data)
    assert ours.certified
    assert ours.residual_passes < passes
    again = problm.least_squares(DECAY, ours.x, data=data, rng=1)
    assert again.certified
    assert again.jacobian_passes < 1.5
    assert again.cost == pytest.approx(ours.cost, rel=1e-7)


def test_second_derivatives_times_a_step_run_by_run():
    rng = np.random.default_rng(4)
    plain, more = (m + m.transpose(0, 2, 1) for m in rng.standard_normal((2, 5, 4, 4)))
    row, column = np.tril_indices(4)
    cost, gradient, step = rng.standard_normal(5), rng.standard_normal((5, 4)), rng.standard_normal(4)
    runs = Runs(1, cost, gradient, plain[:, row, column], more[:, row, column])
    assert np.allclose(runs.slopes(step), (plain + more) @ step)
    assert np.allclose(runs.second_derivatives(), (plain + more).sum(axis=0))
    by = rng.standard_normal((4, 4))
    turned = runs.carried(by)
    assert np.allclose(turned.gradient, gradient @ by)
    assert np.allclose(turned.hessian(), by.T @ plain.sum(axis=0) @ by)
    assert np.allclose(turned.slopes(step), (by.T @ (plain + more) @ by) @ step)


@pytest.mark.parametrize("second", [False, True])
def test_runs_are_sums_of_their_rows(second):
    x, y = rows("random", 0, 20_000)
    kernel = DECAY.curve_kernel(1, 3, None, Loss.named("linear"), 1)
    problem, theta = CompiledProblem(kernel, (x, y)), np.array([2.0, 1.0, 0.3])
    starts = np.array([0, 512, 15_872])
    found = problem.runs(theta, starts, 256, second=second)
    assert found.count == 768
    for k, lo in enumerate(starts):
        part = CompiledProblem(kernel, (x[lo : lo + 256], y[lo : lo + 256]))
        normal = part.linearize(theta, 0, 256, outer=False, costs=None)
        assert found.cost[k] == pytest.approx(normal.cost, rel=1e-12)
        assert np.allclose(found.gradient[k], normal.gradient)
        assert np.allclose(square(found.triangles[k], 3), normal.hessian)
        if second:
            assert np.allclose(square(found.curvature[k], 3), part.second_order(theta)[1])


def test_what_the_contraction_tells_needs_no_sample_of_few_rows():
    model = problm.formula("a/(1 + exp(-k*(x - m)))")
    rng = np.random.default_rng([777, 7])
    x = rng.uniform(0, 4, 200_000)
    data = x, model(x, 2, 2.5, 1.8) + 0.1 * rng.standard_normal(x.size)
    ours, plain = (problm.least_squares(model, [1.5, 1.5, 1.2], data=data, acceptance=a) for a in (None, "full"))
    assert ours.certificate == "bound"
    np.testing.assert_array_equal(ours.x, plain.x)
    assert ours.jacobian_passes == plain.jacobian_passes


def test_rows_that_are_mostly_noise_take_no_longer_than_by_levenberg_marquardt():
    rng = np.random.default_rng([777, 19])
    x = rng.uniform(0, 5, 600_000)
    data = x, DECAY(x, 2, 0.7, 0.3) + 20.0 * rng.standard_normal(x.size)
    ours, plain = (problm.least_squares(DECAY, [1, 1, 0], data=data, acceptance=a) for a in (None, "full"))
    assert ours.success
    assert ours.jacobian_passes <= plain.jacobian_passes + 0.1
    assert ours.residual_passes <= plain.residual_passes + 0.1


def test_a_start_at_the_minimum_is_not_left_for_that_of_a_sample():
    x, y = rows("random", 5)
    ours = problm.least_squares(DECAY, [2.5, 1.3, 0.5], data=(x, y))
    assert ours.certificate == "bound"
    assert ours.jacobian_passes <= 1.15
    assert ours.residual_passes <= 1.15  # the cost at the start is not needed
    exact = problm.least_squares(DECAY, ours.x, data=(x, y), gtol=1e-11, acceptance="full")
    assert distance(ours, exact) <= max(ours.distance, 1e-4) <= 0.01
