"""``problm rgbd``."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from problm.cli.app import app
from problm.vision.rgbd.simulate import two_frames


def test_rgbd(tmp_path):
    image = pytest.importorskip("PIL.Image")
    frames = two_frames(seed=1)
    for name, plane in (("a", frames.image1), ("b", frames.image2)):
        image.fromarray(np.clip(np.rint(255 * plane), 0, 255).astype(np.uint8)).save(tmp_path / f"{name}.png")
    image.fromarray(np.rint(5000 * frames.depth1).astype(np.uint16)).save(tmp_path / "a_depth.png")
    np.save(tmp_path / "b_depth.npy", 5000 * frames.depth2)
    np.savetxt(tmp_path / "K.txt", frames.K)
    names = [str(tmp_path / name) for name in ("a.png", "a_depth.png", "b.png")]
    more = ["-K", str(tmp_path / "K.txt"), "--depth2", str(tmp_path / "b_depth.npy"), "--depth-scale", "5000"]
    done = CliRunner().invoke(app, ["rgbd", *names, *more, "-o", str(tmp_path / "out"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["status"] == "ok"
    matrix = np.loadtxt(tmp_path / "out" / "matrix.txt")
    assert np.abs(matrix[:3, :3] - frames.R).max() < 0.002
    assert np.abs(matrix[:3, 3] - frames.t).max() < 0.002
    assert (tmp_path / "out" / "report.html").exists()
    for wrong in ([*names[:2], "absent.png", *more], [*names, *more, "--depth-scale", "0"]):
        assert CliRunner().invoke(app, ["rgbd", *wrong, "--no-output"]).exit_code == 2
