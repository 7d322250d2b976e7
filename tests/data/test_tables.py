"""Reading columns from files: what is recognised, what is refused, and that all readers agree."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from problm.data import tables
from problm.data.sources import open_source
from problm.data.tables import column_names, read_columns
from problm.data.text import TextTable


def write(folder, text, name="data.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.fixture(params=["arrow", "numpy", "line"])
def reader(request, monkeypatch):
    """Each of the three readers of text by itself."""
    monkeypatch.setattr("problm.data.text.SHORT", 0)
    if request.param != "arrow":
        monkeypatch.setattr(TextTable, "by_arrow", lambda *a: None)
    if request.param == "line":
        monkeypatch.setattr(TextTable, "by_numpy", lambda *a: None)
    return request.param


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("x,y\n1,2\n3,4\n", ("x", "y")),
        ("\ufeffx,y\r\n1,2\r\n3,4\r\n", ("x", "y")),  # as spreadsheets write it
        ('"x" ; "y"\n1;2\n3;4', ("x", "y")),
        ("a long name\ty\n1\t2\n3\t4\n", ("a long name", "y")),
        ("1,2\n3,4\n", ("x", "y")),
        ("# x y\n1 2\n 3   4 \n", ("x", "y")),  # as numpy.savetxt writes a header
        ("# measured on Monday\n\n1 2\n3 4\n", ("x", "y")),
        ("# units\n# volts, amps\n1,2\n3,4\n", ("volts", "amps")),
        ("x y\n1 2\n3 4\n", ("x", "y")),
    ],
)
def test_layouts(tmp_path, reader, text, names):
    path = write(tmp_path, text)
    assert column_names(path) == names
    columns = read_columns(path)
    assert list(columns) == list(names)
    np.testing.assert_array_equal(np.stack(list(columns.values())), [[1, 3], [2, 4]])


@pytest.mark.parametrize(
    "text", ["\r0 1.5\n1 2.5\n2 -1e-3\n", "x y\r0 1.5\n1 2.5\n2 -1e-3\n", "x y\r0 1.5\r1 2.5\r2 -1e-3\r"]
)
def test_lines_that_end_in_several_ways(tmp_path, text):
    """Found by the fuzzer: with blanks between the numbers, the first row was skipped as a line before the table."""
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode())
    assert read_columns(path)["y"].tolist() == [1.5, 2.5, -1e-3]


def test_names_without_header(tmp_path):
    assert column_names(write(tmp_path, "1\n2\n")) == ("y",)
    assert column_names(write(tmp_path, "1,2,3\n")) == ("c1", "c2", "c3")


def test_some_columns_in_the_order_asked_for(tmp_path, reader):
    path = write(tmp_path, "a,b,c\n1,two,3\n4,five,6\n")
    assert {k: v.tolist() for k, v in read_columns(path, ["c", "a"]).items()} == {"c": [3, 6], "a": [1, 4]}


@pytest.mark.parametrize("missing", ["", "NA", "nan", "NULL"])
def test_missing_values_are_nan(tmp_path, reader, missing):
    path = write(tmp_path, f"x,y\n1,2\n3,{missing}\n5,6\n")
    np.testing.assert_array_equal(read_columns(path)["y"], [2, np.nan, 6])


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("x\ty\n1\t2\n3\t\n", [[1, 2], [3, np.nan]]),
        ("x\ty\n3\t\n1\t2\n", [[3, np.nan], [1, 2]]),
        ("x\ty\n1\t2\n\t4\n", [[1, 2], [np.nan, 4]]),
        ("x\ty\n1\t2\n\t\n", [[1, 2], [np.nan, np.nan]]),
        ("x\ty\t\n1\t2\t\n3\t4\t\n", [[1, 2], [3, 4]]),  # as some instruments write it
        ("x\ty\n1\t2\t\n3\t4\t\n", [[1, 2], [3, 4]]),
    ],
)
def test_tabs_at_the_ends_of_lines(tmp_path, reader, text, rows):
    columns = read_columns(write(tmp_path, text))
    assert list(columns) == ["x", "y"]
    np.testing.assert_array_equal(np.stack(list(columns.values()), axis=1), rows)


def test_short_text_does_not_load_pyarrow(tmp_path, monkeypatch):
    path = write(tmp_path, "x,y\n" + "1,2\n" * 1000)
    for name in ("by_arrow", "by_numpy"):
        monkeypatch.setattr(TextTable, name, None)  # would be called
    np.testing.assert_array_equal(read_columns(path)["y"], np.full(1000, 2.0))


def test_comments_among_the_rows(tmp_path, reader):
    path = write(tmp_path, "x,y\n1,2\n# pause\n\n3,4\n")
    np.testing.assert_array_equal(read_columns(path)["y"], [2, 4])


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.floats(), st.floats()), min_size=1, max_size=20),
    st.sampled_from([",", ";", "\t", "  "]),
)
def test_readers_agree_to_the_bit(tmp_path_factory, rows, delimiter):
    path = tmp_path_factory.mktemp("t") / "data.csv"
    path.write_text("p" + delimiter + "q\n" + "".join(f"{a!r}{delimiter}{b!r}\n" for a, b in rows))
    table = TextTable(path, tables.MAX_BYTES)
    expected = np.array(rows).T
    answers = [table.by_numpy([0, 1]), table.by_line([0, 1])]
    if table.layout.delimiter is not None:
        answers.append(table.by_arrow([0, 1]))
    for answer in answers:
        assert answer is not None
        np.testing.assert_array_equal(np.stack(answer), expected)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x,y\n1,2\n3\n", "line 3 has 1 fields, expected 2"),
        ("x,y\n1,2\n3,4,5\n", "line 3 has 3 fields, expected 2"),
        ("x,y\n1,2\n3,four\n", "line 3, column 'y': 'four' is not a number"),
        ("x,y\n1,2\n3,1_000\n", "line 3, column 'y': '1_000' is not a number"),
        ("x,y\n", "no row of numbers follows line 1"),
        ("x,y\nalpha,beta\n", "names 2 columns|no row of numbers|is not a number"),
        ("# only talk\n", "holds no rows"),
        ("x,y,z\n1,2\n", "line 1 names 3 columns and line 2 has 2"),
        (b"x,y\n1,\0\n", "not text"),
        (b"x,y\n1,\xff\xfe\n", "line 2, column 'y': .* is not a number"),
        ("", "is empty"),
        ("x" * (1 << 20) + ",y\n1,2\n", "first line is longer"),
        (",".join(["1"] * 10_001) + "\n", "10,001 columns"),
        ("x,x\n1,2\n", "'x' appears 2 times"),
    ],
)
def test_bad_text(tmp_path, reader, text, says):
    with pytest.raises(ValueError, match=says):
        read_columns(write(tmp_path, text))


def test_fields_of_any_length(tmp_path, reader):
    """The csv module refuses fields of more than 131,072 characters with an exception of its own."""
    path = tmp_path / "data.csv"
    path.write_text(f"x,y\n{'9' * 200_000},2\n")
    assert read_columns(path)["x"].tolist() == [np.inf]
    path.write_text(f'x,"y{"y" * 200_000}"\n1,2\n')
    with pytest.raises(ValueError, match=r"data\.csv.*(field larger|first line is longer)"):
        read_columns(path)


def test_bad_paths(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_columns(tmp_path / "absent.csv")
    with pytest.raises(ValueError, match="is a folder"):
        read_columns(tmp_path)
    with pytest.raises(ValueError, match=r"'\.docx' is not known"):
        read_columns(write(tmp_path, "x", "data.docx"))
    with pytest.raises(ValueError, match="no column 'z'; it has 'x', 'y'"):
        read_columns(write(tmp_path, "x,y\n1,2\n"), ["z"])


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes are POSIX")
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ValueError, match="not a regular file"):
        read_columns(tmp_path / "pipe.csv")


def test_limits(tmp_path):
    path = write(tmp_path, "x,y\n" + "1,2\n" * 1000)
    with pytest.raises(ValueError, match="convert it to Parquet or NPY"):
        read_columns(path, max_bytes=1000)
    assert len(read_columns(path, max_bytes=100_000)["x"]) == 1000


def test_npy(tmp_path):
    path = tmp_path / "data.npy"
    np.save(path, np.arange(12.0).reshape(6, 2))
    columns = read_columns(path)
    assert list(columns) == ["x", "y"]
    np.testing.assert_array_equal(columns["y"], [1, 3, 5, 7, 9, 11])
    np.save(path, np.array([(1, 2.5), (3, 4.5)], dtype=[("t", "i4"), ("v", "f8")]))
    assert read_columns(path, ["v"])["v"].tolist() == [2.5, 4.5]
    np.save(path, np.arange(3.0))
    assert column_names(path) == ("y",)


def test_bad_npy(tmp_path):
    path = tmp_path / "data.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="cannot be read as an array"):
        read_columns(path)
    for array in (np.zeros((2, 2, 2)), np.zeros(()), np.array(["a", "b"]), np.zeros((0, 2)), np.zeros(2, complex)):
        np.save(path, array)
        with pytest.raises(ValueError, match=r"data\.npy"):
            read_columns(path)
    # A header that promises more than the file holds, and one that is no header.
    np.save(path, np.zeros((1000, 2)))
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match="cannot be read"):
        read_columns(path)
    huge = b"{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807, 2), }"
    for header in (huge, b"{'descr': __import__('os'), 'fortran_order': False, 'shape': (2,), }", b"{" * 100):
        padded = header + b" " * (117 - len(header)) + b"\n"
        path.write_bytes(b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded)
        with pytest.raises(ValueError, match="cannot be read"):
            read_columns(path)
    np.savez(tmp_path / "a.npz", np.zeros(2))
    (tmp_path / "a.npz").rename(path)
    with pytest.raises(ValueError, match="archive"):
        read_columns(path)


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "data.parquet"
    pq.write_table(
        pa.table({"x": [1, 2, 3], "y": [1.5, None, 2.5], "on": [True, False, True], "who": ["a", "b", "c"]}), path
    )
    assert column_names(path) == ("x", "y", "on", "who")
    columns = read_columns(path, ["on", "x", "y"])
    np.testing.assert_array_equal(columns["y"], [1.5, np.nan, 2.5])
    assert columns["x"].tolist() == [1, 2, 3]
    assert columns["on"].tolist() == [1.0, 0.0, 1.0]
    with pytest.raises(ValueError, match="'who' holds string"):
        read_columns(path)
    with pytest.raises(ValueError, match="at most"):
        read_columns(path, ["x"], max_bytes=10)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match="cannot be read as Parquet"):
        read_columns(path)
    pq.write_table(pa.table({"x": pa.array([], pa.float64())}), path)
    with pytest.raises(ValueError, match="no rows"):
        read_columns(path)


def test_parquet_with_a_name_that_is_no_text(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"weight": [1.0, 2.0]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"weight", b"\x80eight"))
    for read in (column_names, read_columns, lambda p: open_source(p).read(0, 2)):
        with pytest.raises(ValueError, match=r"data\.parquet cannot be read as Parquet"):
            read(path)


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"problm\[big\]"):
        read_columns(write(tmp_path, "PAR1", "data.parquet"))
    assert read_columns(write(tmp_path, "x,y\n1,2\n"))["x"].tolist() == [1.0]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([".csv", ".npy", ".parquet", ".txt"]))
def test_any_bytes_give_columns_or_a_clear_error(tmp_path_factory, content, suffix):
    path = tmp_path_factory.mktemp("fuzz") / f"data{suffix}"
    path.write_bytes(content)
    try:
        columns = read_columns(path)
    except ValueError:
        return
    assert all(c.ndim == 1 and len(c) for c in columns.values())


def test_arrays_are_read_and_not_mapped(tmp_path):
    """Cut short while a fit runs, a map would end the process."""
    path = tmp_path / "a.npy"
    for order in "CF":
        np.save(path, np.asarray(np.arange(20.0).reshape(10, 2), order=order))
        read = read_columns(path)
        source = tables.row_source(path, ["y"])
        np.testing.assert_array_equal(source.read(2, 4)[0], [5.0, 7.0])
        path.write_bytes(b"")
        np.testing.assert_array_equal(read["y"], np.arange(1.0, 20.0, 2.0))
        with pytest.raises(OSError, match="ended at byte"):
            source.read(0, 10)


@pytest.mark.parametrize("ending", [".csv", ".npy", ".parquet"])
def test_a_column_that_is_asked_for_twice(tmp_path, ending):
    """As ``problm fit --sigma x`` does, where x is a variable already."""
    path, table = tmp_path / f"a{ending}", np.arange(6.0).reshape(3, 2)
    if ending == ".csv":
        path.write_text("x,y\n0,1\n2,3\n4,5\n")
    elif ending == ".npy":
        np.save(path, table)
    else:
        pa = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pa.table({"x": table[:, 0], "y": table[:, 1]}), path)
    found = read_columns(path, ["x", "y", "x"])
    assert list(found) == ["x", "y"]
    assert found["x"].tolist() == [0.0, 2.0, 4.0]


@pytest.mark.parametrize(("text", "says"), [
    ("x,y\n3,4\n5,6\nbad\n7,8\n9,10\n", "line 4 has 1 fields, expected 2"),
    ("x,y\n1,2\n3,oops\n5,6\n7,8\n", "line 3, column 'y': 'oops'"),
    ("x,y\n1,oops\n3,4\n5,6\n7,8\n", "line 2, column 'y': 'oops'"),
    ("x,y\n1,2\n\"3,4\n5,6\n7,8\n", "line 3 has 1 fields, expected 2"),
    ("x;y\n1;2\n3;4;5\n5;6\n7;8\n", "line 3 has 3 fields, expected 2"),
    ("x y\n1 2\n3 4 5\n6 7\n8 9\n", "line 3 has 3 fields, expected 2"),
    ("x,y\n1,2\nx,y\n5,6\n7,8\n", "line 3, column 'x': 'x'"),
    ("x,y\n(s),(V)\n1,2\nx,y\n(s),(V)\n5,6\n7,8\n", "line 4, column 'x': 'x'"),
])  # fmt: skip
def test_rows_above_a_damaged_one_are_not_taken_for_text_before_the_table(tmp_path, text, says):
    """They were left out without a word where the damage lay in the first five rows."""
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ValueError, match=re.escape(says)):
        read_columns(tmp_path / "a.csv")


@pytest.mark.parametrize("text", [
    "Points,Sweeps\n1024,16\ntime,volts\n0,1\n2,3\n", "Sample,A\nGain,10\n0,1\n2,3\n4,5\n",
    "Sample A\nn,2\ntime,volts\n(s),(V)\n0,1\n2,3\n",
])  # fmt: skip
def test_text_and_numbers_before_the_table(tmp_path, text):
    (tmp_path / "a.csv").write_text(text)
    first, second = read_columns(tmp_path / "a.csv").values()
    assert (first[:2].tolist(), second[:2].tolist()) == ([0.0, 2.0], [1.0, 3.0])
