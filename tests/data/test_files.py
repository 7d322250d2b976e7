"""Files as instruments and spreadsheets write them: text, Excel, HDF5, FITS and images."""

from __future__ import annotations

import datetime
import gzip

import numpy as np
import pytest

from problm.data.column_names import with_words, word_of
from problm.data.dates import microseconds
from problm.data.tables import Reading, column_names, line_of, read_columns
from problm.data.text import TextTable

TEXTS = {
    "header of an instrument": (
        "Instrument;XRD 7\nOperator;Bob\nDate;2024-01-31\n\nAngle (deg);I (cps)\n10,5;1,0\n10,6;2,5\n10,7;3\n",
        {"Angle (deg)": [10.5, 10.6, 10.7], "I (cps)": [1, 2.5, 3]}),
    "a line of units": ("Wavelength,Signal\nnm,counts\n400.1,20\n400.2,21\n", {"Wavelength": [400.1, 400.2],
                                                                               "Signal": [20, 21]}),
    "decimal commas": ("1,5;2,5\n3,5;4\n", {"x": [1.5, 3.5], "y": [2.5, 4]}),
    "decimal commas and tabs": ("a\tb\n1,5\t2,5\n3,5\t4\n", {"a": [1.5, 3.5], "b": [2.5, 4]}),
    "decimal commas and blanks": ("1,5 2,5\n3,5 4,25\n", {"x": [1.5, 3.5], "y": [2.5, 4.25]}),
    "dates": ("time,T\n2024-01-31 12:00:00,20.5\n2024-01-31 12:00:30.5,21\n", {"time": [0, 30.5], "T": [20.5, 21]}),
    "German dates": ("Zeit;T\n31.01.2024 12:00;20,5\n01.02.2024 12:01;21,5\n", {"Zeit": [0, 86460], "T": [20.5, 21.5]}),
    "times of day": ("t,y\n12:00:00,1\n,\n12:00:10,3\n", {"t": [0, np.nan, 10], "y": [1, np.nan, 3]}),
    "Latin-1": (b"T (\xb0C);I (\xb5A)\n1,5;2\n2,5;3\n", {"T (\xb0C)": [1.5, 2.5], "I (\xb5A)": [2, 3]}),
    "UTF-16": ("x;y\n1,5;2\n2;3\n".encode("utf-16"), {"x": [1.5, 2], "y": [2, 3]}),
    "semicolons in text": ("name,x,y\nfoo;bar,1,2\nfoo;baz,3,4\n", {"x": [1, 3], "y": [2, 4]}),
    "other text first": ("Sample A\nRun 3, noisy\nx,y,e\n1,2,3\n4,5,6\n", {"x": [1, 4], "y": [2, 5], "e": [3, 6]}),
}  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", TEXTS)
def test_text_of_instruments(tmp_path, monkeypatch, name, packed):
    monkeypatch.setattr("problm.data.text.SHORT", 0)
    text, expected = TEXTS[name]
    content = text if isinstance(text, bytes) else text.encode()
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    path.write_bytes(gzip.compress(content) if packed else content)
    found = read_columns(path, list(expected))
    table = TextTable(path, 1 << 30)
    strict = table.by_line([table.layout.names.index(n) for n in expected])
    for (column, values), slow in zip(expected.items(), strict, strict=True):
        np.testing.assert_array_equal(found[column], values)
        np.testing.assert_array_equal(slow, values)


def test_what_is_given_is_not_recognised(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("1,5\n2,5\n")
    assert read_columns(path)["x"].tolist() == [1, 2]
    assert read_columns(path, decimal=",")["y"].tolist() == [1.5, 2.5]
    path.write_text("x|y\n1|2\n")
    assert read_columns(path, delimiter="|")["y"].tolist() == [2]
    for wrong in ({"decimal": ";"}, {"delimiter": "ab"}, {"delimiter": ",", "decimal": ","}):
        with pytest.raises(ValueError, match=r"delimiter|decimal"):
            read_columns(path, **wrong)


def test_ambiguous_dates_are_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("t,y\n01/02/2024,1\n01/03/2024,2\n")
    with pytest.raises(ValueError, match="line 2, column 't'"):
        read_columns(path)
    for text in ("2024-13-01", "31.02.2024", "25:00", "2024-01-01T00:00:00+0", "\u0662024-01-01"):
        with pytest.raises(ValueError, match=r".*"):
            microseconds(text)
    assert microseconds("2024-01-31T12:00:00+02:00") == microseconds("2024-01-31 10:00")


def test_rows_and_lines(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("# about\nx,y\n1,2\n\n# pause\n3,NA\n")
    assert [line_of(path, row) for row in (0, 1, 2)] == [3, 6, None]


def test_packed_text_is_limited_and_damage_is_named(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"x,y\n" + b"1,2\n" * 100_000))
    with pytest.raises(ValueError, match="unpacks to more than"):
        read_columns(path, max_bytes=10_000)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"a\.csv\.gz cannot be unpacked"):
        read_columns(path)


