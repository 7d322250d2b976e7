"""The program, run as a user runs it: arguments, files, pipes, terminals, signals, missing packages, hostile input."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser

import numpy as np
import pytest

pytest.importorskip("typer")

from problm.cli import main
from problm.support.written import RECORD
from tests.helpers.program import PROGRAM, unwatched
from tests.helpers.scripts import only_our_script


def run(*args, **options):
    """The program in a process of its own."""
    return quiet(subprocess.run([*PROGRAM, *map(str, args)], capture_output=True, text=True, timeout=240, **options))


def quiet(done):
    """Without the message of the very first run on a machine."""
    kept = [line for line in done.stderr.splitlines(True) if "compiling for this machine" not in line]
    done.stderr = "".join(kept)
    return done


@pytest.fixture
def inside(monkeypatch, capsys):
    """The program in this process: the same code, without the second that Python takes to start."""

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["problm", *map(str, args)])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return quiet(subprocess.CompletedProcess(args, left.value.code or 0, out, err))

    return call


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data files: decay.csv (x, y, err), decay.npy, matches.csv with K.txt."""
    from problm.vision.two_view.simulate import two_views

    path = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 4, 20_000)
    err = 0.05 + 0.05 * x
    y = 2.5 * np.exp(-1.3 * x) + 0.5 + err * rng.standard_normal(x.size)
    np.savetxt(path / "decay.csv", np.c_[x, y, err], delimiter=",", header="x,y,err", comments="")
    np.save(path / "decay.npy", np.c_[x, y])
    views = two_views(500, inliers=0.7, seed=1)
    np.savetxt(path / "matches.csv", np.c_[views.x1, views.x2], delimiter=",", header="x1,y1,x2,y2", comments="")
    np.savetxt(path / "K.txt", views.K)
    return path


MODEL = ("--model", "y ~ a*exp(-b*x) + c")


