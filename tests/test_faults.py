"""Signals, kills, full disks and damaged files: nothing half-written under a final name, nothing lost, no traceback."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest

import problm
from problm.files import write_atomically

pytest.importorskip("typer")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and limits are POSIX")

PROGRAM = [sys.executable, "-m", "problm"]
MODEL = ("--model", "y ~ a*exp(-b*x) + c")
ENDED = {signal.SIGINT: (130, -signal.SIGINT), signal.SIGTERM: (143, -signal.SIGTERM), signal.SIGKILL: (-9,)}
"""Exit codes; the negative ones are of processes that a signal reached while Python itself was starting."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """decay.npy (200,000 rows), decay.csv, a.png, b.png, a.jpg, matches.npz, a COLMAP model and a BAL file."""
    from problm.vision.simulate import two_views

    path = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 4, 200_000)
    y = 2.5 * np.exp(-1.3 * x) + 0.5 + 0.1 * rng.standard_normal(x.size)
    np.save(path / "decay.npy", np.c_[x, y])
    np.savetxt(path / "decay.csv", np.c_[x, y][:500], delimiter=",", header="x,y", comments="")
    views = two_views(300, inliers=0.8, seed=1)
    np.savez(path / "matches.npz", x1=views.x1, x2=views.x2)
    np.save(path / "matches.npy", np.c_[views.x1, views.x2])
    _pictures(path)
    _scene(path)
    with contextlib.suppress(ImportError):
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"x": x[:5000], "y": y[:5000]}), path / "decay.parquet", row_group_size=1000)
    return path


def _pictures(path):
    from PIL import Image

    y, x = np.mgrid[:120, :160]
    for name, dx, dy in (("a.png", 0, 0), ("b.png", 2, -1), ("a.jpg", 0, 0)):
        shade = 128 + 50 * np.sin((x - dx) / 6) + 40 * np.cos((y - dy) / 8 + (x - dx) / 25)
        Image.fromarray(np.rint(shade).astype(np.uint8)).save(path / name)


def _scene(path):
    from problm.vision.camera_models import Intrinsics
    from problm.vision.reconstruction import Reconstruction
    from problm.vision.reconstruction_io import write_colmap

    rng = np.random.default_rng(0)
    points = rng.uniform(-1, 1, (12, 3))
    camera = Intrinsics("SIMPLE_RADIAL", (800.0, 0.0, 0.0, -0.05))
    turns, shifts = np.tile(np.eye(3), (3, 1, 1)), np.c_[np.linspace(-1, 1, 3), np.zeros(3), np.full(3, 6.0)]
    seen = np.stack([camera.project(points + s) for s in shifts])
    start = Reconstruction.from_arrays(turns, shifts, camera, points + rng.normal(0, 0.02, points.shape), seen)
    write_colmap(start, path / "model")
    cameras = "".join(f"0 0 0 {x} {y} {z} 800 -0.05 0\n" for x, y, z in shifts * [1, -1, -1])
    lines = [f"{i} {j} {seen[i, j, 0]} {-seen[i, j, 1]}" for i in range(3) for j in range(12)]
    tail = "".join(f"{x} {-y} {-z}\n" for x, y, z in points)
    (path / "bal.txt").write_text(f"3 12 36\n{chr(10).join(lines)}\n{cameras}{tail}")


def whole(path):
    """Whether a file that the program writes is complete."""
    content = path.read_bytes()
    if path.suffix == ".json":
        json.loads(content)
    elif path.suffix == ".png":
        assert content.startswith(b"\x89PNG")
        assert content.endswith(b"IEND\xaeB`\x82"), path
    elif path.suffix == ".html":
        assert content.rstrip().endswith(b"</html>"), path
    else:
        assert content.endswith(b"\n"), path


def check_outputs(out, parts=False):
    """Every file under a final name is complete; temporary ones are left by kill -9 only."""
    found = [p for p in out.rglob("*") if p.is_file()] if out.exists() else []
    for path in found:
        if path.suffix != ".part":
            whole(path)
        else:
            assert parts, path
    return sorted(p.name for p in found if p.suffix != ".part")


def unwatched(**more):
    """The environment, without what makes processes measure their coverage: that writes files too."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COV")} | more


