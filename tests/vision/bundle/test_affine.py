"""Affine bundle adjustment: derivatives, gauge, starts, losses, and the factorisation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

from problm.losses import LOSSES, Loss
from problm.vision.bundle.affine import AffineProblem, affine_bundle_adjustment
from problm.vision.bundle.affine_start import factorise


def scene(C=3, P=60, noise=0.02, seed=0, depth=True):
    """Observations (C, P, 2), rotations, translations, points, depths."""
    rng = np.random.default_rng(seed)
    R = Rotation.from_rotvec(0.4 * rng.normal(size=(C, 3))).as_matrix()
    t = np.column_stack([rng.normal(size=(C, 2)), np.full(C, 8.0)])
    X = rng.normal(size=(P, 3))
    d = (X @ R[:, 2].mean(axis=0) + 8.0) if depth else np.ones(P)
    m = (np.einsum("cij,pj->cpi", R, X) + t[:, None])[:, :, :2] / d[:, None]
    return m + noise * rng.normal(size=m.shape), R, t, X, d


def point_of(R, t):
    return np.concatenate([R.ravel(), t[:, :2].ravel()])


def start(problem, R, t, off=0.0, seed=1):
    theta = problem.retract(point_of(R, t), np.zeros(problem.dim))
    return problem.retract(theta, off * np.random.default_rng(seed).normal(size=problem.dim))


def reduced_jacobian(problem, theta, h=1e-6):
    """Central differences of the reduced residuals (P, 2C, d): nothing but `residuals` and `retract`."""
    columns = []
    for k in range(problem.dim):
        e = np.zeros(problem.dim)
        e[k] = h
        columns.append(
            (problem.residuals(problem.retract(theta, e)) - problem.residuals(problem.retract(theta, -e))) / (2 * h)
        )
    return np.stack(columns, axis=-1)


@pytest.mark.parametrize("C", [3, 4, 7])
@pytest.mark.parametrize("loss", ["linear", "huber", "cauchy"])
def test_exact_jacobian_is_that_of_the_reduced_residuals(C, loss):
    m, R, t, _, d = scene(C, P=300)  # more than two blocks of 128
    problem = AffineProblem(m, d, loss=Loss.named(loss, 0.05))
    theta = start(problem, R, t, 0.05)
    r, J = problem.residuals(theta), reduced_jacobian(problem, theta)
    cost, w = problem.loss.cost_and_weight((r**2).sum(axis=1))
    gradients = np.einsum("p,pk,pka->pa", w, r, J)
    costs = np.empty(problem.n)
    normal = problem.linearize(theta, 0, problem.n, outer=True, costs=costs)
    np.testing.assert_allclose(costs, cost, rtol=1e-10)
    np.testing.assert_allclose(normal.cost, cost.sum(), rtol=1e-10)
    np.testing.assert_allclose(normal.gradient, gradients.sum(axis=0), atol=1e-6 * np.abs(gradients).sum())
    H = np.einsum("p,pka,pkb->ab", w, J, J)
    np.testing.assert_allclose(normal.hessian, H, atol=1e-7 * np.abs(H).max())
    S = gradients.T @ gradients
    np.testing.assert_allclose(normal.outer, S, atol=1e-6 * np.abs(S).max())


@pytest.mark.parametrize("C", [3, 6])
def test_moments_of_a_near_point_replace_a_pass(C):
    m, R, t, _, d = scene(C, P=400)
    problem = AffineProblem(m, d)
    theta = start(problem, R, t, 0.01)
    there = problem.retract(theta, 0.005 * np.random.default_rng(2).normal(size=problem.dim))
    passed = AffineProblem(m, d).linearize(there, 0, problem.n, outer=False, costs=None)
    assert problem.reads(there)
    problem.linearize(theta, 0, problem.n, outer=False, costs=None)
    assert not problem.reads(there)
    carried = problem.linearize(there, 0, problem.n, outer=False, costs=None)
    np.testing.assert_allclose(carried.cost, passed.cost, rtol=1e-12)
    np.testing.assert_allclose(problem.cost(there), passed.cost, rtol=1e-12)
    np.testing.assert_allclose(carried.hessian, passed.hessian, atol=1e-12 * np.abs(passed.hessian).max())
    size = np.sqrt(passed.hessian.diagonal().max() * passed.cost)
    np.testing.assert_allclose(carried.gradient, passed.gradient, atol=1e-12 * size)


def test_moments_are_not_used_where_digits_would_cancel():
    m, R, t, _, d = scene(P=400, noise=1e-4)
    problem = AffineProblem(m, d)
    theta = start(problem, R, t)
    problem.linearize(start(problem, R, t, 0.1), 0, problem.n, outer=False, costs=None)
    assert problem.reads(theta)  # its cost is below a millionth of that of the other point
    assert problem.cost(theta) == AffineProblem(m, d).cost(theta)


@pytest.mark.parametrize(("loss", "most"), [("linear", 3.0), ("huber", 30.0)])
def test_squared_loss_reads_the_tracks_at_most_three_times(loss, most):
    m, R, t, _, d = scene(5, P=2000, noise=0.01)
    turned = Rotation.from_rotvec(0.05 * np.random.default_rng(3).normal(size=(5, 3))).as_matrix() @ R
    result = affine_bundle_adjustment(m, (turned, t), depths=d, loss=loss, f_scale=0.1, acceptance="full").result
    assert result.success
    assert result.jacobian_passes <= most
    assert result.nit > 3  # each of which robust losses pay with a pass
    assert loss == "linear" or result.jacobian_passes >= result.nit - 1


def test_kaufman_has_the_same_gradient_and_another_matrix():
    m, R, t, _, d = scene(noise=0.2)
    exact, short = AffineProblem(m, d), AffineProblem(m, d, exact=False)
    theta = start(exact, R, t, 0.1)
    a = exact.linearize(theta, 0, exact.n, outer=False, costs=None)
    b = short.linearize(theta, 0, exact.n, outer=False, costs=None)
    np.testing.assert_array_equal(a.gradient, b.gradient)
    missing = a.hessian - b.hessian
    assert np.linalg.eigvalsh(missing).min() > -1e-9 * np.abs(missing).max()
    assert np.abs(missing).max() > 1e-3 * np.abs(a.hessian).max()


def test_no_parameter_is_idle_even_with_one_optical_axis():
    # Cameras that differ by rotations about the axis alone cannot see depth, but one that tilts is enough.
    m, _, _, _, d = scene(3)
    R = Rotation.from_rotvec([[0, 0, 0], [0, 0, 0.5], [0.3, 0, 0]]).as_matrix()
    problem = AffineProblem(m, d)
    theta = start(problem, R, np.zeros((3, 3)), 0.0)
    H = problem.linearize(theta, 0, problem.n, outer=False, costs=None).hessian
    scale = 1 / np.sqrt(H.diagonal())
    assert np.linalg.eigvalsh(H * scale[:, None] * scale).min() > 1e-6


def test_batches_are_parts_of_the_whole():
    m, R, t, _, d = scene(4, P=1000)
    problem = AffineProblem(m, d)
    theta = start(problem, R, t, 0.05)
    whole = problem.linearize(theta, 0, 1000, outer=True, costs=None)
    parts = problem.linearize(theta, 0, 300, outer=True, costs=None)
    parts = parts + problem.linearize(theta, 300, 700, outer=True, costs=None)
    parts = parts + problem.linearize(theta, 700, 1000, outer=True, costs=None)
    np.testing.assert_allclose(parts.hessian, whole.hessian, rtol=1e-9, atol=1e-12 * np.abs(whole.hessian).max())
    np.testing.assert_allclose(parts.outer, whole.outer, rtol=1e-8, atol=1e-10 * np.abs(whole.outer).max())
    assert parts.cost == pytest.approx(whole.cost, rel=1e-12)
    assert problem.cost(theta) == pytest.approx(problem.costs(theta, 0, 1000).sum(), rel=1e-12)


def full_problem(m, d, R0, t0, X0):
    """SciPy on cameras and points together: the minimum that elimination must find."""
    C, P = m.shape[:2]

    def residuals(v):
        w, t, X = v[: 3 * C].reshape(C, 3), v[3 * C : 5 * C].reshape(C, 2), v[5 * C :].reshape(P, 3)
        R = Rotation.from_rotvec(w).as_matrix() @ R0
        return ((np.einsum("cij,pj->cpi", R[:, :2], X) + t[:, None]) / d[:, None] - m).ravel()

    v0 = np.concatenate([np.zeros(3 * C), t0[:, :2].ravel(), X0.ravel()])
    return least_squares(residuals, v0, method="trf", x_scale="jac", xtol=1e-12, ftol=1e-14, gtol=1e-12)


def test_same_minimum_as_the_full_problem():
    m, R, t, X, d = scene(3, P=40, noise=0.03)
    full = full_problem(m, d, R, t, X)
    fit = affine_bundle_adjustment(m, (R, t), X, depths=d)
    assert fit.result.success
    assert fit.cost == pytest.approx(full.cost, rel=1e-8)
    # What is returned is a solution of the model as the documentation states it.
    again = (np.einsum("cij,pj->cpi", fit.rotations, fit.points) + fit.translations[:, None])[:, :, :2]
    again = again / fit.depths[:, None] - m
    assert 0.5 * (again**2).sum() == pytest.approx(fit.cost, rel=1e-10)
    assert fit.rmse == pytest.approx(np.sqrt((again**2).sum(axis=2).mean()), rel=1e-10)
    np.testing.assert_array_equal(fit.rotations[0], R[0])
    np.testing.assert_array_equal(fit.translations[:, 2], t[:, 2])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("acceptance", ["full", "holdout", "paper", "paper-relaxed"])
def test_every_policy_and_loss_finds_the_minimum(loss, acceptance):
    m, R, t, _, d = scene(3, P=3000, noise=0.01, seed=5)
    problem = AffineProblem(m, d)
    off = start(problem, R, t, 0.03)
    cameras = (off[:27].reshape(3, 3, 3), t)
    options = {"depths": d, "loss": loss, "f_scale": 0.05, "ftol": 1e-10}
    best = affine_bundle_adjustment(m, (R, t), **options, acceptance="full")
    fit = affine_bundle_adjustment(m, cameras, **options, acceptance=acceptance)
    assert fit.result.success
    assert fit.cost == pytest.approx(best.cost, rel=1e-7)
    assert fit.result.cost == pytest.approx(fit.cost, rel=1e-9)


def test_robust_loss_ignores_wrong_tracks():
    m, R, t, X, d = scene(4, P=2000, noise=0.005, seed=3)
    rng = np.random.default_rng(0)
    wrong = rng.random(2000) < 0.1
    m[:, wrong] += rng.normal(0, 0.5, m[:, wrong].shape)
    plain = affine_bundle_adjustment(m, (R, t), X, depths=d)
    robust = affine_bundle_adjustment(m, (R, t), X, depths=d, loss="cauchy", f_scale=0.02)

    def error(fit):
        return Rotation.from_matrix(fit.rotations @ R.transpose(0, 2, 1)).magnitude().max()

    assert error(robust) < 0.005 < error(plain)


def test_a_moved_world_gives_the_same_minimum_and_path():
    m, R, t, _, d = scene(5, P=400, noise=0.05)
    Q = Rotation.from_rotvec([0.5, -1.0, 2.0]).as_matrix()
    c = np.array([3.0, -2.0, 5.0])
    # X' = Q X + c: R' = R Q', t' = t - R' c
    moved = (R @ Q.T, t - R @ Q.T @ c)
    a = affine_bundle_adjustment(m, (R, t), depths=d, acceptance="full")
    b = affine_bundle_adjustment(m, moved, depths=d, acceptance="full")
    assert a.cost == pytest.approx(b.cost, rel=1e-12)
    assert a.result.nit == b.result.nit
    np.testing.assert_allclose(a.rotations @ Q.T, b.rotations, atol=1e-7)
    np.testing.assert_allclose(a.points @ Q.T + c, b.points, atol=1e-5)


@pytest.mark.parametrize("depth", [False, True])
@pytest.mark.parametrize("C", [3, 6])
def test_factorisation_starts_at_the_truth_without_noise(C, depth):
    m, R, _, _, d = scene(C, P=50, noise=0.0, depth=depth)
    start_R, _ = factorise(m, d)
    relative = R @ R[0].T
    # Up to Necker's reversal: the mirror image S R S of all rotations, S = diag(1, 1, -1).
    S = np.diag([1.0, 1.0, -1.0])
    errors = [np.abs(start_R - relative).max(), np.abs(start_R - S @ relative @ S).max()]
    if depth:  # the weighted mean is only roughly the translation where depths differ
        assert min(errors) < 0.2
    else:
        assert min(errors) < 1e-6
    fit = affine_bundle_adjustment(m, depths=d)
    assert fit.rmse < 1e-6


def test_threads_and_float32_and_strides_do_not_matter():
    m, R, t, _, d = scene(3, P=70_000, noise=0.01)
    problem = AffineProblem(m, d, threads=1)
    other = AffineProblem(m, d, threads=2)
    theta = start(problem, R, t, 0.05)
    a = problem.linearize(theta, 0, problem.n, outer=True, costs=None)
    b = other.linearize(theta, 0, problem.n, outer=True, costs=None)
    np.testing.assert_array_equal(a.hessian, b.hessian)
    np.testing.assert_array_equal(a.outer, b.outer)
    assert a.cost == b.cost
    single = m.astype(np.float32)
    c = AffineProblem(single, d).cost(theta)
    assert c == AffineProblem(single.astype(np.float64), d).cost(theta)
    assert AffineProblem(np.asfortranarray(m), d).cost(theta) == problem.cost(theta)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observations": np.zeros((3, 10))}, "observations must have the shape"),
        ({"observations": np.zeros((2, 10, 2))}, "at least 3 views"),
        ({"observations": np.zeros((3, 2, 2))}, "at least 4 points"),
        ({"observations": np.full((3, 10, 2), np.nan)}, "must be finite"),
        (
            {"observations": np.where(np.arange(10)[:, None] == [6, 6], np.nan, np.ones((3, 10, 2))), "cameras": None},
            "point 6 is not in view 0",
        ),
        ({"cameras": (np.full((3, 3, 3), np.nan), np.zeros((3, 3)))}, "cameras must be finite"),
        ({"cameras": (-np.tile(np.eye(3), (3, 1, 1)), np.zeros((3, 3)))}, "rotation matrices"),
        ({"depths": np.full(10, np.nan)}, "must be positive"),
        ({"depths": np.full(10, np.inf)}, "must be positive"),
        ({"cameras": (np.zeros((3, 3, 3)), np.zeros((3, 3)))}, "rotation matrices"),
        ({"cameras": (np.zeros((2, 3, 3)), np.zeros((3, 3)))}, "rotations and"),
        ({"cameras": 3}, "must be a pair"),
        ({"cameras": (np.tile(np.eye(3), (3, 1, 1)), np.zeros((3, 3)))}, "same direction"),
        ({"depths": np.zeros(10)}, "must be positive"),
        ({"depths": np.ones(9)}, "depths must have the shape"),
        ({"jacobian": "fast"}, "choose 'exact' or 'kaufman'"),
        ({"loss": "hubr"}, "huber"),
    ],
)
def test_bad_input_is_named(change, message):
    m, R, t, _, _ = scene(3, P=10)
    arguments = {"observations": m, "cameras": (R, t), **change}
    with pytest.raises((ValueError, TypeError), match=message):
        affine_bundle_adjustment(**arguments)
