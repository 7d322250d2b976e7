"""HDF5, Excel, FITS and TIFF files of strangers: they reach no other file, run nothing, and take no memory they do not
explain. The fuzzer tries damaged ones."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from problm.data.isolated import process
from problm.data.tables import column_names, read_columns

posix = pytest.mark.skipif(sys.platform == "win32", reason="limits of processes are POSIX")


@pytest.fixture
def secret(tmp_path):
    """A file beside the stranger's one."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["x"] = np.full(4, 42.0)
    (tmp_path / "secret.bin").write_bytes(b"0123456789" * 10)
    return tmp_path


def hostile(h5py, folder):
    """A file whose members lie elsewhere, are packed by a plugin, or claim more than is there."""
    path = folder / "a.h5"
    with h5py.File(path, "w") as file:
        file["good"] = np.arange(4.0)
        file["external"] = h5py.ExternalLink(str(folder / "secret.h5"), "/x")
        file["soft"] = h5py.SoftLink("/good")
        file["cycle/again"] = file["/"]
        file.create_dataset("raw", shape=(10,), dtype="u1", external=[(str(folder / "secret.bin"), 0, 10)])
        layout = h5py.VirtualLayout(shape=(4,), dtype="f8")
        layout[:] = h5py.VirtualSource(str(folder / "secret.h5"), "x", shape=(4,))
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("huge", shape=(10**12,), chunks=(1000,), dtype="f8", compression="gzip")
        file.create_dataset("huge chunk", shape=(2**28,), chunks=(2**28,), dtype="f8", compression="gzip")
        file.create_dataset("bare", shape=(10**10,), dtype="f8")
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4,))
        plist.set_filter(307, h5py.h5z.FLAG_OPTIONAL, ())  # bzip2, which is a plugin
        space = h5py.h5s.create_simple((4,))
        h5py.h5d.create(file.id, b"plugin", h5py.h5t.IEEE_F64LE, space, plist)
    return path


WHY = {
    "external": "link to another file",
    "soft": "it is a link to '/good'",
    "raw": "lie in other files",
    "virtual": "virtual data set",
    "huge": "not explained",
    "huge chunk": "not explained|larger than the file explains",
    "bare": "not explained",
    "plugin": "filter 307, which would load a plugin",
}


def test_members_that_lie_elsewhere_are_refused_by_name(secret):
    path = hostile(pytest.importorskip("h5py"), secret)
    assert column_names(path) == ("good",)
    assert read_columns(path)["good"].tolist() == [0, 1, 2, 3]
    assert set(WHY) <= set(process.contents(path, "hdf5").refused)
    for name in ("external", "virtual", "plugin", "huge"):
        with pytest.raises(ValueError, match=WHY[name]):
            read_columns(path, [name])
    refused = process.contents(path, "hdf5").refused
    import re

    assert all(re.search(why, refused[name]) for name, why in WHY.items())


