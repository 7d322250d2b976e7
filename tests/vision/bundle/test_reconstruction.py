"""Reconstructions: camera models, files, and files that lie."""

from __future__ import annotations

import bz2
import gzip
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from problm import Reconstruction, read_bal, read_colmap, read_reconstruction, write_colmap
from problm.vision.bundle.camera_models import MODELS, PLACES, Intrinsics
from tests.helpers.cameras import PARAMS


def small(seed=0):
    rng = np.random.default_rng(seed)
    R = Rotation.random(3, rng=rng).as_matrix()
    X = rng.normal(size=(5, 3))
    t = -np.einsum("cij,j->ci", R, X.mean(axis=0)) + [0, 0, 9]
    cameras = [
        Intrinsics("SIMPLE_RADIAL", (500.0, 1.0, 2.0, 0.01), 640, 480, 7),
        Intrinsics("PINHOLE", (5, 6, 7, 8), id=9),
    ]
    seen = rng.normal(size=(3, 5, 2)) * 100
    seen[0, 2] = np.nan
    names = ("a b.jpg", "ünï.png", "c.jpg")
    return Reconstruction.from_arrays(R, t, cameras, X, seen, camera=[0, 1, 0], names=names)


def same(a, b):
    np.testing.assert_allclose(a.rotations, b.rotations, atol=1e-14)
    for name in ("translations", "points", "start", "image", "xy", "camera", "image_ids", "point_ids", "colors"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert a.names == b.names
    assert a.intrinsics == b.intrinsics


@pytest.mark.parametrize("model", MODELS)
def test_normalise_inverts_project(model):
    camera = Intrinsics(model, PARAMS[model])
    x = np.random.default_rng(0).uniform(-0.4, 0.4, (100, 3))
    x[:, 2] = np.random.default_rng(1).uniform(1, 2, 100)
    np.testing.assert_allclose(camera.normalise(camera.project(x)), x[:, :2] / x[:, 2:], atol=1e-9)
    assert camera.with_places(camera.places) == camera
    assert len(camera.places) == PLACES


def test_normalise_says_where_it_fails():
    camera = Intrinsics("RADIAL", (1.0, 0.0, 0.0, -1.0, 0.0))
    found = camera.normalise([[0.1, 0.0], [5.0, 0.0]])
    assert np.isfinite(found[0]).all()
    assert np.isnan(found[1]).all()


@pytest.mark.parametrize(
    ("model", "params", "message"),
    [
        ("FISHEYE", (1, 2, 3), "is not supported"),
        ("PINHOLE", (1, 2, 3), "has 4 parameters"),
        ("PINHOLE", (-1, 2, 3, 4), "must be positive"),
        ("PINHOLE", (np.nan, 2, 3, 4), "must be finite"),
    ],
)
def test_cameras_are_checked(model, params, message):
    with pytest.raises(ValueError, match=message):
        Intrinsics(model, params)


def test_projection_is_opencv_s():
    cv2 = pytest.importorskip("cv2")
    camera = Intrinsics("OPENCV", PARAMS["OPENCV"])
    x = np.random.default_rng(0).uniform(-1, 1, (20, 3)) + np.array([0, 0, 4])
    fx, fy, cx, cy, k1, k2, p1, p2 = PARAMS["OPENCV"]
    K = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
    expected = cv2.projectPoints(x, np.zeros(3), np.zeros(3), K, np.array([k1, k2, p1, p2]))[0][:, 0]
    np.testing.assert_allclose(camera.project(x), expected, atol=1e-9)


def test_both_forms_of_observations_agree():
    model = small()
    point = np.repeat(np.arange(5), model.track_lengths)
    rows = np.column_stack([model.image, point, model.xy])
    shuffled = rows[np.random.default_rng(0).permutation(len(rows))]
    other = Reconstruction.from_arrays(
        model.rotations, model.translations, model.intrinsics, model.points, shuffled, camera=model.camera
    )
    np.testing.assert_array_equal(model.start, other.start)
    assert sorted(map(tuple, np.column_stack([other.image, other.xy]))) == sorted(
        map(tuple, np.column_stack([model.image, model.xy]))
    )
    assert model.track_lengths.tolist() == [3, 3, 2, 3, 3]


def test_common_and_select():
    model = small()
    seen, which = model.common([2, 0])
    assert which.tolist() == [0, 1, 3, 4]
    assert seen.shape == (2, 4, 2)
    part = model.select([2, 0])
    assert part.names == ("c.jpg", "a b.jpg")
    assert len(part.points) == 4
    np.testing.assert_allclose(
        np.sort(np.abs(part.residuals()).ravel()),
        np.sort(
            np.abs(model.residuals()[(model.image != 1) & (np.repeat(np.arange(5), model.track_lengths) != 2)]).ravel()
        ),
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rotations": np.zeros((3, 3))}, "rotations must have the shape"),
        ({"rotations": np.zeros((3, 3, 3))}, "must be rotation matrices"),
        ({"translations": np.zeros((2, 3))}, "translations must have the shape"),
        ({"points": np.zeros((5, 2))}, "points must have the shape"),
        ({"points": np.full((5, 3), np.inf)}, "must be finite"),
        ({"observations": np.zeros((2, 5, 2))}, "observations must be"),
        ({"observations": np.array([[0.5, 0, 1, 1]])}, "whole numbers"),
        ({"observations": np.array([[3.0, 0, 1, 1]])}, "image numbers must lie between 0 and 2"),
        ({"observations": np.array([[0.0, -1, 1, 1]])}, "point numbers"),
        ({"observations": np.array([[0.0, 0, 1, np.inf]])}, "must be finite"),
        ({"camera": [0, 1, 2]}, "camera must hold"),
        ({"observations": [["a"]]}, "observations must be an array of real numbers"),
        ({"intrinsics": [Intrinsics("PINHOLE", (1, 1, 0, 0))] * 2, "camera": None}, "assign them with camera="),
    ],
)
def test_arrays_are_checked(change, message):
    m = small()
    arguments = {
        "rotations": m.rotations,
        "translations": m.translations,
        "intrinsics": m.intrinsics,
        "points": m.points,
        "observations": np.zeros((3, 5, 2)),
        "camera": m.camera,
        **change,
    }
    with pytest.raises(ValueError, match=message):
        Reconstruction.from_arrays(**arguments)


