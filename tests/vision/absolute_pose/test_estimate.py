"""Absolute poses: truth, outliers, peers, standard errors, degenerate scenes and bad input."""

import pickle

import numpy as np
import pytest

import problm
from problm.manifolds import rotation_log
from problm.vision.absolute_pose.simulate import one_view
from problm.vision.bundle.camera_models import Intrinsics
from tests.helpers.cameras import PARAMS


@pytest.mark.parametrize("n", [20, 200, 3000])
@pytest.mark.parametrize("inliers", [1.0, 0.5, 0.3])
def test_finds_the_pose_among_outliers(n, inliers):
    view = one_view(n, inliers=inliers, seed=5)
    pose = problm.absolute_pose(view.points2d, view.points3d, view.K)
    assert pose.status == "ok", pose.message
    assert pose.rotation_error(view.R) < 3.0 / np.sqrt(n * inliers)
    assert (pose.inliers & ~view.inliers).sum() <= 0.02 * n
    assert (pose.inliers & view.inliers).sum() >= 0.9 * view.inliers.sum()


@pytest.mark.parametrize("model", sorted(PARAMS))
def test_every_camera_model(model):
    camera = Intrinsics(model, (*PARAMS[model],), 640, 480)
    places = camera.places
    places[2:4] = 320.0, 240.0
    view = one_view(300, inliers=0.7, camera=camera.with_places(places), seed=1)
    good = np.isfinite(view.points3d).all(axis=1)
    pose = problm.absolute_pose(view.points2d[good], view.points3d[good], view.camera)
    assert pose.status == "ok"
    assert pose.rotation_error(view.R) < 0.3


@pytest.mark.parametrize("inliers", [1.0, 0.6])
def test_unknown_focal_length(inliers):
    view = one_view(500, inliers=inliers, seed=2)
    pose = problm.absolute_pose(view.points2d, view.points3d, (1.0, 1.0, 320.0, 240.0), estimate_focal=True)
    assert pose.status == "ok"
    assert abs(pose.focal - 800.0) < 15.0
    assert abs(pose.focal - 800.0) < 5.0 * pose.standard_errors[6]
    assert "focal" in str(pose)


def test_large_coordinates_and_units():
    view = one_view(400, inliers=0.7, seed=3, offset=(4.5e6, 3.1e5, 200.0))
    pose = problm.absolute_pose(view.points2d, view.points3d, view.K)
    assert pose.status == "ok"
    assert pose.center_error(view.R, view.t) < 0.05
    scaled = problm.absolute_pose(view.points2d, 1e-3 * view.points3d, view.K)
    np.testing.assert_allclose(scaled.R, pose.R, atol=1e-6)


def test_equal_seeds_give_equal_bits_and_batches_the_same_answer():
    view = one_view(60_000, inliers=0.5, seed=4)
    first, second = (problm.absolute_pose(view.points2d, view.points3d, view.K) for _ in range(2))
    assert np.array_equal(first.R, second.R)
    assert np.array_equal(first.t, second.t)
    assert first.rotation_error(view.R) < 0.01
    part = problm.absolute_pose(view.points2d[:30_000], view.points3d[:30_000], view.K, rng=3)
    assert part.rotation_error(first.R) < 0.02


def test_refines_a_start_on_all_matches():
    view = one_view(100, seed=6, noise=0.5)
    truth = view.R, view.t
    exact = problm.absolute_pose(view.points2d, view.points3d, view.K, initial=truth, robust=False)
    for initial in (
        (rotation_log(view.R) + 0.02, view.t + 0.1),
        np.column_stack([view.R, view.t + 0.1]),
        exact,
        None,
    ):
        pose = problm.absolute_pose(view.points2d, view.points3d, view.K, initial=initial, robust=False)
        np.testing.assert_allclose(pose.R, exact.R, atol=1e-6)
        assert pose.status == "ok"
        assert pose.inliers.all()
    robust = problm.absolute_pose(view.points2d, view.points3d, view.K, initial=exact)
    assert robust.rotation_error(exact.R) < 0.1
    cv2 = pytest.importorskip("cv2")
    _, rvec, tvec = cv2.solvePnP(view.points3d, view.points2d, view.K, None, flags=cv2.SOLVEPNP_ITERATIVE)
    np.testing.assert_allclose(exact.rvec, rvec.ravel(), atol=1e-5)
    np.testing.assert_allclose(exact.t, tvec.ravel(), atol=1e-4)


