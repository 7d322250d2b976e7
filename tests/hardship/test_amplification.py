"""Small files that would take much memory or time: holes, long labels and lines, many chunks, axes and columns."""

from __future__ import annotations

import bz2
import io
import os
import struct
import time
import zipfile
import zlib

import numpy as np
import pytest

import problm
from problm.cli.common import matrix_from
from problm.cli.exits import Bad
from problm.data.sources import open_source
from problm.data.tables import read_columns, read_labels
from problm.data.zarr_arrays import check_unpacked
from problm.support.addresses import in_brief, without_secrets
from problm.support.files import UNPACKED_FREELY, open_regular
from problm.support.npy import load_arrays
from problm.vision.images.image import read_image
from problm.vision.points import read_points
from problm.vision.two_view.matches import read_matches
from tests.hardship.test_strangers import X, _npy, little_memory, posix, zarr_folder


@posix
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("a.png", lambda path: read_image(path, "image1")), ("a.ply", read_points), ("a.npy", load_arrays),
        ("b.npy", open_source), ("c.npy", read_columns), ("a.xlsx", read_columns), ("a.fits", read_columns),
        ("a.h5", read_columns), ("a.npz", load_arrays),
    ],
)  # fmt: skip
def test_files_that_are_nearly_all_holes(tmp_path, name, read):
    path = tmp_path / name
    size = 40 * UNPACKED_FREELY
    head = b"ply\nformat binary_little_endian 1.0\nelement vertex 100000000\nproperty double x\nproperty double y\n"
    head += b"property double z\nend_header\n"
    with open(path, "wb") as file:
        file.write(_npy((10**8, 3)) if name.endswith(".npy") else head)
        file.truncate(size)
    with little_memory(20 << 20), pytest.raises(ValueError, match="nearly all of them holes"):
        read(path)


