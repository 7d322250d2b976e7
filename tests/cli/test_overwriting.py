"""Nothing of the user's is deleted or overwritten by accident: only what we wrote is replaced, and that is said."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import pytest

pytest.importorskip("typer")

from problm.cli import main
from problm.cli.common import Folder, Voice
from problm.cli.exits import Bad, complain
from problm.data.shuffle import shuffle
from problm.support.files import write_atomically
from problm.support.written import RECORD, Written

posix = pytest.mark.skipif(sys.platform == "win32", reason="links of POSIX")


def opened(path, names=("result.json", "fit.png"), inputs=(), force=False):
    return Folder(path, names, inputs, force, Voice())


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# --- output folders --------------------------------------------------------------------------------------------


def test_what_we_wrote_is_replaced_and_that_is_said(tmp_path, capsys):
    opened(tmp_path).write("result.json", "{}")
    assert "replaces" not in capsys.readouterr().out
    opened(tmp_path).write("result.json", "[]")
    assert capsys.readouterr().out == f"replaces result.json in {tmp_path}\n"
    assert (tmp_path / "result.json").read_text() == "[]"


def test_other_files_are_no_obstacle_and_stay(tmp_path):
    (tmp_path / "thesis.tex").write_text("years")
    opened(tmp_path).write("result.json", "{}")
    assert (tmp_path / "thesis.tex").read_text() == "years"


@pytest.mark.parametrize("change", ["never ours", "changed", "another record", "damaged record"])
def test_what_we_did_not_write_is_not_replaced(tmp_path, change):
    if change != "never ours":
        opened(tmp_path).write("result.json", "{}")
    if change == "another record":
        (tmp_path / RECORD).write_text(json.dumps({"format": "problm.files", "files": {"result.json": [7, 7]}}))
    elif change == "damaged record":
        (tmp_path / RECORD).write_text("[" * 100_000)
    else:
        (tmp_path / "result.json").write_text("precious")
    before = contents(tmp_path)
    with pytest.raises(Bad, match=r"did not write, or that were changed since: result\.json.*; .* --force"):
        opened(tmp_path)
    assert contents(tmp_path) == before
    opened(tmp_path, force=True).write("result.json", "{}")
    assert (tmp_path / "result.json").read_text() == "{}"


@posix
def test_links_are_not_ours(tmp_path):
    out, precious = tmp_path / "out", tmp_path / "precious"
    precious.write_text("mine")
    opened(out).write("result.json", "{}")
    (out / "result.json").unlink()
    os.symlink(precious, out / "result.json")
    with pytest.raises(Bad, match="did not write"):
        opened(out)
    opened(out, force=True).write("result.json", "{}")
    assert precious.read_text() == "mine"


@posix
def test_folders_behind_links_are_not_ours(tmp_path):
    """``out/model`` is a link to a model of the user's."""
    mine, names = tmp_path / "mine", ["model/cameras.txt"]
    mine.mkdir()
    (tmp_path / "out" / "model").mkdir(parents=True)
    with opened(tmp_path / "out", names).writing(names) as target:
        (target / names[0]).write_text("ours")
    os.replace(tmp_path / "out" / "model" / "cameras.txt", mine / "cameras.txt")
    (tmp_path / "out" / "model").rmdir()
    os.symlink(mine, tmp_path / "out" / "model")
    with pytest.raises(Bad, match="is a link"):
        opened(tmp_path / "out", names)
    assert Written(tmp_path / "out").foreign(names) == names


def test_a_file_saved_after_a_kill_is_not_replaced(tmp_path):
    """A process is killed while it writes; the user then saves a file under the name that it was about to write."""
    folder = opened(tmp_path)
    folder.write("fit.png", "ours")
    with pytest.raises(KeyboardInterrupt), folder._written.writing(["result.json"]):
        raise KeyboardInterrupt
    (tmp_path / "result.json").write_text("precious")
    with pytest.raises(Bad, match=r"changed since: result\.json;"):
        opened(tmp_path)
    assert (tmp_path / "result.json").read_text() == "precious"


