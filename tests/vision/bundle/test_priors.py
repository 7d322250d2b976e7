"""Known positions of cameras."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from problm import bundle_adjustment
from problm.vision.bundle import problem as module
from problm.vision.bundle.priors import PositionPriors
from problm.vision.bundle.problem import BundleProblem, start_point

from .test_adjust import differences, moved, perturbed, scene


def centres(model):
    return -np.einsum("cji,cj->ci", model.rotations, model.translations)


@pytest.mark.parametrize("sparse", [False, True])
def test_gradient_and_matrix_of_priors_by_differences(sparse):
    start = perturbed(scene(C=5, P=40, noise=0.5, cameras=5))
    known = centres(start) + 0.1
    known[2] = np.nan
    priors = PositionPriors(known, [0.1, 0.2, 0.3, 0.4, 0.5], 5)
    theta = start_point(start)
    plain = BundleProblem(start, sparse=sparse)
    problem = BundleProblem(start, sparse=sparse, priors=priors)
    a = plain.linearize(theta, 0, plain.n, outer=False, costs=None)
    costs = np.empty(problem.n)
    b = problem.linearize(theta, 0, problem.n, outer=False, costs=costs)

    def away(e):
        poses = problem.retract(theta, e)[:60].reshape(5, 12)[priors.images]
        c = -np.einsum("kji,kj->ki", poses[:, :9].reshape(-1, 3, 3), poses[:, 9:])
        return ((c - priors.positions) / priors.sigma).ravel()

    J, r = differences(away, problem.dim, 1e-6), away(np.zeros(problem.dim))
    assert b.cost - a.cost == pytest.approx(0.5 * r @ r, rel=1e-9)
    assert costs.sum() == pytest.approx(b.cost)
    assert problem.cost(theta) == pytest.approx(b.cost)
    assert problem.costs(theta, 0, problem.n).sum() == pytest.approx(b.cost)
    np.testing.assert_allclose(b.gradient - a.gradient, J.T @ r, atol=1e-5 * np.abs(b.gradient).max())
    assert problem.gauge(theta).shape[1] == 0
    if sparse:
        found = b.hessian.toarray() - a.hessian.toarray()
        np.testing.assert_allclose(found, J.T @ J, atol=1e-6 * np.abs(found).max())


@pytest.mark.parametrize("few", [0, 500])
def test_positions_place_the_world(monkeypatch, few):
    monkeypatch.setattr(module, "FEW_PARAMETERS", few)
    truth = scene(C=6, P=100, noise=0.2, cameras=6)
    start = perturbed(moved(truth), 0.01, 0.02, 0.02)
    fit = bundle_adjustment(start, positions=centres(truth), position_sigma=0.01, max_iter=200)
    assert fit.result.success
    assert np.abs(centres(fit.model) - centres(truth)).max() < 0.05
    assert np.linalg.eigvalsh(fit.covariance).min() > 0.0


def test_one_position_leaves_rotation_and_scale_free():
    truth = scene(C=5, P=60, cameras=5)
    known = np.full((5, 3), np.nan)
    known[1] = centres(truth)[1]
    problem = BundleProblem(truth, priors=PositionPriors(known, 0.1, 5))
    assert problem.gauge(start_point(truth)).shape[1] == 4
    assert bundle_adjustment(perturbed(truth), positions=known, position_sigma=0.1).result.success


def test_bad_positions_are_named():
    truth = scene(C=4, P=40)
    with pytest.raises(ValueError, match=r"positions must have shape \(4, 3\)"):
        bundle_adjustment(truth, positions=np.zeros((3, 3)))
    with pytest.raises(ValueError, match="no image has a known position"):
        bundle_adjustment(truth, positions=np.full((4, 3), np.nan))
    with pytest.raises(ValueError, match="position_sigma must be positive"):
        bundle_adjustment(truth, positions=centres(truth), position_sigma=0.0)
    with pytest.raises(ValueError, match="position_sigma must be a number"):
        bundle_adjustment(truth, positions=centres(truth), position_sigma=[1.0, 2.0])


@pytest.mark.parametrize("known", [[0], [0, 4], [0, 2, 4], range(5)])
def test_a_solve_starts_where_the_world_fits_the_positions(known):
    """The world is a similarity away: the solve takes the steps of one without priors, and ends at its minimum."""
    truth = scene(C=5, P=100, noise=0.3, cameras=5)
    start = perturbed(truth, 0.01, 0.02, 0.02)
    free = bundle_adjustment(start)
    turn = Rotation.from_rotvec([0.3, -2.0, 1.0]).as_matrix()
    positions = np.full((5, 3), np.nan)
    positions[known] = 1e3 + 30.0 * centres(free.model)[known] @ turn.T
    fit = bundle_adjustment(start, positions=positions, position_sigma=1.0)
    assert fit.result.success
    assert fit.cost == pytest.approx(free.cost, rel=1e-6)
    assert fit.result.nit <= free.result.nit + 5
    assert np.nanmax(np.abs(centres(fit.model) - positions)) < 0.01


def test_positions_at_one_place_do_not_collapse_the_world():
    start = perturbed(scene(C=5, P=60, noise=0.3, cameras=5), 0.01, 0.02, 0.02)
    priors = PositionPriors(np.ones((5, 3)), 1.0, 5)
    there = priors.aligned(start)
    np.testing.assert_array_equal(there.rotations, start.rotations)
    np.testing.assert_allclose(there.residuals(), start.residuals(), atol=1e-9)
    np.testing.assert_allclose(centres(there).mean(axis=0), 1.0)
