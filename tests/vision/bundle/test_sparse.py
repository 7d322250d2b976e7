"""Bundle adjustment with a block matrix of the cameras: the same as the dense one, and what only it can do."""

from dataclasses import replace

import numpy as np
import pytest

from problm import bundle_adjustment
from problm.linalg.block_model import BlockModel
from problm.linalg.space import Space
from problm.losses import Loss
from problm.solver.loop import solve
from problm.vision.bundle import problem as module
from problm.vision.bundle.damping import LocalDamping
from problm.vision.bundle.problem import BundleProblem, start_point

from .test_adjust import ALL, perturbed, scene


@pytest.mark.parametrize("cameras", [1, 2, 5])
@pytest.mark.parametrize("fixed", [(), (1,), (0, 2)])
@pytest.mark.parametrize("loss", ["linear", "huber"])
def test_blocks_are_those_of_the_dense_matrix(cameras, fixed, loss):
    start = perturbed(scene(C=5, P=60, noise=1.0, missing=0.3, cameras=cameras))
    normals = []
    for sparse in (False, True):
        problem = BundleProblem(start, free=ALL, fixed_images=fixed, loss=Loss.named(loss, 1.0), sparse=sparse)
        costs = np.empty(problem.n)
        normals.append((problem.linearize(start_point(start), 0, problem.n, outer=False, costs=costs), costs))
    (dense, c), (blocks, d) = normals
    full = blocks.hessian.toarray()
    problem._hold_gauge(start_point(start), full)
    unit = 1 / np.sqrt(full.diagonal())
    assert blocks.cost == pytest.approx(dense.cost, rel=1e-13)
    np.testing.assert_allclose(c, d, rtol=1e-13)
    np.testing.assert_allclose(blocks.gradient, dense.gradient, atol=1e-12 * np.abs(dense.gradient).max())
    np.testing.assert_allclose(full * unit * unit[:, None], dense.hessian * unit * unit[:, None], atol=1e-12)


def test_an_image_twice_in_a_track_in_blocks():
    truth = scene(C=3, P=30, missing=0.0, cameras=3)
    rows = np.column_stack([truth.image, np.repeat(np.arange(30), 3), truth.xy])
    both = np.concatenate([rows, rows[:20] + np.array([0, 0, 0.5, 0.5])])
    doubled = type(truth).from_arrays(truth.rotations, truth.translations, truth.intrinsics, truth.points, both)
    normals = [
        BundleProblem(doubled, sparse=sparse).linearize(start_point(doubled), 0, 30, outer=False, costs=None)
        for sparse in (False, True)
    ]
    np.testing.assert_allclose(normals[1].gradient, normals[0].gradient, atol=1e-9 * np.abs(normals[0].gradient).max())


@pytest.mark.parametrize("fixed", [(), (2,)])
def test_the_same_minimum_and_covariance(monkeypatch, fixed):
    start = perturbed(scene(C=6, P=120, noise=1.0, missing=0.3, cameras=6))
    dense = bundle_adjustment(start, fixed_images=fixed, ftol=1e-12)
    monkeypatch.setattr(module, "FEW_PARAMETERS", 0)
    blocks = bundle_adjustment(start, fixed_images=fixed, ftol=1e-12)
    assert blocks.problem.pattern is not None
    assert blocks.result.success
    assert blocks.cost == pytest.approx(dense.cost, rel=1e-9)
    scale = np.sqrt(dense.covariance.diagonal())
    np.testing.assert_allclose(
        blocks.covariance / scale / scale[:, None], dense.covariance / scale / scale[:, None], atol=2e-3
    )
    poses, whole = blocks.pose_covariances, blocks.covariance
    for i in blocks.problem.free_images:
        mine = blocks.problem.columns(i)[:6]
        np.testing.assert_allclose(poses[i], whole[np.ix_(mine, mine)], rtol=1e-6, atol=1e-9 * np.abs(poses[i]).max())
    np.testing.assert_allclose(dense.pose_covariances, poses, rtol=0.02, atol=1e-3 * np.abs(poses).max())
    assert not poses[list(fixed)].any()


def test_threads_do_not_change_the_bits_of_blocks():
    start = perturbed(scene(C=4, P=9000, cameras=4))
    results = [
        BundleProblem(start, threads=threads, sparse=True).linearize(
            start_point(start), 0, 9000, outer=False, costs=None
        )
        for threads in (1, 2)
    ]
    np.testing.assert_array_equal(results[0].hessian.values, results[1].hessian.values)
    np.testing.assert_array_equal(results[0].gradient, results[1].gradient)


