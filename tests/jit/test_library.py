"""Code compiled ahead of time: the same bits, without Numba; checked before it is used."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from problm import manifolds
from problm.jit import build, library, types
from problm.jit.njit import njit
from problm.jit.seal import check_seal
from problm.jit.sources import digest
from tests.helpers.program import unwatched

SOME = (
    "problm.manifolds.rotation_exp", "problm.manifolds.as_rotation", "problm.jit.gram.add_products",
    "problm.vision.images.pyramid._halve_into", "problm.vision.images.pyramid._smooth_into",
    "problm.vision.images.image._luma",
)  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a library of a few functions."""
    folder = tmp_path_factory.mktemp("cache") / "problm"
    try:
        build.build(to=folder, only=SOME, jobs=1)
    except RuntimeError as error:
        pytest.skip(str(error))
    return folder


def run(folder, code, **environment):
    """Standard output and error of a program, which finds what is in the folder."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, logging, numpy as np\nimport problm.manifolds as m\n{code}"],
        env=unwatched(NUMBA_CACHE_DIR=str(folder.parent), **environment), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_the_same_bits_without_numba(made):
    code = """
w = np.array([0.3, -1.2, 0.7])
R = m.rotation_exp(w)
print(R.tobytes().hex(), m.as_rotation(R * 1.01)[1].hex(), R.flags.writeable, R.flags.c_contiguous)
print("numba" in sys.modules, "llvmlite" in sys.modules)
"""
    (fast, known), (slow, compiled) = (run(made, code, PROBLM_COMPILED=k)[0].splitlines() for k in "10")
    assert fast == slow
    assert (known, compiled) == ("False False", "True True")


def test_code_for_older_processors_has_the_same_bits(made, tmp_path):
    if not library.features().issuperset(library.TARGETS["x86-64-v2"]):
        pytest.skip("another kind of processor")
    build.build("x86-64-v2", tmp_path, only=SOME, jobs=1)
    code = f"""
from pathlib import Path
import problm.jit.library as library
library.SHIPPED = Path({str(tmp_path)!r})
print(m.rotation_exp(np.array([0.3, -1.2, 0.7])).tobytes().hex(), "numba" in sys.modules, library.candidates()[0].name)
"""
    own = run(made, code)[0].split()
    shipped = run(tmp_path / "elsewhere", code)[0].split()
    assert own[:2] == shipped[:2]
    assert (own[2], shipped[2]) == (library.file_name(library.this_machine()), library.file_name("x86-64-v2"))


def test_other_types_are_compiled(made):
    code = """
w = np.array([0.3, 9.0, -1.2, 9.0, 0.7, 9.0])
print(np.array_equal(m.rotation_exp(w[::2]), m.rotation_exp(w[::2].copy())), "numba" in sys.modules)
w = np.array([1, 0, 0])
print(np.array_equal(m.rotation_exp(w), m.rotation_exp(w.astype(float))))
try:
    m.rotation_exp(w, w)
except TypeError as error:
    print("too many" in str(error) or "argument" in str(error))
"""
    assert run(made, code)[0].split() == ["True", "True", "True", "True"]


def test_nothing_is_held_that_is_not_used(made):
    code = """
import tracemalloc
w = np.array([0.3, -1.2, 0.7])
def many(n):
    for _ in range(n):
        R = m.rotation_exp(w)
        m.as_rotation(R)
many(100)
before = sys.getrefcount(w)
import resource
many(20_000)
low = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
many(100_000)
print(sys.getrefcount(w) - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - low < 4000)
"""
    assert run(made, code)[0] == "0 True"


def test_changed_sources_are_compiled(made):
    code = """
