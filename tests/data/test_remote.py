"""Data at an address: the same rows and the same limits as on disk, and no secrets in messages."""

from __future__ import annotations

import http.server
import io
import logging
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest

import problm
from problm.data.sources import open_source
from problm.losses import Loss
from problm.problems.out_of_core import ChunkedProblem
from problm.problems.rows import FunctionModel
from problm.support.addresses import without_secrets

fsspec = pytest.importorskip("fsspec")

N = 60_000
SECRET = "hush"  # noqa: S105


def decay(n=N):
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 5, n))
    return x, 2.0 * np.exp(-0.7 * x) + 0.3 + 0.1 * rng.standard_normal(n)


def as_npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def as_parquet(**options):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file = io.BytesIO()
    x, y = decay()
    pq.write_table(pa.table({"x": x, "y": y}), file, row_group_size=2_000, **options)
    return file.getvalue()


@pytest.fixture
def memory():
    """The files of fsspec's file system in memory, by their paths."""
    system = fsspec.filesystem("memory")
    yield system
    system.rm("/", recursive=True)


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves ranges of the server's files, and notes how many bytes it sent."""

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        content = self.server.files.get(self.path)
        if content is None or f"Bearer {SECRET}" != self.headers["Authorization"]:
            self.send_error(404 if content is None else 403)
            return
        wanted = self.headers["Range"]
        if wanted:
            lo, hi = (int(part) for part in wanted.removeprefix("bytes=").split("-"))
            content = content[lo : hi + 1]
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.server.sent += len(content)
            self.wfile.write(content)

    def log_message(self, *_):
        pass


