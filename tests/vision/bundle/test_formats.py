"""COLMAP's binary form, BAL and PLY written, pictures of reconstructions; damaged files."""

import struct
from contextlib import suppress

import numpy as np
import pytest

import problm
from problm import read_bal, read_colmap, write_colmap
from problm.manifolds import rotation_exp
from problm.vision.bundle.camera_models import MODELS, Intrinsics
from problm.vision.bundle.colmap_binary import FILES, IDS
from problm.vision.bundle.plot import plot_reconstruction
from problm.vision.bundle.reconstruction import Reconstruction
from problm.vision.points import read_points
from tests.helpers.cameras import PARAMS
from tests.vision.bundle.test_reconstruction import same, small


def test_binary_round_trip(tmp_path):
    model = small()
    write_colmap(model, tmp_path / "bin", binary=True)
    assert sorted(p.name for p in (tmp_path / "bin").iterdir()) == sorted(FILES)
    again = read_colmap(tmp_path / "bin")
    write_colmap(model, tmp_path / "text")
    same(read_colmap(tmp_path / "text"), again)
    same(problm.read_reconstruction(tmp_path / "bin"), again)


@pytest.mark.parametrize("model", sorted(PARAMS))
def test_every_camera_model_in_binary(model, tmp_path):
    camera = Intrinsics(model, PARAMS[model], 640, 480)
    scene = Reconstruction.from_arrays([np.eye(3)], [[0, 0, 0]], camera, [[0, 0, 5]], [[0, 0, 320, 241]])
    write_colmap(scene, tmp_path, binary=True)
    again = read_colmap(tmp_path).intrinsics[0]
    np.testing.assert_array_equal(again.places, camera.places)
    assert again.model == ("FULL_OPENCV" if model == "OPENCV5" else model)
    assert (model in IDS) == (model != "OPENCV5")


def test_pycolmap_reads_the_binary_form(tmp_path):
    pycolmap = pytest.importorskip("pycolmap")
    write_colmap(small(), tmp_path, binary=True)
    assert len(pycolmap.Reconstruction(str(tmp_path)).points3D) == 5


@pytest.mark.parametrize("name", FILES)
def test_damaged_binary_files_are_refused(name, tmp_path):
    write_colmap(small(), tmp_path, binary=True)
    whole = (tmp_path / name).read_bytes()
    rng = np.random.default_rng(0)
    for cut in (0, 4, 9, len(whole) // 2, len(whole) - 1):
        (tmp_path / name).write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=name):
            read_colmap(tmp_path)
    (tmp_path / name).write_bytes(whole + b"x")
    with pytest.raises(ValueError, match="left over"):
        read_colmap(tmp_path)
    (tmp_path / name).write_bytes(b"\xff" * 8 + whole[8:])
    with pytest.raises(ValueError, match="announced"):
        read_colmap(tmp_path)
    for _ in range(200):  # any damage is a ValueError, or a valid model
        spoilt = bytearray(whole)
        spoilt[rng.integers(len(whole))] = rng.integers(256)
        (tmp_path / name).write_bytes(spoilt)
        with suppress(ValueError):
            read_colmap(tmp_path)


def test_the_length_of_a_quaternion_does_not_overflow(tmp_path):
    write_colmap(small(), tmp_path, binary=True)
    whole = (tmp_path / "images.bin").read_bytes()
    (tmp_path / "images.bin").write_bytes(whole[:12] + struct.pack("<d", 1e300) + whole[20:])
    with pytest.raises(ValueError, match=r"images\.bin.*must have length 1, has 1e\+300"):
        read_colmap(tmp_path)


def test_a_model_needs_all_its_files(tmp_path):
    write_colmap(small(), tmp_path, binary=True)
    (tmp_path / "images.bin").unlink()
    with pytest.raises(FileNotFoundError, match="COLMAP model"):
        read_colmap(tmp_path)


def test_bal_round_trip(tmp_path):
    rng = np.random.default_rng(0)
    cameras = [Intrinsics("RADIAL", (500.0 + k, 10.0, -5.0, -0.1, 0.02), id=k + 1) for k in range(3)]
    R = np.stack([rotation_exp(0.1 * rng.normal(size=3)) for _ in range(3)])
    t, X = rng.normal(size=(3, 3)) * 0.1, rng.uniform(-1, 1, (6, 3)) + np.array([0.0, 0.0, 5.0])
    seen = np.stack([c.project(X @ r.T + s) for c, r, s in zip(cameras, R, t, strict=True)])
    seen[1, 2] = np.nan
    model = Reconstruction.from_arrays(R, t, cameras, X, seen + 0.5)
    problm.write_bal(model, tmp_path / "scene.txt")
    again = read_bal(tmp_path / "scene.txt")
    np.testing.assert_allclose(again.residuals(), model.residuals(), atol=1e-9)
    np.testing.assert_allclose(again.rotations, model.rotations, atol=1e-12)
    np.testing.assert_array_equal(again.points, model.points)


def test_bal_refuses_cameras_that_it_cannot_hold(tmp_path):
    for model in ("OPENCV", "OPENCV_FISHEYE"):
        camera = Intrinsics(model, PARAMS[model])
        scene = Reconstruction.from_arrays([np.eye(3)], [[0, 0, 0]], camera, [[0, 0, 5]], [[0, 0, 320, 241]])
        with pytest.raises(ValueError, match="BAL has"):
            problm.write_bal(scene, tmp_path / "no.txt")
    assert not (tmp_path / "no.txt").exists()
    assert len(MODELS) == len(PARAMS)


def test_formats_by_name_and_suffix(tmp_path):
    model = small()
    problm.write_reconstruction(model, tmp_path / "points.ply")
    np.testing.assert_array_equal(read_points(tmp_path / "points.ply"), model.points)
    problm.write_reconstruction(model, tmp_path / "folder")
    same(read_colmap(tmp_path / "folder"), read_colmap(tmp_path / "folder"))
    problm.write_reconstruction(model, tmp_path / "text", format="colmap-text")
    assert (tmp_path / "text" / "cameras.txt").exists()
    with pytest.raises(ValueError, match="format"):
        problm.write_reconstruction(model, tmp_path / "x", format="obj")


def test_picture_of_cameras_and_points(tmp_path):
    pytest.importorskip("matplotlib")
    plot_reconstruction(small(), path=tmp_path / "scene.png")
    assert (tmp_path / "scene.png").stat().st_size > 1000