from problm.jit import library, sources
before = library.code(m.rotation_exp.py_func) is not None
sources.content.cache_clear(), sources.digest.cache_clear()
real = sources.content
sources.content = lambda file: "changed" if file.endswith("manifolds.py") else real(file)
print(before, library.code(m.rotation_exp.py_func) is None)
"""
    assert run(made, code)[0] == "True True"


def cut(share):
    return lambda data: data[: int(share * len(data))]


def overwritten(data):
    """Machine code that would run."""
    at = len(data) // 2
    return data[:at] + b"\xcc" * 64 + data[at + 64 :]


DAMAGE = {
    "empty": lambda data: b"", "no library": lambda data: b"no library", "a head": lambda data: data[:100],
    "a tenth": cut(0.1), "half": cut(0.5), "nearly all": lambda data: data[:-1], "overwritten": overwritten,
    "another processor's": lambda data: data[:18] + b"\xb7\x00" + data[20:], "half zeros": lambda data:
    data[: len(data) // 2] + bytes(len(data) - len(data) // 2), "longer": lambda data: data + b"x",
    "not ours": lambda data: Path(sys.modules["numpy._core._multiarray_umath"].__file__).read_bytes(),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_noticed(made, tmp_path, damage):
    whole = made / library.file_name(library.this_machine())
    check_seal(whole)
    (tmp_path / "library").write_bytes(DAMAGE[damage](whole.read_bytes()))
    with pytest.raises(ValueError, match="damaged"):
        check_seal(tmp_path / "library")


@pytest.mark.parametrize("damage", ["empty", "half", "overwritten", "not ours"])
def test_a_damaged_library_is_bypassed_with_a_sentence(made, damage):
    """Loaded, most of these would end the process by SIGBUS or SIGSEGV."""
    whole = made / library.file_name(library.this_machine())
    broken = made.parent / "broken" / damage / "problm"
    broken.mkdir(parents=True)
    (broken / whole.name).write_bytes(DAMAGE[damage](whole.read_bytes()))
    out, said = run(broken, "print(m.rotation_exp(np.zeros(3))[0, 0])")
    assert out == "1.0"
    assert said.count("cannot be loaded") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes of POSIX")
@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_libraries_that_are_no_files(tmp_path, kind):
    make = {"pipe": os.mkfifo, "folder": os.mkdir, "device": lambda p: os.symlink("/dev/zero", p)}
    make[kind](tmp_path / "library")
    with pytest.raises((ValueError, OSError)):
        check_seal(tmp_path / "library")


@pytest.fixture
def objects(made):
    """Where the objects of the library are, and what is known about them."""
    place = build.folder() / f"{Path(library.file_name(library.this_machine())).stem}.objects"
    pieces = [build._kept(p, p.with_suffix(".o")) for p in sorted(place.glob("*.pickle"))]
    return place, [p for p in pieces if p.name == SOME[0] and p.digest == digest(manifolds.rotation_exp.py_func)]


def joiner(objects, to, **more):
    """A process that makes a library of objects."""
    place, pieces = objects
    code = """
import sys, pickle
from pathlib import Path
from problm.jit import build
place, pieces, to = pickle.loads(bytes.fromhex(sys.argv[1]))
try:
    build._join(build.c_compiler(), place, pieces, to)
    print("made")
except (RuntimeError, OSError) as error:
    print("refused:", error)
"""
    given = pickle.dumps((place, pieces, to)).hex()
    return subprocess.Popen([sys.executable, "-c", code, given], stdout=subprocess.PIPE, text=True, **more)


def test_two_processes_make_a_library_at_once(objects, tmp_path):
    to = tmp_path / "problm" / library.file_name(library.this_machine())
    to.parent.mkdir()
    assert [p.communicate()[0].strip() for p in [joiner(objects, to) for _ in range(2)]] == ["made", "made"]
    assert run(to.parent, "print(m.rotation_exp(np.zeros(3))[0, 0], 'numba' in sys.modules)")[0] == "1.0 False"
    assert os.listdir(to.parent) == [to.name]


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_a_full_disk_leaves_no_library(objects, tmp_path):
    import resource

    to = tmp_path / library.file_name(library.this_machine())
    limit = 10_000
    ended = joiner(objects, to, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert ended.communicate()[0].startswith("refused:")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_objects_are_made_anew(objects, tmp_path, damage):
    """What is kept from one build to the next is no more trusted than the library."""
    for name in (f"{objects[1][0].key}.pickle", f"{objects[1][0].key}.o"):
        about, compiled = (shutil.copy(objects[0] / f"{objects[1][0].key}{s}", tmp_path) for s in (".pickle", ".o"))
        assert build._kept(Path(about), Path(compiled)) is not None
        (tmp_path / name).write_bytes(DAMAGE[damage]((tmp_path / name).read_bytes()))
        assert build._kept(Path(about), Path(compiled)) is None


def test_a_processor_that_cannot_run_it_does_not_load_it(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "SHIPPED", tmp_path)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("NUMBA_CPU_NAME", raising=False)
    for target in library.TARGETS:
        (tmp_path / library.file_name(target)).touch()
    monkeypatch.setattr(library, "features", lambda: {"SSE42", "POPCNT", "AVX2"})
    assert [p.name for p in library.candidates()] == [library.file_name("x86-64-v2")]
    monkeypatch.setattr(library, "features", lambda: {"NEON"})
    assert library.candidates() == []


def test_types_are_those_of_numba():
    signature = types.Tuple((types.float64, types.UniTuple(types.int64, 2)))(
        types.float64[:, ::1], types.Array(types.uint8, 3, "A", readonly=True), types.boolean
    )
    assert types.signature(signature.code) == signature
    assert str(signature.numba) == str(types.signature(signature.code).numba)
    assert str(types.void(types.float32[:]).numba) == "(Array(float32, 1, 'A', False, aligned=True),) -> none"


def test_without_a_compiler_the_reason_is_given(monkeypatch):
    monkeypatch.setattr(build.shutil, "which", lambda command: None)
    with pytest.raises(RuntimeError, match="no C compiler"):
        build.build()


def test_the_libraries_of_a_wheel(monkeypatch):
    """`make dist` builds for all processors of this kind of machine, into the folder that wheels carry."""
    asked = []
    monkeypatch.setattr(build, "build", lambda *words: asked.append(words))
    build.build_for_wheel()
    (command,) = re.findall(
        r'\$\(BIN\)/python -c "(.*jit.*)"', Path(__file__, "../../../Makefile").resolve().read_text()
    )
    exec(command)  # noqa: S102  our own
    assert asked
    assert asked[: len(asked) // 2] == asked[len(asked) // 2 :]
    assert {where for _, where in asked} == {library.SHIPPED}


def test_all_functions_are_found():
    """`load_all` imports only modules that import from `problm.jit`; no other module makes compiled functions."""
    code = """
