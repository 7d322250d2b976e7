"""Reprojection errors: residuals against their definition, derivatives against differences; minimal solvers."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from problm.losses import Loss
from problm.vision.absolute_pose.kernels import move_pose
from problm.vision.absolute_pose.minimal import five_point_focal, meet_conics, three_point
from problm.vision.absolute_pose.model import Scene
from problm.vision.absolute_pose.simulate import one_view
from problm.vision.bundle.camera_models import Intrinsics
from tests.helpers.cameras import PARAMS


@pytest.mark.parametrize("focal", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("model", sorted(PARAMS))
def test_residuals_and_derivatives(model, weighted, focal):
    camera = Intrinsics(model, PARAMS[model])
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (40, 3)) + np.array([5.0, -3.0, 2.0])
    R = Rotation.from_rotvec(rng.normal(size=3)).as_matrix()
    t = np.array([0.1, -0.2, 4.0]) - R @ [5.0, -3.0, 2.0]
    x = camera.project(X @ R.T + t) + rng.normal(size=(40, 2))
    roots = rng.uniform(0.5, 2.0, (40, 1)) if weighted else None
    scene = Scene.of(x, X, roots, camera, focal)
    problem = scene.problem(Loss.named("linear"))
    theta = scene.point(R, t, 1.1 if focal else 1.0)
    np.testing.assert_allclose(scene.pose(theta)[1], t, atol=1e-12)
    expected = scene.seen(theta).project(X @ R.T + t) - x
    np.testing.assert_allclose(problem.residuals(theta), expected * (1.0 if roots is None else roots), atol=1e-9)
    J, h = problem.jacobian(theta), 1e-6
    for k, step in enumerate(np.eye(scene.dim) * h):
        up, down = (problem.residuals(move_pose(theta, s * step)) for s in (1.0, -1.0))
        np.testing.assert_allclose(J[:, :, k], (up - down) / (2 * h), atol=1e-4)


def sample(seed, plane=False):
    rng = np.random.default_rng(seed)
    R, t = Rotation.from_quat(rng.normal(size=4)).as_matrix(), rng.normal(size=3)
    rays = rng.uniform(-0.5, 0.5, (5, 2))
    z = 4.0 / (np.column_stack([rays, np.ones(5)]) @ [0.3, -0.4, 1.0]) if plane else rng.uniform(2.0, 6.0, 5)
    X = (np.column_stack([rays, np.ones(5)]) * z[:, None] - t) @ R
    return R, t, rays, X


def closest(out, count, truth):
    return min((np.abs(row[: len(truth)] - truth).max() for row in out[:count]), default=np.inf)


@pytest.mark.parametrize("seed", range(60))
def test_three_points_give_the_pose(seed):
    R, t, rays, X = sample(seed)
    out = np.empty((4, 13))
    count = three_point(rays[:3].copy(), X[:3].copy(), out)
    assert closest(out, count, np.concatenate([R.ravel(), t])) < 1e-7
    for row in out[:count]:  # every solution reprojects exactly, in front of the camera
        y = X[:3] @ row[:9].reshape(3, 3).T + row[9:12]
        np.testing.assert_allclose(y[:, :2] / y[:, 2:], rays[:3], atol=1e-7)
        assert (y[:, 2] > 0).all()
        assert np.linalg.det(row[:9].reshape(3, 3)) > 0


@pytest.mark.parametrize("plane", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_five_points_give_pose_and_focal_length(seed, plane):
    R, t, rays, X = sample(seed, plane)
    out = np.empty((4, 13))
    count = five_point_focal(1.7 * rays, X, out)
    assert closest(out, count, np.concatenate([R.ravel(), t, [np.log(1.7)]])) < 1e-6


def test_degenerate_samples_are_refused():
    out = np.empty((4, 13))
    line = np.outer(np.arange(3.0), [1.0, 2.0, 3.0])
    assert three_point(np.eye(3, 2), line, out) == 0
    assert three_point(np.eye(3, 2), np.zeros((3, 3)), out) == 0
    assert meet_conics(np.zeros((3, 3)), np.zeros((3, 3)), np.empty((4, 3))) == 0
    assert meet_conics(np.eye(3), np.diag([1.0, 2.0, 3.0]), np.empty((4, 3))) == 0  # no real points


def test_conics_meet_in_four_points():
    out = np.empty((4, 3))
    circle, ellipse = np.diag([1.0, 1.0, -1.0]), np.diag([0.25, 4.0, -1.0])
    assert meet_conics(circle, ellipse, out) == 4
    for x in out:
        assert abs(x @ circle @ x) < 1e-9 * (x @ x)
        assert abs(x @ ellipse @ x) < 1e-9 * (x @ x)


def test_simulated_views_fit_their_truth():
    view = one_view(50, noise=0.0, offset=(100.0, 200.0, -50.0))
    np.testing.assert_allclose(view.camera.project(view.points3d @ view.R.T + view.t), view.points2d, atol=1e-8)
    with pytest.raises(ValueError, match="width and height"):
        one_view(5, camera=Intrinsics("PINHOLE", (1, 1, 0, 0)))
