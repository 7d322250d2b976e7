"""Files of strangers: they run nothing, write nowhere, are waited for by nobody and take no memory they do not explain.

What the fuzzer cannot think of (`tests.hardship.fuzz`): codecs that run code, bombs, pipes, devices, links and holes.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import re
import stat
import sys
import tracemalloc
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import problm
from problm.data.sources import open_source
from problm.data.tables import read_columns
from problm.solver.result import Result
from problm.support.files import EXPANSION, UNPACKED_FREELY, text_lines, write_atomically, write_with
from problm.support.npy import load_arrays
from problm.vision.bundle.bal import read_bal
from problm.vision.bundle.colmap import read_colmap, write_colmap
from problm.vision.images.image import read_image
from problm.vision.points import read_points
from problm.vision.two_view.matches import read_intrinsics, read_matches

posix = pytest.mark.skipif(sys.platform == "win32", reason="links, pipes and devices of POSIX")
X = np.linspace(0.0, 1.0, 1000)


@contextmanager
def little_memory(most=200 << 20):
    """Python's and NumPy's allocations stay below so many bytes."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


# --- Zarr: codecs ----------------------------------------------------------------------------------------------


class Evil:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def zarr_folder(path, version, codecs, chunk, dtype="<f8", shape=(1000,), chunks=(1000,)):
    """A folder with one array and one chunk, written by hand: what Zarr would not write is tried too."""
    path.mkdir()
    if version == 2:
        meta = {"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": dtype, "order": "C", "fill_value": 0}
        meta |= {"compressor": codecs[-1] if codecs else None, "filters": codecs[:-1] or None}
        (path / ".zarray").write_text(json.dumps(meta))
        (path / "0").write_bytes(chunk)
        return path
    grid = {"name": "regular", "configuration": {"chunk_shape": chunks}}
    keys = {"name": "default", "configuration": {"separator": "/"}}
    meta = {"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": dtype, "chunk_grid": grid}
    meta |= {"chunk_key_encoding": keys, "fill_value": 0, "codecs": codecs, "attributes": {}}
    (path / "zarr.json").write_text(json.dumps(meta))
    (path / "c").mkdir()
    (path / "c" / "0").write_bytes(chunk)
    return path


BYTES = {"name": "bytes", "configuration": {"endian": "little"}}


@pytest.mark.parametrize("codec", ["pickle", "json2", "msgpack2", "vlen-utf8", "categorize", "base64", "nonsense"])
@pytest.mark.parametrize("place", ["compressor", "filter", "group"])
def test_zarr_codecs_that_are_not_on_the_list(tmp_path, codec, place):
    pytest.importorskip("zarr")
    loot = tmp_path / "loot"
    chunk = pickle.dumps(Evil(loot))
    inner = [{"id": codec}] if place != "filter" else [{"id": codec}, {"id": "zlib", "level": 1}]
    if place == "group":
        (tmp_path / "a.zarr").mkdir()
        (tmp_path / "a.zarr" / ".zgroup").write_text('{"zarr_format": 2}')
        zarr_folder(tmp_path / "a.zarr" / "x", 2, inner, chunk)
    else:
        zarr_folder(tmp_path / "a.zarr", 2, inner, chunk if place == "compressor" else zlib.compress(chunk))
    with pytest.raises(ValueError, match=rf"a\.zarr .*codec '{codec}', which is not read"):
        open_source(tmp_path / "a.zarr")
    assert not loot.exists()


@pytest.mark.parametrize("name", ["numcodecs.pickle", "pickle", "vlen-bytes", "sharding_indexed", "numcodecs.zfpy"])
def test_codecs_of_the_third_version(tmp_path, name):
    pytest.importorskip("zarr")
    loot = tmp_path / "loot"
    zarr_folder(tmp_path / "a.zarr", 3, [BYTES, {"name": name}], pickle.dumps(Evil(loot)), "float64")
    with pytest.raises(ValueError, match="which is not read"):
        open_source(tmp_path / "a.zarr")
    assert not loot.exists()