def test_packed_text_takes_no_more_memory_than_its_size_explains(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"x,y\n" + b"1,2\n" * (30 << 20)))
    with pytest.raises(ValueError, match=r"unpacks to more than 0\.0[0-9]* GB"):
        read_columns(path)


def test_words_for_columns():
    columns = ["Wavenumber (cm-1)", "I [a.u.]", "entry/data/t", "2theta", "T (K)", "T (C)", "lambda", "x"]
    assert list(word_of(columns).values()) == ["Wavenumber", "I", "t", "c_2theta", "T", "T_", "c_lambda", "x"]
    text, words = with_words('$2 ~ a*"Wavenumber (cm-1)" + b*x + `T (C)`', columns)
    assert text == "I ~ a*Wavenumber + b*x + T_"
    assert words == {"I": "I [a.u.]", "Wavenumber": "Wavenumber (cm-1)", "T_": "T (C)"}
    for wrong in ("$9 + a", "`Wavenumbr (cm-1)`", "$0"):
        with pytest.raises(ValueError, match=r"columns|did you mean"):
            with_words(wrong, columns)


def test_long_excel(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["x", "y"])
    for k in range(3000):
        book.active.append([k, 2 * k])
    book.save(tmp_path / "long.xlsx")
    found = read_columns(tmp_path / "long.xlsx", ["x", "y"])
    np.testing.assert_array_equal(found["x"], np.arange(3000))
    np.testing.assert_array_equal(found["y"], 2 * np.arange(3000))


def test_excel(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.title = "notes"
    book.active.append(["nothing here"])
    sheet = book.create_sheet("data")
    for row in (["My experiment"], [], ["when", "x (mm)", "y"]):
        sheet.append(row)
    for k in range(4):
        sheet.append([datetime.datetime(2024, 1, 1, k), 0.5 * k, k * k if k != 2 else None])
    path = tmp_path / "a.xlsx"
    book.save(path)
    assert column_names(path) == ("when", "x (mm)", "y")
    found = read_columns(path, ["y", "when"])
    np.testing.assert_array_equal(found["when"], [0, 3600, 7200, 10800])
    np.testing.assert_array_equal(found["y"], [0, 1, np.nan, 9])
    with pytest.raises(ValueError, match=r"there is no column 'z'; it has 'when', 'x \(mm\)', 'y'"):
        read_columns(path, ["z"])
    with pytest.raises(ValueError, match="there is no sheet 'dat'; there are 'notes', 'data'"):
        read_columns(path, part="dat")
    with pytest.raises(ValueError, match=r"a\.xlsx"):
        read_columns(path, part="1")


def test_hdf5(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["entry/x"], file["entry/y"] = np.arange(5.0), np.arange(5) ** 2
        file.create_dataset("table", data=np.c_[np.arange(5), np.ones(5)], compression="gzip", shuffle=True)
        file["records"] = np.array([(1, 2.5), (3, 4.5)], dtype=[("t", "i4"), ("v", "f8")])
        file["text"] = "not numbers"
    names = column_names(path)
    assert set(names) == {"entry/x", "entry/y", "table[1]", "table[2]", "records/t", "records/v"}
    found = read_columns(path, ["entry/x", "table[2]"])
    assert found["entry/x"].tolist() == [0, 1, 2, 3, 4]
    assert found["table[2]"].tolist() == [1] * 5
    assert read_columns(path, ["records/v"])["records/v"].tolist() == [2.5, 4.5]
    with pytest.raises(ValueError, match=r"same number of rows, but 'entry/x' has 5, 'records/v' has 2"):
        read_columns(path, ["entry/x", "records/v"])
    image = read_columns(path, image=True)
    assert image["I"].tolist() == [0, 1, 1, 1, 2, 1, 3, 1, 4, 1]


@pytest.mark.parametrize("kind", ["tif", "fits", "npy"])
def test_images(tmp_path, kind):
    pixels = np.arange(12, dtype=np.uint16).reshape(3, 4)
    path = tmp_path / f"a.{kind}"
    if kind == "tif":
        pytest.importorskip("PIL.Image").fromarray(pixels).save(path)
    elif kind == "fits":
        pytest.importorskip("astropy.io.fits").writeto(path, pixels)
    else:
        np.save(path, pixels)
    found = read_columns(path, image=kind == "npy")
    assert column_names(path, Reading(image=kind == "npy")) == ("x", "y", "I")
    assert found["x"].tolist() == [0, 1, 2, 3] * 3
    assert found["y"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert found["I"].tolist() == list(range(12))


def test_a_table_in_fits(tmp_path):
    fits = pytest.importorskip("astropy.io.fits")
    columns = [fits.Column("t", "D", array=np.arange(3.0)), fits.Column("n", "J", array=[4, 5, 6])]
    fits.HDUList([fits.PrimaryHDU(), fits.BinTableHDU.from_columns(columns, name="EVENTS")]).writeto(
        tmp_path / "a.fits"
    )
    assert read_columns(tmp_path / "a.fits", ["n"], part="events")["n"].tolist() == [4, 5, 6]
