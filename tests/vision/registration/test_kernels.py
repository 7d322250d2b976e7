"""Residuals and derivatives of registration, kept neighbours and planes."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

from problm.losses import Loss
from problm.manifolds import rotation_exp
from problm.vision.registration.problem import RIGID, SIMILAR, RegistrationProblem
from problm.vision.registration.simulate import two_clouds
from problm.vision.registration.stages import hold, noise_of
from problm.vision.registration.target import Target, spatial_order


def made(plane=True, similar=False, gate=0.3, n=500, loss=None):
    clouds = two_clouds(n, noise=0.01, seed=2)
    target = Target(clouds.target, plane=plane)
    return RegistrationProblem(clouds.source, target, plane=plane, similar=similar, gate=gate, loss=loss)


def pose(similar, size=0.05):
    rng = np.random.default_rng(4)
    point = np.concatenate([rotation_exp(size * rng.normal(size=3)).ravel(), size * rng.normal(size=3)])
    return np.append(point, 0.03) if similar else point


@pytest.mark.parametrize("similar", [False, True])
@pytest.mark.parametrize("plane", [False, True])
def test_derivatives(plane, similar):
    problem, theta = made(plane, similar, gate=0.15), pose(similar)
    held = hold(problem, theta)
    space = SIMILAR if similar else RIGID
    jacobian, h = held.jacobian(theta), 1e-6
    for k in range(space.dim):
        step = np.zeros(space.dim)
        step[k] = h
        ahead, behind = (held.residuals(space.retract(theta, sign * step)) for sign in (1, -1))
        assert np.allclose((ahead - behind) / (2 * h), jacobian[:, :, k], atol=1e-8)
    assert 0 < problem.matched(theta).sum() < problem.n  # rows without a match have a fixed residual
    assert np.allclose(np.linalg.norm(held.residuals(theta), axis=1)[~problem.matched(theta)], problem.gate)


def test_residuals_by_their_definition():
    problem, theta = made(plane=False, gate=np.inf), pose(False)
    moved = problem.source @ theta[:9].reshape(3, 3).T + theta[9:]
    distance = cKDTree(problem.target.points).query(moved)[0]
    assert np.allclose(np.linalg.norm(problem.residuals(theta), axis=1), distance)


@pytest.mark.parametrize("gate", [0.1, 0.5])
def test_kept_neighbours_are_the_nearest(gate):
    problem = made(gate=gate, n=3000)
    theta = pose(False)
    for k in range(8):
        theta = RIGID.retract(theta, 0.02 * 0.5**k * np.ones(6))
        before = problem.searches
        matched = problem.matched(theta)
        moved = problem.source @ theta[:9].reshape(3, 3).T + theta[9:]
        distance, nearest = problem.target.tree.query(moved)
        assert np.array_equal(matched, distance <= gate)
        expected = problem.target.points[nearest[matched]]
        assert np.array_equal(problem.rows(theta, 0, problem.n)[1][matched, :3], expected)
    assert problem.searches - before < 0.2 * problem.n  # the last step was short


def test_a_batch_searches_for_its_own_rows_only():
    problem = made(n=3000)
    problem.costs(pose(False), 0, 100)
    assert problem.searches == 100


def test_planes_of_a_plane_and_a_sphere():
    rng = np.random.default_rng(0)
    flat = np.column_stack([rng.uniform(-1, 1, (5000, 2)), np.zeros(5000)]) @ rotation_exp(np.array([0.3, 0.2, 0.1])).T
    target = Target(flat)
    normal = rotation_exp(np.array([0.3, 0.2, 0.1]))[:, 2]
    assert np.abs(np.abs(target.normals @ normal) - 1.0).max() < 1e-9
    assert np.abs(target.points @ normal).max() < 1e-9
    ball = two_clouds(20_000, shape="sphere", noise=0.002, seed=1).target
    target = Target(ball)
    radial = target.points / np.linalg.norm(target.points, axis=1, keepdims=True)
    assert np.median(np.abs((target.normals * radial).sum(axis=1))) > 0.999
    assert len(target.points) < len(ball) / 2


def test_spatial_order_is_a_permutation_that_keeps_neighbours():
    points = np.random.default_rng(0).uniform(size=(4000, 3))
    order = spatial_order(points)
    assert np.array_equal(np.sort(order), np.arange(4000))
    steps = np.linalg.norm(np.diff(points[order], axis=0), axis=1)
    assert np.median(steps) < 0.25 * np.median(np.linalg.norm(np.diff(points, axis=0), axis=1))


@pytest.mark.parametrize("p", [1, 3])
def test_noise_of_residuals_with_outliers(p):
    rng = np.random.default_rng(1)
    residuals = 0.2 * rng.normal(size=(20_000, p))
    assert noise_of(residuals) == pytest.approx(0.2, rel=0.03)
    residuals[:5000] = rng.uniform(-5, 5, size=(5000, p))
    assert noise_of(residuals) == pytest.approx(0.2, rel=0.15)


def test_robust_costs_are_bounded():
    problem = made(loss=Loss.named("tukey", 0.02))
    assert problem.costs(pose(False), 0, problem.n).max() <= problem.cost_bound * (1 + 1e-12)