@pytest.mark.parametrize("dtype", ["|O", "<U5", "|V8", [["a", "<f8"]], "<c16", "<M8[s]", 7])
def test_zarr_holds_numbers_only(tmp_path, dtype):
    pytest.importorskip("zarr")
    zarr_folder(tmp_path / "a.zarr", 2, [], pickle.dumps(Evil(tmp_path / "loot")), dtype)
    with pytest.raises(ValueError, match=r"a\.zarr .*must hold numbers"):
        open_source(tmp_path / "a.zarr")
    assert not (tmp_path / "loot").exists()


@pytest.mark.parametrize("codec", ["blosc", "zstd", "lz4", "gzip", "zlib", "bz2", "lzma", None])
def test_codecs_that_are_on_the_list_are_read(tmp_path, codec):
    pytest.importorskip("zarr")
    import numcodecs

    filters = [numcodecs.Delta("<f8"), numcodecs.Shuffle(8)]
    chunk = X.tobytes() if codec is None else None
    if codec is not None:
        packer = numcodecs.get_codec({"id": codec})
        coded = X
        for step in filters:
            coded = step.encode(coded)
        chunk = bytes(packer.encode(coded))
        steps = [*(f.get_config() for f in filters), packer.get_config()]
    zarr_folder(tmp_path / "a.zarr", 2, [] if codec is None else steps, chunk)
    np.testing.assert_allclose(open_source(tmp_path / "a.zarr").read(0, 1000)[0], X, atol=1e-12)


@pytest.mark.parametrize("version", [2, 3])
def test_what_zarr_writes_is_read(tmp_path, version):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=version)
    for name in ("x", "y"):
        group.create_array(name, shape=X.shape, dtype="f8", chunks=(100,))[:] = X
    read = open_source(tmp_path / "a.zarr").read(50, 250)
    np.testing.assert_array_equal(read[0], X[50:250])
    assert len(read) == 2


# --- Zarr: bombs, pipes, links ---------------------------------------------------------------------------------


def _zstd_frame(size):
    return b"\x28\xb5\x2f\xfd" + bytes([0b11100000]) + size.to_bytes(8, "little") + b"\1\0\0"


BOMBS = {
    "gzip": lambda: gzip.compress(bytes(1 << 28), 1),
    "zlib": lambda: zlib.compress(bytes(1 << 28), 1),
    "bz2": lambda: bz2.compress(bytes(1 << 22), 1) * 64,
    "lzma": lambda: lzma.compress(bytes(1 << 26), preset=0) * 8,
    "zstd": lambda: _zstd_frame(1 << 33),
    "blosc": lambda: bytes([2, 1, 1, 8]) + (1 << 30).to_bytes(4, "little") + bytes(8),
    "lz4": lambda: (1 << 30).to_bytes(4, "little") + bytes(16),
}


@pytest.mark.parametrize("codec", BOMBS)
def test_chunks_that_unpack_to_more_than_their_array_explains(tmp_path, codec):
    pytest.importorskip("zarr")
    zarr_folder(tmp_path / "a.zarr", 2, [{"id": codec}], BOMBS[codec]())
    with little_memory(), pytest.raises(ValueError, match=r"a\.zarr.*(unpacks to more than|is not a file of at most)"):
        open_source(tmp_path / "a.zarr").read(0, 1000)


def _zstd(size):
    return pytest.importorskip("numcodecs").Zstd().encode(bytes(size))


RAW = [{"id": lzma.FILTER_LZMA2, "preset": 0}]
HIDDEN = {
    "gzip": ({}, lambda: gzip.compress(bytes(800_000)) + BOMBS["gzip"]()),
    "gzip, zeros": ({}, lambda: gzip.compress(bytes(800_000)) + bytes(16) + BOMBS["gzip"]()),
    "lzma": ({"format": lzma.FORMAT_RAW, "check": -1, "preset": None, "filters": RAW},
             lambda: lzma.compress(bytes(1 << 26), lzma.FORMAT_RAW, filters=RAW)),
    "zstd": ({}, lambda: _zstd(800_000) + _zstd(1 << 28)),
    "zstd, skipped frame": ({}, lambda: b"\x50\x2a\x4d\x18\4\0\0\0abcd" + _zstd(1 << 28)),
}  # fmt: skip


