"""Sound files of every kind that is read, small, for the fuzzer to damage."""

from __future__ import annotations

import bz2
import functools
import gzip
import io
import tempfile
from pathlib import Path

import numpy as np

_X = np.linspace(0.0, 3.0, 24)
_Y = np.round(2.5 * np.exp(-1.3 * _X) + 0.5, 4)

CSV = [
    b"Instrument;XRD\nOperator;B\n\nAngle (deg);I (cps)\n10,5;1,0\n10,6;2,5\n10,7;3\n",
    b"when,T\n2024-01-31 12:00:00,20.5\n2024-01-31 12:00:30,21\n2024-02-01,NA\n",
    b"T (\xb0C)\tI\nC\tcounts\n1,5\t2\n2,5\t3\n",
    b"x,y\n0,1.5\n1,2.5\n2,0.25\n",
    b"# a table\ntime;volts;err\n0;1.5;.1\n1;NA;.2\n2;;.1\n",
    b"0 1.5\n1 2.5\n2 -1e-3\n",
    b"x\ty\n1\t2\n3\t4\n",
    b'"x","y"\n"1","2"\n 3 , 4 \n',
    b"\xef\xbb\xbfx,y\r\n1,2\r\n\r\n# late\r\n3,inf\r\n",
]
BAL = [
    b"1 1 1  0 0 -10.0 20.0  0 0 0 0 0 0 100 0 0  0.1 -0.2 -1\n",
    b"2 2 4\n0 0 -1 2\n0 1 1 1\n1 0 3 4\n1 1 5 6\n" + b".1 0 0 0 0 0 90 1e-3 0\n" * 2 + b"0 .1 -2\n.2 0 -3\n",
]
MATCHES = [
    b"x1,y1,x2,y2\n1,2,3,4\n5,6,7,8\n0,1,0,2\n",
    b"3\n1 2 1 3 4 1\n5 6 1 7 8 1\n9 1 1 2 3 1\n",
    b"# x1 y1 x2 y2 score\n1 2 3 4 .5\n5 6 7 8 .9\n",
]
RECORD = b'{"format": "problm.files", "version": 1, "files": {"result.json": [12, 1700000000000000000], "a": null}}'
INTRINSICS = [b"800 0 320\n0 800 240\n0 0 1\n", b"800, 790, 320, 240\n", b"800 790 320 240 700 700 300 200"]


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=array.dtype == object)
    return buffer.getvalue()