def test_what_was_written_before_an_error_is_ours(tmp_path):
    folder = opened(tmp_path, ["a.txt", "b.txt"])

    def writes_one():
        with folder.writing(["a.txt", "b.txt"]) as target:
            write_atomically(target / "a.txt", "first")
            raise OSError(28, "the disk is full")

    with pytest.raises(OSError, match="full"):
        writes_one()
    opened(tmp_path, ["a.txt", "b.txt"]).write("a.txt", "again")
    assert Written(tmp_path).strangers() == []


def test_files_that_an_error_left_alone_are_not_taken_for_ours(tmp_path):
    """With --force, before the first byte was written."""
    (tmp_path / "fit.png").write_text("precious")
    with pytest.raises(OSError, match="full"), opened(tmp_path, force=True).writing(["fit.png"]):
        raise OSError(28, "the disk is full")
    with pytest.raises(Bad, match="did not write"):
        opened(tmp_path)


@posix
@pytest.mark.parametrize("there", ["file", "link to nothing"])
def test_the_output_is_no_folder(tmp_path, there):
    (tmp_path / "out").symlink_to("none") if there == "link to nothing" else (tmp_path / "out").write_text("mine")
    with pytest.raises(Bad, match=f"out is a {there}, but the output needs a folder"):
        opened(tmp_path / "out")


@posix
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("there", ["link", "link to nothing", "file", "appears"])
def test_folders_inside_the_output_are_no_links(tmp_path, there, force):
    """``out/model`` is a link to a folder of the user's, in which nothing has the name of an output."""
    out, mine, names = tmp_path / "out", tmp_path / "mine", ["model/cameras.txt", "result.json"]
    mine.mkdir()
    out.mkdir()
    folder = opened(out, names, force=force) if there == "appears" else None
    if there == "file":
        (out / "model").write_text("mine")
    else:
        (out / "model").symlink_to("../none" if there == "link to nothing" else "../mine")
    before = contents(tmp_path)

    def writes():
        with (folder or opened(out, names, force=force)).writing(names[:1]):
            pytest.fail("it was written")

    with pytest.raises(Bad, match="model is a link or a file, but a folder is written there"):
        writes()
    assert contents(tmp_path) == before


@pytest.mark.parametrize("force", [False, True])
def test_outputs_do_not_become_part_of_the_data(tmp_path, force):
    """A model in binary form would be hidden by one in text beside it; a folder of tables is read whole."""
    (tmp_path / "model").mkdir()
    for path, names in ((tmp_path, ["model/cameras.txt"]), (tmp_path / "model", ["result.json"])):
        with pytest.raises(Bad, match="would become part of the data"):
            opened(path, names, [tmp_path / "model"], force)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("force", [False, True])
def test_outputs_never_replace_inputs(tmp_path, force):
    opened(tmp_path).write("result.json", "{}")  # even what we wrote
    with pytest.raises(Bad, match="would overwrite the data being read"):
        opened(tmp_path, inputs=[tmp_path / "." / "result.json"], force=force)


@pytest.mark.parametrize("force", [False, True])
def test_the_record_never_replaces_an_input(tmp_path, force):
    """Matches of the user's under the name of the record."""
    (tmp_path / RECORD).write_text("1 2 3 4")
    with pytest.raises(Bad, match="would overwrite the data being read"):
        opened(tmp_path, inputs=[tmp_path / RECORD], force=force)
    assert (tmp_path / RECORD).read_text() == "1 2 3 4"


def test_a_file_that_appears_while_a_command_runs_stays(tmp_path):
    folder = opened(tmp_path)
    (tmp_path / "fit.png").write_text("precious")
    folder.write("result.json", "{}")
    with pytest.raises(Bad, match=r"now holds files that problm did not write: fit\.png"):
        folder.write("fit.png", "picture")
    assert (tmp_path / "fit.png").read_text() == "precious"
    forced = opened(tmp_path, force=True)
    forced.write("fit.png", "picture")
    assert (tmp_path / "fit.png").read_text() == "picture"