@pytest.mark.parametrize("kind", HIDDEN)
def test_bombs_behind_what_a_decoder_skips(tmp_path, kind):
    pytest.importorskip("zarr")
    settings, chunk = HIDDEN[kind]
    codec = {"id": kind.partition(",")[0], **settings}
    zarr_folder(tmp_path / "a.zarr", 2, [codec], chunk(), shape=(100_000,), chunks=(100_000,))
    with little_memory(), pytest.raises(ValueError, match=r"the chunk 0 of a\.zarr (is damaged|unpacks to more than)"):
        open_source(tmp_path / "a.zarr").read(0, 1000)


@pytest.mark.parametrize("dtype", ["<U30000", "|S100000", "|O", "f8,f8", 8])
@pytest.mark.parametrize("codec", ["astype", "delta", "fixedscaleoffset"])
def test_zarr_filters_make_numbers_only(tmp_path, codec, dtype):
    """A text of 120 kB for each byte of a chunk would take a gigabyte for 8 kB."""
    pytest.importorskip("zarr")
    keys = ("encode_dtype", "decode_dtype") if codec == "astype" else ("astype", "dtype")
    settings = dict(zip(keys, ("|u1", dtype), strict=True))
    zarr_folder(tmp_path / "a.zarr", 2, [{"id": codec, "scale": 1, "offset": 0, **settings}], X.tobytes())
    steps = [{"name": f"numcodecs.{codec}", "configuration": settings}, BYTES]
    zarr_folder(tmp_path / "b.zarr", 3, steps, X.tobytes(), "float64")
    for name in ("a", "b"):
        with pytest.raises(ValueError, match=rf"{name}\.zarr.*filters must make numbers"):
            open_source(tmp_path / f"{name}.zarr")


def test_zarr_arrays_of_more_than_they_hold(tmp_path):
    pytest.importorskip("zarr")
    zarr_folder(tmp_path / "a.zarr", 2, [], X.tobytes(), shape=(2**50,), chunks=(2**27,))
    with pytest.raises(ValueError, match=r"a\.zarr announces .* GB in .* chunks, but holds \d+ bytes"):
        open_source(tmp_path / "a.zarr")
    zarr_folder(tmp_path / "b.zarr", 2, [], X.tobytes(), shape=(10, 10**15), chunks=(1, 1))
    with pytest.raises(ValueError, match=r"a chunk or row of b\.zarr takes 8e\+06 GB"):
        open_source(tmp_path / "b.zarr")


@posix
@pytest.mark.parametrize("what", ["chunk", "metadata", "array"])
def test_links_out_of_a_zarr_folder(tmp_path, what):
    """A stranger's folder reads no other file of the user's; links within it, and to it, are followed."""
    pytest.importorskip("zarr")
    other = zarr_folder(tmp_path / "other.zarr", 2, [], X.tobytes())
    group = tmp_path / "a.zarr"
    group.mkdir()
    zarr_folder(group / "x", 2, [], X.tobytes())
    (tmp_path / "link.zarr").symlink_to(group)
    (group / "y").symlink_to("x")
    assert len(open_source(tmp_path / "link.zarr").read(0, 10)) == 2
    names = {"chunk": "x/0", "metadata": "x/.zarray", "array": "z"}
    (group / names[what]).unlink(missing_ok=True)
    (group / names[what]).symlink_to(other / names[what][2:])
    with pytest.raises(ValueError, match="is a link out of this folder"):
        open_source(group).read(0, 10)


def test_zarr_arrays_of_too_many_chunks(tmp_path):
    pytest.importorskip("zarr")
    zarr_folder(tmp_path / "a.zarr", 2, [], b"", shape=(2**60,), chunks=(1,))
    with little_memory(), pytest.raises(ValueError, match=r"has more than \d+ chunks"):
        open_source(tmp_path / "a.zarr")


@posix
def test_chunks_that_are_pipes_or_devices(tmp_path):
    pytest.importorskip("zarr")
    for number, make in enumerate((os.mkfifo, lambda p: os.symlink("/dev/zero", p))):
        folder = zarr_folder(tmp_path / f"{number}.zarr", 2, [], X.tobytes())
        (folder / "0").unlink()
        make(folder / "0")
        with pytest.raises(ValueError, match="is not a file of at most"):
            open_source(folder).read(0, 1000)