import importlib, pkgutil, problm
from problm.jit import build, njit
build.load_all()
before = len(njit.FUNCTIONS)
for module in pkgutil.walk_packages(problm.__path__, "problm."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ImportError:
            pass
print(before > 100, [f.__module__ for f in njit.FUNCTIONS[before:]])
"""
    done = subprocess.run([sys.executable, "-c", code], env=unwatched(), capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "True []"


@pytest.mark.parametrize("kind", ["uint8", "uint16", "float32"])
def test_each_type_has_its_code(made, kind):
    """A function for several types is found for each of them."""
    code = f"""
from problm.vision.images.pyramid import _halved
print(_halved(np.arange(48, dtype=np.{kind}).reshape(6, 8)).tolist(), "numba" in sys.modules)
"""
    (fast, slow) = (run(made, code, PROBLM_COMPILED=k)[0] for k in "10")
    assert fast.endswith(" False")
    assert slow == fast.replace(" False", " True")


@njit(types.float64(types.float64, types.float64, types.float64))
def _sum(x, y, z):
    return (x + y) + z - x


@njit(types.float64(types.float64, types.float64, types.float64), fastmath=True)
def _caller(x, y, z):
    return _sum(x, y, z) + _sum(z, y, x)


def test_code_does_not_depend_on_who_needed_it_first(tmp_path, monkeypatch):
    """A function that is compiled for a caller inherits the caller's options; the library's code does not."""
    monkeypatch.setattr(build, "FUNCTIONS", [_sum, _caller])
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    build._compile(tmp_path, [build.name_of(_caller.py_func)])
    assert "dispatcher" in vars(_sum), "compiled for its caller"
    plain, made = type(_sum).plain_dispatcher, []
    monkeypatch.setattr(type(_sum), "plain_dispatcher", lambda self: made.append(self) or plain(self))
    build._compile(tmp_path, [build.name_of(_sum.py_func)])
    assert made == [_sum]


def test_all_functions_of_a_library_are_found(made):
    assert run(made, "from problm.jit import library\nprint(*sorted(library.table()))")[0].split() == sorted(SOME)


def test_scattered_lines_are_not_used():
    """An entry tries adjacent lines of the table: those of another function must not be among them."""
    lines = [
        ("a", "x", "v:l", 1),
        ("b", "y", "v:l", 2),
        ("a", "x", "v:d", 3),
        ("c", "z", "v:l", 4),
        ("c", "z", "v:d", 5),
    ]
    assert library.by_name(lines) == {
        "b": library.Code(1, "y", {"v:l": 2}),
        "c": library.Code(3, "z", {"v:l": 4, "v:d": 5}),
    }
