"""Control-C, SIGTERM and kill -9: nothing half-written under a final name, nothing lost, no traceback."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.helpers.program import PROGRAM, call, check_outputs, commands, polite, unwatched, write_inputs

pytest.importorskip("typer")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")

ENDED = {signal.SIGINT: (130, -signal.SIGINT), signal.SIGTERM: (143, -signal.SIGTERM), signal.SIGKILL: (-9,)}
"""Exit codes; the negative ones are of processes that a signal reached while Python itself was starting."""


@pytest.fixture(autouse=True)
def control_c():
    """Taken in this process too, where a shell told it to ignore that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    write_inputs(path)
    return path


@pytest.mark.slow
@pytest.mark.skipif("PROBLM_NIGHTLY" not in os.environ, reason="random moments: make fuzz runs it")
@pytest.mark.parametrize(("command", "times"), [("fit", 2), ("align", 1)])
def test_signals_at_random_moments(folder, tmp_path, command, times):
    args, out, rng = commands(folder)[command], tmp_path / "out", random.Random(command)
    began = time.monotonic()
    done = call(*args, "-o", tmp_path / "undisturbed")
    took = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    for number in list(ENDED) * times:
        process = subprocess.Popen(
            [*PROGRAM, *map(str, args), "-o", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=unwatched(),
        )  # fmt: skip
        time.sleep(rng.uniform(0.1, took))
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
        assert process.returncode in (0, *ENDED[number]), (process.returncode, err)
        if process.returncode >= 0:
            polite(err)
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
    (bench / "__init__.py").write_text("")  # a package, before any other of this name
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
from problm.support.files import write_atomically
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


# --- moments at which Python makes something else of an exception ---------------------------------------------

_WHERE = {
    "a finalizer": """
class Last:
    def __del__(self):
        signal.raise_signal(number)
Last()
time.sleep(60)
""",
    "a callback of C": """
import ctypes
number_of = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: signal.raise_signal(number) or 0)
number_of()
time.sleep(60)
""",
    "code from text": "exec('signal.raise_signal(number)')",
}
_PROGRAM = """
import signal, sys, time
from problm.cli.exits import interruption, terminable
number = int(sys.argv[1])
with terminable():
    try:
        {code}
    except KeyboardInterrupt:
        sys.exit(interruption())
"""


@pytest.mark.parametrize("where", _WHERE)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
def test_no_signal_is_swallowed(where, number):
    """By finalizers and callbacks, where Python prints it and goes on, nor turned into another exit code by `exec`."""
    code = _PROGRAM.format(code=_WHERE[where].strip().replace("\n", "\n        "))
    done = subprocess.run(
        [sys.executable, "-c", code, str(int(number))], capture_output=True, text=True, timeout=50, check=False,

    )  # fmt: skip
    assert (done.returncode, done.stderr) == (ENDED[number][0], "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
def test_a_signal_before_the_command_begins(monkeypatch, number):
    """While Typer reads the arguments, which has exit codes of its own for it."""
    import problm.cli
    import problm.cli.app

    monkeypatch.setattr(problm.cli.app, "print", lambda *_: signal.raise_signal(number), raising=False)
    monkeypatch.setattr(sys, "argv", ["problm", "--version"])
    with pytest.raises(SystemExit) as left:
        problm.cli.main()
    assert left.value.code == ENDED[number][0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
def test_a_signal_while_an_extension_is_imported(capsys, number):
    """NumPy and Numba print what interrupts the imports of their extensions, and raise an ImportError instead."""
    import typer

    from problm.cli.exits import guarded, terminable

    @guarded
    def command():
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            sys.excepthook(*sys.exc_info())
            raise ImportError("an extension failed to import") from None

    with terminable(), pytest.raises(typer.Exit) as left:
        command()
    assert left.value.exit_code == ENDED[number][0]
    assert capsys.readouterr().err == "problm: interrupted\n"


def test_signals_that_a_shell_told_us_to_ignore_stay_ignored():
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); from problm.cli.exits import terminable\n"
        "with terminable(): signal.raise_signal(signal.SIGINT)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("where", ["ended_above_start", "again"])
def test_an_interrupt_between_two_runs_keeps_the_point_of_the_first(monkeypatch, where):
    """While the cost at the start is compared, and before the second run has linearised for the first time."""
    import problm
    from problm.solver.loop import Loop

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Loop, "ended_above_start", lambda self: True)
    monkeypatch.setattr(Loop, where, interrupted)
    x = np.linspace(0, 1, 50)
    fit = problm.least_squares(lambda t, x, y: t[0] * x - y, [1.0], data=(x, 2 * x + 0.01 * np.sin(99 * x)))
    assert fit.status.name == "INTERRUPTED"
    assert abs(fit.x[0] - 2.0) < 0.1
