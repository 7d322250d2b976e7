"""``problm register``."""

import json

import numpy as np
from typer.testing import CliRunner

from problm.cli.app import app
from problm.vision.points import read_points, write_ply
from problm.vision.registration.simulate import two_clouds


def test_register(tmp_path):
    clouds = two_clouds(3000, seed=1)
    write_ply(tmp_path / "a.ply", clouds.source)
    np.save(tmp_path / "b.npy", clouds.target)
    done = CliRunner().invoke(
        app, ["register", str(tmp_path / "a.ply"), str(tmp_path / "b.npy"), "-o", str(tmp_path / "out"), "--json"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["status"] == "ok"
    matrix = np.loadtxt(tmp_path / "out" / "matrix.txt")
    assert np.abs(matrix[:3, :3] - clouds.R).max() < 0.01
    moved = read_points(tmp_path / "out" / "registered.ply")
    assert np.allclose(moved, clouds.source @ matrix[:3, :3].T + matrix[:3, 3])


def test_wrong_arguments(tmp_path):
    write_ply(tmp_path / "a.ply", np.zeros((3, 3)))
    a = str(tmp_path / "a.ply")
    for more in ([a, "absent.ply"], [a, a], [a, a, "--initial", "absent.txt"]):
        assert CliRunner().invoke(app, ["register", *more, "--no-output"]).exit_code == 2