def test_colmap_round_trip_keeps_every_digit(tmp_path):
    model = small()
    write_colmap(model, tmp_path / "new" / "folder")
    again = read_colmap(tmp_path / "new" / "folder")
    same(model, again)
    write_colmap(again, tmp_path / "b")
    same(again, read_colmap(tmp_path / "b"))
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == ["cameras.txt", "images.txt", "points3D.txt"]


def test_pycolmap_reads_what_we_write(tmp_path):
    pycolmap = pytest.importorskip("pycolmap")
    model = small()
    write_colmap(model, tmp_path)
    theirs = pycolmap.Reconstruction(str(tmp_path))
    assert theirs.num_points3D() == 5
    image = theirs.image(int(model.image_ids[1]))
    pose = image.cam_from_world() if callable(image.cam_from_world) else image.cam_from_world
    np.testing.assert_allclose(pose.rotation.matrix(), model.rotations[1], atol=1e-12)


CAMERAS = "# comment\n1 SIMPLE_PINHOLE 640 480 500 320 240\n"
IMAGES = (
    "1 1 0 0 0 0 0 0 1 a.jpg\n1.0 2.0 1 3.0 4.0 -1\n2 1 0 0 0 1 0 0 1 b.jpg\n5.0 6.0 1\n3 1 0 0 0 1 0 0 1 empty.jpg\n"
)
POINTS = "1 0.5 0.5 5 255 0 9 0.1 1 0 2 0\n"