class Page(HTMLParser):
    """Tags and addresses of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.addresses = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [v for k, v in attrs if k in ("src", "href")]


# --- fit -----------------------------------------------------------------------------------------------------


def test_fit_says_what_is_doubtful(inside, folder, tmp_path):
    done = inside("fit", folder / "decay.csv", "--model", "y ~ a + b*x", "-o", tmp_path / "poor")
    assert done.returncode == 0
    assert "warning: residuals are" in done.stdout
    assert "Warning: residuals are" in (tmp_path / "poor" / "report.html").read_text()
    as_json = inside("fit", folder / "decay.csv", "--model", "y ~ a + b*x", "--json", "--no-output")
    assert "misses structure" in json.loads(as_json.stdout)["warnings"][0]
    assert "warning" not in inside("fit", folder / "decay.csv", *MODEL, "--no-output").stdout


def test_fit_finds_peaks(inside, tmp_path):
    rng = np.random.default_rng(0)
    x = np.linspace(0, 100, 500)
    y = (
        5 * np.exp(-0.5 * ((x - 30) / 2) ** 2)
        + 3 * np.exp(-0.5 * ((x - 60) / 3) ** 2)
        + 1
        + 0.1 * rng.standard_normal(500)
    )
    np.savetxt(tmp_path / "raman.csv", np.c_[x, y], delimiter=",", header="shift,counts", comments="")
    done = inside("fit", tmp_path / "raman.csv", "--peaks", "auto", "-o", tmp_path / "out")
    assert done.returncode == 0
    assert re.search(r"^counts ~ gaussian \+ gaussian \+ ", done.stdout)
    assert re.search(r"center_2 +(59\.9|60\.0)\d+ ± 0\.0", done.stdout)
    assert "center_3" not in done.stdout
    assert (tmp_path / "out" / "fit.png").is_file()
    for arguments, message in (
        ((), "give a formula"),
        (("--peaks", "many"), "auto or a number"),
        (("--peaks", "auto", "--start", "a=1"), "leave out --start"),
        (("--peaks", "auto", "--variables", "shift"), "two columns"),
    ):
        wrong = inside("fit", tmp_path / "raman.csv", *arguments, "--no-output")
        assert (wrong.returncode, message in wrong.stderr) == (2, True)


def test_fit_prints_and_writes(folder, tmp_path):
    done = run("fit", folder / "decay.csv", *MODEL, "--sigma", "err", "-o", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")
    for pattern in (
        r"Converged",
        r"reduced chi2 +1\.0",
        r"a +2\.\d+ ± 0\.0",
        r"b, c +[+-]0\.\d",
        r"r squared +0\.\d",
    ):
        assert re.search(pattern, done.stdout), pattern
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [RECORD, "fit.png", "report.html", "result.json"]
    assert (tmp_path / "out" / "fit.png").read_bytes().startswith(b"\x89PNG")
    from problm import Result

    again = Result.load(tmp_path / "out" / "result.json")
    np.testing.assert_allclose(again.x, [2.5, 1.3, 0.5], atol=0.05)


def test_fit_json_is_all_of_stdout(folder, inside):
    done = inside("fit", folder / "decay.npy", *MODEL, "--json", "--no-output")
    data = json.loads(done.stdout)
    assert data["success"]
    assert data["names"] == ["a", "b", "c"]
    assert data["files"] == []
    assert done.returncode == 0


def test_fit_quiet(folder, inside):
    done = inside("fit", folder / "decay.csv", *MODEL, "--quiet", "--no-output")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_seed_decides_everything(folder, inside):
    def x(seed):
        out = inside(
            "fit",
            folder / "decay.csv",
            *MODEL,
            "--json",
            "--no-output",
            "--seed",
            seed,
            "--accuracy",
            "0.01",
            "--start",
            "a=1,b=1,c=0",
        )
        data = json.loads(out.stdout)
        return data["x"], data["history"]["batch_size"]

    assert x(1) == x(1)
    assert x(1)[0] != x(2)[0]


def test_fit_options(folder, inside):
    done = inside(
        "fit", folder / "decay.csv", *MODEL, "--start", "a=1,b=.2", "--bounds", "a=0:10, b=0:", "--fix", "c=0.5",
        "--loss", "cauchy", "--f-scale", "0.2", "--method", "lm", "--threads", "1", "--max-time", "60",
        "--sigma", "err", "--absolute-sigma", "--no-output",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"c +0\.5 \(fixed\)", done.stdout)


def test_fit_with_the_papers_test(folder, inside):
    def decisions(*acceptance):
        done = inside("fit", folder / "decay.csv", *MODEL, "--json", "--no-output", *acceptance)
        assert done.returncode == 0, done.stderr
        return set(json.loads(done.stdout)["history"]["decision"])

    assert decisions("--acceptance", "full") == {"accept"}
    assert "undo, grow" in decisions("--acceptance", "paper")  # alpha = 0.9: the first batch fails its test


def test_an_unknown_acceptance_is_refused_by_all_commands(folder, photos, inside):
    wrong = ["--acceptance", "papers", "--no-output"]
    commands = [
        ["fit", folder / "decay.csv", *MODEL],
        ["align", photos / "a.png", photos / "b.png"],
        ["essential", folder / "matches.csv", "-K", folder / "K.txt"],
        *([name, folder / "matches.csv"] for name in ("homography", "fundamental")),
    ]
    for command in commands:
        done = inside(*command, *wrong)
        assert done.returncode == 2, command
        assert "did you mean 'paper'" in done.stderr, done.stderr
    done = inside("essential", folder / "matches.csv", "-K", folder / "K.txt", "--acceptance", "paper", "--no-output")
    assert done.returncode == 0, done.stderr


def test_pixels_without_a_camera_ask_for_the_option(folder, inside):
    done = inside("essential", folder / "matches.csv", "--no-output")
    assert done.returncode == 2
    assert "pass --intrinsics" in done.stderr
    assert "K1" not in done.stderr


def test_the_scale_of_a_loss_may_be_found(folder, inside):
    given = ["fit", folder / "decay.csv", *MODEL, "--loss", "cauchy", "--no-output", "--json", "--f-scale"]
    done = inside(*given, "auto")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["f_scale"] > 0
    wrong = inside(*given, "wide")
    assert wrong.returncode == 2
    assert "neither a number nor auto" in wrong.stderr


def test_several_variables(inside, tmp_path):
    rng = np.random.default_rng(0)
    u, v = rng.random((2, 500))
    table = np.c_[u, v, 2 * u + 3 * v**2 + 0.01 * rng.standard_normal(500)]
    np.savetxt(tmp_path / "t.csv", table, delimiter=";", header="speed;height;drag", comments="")
    done = inside("fit", tmp_path / "t.csv", "-m", "drag ~ k*speed + q*height^2", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert re.search(r"q +[23]\.\d+", done.stdout)
    assert (tmp_path / "out" / "fit.png").exists()


def test_parquet_in_parts(inside, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(0)
    for part in range(2):
        x = rng.uniform(0, 4, 5000)
        y = 2.5 * np.exp(-1.3 * x) + 0.5 + 0.1 * rng.standard_normal(x.size)
        pq.write_table(pa.table({"x": x, "y": y}), tmp_path / f"{part}.parquet", row_group_size=1000)
    whole = inside("fit", tmp_path / "*.parquet", *MODEL, "-o", tmp_path / "out")
    assert whole.returncode == 0, whole.stderr
    assert "10,000" in whole.stdout
    single = inside("fit", tmp_path / "0.parquet", *MODEL, "--no-output")
    assert "5,000" in single.stdout


def test_missing_values(folder, inside, tmp_path):
    lines = (folder / "decay.csv").read_text().splitlines()
    lines[7] = "1.5,,0.1"
    (tmp_path / "holes.csv").write_text("\n".join(lines))
    done = inside("fit", tmp_path / "holes.csv", *MODEL, "--no-output")
    assert done.returncode == 2
    assert "column 'y' has nan in line 8" in done.stderr
    done = inside("fit", tmp_path / "holes.csv", *MODEL, "--no-output", "--nan", "omit")
    assert done.returncode == 0
    assert "19,999" in done.stdout


def test_no_convergence_is_exit_code_1_with_a_result(folder, inside, tmp_path):
    done = inside("fit", folder / "decay.csv", *MODEL, "--max-iter", "1", "-o", tmp_path)
    assert done.returncode == 1
    assert "max_iter reached" in done.stdout
    assert json.loads((tmp_path / "result.json").read_text())["success"] is False


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["absent.csv", *MODEL], "no such file: absent.csv"),
        (["{}/decay.csv", "-m", "a*x"], "name the response"),
        (["{}/decay.csv", "-m", "y ~ a*exp(-b*x"], r"expected '\)'"),
        (["{}/decay.csv", "-m", "y ~ a*q + b"], "none of a, q, b is a column"),
        (["{}/decay.csv", "-m", "z ~ a*x"], "response 'z' is not a column"),
        (["{}/decay.csv", "-m", "y ~ x + err"], "there is nothing to fit"),
        (["{}/decay.csv", "-m", "y ~ __import__('os').system('true') + a*x"], "there is no (function|column)"),
        (["{}/decay.csv", *MODEL, "--start", "q=1"], "no parameter 'q'"),
        (["{}/decay.csv", *MODEL, "--start", "a=one"], "not a number"),
        (["{}/decay.csv", *MODEL, "--start", "a"], "not of the form name=value"),
        (["{}/decay.csv", *MODEL, "--start", "a=1,a=2"], "given twice"),
        (["{}/decay.csv", *MODEL, "--bounds", "a=3"], "low:high"),
        (["{}/decay.csv", *MODEL, "--bounds", "a=3:1"], "lower 3.0 is above upper 1.0"),
        (["{}/decay.csv", *MODEL, "--loss", "cauchi"], "did you mean 'cauchy'"),
        (["{}/decay.csv", *MODEL, "--sigma", "none"], "--sigma: 'none' is not a column"),
        (["{}/decay.csv", *MODEL, "--nan", "guess"], "raise or omit"),
        (["{}/decay.csv", *MODEL, "--max-time", "-1"], "--max-time must be positive"),
        (["{}/decay.csv", *MODEL, "--max-memory", "lots"], "--max-memory must be bytes"),
        (["{}", *MODEL], "parquet|no rows|numeric"),
    ],
)
def test_bad_input_is_a_sentence_and_exit_code_2(folder, inside, args, says):
    done = inside("fit", *(a.replace("{}", str(folder)) for a in args), "--no-output")
    assert done.returncode == 2, done.stderr
    assert re.search(says, done.stderr, re.IGNORECASE), done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_debug_shows_the_traceback(inside):
    done = inside("fit", "absent.csv", *MODEL, "--debug", "--no-output")
    assert "Traceback" in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("arguments", "code"), [([], 2), (["nonsense"], 2), (["fit"], 2), (["--version"], 0), (["-h"], 0)]
)
def test_usage(inside, arguments, code):
    assert inside(*arguments).returncode == code


# --- terminals, pipes, signals -------------------------------------------------------------------------------


def _slow(folder):
    """A fit that runs until it is stopped: the cost has a valley without an end."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, 4_000_000)
    np.save(folder / "slow.npy", np.c_[x, rng.standard_normal(x.size)])
    return ["fit", folder / "slow.npy", "-m", "y ~ a*sin(b*x) + c*cos(d*x) + g*tanh(f*x)", "--method", "lm",
            "--start", "a=1,b=40,c=1,d=55,g=1,f=3"]  # fmt: skip


