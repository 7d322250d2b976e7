"""Second derivatives of Sampson errors, and the short end of E and F that they make possible."""

from __future__ import annotations

import numpy as np
import pytest

import problm
from problm.losses import Loss
from problm.manifolds import skew
from problm.vision import simulate
from problm.vision.two_view.models import ESSENTIAL, FUNDAMENTAL, Frame, two_view_problem


def case(model, n=1000, noise=20.0, loss="linear", threads=1):
    """A problem with large residuals, and a point that is not its minimum."""
    rng = np.random.default_rng(11)
    views = simulate.two_views(n, seed=3)
    x1, x2 = np.asarray(views.x1) + noise * rng.standard_normal((n, 2)), np.asarray(views.x2)
    A = np.linalg.inv(views.K)
    columns = [np.ascontiguousarray(c) for c in (*x1.T, *x2.T)]
    problem = two_view_problem(model, columns, Frame(A, A), Loss.named(loss), threads=threads)
    t = views.t / np.linalg.norm(views.t)
    if model is ESSENTIAL:
        return problem, np.concatenate([views.R.ravel(), t])
    return problem, model.point(skew(t) @ views.R + 0.01 * rng.standard_normal((3, 3)))


@pytest.mark.parametrize("model", [ESSENTIAL, FUNDAMENTAL], ids=lambda m: m.name)
def test_second_derivatives_along_the_retraction_are_exact(model):
    problem, theta = case(model)
    normal, curvature = problem.second_order(theta)
    plain = problem.linearize(theta, 0, problem.n, outer=False, costs=None)
    assert normal.cost == pytest.approx(plain.cost, rel=1e-12)
    assert np.allclose(normal.gradient, plain.gradient, rtol=1e-9)
    assert np.allclose(normal.hessian, plain.hessian, rtol=1e-10)
    unit, h = np.eye(problem.dim), 1e-4

    def mixed(a, b, h):
        def cost(x, y):
            return problem.cost(problem.retract(theta, h * (x * unit[a] + y * unit[b])))

        return (cost(1, 1) + cost(-1, -1) - cost(1, -1) - cost(-1, 1)) / (4 * h * h)

    d = range(problem.dim)
    exact = np.array([[(4 * mixed(a, b, h) - mixed(a, b, 2 * h)) / 3 for b in d] for a in d])
    assert np.abs(normal.hessian + curvature - exact).max() < 1e-5 * np.abs(curvature).max()


@pytest.mark.parametrize("model", [ESSENTIAL, FUNDAMENTAL], ids=lambda m: m.name)
def test_runs_are_sums_of_their_rows(model):
    problem, theta = case(model)
    found, plain = (problem.runs(theta, np.array([0, 131, 700]), 200, second=second) for second in (True, False))
    assert np.allclose(found.cost, plain.cost, rtol=1e-12)
    assert np.allclose(found.gradient, plain.gradient, rtol=1e-8)
    whole = problem.runs(theta, np.array([0, 200, 400, 600, 800]), 200, second=True)
    curvature = whole.second_derivatives() - whole.hessian()
    assert np.allclose(curvature, problem.second_order(theta)[1], rtol=1e-7)


@pytest.mark.parametrize("model", [ESSENTIAL, FUNDAMENTAL], ids=lambda m: m.name)
def test_derivatives_at_the_end_of_a_step_in_coordinates_of_its_start(model):
    problem, theta = case(model)
    rng = np.random.default_rng(1)
    step, small = 0.03 * rng.standard_normal(problem.dim), 1e-5 * rng.standard_normal(problem.dim)
    end = problem.retract(theta, step)
    there = model.matrix(problem.retract(end, problem.carried(theta, step) @ small))
    assert np.abs(there - model.matrix(problem.retract(theta, step + small))).max() < 1e-8
    assert np.abs(model.matrix(problem.retract(end, small)) - there).max() > 2e-8  # other coordinates there

    def gradient(at):
        return problem.linearize(at, 0, problem.n, outer=False, costs=None).gradient

    def cost(v):
        return problem.cost(problem.retract(theta, step + v))

    slopes = [(cost(1e-5 * u) - cost(-1e-5 * u)) / 2e-5 for u in np.eye(problem.dim)]
    assert np.allclose(gradient(end) @ problem.carried(theta, step), slopes, rtol=1e-5)


def test_a_robust_loss_has_no_second_derivatives():
    problem, theta = case(ESSENTIAL, loss="cauchy")
    assert problem.second_order(theta) is None
    assert problem.carried(theta, np.zeros(5)) is None


def refined(views, **options):
    start = (np.asarray(problm.manifolds.rotation_exp(np.array([0.02, -0.01, 0.03]))) @ views.R, views.t)
    return problm.essential_matrix(views.x1, views.x2, views.K, robust=False, initial=start, **options).result


@pytest.mark.parametrize("seed", [21, 22, 23])
def test_one_pass_over_all_matches_and_a_bound_that_holds(seed):
    views = simulate.two_views(300_000, seed=seed)
    ours = refined(views)
    assert ours.certified
    assert ours.jacobian_passes < 1.3
    exact = refined(views, gtol=1e-11, acceptance="full")
    variance = 2.0 * exact.cost / exact.degrees_of_freedom
    distance = np.sqrt(max(2.0 * (ours.problem.cost(ours.x) - exact.cost) / variance, 0.0))
    assert distance <= max(ours.distance, 1e-3) <= 0.01
    assert np.allclose(ours.standard_errors, exact.standard_errors, rtol=0.01)
    assert refined(views, threads=2).x.tobytes() == ours.x.tobytes()