def test_two_commands_that_write_to_one_folder(tmp_path):
    """Each takes the other's files for ours, and the record keeps both."""
    first, second = opened(tmp_path), opened(tmp_path)
    second.write("result.json", "[]")
    second.write("fit.png", "second")
    first.write("result.json", "{}")
    assert Written(tmp_path).strangers() == []


# --- the commands ----------------------------------------------------------------------------------------------


@pytest.fixture
def program(monkeypatch, capsys):
    def call(*args):
        monkeypatch.setattr(sys, "argv", ["problm", *map(str, args)])
        with pytest.raises(SystemExit) as left:
            main()
        return left.value.code or 0, *capsys.readouterr()

    return call


def table(path):
    x = np.linspace(0, 3, 60)
    np.savetxt(path, np.c_[x, np.exp(-x) + 0.01 * np.sin(50 * x)], delimiter=",", header="x,y", comments="")


def test_a_fit_into_a_folder_with_a_report_of_the_users(program, tmp_path):
    table(tmp_path / "data.csv")
    (tmp_path / "report.html").write_text("precious")
    before = contents(tmp_path)
    arguments = ("fit", tmp_path / "data.csv", "-m", "y ~ a*exp(-b*x)", "-o", tmp_path)
    code, out, err = program(*arguments)
    assert (code, out) == (2, "")
    assert "report.html; give another --output, or --force" in err
    assert contents(tmp_path) == before
    assert program(*arguments, "--force")[0] == 0
    code, out, _ = program(*arguments)
    assert code == 0
    assert "replaces result.json, fit.png, report.html in" in out


def test_matches_are_not_replaced_by_matches(program, tmp_path):
    """The command writes a matches.csv of its own."""
    rows = np.random.default_rng(0).uniform(0, 100, (30, 4))
    np.savetxt(tmp_path / "matches.csv", rows, delimiter=",")
    before = contents(tmp_path)
    for more in ((), ("--force",)):
        code, _, err = program("homography", tmp_path / "matches.csv", "-o", tmp_path, *more)
        assert code == 2
        assert "would overwrite the data" in err
    assert contents(tmp_path) == before


def test_the_matrix_that_a_search_starts_from_is_not_replaced(program, tmp_path):
    """``--initial`` names a file of the user's, under the name that the command writes."""
    cloud = np.random.default_rng(0).normal(size=(200, 3))
    np.save(tmp_path / "a.npy", cloud)
    np.save(tmp_path / "image.npy", cloud[:64, :1] * np.ones(64))
    np.savetxt(tmp_path / "matrix.txt", np.eye(4))
    np.savetxt(tmp_path / "warp.txt", np.eye(3))
    before = contents(tmp_path)
    for command, data, start in (("register", "a.npy", "matrix.txt"), ("align", "image.npy", "warp.txt")):
        code, _, err = program(
            command, tmp_path / data, tmp_path / data, "--initial", tmp_path / start, "-o", tmp_path, "--force"
        )
        assert code == 2
        assert f"{start} would overwrite the data being read" in err
    assert contents(tmp_path) == before


def test_a_model_is_not_replaced_by_its_adjustment(program, tmp_path):
    from tests.hardship.fuzz import seeds

    (tmp_path / "model").mkdir()
    for name, content in seeds.colmap().items():
        (tmp_path / "model" / name).write_bytes(content)
    before = contents(tmp_path)
    for more in ((), ("--force",)):
        code, _, err = program("bundle", tmp_path / "model", "-o", tmp_path, *more)
        assert code == 2
        assert "would overwrite the data" in err
    assert contents(tmp_path) == before


# --- shuffled copies -------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with an array and a thesis, the current one."""
    folder = tmp_path / "work"
    folder.mkdir()
    np.save(folder / "x.npy", np.arange(100.0))
    np.savez(folder / "two.npz", x=np.arange(100.0), y=np.arange(100.0))
    (folder / "thesis.tex").write_text("years")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("out", [".", "..", "../work", "~", "/"])