# --- archives, text, images ------------------------------------------------------------------------------------


def _npy(shape, dtype="<f8", data=b""):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue() + data


def test_archives_that_announce_what_they_do_not_hold(tmp_path):
    """A header of 8 GB before some kilobytes of deflated zeros: refused before memory is taken."""
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", _npy((50_000_000,), data=bytes(1000)))
    with little_memory(1 << 20), pytest.raises(ValueError, match=r"a\.npz is cut short: x needs 400000000 bytes"):
        load_arrays(path)


def test_archives_whose_members_overlap(tmp_path):
    """Forty members that are the same bytes: each is sound, together they are forty times the file."""
    path = tmp_path / "a.npz"
    content = _npy((100_000,), data=bytes(800_000))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", content)
        first = archive.infolist()[0]
        for k in range(40):
            copy = zipfile.ZipInfo(f"y{k:02d}.npy")
            copy.header_offset, copy.CRC, copy.compress_size = first.header_offset, first.CRC, first.compress_size
            copy.file_size = first.file_size
            archive.filelist.append(copy)
            archive.NameToInfo[copy.filename] = copy
        archive._didModify = True
    for read in (load_arrays, open_source):
        with pytest.raises(ValueError, match="its members overlap"):
            read(path)


def test_archives_packed_in_other_ways(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("x.npy", _npy((1000,), data=X.tobytes()))
    for read in (load_arrays, open_source):
        with pytest.raises(ValueError, match="packed in a way that NumPy does not use"):
            read(path)


def test_archives_whose_columns_lie_in_other_members(tmp_path):
    """An array that announces more rows than its member holds would be read from its neighbour."""
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", _npy((1000,), data=X[:10].tobytes()))
        archive.writestr("y.npy", _npy((1000,), data=X.tobytes()))
    with pytest.raises(ValueError, match="announces more than its member"):
        open_source(path)


@pytest.mark.parametrize("pack", [bz2.compress, gzip.compress], ids=["bz2", "gzip"])
@pytest.mark.parametrize(
    ("begin", "rest"), [(b"1 1 1 ", b" " * (1 << 20)), (b"9 9 33000000\n", b"0 0 1 1\n" * (1 << 17))],
    ids=["blanks", "observations"],
)  # fmt: skip
def test_packed_problems_of_some_kilobytes(tmp_path, pack, begin, rest):
    path = tmp_path / "problem.txt"
    path.write_bytes(pack(begin) + pack(rest) * 128)
    assert path.stat().st_size < 600_000
    with little_memory(), pytest.raises(ValueError, match=r"problem\.txt holds more than .* GB of text"):
        read_bal(path)


@posix
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("a.csv", read_columns), ("a.npy", read_columns), ("a.parquet", read_columns), ("a.npy", open_source),
        ("a.npz", open_source), ("a.txt", read_bal), ("a.csv", read_matches), ("a.npz", read_matches),
        ("a.txt", read_intrinsics), ("a.png", lambda p: read_image(p, "image1")), ("a.json", Result.load),
        ("a.txt", lambda p: list(text_lines(p, 100))),
    ],
)  # fmt: skip
def test_pipes_devices_and_folders_are_no_files(tmp_path, kind, name, read):
    """Nobody waits for a pipe, and nobody reads a device to its end."""
    path = tmp_path / name
    {"pipe": os.mkfifo, "device": lambda p: os.symlink("/dev/zero", p), "folder": os.mkdir}[kind](path)
    with pytest.raises((ValueError, IsADirectoryError), match=r"a regular file|folder|no file|directory"):
        read(path)