def test_opencv_shapes_and_distortion():
    camera = Intrinsics("FULL_OPENCV", (700, 710, 320, 240, -0.2, 0.05, 0.001, -0.002, 0.01, 0.02, 0.0, 0.01), 640, 480)
    view = one_view(200, camera=camera, noise=0.2, seed=7)
    pose = problm.absolute_pose(view.points2d[:, None], view.points3d[:, None], view.K, distortion=camera.params[4:])
    assert pose.status == "ok"
    assert pose.rotation_error(view.R) < 0.05
    np.testing.assert_allclose(pose.project(view.points3d), camera.project(view.points3d @ view.R.T + view.t), atol=1.0)
    cv2 = pytest.importorskip("cv2")
    seen, _ = cv2.projectPoints(view.points3d, pose.rvec, pose.t, view.K, np.array(camera.params[4:]))
    np.testing.assert_allclose(pose.project(view.points3d), seen[:, 0], atol=1e-6)


def test_weights_are_inverse_variances():
    rng = np.random.default_rng(0)
    view = one_view(400, noise=0.0, seed=8)
    sigma = rng.choice([0.2, 4.0], 400)
    x = view.points2d + sigma[:, None] * rng.normal(size=(400, 2))
    weighted = problm.absolute_pose(x, view.points3d, view.K, weights=1.0 / sigma**2)
    plain = problm.absolute_pose(x, view.points3d, view.K, robust=False)
    assert weighted.rotation_error(view.R) < plain.rotation_error(view.R)
    assert 2.0 < weighted.threshold < 4.0  # in standard deviations
    assert weighted.inliers.mean() > 0.95
    assert weighted.errors.max() > 5.0


@pytest.mark.parametrize("focal", [False, True])
def test_standard_errors_cover(focal):
    """z values of rotation, position and focal length over scenes of their own seeds."""
    z = []
    for seed in range(60):
        view = one_view(200, inliers=0.7, seed=900 + seed)
        pose = problm.absolute_pose(view.points2d, view.points3d, view.K, estimate_focal=focal)
        assert pose.status == "ok"
        w = rotation_log(view.R @ pose.R.T)
        off = np.concatenate([w, view.t - pose.t, [800.0 - pose.focal] if focal else []])
        z.append(off @ np.linalg.solve(pose.covariance, off) / len(off))
        center = -view.R.T @ view.t - pose.center
        assert center @ np.linalg.solve(pose.center_covariance, center) < 40.0
    assert 0.85 < np.sqrt(np.mean(z)) < 1.15


def test_as_accurate_as_poselib():
    poselib = pytest.importorskip("poselib")
    ours, theirs = [], []
    for seed in range(30):
        view = one_view(300, inliers=0.5, seed=700 + seed)
        camera = {"model": "PINHOLE", "width": 640, "height": 480, "params": [800, 800, 320, 240]}
        found, _ = poselib.estimate_absolute_pose(view.points2d, view.points3d, camera, {"max_reproj_error": 3.0}, {})
        pose = problm.absolute_pose(view.points2d, view.points3d, camera)
        ours.append(pose.rotation_error(view.R))
        theirs.append(np.degrees(np.linalg.norm(rotation_log(found.R @ view.R.T))))
    assert np.median(ours) < 1.05 * np.median(theirs)
    assert max(ours) < 1.2 * max(theirs)


def test_points_in_a_plane():
    view = one_view(200, inliers=0.6, plane=True, seed=1)
    pose = problm.absolute_pose(view.points2d, view.points3d, view.K)
    assert pose.status == "ok"
    assert pose.rotation_error(view.R) < 0.5
    assert "plane" in pose.message


def test_a_distant_plane_has_two_poses():
    far = Intrinsics("PINHOLE", (40_000.0, 40_000.0, 320.0, 240.0), 640, 480)
    view = one_view(12, plane=True, camera=far, noise=2.0, seed=1, depth=(70.0, 70.0))
    pose = problm.absolute_pose(view.points2d, view.points3d, view.K)
    assert pose.status == "degenerate"
    assert "Two poses" in pose.message
    assert min(pose.rotation_error(view.R), np.degrees(np.linalg.norm(rotation_log(pose.other[0] @ view.R.T)))) < 20.0


def test_inliers_on_a_line_are_said():
    rng = np.random.default_rng(0)
    X = np.array([0.3, 0.2, 5.0]) + np.outer(rng.uniform(-1, 1, 60), [1.0, 0.5, 0.3])
    x = X[:, :2] / X[:, 2:] * 800.0 + [320.0, 240.0] + 0.3 * rng.normal(size=(60, 2))
    X[50:] = rng.uniform(-1, 1, (10, 3)) + np.array([0.0, 0.0, 5.0])
    pose = problm.absolute_pose(x, X, (800, 800, 320, 240))
    assert pose.status in ("degenerate", "no consensus")
    with pytest.raises(ValueError, match="line"):
        problm.absolute_pose(x[:50], X[:50], (800, 800, 320, 240))