@posix
def test_files_with_some_holes_are_read(tmp_path):
    path = tmp_path / "a.npy"
    np.lib.format.open_memmap(path, "w+", "f8", (2 * UNPACKED_FREELY // 8,))[:50_000] = 1.0
    with open_regular(path) as file:
        assert file.read(6) == b"\x93NUMPY"
    assert open_source(path).read(0, 2)[0].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("shape", "dtype"), [((10**18,) * 30, "<f8"), ((10**18,) * 400, "<f8"), ((10**12,), "|S0"), ((10**12, 0), "|V0")]
)
@pytest.mark.parametrize("read", [load_arrays, open_source, read_columns, read_points, read_matches])
def test_shapes_beyond_any_memory(tmp_path, read, shape, dtype):
    path = tmp_path / "a.npy"
    path.write_bytes(_npy(shape, dtype))
    with pytest.raises(ValueError, match=r"a\.npy.*cannot be read as an array") as caught:
        read(path)
    assert len(str(caught.value)) < 1000


def test_rows_without_numbers(tmp_path):
    path = tmp_path / "a.npy"
    path.write_bytes(_npy((10**12, 0)))
    with pytest.raises(ValueError, match="one row per residual"):
        open_source(path)


def test_packed_bytes_count_as_the_numbers_that_become_of_them(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", _npy((4, 6_000_000), "|u1", bytes(24_000_000)))
    with little_memory(100 << 20), pytest.raises(ValueError, match=r"a\.npz is cut short: x needs 24000000 bytes"):
        read_matches(path)


def test_a_label_of_megabytes(tmp_path):
    """Labels have one width: 20,000 of them would take 16 GB because of a single one."""
    path = tmp_path / "a.csv"
    path.write_text("g,x\n" + "L" * 200_000 + ",0\n" + "a,1\n" * 20_000)
    with little_memory(50 << 20), pytest.raises(ValueError, match=r"line 2, column 'g': a label of 200,000"):
        read_labels(path, "g")


def test_a_line_of_megabytes(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n1,2\n" + "12," * 1_000_000 + "\n")
    with little_memory(100 << 20), pytest.raises(ValueError, match="line 3 is longer than 1,048,576 characters"):
        read_columns(path)


def test_matches_in_a_line_of_megabytes(tmp_path):
    (tmp_path / "a.csv").write_text("1 " * 5_000_000)
    with little_memory(40 << 20), pytest.raises(ValueError, match="line 1: longer than 1,048,576 characters"):
        read_matches(tmp_path / "a.csv")


def test_as_many_columns_as_are_read(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    names = [f"c{k}" for k in range(10_000)]
    path = tmp_path / "a.csv"
    path.write_text(",".join(names) + "\n" + ("1," * 10_000)[:-1] + "\n")
    began = time.process_time()
    assert len(read_columns(path)) == 10_000
    parquet.write_table(pa.table({name: [1.0] for name in names}), tmp_path / "a.parquet")
    assert len(read_columns(tmp_path / "a.parquet")) == 10_000
    assert time.process_time() - began < 60.0  # hundreds of seconds if every column looks at all others


@pytest.mark.parametrize(("shape", "chunks"), [((8_000_000,), (1,)), ((1000, 8000), (1, 1))])
def test_zarr_chunks_that_are_missing_by_the_million(tmp_path, shape, chunks):
    pytest.importorskip("zarr")
    zarr_folder(tmp_path / "a.zarr", 2, [], X.tobytes(), shape=shape, chunks=chunks)
    with pytest.raises(ValueError, match="in 8,000,000 chunks, but holds"):
        open_source(tmp_path / "a.zarr")


def test_zarr_arrays_of_too_many_axes(tmp_path):
    pytest.importorskip("zarr")
    zarr_folder(tmp_path / "a.zarr", 2, [], b"", shape=(2**61,) * 100_000, chunks=(2**61,) * 100_000)
    with pytest.raises(ValueError, match="has 100000 axes"):
        open_source(tmp_path / "a.zarr")


def test_zarr_chunks_that_reach_beyond_their_array(tmp_path):
    """The chunk agrees with the metadata, but neither the array of ten numbers nor the file explains it."""
    pytest.importorskip("zarr")
    packer = zlib.compressobj(9)
    chunk = b"".join(packer.compress(bytes(1 << 24)) for _ in range(64)) + packer.flush()
    zarr_folder(tmp_path / "a.zarr", 2, [{"id": "zlib", "level": 1}], chunk, shape=(10,), chunks=(2**27,))
    with little_memory(), pytest.raises(ValueError, match="unpacks to more than"):
        open_source(tmp_path / "a.zarr").read(0, 10)


@pytest.mark.parametrize("codec", ["zlib", "bz2"])
def test_sizes_of_several_pieces(codec):
    content = np.random.default_rng(0).bytes(300_000) + bytes(3 << 20)
    packed = {"zlib": zlib, "bz2": bz2}[codec].compress(content)
    check_unpacked(codec, packed * 2, 2 * len(content), "it")
    with pytest.raises(ValueError, match="it unpacks to more than"):
        check_unpacked(codec, packed * 2, 2 * len(content) - 1, "it")


@posix
@pytest.mark.parametrize("what", ["file", "folder"])
def test_links_out_of_a_folder_of_tables(tmp_path, what):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
        parquet.write_table(pa.table({"x": X}), tmp_path / name / "t.parquet")
    (tmp_path / "theirs" / "u.parquet").symlink_to("t.parquet")
    assert open_source(tmp_path / "theirs").n == 2 * len(X)
    (tmp_path / "theirs" / "z").symlink_to(tmp_path / ("mine/t.parquet" if what == "file" else "mine"))
    with pytest.raises(ValueError, match="z is a link out of this folder"):
        open_source(tmp_path / "theirs")


def test_pictures_of_some_kilobytes(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    memory = io.BytesIO()
    Image.new("L", (8000, 8000)).save(memory, "PNG")
    (tmp_path / "a.png").write_bytes(memory.getvalue())
    with little_memory(20 << 20), pytest.raises(ValueError, match="announces 8000 x 8000 pixels, more than it"):
        read_image(tmp_path / "a.png", "image1")


def test_pictures_of_very_many_scans(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    memory, noise = io.BytesIO(), np.random.default_rng(0).integers(0, 255, (64, 64), np.uint8)
    Image.fromarray(noise).save(memory, "JPEG", progressive=True)
    (tmp_path / "a.jpg").write_bytes(memory.getvalue())
    assert read_image(tmp_path / "a.jpg", "image1").shape == (64, 64)
    content = bytearray(memory.getvalue()[: memory.getvalue().rfind(b"\xff\xda")])
    size = content.find(b"\xff\xc2") + 5
    content[size : size + 4] = struct.pack(">HH", 3300, 3300)
    scan = b"\xff\xda" + struct.pack(">HBBBBBB", 8, 1, 1, 0, 1, 63, 0)  # of zeros, as its data are missing
    (tmp_path / "a.jpg").write_bytes(bytes(content) + 20_000 * scan + b"\xff\xd9")
    began = time.process_time()
    with pytest.raises(ValueError, match=r"a JPEG of 20,00\d scans"):
        read_image(tmp_path / "a.jpg", "image1")
    assert time.process_time() - began < 2.0  # decoding takes 10 s


def test_a_table_below_megabytes_of_comments(tmp_path):
    (tmp_path / "a.csv").write_text("# comment\n" * 200_000 + "x,y\n1,2\n")
    with pytest.raises(ValueError, match=r"a\.csv: no row in the first [\d,]+ bytes"):
        read_columns(tmp_path / "a.csv")


def test_matrices_are_not_unpacked(tmp_path):
    path = tmp_path / "a.bz2"
    path.write_bytes(bz2.compress(b"1 0 0\n" * 1_000_000))
    with little_memory(10 << 20), pytest.raises(Bad, match="does not hold a 3x3 matrix"):
        matrix_from(str(path), ["auto"], 3)


def test_what_libraries_say_is_cut_and_searched_in_linear_time():
    """A stranger's file can make a message of megabytes; each question mark was searched to the end."""
    began = time.process_time()
    text = "a?" * 1_000_000
    assert without_secrets(text) == text
    assert without_secrets(text + "=") == "a"
    assert time.process_time() - began < 30.0  # hours, if every question mark is tried
    assert len(in_brief(text)) < 500
    assert in_brief("s3://u:p@b/x?token=1 is bad") == "s3://b/x is bad"


@posix
def test_pipes_at_an_address(tmp_path):
    pytest.importorskip("fsspec")
    os.mkfifo(tmp_path / "a.npy")
    with pytest.raises(ValueError, match="does not tell the size of this file"):
        open_source(f"file://{tmp_path}/a.npy")


def test_zarr_arrays_of_very_many_codecs(tmp_path):
    """Each one runs over every chunk."""
    pytest.importorskip("zarr")
    codecs = [{"id": "astype", "encode_dtype": "<f8", "decode_dtype": "<f8"}] * 17
    zarr_folder(tmp_path / "a.zarr", 2, [*codecs, {"id": "zlib", "level": 1}], zlib.compress(bytes(8000)))
    with pytest.raises(ValueError, match="is stored with 18 codecs; at most 16 are read"):
        open_source(tmp_path / "a.zarr")


def test_models_of_very_many_images(tmp_path):
    """Every image was looked up among all observations: a model of 20 MB took minutes to read and to write."""
    count, each = 4000, 10
    images = np.arange(count)
    xy = np.random.default_rng(0).uniform(0.0, 100.0, (count * each, 2))
    seen = np.c_[np.tile(images, each), np.repeat(np.arange(each), count), xy]
    camera = problm.Intrinsics("SIMPLE_PINHOLE", (500.0, 320.0, 240.0))
    poses = np.tile(np.eye(3), (count, 1, 1)), np.zeros((count, 3))
    model = problm.Reconstruction.from_arrays(*poses, camera, np.tile([0.0, 0.0, 5.0], (each, 1)), seen)
    began = time.process_time()
    problm.write_colmap(model, tmp_path)
    again = problm.read_colmap(tmp_path)
    assert time.process_time() - began < 10.0
    np.testing.assert_array_equal(again.xy, model.xy)
    np.testing.assert_array_equal(again.image, model.image)
