"""``problm pose``, ``absolute-pose`` and ``calibrate``: from files to files."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from problm.cli.app import app
from problm.vision.absolute_pose.simulate import one_view


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_absolute_pose(tmp_path):
    view = one_view(80, inliers=0.7, seed=1)
    rows = np.column_stack([view.points2d, view.points3d])
    np.savetxt(tmp_path / "matches.csv", rows, delimiter=",", header="x,y,X,Y,Z", comments="")
    np.save(tmp_path / "matches.npy", rows)
    (tmp_path / "K.txt").write_text("800 800 320 240")
    for name in ("matches.csv", "matches.npy"):
        out = tmp_path / name.replace(".", "_")
        done = run("absolute-pose", tmp_path / name, "-K", tmp_path / "K.txt", "-o", out)
        assert done.exit_code == 0, done.output
        told = json.loads((out / "result.json").read_text())
        np.testing.assert_allclose(told["R"], view.R, atol=0.01)
        assert (out / "report.html").exists()
        assert "camera at" in done.output
    more = ("-K", tmp_path / "K.txt", "--no-output", "--json")
    done = run("absolute-pose", tmp_path / "matches.npy", "--estimate-focal", "--distortion", "0,0", *more)
    assert done.exit_code == 0
    assert abs(json.loads(done.stdout)["camera"]["params"][0] - 800.0) < 30.0


@pytest.mark.parametrize("more", [("--threshold", "x"), ("--distortion", "a"), ("-K", "none.txt")])
def test_absolute_pose_with_bad_input(tmp_path, more):
    np.save(tmp_path / "matches.npy", np.zeros((10, 5)))
    assert run("absolute-pose", tmp_path / "matches.npy", "--no-output", *more).exit_code == 2
    np.save(tmp_path / "narrow.npy", np.zeros((10, 4)))
    assert run("absolute-pose", tmp_path / "narrow.npy", "--no-output").exit_code == 2


def photographs(folder):
    """Two pictures of a textured scene of two planes, from places apart."""
    cv2 = pytest.importorskip("cv2")
    rng = np.random.default_rng(3)
    texture = cv2.resize(rng.integers(0, 255, (60, 80)).astype(np.uint8), (640, 480), interpolation=cv2.INTER_CUBIC)
    K = np.array([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]])
    t = np.array([0.4, 0.05, 0.0])
    near, far = (K @ (np.eye(3) + np.outer(t, n)) @ np.linalg.inv(K) for n in ([0, 0, 0.25], [0.12, 0, 0.12]))
    second = cv2.warpPerspective(texture, far, (640, 480))
    mask = cv2.warpPerspective(np.tile(np.arange(640) > 320, (480, 1)).astype(np.uint8), near, (640, 480)) > 0
    second[mask] = cv2.warpPerspective(texture, near, (640, 480))[mask]
    paths = folder / "a.png", folder / "b.png"
    for path, picture in zip(paths, (texture, second), strict=True):
        cv2.imwrite(str(path), picture)
    (folder / "K.txt").write_text("500 0 320 0 500 240 0 0 1")
    return paths


def test_pose_of_two_photographs(tmp_path):
    a, b = photographs(tmp_path)
    done = run("pose", a, b, "-K", tmp_path / "K.txt", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    told = json.loads((tmp_path / "out" / "result.json").read_text())
    assert told["inliers"] > 50
    assert abs(np.dot(told["t"], [0.4, 0.05, 0.0]) / np.linalg.norm([0.4, 0.05])) > 0.9
    assert (tmp_path / "out" / "matches.png").stat().st_size > 10_000
    done = run("pose", a, b, "--no-output", "--json")
    assert "F" in json.loads(done.stdout)
    assert run("pose", a, tmp_path / "none.png").exit_code == 2


def test_calibration_from_photographs(tmp_path):
    cv2 = pytest.importorskip("cv2")
    board = np.kron(np.indices((7, 8)).sum(axis=0) % 2, np.ones((40, 40))) * 200 + 30
    page = np.full((480, 640), 230.0)
    page[100:380, 150:470] = board
    K = np.array([[700.0, 0, 319.5], [0, 700, 239.5], [0, 0, 1]])
    paths = []
    for k, w in enumerate(([0.3, 0.1, 0], [-0.3, 0.2, 0.1], [0.1, -0.4, 0], [0.2, 0.35, -0.1], [-0.1, -0.3, 0.2])):
        R = cv2.Rodrigues(np.array(w))[0]
        # The page is the plane Z = 0, its middle 1 in front of the camera.
        plane = np.column_stack([R[:, 0], R[:, 1], [0.0, 0.0, 1.0]])
        H = K @ plane @ np.diag([1 / 700, 1 / 700, 1]) @ np.array([[1, 0, -319.5], [0, 1, -239.5], [0, 0, 1]])
        paths.append(tmp_path / f"{k}.png")
        cv2.imwrite(str(paths[-1]), cv2.warpPerspective(page.astype(np.uint8), H, (640, 480), borderValue=230))
    out = tmp_path / "out"
    done = run("calibrate", *paths, "--board", "7x6", "--square", "25", "--model", "pinhole", "-o", out)
    assert done.exit_code == 0, done.output
    told = json.loads((out / "result.json").read_text())
    assert abs(told["parameters"]["fx"] - 700.0) < 20.0
    assert np.loadtxt(out / "K.txt")[0, 0] == told["parameters"]["fx"]
    assert (out / "errors.png").exists()
    assert run("calibrate", *paths, "--board", "7", "--no-output").exit_code == 2