def test_points_behind_the_camera_are_no_inliers():
    view = one_view(100, seed=2)
    mirrored = problm.absolute_pose(view.points2d, -((view.points3d @ view.R.T) + view.t), view.K)
    assert mirrored.status != "ok" or not np.allclose(mirrored.R, np.eye(3), atol=0.1)
    R = np.diag([-1.0, -1.0, 1.0]) @ view.R
    behind = problm.absolute_pose(view.points2d, view.points3d, view.K, initial=(R, -view.t), robust=False, max_iter=1)
    assert not behind.success


def test_chance_is_no_consensus():
    rng = np.random.default_rng(0)
    pose = problm.absolute_pose(rng.uniform(0, 600, (50, 2)), rng.normal(size=(50, 3)), (800, 800, 320, 240))
    assert pose.status == "no consensus"
    assert np.isnan(pose.R).all()
    assert np.isnan(pose.rvec).all()
    assert "chance" in str(pose)
    assert np.isnan(pose.covariance).all()
    assert np.isnan(pose.quaternion).all()


def test_a_focal_length_of_a_parallel_plane_is_not_determined():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-2, 2, (80, 2)), np.full(80, 8.0) + 0.01 * rng.normal(size=80)])
    x = X[:, :2] / X[:, 2:] * 800.0 + rng.normal(size=(80, 2))
    pose = problm.absolute_pose(x, X, (800, 800, 0, 0), estimate_focal=True)
    assert pose.status != "ok"


def test_the_result_as_text_numbers_and_picture(tmp_path):
    view = one_view(80, inliers=0.8, seed=3)
    pose = problm.absolute_pose(view.points2d, view.points3d, view.K)
    assert "camera at" in str(pose)
    assert "rms" in str(pose)
    told = pose.to_dict()
    assert told["inliers"] == int(pose.inliers.sum())
    assert len(told["quaternion"]) == 4
    again = pickle.loads(pickle.dumps(pose))  # noqa: S301
    np.testing.assert_array_equal(again.covariance, pose.covariance)
    np.testing.assert_allclose(pose.matrix @ [0, 0, 0, 1], pose.t)
    assert pose.quaternion[0] >= 0
    assert abs(np.linalg.norm(pose.quaternion) - 1) < 1e-12
    pytest.importorskip("matplotlib")
    pose.plot(np.zeros((480, 640)), path=tmp_path / "pose.png")
    assert (tmp_path / "pose.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"points2d": np.zeros((10, 3)), "points3d": np.zeros((10, 2))}, "pixels come first"),
        ({"points2d": np.zeros((2, 10))}, "transpose"),
        ({"points3d": np.ones((10, 4))}, "homogeneous"),
        ({"points2d": np.zeros((9, 2))}, "one row per match"),
        ({"points3d": np.full((10, 3), np.nan)}, "row 0"),
        ({"points3d": np.ones((10, 3))}, "coincide"),
        ({"K": np.array([[1, 0.5, 0], [0, 1, 0], [0, 0, 1]])}, "skew"),
        ({"K": {"params": [1]}}, "model"),
        ({"weights": np.zeros(10)}, "positive"),
        ({"weights": np.ones(3)}, "shape"),
        ({"distortion": [np.nan]}, "distortion"),
        ({"initial": np.eye(2)}, "initial"),
        ({"initial": (2 * np.eye(3), np.zeros(3))}, "rotation"),
        ({"initial": (np.eye(3), np.full(3, np.inf))}, "finite"),
        ({"threshold": -1.0}, "threshold"),
        ({"loss": "linear"}, "robust=False"),
    ],
)
def test_bad_input_is_named(change, text):
    view = one_view(10, seed=0)
    arguments = {"points2d": view.points2d, "points3d": view.points3d, "K": view.K, **change}
    with pytest.raises(ValueError, match=text):
        problm.absolute_pose(**arguments)


def test_too_few_matches():
    view = one_view(3)
    with pytest.raises(ValueError, match="at least 4"):
        problm.absolute_pose(view.points2d, view.points3d, view.K)
    few = one_view(4, noise=0.0)
    assert problm.absolute_pose(few.points2d, few.points3d, few.K).status in ("ok", "no consensus", "degenerate")