def folder(path, cameras=CAMERAS, images=IMAGES, points=POINTS):
    for name, text in (("cameras.txt", cameras), ("images.txt", images), ("points3D.txt", points)):
        (path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_colmap_files_by_hand(tmp_path):
    model = read_colmap(folder(tmp_path))
    assert repr(model) == "Reconstruction(3 images, 1 points, 2 observations, 1 cameras)"
    np.testing.assert_array_equal(model.xy, [[1, 2], [5, 6]])
    assert model.colors.tolist() == [[255, 0, 9]]
    assert len(model.keypoints[2]) == 0
    write_colmap(model, tmp_path / "again")
    same(model, read_colmap(tmp_path / "again"))
    windows = folder(tmp_path, *(text.replace("\n", "\r\n") for text in (CAMERAS, IMAGES, POINTS)))
    same(model, read_colmap(windows))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"cameras": "1 FISHEYE 640 480 1 2 3\n"}, r"cameras.txt, line 1: camera model 'FISHEYE' is not supported"),
        ({"cameras": "1 PINHOLE 640 480 1 2\n"}, "line 1: camera model PINHOLE has 4"),
        ({"cameras": "1 PINHOLE\n"}, "expected CAMERA_ID MODEL"),
        ({"cameras": "x PINHOLE 640 480 1 2 3 4\n"}, "CAMERA_ID must be a whole number"),
        ({"cameras": "1 PINHOLE 640 480 1 nan 3 4\n"}, "finite"),
        ({"cameras": "1 PINHOLE 640 480 1 z 3 4\n"}, "PARAMS must be numbers"),
        ({"cameras": CAMERAS + CAMERAS}, "appears twice"),
        ({"cameras": "1 PINHOLE -1 480 1 2 3 4\n"}, "size must be"),
        ({"images": "1 1 0 0 0 0 0 0 1\n\n"}, "line 1: expected IMAGE_ID"),
        ({"images": "1 0 0 0 0 0 0 0 1 a\n\n"}, "quaternion must have length 1"),
        ({"images": "1 1e300 0 0 0 0 0 0 1 a\n\n"}, r"quaternion must have length 1, has 1e\+300"),
        ({"images": "1 1 0 0 0 0 0 inf 1 a\n\n"}, "pose must be finite"),
        ({"images": "1 1 0 0 0 0 0 0 5 a\n\n"}, "CAMERA_ID 5 is not in cameras.txt"),
        ({"images": "1 1 0 0 0 0 0 0 1 a\n1 2\n"}, "line 2: POINTS2D must be triples"),
        ({"images": "1 1 0 0 0 0 0 0 1 a\n1 2 0.5\n"}, "whole numbers"),
        ({"images": IMAGES + "\n1 1 0 0 0 0 0 0 1 a\n\n"}, "IMAGE_ID 1 appears twice"),
        ({"points": "1 0 0 5 0 0 0\n"}, "expected POINT3D_ID"),
        ({"points": "1 0 0 5 0 0 300 0 1 0\n"}, "color must be"),
        ({"points": "1 0 0 5 0 0 0 0 9 0\n"}, "IMAGE_ID 9 is not in images.txt"),
        ({"points": "1 0 0 5 0 0 0 0 1 99999999999999\n"}, "image 1 has 2 features"),
        ({"points": "1 0 0 5 0 0 0 0 1 1\n"}, "feature 1 of image 1 belongs to point -1"),
        ({"points": "1 0 0 5 0 0 0 0 1 -1\n"}, "POINT2D_IDX must be"),
        ({"points": POINTS + POINTS}, "POINT3D_ID 1 appears twice"),
        ({"points": "1 0 0 1e999 0 0 0 0 1 0\n"}, "finite"),
        ({"points": b"\xff\xfe\x00\x01"}, "is not text in UTF-8"),
        ({"points": "9" * 5000 + " 0 0 5 0 0 0 0\n"}, "POINT3D_ID must be"),
    ],
)
def test_colmap_files_that_lie(tmp_path, files, message):
    with pytest.raises(ValueError, match=message):
        read_colmap(folder(tmp_path, **files))


def test_cameras_must_be_cameras():
    m = small()
    with pytest.raises(TypeError, match=r"intrinsics must be a problm\.Intrinsics.*500"):
        Reconstruction.from_arrays(m.rotations, m.translations, (500.0, 1.0, 2.0), m.points, np.zeros((3, 5, 2)))


def test_a_mark_at_the_beginning_of_a_file_is_skipped(tmp_path):
    folder(tmp_path)
    expected = read_colmap(tmp_path)
    for name in ("cameras.txt", "images.txt", "points3D.txt"):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + (tmp_path / name).read_bytes())
    same(read_colmap(tmp_path), expected)