def test_batches_of_too_many_cameras_are_refused(monkeypatch):
    monkeypatch.setattr(module, "MOST_PARAMETERS", 20)
    with pytest.raises(ValueError, match="batches need a dense matrix"):
        bundle_adjustment(scene(C=5, P=60), initial_batch=20)


def test_points_near_a_camera_follow_it():
    # A trial that moves a camera by more than the depth of a point: the point is carried along.
    truth = scene(C=4, P=40, noise=0.0, missing=0.0)
    points = truth.points.copy()
    R, t = truth.rotations[0], truth.translations[0]
    points[0] = R.T @ (np.array([0.002, 0.001, 0.05]) - t)
    seen = truth.intrinsics[0].project(points[:1] @ R.T + t)
    xy = truth.xy.copy()
    xy[truth.start[0]] = seen
    near = replace(truth, points=points, xy=xy)
    assert np.isfinite(bundle_adjustment(near).cost)


def test_missing_gain_vanishes_where_the_model_is_exact():
    start = perturbed(scene(C=5, P=80, noise=0.5, missing=0.3, cameras=5), 1e-3, 1e-3, 1e-3)
    problem = BundleProblem(start, sparse=True)
    theta = start_point(start)
    normal = problem.linearize(theta, 0, problem.n, outer=False, costs=None)
    step = -normal.gradient / normal.hessian.diagonal()
    sizes = []
    for share in (1e-2, 1e-3):
        change = problem.cost(problem.retract(theta, share * step)) - normal.cost
        predicted = share * normal.gradient @ step + 0.5 * share**2 * step @ (normal.hessian @ step)
        missing = problem.missing_gain(share * step, np.inf)
        # The sum over the images is the difference between change and model, which is of second order.
        assert missing.sum() == pytest.approx(change - predicted, abs=1e-9 * normal.cost)
        sizes.append(np.abs(missing).sum())
    assert sizes[1] < 0.03 * sizes[0]


def test_only_the_images_of_a_bad_track_are_damped(monkeypatch):
    monkeypatch.setattr(module, "FEW_PARAMETERS", 0)
    start = perturbed(scene(C=12, P=200, noise=0.5, missing=0.5, cameras=12), 0.01, 0.02, 0.02)
    seen = []

    class Noted(LocalDamping):
        def propose(self, system):
            found = LocalDamping.propose(self, system)
            seen.append(self._local.copy())
            return found

    problem = BundleProblem(start)
    wild = np.flatnonzero(start.image == 3)[:2]
    problem.xy = problem.xy.copy()
    problem.xy[wild] += 300.0
    result = solve(problem, start_point(start), damping=Noted(problem=problem), ftol=1e-8, max_iter=50)
    assert result.cost < result.history.cost[0]
    assert max((local > 0).sum() for local in seen) <= 3


def test_a_point_in_a_bad_minimum_is_found_again():
    truth = scene(C=6, P=80, noise=0.3, missing=0.0)
    points = truth.points.copy()
    points[:4] = -truth.rotations[0].T @ truth.translations[0] - 0.3 * (points[:4] - points[:4].mean(axis=0))
    wanted = bundle_adjustment(truth)
    fit = bundle_adjustment(replace(truth, points=points))
    assert fit.cost == pytest.approx(wanted.cost, rel=1e-6)
    assert not fit.behind.any()


def test_an_image_that_is_held_is_not_blamed_again(monkeypatch):
    """If its tracks go on missing gain, that is not its doing: lambda rises instead of the same step being tried."""
    start = perturbed(scene(C=12, P=200, noise=0.5, missing=0.5, cameras=12), 0.01, 0.02, 0.02)
    problem = BundleProblem(start, sparse=True)
    theta = start_point(start)
    normal = problem.linearize(theta, 0, problem.n, outer=False, costs=None)
    system = BlockModel(normal, theta, Space(problem.dim), lambda diagonal: None)
    monkeypatch.setattr(problem, "missing_gain", lambda step, most: np.where(np.arange(12) == 3, most, 0.0))
    damping = LocalDamping(problem=problem)
    before, tries = damping.value, 0
    while damping.value <= before:
        damping.propose(system)
        damping.reject()
        tries += 1
        assert tries < 10
    assert np.flatnonzero(damping._local).tolist() == [3]