class Terminal:
    """The program with a pseudo-terminal as its stderr."""

    def __init__(self, *args):
        import pty

        self.end, other = pty.openpty()
        self.process = subprocess.Popen(
            [*PROGRAM, *map(str, args)], stdout=subprocess.PIPE, stderr=other, env={**os.environ, "COLUMNS": "70"},
        )  # fmt: skip
        os.close(other)
        self.shown = b""

    def read(self):
        """What is shown next, or nothing at the end."""
        try:
            part = os.read(self.end, 4096)
        except OSError:
            return b""
        self.shown += part
        return part

    def wait(self):
        while self.read():
            pass
        out, _ = self.process.communicate(timeout=60)
        os.close(self.end)
        return out.decode()


posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and pseudo-terminals are POSIX")


@posix
def test_control_c_keeps_the_best_point(folder, tmp_path):
    program = Terminal(*_slow(folder), "-o", tmp_path / "out")
    while b"batch" not in program.shown and program.read():
        pass
    program.process.send_signal(signal.SIGINT)
    out = program.wait()
    assert program.process.returncode == 130, program.shown
    assert "Interrupted; this is the best point so far" in out
    assert json.loads((tmp_path / "out" / "result.json").read_text())["status"] == "INTERRUPTED"
    assert b"Traceback" not in program.shown
    assert not list(tmp_path.rglob("*.part"))