def call(*args, **options):
    return subprocess.run([*PROGRAM, *map(str, args)], capture_output=True, text=True, timeout=240, **options)


def polite(text):
    assert "Traceback" not in text, text
    assert "Exception ignored" not in text, text


# --- signals -------------------------------------------------------------------------------------------------


def _commands(folder):
    # Tolerances of nothing keep the fit going for a while, whatever the machine.
    fit = ["fit", folder / "decay.npy", *MODEL, "--start", "a=1,b=.2,c=0", "--method", "lm", "--max-iter", "40"]
    return {"fit": fit, "align": ["align", folder / "a.png", folder / "b.png"]}


@pytest.mark.slow
@pytest.mark.skipif("PROBLM_NIGHTLY" not in os.environ, reason="random moments: make fuzz runs it")
@pytest.mark.parametrize(("command", "times"), [("fit", 2), ("align", 1)])
def test_signals_at_random_moments(folder, tmp_path, command, times):
    args, out, rng = _commands(folder)[command], tmp_path / "out", random.Random(command)
    began = time.monotonic()
    done = call(*args, "-o", tmp_path / "undisturbed")
    took = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    for number in list(ENDED) * times:
        process = subprocess.Popen(
            [*PROGRAM, *map(str, args), "-o", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        time.sleep(rng.uniform(0.1, took))
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
        assert process.returncode in (0, *ENDED[number]), (process.returncode, err)
        if process.returncode >= 0:
            # An interrupt in the middle of a callback of the garbage collector's is shown by Python itself.
            polite(re.sub(r"Exception ignored in: .*?\nKeyboardInterrupt: ?\n", "", err, flags=re.DOTALL))
        check_outputs(out, parts=number == signal.SIGKILL)
        for part in out.rglob("*.part"):
            part.unlink()
    again = call(*args, "-o", out)
    assert again.returncode == 0, again.stderr
    assert check_outputs(out) == check_outputs(tmp_path / "undisturbed")
    name, what = {"fit": ("result.json", "x"), "align": ("warp.json", "matrix")}[command]
    first, last = (json.loads((f / name).read_text()) for f in (tmp_path / "undisturbed", out))
    assert first[what] == last[what]


def test_terminated_in_the_middle_writes_the_best_point(tmp_path):
    """SIGTERM as schedulers send it before they kill: the fit so far is printed and written."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, 2_000_000)
    np.save(tmp_path / "slow.npy", np.c_[x, rng.standard_normal(x.size)])
    args = ["fit", tmp_path / "slow.npy", "-m", "y ~ a*sin(b*x) + c*cos(d*x) + g*tanh(f*x)", "--method", "lm",
            "--start", "a=1,b=40,c=1,d=55,g=1,f=3", "-o", tmp_path / "out"]  # fmt: skip
    import pty

    end, other = pty.openpty()  # progress on a terminal tells when it is under way
    process = subprocess.Popen([*PROGRAM, *map(str, args)], stdout=subprocess.PIPE, stderr=other, text=True)
    os.close(other)
    shown = b""
    with contextlib.suppress(OSError):
        while b"batch" not in shown:
            shown += os.read(end, 4096)
        process.send_signal(signal.SIGTERM)
        while part := os.read(end, 4096):
            shown += part
    out, _ = process.communicate(timeout=60)
    os.close(end)
    assert process.returncode == 143, shown
    assert "Interrupted; this is the best point so far" in out
    assert json.loads((tmp_path / "out" / "result.json").read_text())["status"] == "INTERRUPTED"
    polite(shown.decode())
    check_outputs(tmp_path / "out")


_HARNESS = """
import os, sys, time
from pathlib import Path
here = Path(__file__).parent
try:
    (here / "pid").write_text(str(os.getpid()))
    time.sleep(60)
except KeyboardInterrupt:
    (here / "stopped").write_text("yes")
    sys.exit(130)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"])
def test_benchmarks_end_with_the_program(tmp_path, number, code):
    """A signal to the program alone stops the harness that it started: nothing runs on in the background."""
    bench = tmp_path / "bench"
    bench.mkdir()
    (bench / "harness.py").write_text("")
    (bench / "__main__.py").write_text(_HARNESS)
    process = subprocess.Popen(
        [*PROGRAM, "bench", "all"], env={**os.environ, "PROBLM_CHECKOUT": str(tmp_path)}, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (bench / "pid").exists() or not (bench / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code, err
    assert (bench / "stopped").exists()
    polite(err)
    with pytest.raises(ProcessLookupError):
        os.kill(int((bench / "pid").read_text()), 0)


_WRITER = """
import itertools, sys
from problm.files import write_atomically
print("ready", flush=True)
for k in itertools.count():
    write_atomically(sys.argv[1], bytes([65 + k % 26]) * 3_000_000)
"""


def test_kill_9_while_a_file_is_written(tmp_path):
    """Readers see one whole version or another, while it is replaced and after the writer was killed."""
    target, rng = tmp_path / "result.json", random.Random(0)

    def check():
        content = target.read_bytes()
        assert len(content) == 3_000_000
        assert content.count(content[:1]) == len(content)

    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", _WRITER, str(target)], stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"ready\n"
        until = time.monotonic() + rng.uniform(0.02, 0.3)
        while time.monotonic() < until:
            if target.exists():
                check()
        process.kill()
        process.wait()
        process.stdout.close()
        if target.exists():
            check()
    assert target.exists()


_SOLVE = """
import sys, time, numpy as np, problm
rows = np.load(sys.argv[1], mmap_mode="r")
fit = problm.least_squares(problm.formula("a*exp(-b*x) + c"), [1.0, .2, 0.0], data=(rows[:, 0], rows[:, 1]),
                           checkpoint=sys.argv[2], checkpoint_every=0.0,
                           callback=lambda state: time.sleep(float(sys.argv[3])))
print(fit.x.tobytes().hex(), repr(fit.cost), fit.nit)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda s: s.name)
def test_a_solve_killed_at_random_moments_ends_with_the_same_bits(folder, tmp_path, number):
    run = [sys.executable, "-c", _SOLVE, str(folder / "decay.npy")]
    began = time.monotonic()
    undisturbed = subprocess.run(
        [*run, str(tmp_path / "other.npz"), "0.05"], capture_output=True, text=True, check=True
    )
    took = time.monotonic() - began
    rng, path, killed = random.Random(int(number)), tmp_path / "solve.npz", 0
    for _ in range(20):
        process = subprocess.Popen([*run, str(path), "0.05"], stdout=subprocess.DEVNULL)
        time.sleep(rng.uniform(0.3, 1.0) * took)
        process.send_signal(number)
        if process.wait(timeout=60) == -number:
            killed += 1
        else:  # it was faster than the first one: begin again, and be quicker
            path.unlink(missing_ok=True)
            took *= 0.7
        if path.exists():
            with np.load(path, allow_pickle=False) as file:
                assert "state" in file.files
        if killed == 3:
            break
    assert killed
    resumed = subprocess.run([*run, str(path), "0"], capture_output=True, text=True, check=True)
    assert resumed.stdout == undisturbed.stdout


# --- no room, no right ---------------------------------------------------------------------------------------


def _limit(size):
    import resource

    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.fixture(params=["tmpfs", "limit"])
def small_disk(request, tmp_path):
    """(folder that takes 48 KiB in all or in a file, how to start a process that writes there)."""
    place = tmp_path / "disk"
    place.mkdir()
    if request.param == "limit":
        yield place, {"preexec_fn": _limit(48 << 10), "env": unwatched()}
        return
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a file system cannot be mounted here")
    try:
        yield place, {}
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("command", ["fit", "align"])
def test_a_full_disk(folder, small_disk, command):
    disk, options = small_disk
    done = call(*_commands(folder)[command], "-o", disk / "out", **options)
    assert done.returncode == 2, done.stderr
    assert re.search(r"No space left on device|File too large", done.stderr)
    polite(done.stderr)
    check_outputs(disk / "out")  # the first, small files are there; what had no room is not


def test_stdout_that_is_full(folder):
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*PROGRAM, "fit", str(folder / "decay.csv"), *MODEL, "--no-output"], stdout=full, stderr=subprocess.PIPE,
            text=True, timeout=240, check=False,
        )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "No space left on device" in done.stderr
    polite(done.stderr)


def test_a_checkpoint_without_room(tmp_path, monkeypatch):
    """The error reaches the user, with the best point; the checkpoint before stays as it was."""
    import problm.checkpoint

    rng = np.random.default_rng(0)
    x = rng.uniform(0, 4, 20_000)
    y = 2.5 * np.exp(-1.3 * x) + 0.5 + 0.1 * rng.standard_normal(x.size)
    path, writes, versions = tmp_path / "solve.npz", [], []

    def write(target, content):
        writes.append(len(content))
        if len(writes) == 4:
            versions.append(path.read_bytes())
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", full)
                write_atomically(target, content)
        write_atomically(target, content)

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def solve(**options):
        return problm.least_squares(
            lambda t, x, y: t[0] * np.exp(-t[1] * x) + t[2] - y, [1.0, 1.0, 0.0], data=(x, y), **options
        )

    with monkeypatch.context() as patch:
        patch.setattr(problm.checkpoint, "write_atomically", write)
        with pytest.raises(OSError, match="No space left") as caught:
            solve(checkpoint=path, checkpoint_every=0.0)
    assert "best point" in caught.value.__notes__[0]
    assert path.read_bytes() == versions[0]
    assert [p.name for p in tmp_path.iterdir()] == ["solve.npz"]
    assert solve(checkpoint=path).x.tobytes() == solve().x.tobytes()


def test_output_folders_that_cannot_be_made(folder, inside, tmp_path):
    if not Path("/proc/self").exists():
        pytest.skip("a folder that nobody can write to is needed")
    done = inside("fit", folder / "decay.csv", *MODEL, "-o", "/proc/self/fit")
    assert done.returncode == 2
    assert done.stderr.startswith("problm: ")
    assert done.stderr.count("\n") == 1
    assert "/proc/self/fit" in done.stderr


_CACHE = """
import logging, sys, numba
logging.basicConfig(format="%(message)s", stream=sys.stderr)
from numba import types
from problm.jit import njit
def twice(x): return 2.0 * x
print(njit(types.float64(types.float64))(twice)(4.0))
"""


@pytest.mark.parametrize("kind", ["below a file", "full", "read-only"])
def test_a_cache_folder_that_takes_nothing(tmp_path, kind):
    """Compiled code that cannot be kept is compiled and works all the same, and the user is told once."""
    script = tmp_path / "script.py"
    script.write_text(_CACHE)
    cache, options = tmp_path / "cache", {}
    if kind == "below a file":
        cache.write_text("")
        cache = cache / "below"
    else:
        cache.mkdir()
    if kind == "full":
        options = {"preexec_fn": _limit(100)}
    if kind == "read-only":
        cache.chmod(0o500)
        if os.access(cache, os.W_OK):
            pytest.skip("this user may write everywhere")
    done = subprocess.run(
        [sys.executable, str(script)], env=unwatched(NUMBA_CACHE_DIR=str(cache)), capture_output=True,
        text=True, timeout=240, check=False, **options,
    )  # fmt: skip
    assert done.stdout == "8.0\n", done.stderr
    polite(done.stderr)


# --- damaged files -------------------------------------------------------------------------------------------


@pytest.fixture
def inside(monkeypatch, capsys):
    """The program in this process."""
    from problm.cli import main

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["problm", *map(str, args)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a flipped bit makes a number of 1e300, whose square overflows
            with pytest.raises(SystemExit) as left:
                main()
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(args, left.value.code or 0, out, err)

    return call


_DAMAGED = {
    "decay.csv": lambda f, bad: ["fit", bad, *MODEL],
    "decay.npy": lambda f, bad: ["fit", bad, *MODEL],
    "decay.parquet": lambda f, bad: ["fit", bad, *MODEL],
    "a.png": lambda f, bad: ["align", bad, f / "b.png"],
    "a.jpg": lambda f, bad: ["align", bad, f / "b.png"],
    "matches.npz": lambda f, bad: ["homography", bad],
    "matches.npy": lambda f, bad: ["fundamental", bad],
    "bal.txt": lambda f, bad: ["bundle", bad],
    "model/cameras.txt": lambda f, bad: ["bundle", bad.parent],
    "model/images.txt": lambda f, bad: ["bundle", bad.parent],
    "model/points3D.txt": lambda f, bad: ["bundle", bad.parent],
}


@pytest.mark.parametrize("name", _DAMAGED)
def test_files_that_are_cut_short_or_damaged(folder, inside, tmp_path, name):
    """A sentence and exit code 2 for what cannot be read; never a traceback, an error of ours, or a file."""
    source = folder / name
    if not source.exists():
        pytest.skip("PyArrow is not installed")
    bad = tmp_path / "in" / name
    bad.parent.mkdir(parents=True)
    if name.startswith("model/"):
        for other in source.parent.iterdir():
            (bad.parent / other.name).write_bytes(other.read_bytes())
    content, rng = source.read_bytes(), random.Random(name)
    damaged = [content[: int(share * len(content))] for share in (0.0, 0.01, 0.3, 0.9)]
    damaged.append(bytes(rng.randrange(256) for _ in range(200)))
    for _ in range(3):
        flipped = bytearray(content)
        for _ in range(5):
            flipped[rng.randrange(min(len(flipped), 4000))] = rng.randrange(256)
        damaged.append(bytes(flipped))
    codes = []
    for data in damaged:
        bad.write_bytes(data)
        done = inside(*_DAMAGED[name](folder, bad), "-o", tmp_path / "out")
        codes.append(done.returncode)
        assert done.returncode in (0, 1, 2), done.stderr
        polite(done.stderr)
        if done.returncode == 2:
            assert done.stderr.startswith("problm: ")
            assert check_outputs(tmp_path / "out") == [], "files although there is nothing to tell"
        else:
            check_outputs(tmp_path / "out")
            for path in (tmp_path / "out").rglob("*"):
                if path.is_file():
                    path.unlink()
    assert codes[0] == codes[1] == codes[4] == 2  # nothing, nearly nothing, and noise
    if source.suffix in (".npy", ".npz", ".parquet", ".png", ".jpg"):
        assert codes[:4] == [2] * 4


def test_a_damaged_result(folder, tmp_path):
    fit = problm.least_squares(lambda t, x: t[0] * x - 1.0, [1.0], data=np.linspace(1, 2, 50))
    path = tmp_path / "fit.json"
    fit.save(path)
    content = path.read_bytes()
    for share in (0.0, 0.3, 0.99):
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(ValueError, match=r"fit\.json is not JSON"):
            problm.Result.load(path)


# --- errors of the user's ------------------------------------------------------------------------------------


class Trouble(RuntimeError):
    pass


@pytest.mark.parametrize("where", ["callback", "function", "jacobian", "file"])
def test_an_error_keeps_its_traceback_and_the_best_point(folder, where):
    """An exception of the user's comes out as it is: its own frames, and the best point in a note that is read back."""
    rows = np.load(folder / "decay.npy")[:60_000]
    calls = 0

    def my_own_mistake():
        raise Trouble("seven")

    def count():
        nonlocal calls
        calls += 1
        if calls == (4 if where in ("callback", "jacobian") else 10):
            my_own_mistake()

    def residuals(t, x, y):
        if where in ("function", "file"):
            count()
        return t[0] * np.exp(-t[1] * x) + t[2] - y

    def derivative(t, x, y):
        e = np.exp(-t[1] * x)
        if where == "jacobian":
            count()
        return np.stack([e, -t[0] * x * e, np.ones_like(x)], axis=1)

    def callback(state):
        if where == "callback":
            count()

    start = np.array([1.0, 0.2, 0.0])
    columns = (rows[:, 0], rows[:, 1])
    data = columns
    options = {"jac": derivative, "callback": callback}
    if where == "file":
        data = tuple(
            np.lib.format.open_memmap(folder / f"{n}.npy", "w+", shape=c.shape)
            for n, c in zip("xy", columns, strict=True)
        )
        for target, column in zip(data, columns, strict=True):
            target[:] = column
        options = {"max_memory": "1MB", "callback": callback}
    with pytest.raises(Trouble, match="seven") as caught:
        problm.least_squares(residuals, start, data=data, gtol=0, ftol=0, xtol=0, **options)
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-1] == "my_own_mistake"
    (note,) = caught.value.__notes__
    best = np.array([float(v) for v in re.findall(r"-?\d+\.\d*(?:e[-+]?\d+)?", note.partition("best point:")[2])])
    assert best.shape == (3,)
    calls = -(10**9)
    assert np.sum(residuals(best, *columns) ** 2) <= np.sum(residuals(start, *columns) ** 2)