@posix
@pytest.mark.parametrize(
    ("name", "begin", "read"),
    [
        ("a.csv", b"x,y\n1,2\n" * 200_000, read_columns), ("a.txt", b"1 1 1\n0 0 1 2\n", read_bal),
        ("a.json", b'{"format": "problm.result", ', Result.load), ("a.csv", b"1 2 3 4\n", read_matches),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [1 << 25, 1 << 40])
def test_text_with_holes(tmp_path, name, begin, read, size):
    """A file of a few kilobytes on disk whose length is up to a terabyte."""
    path = tmp_path / name
    path.write_bytes(begin)
    with path.open("r+b") as file:
        try:
            file.truncate(size)
        except OSError:
            pytest.skip("this file system has no files of a terabyte")
    with little_memory(), pytest.raises(ValueError, match=r"not text" if size == 1 << 25 else "all of them holes"):
        read(path)


def test_models_with_endless_lines(tmp_path, monkeypatch):
    from problm.vision.bundle import colmap

    for name in colmap.FILES:
        (tmp_path / name).write_text("1 PINHOLE 1 1 1 1 1 1 \n" + "1 " * 600)
    monkeypatch.setattr(colmap, "_LONGEST_LINE", 1000)
    with pytest.raises(ValueError, match=r"cameras\.txt, line 2: longer than 1,000 characters"):
        read_colmap(tmp_path)


def test_parquet_files_of_more_rows_than_they_explain(tmp_path):
    """A column of equal numbers takes no room in a file, and any in memory."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    rows = (UNPACKED_FREELY // 8) + EXPANSION * 2000
    same = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int8)), pa.array([1.0])).cast(pa.float64())
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": same}), path, row_group_size=rows, data_page_size=1 << 30, max_rows_per_page=1 << 30)
    assert path.stat().st_size < 2_000
    for read in (read_columns, open_source):
        with pytest.raises(ValueError, match=r"a\.parquet.* rows are announced"):
            read(path)


@posix
def test_images_that_would_run_programs(tmp_path, monkeypatch):
    """Pillow runs Ghostscript for EPS files, whatever their names end with."""
    pytest.importorskip("PIL")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path}/loot\n")
    (tools / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    (tmp_path / "a.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 64 64\n%%EndComments\nshowpage\n%%EOF\n"
    )
    with pytest.raises(ValueError, match="cannot be read as an image"):
        read_image(tmp_path / "a.png", "image1")
    assert not (tmp_path / "loot").exists()


def test_images_of_more_pixels_than_they_explain(tmp_path, monkeypatch):
    Image = pytest.importorskip("PIL.Image")

    path = tmp_path / "a.tif"
    Image.new("1", (6000, 6000)).save(path, compression="group4")
    assert path.stat().st_size < 20_000
    monkeypatch.setattr("problm.support.files.UNPACKED_FREELY", 1000)
    with pytest.raises(ValueError, match="more than it explains"):
        read_image(path, "image1")


# --- writing ---------------------------------------------------------------------------------------------------


@posix
def test_links_are_replaced_and_not_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    os.symlink(precious, tmp_path / "result.json")
    write_atomically(tmp_path / "result.json", "new")
    assert precious.read_text() == "mine"
    assert not (tmp_path / "result.json").is_symlink()
    assert (tmp_path / "result.json").read_text() == "new"


@posix
def test_models_are_not_written_through_links_under_temporary_names(tmp_path):
    """The name was ``.images.txt.<process>.part``, which anybody who can write to the folder could link away."""
    from tests.hardship.fuzz import seeds

    for name, content in seeds.colmap().items():
        (tmp_path / name).write_bytes(content)
    model = read_colmap(tmp_path)
    precious, out = tmp_path / "precious", tmp_path / "out"
    precious.write_text("mine")
    out.mkdir()
    for name in ("cameras.txt", "images.txt", "points3D.txt"):
        os.symlink(precious, out / f".{name}.{os.getpid()}.part")
        os.symlink(precious, out / name)
    write_colmap(model, out)
    assert precious.read_text() == "mine"
    assert read_colmap(out).points.tobytes() == model.points.tobytes()


def test_temporary_names_cannot_be_foreseen(tmp_path, monkeypatch):
    seen = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (seen.append(str(a)), replace(a, b)))
    for _ in range(20):
        write_atomically(tmp_path / "a", b"x")
    assert len(set(seen)) == 20
    assert {os.path.dirname(s) for s in seen} == {str(tmp_path)}
    monkeypatch.setattr("problm.support.files.secrets.token_hex", lambda n: "known")
    (tmp_path / ".a.known.part").write_text("somebody's")
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "a", b"y")
    assert (tmp_path / ".a.known.part").read_text() == "somebody's"
    assert (tmp_path / "a").read_bytes() == b"x"


@posix
def test_permissions_stay(tmp_path):
    (tmp_path / "a").write_text("x")
    (tmp_path / "a").chmod(0o600)
    write_atomically(tmp_path / "a", "y")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


@posix
def test_devices_pipes_and_folders_are_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(OSError, match=r"not replaced by a file|Is a directory"):
            write_atomically(tmp_path / name, "x")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "pipe"]


def test_a_writer_that_fails_leaves_the_old_file(tmp_path):
    (tmp_path / "a").write_text("old")

    def fails(file):
        file.write(b"half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_with(tmp_path / "a", fails)
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_every_file_is_written_by_the_one_helper():
    """No module of the package opens a file for writing, but the helper, and the one that fills a scratch folder."""
    opening = re.compile(r"""open\([^)]*["'](w|a|x)b?["']|\.write_text\(|\.write_bytes\(|os\.replace\(""")
    folder = Path(problm.__file__).parent
    found = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if opening.search(line) and not line.lstrip().startswith((">>>", "..."))
    }
    places = [("data", "shuffle.py"), ("support", "files.py")]
    assert found == {os.path.join(*place) for place in places}


# --- results and fits ------------------------------------------------------------------------------------------

RESULT_EDITS = {
    "a shorter mask": lambda r: r.update(active_mask=[0]),
    "a longer mask": lambda r: r.update(active_mask=[0] * 9),
    "fixed parameters of another number": lambda r: r.update(fixed=[True]),
    "a root of another size": lambda r: r.update(covariance_root=[[1.0]]),
    "a covariance of another size": lambda r: r.update(robust_covariance=[[1.0]]),
    "a gradient of another length": lambda r: r.update(grad=[0.0], hessian=[[1.0]]),
    "a ragged Hessian": lambda r: r.update(hessian=[[1.0, 2.0, 3.0], [1.0], [1.0]]),
    "nested numbers": lambda r: r.update(cost=[[1.0]]),
    "a history of several lengths": lambda r: r["history"].update(cost=[]),
    "more rows than there are numbers": lambda r: r.update(n=10**400),
    "a batch of more rows than there are numbers": lambda r: r.update(batch_size=10**400),
    "half a row": lambda r: r.update(n=1.5),
    "a negative count": lambda r: r.update(residuals_per_block=-1),
    "a long history of impossible batches": lambda r: r["history"].update(
        batch_size=[10**400] * len(r["history"]["cost"])
    ),
    "an unknown status": lambda r: r.update(status="PERFECT"),
}


@pytest.mark.parametrize("edit", RESULT_EDITS)
def test_results_whose_parts_do_not_belong_together(tmp_path, edit):
    y = 2.0 * np.exp(-X) + 0.1
    problm.least_squares(problm.formula("a*exp(-b*x) + c"), [1.0, 1.0, 0.0], data=(X, y)).save(tmp_path / "result.json")
    problm.fit("y ~ a*exp(-b*x) + c", {"x": X, "y": y}).save(tmp_path / "fit.json")
    for name, read, part in (("result.json", Result.load, None), ("fit.json", problm.Fit.load, "result")):
        content = json.loads((tmp_path / name).read_text())
        RESULT_EDITS[edit](content if part is None else content[part])
        (tmp_path / name).write_text(json.dumps(content))
        with pytest.raises(ValueError, match=name.replace(".", r"\.")):
            read(tmp_path / name)


def test_archives_whose_names_are_no_text(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, abc=X)
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\x01\x02")
    content[at + 9] |= 0x08  # names are in UTF-8
    content[at + 46 : at + 49] = b"\xff\xfe\xa8"
    path.write_bytes(bytes(content))
    for read in (load_arrays, open_source, read_matches, read_intrinsics):
        with pytest.raises(ValueError, match=r"a\.npz cannot be read as an archive"):
            read(path)


# --- headers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("read", [read_columns, open_source, load_arrays, read_matches, read_intrinsics])
def test_headers_that_announce_gigabytes(tmp_path, version, read):
    path = tmp_path / "a.npy"
    path.write_bytes(b"\x93NUMPY" + bytes([version, 0]) + (2**31 - 1).to_bytes(4, "little") + b"{" * 1000)
    with little_memory(1 << 20), pytest.raises(ValueError, match=r"a\.npy.*header is longer than"):
        read(path)


@pytest.mark.parametrize("shape", ["(True,)", "(-1,)", "(1.0,)", "('3',)", "(None,)", "[3]", "3"])
@pytest.mark.parametrize("read", [read_columns, open_source, load_arrays, read_matches])
def test_shapes_that_are_none(tmp_path, shape, read):
    path = tmp_path / "a.npy"
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}".encode()
    path.write_bytes(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + X.tobytes())
    with pytest.raises(ValueError, match=r"a\.npy"):
        read(path)


