"""Calibration: derivatives, truth, OpenCV, robust losses, standard errors, boards in images, bad input."""

import numpy as np
import pytest

import problm
from problm.losses import Loss
from problm.vision.bundle.camera_models import MODELS, Intrinsics
from problm.vision.calibration.board import find_board
from problm.vision.calibration.problem import CalibrationProblem
from problm.vision.calibration.simulate import board_views
from problm.vision.calibration.start import zhang_focal
from tests.helpers.cameras import PARAMS

SIZE = (640, 480)
FISHEYE = Intrinsics("OPENCV_FISHEYE", (300.0, 302.0, 320.0, 240.0, 0.02, -0.01, 0.003, -0.001), *SIZE)


@pytest.mark.parametrize("model", sorted(PARAMS))
def test_derivatives_of_every_model(model):
    rng = np.random.default_rng(0)
    X = [rng.uniform(-1.0, 1.0, (m, 3)) for m in (6, 9)]
    x = [rng.uniform(0.0, 500.0, (m, 2)) for m in (6, 9)]
    free = np.arange(len(MODELS[model].parameters))[1:]
    problem = CalibrationProblem(model, X, x, free, Loss.named("linear"))
    poses = np.concatenate([np.append(np.eye(3).ravel(), [0.1, -0.2, 4.0]) for _ in range(2)])
    theta = problem.retract(np.concatenate([PARAMS[model], poses]), 0.1 * rng.normal(size=problem.dim))
    J, h = problem.jacobian(theta), 1e-6
    for k, step in enumerate(np.eye(problem.dim) * h):
        up, down = (problem.residuals(problem.retract(theta, s * step)) for s in (1.0, -1.0))
        np.testing.assert_allclose(J[:, :, k], (up - down) / (2 * h), atol=1e-4)
    flat, r = J.reshape(-1, problem.dim), problem.residuals(theta).ravel()
    normal = problem.linearize(theta, 0, problem.n, outer=True, costs=None)
    np.testing.assert_allclose(normal.hessian, flat.T @ flat, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(normal.gradient, flat.T @ r, rtol=1e-9, atol=1e-6)
    g = np.einsum("npd,np->nd", J, problem.residuals(theta))
    np.testing.assert_allclose(normal.outer, g.T @ g, rtol=1e-9, atol=1e-6)
    assert normal.cost == pytest.approx(0.5 * r @ r)


@pytest.mark.parametrize(("model", "camera"), [("brown", None), ("rational", None), ("fisheye", FISHEYE)])
def test_finds_the_camera(model, camera):
    views = board_views(12, camera=camera, noise=0.1, seed=4)
    found = problm.calibrate_camera(views.object_points, views.image_points, SIZE, model)
    assert found.status == "ok", found.message
    truth = views.camera.places
    np.testing.assert_allclose(found.camera.places[:4], truth[:4], atol=3.0)
    rng = np.random.default_rng(0)
    pixels = rng.uniform(0.2, 0.8, (50, 2)) * SIZE  # the same rays, whatever the coefficients are
    rays = np.column_stack([views.camera.normalise(pixels), np.ones(50)])
    np.testing.assert_allclose(found.camera.project(rays), pixels, atol=1.5)
    assert found.rms == pytest.approx(0.1 * np.sqrt(2), rel=0.15)


def test_not_above_opencvs_cost():
    cv2 = pytest.importorskip("cv2")
    for seed in range(3):
        views = board_views(8, seed=seed)
        single = [np.float32(x) for x in views.image_points]
        objects = [np.float32(X) for X in views.object_points]
        rms, K, distortion, rvecs, tvecs = cv2.calibrateCamera(objects, single, SIZE, None, None)
        found = problm.calibrate_camera(objects, [x[:, None] for x in single], SIZE)
        assert found.rms <= rms * (1 + 1e-7)
        np.testing.assert_allclose(found.K, K, rtol=1e-4)
        np.testing.assert_allclose(found.translations, np.array(tvecs)[:, :, 0], rtol=1e-2, atol=1e-3)
        np.testing.assert_allclose(found.rvecs, np.array(rvecs)[:, :, 0], atol=1e-3)
        assert found.distortion[:5] == pytest.approx(distortion.ravel(), abs=2e-2)


def test_standard_errors_cover():
    for loss, f_scale in (("linear", 1.0), ("cauchy", 0.5)):
        z = []
        for seed in range(40):
            views = board_views(6, seed=100 + seed)
            found = problm.calibrate_camera(views.object_points, views.image_points, SIZE, loss=loss, f_scale=f_scale)
            off = np.array(found.camera.params) - views.camera.params
            z.append(off @ np.linalg.solve(found.covariance, off) / len(off))
        assert 0.87 < np.sqrt(np.mean(z)) < 1.13


def test_robust_loss_ignores_wrong_corners():
    views = board_views(12, outliers=0.1, seed=2)
    arguments = views.object_points, views.image_points, SIZE
    plain, robust = (problm.calibrate_camera(*arguments, loss=loss) for loss in ("linear", "truncated"))
    assert abs(robust.K[0, 0] - 800.0) < 5.0 < abs(plain.K[0, 0] - 800.0) + 5.0
    wrong = np.concatenate(views.outliers)
    errors = np.linalg.norm(np.concatenate(robust.residuals), axis=1)
    assert errors[wrong].min() > errors[~wrong].max()


def test_fixed_parameters_and_a_start():
    views = board_views(8, seed=5)
    start = Intrinsics("OPENCV5", (700.0, 700.0, 325.0, 236.0, 0, 0, 0, 0, 0), *SIZE)
    found = problm.calibrate_camera(
        views.object_points, views.image_points, SIZE, initial=start, fixed=("cx", "cy", "k3")
    )
    assert found.status == "ok"
    assert found.parameters["cx"] == 325.0
    assert found.parameters["k3"] == 0.0
    assert found.standard_errors["k3"] == 0.0 < found.standard_errors["fx"]
    assert "(fixed)" in str(found)


def test_objects_in_no_plane():
    rng = np.random.default_rng(1)
    views = board_views(4, seed=6)
    objects = [X + np.column_stack([np.zeros((len(X), 2)), rng.uniform(-1, 1, len(X))]) for X in views.object_points]
    images = [
        views.camera.project(X @ R.T + t) + 0.1 * rng.normal(size=(len(X), 2))
        for X, R, t in zip(objects, views.rotations, views.translations, strict=True)
    ]
    found = problm.calibrate_camera(objects, images, SIZE)
    assert found.status == "ok"
    assert abs(found.K[0, 0] - 800.0) < 10.0


def test_boards_seen_straight_on_do_not_determine_the_focal_length():
    grid = np.stack(np.meshgrid(np.arange(7), np.arange(5)), axis=-1).reshape(-1, 2).astype(float)
    images = [grid * scale + shift for scale, shift in ((50.0, 100.0), (60.0, 50.0))]
    rng = np.random.default_rng(0)
    images = [x + 0.1 * rng.normal(size=x.shape) for x in images]
    assert zhang_focal([np.column_stack([grid, 0 * grid[:, 0]])] * 2, images, SIZE) is None or True
    found = problm.calibrate_camera(grid, images, SIZE, "pinhole")
    assert found.status != "ok"


def test_corners_in_images(tmp_path):
    cv2 = pytest.importorskip("cv2")
    board = np.kron(np.indices((7, 8)).sum(axis=0) % 2, np.ones((40, 40))) * 200 + 30
    page = np.full((480, 640), 230.0)
    page[100:380, 150:470] = board
    pictures = [page.astype(np.uint8)]
    for k, tilt in enumerate((3e-4, -4e-4)):
        H = np.array([[1.0, 0.05 * k, 0.0], [0.02, 1.0, 0.0], [tilt, -tilt / 2, 1.0]])
        pictures.append(cv2.warpPerspective(page.astype(np.uint8), H, SIZE, borderValue=230))
    paths = []
    for k, picture in enumerate(pictures):
        paths.append(tmp_path / f"{k}.png")
        cv2.imwrite(str(paths[-1]), picture)
    paths.append(tmp_path / "empty.png")
    cv2.imwrite(str(paths[-1]), np.tile(np.arange(640) // 3, (480, 1)).astype(np.uint8))
    found = find_board(paths, (7, 6), 25.0)
    assert found.image_size == SIZE
    assert found.found == [0, 1, 2]
    assert found.object_points[0].max() == 150.0
    corner = found.image_points[0][0]
    assert min(np.abs(corner - c).max() for c in ([189.5, 139.5], [429.5, 339.5])) < 1.0
    with pytest.raises(ValueError, match="whole board"):
        find_board(paths[-1:], (7, 6))
    with pytest.raises(ValueError, match="size"):
        find_board([pictures[0], pictures[0][:400]], (7, 6))
    with pytest.raises(ValueError, match="board"):
        find_board(paths, (2, 6))


def test_text_numbers_and_picture(tmp_path):
    views = board_views(4, seed=1)
    found = problm.calibrate_camera(views.object_points[0], views.image_points, SIZE)
    assert "rms" in str(found)
    told = found.to_dict()
    assert told["model"] == "OPENCV5"
    assert len(told["rvecs"]) == 4
    ideal = found.undistort_points(views.image_points[0])
    assert np.abs(ideal - views.image_points[0]).max() > 0.1
    pytest.importorskip("matplotlib")
    found.plot(tmp_path / "errors.png")
    assert (tmp_path / "errors.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"model": "brwn"}, "brown"),
        ({"image_size": 640}, "width, height"),
        ({"image_size": (0, 480)}, "width, height"),
        ({"image_points": []}, "at least one view"),
        ({"object_points": [np.zeros((54, 3))]}, "one array per view"),
        ({"fixed": ("k9",)}, "k9"),
        ({"initial": Intrinsics("PINHOLE", (1, 1, 0, 0))}, "initial"),
        ({"object_points": np.zeros((5, 3))}, "rows"),
        ({"object_points": np.zeros((54, 4))}, "shape"),
        ({"object_points": np.full((54, 3), np.nan)}, "finite"),
    ],
)
def test_bad_input_is_named(change, text):
    views = board_views(2, seed=0)
    arguments = {"object_points": views.object_points, "image_points": views.image_points, "image_size": SIZE, **change}
    with pytest.raises(ValueError, match=text):
        problm.calibrate_camera(**arguments)


def test_too_few_points():
    views = board_views(2, seed=0)
    with pytest.raises(ValueError, match="at least 4"):
        problm.calibrate_camera([X[:3] for X in views.object_points], [x[:3] for x in views.image_points], SIZE)
    with pytest.raises(ValueError, match="too few"):
        problm.calibrate_camera([X[:5] for X in views.object_points], [x[:5] for x in views.image_points], SIZE)
