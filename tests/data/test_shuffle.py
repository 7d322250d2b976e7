"""Shuffled copies: the same rows, in an order that is random, within bounded memory."""

from __future__ import annotations

import importlib
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

import problm
from problm.data.shuffle import shuffle
from problm.data.sources import open_source
from problm.support.written import RECORD

pa = pytest.importorskip("pyarrow", reason="PyArrow is not installed")
pq = pytest.importorskip("pyarrow.parquet")
N = 100_000


@pytest.fixture
def parquet(tmp_path):
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 5, N))
    table = pa.table({"x": x, "row": np.arange(N), "name": [f"r{i}" for i in range(N)], "gap": [None, 1.0] * (N // 2)})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=7000)
    return tmp_path / "in.parquet"


@pytest.mark.parametrize("memory", ["1MB", "1GB"])
@pytest.mark.parametrize("out", ["out", "out.parquet"])
def test_parquet_keeps_all_columns(parquet, tmp_path, memory, out):
    assert shuffle(parquet, tmp_path / out, max_memory=memory) == N
    before, after = pq.read_table(parquet), pq.read_table(tmp_path / out)
    assert after.schema.names == before.schema.names
    assert after.num_rows == N
    rows = after.column("row").to_numpy()
    np.testing.assert_array_equal(np.sort(rows), np.arange(N))
    assert after.column("name").to_pylist()[:50] == [f"r{i}" for i in rows[:50]]
    np.testing.assert_array_equal(after.column("x").to_numpy(), before.column("x").to_numpy()[rows])
    assert after.column("gap").null_count == N // 2
    assert {p.name for p in tmp_path.iterdir() if p.name.startswith(".")} <= {RECORD}


def test_the_order_is_random(parquet, tmp_path):
    """No correlation of place and row, over the file and between neighbours: four standard deviations."""
    shuffle(parquet, tmp_path / "out", max_memory="1MB")
    assert len(list((tmp_path / "out").iterdir())) > 3
    rows = pq.read_table(tmp_path / "out").column("row").to_numpy().astype(float)
    assert abs(np.corrcoef(rows, np.arange(N))[0, 1]) < 4 / np.sqrt(N)
    assert abs(np.corrcoef(rows[1:], rows[:-1])[0, 1]) < 4 / np.sqrt(N)
    counts = np.histogram2d(rows, np.arange(N), bins=10)[0]
    chi2 = ((counts - N / 100) ** 2 / (N / 100)).sum()
    assert chi2 < 81 + 4 * np.sqrt(2 * 81)


def test_every_order_is_equally_likely(tmp_path):
    """Four rows through several buckets: 24 orders in 1200 copies, chi-square at 1e-4."""
    from problm.data.shuffle import ArrayTables, _deal, _ordered

    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    tables = ArrayTables(open_source((np.arange(4),)))
    rng = np.random.default_rng(0)
    for _ in range(1200):
        buckets = [str(tmp_path / f"{k}") for k in range(3)]
        _deal(tables, buckets, rng)
        parts = [p["f0"] for p in _ordered(tables, buckets, rng)]
        counts[tuple(np.concatenate(parts).tolist())] += 1
    observed = np.array(list(counts.values()))
    assert ((observed - 50) ** 2 / 50).sum() < 58.0  # chi-square of 23 degrees of freedom, 1e-4


@pytest.mark.parametrize("memory", ["1MB", "100MB"])
def test_arrays(tmp_path, memory):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((N, 2)).astype(np.float32), np.arange(N)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    assert shuffle((tmp_path / "x.npy", tmp_path / "y.npy"), tmp_path / "out", max_memory=memory) == N
    rows = np.load(tmp_path / "out" / "y.npy")
    np.testing.assert_array_equal(np.sort(rows), y)
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "x.npy"), x[rows])


def test_the_same_seed_gives_the_same_copy(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(5000))
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        shuffle(tmp_path / "x.npy", tmp_path / f"{name}.npy", rng=seed)
    a, b, c = (np.load(tmp_path / f"{name}.npy") for name in "abc")
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_columns_can_be_chosen(parquet, tmp_path):
    shuffle(parquet, tmp_path / "out", columns=["row", "x"])
    assert pq.read_table(tmp_path / "out").schema.names == ["row", "x"]


def test_a_fit_of_the_copy_is_that_of_the_original(parquet, tmp_path):
    rng = np.random.default_rng(1)
    x = pq.read_table(parquet).column("x").to_numpy()
    pq.write_table(pa.table({"x": x, "y": 2 * np.exp(-0.7 * x) + 0.1 * rng.standard_normal(N)}), parquet)
    shuffle(parquet, tmp_path / "out", max_memory="2MB")

    def model(t, x, y):
        return t[0] * np.exp(-t[1] * x) - y

    a = problm.least_squares(model, [1, 1], data=parquet, gtol=1e-9)
    b = problm.least_squares(model, [1, 1], data=tmp_path / "out", max_memory="2MB", gtol=1e-9)
    np.testing.assert_allclose(a.x, b.x, rtol=1e-6)


class TestErrors:
    def test_existing_target(self, tmp_path):
        np.save(tmp_path / "x.npy", np.arange(10))
        (tmp_path / "out").mkdir()
        with pytest.raises(FileExistsError, match="overwrite=True"):
            shuffle(tmp_path / "x.npy", tmp_path / "out")
        shuffle(tmp_path / "x.npy", tmp_path / "out", overwrite=True)
        assert (tmp_path / "out" / "x.npy").exists()

    def test_wrong_target(self, parquet, tmp_path):
        with pytest.raises(ValueError, match="Parquet is written to a folder"):
            shuffle(parquet, tmp_path / "out.csv")
        np.savez(tmp_path / "t.npz", x=np.arange(3), y=np.arange(3))
        with pytest.raises(ValueError, match="2 columns need a folder"):
            shuffle(tmp_path / "t.npz", tmp_path / "out.npy")

    def test_a_full_disk_is_told_before_any_work(self, parquet, tmp_path, monkeypatch):
        import shutil

        usage = shutil.disk_usage(tmp_path)._replace(free=1000)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
        with pytest.raises(OSError, match="1000 are free"):
            shuffle(parquet, tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_a_failure_leaves_nothing_behind(self, parquet, tmp_path):
        class Broken(np.random.Generator):
            def permutation(self, n):
                raise RuntimeError("broken")

        with pytest.raises(RuntimeError, match="broken"):
            shuffle(parquet, tmp_path / "out", rng=Broken(np.random.PCG64(0)))
        assert sorted(p.name for p in tmp_path.iterdir()) == ["in.parquet"]


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="peak memory is read from /proc")
def test_memory_is_bounded(tmp_path):
    """A 64 MB array is shuffled within 20 MB above what an idle process takes."""
    np.save(tmp_path / "x.npy", np.arange(8_000_000, dtype=np.float64))
    code = (
        "import resource, sys, problm.data.shuffle as s, problm.data.sources\n"
        "import numpy as np\n"
        "np.random.default_rng(0).permutation(10)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "s.shuffle(sys.argv[1], sys.argv[2], max_memory='20MB')\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    grown = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert grown < 25_000
    y = np.load(tmp_path / "y.npy")
    assert len(np.unique(y)) == 8_000_000


def test_what_appears_under_the_name_in_the_meantime_stays(tmp_path, monkeypatch):
    module = importlib.import_module("problm.data.shuffle")
    deal, out = module._deal, tmp_path / "out.npy"

    def slowly(*args):
        deal(*args)
        out.write_text("mine")

    monkeypatch.setattr(module, "_deal", slowly)
    np.save(tmp_path / "x.npy", np.arange(100.0))
    with pytest.raises(FileExistsError, match="exists: remove it"):
        shuffle(tmp_path / "x.npy", out)
    assert out.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["out.npy", "x.npy"]