@posix
@pytest.mark.parametrize("delay", [0.2, 1.0])
def test_control_c_at_any_moment(folder, tmp_path, delay):
    process = subprocess.Popen(
        [*PROGRAM, "demo", "-o", str(tmp_path / "out")], env=unwatched(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    # Before Python has finished starting it knows nothing of us.
    assert process.returncode in (130, -signal.SIGINT), err
    if process.returncode == 130:
        assert "Traceback" not in err


def test_no_progress_in_a_pipe(folder):
    done = run("fit", folder / "decay.csv", *MODEL, "--no-output")
    assert done.stderr == ""
    assert "\r" not in done.stdout
    assert "\x1b" not in done.stdout


@posix
def test_progress_on_a_terminal(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 4, 2_000_000)
    np.save(tmp_path / "big.npy", np.c_[x, 2.5 * np.exp(-1.3 * x) + 0.5 + 0.2 * rng.standard_normal(x.size)])
    program = Terminal("fit", tmp_path / "big.npy", *MODEL, "--method", "lm", "--no-output")
    out = program.wait()
    assert program.process.returncode == 0
    lines = program.shown.decode().split("\r")
    assert any("batch" in line and "cost" in line for line in lines), lines
    assert all(len(line) < 70 for line in lines)
    assert lines[-1].strip() == ""  # wiped at the end
    assert "Converged" in out
    still = Terminal("fit", tmp_path / "big.npy", *MODEL, "--method", "lm", "--no-output", "--quiet")
    assert still.wait() == ""
    assert still.shown == b""


@posix
def test_a_reader_that_leaves(folder):
    command = f"{sys.executable} -m problm fit {folder / 'decay.csv'} --model 'y ~ a*exp(-b*x) + c' --json --no-output"
    done = subprocess.run(["sh", "-c", f"{command} | head -c 10"], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


# --- missing packages ----------------------------------------------------------------------------------------

WITHOUT = "import sys\nfor name in {names!r}: sys.modules[name] = None\nfrom problm.cli import main\nmain()"


def without(names, *args):
    code = WITHOUT.format(names=names)
    done = subprocess.run([sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, timeout=240)
    return quiet(done)


def test_without_typer():
    done = without(["typer"], "fit")
    assert done.returncode == 3
    assert done.stderr == "problm: the command line needs Typer and Rich: pip install 'problm[cli]'\n"


def test_without_matplotlib_the_fit_is_there(folder, tmp_path):
    done = without(["matplotlib", "matplotlib.figure"], "fit", folder / "decay.csv", *MODEL, "-o", tmp_path)
    assert done.returncode == 0
    assert "no plot: plots need Matplotlib: pip install 'problm[plot]'" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == [RECORD, "report.html", "result.json"]


def test_without_pyarrow(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    done = without(["pyarrow", "pyarrow.dataset"], "fit", tmp_path / "t.parquet", *MODEL, "--no-output")
    assert done.returncode == 3
    assert "problm[big]" in done.stderr


# --- hostile input -------------------------------------------------------------------------------------------


def test_a_file_named_like_a_script(folder, inside, tmp_path):
    name = "<script>alert(1)<&>.csv"
    (tmp_path / name).write_text((folder / "decay.csv").read_text())
    done = inside("fit", tmp_path / name, *MODEL, "-o", tmp_path / "out")
    assert done.returncode == 0
    text = (tmp_path / "out" / "report.html").read_text()
    page = Page(text)
    only_our_script(text)
    assert "&lt;script&gt;" in text
    assert all(address.startswith("data:image/png;base64,") for address in page.addresses)


def test_a_file_named_like_a_pattern(folder, inside, tmp_path):
    file = tmp_path / "data[1]*?.csv"
    file.write_bytes((folder / "decay.csv").read_bytes())
    done = inside("fit", file, *MODEL, "--no-output")
    assert done.returncode == 0, done.stderr
    assert "20,000" in done.stdout


def test_matches_that_are_no_text(folder, inside, tmp_path):
    (tmp_path / "junk.csv").write_bytes(bytes(range(128, 256)))
    for args in (
        ["essential", tmp_path / "junk.csv"],
        ["essential", folder / "matches.csv", "-K", tmp_path / "junk.csv"],
    ):
        done = inside(*args, "--no-output")
        assert done.returncode == 2
        assert "junk.csv is not text" in done.stderr


def test_control_characters_do_not_reach_the_terminal(inside):
    done = inside("fit", "\x1b[2Jgone.csv", *MODEL, "--no-output")
    assert done.returncode == 2
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"x,y\n1\n", b"\xff\xfe", b"x,y\n1,2\n" + b"9" * 5000 + b"\n"])
def test_damaged_tables(inside, tmp_path, content):
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    done = inside("fit", path, *MODEL, "--no-output")
    assert done.returncode == 2
    assert "bad.csv" in done.stderr


def test_output_that_cannot_be_written(folder, inside, tmp_path):
    (tmp_path / "file").write_text("mine")
    done = inside("fit", folder / "decay.csv", *MODEL, "-o", tmp_path / "file")
    assert done.returncode == 2
    assert "is a file" in done.stderr
    assert (tmp_path / "file").read_text() == "mine"
    done = inside("fit", folder / "decay.csv", *MODEL, "-o", tmp_path / "file" / "below")
    assert done.returncode == 2


# --- the other commands --------------------------------------------------------------------------------------


def test_essential(folder, inside, tmp_path):
    done = inside("essential", folder / "matches.csv", "-K", folder / "K.txt", "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"inliers +3[3-6]\d of 500", done.stdout)
    names = [RECORD, "matches.csv", "matches.png", "report.html", "result.json"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    saved = json.loads((tmp_path / "result.json").read_text())
    assert np.allclose(np.array(saved["R"]) @ np.array(saved["R"]).T, np.eye(3))
    table = np.loadtxt(tmp_path / "matches.csv", delimiter=",", skiprows=1)
    assert table.shape == (500, 6)
    assert table[:, 5].sum() == saved["inliers"]


def test_fundamental_and_homography(folder, inside):
    done = inside("fundamental", folder / "matches.csv", "--json", "--no-output", "--threshold", "2")
    assert done.returncode == 0, done.stderr
    assert abs(np.linalg.det(np.array(json.loads(done.stdout)["F"]))) < 1e-9
    done = inside("homography", folder / "matches.csv", "--no-output", "--error", "transfer")
    assert done.returncode in (0, 1)  # the scene is not a plane: it may say so
    assert "Homography" in done.stdout


def test_two_views_bad_input(folder, inside, tmp_path):
    for args, says in (
        (["essential", "absent.csv"], "no file absent.csv"),
        (["essential", folder / "K.txt"], "x1 y1 x2 y2"),
        (["essential", folder / "matches.csv", "-K", folder / "matches.csv"], "not a list of numbers"),
        (["homography", folder / "matches.csv", "--threshold", "big"], "number or auto"),
        (["homography", folder / "matches.csv", "--images", folder / "K.txt", folder / "K.txt"], "image1"),
    ):
        done = inside(*args, "--no-output")
        assert done.returncode == 2, (args, done.stderr)
        assert says in done.stderr


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Two pictures of a texture, shifted by (3, -2)."""
    from PIL import Image

    path = tmp_path_factory.mktemp("photos")
    y, x = np.mgrid[0:100, 0:140]

    def scene(x, y):
        return 128 + 50 * np.sin(x / 6) + 40 * np.cos(y / 8 + x / 25)

    for name, picture in (("a.png", scene(x, y)), ("b.png", scene(x - 3, y + 2))):
        Image.fromarray(np.rint(picture).astype(np.uint8)).save(path / name)
    return path


def test_align(photos, inside, tmp_path):
    done = inside("align", photos / "a.png", photos / "b.png", "-m", "translation", "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    names = [RECORD, "aligned.png", "overlay.png", "report.html", "warp.json", "warp.txt"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    np.testing.assert_allclose(np.loadtxt(tmp_path / "warp.txt")[:2, 2], [3, -2], atol=0.05)
    page = Page((tmp_path / "report.html").read_text())
    assert page.tags.count("img") == 3
    again = inside(
        "align", photos / "a.png", photos / "b.png", "--initial", tmp_path / "warp.txt", "--mask1", photos / "a.png",
        "--levels", "1", "--json", "--no-output", "--max-time", "60",
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["files"] == []


def test_align_bad_input(photos, inside, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"\x89PNG but no more")
    (tmp_path / "long.txt").write_text("1 " * 10_000)
    (tmp_path / "words.txt").write_text("one two")
    a, b = photos / "a.png", photos / "b.png"
    for args, says in (
        ([a, tmp_path / "absent.png"], "image2: there is no file"),
        ([tmp_path / "bad.png", b], "cannot be read as an image"),
        ([a, b, "--overlay", "rainbow"], "--overlay must be one of"),
        ([a, b, "--levels", "many"], "--levels must be"),
        ([a, b, "--model", "affin"], "did you mean 'affine'"),
        ([a, b, "--initial", tmp_path / "long.txt"], "too large"),
        ([a, b, "--initial", tmp_path / "words.txt"], "does not hold a 3x3 matrix"),
        ([a, b, "--initial", "nowhere"], "there is no file 'nowhere'"),
    ):
        done = inside("align", *args, "--no-output")
        assert done.returncode == 2, (args, done.stderr)
        assert says in done.stderr


def test_bundle(inside, tmp_path):
    from scipy.spatial.transform import Rotation

    from problm import Reconstruction, read_colmap, write_colmap
    from problm.vision.bundle.camera_models import Intrinsics

    rng = np.random.default_rng(0)
    points = rng.uniform(-1, 1, (40, 3))
    turns = Rotation.from_rotvec(np.outer(np.linspace(-0.5, 0.5, 4), [0, 1, 0])).as_matrix()
    shifts = np.tile([0.0, 0.0, 6.0], (4, 1))
    camera = Intrinsics("SIMPLE_RADIAL", (800.0, 0.0, 0.0, -0.05))
    seen = np.stack([camera.project(points @ turns[i].T + shifts[i]) for i in range(4)])
    start = Reconstruction.from_arrays(turns, shifts, camera, points + rng.normal(0, 0.02, points.shape), seen)
    write_colmap(start, tmp_path / "model")
    done = inside("bundle", tmp_path / "model", "-o", tmp_path / "out", "--intrinsics", "fixed")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out" / "result.json").read_text())["rmse"] < 1e-3
    assert len(read_colmap(tmp_path / "out" / "model").points) == 40
    relaxed = inside("bundle", tmp_path / "model", "--acceptance", "paper-relaxed", "--json", "--no-output")
    assert relaxed.returncode == 0, relaxed.stderr
    assert json.loads(relaxed.stdout)["history"]["batch_size"][0] < 40
    for wrong in (["absent"], ["model", "--acceptance", "papers"]):
        done = inside("bundle", tmp_path / wrong[0], *wrong[1:], "--no-output")
        assert done.returncode == 2


def test_shuffle(inside, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(1000.0))
    done = inside("shuffle", tmp_path / "x.npy", tmp_path / "out.npy", "--seed", "3", "--max-memory", "10MB")
    assert (done.returncode, done.stderr) == (0, "")
    shuffled = np.load(tmp_path / "out.npy")
    assert not np.array_equal(shuffled, np.arange(1000.0))
    assert np.array_equal(np.sort(shuffled), np.arange(1000.0))
    again = inside("shuffle", tmp_path / "x.npy", tmp_path / "out.npy")
    assert again.returncode == 2
    assert "exists" in again.stderr
    assert (
        json.loads(inside("shuffle", tmp_path / "x.npy", tmp_path / "out.npy", "--overwrite", "--json").stdout)["rows"]
        == 1000
    )


@pytest.mark.slow
def test_fit_on_a_cluster(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("dask.distributed")
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 4, 50_000)
    y = 2.5 * np.exp(-1.3 * x) + 0.5 + 0.1 * rng.standard_normal(x.size)
    pq.write_table(pa.table({"x": x, "y": y}), tmp_path / "t.parquet", row_group_size=5000)
    done = run("fit", tmp_path / "t.parquet", *MODEL, "--cluster", "local", "--no-output", "--json")
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout)["x"], [2.5, 1.3, 0.5], atol=0.02)
    patience = {**os.environ, "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "1s"}  # Dask tries for 30 s
    nobody = "tcp://127.0.0.1:1"
    wrong = run("fit", tmp_path / "t.parquet", *MODEL, "--cluster", nobody, "--no-output", env=patience)
    assert wrong.returncode == 2
    assert "Traceback" not in wrong.stderr


def test_doctor(inside):
    done = inside("doctor", "--json")
    assert done.returncode == 0
    data = json.loads(done.stdout)
    assert data["healthy"]
    assert data["versions"]["numpy"] == np.__version__
    assert "problm" in inside("doctor").stdout


def test_bench_needs_a_checkout(inside, tmp_path, monkeypatch):
    monkeypatch.setenv("PROBLM_CHECKOUT", str(tmp_path))
    done = inside("bench", "all")
    assert done.returncode == 2
    assert "checkout" in done.stderr
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "__init__.py").write_text("")  # a package, before any other of this name
    (tmp_path / "bench" / "__main__.py").write_text("import sys; sys.exit(7 if sys.argv[1:] == ['x', '--y'] else 8)")
    assert inside("bench", "x", "--y").returncode == 7


def test_demo(inside, tmp_path):
    done = inside("demo", "--small", "-o", tmp_path / "demo")
    assert done.returncode == 0, done.stderr
    for word in ("ProBLM", "LM", "SciPy", "Dense alignment", "Essential matrix", "100,000 points"):
        assert word in done.stdout
    page = Page((tmp_path / "demo" / "report.html").read_text())
    assert page.tags.count("img") >= 3
    assert all(a.startswith("data:") for a in page.addresses)


def test_completion():
    named = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # or it asks the parent process
    done = run("--show-completion", "bash", env=named)
    assert done.returncode == 0
    assert "_PROBLM_COMPLETE" in done.stdout
    asked = {**os.environ, "_PROBLM_COMPLETE": "complete_bash", "COMP_WORDS": "problm es", "COMP_CWORD": "1"}
    assert run(env=asked).stdout.split() == ["essential"]