def test_members_of_archives_are_no_paths(tmp_path):
    path = tmp_path / "sub" / "a.npz"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("../loot.npy", "/tmp/loot.npy", "a\n\x1b[2J.npy"):  # noqa: S108
            archive.writestr(name, _npy((1000,), data=X.tobytes()))
    assert len(open_source(path).read(0, 10)) == 3
    assert len(load_arrays(path)) == 3
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.npz", "sub"]


@pytest.mark.parametrize("size", ["6_40", "\u0666\u0664\u0660", "9" * 5000, "1e3", "-1", "0x10"])
def test_whole_numbers_are_spelt_as_files_spell_them(tmp_path, size):
    (tmp_path / "cameras.txt").write_text(f"1 PINHOLE {size} 480 500 500 320 240\n")
    (tmp_path / "images.txt").write_text("1 1 0 0 0 0 0 0 1 a.png\n1 2 1\n")
    (tmp_path / "points3D.txt").write_text("1 0 0 1 0 0 0 0 1 0\n")
    with pytest.raises(ValueError, match=r"cameras\.txt, line 1: size must be a whole number"):
        read_colmap(tmp_path)


@pytest.mark.parametrize("word", ["1_0", "\u0661"])
@pytest.mark.parametrize("name", ["matches.csv", "points.txt", "camera.txt", "points.ply", "model"])
def test_numbers_are_spelt_as_files_spell_them(tmp_path, name, word):
    """Python's float accepts 1_0, which is 10, and digits of other scripts."""
    path = tmp_path / name
    head = (
        "ply\nformat ascii 1.0\nelement vertex 2\n" + "".join(f"property float {c}\n" for c in "xyz") + "end_header\n"
    )
    if name == "model":
        path.mkdir()
        (path / "cameras.txt").write_text(f"1 PINHOLE 640 480 {word} 500 320 240\n")
        (path / "images.txt").write_text("1 1 0 0 0 0 0 0 1 a.png\n1 2 1\n")
        (path / "points3D.txt").write_text("1 0 0 1 0 0 0 0 1 0\n")
    else:
        row = {"matches.csv": "1 2 3 4", "camera.txt": "500 500 320"}.get(name, "1 2 3")
        path.write_text((head if name.endswith("ply") else "") + f"{row}\n{row[:-1]}{word}\n", encoding="utf-8")
    read = {"matches.csv": read_matches, "camera.txt": read_intrinsics, "model": read_colmap}.get(name, read_points)
    with pytest.raises(ValueError, match=re.escape(str(path))):
        read(path)


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
@pytest.mark.parametrize("read", [read_points, lambda path: np.hstack(read_matches(path))])
def test_lines_may_end_as_anywhere(tmp_path, read, end):
    (tmp_path / "a.txt").write_bytes(f"1 2 3 4{end}5 6 7 9{end}1 1 2 2".encode())
    assert len(read(tmp_path / "a.txt")) == 3


@posix
@pytest.mark.parametrize("form", ["psd", "fits", "ico", "pdf", "sgi"])
def test_pictures_of_other_formats_are_not_opened(tmp_path, form):
    Image = pytest.importorskip("PIL.Image")
    heads = {"psd": b"8BPS\0\1" + bytes(100), "fits": b"SIMPLE  =                    T" + b" " * 3000}
    path = tmp_path / "a.png"
    if form in heads:
        path.write_bytes(heads[form])
    else:
        Image.new("L", (64, 64)).save(path, format=form)
    with pytest.raises(ValueError, match="cannot be read as an image"):
        read_image(path, "image1")