@posix
def test_the_process_can_open_no_other_file_and_write_none(secret):
    """Even if the checks of the reader were not there."""
    path = hostile(pytest.importorskip("h5py"), secret)
    code = f"""
import os, h5py
from problm.data.isolated.limits import confine
from problm.data.isolated.worker import prepared
prepared("hdf5")
confine({path.stat().st_size}, 1 << 26)
file = h5py.File({str(path)!r}, "r", locking=False)
def tried(call):
    try:
        return repr(call())
    except (OSError, KeyError, MemoryError) as error:
        return type(error).__name__
print(tried(lambda: file["external"][()]))
print(tried(lambda: [float(v) for v in file["virtual"][()]]))
print(tried(lambda: file["raw"][()]))
print(tried(lambda: open({str(secret / "secret.bin")!r}).read()))
print(tried(lambda: file["huge chunk"][:10]))
print(tried(lambda: bytes(1 << 30)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    said = done.stdout.split("\n")
    assert "42" not in done.stdout, done.stdout
    assert "48" not in said[2], done.stdout  # the first byte of the other file
    assert said[0] in ("OSError", "KeyError"), done
    assert said[3] == "OSError"
    assert said[5] == "MemoryError"


@pytest.mark.parametrize("ending", ["h5", "xlsx", "fits", "tif"])
def test_what_is_no_such_file_is_refused_in_a_sentence(tmp_path, ending):
    pytest.importorskip({"h5": "h5py", "xlsx": "openpyxl", "fits": "astropy", "tif": "PIL"}[ending])
    path = tmp_path / f"a.{ending}"
    path.write_bytes(b"nothing of the kind" * 100)
    with pytest.raises(ValueError, match=rf"a\.{ending}.*cannot be read as"):
        read_columns(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="is empty"):
        read_columns(path)


def workbook(path, sheet):
    openpyxl = pytest.importorskip("openpyxl")
    openpyxl.Workbook().save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["xl/worksheets/sheet1.xml"] = sheet
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


SHEET = b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>%s</sheetData></worksheet>'


@pytest.mark.parametrize(
    ("sheet", "says"),
    [
        (b'<!DOCTYPE a [<!ENTITY b "c">]>' + SHEET % b"", "not the XML of a workbook"),
        (b"<!DOCTYPE a SYSTEM 'file:///etc/passwd'>" + SHEET % b"", "not the XML of a workbook"),
        (SHEET % (b" " * (1 << 28)), "unpacks to more"),
        (SHEET % b'<row r="2000000000"><c r="A2000000000"><v>1</v></c></row>', "more cells|no rows|cannot be read"),
        (
            SHEET % b"".join(b'<row r="%d"><c r="XFD%d"><v>1</v></c></row>' % (k, k) for k in range(1, 3000)),
            "more cells|no row|its reader ended",
        ),
    ],
    ids=["entities", "external entity", "bomb", "far row", "far columns"],
)
def test_workbooks_that_would_fill_the_memory(tmp_path, sheet, says):
    path = workbook(tmp_path / "a.xlsx", sheet)
    with pytest.raises(ValueError, match=says):
        read_columns(path)


def test_fits_that_announces_more_than_it_has(tmp_path):
    pytest.importorskip("astropy")
    cards = ["SIMPLE  =                    T", "BITPIX  =                  -64", "NAXIS   =                    2",
             "NAXIS1  =               100000", "NAXIS2  =               100000", "END"]  # fmt: skip
    (tmp_path / "a.fits").write_bytes("".join(c.ljust(80) for c in cards).ljust(2880).encode() + b"\0" * 2880)
    with pytest.raises(ValueError, match=r"do not explain|cannot be read"):
        read_columns(tmp_path / "a.fits")


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    (tmp_path / "a.h5").write_bytes(b"x")
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / "h5py.py").write_text("raise ImportError")
    monkeypatch.syspath_prepend(str(fake))
    with pytest.raises(ImportError, match=r"h5py is needed .*problm\[files\]"):
        read_columns(tmp_path / "a.h5")


@posix
def test_a_module_in_the_folder_of_the_file_is_not_run(tmp_path, monkeypatch):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.arange(3.0)
    (tmp_path / "h5py.py").write_text("open('ran', 'w')")
    (tmp_path / "problm.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    assert read_columns("a.h5")["x"].tolist() == [0, 1, 2]
    assert not (tmp_path / "ran").exists()


def test_a_file_of_which_nothing_is_read_says_why(tmp_path):
    """All columns were refused: this was an error without a reason."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", shape=(10**9,), chunks=(1000,), dtype="f8")
    with pytest.raises(ValueError, match=r"'x' is not read: its shape \(1000000000,\) is not explained"):
        read_columns(tmp_path / "a.h5")


def test_columns_beyond_the_limit_are_not_left_out_without_a_word(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("t", data=np.zeros(2, dtype=[(f"c{k}", "f8") for k in range(500)]))
        for k in range(23):
            file[f"t{k}"] = file["t"]  # hard links
    with pytest.raises(ValueError, match="has 12,000 columns; at most 10,000 are read, unless they are named"):
        read_columns(tmp_path / "a.h5")
    assert read_columns(tmp_path / "a.h5", ["t4/c499"])["t4/c499"].tolist() == [0.0, 0.0]
