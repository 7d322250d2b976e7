"""Full disks, damaged files and errors of the user's: nothing half-written, nothing lost, no traceback."""

from __future__ import annotations

import errno
import os
import random
import re
import subprocess
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest

import problm
from problm.support.files import write_atomically
from tests.helpers.program import MODEL, PROGRAM, call, check_outputs, commands, polite, unwatched, write_inputs

pytest.importorskip("typer")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and limits are POSIX")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    write_inputs(path)
    return path


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
    done = call(*commands(folder)[command], "-o", disk / "out", **options)
    assert done.returncode == 2, done.stderr
    assert re.search(r"No space left on device|File too large", done.stderr)
    polite(done.stderr)
    check_outputs(disk / "out")  # the first, small files are there; what had no room is not


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("command", ["fit", "help"])
def test_stdout_that_is_full(folder, command, buffered):
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    args = ["fit", str(folder / "decay.csv"), *MODEL, "--no-output"] if command == "fit" else ["--help"]
    env = {**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*PROGRAM, *args], stdout=full, stderr=subprocess.PIPE, env=env, text=True, timeout=240, check=False
        )
    assert done.returncode == 2, done.stderr
    assert done.stderr == "problm: No space left on device\n"
    polite(done.stderr)


def test_a_checkpoint_without_room(tmp_path, monkeypatch):
    """The error reaches the user, with the best point; the checkpoint before stays as it was."""
    import problm.solver.checkpoint.state

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
        patch.setattr(problm.solver.checkpoint.state, "write_atomically", write)
        with pytest.raises(OSError, match="No space left") as caught:
            solve(checkpoint=path, checkpoint_every=0.0)
    assert "best point" in caught.value.__notes__[0]
    assert path.read_bytes() == versions[0]
    assert [p.name for p in tmp_path.iterdir()] == ["solve.npz"]
    assert solve(checkpoint=path).x.tobytes() == solve().x.tobytes()


@pytest.mark.parametrize("name", ["none/result.json", ""])
def test_errors_name_the_file_that_was_to_be_written(tmp_path, name):
    with pytest.raises(OSError, match=r"(No such file or directory|Is a directory): '[^']*'$") as caught:
        write_atomically(tmp_path / name, "{}")
    assert caught.value.filename == str(tmp_path / name)
    assert list(tmp_path.parent.glob(".*.part")) == []


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
from problm.jit import types
from problm.jit.njit import njit
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


def test_functions_that_return_the_same_array_every_time():
    """Difference quotients would be of an array with itself: no slope, hence success at the start."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 4, 400)
    y = 2.5 * np.exp(-1.3 * x) + 0.5 + 0.1 * rng.standard_normal(400)
    kept = {}

    def plain(t, x, y):
        return t[0] * np.exp(-t[1] * x) + t[2] - y

    def whole(t, x, y):
        buffer = kept.setdefault(len(x), np.empty(len(x)))
        buffer[:] = plain(t, x, y)
        return buffer

    def view(t, x, y):
        buffer = kept.setdefault(-len(x), np.empty(500))[: len(x)]
        buffer[:] = plain(t, x, y)
        return buffer

    expected = problm.least_squares(plain, [1.0, 1.0, 0.0], data=(x, y))
    assert expected.success
    for fun in (whole, view):
        for jac in ("2-point", "3-point"):
            fit = problm.least_squares(fun, [1.0, 1.0, 0.0], jac=jac, data=(x, y))
            assert fit.success
            np.testing.assert_allclose(fit.x, expected.x, rtol=1e-6)


@pytest.mark.parametrize("given", [False, True])
def test_functions_that_write_to_their_parameters(given):
    def careless(t, x):
        r = t[0] * x - 2.0
        t[:] = 99.0
        return r

    def derivative(t, x):
        t[:] = 99.0
        return x[:, None]

    fit = problm.least_squares(careless, [1.0], data=np.ones(50), jac=derivative if given else "2-point")
    assert fit.success
    assert fit.x[0] == pytest.approx(2.0)
