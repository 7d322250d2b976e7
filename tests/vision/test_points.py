"""Point clouds in files."""

import numpy as np
import pytest

from problm.vision.points import read_points, write_ply

POINTS = np.random.default_rng(0).normal(size=(20, 3))


def test_ply_and_back(tmp_path):
    write_ply(tmp_path / "a.ply", POINTS)
    assert np.array_equal(read_points(tmp_path / "a.ply"), POINTS)
    write_ply(tmp_path / "b.ply", POINTS, colors=np.full((20, 3), 200), normals=POINTS)
    assert np.array_equal(read_points(tmp_path / "b.ply"), POINTS)


@pytest.mark.parametrize("kind", ["ascii", "binary_big_endian"])
def test_other_ply_files(kind, tmp_path):
    header = f"ply\nformat {kind} 1.0\ncomment x\nelement vertex 20\nproperty uchar red\nproperty float x\n"
    header += "property float y\nproperty float z\nelement face 1\nproperty list uchar int vertex_indices\nend_header\n"
    if kind == "ascii":
        body = "".join(f"7 {x:.9g} {y:.9g} {z:.9g}\n" for x, y, z in POINTS).encode() + b"3 0 1 2\n"
    else:
        table = np.zeros(20, dtype=[("red", "u1"), ("p", ">f4", 3)])
        table["p"] = POINTS
        body = table.tobytes() + b"\x03" + bytes(12)
    (tmp_path / "a.ply").write_bytes(header.encode() + body)
    assert np.allclose(read_points(tmp_path / "a.ply"), POINTS, rtol=1e-6)


def test_arrays_and_text(tmp_path):
    np.save(tmp_path / "a.npy", POINTS.astype(np.float32))
    assert np.allclose(read_points(tmp_path / "a.npy"), POINTS, rtol=1e-6)
    np.savetxt(tmp_path / "a.csv", POINTS, delimiter=",", header="x,y,z", comments="")
    assert np.allclose(read_points(tmp_path / "a.csv"), POINTS)
    np.savetxt(tmp_path / "a.xyz", np.column_stack([POINTS, POINTS]))
    assert np.allclose(read_points(tmp_path / "a.xyz"), POINTS)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.ply", b"plx\n", "not a PLY"),
        ("a.ply", b"ply\nformat ascii 1.0\nelement vertex 2\nproperty float x\nend_header\n", "no x, y, z"),
        ("a.ply", b"ply\nformat binary_little_endian 1.0\nelement vertex 99999999999\nproperty float x\n"
         b"property float y\nproperty float z\nend_header\n", "announced"),
        ("a.ply", b"ply\nformat ascii 1.0\nelement vertex 2\nproperty float x\nproperty float y\nproperty float z\n"
         b"end_header\n1 2 3\n", "vertex 1 of 2"),
        ("a.ply", b"ply\nformat strange 1.0\nend_header\n", "damaged"),
        ("a.ply", b"ply\nformat ascii 1.0\nelement vertex 1\nproperty what x\nend_header\n", "'what'"),
        ("a.csv", b"x,y,z\n1,2\n", "three numbers"),
        ("a.csv", b"1,2,3\n1,b,3\n", "line 2"),
        ("a.csv", b"x,y,z\n", "no points"),
        ("a.npy", b"\x93NUMPY", "a.npy"),
    ],
)  # fmt: skip
def test_damaged_files(name, content, words, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=words):
        read_points(tmp_path / name)


def test_wrong_shapes(tmp_path):
    with pytest.raises(ValueError, match="points must have"):
        write_ply(tmp_path / "a.ply", POINTS[:, :2])
    with pytest.raises(ValueError, match="colors must have"):
        write_ply(tmp_path / "a.ply", POINTS, colors=POINTS[:5])