class Loopback(fsspec.AbstractFileSystem):
    """Read-only files of a server, by requests for ranges: ``loopback://TOKEN@127.0.0.1:PORT/NAME``."""

    protocol = "loopback"
    cachable = False

    def __init__(self, token="", **options):
        super().__init__(**options)
        self.token = token

    @classmethod
    def _strip_protocol(cls, path):
        return path.removeprefix("loopback://").rpartition("@")[2]

    @staticmethod
    def _get_kwargs_from_urls(path):
        return {"token": path.removeprefix("loopback://").rpartition("@")[0]}

    def _ask(self, path, method="GET", **headers):
        headers = {"Authorization": f"Bearer {self.token}", **headers}
        request = urllib.request.Request(f"http://{self._strip_protocol(path)}", method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
                return answer.read(), int(answer.headers["Content-Length"])
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:
                raise FileNotFoundError(path) from None
            raise PermissionError(f"{error} for loopback://{self.token}@{path}") from None

    def info(self, path, **_):
        return {"name": path, "type": "file", "size": self._ask(path, "HEAD")[1]}

    def cat_file(self, path, start=None, end=None, **_):
        return self._ask(path, Range=f"bytes={start}-{end - 1}")[0]

    def _open(self, path, mode="rb", **_):
        return Buffered(self, path, mode, 1 << 14)


class Buffered(fsspec.spec.AbstractBufferedFile):
    def _fetch_range(self, start, end):
        return self.fs.cat_file(self.path, start, end)


@pytest.fixture
def server():
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.files, made.sent = {}, 0
    threading.Thread(target=made.serve_forever, daemon=True).start()
    fsspec.register_implementation("loopback", Loopback, clobber=True)
    made.address = f"loopback://{SECRET}@127.0.0.1:{made.server_port}"
    yield made
    made.shutdown()
    made.server_close()


def fit(data, **options):
    return problm.least_squares(problm.formula("y ~ a*exp(-b*x) + c"), [1, 1, 0], data=data, **options)


def same_as_disk(tmp_path, files, addresses):
    """Fits of the same bytes on disk and elsewhere, in pieces."""
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    local = tuple(tmp_path / name for name in files)
    here, there = (fit(data if len(data) > 1 else data[0], max_memory="1MB") for data in (local, addresses))
    assert isinstance(there.problem, ChunkedProblem)
    assert there.certified
    assert here.x.tobytes() == there.x.tobytes()
    assert here.history.cost == there.history.cost


@pytest.mark.parametrize("kind", ["npy", "parquet", "compressed"])
def test_memory_and_http(memory, server, tmp_path, kind):
    if kind == "npy":
        x, y = decay()
        files = {"x.npy": as_npy(x), "y.npy": as_npy(y)}
    else:
        files = {"t.parquet": as_parquet(**({"compression": "zstd"} if kind == "compressed" else {}))}
    for name, content in files.items():
        memory.pipe_file(f"/{name}", content)
        server.files[f"/{name}"] = content
    same_as_disk(tmp_path, files, tuple(f"memory://{name}" for name in files))
    same_as_disk(tmp_path, files, tuple(f"{server.address}/{name}" for name in files))


def test_a_folder_of_parquet_files(memory):
    for i in range(3):
        memory.pipe_file(f"/folder/{i}.parquet", as_parquet())
    assert open_source("memory://folder").n == 3 * N
    assert fit("memory://folder").certified


def test_a_first_batch_reads_a_part(server):
    """The first batch of a sorted file: a few hundred rows from many places, not all bytes."""
    server.files["/x.npy"] = as_npy(np.arange(1_000_000.0))
    source = open_source(f"{server.address}/x.npy")
    problem = ChunkedProblem(FunctionModel(lambda t, x: x - t[0], "2-point", 1, Loss.named("linear")), source)
    values = problem.costs(np.zeros(1), 0, 200)
    assert len({int(v) // 20_000 for v in np.sqrt(2 * values)}) > 20
    assert server.sent < 100_000


@pytest.mark.parametrize("version", [2, 3])
def test_zarr(memory, version):
    zarr = pytest.importorskip("zarr")
    x, y = decay()
    store = zarr.storage.FsspecStore.from_url("memory://g.zarr")
    group = zarr.open_group(store, mode="w", zarr_format=version)
    for name, values in (("x", x), ("y", y)):
        group.create_array(name, shape=values.shape, chunks=(1_000,), dtype=values.dtype)[:] = values
    source = open_source("memory://g.zarr")
    np.testing.assert_array_equal(source.read(990, 2010)[0], x[990:2010])
    assert not source.fine
    assert fit("memory://g.zarr", max_memory="1MB").certified


def test_limits_are_those_of_files(memory):
    """Chunks that unpack to more than their array, rows that a size does not explain, and files that are cut short."""
    zarr = pytest.importorskip("zarr")
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    store = zarr.storage.FsspecStore.from_url("memory://b.zarr")
    array = zarr.create_array(store, shape=(1000,), chunks=(1000,), dtype="f8", zarr_format=2, compressors=None)
    array[:] = np.arange(1000.0)
    (chunk,) = (name for name in memory.find("/b.zarr") if name.endswith("/0"))
    memory.pipe_file(chunk, bytes(1 << 20))
    with pytest.raises(ValueError, match="is not a file of at most"):
        open_source("memory://b.zarr").read(0, 1000)
    store = zarr.storage.FsspecStore.from_url("memory://e.zarr")
    zarr.create_array(store, shape=(10**11,), chunks=(10**6,), dtype="f8")
    with pytest.raises(ValueError, match="which do not explain them"):
        open_source("memory://e.zarr")
    file = io.BytesIO()
    pq.write_table(pa.table({"x": np.zeros(50_000_000)}), file)
    memory.pipe_file("/z.parquet", file.getvalue())
    with pytest.raises(ValueError, match="which its size does not explain"):
        open_source("memory://z.parquet")
    memory.pipe_file("/x.npy", as_npy(np.arange(100.0))[:-8])
    with pytest.raises(ValueError, match="is cut short"):
        open_source("memory://x.npy")
    memory.pipe_file("/x.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\x7f" + bytes(100))
    with pytest.raises(ValueError, match="header is longer"):
        open_source("memory://x.npy")


def test_files_that_are_not_there(memory):
    for name in ("x.npy", "t.parquet", "folder"):
        with pytest.raises(FileNotFoundError, match=f"memory://{name}"):
            open_source(f"memory://{name}")
    with pytest.raises(ValueError, match="archives at an address are not read"):
        open_source("memory://x.npz")
    with pytest.raises((ValueError, OSError, ImportError), match="nowhere"):
        open_source("nowhere://x.npy")


def test_secrets_are_not_told(server, caplog):
    """In messages, notes, logs and results; the server refuses the wrong ones and sends the address back."""
    server.files["/t.parquet"] = b"not a table"
    server.files["/x.npy"] = as_npy(np.arange(10.0))
    wrong = server.address.replace(SECRET, "wrong")
    with caplog.at_level(logging.DEBUG):
        for address, word in (
            (f"{server.address}/t.parquet", SECRET),
            (f"{server.address}/none.parquet?sig={SECRET}", SECRET),
            (f"{wrong}/t.parquet", "wrong"),
            (f"{wrong}/x.npy", "wrong"),
            (f"{server.address}/x.other", SECRET),
        ):
            with pytest.raises((ValueError, OSError)) as error:
                open_source(address)
            assert "127.0.0.1" in str(error.value)
            assert word not in "".join([str(error.value), *getattr(error.value, "__notes__", [])])
    assert SECRET not in caplog.text
    assert SECRET not in repr(open_source(f"{server.address}/x.npy").columns)
    assert without_secrets("why? because") == "why? because"
