"""Rows from files and other readers: the same rows as in memory, in any range, and clear words when they are bad."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from problm.data.columns import FileColumns, Joined, Sliced, Source, even_ends, row_bytes
from problm.data.sources import is_stored, open_source
from problm.support.memory import as_bytes, available


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    return {
        "x": rng.uniform(0, 5, 1000),
        "y": rng.standard_normal(1000).astype(np.float32),
        "k": rng.integers(0, 9, 1000),
    }


class Reader:
    """Anything with a length and slices."""

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, rows):
        return self.values[rows].tolist()


def npy(folder, table):
    for name, values in table.items():
        np.save(folder / f"{name}.npy", values)
    return tuple(folder / f"{name}.npy" for name in table)


def npz(folder, table):
    np.savez(folder / "t.npz", **table)
    return str(folder / "t.npz")


def compressed(folder, table):
    np.savez_compressed(folder / "c.npz", **table)
    return folder / "c.npz"


def memmap(folder, table):
    files = npy(folder, table)
    return tuple(np.load(f, mmap_mode="r") for f in files)


def parquet(folder, table):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table(table), folder / "t.parquet", row_group_size=90)
    return str(folder / "t.parquet")


def parquet_folder(folder, table):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    (folder / "parts").mkdir()
    for i, lo in enumerate(range(0, 1000, 300)):
        part = pa.table({name: values[lo : lo + 300] for name, values in table.items()})
        pq.write_table(part, folder / "parts" / f"{i}.parquet", row_group_size=70)
    return folder / "parts"


def parquet_glob(folder, table):
    return str(parquet_folder(folder, table) / "*.parquet")


def zarr_group(folder, table):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(folder / "t.zarr"), mode="w")
    for name, values in table.items():
        group.create_array(name, data=values, chunks=(64,))
    return str(folder / "t.zarr")


def zarr_arrays(folder, table):
    zarr = pytest.importorskip("zarr")
    return tuple(zarr.array(values, chunks=(64,)) for values in table.values())


def dask_arrays(folder, table):
    da = pytest.importorskip("dask.array")
    return tuple(da.from_array(values, chunks=130) for values in table.values())


def dask_frame(folder, table):
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    return dd.from_pandas(pd.DataFrame(table), npartitions=7)


def readers(folder, table):
    return tuple(Reader(values) for values in table.values())


def mapping(folder, table):
    return dict(zip(table, npy(folder, table), strict=True))


def mixed(folder, table):
    return (npy(folder, table)[0], table["y"], Reader(table["k"]))


KINDS = [npy, npz, compressed, memmap, parquet, parquet_folder, parquet_glob, zarr_group, zarr_arrays, dask_arrays]
KINDS += [dask_frame, readers, mapping, mixed]


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_every_kind_reads_the_same_rows(make, tmp_path, table):
    data = make(tmp_path, table)
    assert is_stored(data, "1MiB") or make is memmap
    source = open_source(data)
    assert isinstance(source, Source)
    assert source.n == 1000
    names = [c.name.split(".")[0] for c in source.columns]
    by_name = dict(zip(names, range(3), strict=True)) if set(names) == set(table) else dict.fromkeys(table)
    order = [by_name[name] if by_name[name] is not None else i for i, name in enumerate(table)]
    for lo, hi in [(0, 1000), (0, 1), (999, 1000), (63, 65), (130, 131), (89, 271), (299, 302)]:
        columns = source.read(lo, hi)
        for i, values in zip(order, table.values(), strict=True):
            np.testing.assert_array_equal(columns[i], values[lo:hi])
    ends = source.ends
    assert ends[-1] == 1000
    assert (np.diff(ends, prepend=0) > 0).all()
    for column, values in zip(source.columns, source.read(0, 5), strict=True):
        assert values.dtype == column.dtype
        assert values.shape[1:] == column.shape


def test_columns_are_chosen_by_name_and_order(tmp_path, table):
    for data in (npz(tmp_path, table), parquet(tmp_path, table), zarr_group(tmp_path, table)):
        source = open_source(data, columns=["y", "x"])
        np.testing.assert_array_equal(source.read(5, 9)[1], table["x"][5:9])
        with pytest.raises(ValueError, match="there is no 'z'"):
            open_source(data, columns=["z"])
    with pytest.raises(ValueError, match="can be chosen from files and tables"):
        open_source((table["x"],), columns=["x"])


@given(st.integers(1, 5000), st.integers(1, 700))
def test_even_ends_cover_everything(n, rows):
    ends = even_ends(n, rows)
    sizes = np.diff(ends, prepend=0)
    assert ends[-1] == n
    assert (sizes[:-1] == rows).all()
    assert 0 < sizes[-1] <= rows


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 90), st.integers(1, 30), st.booleans())
def test_slices_of_a_map_are_found_in_their_file(tmp_path_factory, lo, rows, two):
    path = tmp_path_factory.mktemp("map") / "a.npy"
    values = np.arange(400.0).reshape(100, 4) if two else np.arange(100.0)
    np.save(path, values)
    part = np.load(path, mmap_mode="r")[lo : lo + rows]
    source = open_source(part)
    assert isinstance(source, FileColumns)
    np.testing.assert_array_equal(source.read(0, source.n)[0], values[lo : lo + rows])


def test_a_strided_map_is_sliced(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(100.0))
    source = open_source(np.load(tmp_path / "a.npy", mmap_mode="r")[::3])
    assert isinstance(source, Sliced)
    np.testing.assert_array_equal(source.read(1, 3)[0], [3.0, 6.0])


def test_files_pickle_without_their_handles(tmp_path, table):
    source = open_source(npy(tmp_path, table))
    first = source.read(0, 3)
    again = pickle.loads(pickle.dumps(source))  # noqa: S301
    np.testing.assert_array_equal(again.read(0, 3)[0], first[0])
    assert row_bytes(again) == 8 + 4 + 8


def test_memory_maps_that_fit_are_used_in_place(tmp_path, table):
    maps = memmap(tmp_path, table)
    assert not is_stored(maps, "1MB")
    np.save(tmp_path / "big.npy", np.zeros(300_000))
    big = np.load(tmp_path / "big.npy", mmap_mode="r")
    assert is_stored(big, "2MB")
    assert is_stored((big, big), "4MB")
    assert not is_stored(big, "4MB")
    assert not is_stored((np.zeros(4), [1.0, 2.0]), "1MB")


class TestErrors:
    def test_missing_files(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            open_source(tmp_path / "none.npy")
        with pytest.raises(FileNotFoundError, match="no such file"):
            open_source(tmp_path / "none.parquet")
        with pytest.raises(FileNotFoundError, match="no file matches"):
            open_source(str(tmp_path / "*.parquet"))

    def test_unknown_kind(self, tmp_path):
        with pytest.raises(ValueError, match=r"known are \.npy"):
            open_source(tmp_path / "a.mat")
        with pytest.raises(TypeError, match="length and slices"):
            open_source(3.0)

    def test_lengths_differ(self, tmp_path):
        np.save(tmp_path / "a.npy", np.zeros(5))
        np.save(tmp_path / "b.npy", np.zeros(6))
        with pytest.raises(ValueError, match=r"data\[0\] has 5, data\[1\] has 6"):
            open_source((tmp_path / "a.npy", tmp_path / "b.npy"))
        np.savez(tmp_path / "c.npz", a=np.zeros(5), b=np.zeros(6))
        with pytest.raises(ValueError, match="same number of rows"):
            open_source(tmp_path / "c.npz")

    def test_a_file_that_was_cut_short(self, tmp_path):
        path = tmp_path / "a.npy"
        np.save(path, np.zeros(100))
        path.write_bytes(path.read_bytes()[:-8])
        with pytest.raises(ValueError, match="cut short"):
            open_source(path)

    def test_a_file_that_shrinks_while_it_is_read(self, tmp_path):
        path = tmp_path / "a.npy"
        np.save(path, np.zeros(100))
        source = open_source(path)
        path.write_bytes(path.read_bytes()[:-80])
        with pytest.raises(OSError, match="has it changed"):
            source.read(80, 100)

    @pytest.mark.parametrize(
        ("values", "match"),
        [
            (np.array(["a", "b"]), "must hold numbers"),
            (np.zeros((0, 2)), "one row per residual"),
            (np.float64(3.0), "one row per residual"),
            (np.asfortranarray(np.zeros((4, 2))), "column by column"),
            (np.zeros(3, dtype=complex), "must hold numbers"),
        ],
    )
    def test_bad_arrays(self, tmp_path, values, match):
        np.save(tmp_path / "a.npy", values)
        with pytest.raises(ValueError, match=match):
            open_source(tmp_path / "a.npy")

    def test_objects_are_never_unpickled(self, tmp_path):
        np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
        with pytest.raises(ValueError, match="must hold numbers"):
            open_source(tmp_path / "a.npy")

    def test_damaged_row_groups(self, tmp_path, table):
        path = parquet(tmp_path, table)
        content = bytearray(Path(path).read_bytes())
        content[20:200] = b"\xff" * 180
        for damaged in (content, content[:-50], b"", b"PAR1"):
            Path(path).write_bytes(damaged)
            with pytest.raises(ValueError, match=r"\.parquet cannot be read as Parquet"):
                open_source(path).read(0, 10)

    def test_damaged_zarr(self, tmp_path, table):
        path = Path(zarr_group(tmp_path, table))
        first = next(p for p in sorted(path.rglob("*")) if p.is_file() and p.suffix != ".json")
        first.write_bytes(b"no chunk")
        with pytest.raises(ValueError, match=r"t\.zarr cannot be read as Zarr"):
            open_source(path).read(0, 1000)
        described = sorted(path.rglob("zarr.json"))[-1]
        content = described.read_text()
        for damaged in ("[1, 2]", "{}", content[:200], content.replace('"float64"', '"pickle"')):
            described.write_text(damaged)
            with pytest.raises(ValueError, match=r"t\.zarr"):
                open_source(path)

    def test_a_zarr_chunk_that_unpacks_to_too_much(self, tmp_path):
        zarr = pytest.importorskip("zarr")
        zarr.create_array(str(tmp_path / "t.zarr"), shape=(10**13,), chunks=(10**13,), dtype="f8")
        with pytest.raises(ValueError, match=r"t\.zarr takes 8e\+04 GB unpacked, but at most"):
            open_source(tmp_path / "t.zarr")

    def test_integers_with_nulls(self, tmp_path):
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table({"k": pa.array([1, None, 3])}), tmp_path / "a.parquet")
        with pytest.raises(ValueError, match="'k' holds integers and nulls"):
            open_source(tmp_path / "a.parquet").read(0, 3)
        pq.write_table(pa.table({"s": ["a"]}), tmp_path / "b.parquet")
        with pytest.raises(ValueError, match="no numeric column"):
            open_source(tmp_path / "b.parquet")

    def test_empty(self):
        with pytest.raises(ValueError, match="data is empty"):
            open_source(())
        with pytest.raises(ValueError, match="no rows"):
            open_source(Reader(np.zeros(0)))


def test_joined_takes_the_largest_chunks(table):
    fine, coarse = Sliced([Reader(table["x"])]), Sliced([table["y"]])
    assert fine.fine
    assert coarse.fine
    coarse.fine, coarse.ends = False, even_ends(1000, 100)
    joined = Joined([fine, coarse])
    assert not joined.fine
    assert len(joined.ends) == 10


class TestMemory:
    def test_text_and_numbers(self):
        assert as_bytes("1.5 GB") == 1_500_000_000
        assert as_bytes("3MiB") == 3 << 20
        assert as_bytes(1e9) == 10**9
        assert as_bytes(None) == pytest.approx(available() / 2, rel=0.5)

    @pytest.mark.parametrize("bad", ["lots", "3 apples", "-1GB", 5, "1KB"])
    def test_bad_values(self, bad):
        with pytest.raises(ValueError, match="max_memory"):
            as_bytes(bad)