def _npz(packed: bool, **arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(buffer, **arrays)
    return buffer.getvalue()


@functools.cache
def npy() -> list[bytes]:
    records = np.array([(1, 2.5), (3, 4.5)], dtype=[("t", "i4"), ("v", "f8")])
    return [_npy(np.c_[_X, _Y]), _npy(_Y.astype(np.float32)), _npy(records), _npy(np.array([{}], dtype=object))]


@functools.cache
def npz() -> list[bytes]:
    a, b = np.c_[_X, _Y], np.c_[_Y, _X]
    return [_npz(False, x1=a, x2=b), _npz(True, x1=a, x2=b), _npz(False, a=np.c_[a, b]), _npz(False, K=np.eye(3))]


@functools.cache
def parquet() -> list[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = []
    for options in ({"row_group_size": 8}, {"compression": "gzip"}):
        buffer = io.BytesIO()
        pq.write_table(pa.table({"x": _X, "y": _Y, "n": range(len(_X))}), buffer, **options)
        made.append(buffer.getvalue())
    return made


@functools.cache
def packed() -> list[bytes]:
    return [gzip.compress(text, mtime=0) for text in CSV]


@functools.cache
def hdf5() -> list[bytes]:
    import h5py

    made = []
    for version in ("earliest", "latest"):
        buffer = io.BytesIO()
        with h5py.File(buffer, "w", libver=version) as file:
            file["entry/x"], file["entry/y"] = _X, _Y
            file.create_dataset("packed", data=np.c_[_X, _Y], chunks=(8, 2), compression="gzip", shuffle=True)
            file["records"] = np.array([(1, 2.5), (3, 4.5)], dtype=[("t", "i4"), ("v", "f8")])
            file["link"], file["other"] = h5py.SoftLink("/entry"), h5py.ExternalLink("/etc/passwd", "/x")
            file["entry"].attrs["unit"] = "mm"
        made.append(buffer.getvalue())
    return made


@functools.cache
def excel() -> dict[str, bytes]:
    """The members of a workbook."""
    import datetime
    import zipfile

    import openpyxl

    book = openpyxl.Workbook()
    book.active.append(["when", "x (mm)", "y", "note"])
    for k in range(4):
        book.active.append([datetime.datetime(2024, 1, 1 + k), 0.5 * k, k * k, "text"])
    book.create_sheet("empty")
    buffer = io.BytesIO()
    book.save(buffer)
    with zipfile.ZipFile(buffer) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@functools.cache
def fits() -> list[bytes]:
    from astropy.io import fits

    columns = [fits.Column("t", "D", array=_X), fits.Column("n", "J", array=np.arange(24)), fits.Column("s", "4A")]
    made = []
    for parts in (
        [fits.PrimaryHDU(np.arange(12, dtype="i2").reshape(3, 4))],
        [fits.PrimaryHDU(), fits.BinTableHDU.from_columns(columns)],
        [fits.PrimaryHDU(), fits.CompImageHDU(np.arange(256, dtype="f4").reshape(16, 16))],
    ):
        buffer = io.BytesIO()
        fits.HDUList(parts).writeto(buffer)
        made.append(buffer.getvalue())
    return [*made, gzip.compress(made[0], mtime=0)]


@functools.cache
def pictures() -> list[bytes]:
    from PIL import Image

    pixels = np.add.outer(np.arange(20) * 7, np.arange(24) * 5)
    made = []
    for array, options in (
        (pixels.astype(np.uint8), {"compression": "tiff_lzw"}), (pixels.astype(np.uint16), {}),
        (pixels.astype(np.float32), {"compression": "tiff_adobe_deflate"}),
        (np.dstack([pixels.astype(np.uint8)] * 3), {"compression": "jpeg"}),
    ):  # fmt: skip
        buffer = io.BytesIO()
        Image.fromarray(array).save(buffer, "TIFF", **options)
        made.append(buffer.getvalue())
    return made


@functools.cache
def images() -> list[tuple[str, bytes]]:
    from PIL import Image

    pixels = (np.add.outer(np.arange(20) * 7, np.arange(24) * 5) % 256).astype(np.uint8)
    made = []
    for suffix, array, options in (
        (".png", pixels, {}), (".png", np.dstack([pixels] * 4), {}), (".jpg", np.dstack([pixels] * 3), {}),
        (".tif", pixels, {"compression": "tiff_lzw"}), (".bmp", pixels, {}), (".gif", pixels, {}), (".ppm", pixels, {}),
        (".webp", np.dstack([pixels] * 3), {}),
    ):  # fmt: skip
        buffer = io.BytesIO()
        form = {".jpg": "JPEG", ".tif": "TIFF"}.get(suffix, suffix[1:].upper())
        Image.fromarray(array).save(buffer, form, **options)
        made.append((suffix, buffer.getvalue()))
    return made


@functools.cache
def bal() -> list[tuple[str, bytes]]:
    return [
        *((".txt", text) for text in BAL),
        (".txt.bz2", bz2.compress(BAL[1])),
        (".txt.gz", gzip.compress(BAL[1], mtime=0)),
    ]


@functools.cache
def colmap(binary: bool = False) -> dict[str, bytes]:
    from problm.vision.bundle.camera_models import Intrinsics
    from problm.vision.bundle.colmap import write_colmap
    from problm.vision.bundle.reconstruction import Reconstruction

    camera = Intrinsics("SIMPLE_RADIAL", (500.0, 320.0, 240.0, -0.1), 640, 480)
    turns, shifts = np.tile(np.eye(3), (3, 1, 1)), np.c_[np.zeros((3, 2)), np.arange(3.0)]
    points = np.array([[0, 0, 5.0], [1, 0, 6.0], [0, 1, 7.0]])
    seen = np.stack([camera.project(points + s) for s in shifts])
    with tempfile.TemporaryDirectory() as folder:
        write_colmap(Reconstruction.from_arrays(turns, shifts, camera, points, seen), folder, binary=binary)
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


@functools.cache
def clouds() -> list[tuple[str, bytes]]:
    from problm.vision.points import write_ply

    points = np.arange(12.0).reshape(4, 3)
    with tempfile.TemporaryDirectory() as folder:
        write_ply(Path(folder, "cloud.ply"), points, colors=np.full((4, 3), 7))
        binary = Path(folder, "cloud.ply").read_bytes()
    text = b"ply\nformat ascii 1.0\nelement vertex 2\nproperty float x\nproperty float y\nproperty float z\n"
    text += b"element face 0\nproperty list uchar int vertex_indices\nend_header\n1 2 3\n4 5 6\n"
    return [(".ply", binary), (".ply", text), (".xyz", b"x;y;z\n1;2;3\n# no point\n4,5,6\n"), (".npy", npy()[0])]


@functools.cache
def zarr() -> dict[str, bytes]:
    """Paths below a folder: a group of two arrays, in both versions of the format."""
    import zarr

    with tempfile.TemporaryDirectory() as folder:
        for version in (2, 3):
            group = zarr.open_group(f"{folder}/v{version}.zarr", mode="w", zarr_format=version)
            for name, values in (("x", _X), ("y", _Y)):
                group.create_array(name, shape=values.shape, dtype="f8", chunks=(10,))[:] = values
        return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


@functools.cache
def result() -> bytes:
    import problm

    fit = problm.least_squares(lambda t, x, y: t[0] * x + t[1] - y, [1.0, 0.0], data=(_X, _Y))
    with tempfile.TemporaryDirectory() as folder:
        fit.save(Path(folder) / "result.json")
        return (Path(folder) / "result.json").read_bytes()


@functools.cache
def fit() -> bytes:
    import problm

    with tempfile.TemporaryDirectory() as folder:
        problm.fit("y ~ a*exp(-b*x) + c", {"x": _X, "y": _Y}).save(Path(folder) / "fit.json")
        return (Path(folder) / "fit.json").read_bytes()


@functools.cache
def checkpoint() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        resume(Path(folder) / "solve.npz")
        return (Path(folder) / "solve.npz").read_bytes()


@functools.cache
def checkpoint_arrays() -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(checkpoint()), allow_pickle=False) as file:
        return dict(file)


def resume(path: Path) -> None:
    """The solve that the checkpoint belongs to."""
    import problm

    def decay(theta, x, y):
        return theta[0] * np.exp(-theta[1] * x) + theta[2] - y

    problm.least_squares(decay, [1.0, 1.0, 0.0], data=(_X, _Y), checkpoint=path, checkpoint_every=0.0, max_iter=30)