@pytest.mark.parametrize("model", MODELS)
def test_every_camera_model_is_written_and_read_again(tmp_path, model):
    m = small()
    camera = Intrinsics(model, PARAMS[model], 640, 480)
    seen = np.random.default_rng(0).normal(size=(3, 5, 2))
    seen[1:, 3] = np.nan  # seen once
    seen[2] = np.nan  # an image that sees nothing
    wanted = Reconstruction.from_arrays(m.rotations, m.translations, camera, m.points, seen)
    write_colmap(wanted, tmp_path)
    found = read_colmap(tmp_path)
    if model == "OPENCV5":  # which COLMAP does not have
        full = Intrinsics("FULL_OPENCV", (*PARAMS[model], 0.0, 0.0, 0.0), 640, 480)
        wanted = replace(wanted, intrinsics=(full,))
    same(found, wanted)


def test_missing_and_binary_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"cameras\.txt"):
        read_colmap(tmp_path)
    folder(tmp_path)
    with pytest.raises(NotADirectoryError, match="give the folder"):
        read_colmap(tmp_path / "cameras.txt")
    (tmp_path / "points3D.txt").rename(tmp_path / "points3D.bin")
    with pytest.raises(FileNotFoundError, match="points3D"):
        read_colmap(tmp_path)


def test_line_breaks_in_names_are_refused(tmp_path):
    m = small()
    bad = Reconstruction.from_arrays(
        m.rotations,
        m.translations,
        m.intrinsics,
        m.points,
        np.zeros((3, 5, 2)),
        camera=m.camera,
        names=["a\n1", "b", "c"],
    )
    with pytest.raises(ValueError, match="line breaks"):
        write_colmap(bad, tmp_path)


def bal_text(model):
    """A BAL file of a reconstruction with RADIAL cameras, by BAL's own convention (looking along -z)."""
    lines = [f"{len(model.rotations)} {len(model.points)} {len(model.xy)}"]
    point = np.repeat(np.arange(len(model.points)), model.track_lengths)
    for i, j, (x, y) in zip(model.image, point, model.xy, strict=True):
        lines.append(f"{i} {j} {x:.17g} {-y:.17g}")
    flip = np.diag([1.0, -1.0, -1.0])
    for R, t, c in zip(model.rotations, model.translations, model.intrinsics, strict=True):
        w = Rotation.from_matrix(flip @ R).as_rotvec()
        lines += [f"{v:.17g}" for v in (*w, *(flip @ t), c.params[0], c.params[3], c.params[4])]
    lines += [f"{v:.17g}" for v in model.points.ravel()]
    return "\n".join(lines)


def test_bal_round_trip(tmp_path):
    m = small()
    cameras = [Intrinsics("RADIAL", (500.0 + i, 0.0, 0.0, 0.01, -0.02)) for i in range(3)]
    seen = np.random.default_rng(0).normal(size=(3, 5, 2))
    model = Reconstruction.from_arrays(m.rotations, m.translations, cameras, m.points, seen)
    (tmp_path / "a.txt").write_text(bal_text(model))
    (tmp_path / "a.txt.bz2").write_bytes(bz2.compress(bal_text(model).encode()))
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(bal_text(model).encode()))
    (tmp_path / "no_ending").write_bytes(gzip.compress(bal_text(model).encode()))
    for name in ("a.txt", "a.txt.bz2", "a.txt.gz", "no_ending"):
        again = read_bal(tmp_path / name)
        np.testing.assert_allclose(again.rotations, model.rotations, atol=1e-12)
        np.testing.assert_allclose(again.residuals(), model.residuals(), atol=1e-9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must begin with"),
        ("1 1", "must begin with"),
        ("1.5 1 1 0 0 0 0", "must begin with"),
        ("-1 1 1", "must begin with"),
        ("1000000000000 1000000000000 1000000000000 1 2 3", "cut short"),
        ("1e308 1e308 1 1 2 3", "1e\\+308 cameras.* make inf numbers"),
        ("1 1 1 0 0 1 1  0 0 0 0 0 0 1 0 0  0 0", "cut short"),
        ("1 1 1 0 0 1 1  0 0 0 0 0 0 1 0 0  0 0 1 5", "cut short"),
        ("1 1 1 0 0 1 1  0 0 0 0 0 0 1 0 0  0 0 nan", "finite"),
        ("1 1 1 0 0 1 1  0 0 0 0 0 0 1 0 0  0 0 cat", "nothing but numbers"),
        ("1 1 1 1 0 1 1  0 0 0 0 0 0 1 0 0  0 0 1", "image numbers"),
        ("1 1 1 0 7 1 1  0 0 0 0 0 0 1 0 0  0 0 1", "point numbers"),
        ("1 1 1 0 .5 1 1  0 0 0 0 0 0 1 0 0  0 0 1", "must be whole"),
        ("1 1 1 0 0 1 1  0 0 0 0 0 0 -1 0 0  0 0 1", "camera 0"),
        ("\u00e4", "nothing but numbers"),
    ],
)
def test_bal_files_that_lie(tmp_path, text, message):
    file = tmp_path / "bad.txt"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_bal(file)