@pytest.mark.parametrize("more", [("--overwrite",), ("--force",), ("--overwrite", "--force")])
def test_folders_that_are_never_replaced(program, here, out, more):
    before = contents(here)
    code, _, err = program("shuffle", "two.npz", os.path.expanduser(out), *more)
    assert code == 2, err
    assert contents(here) == before


def test_a_folder_with_other_files_is_replaced_by_force_only(program, here):
    (here / "out").mkdir()
    (here / "out" / "diary.txt").write_text("dear diary")
    before = contents(here)
    code, _, err = program("shuffle", "two.npz", "out", "--overwrite")
    assert code == 2
    assert "holds files that shuffle did not write, or that were changed since (diary.txt)" in err
    assert contents(here) == before
    code, out, _ = program("shuffle", "two.npz", "out", "--force")
    assert code == 0
    assert "will replace out" in out
    code, _, err = program("shuffle", "two.npz", "out")
    assert code == 2
    assert "--overwrite" in err
    assert sorted(os.listdir("out")) == [RECORD, "x.npy", "y.npy"]


@pytest.mark.parametrize("change", ["nothing", "a file more", "a file changed", "a link"])
def test_an_earlier_copy(here, change):
    shuffle("two.npz", "out")
    if change == "a file more":
        (here / "out" / "notes.txt").write_text("mine")
    elif change == "a file changed":
        np.save(here / "out" / "x.npy", np.zeros(7))
    elif change == "a link":
        if sys.platform == "win32":
            pytest.skip("links of POSIX")
        os.rename("out", "elsewhere")
        os.symlink("elsewhere", "out")
    before = contents(here)
    with pytest.raises(FileExistsError, match="exists"):
        shuffle("two.npz", "out")
    if change == "nothing":
        assert shuffle("two.npz", "out", overwrite=True, rng=1) == 100
        assert Written(here / "out").strangers() == []
        return
    with pytest.raises(FileExistsError, match=r"force=True"):
        shuffle("two.npz", "out", overwrite=True)
    assert contents(here) == before


@pytest.mark.parametrize(("data", "out"), [
    ("x.npy", "x.npy"), ("x.npy", "../work/x.npy"), ("*.npy", "x.npy"), ("sub/x.npy", "sub"), (("sub/x.npy",), "sub"),
    ("parts", "parts"), ("parts", "parts/copy"),
])  # fmt: skip
def test_copies_never_replace_their_data(here, data, out):
    (here / "sub").mkdir()
    np.save(here / "sub" / "x.npy", np.arange(10.0))
    (here / "parts").mkdir()
    before = contents(here)
    with pytest.raises(ValueError, match="the data"):
        shuffle(data, out, overwrite=True, force=True)
    assert contents(here) == before


@posix
@pytest.mark.parametrize("kind", ["file", "local", "simplecache::file", "hard link", "zarr", "hdf5"])
def test_data_under_other_names_are_not_replaced(here, kind):
    """Addresses of this machine, links of the file system, arrays that other libraries opened."""
    out = "x.npy"
    if kind == "hard link":
        os.link("x.npy", "hard.npy")
        data, out = "x.npy", "hard.npy"
    elif kind == "zarr":
        zarr, out = pytest.importorskip("zarr"), "stored"
        data = zarr.open_array(out, mode="w", shape=(10,), dtype="f8")
        data[:] = np.arange(10.0)
    elif kind == "hdf5":
        h5py, out = pytest.importorskip("h5py"), "stored"
        with h5py.File(out, "w") as file:
            file["x"] = np.arange(10.0)
        data = h5py.File(out, "r")["x"]
    else:
        pytest.importorskip("fsspec")
        data = f"{kind}://{here}/x.npy"
    before = contents(here)
    with pytest.raises(ValueError, match="is or contains the data being read"):
        shuffle(data, out, overwrite=True, force=True)
    assert contents(here) == before