def test_damaged_files_are_read_or_refused_but_never_crash(tmp_path):
    rng = np.random.default_rng(0)
    model = small()
    write_colmap(model, tmp_path)
    names = ("cameras.txt", "images.txt", "points3D.txt")
    whole = {name: (tmp_path / name).read_bytes() for name in names}
    radial = Reconstruction.from_arrays(
        model.rotations, model.translations, Intrinsics("RADIAL", (9.0, 0, 0, 0, 0)), model.points, np.ones((3, 5, 2))
    )
    radial = Reconstruction(**{**radial.__dict__, "intrinsics": radial.intrinsics * 3, "camera": np.arange(3)})
    bal = bal_text(radial).encode()
    refused = []

    def damaged(text):
        data = bytearray(text)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(data)))
            kind = rng.integers(4)
            if kind == 0:
                data[at] = int(rng.integers(256))
            elif kind == 1:
                del data[at : at + int(rng.integers(1, 30))]
            elif kind == 2:
                data[at:at] = rng.choice([b" nan ", b"-1", b"\n", b"1e400", b"99999999999999999999", b"#", b" "])
            else:
                del data[at:]
            data = data or bytearray(b" ")
        return bytes(data)

    for trial in range(400):
        try:
            if trial % 2:
                name = names[trial % 3]
                (tmp_path / name).write_bytes(damaged(whole[name]))
                read_colmap(tmp_path)
            else:
                (tmp_path / "bal.txt").write_bytes(damaged(bal))
                read_bal(tmp_path / "bal.txt")
        except ValueError as error:
            refused.append(str(error))
        finally:
            for name in names:
                (tmp_path / name).write_bytes(whole[name])
    assert len(refused) > 200
    assert all(str(tmp_path) in message for message in refused)  # the file is named


def test_a_folder_is_colmap_s_and_a_file_is_bal_s(tmp_path):
    write_colmap(small(), tmp_path / "model")
    assert len(read_reconstruction(tmp_path / "model").points) == 5
    (tmp_path / "bal.txt").write_text("1 1 1  0 0 -10.0 20.0  0 0 0 0 0 0 100 0 0  0.1 -0.2 -1")
    assert len(read_reconstruction(tmp_path / "bal.txt").points) == 1
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        read_reconstruction(tmp_path / "nothing")


def data(name):
    root = os.environ.get("PROBLM_DATA")
    if not root:
        pytest.skip("PROBLM_DATA is not set")
    return Path(root) / name


def test_real_files():
    model = read_bal(data("bal/problem-49-7776-pre.txt"))
    assert (len(model.rotations), len(model.points), len(model.xy)) == (49, 7776, 31843)
    assert 0.5 * (model.residuals() ** 2).sum() == pytest.approx(8.509125e5, rel=1e-6)
    castle = read_colmap(data("colmap_sceaux_castle"))
    assert (len(castle.rotations), len(castle.points)) == (11, 7862)
    order = np.argsort(castle.names)
    assert len(castle.common(order[-3:])[1]) == 818
    errors = np.linalg.norm(castle.residuals(), axis=1)
    assert errors.mean() < 1.0