def test_only_files_that_shuffle_wrote_are_replaced_without_force(here):
    (here / "precious.npy").write_text("mine")
    before = contents(here)
    with pytest.raises(FileExistsError, match="was not written by shuffle"):
        shuffle("x.npy", "precious.npy", overwrite=True)
    assert contents(here) == before
    shuffle("x.npy", "copy.npy")
    assert shuffle("x.npy", "copy.npy", overwrite=True, rng=1) == 100
    np.save(here / "copy.npy", np.zeros(3))
    with pytest.raises(FileExistsError, match="changed since"):
        shuffle("x.npy", "copy.npy", overwrite=True)
    assert shuffle("x.npy", "copy.npy", force=True) == 100


def test_a_fit_into_the_folder_of_its_tables(program, here):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (here / "tables").mkdir()
    x = np.linspace(0.0, 1.0, 50)
    parquet.write_table(pa.table({"x": x, "y": 2.0 * x}), here / "tables" / "a.parquet")
    before = contents(here)
    for out in ("tables", "tables/fit", "tables/../tables"):
        code, _, err = program("fit", "tables", "-m", "y ~ a*x", "-o", out, "--force")
        assert code == 2
        assert "become part of the data" in err
    assert contents(here) == before


def test_what_was_there_comes_back_when_the_last_step_fails(here, monkeypatch):
    shuffle("two.npz", "out")
    before, replace = contents(here), os.replace

    def fails(a, b):
        if "made" in str(a):
            raise OSError(28, "No space left on device")
        replace(a, b)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="No space left"):
        shuffle("two.npz", "out", overwrite=True)
    assert contents(here) == before


# --- other cases of the same -------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["my own", '{"format": "other"}', "[]", "", '{"files": {}}', "link"])
def test_a_record_of_somebody_elses_is_not_replaced(tmp_path, content):
    if content == "link":
        (tmp_path / "precious").write_text("mine")
        (tmp_path / RECORD).symlink_to("precious")
    else:
        (tmp_path / RECORD).write_text(content)
    with pytest.raises(Bad, match=r"did not write.*\.problm\.json"):
        Folder(tmp_path, ["report.html"], [], False, Voice())
    folder = Folder(tmp_path, ["report.html"], [], True, Voice())
    folder.write("report.html", "x")
    assert not (tmp_path / RECORD).is_symlink()
    if content == "link":
        assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize("kind", ["folder", "pipe"])
@pytest.mark.parametrize("force", [False, True])
def test_what_no_file_replaces_is_told_before_any_work(tmp_path, kind, force):
    (os.mkfifo if kind == "pipe" else os.mkdir)(tmp_path / "report.html")
    with pytest.raises(Bad, match=r"report\.html is a folder, device or pipe"):
        Folder(tmp_path, ["result.json", "report.html"], [], force, Voice())
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_inputs_under_other_names_are_not_replaced(tmp_path):
    (tmp_path / "data.csv").write_text("x")
    os.link(tmp_path / "data.csv", tmp_path / "hard.json")
    (tmp_path / "soft.json").symlink_to("data.csv")
    (tmp_path / "sub").mkdir()
    for name in ("hard.json", "soft.json", "sub/../data.csv"):
        with pytest.raises(Bad, match="overwrite the data"):
            Folder(tmp_path, [name], [tmp_path / "data.csv"], True, Voice())
    assert (tmp_path / "data.csv").read_text() == "x"


def test_names_that_are_no_text(tmp_path, capsys, monkeypatch):
    """Bytes that are no UTF-8, escapes and line ends in the names of files: read, written, and printed harmlessly."""
    from problm.data.tables import read_columns

    path = tmp_path / os.fsdecode(b"a\xff\x1b[31m.csv")
    try:
        path.write_text("x,y\n1,2\n2,4\n3,6\n")
    except OSError:
        pytest.skip("this file system has no such names")
    assert read_columns(path, ["x"])["x"].tolist() == [1.0, 2.0, 3.0]
    Voice().say(f"read {path.name}")
    complain(f"read {path.name}")
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert "a\\xdcff\\x1b[31m.csv" in said.out
    write_atomically(tmp_path / "page.html", f"<p>{path.name}</p>")
    assert b"\\udcff" in (tmp_path / "page.html").read_bytes()
